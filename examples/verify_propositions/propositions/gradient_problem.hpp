// Random calls whose gradients are known by definition, with the parameters of what stands between their tokens.
#pragma once

#include <cmath>
#include <string>

#include <sympow/core/random.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/parameter_gradients.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// What stands between two tokens beside a scalar gate.
enum class Moves { nothing, channels, rotary, householder, structured };

/// A call of a power of the logit and the parameters of its steps.
struct GradientProblem {
  Moves moves = Moves::nothing;
  GradientCall call = {};
  Vector<Wide> theta = {}, beta = {}, mu = {}, d_mu = {};  ///< rotary: rates, its frame μ_0 and the gradient of μ_T
  Matrix<Wide> log_a = {};                                 ///< channels
  Matrix<Wide> w = {};                                     ///< Householder; β is its strengths
  Matrix<Wide> lambda = {}, r = {};                        ///< structured: frequencies and positions

  /// Sets the steps of the call by its parameters.
  void set_steps() {
    call.steps.clear();
    if (moves == Moves::structured) call.steps = structured_steps(lambda, {}, call.Q.rows(), r);
    if (moves == Moves::rotary) {
      call.steps = rotary_steps(theta, beta);
      call.frame = wide_rotation(mu, 2 * theta.size());
    }
    for (Index t = 0; t < call.tokens() && (moves == Moves::channels || moves == Moves::householder); ++t) {
      const Index d = call.Q.rows();
      Matrix<Wide> A = Matrix<Wide>::Identity(d, d);
      for (Index c = 0; c < d && moves == Moves::channels; ++c) A(c, c) = std::exp(log_a(c, t));
      if (moves == Moves::householder) add_outer(A, -beta[t], w.col(t), w.col(t));
      call.steps.push_back(A);
    }
  }
  /// Some of its tokens; without the state at either end.
  [[nodiscard]] GradientProblem segment(Index first, Index count) const {
    GradientProblem part = *this;
    for (auto* X : {&part.call.Q, &part.call.K, &part.call.V, &part.call.dY, &part.log_a, &part.w, &part.r})
      if (X->cols() > 0) *X = X->middleCols(first, count).eval();
    if (beta.size() > 0) part.beta = beta.segment(first, count);
    part.call.log_decay.assign(call.log_decay.begin() + first, call.log_decay.begin() + first + count);
    part.call.initial.resize(0, 0);
    part.call.d_final.resize(0, 0);
    part.set_steps();
    return part;
  }
};

/// All gradients of a problem: those of every call, and its parameters' where it has them.
struct ProblemGradients {
  GradientReference common = {};
  RotaryGradientReference rotary = {};
  Matrix<Wide> log_a = {};
  HouseholderGradientReference householder = {};
  StructuredGradientReference structured = {};
  Vector<Wide> gauge = {};  ///< dμ_T + ⟨dS_T, L S_T⟩, where it is formed
};

/// [S_T; Z_T] of what turns or leaves keys alone, token by token.
[[nodiscard]] inline Matrix<Wide> state_after(const GradientProblem& p) {
  const auto& call = p.call;
  Matrix<Wide> S = call.initial.size() > 0
                       ? call.initial
                       : Matrix<Wide>(Matrix<Wide>::Zero(call.V.rows() + 1, call.feature.dimension));
  for (Index t = 0; t < call.tokens(); ++t) {
    S *= std::exp(GradientPairs::log_weight(call, t, t));
    const Embedded at(call.feature, Path(call, call.K.col(t), t).absolute());
    Vector<Wide> v = Vector<Wide>::Ones(S.rows());
    for (Index r = 0; r < call.V.rows(); ++r) v[r] = call.V(r, t);
    add_outer(S, 1, v, at.phi);
  }
  return S;
}

/// By definition.
[[nodiscard]] inline ProblemGradients defined_gradients(const GradientProblem& p) {
  ProblemGradients g{gradient_reference(p.call)};
  if (p.moves == Moves::rotary)
    g.rotary = rotary_gradient(g.common, p.theta, p.beta, Pairing::interleaved, p.d_mu, p.mu);
  if (p.moves == Moves::channels) g.log_a = channel_gradient(g.common, p.call);
  if (p.moves == Moves::householder) g.householder = householder_gradient(g.common, p.w, p.beta);
  if (p.moves == Moves::structured) g.structured = structured_gradient(g.common, p.lambda, {}, p.r);
  return g;
}

/// The worst entry of all gradients in units of the gradient row rule, and of `least`, where the type ends.
[[nodiscard]] inline Residual gradients_apart(const GradientProblem& p, const ProblemGradients& found,
                                              const ProblemGradients& expected, GradientArithmetic arithmetic,
                                              Wide least = 0) {
  Wide angle = 0;
  Vector<Wide> mu = p.mu;
  for (Index t = 0; t < p.beta.size() && p.moves == Moves::rotary; ++t) {
    mu += p.beta[t] * p.theta;
    angle = std::max(angle, mu.cwiseAbs().maxCoeff());
  }
  for (Index t = 0; t < p.r.cols(); ++t)
    angle = std::max(angle, transposed_image(p.lambda, p.r.col(t)).cwiseAbs().maxCoeff());
  arithmetic.largest_angle = static_cast<double>(angle);
  GradientBounds bounds = gradient_bounds(p.call, arithmetic);
  for (auto* x : {&bounds.Q, &bounds.K, &bounds.V}) x->array() += least;
  bounds.log_gamma.array() += least;
  Residual worst = worst_gradient(found.common, expected.common, bounds);
  const auto add = [&](const char* name, const Matrix<Wide>& a, const Matrix<Wide>& b, const Matrix<Wide>& bound) {
    worst = worse(worst, worst_entry(name, a, b, bound));
  };
  if (p.moves == Moves::rotary) {
    const auto allowed = rotary_bounds(bounds, p.call, p.theta, p.beta);
    add("d theta", found.rotary.theta, expected.rotary.theta, allowed.theta);
    add("d beta", found.rotary.beta, expected.rotary.beta, allowed.beta);
    add("d mu", found.rotary.mu, expected.rotary.mu, allowed.mu);
  } else if (p.moves == Moves::channels) {
    add("d log a", found.log_a, expected.log_a, channel_bounds(bounds, p.call.Q.rows()));
  } else if (p.moves == Moves::householder) {
    const auto allowed = householder_bounds(bounds, p.w, p.beta);
    add("d w", found.householder.w, expected.householder.w, allowed.w);
    add("d beta", found.householder.beta, expected.householder.beta, allowed.beta);
  } else if (p.moves == Moves::structured) {
    const auto allowed = structured_bounds(bounds, p.lambda, p.r, p.call.Q.rows());
    add("d positions", found.structured.positions, expected.structured.positions, allowed.positions);
    add("d frequencies", found.structured.frequencies, expected.structured.frequencies, allowed.frequencies);
    add("d basis", found.structured.basis, expected.structured.basis, allowed.basis);
  }
  return worst;
}

/// How fast gates close.
enum class Closing { never, slowly, fast };

/// What is drawn.
struct ProblemShape {
  int P = 2;
  bool means = true;
  Moves moves = Moves::nothing;
  Closing closing = Closing::slowly;
  Index T = 19, d = 4, e = 3;
  bool has_state = true;  ///< an initial state, and a loss on the final one
};

/// Normal numbers, rounded to the scalar. The initial state is what five earlier tokens have left.
template <class Scalar>
[[nodiscard]] GradientProblem drawn_problem(Random& random, const ProblemShape& shape) {
  const auto draw = [&](Index rows, Index columns) {
    Matrix<Wide> x(rows, columns);
    for (Index n = 0; n < x.size(); ++n) x.data()[n] = static_cast<Scalar>(random.normal());
    return x;
  };
  const auto [P, means, moves, closing, T, d, e, has_state] = shape;
  GradientProblem p;
  p.moves = moves;
  p.call.degree = P;
  p.call.divided = means;
  p.call.scale = static_cast<Scalar>(means ? .75 : -1.25);
  p.call.action = moves == Moves::channels      ? KeyAction::scale
                  : moves == Moves::rotary      ? KeyAction::turn
                  : moves == Moves::structured  ? KeyAction::turn
                  : moves == Moves::householder ? KeyAction::mix
                                                : KeyAction::none;
  p.call.Q = draw(d, T), p.call.K = draw(d, T), p.call.V = draw(e, T), p.call.dY = draw(e, T);
  const double speed = closing == Closing::never ? 0 : closing == Closing::slowly ? .05 : 3;
  for (Index t = 0; t < T; ++t) p.call.log_decay.push_back(-speed * random.uniform());
  p.call.feature = dense_symmetric_power(d, P);
  if (moves == Moves::rotary)
    p.theta = draw(d / 2, 1), p.beta = draw(T, 1), p.mu = draw(d / 2, 1), p.d_mu = draw(d / 2, 1);
  if (moves == Moves::structured) p.lambda = draw(2, d / 2), p.r = draw(2, T);
  if (moves == Moves::channels)
    p.log_a = -static_cast<Wide>(closing == Closing::fast ? 1 : .0625) * draw(d, T).cwiseAbs();
  if (moves == Moves::householder) {
    p.w = draw(d, T), p.beta = draw(T, 1);
    for (Index t = 0; t < T; ++t) {
      const Wide length = p.w.col(t).norm();
      for (Index c = 0; c < d; ++c) p.w(c, t) = static_cast<Scalar>(p.w(c, t) / length);
      p.beta[t] = t % 7 == 3 ? 0 : t % 7 == 5 ? 2 : static_cast<Scalar>(2 * random.uniform());  // 0 keeps, 2 reflects
    }
  }
  p.set_steps();
  if (!has_state || (moves == Moves::householder && P > 1)) return p;
  p.call.initial.setZero(e + 1, p.call.feature.dimension);
  Vector<Wide> phi;
  Matrix<Wide> jacobian;
  for (int token = 0; token < 5; ++token) {
    p.call.feature.evaluate(draw(d, 1), phi, jacobian);
    Vector<Wide> v = draw(e + 1, 1);
    v[e] = 1;
    add_outer(p.call.initial, 1, v, phi);
  }
  for (Index n = 0; n < p.call.initial.size(); ++n)
    p.call.initial.data()[n] = static_cast<Scalar>(p.call.initial.data()[n]);
  p.call.d_final = draw(e + 1, p.call.feature.dimension);
  p.call.d_final *= .125L;
  return p;
}

inline constexpr const char* gradient_unit = "gradient row rule";

/// The arithmetic of `chunked_gradients`; a chain is rounded at every token.
template <class Scalar>
[[nodiscard]] GradientArithmetic arithmetic_of_chunks(const GradientProblem& p, Index chunk) {
  return {unit_roundoff<Scalar>, p.moves == Moves::householder ? 1 : static_cast<double>(chunk)};
}

/// A problem without a gradient on rows that say nothing.
template <class Scalar>
[[nodiscard]] GradientProblem drawn_tame_problem(Random& random, const ProblemShape& shape) {
  GradientProblem p = drawn_problem<Scalar>(random, shape);
  p.call = without_degenerate_rows(p.call, {unit_roundoff<Scalar>});
  return p;
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
