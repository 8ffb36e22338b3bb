// A call of sympow.h on the arrays of a problem.
#pragma once

#include <memory>
#include <new>

#include "problem.hpp"

namespace attend_npy {

template <auto destroy>
struct Destroy {
  void operator()(auto* handle) const { destroy(handle); }
};
using Attention = std::unique_ptr<sympow_attention, Destroy<sympow_attention_destroy>>;
using States = std::unique_ptr<sympow_states, Destroy<sympow_states_destroy>>;

/// Throws `BadInput` with the library's sentence after `where`, and std::bad_alloc where memory ended.
inline void check(sympow_status status, const std::string& where = "") {
  if (status == SYMPOW_OUT_OF_MEMORY) throw std::bad_alloc();
  if (status != SYMPOW_OK) fail(where, sympow_error());
}

inline Attention attention_of(const Arguments& x, int form) {
  sympow_options options = SYMPOW_OPTIONS_INIT;
  options.scores = x.feature == Feature::exponential ? SYMPOW_SCORES_EXPONENTIAL
                   : x.feature == Feature::random    ? SYMPOW_SCORES_RANDOM
                                                     : SYMPOW_SCORES_POWER;
  options.power = static_cast<std::int32_t>(x.degree), options.features = x.features, options.seed = x.seed;
  options.normalisation = x.divides() ? SYMPOW_NORMALISED : SYMPOW_UNNORMALISED;
  options.form = form, options.pairing = x.pairing, options.threads = 1;
  options.chunk = x.chunk, options.scale = x.scale;
  sympow_attention* attention = nullptr;
  check(sympow_attention_create(&options, &attention));
  return Attention(attention);
}

/// S is the type of queries, keys and values.
template <class S>
class Call {
 public:
  /// The arrays must stay where they are.
  Call(const Problem& problem, const Arrays& arrays) : problem_(problem), arrays_(arrays) {
    const auto tensor = [&](const char* option) { return tensors_.add(problem, arrays, option); };
    in_.queries = tensor("--q"), in_.keys = tensor("--k"), in_.values = tensor("--v");
    in_.log_gates = tensor("--log-gate"), in_.theta = tensor("--theta"), in_.beta = tensor("--beta");
    in_.householder = tensor("--householder"), in_.strengths = tensor("--strength");
    if (!problem.lengths.empty()) in_.lengths = tensors_.add(problem.lengths.data(), {problem.B});
    if (problem.arguments.has("--state-in")) where_ = problem.arguments.text("--state-in") + ": ";
  }

  /// States of all query heads, read from a file if there is one.
  [[nodiscard]] States states() const {
    const Arguments& arguments = problem_.arguments;
    sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
    shape.batch = problem_.B, shape.heads = problem_.H, shape.d = problem_.d, shape.e = problem_.e;
    shape.dtype.bits = 8 * sizeof(S);
    sympow_states* states = nullptr;
    check(sympow_states_create(attention_of(arguments, SYMPOW_FORM_RECURRENT).get(), &shape, nullptr, &states));
    States owned(states);
    if (arguments.has("--state-in"))
      check(sympow_states_load(states, arguments.given.at("--state-in").c_str()), "--state-in ");
    return owned;
  }

  /// Y, which moves states on.
  [[nodiscard]] std::vector<S> rows(int form, sympow_states* states) {
    std::vector<S> rows(count(problem_.e));
    if (rows.empty() && states == nullptr) return rows;
    const auto* to = tensors_.add(problem_, rows.data(), problem_.H, problem_.e);
    check(sympow_attend(attention(form), &in_, states, to, nullptr, nullptr), where_);
    return rows;
  }
  /// Three numbers for every row.
  [[nodiscard]] std::vector<double> diagnostics(int form, const sympow_states* states) {
    std::vector<double> found(count(3));
    if (found.empty()) return found;
    const auto* to = tensors_.add(problem_, found.data(), problem_.H, 3);
    check(sympow_diagnose(attention(form), &in_, states, to, nullptr, nullptr), where_);
    return found;
  }
  /// The gradients in all arrays that were given, each like its array.
  [[nodiscard]] Arrays gradients(int form, const sympow_states* states) {
    Arrays found = arrays_;
    const auto* of_rows = tensors_.add(problem_, arrays_, "--grad");
    found.erase("--grad");
    sympow_gradients to = SYMPOW_GRADIENTS_INIT;
    const auto tensor = [&](const char* option) { return tensors_.add(problem_, found, option); };
    to.queries = tensor("--q"), to.keys = tensor("--k"), to.values = tensor("--v");
    to.log_gates = tensor("--log-gate"), to.theta = tensor("--theta"), to.beta = tensor("--beta");
    to.householder = tensor("--householder"), to.strengths = tensor("--strength"), to.scale = tensor("--scale");
    check(sympow_attend_vjp(attention(form), &in_, of_rows, states, nullptr, &to, nullptr, nullptr), where_);
    return found;
  }

 private:
  [[nodiscard]] std::size_t count(Index width) const {
    return static_cast<std::size_t>(problem_.B * problem_.H * problem_.T * width);
  }
  sympow_attention* attention(int form) {
    if (!attention_ || form != form_) attention_ = attention_of(problem_.arguments, form_ = form);
    return attention_.get();
  }

  const Problem& problem_;
  const Arrays& arrays_;
  Tensors tensors_;
  sympow_inputs in_ = SYMPOW_INPUTS_INIT;
  Attention attention_;
  int form_ = 0;
  std::string where_;
};

}  // namespace attend_npy
