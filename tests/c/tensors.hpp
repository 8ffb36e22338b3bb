// Arrays of a test as the C interface sees them, and a random batch of them.
#pragma once

#include <sympow.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <sympow/core/heads.hpp>
#include <sympow/core/random.hpp>

namespace sympow::test {

template <class S>
constexpr sympow_dtype dtype_of() {
  return {std::is_floating_point_v<S> ? SYMPOW_FLOAT : SYMPOW_INT, 8 * sizeof(S), 1};
}

/// Dense memory and its view, which may be changed. A copy has its own.
template <class S>
class Tensor {
 public:
  Tensor() : Tensor(std::vector<std::int64_t>{0}) {}
  explicit Tensor(std::vector<std::int64_t> the_shape, S filler = S(0)) : shape(std::move(the_shape)) {
    std::size_t count = 1;
    for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
    data.assign(count, filler);
  }
  const sympow_tensor* view() {
    view_ = {data.data(),   {SYMPOW_CPU, 0}, static_cast<std::int32_t>(shape.size()),
             dtype_of<S>(), shape.data(),    strides.empty() ? nullptr : strides.data(),
             offset};
    return &view_;
  }
  void fill(Random& random, double scale = 1, double shift = 0) {
    for (S& x : data) x = static_cast<S>(scale * random.vector(1)[0] + shift);
  }
  [[nodiscard]] Index size(std::size_t n) const { return static_cast<Index>(shape[n]); }
  friend bool operator==(const Tensor& a, const Tensor& b) {
    return a.shape == b.shape && a.data.size() == b.data.size() &&
           (a.data.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(S)) == 0);
  }

  std::vector<S> data;
  std::vector<std::int64_t> shape, strides = {};
  std::uint64_t offset = 0;

 private:
  sympow_tensor view_ = {};
};

/// What is given of a transition.
struct Given {
  bool gates = false, theta = false, beta = false;
};

/// A batch: queries, keys, values, gates, rates and lengths, and where results go.
template <class S, class Parameter = double>
struct CBatch {
  Index B, T, H, Hk, d = 4, e = 3, Hg;
  std::vector<Index> lengths;
  Tensor<S> Q, K, V, Y, dY, dQ, dK, dV;
  Tensor<Parameter> gates, theta, beta, d_gates, d_theta, d_beta;
  Tensor<double> d_scale;
  Tensor<std::int32_t> of_lengths;

  CBatch(Index sequences, Index tokens, Index heads, Index key_heads, Index parameter_heads,
         std::vector<Index> of_sequences = {}, std::uint64_t seed = 1)
      : B(sequences), T(tokens), H(heads), Hk(key_heads), Hg(parameter_heads), lengths(std::move(of_sequences)) {
    Random random(seed);
    const auto heads_of = [&](Index n, Index D) {
      Tensor<S> x({B, T, n, D});
      x.fill(random);
      return x;
    };
    Q = heads_of(H, d), K = heads_of(Hk, d), V = heads_of(Hk, e), dY = heads_of(H, e);
    dQ = Tensor<S>(Q.shape, S(7)), dK = Tensor<S>(K.shape, S(7)), dV = Tensor<S>(V.shape, S(7));
    Y = Tensor<S>(dY.shape, S(7));
    gates = d_gates = beta = d_beta = Tensor<Parameter>({B, T, Hg}, Parameter(7));
    theta = d_theta = Tensor<Parameter>({d / 2}, Parameter(7));
    gates.fill(random), beta.fill(random, .5, 1), theta.fill(random);
    for (Parameter& x : gates.data) x = -std::abs(x) * Parameter(.1);
    d_scale = Tensor<double>({1}, 7);
    of_lengths = Tensor<std::int32_t>({B});
    for (std::size_t b = 0; b < lengths.size(); ++b) of_lengths.data[b] = static_cast<std::int32_t>(lengths[b]);
  }

  [[nodiscard]] sympow_inputs inputs(Given given = {}) {
    sympow_inputs in = SYMPOW_INPUTS_INIT;
    in.queries = Q.view(), in.keys = K.view(), in.values = V.view();
    if (given.gates) in.log_gates = gates.view();
    if (given.theta) in.theta = theta.view();
    if (given.beta) in.beta = beta.view();
    if (!lengths.empty()) in.lengths = of_lengths.view();
    return in;
  }
  [[nodiscard]] sympow_gradients gradients(Given given = {}) {
    sympow_gradients to = SYMPOW_GRADIENTS_INIT;
    to.queries = dQ.view(), to.keys = dK.view(), to.values = dV.view(), to.scale = d_scale.view();
    if (given.gates) to.log_gates = d_gates.view();
    if (given.theta) to.theta = d_theta.view();
    if (given.beta) to.beta = d_beta.view();
    return to;
  }
  [[nodiscard]] Heads<S> heads(Tensor<S>& x) const {
    return Heads<S>::bthd(x.data.data(), x.size(0), x.size(1), x.size(2), x.size(3), lengths);
  }
  [[nodiscard]] Index length(Index b) const { return lengths.empty() ? T : lengths[static_cast<std::size_t>(b)]; }
  /// Numbers of the head of a parameter that head n of `heads` reads.
  [[nodiscard]] Eigen::VectorXd numbers(const Tensor<Parameter>& x, Index b, Index n, Index of) const {
    Eigen::VectorXd result(length(b));
    for (Index t = 0; t < result.size(); ++t)
      result[t] = static_cast<double>(x.data[static_cast<std::size_t>((b * T + t) * Hg + n * Hg / of)]);
    return result;
  }
  [[nodiscard]] Eigen::VectorXd rates() const {
    return Eigen::Map<const Eigen::Vector<Parameter, Dynamic>>(theta.data.data(), d / 2).template cast<double>();
  }
};

/// A handle that ends with its scope.
template <class H, void (*destroy)(H*)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { destroy(handle_); }
  operator H*() const { return handle_; }
  /// The place for another one.
  H** operator&() {
    destroy(handle_);
    handle_ = nullptr;
    return &handle_;
  }

 private:
  H* handle_ = nullptr;
};
using Attention = Owned<sympow_attention, sympow_attention_destroy>;
using CWorkspace = Owned<sympow_workspace, sympow_workspace_destroy>;
using CStates = Owned<sympow_states, sympow_states_destroy>;
using CGradients = Owned<sympow_state_gradients, sympow_state_gradients_destroy>;

/// The options of an attention in which pairs of neighbors turn, where any do.
inline sympow_options turning_options() {
  sympow_options options = SYMPOW_OPTIONS_INIT;
  options.pairing = SYMPOW_PAIRING_INTERLEAVED;
  return options;
}

/// The status with its text, "0 " where all is well.
inline std::string said(sympow_status status) { return std::to_string(status) + " " + sympow_error(); }
inline const std::string well = "0 ";

}  // namespace sympow::test
