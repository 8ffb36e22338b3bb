// The law of batches: `attend` computes what one head at a time gives.
#pragma once

#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <sympow/attention/batch.hpp>
#include <sympow/verify/form_laws.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A batch of heads is one head at a time.
///
/// `transition_of(b, h)` returns the transition of head h of sequence b. Shapes as in `attend`, the mask that of
/// `options`. What is compared: the rows of every head, as `attend` writes them in every form that there is and in the
/// one that it chooses, with those of `attention` for that head alone; residual in units of the row rule, bound 1.
/// Padding that is not 0 is an infinite residual. Cost: five calls and a `direct_attention` for every head. Throws as
/// `attend` does.
template <class Normalization = DefaultNormalization, FeatureMap F, class TransitionOf, class S>
[[nodiscard]] Residual attend_law(const F& feature, const TransitionOf& transition_of, Heads<S> Q,
                                  Heads<const std::remove_const_t<S>> K, Heads<const std::remove_const_t<S>> V,
                                  const BatchOptions& options = {}) {
  using Scalar = std::remove_const_t<S>;
  using A = std::remove_cvref_t<std::invoke_result_t<const TransitionOf&, Index, Index>>;
  struct Call {
    const char* name;
    Form form;
    std::vector<Scalar> outputs;
  };
  std::vector<Call> calls = {{"automatic", Form::automatic, {}}, {"attention", Form::attention, {}}};
  if (has_state_forms<F, A> && options.head.mask.goes_with_states()) {
    calls.push_back({"recurrent", Form::recurrent, {}});
    calls.push_back({"chunked", Form::chunked, {}});
  }
  const Index B = Q.sequences(), H = Q.heads(), e = V.dimension();
  std::vector<Index> lengths;
  Index T = 0;
  for (Index b = 0; b < B; ++b) {
    lengths.push_back(Q.length(b));
    T = std::max(T, lengths.back());
  }
  const auto heads_of = [&](Call& call) { return Heads<Scalar>::bhtd(call.outputs.data(), B, H, T, e, lengths); };
  Workspaces<Scalar> workspaces;
  for (Call& call : calls) {
    call.outputs.assign(static_cast<std::size_t>(B * H * T * e), std::numeric_limits<Scalar>::quiet_NaN());
    BatchOptions one = options;
    one.form = call.form;
    attend<Normalization>(
        feature, transition_of,
        {.Q = Heads<const Scalar>(Q), .K = K, .V = V, .Y = heads_of(call), .workspaces = workspaces, .options = one});
  }
  Residual found{0, 1};
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h) {
      const Matrix<Scalar> q = Q.head(b, h), k = K.head(b, h * K.heads() / H), v = V.head(b, h * K.heads() / H);
      const auto transition = transition_of(b, h);
      const auto rows = direct_attention<Normalization>(feature, transition, q, k, v, options.head);
      const Matrix<Scalar> alone = attention<Normalization>(feature, transition, q, k, v, options.head);
      for (Call& call : calls) {
        Residual one = worst_row<Normalization, F>(rows, heads_of(call).head(b, h), alone, unit_roundoff<Scalar>);
        if (!heads_of(call).padding(b, h).isZero(0))
          one = {std::numeric_limits<double>::infinity(), 1, {}, lengths[static_cast<std::size_t>(b)]};
        one.form = std::string(call.name) + ", sequence " + std::to_string(b) + ", head " + std::to_string(h);
        found = worse(found, one);
      }
    }
  return found;
}

}  // namespace SYMPOW_NAMESPACE::verify
