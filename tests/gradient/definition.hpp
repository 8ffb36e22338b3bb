// Gradients by their definition, and how far those of the library are from them in units of the gradient row rule.
#pragma once

#include <memory>
#include <string>

#include <sympow/attention/gradient_calls.hpp>
#include <sympow/core/random.hpp>
#include <sympow/verify/gradient_call.hpp>
#include <sympow/verify/residual.hpp>

#include <sympow/sympow.hpp>

namespace sympow::test {

using verify::GradientCall, verify::Residual, verify::Wide;
using WideMatrix = Matrix<Wide>;

/// What moves keys from token to token.
enum class Steps { none, channels, fixed_rates, rates, positions, mixing };

/// Parameters of transitions of every kind for T tokens and d channels; numbers of the scalar type, in double.
struct Parameters {
  Eigen::VectorXd log_gamma, beta, theta;
  Eigen::MatrixXd log_a, w;
  Eigen::VectorXd strengths;
  Eigen::MatrixXd positions, frequencies, basis;

  /// Gates of about this log.
  Parameters(Random& random, Index d, Index T, double gates);
  /// Those of some tokens.
  [[nodiscard]] Parameters part(Index first, Index count) const;
};

/// The kind of a transition, and what its frame starts at and has for a gradient in the end.
struct Kind {
  std::string name = {};
  Steps steps = Steps::none;
  Pairing pairing = Pairing::interleaved;
  Eigen::VectorXd frame = {}, d_frame = {};
  bool is_gated = false;  ///< of Steps::mixing: channel gates before the reflections
};

/// What a form has found, in numbers of one type. Parameters that the transition does not have are empty.
struct Found {
  WideMatrix Q = {}, K = {}, V = {};
  Wide scale = 0;
  std::vector<WideMatrix> log_gamma = {};  ///< 1 × T, or 1 × 1 of a constant decay, one for each factor
  WideMatrix log_a = {}, theta = {}, beta = {}, w = {}, strengths = {}, positions = {}, frequencies = {}, basis = {};
  WideMatrix initial = {}, frame = {};  ///< [dS_0; dZ_0] and dμ_0, where the test looks at them
};

template <class X>
[[nodiscard]] WideMatrix wide(const Eigen::MatrixBase<X>& x) {
  return x.template cast<Wide>();
}
[[nodiscard]] inline WideMatrix wide_row(const Eigen::VectorXd& x) { return wide(x.transpose()); }

/// The gradients of a transition's parameters.
template <class G>
void add_parameters(const G& g, Found& found) {
  if constexpr (requires { g.left(); }) {
    add_parameters(g.left(), found);
    add_parameters(g.right(), found);
  } else if constexpr (requires { g.positions; }) {
    found.positions = wide(g.positions), found.frequencies = wide(g.frequencies), found.basis = wide(g.basis);
  } else if constexpr (requires { g.w; }) {
    found.w = wide(g.w), found.strengths = wide_row(g.beta), found.log_a = wide(g.log_a);
  } else if constexpr (requires { g.theta; }) {
    found.theta = wide_row(g.theta), found.beta = wide_row(g.beta);
  } else if constexpr (requires { g.log_a; }) {
    found.log_a = wide(g.log_a);
  } else if constexpr (requires { g.log_gamma.size(); }) {
    found.log_gamma.push_back(wide_row(g.log_gamma));
  } else if constexpr (requires { g.log_gamma; }) {
    found.log_gamma.push_back(WideMatrix::Constant(1, 1, g.log_gamma));
  }
}
template <class Scalar, class A>
[[nodiscard]] Found found_in(const Gradients<Scalar, A>& g) {
  Found found{wide(g.Q), wide(g.K), wide(g.V), g.scale};
  add_parameters(g.transition, found);
  return found;
}
/// With that of the state before the first token.
template <class Scalar, class A, class F>
[[nodiscard]] Found found_in(const Gradients<Scalar, A>& g, const StateGradient<Scalar, F>& initial) {
  Found found = found_in(g);
  found.initial.resize(initial.value_dimension() + 1, initial.normalizer().size());
  found.initial << wide(initial.values()), wide(initial.normalizer().transpose());
  found.frame = wide_row(initial.frame());
  return found;
}
/// Of two calls, one behind the other: those of tokens side by side, those of what they share added up. The initial
/// state is the first's.
[[nodiscard]] Found joined(const Found& first, const Found& second);

/// The definition of a call with its bounds.
class Definition {
 public:
  /// Steps are made anew in long double. Rows that say nothing in this arithmetic lose their dY.
  Definition(GradientCall call, Kind kind, const Parameters& parameters, double unit_roundoff);
  ~Definition();
  Definition(Definition&&) noexcept;

  [[nodiscard]] const GradientCall& call() const { return call_; }
  template <class Scalar>
  [[nodiscard]] Matrix<Scalar> dY() const {
    return call_.dY.cast<Scalar>();
  }
  /// What the definition says.
  [[nodiscard]] const Found& expected() const { return expected_; }
  /// The worst entry of what was found by a form that updates its state every so many tokens; 0: that has none.
  [[nodiscard]] Residual worst(const Found& found, Index tokens_per_update) const {
    return worst(found, expected_, tokens_per_update);
  }
  [[nodiscard]] Residual worst(const Found& found, const Found& expected, Index tokens_per_update) const;
  /// Added to every bound: where the type ends.
  void excuse(Wide least) { least_ = least; }

 private:
  void set_steps();

  GradientCall call_;
  Kind kind_;
  Parameters parameters_;
  Wide unit_of_pairs_ = 0, least_ = 0;  // the rule's factor without updates
  struct Bounds;
  std::unique_ptr<Bounds> bounds_;  // for an update at every token
  Found expected_;
};

}  // namespace sympow::test
