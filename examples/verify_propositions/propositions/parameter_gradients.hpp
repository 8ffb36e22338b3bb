// From gradients of dense A_t to those of the parameters that A_t is made of, by the derivative of its formula.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/verify/gradient_row_rule.hpp>

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// The two coordinates that plane u of d turns.
inline std::pair<Index, Index> plane_of(Index u, Index d, Pairing pairing) {
  return pairing == Pairing::half_split ? std::pair{u, u + d / 2} : std::pair{2 * u, 2 * u + 1};
}

/// ⟨dR, ∂R/∂angle_u⟩ for R = R(angles): ∂R/∂angle_u = J_u R has -sin and ∓cos in the plane.
inline Wide angle_gradient(const Matrix<Wide>& dR, Wide angle, std::pair<Index, Index> plane) {
  const auto [a, b] = plane;
  return -std::sin(angle) * (dR(a, a) + dR(b, b)) + std::cos(angle) * (dR(b, a) - dR(a, b));
}

/// A B, and Aᵀ B.
inline Matrix<Wide> times(const Matrix<Wide>& A, const Matrix<Wide>& B) {
  Matrix<Wide> C(A.rows(), B.cols());
  for (Index j = 0; j < B.cols(); ++j) C.col(j) = image(A, B.col(j));
  return C;
}
inline Matrix<Wide> transposed_times(const Matrix<Wide>& A, const Matrix<Wide>& B) {
  Matrix<Wide> C(A.cols(), B.cols());
  for (Index j = 0; j < B.cols(); ++j) C.col(j) = transposed_image(A, B.col(j));
  return C;
}

}  // namespace detail

/// R(angles), d × d, without the rounding of double; what no plane has is left alone.
[[nodiscard]] inline Matrix<Wide> wide_rotation(const Vector<Wide>& angles, Index d,
                                                Pairing pairing = Pairing::interleaved) {
  Matrix<Wide> R = Matrix<Wide>::Identity(d, d);
  for (Index u = 0; u < angles.size(); ++u) {
    const auto [a, b] = detail::plane_of(u, d, pairing);
    R(a, a) = R(b, b) = std::cos(angles[u]);
    R(b, a) = std::sin(angles[u]);
    R(a, b) = -R(b, a);
  }
  return R;
}

/// The A_t of `rotary(theta, beta, pairing)`.
[[nodiscard]] inline std::vector<Matrix<Wide>> rotary_steps(const Vector<Wide>& theta, const Vector<Wide>& beta,
                                                            Pairing pairing = Pairing::interleaved) {
  std::vector<Matrix<Wide>> steps;
  for (Index t = 0; t < beta.size(); ++t) steps.push_back(wide_rotation(beta[t] * theta, 2 * theta.size(), pairing));
  return steps;
}

/// dθ (d/2), dβ (T; at fixed rates they have no meaning) and dμ_0 (d/2).
struct RotaryGradientReference {
  Vector<Wide> theta,  ///< dθ
      beta,            ///< dβ
      mu;              ///< dμ_0
};

/// Those of `rotary(theta, beta, pairing)` from the frame μ_0. `d_mu` is the gradient of the frame μ_T = μ_0 + Σ β_t θ
/// that the call leaves; empty for 0, as `mu` is for μ_0 = 0.
[[nodiscard]] inline RotaryGradientReference rotary_gradient(const GradientReference& of, const Vector<Wide>& theta,
                                                             const Vector<Wide>& beta,
                                                             Pairing pairing = Pairing::interleaved,
                                                             const Vector<Wide>& d_mu = {},
                                                             const Vector<Wide>& mu = {}) {
  const Index m = theta.size();
  const Vector<Wide> zero = Vector<Wide>::Zero(m), end = d_mu.size() > 0 ? d_mu : zero;
  RotaryGradientReference g{zero, Vector<Wide>::Zero(beta.size()), end};
  for (Index u = 0; u < m; ++u) {
    const auto plane = detail::plane_of(u, 2 * m, pairing);
    g.mu[u] += detail::angle_gradient(of.frame, mu.size() > 0 ? mu[u] : 0, plane);
    for (Index t = 0; t < beta.size(); ++t) {
      const auto& dA = of.steps[static_cast<std::size_t>(t)];
      const Wide flow = detail::angle_gradient(dA, beta[t] * theta[u], plane) + end[u];
      g.theta[u] += beta[t] * flow;
      g.beta[t] += theta[u] * flow;
    }
  }
  return g;
}

/// d log a, d × T, of `channel_decay`: a ∘ diag dA_t, 0 where a gate is closed.
[[nodiscard]] inline Matrix<Wide> channel_gradient(const GradientReference& of, const GradientCall& call) {
  Matrix<Wide> g(call.Q.rows(), call.tokens());
  for (Index t = 0; t < g.cols(); ++t)
    for (Index c = 0; c < g.rows(); ++c)
      g(c, t) = call.steps[static_cast<std::size_t>(t)](c, c) * of.steps[static_cast<std::size_t>(t)](c, c);
  return g;
}

/// dw (d × T) and dβ (T) of a Householder chain.
struct HouseholderGradientReference {
  Matrix<Wide> w;     ///< dw
  Vector<Wide> beta;  ///< dβ
};

/// Those of `householder(w, beta)`: A = I - β w wᵀ, dβ = -wᵀ dA w, dw = -β (dA + dAᵀ) w.
[[nodiscard]] inline HouseholderGradientReference householder_gradient(const GradientReference& of,
                                                                       const Matrix<Wide>& w,
                                                                       const Vector<Wide>& beta) {
  HouseholderGradientReference g{Matrix<Wide>::Zero(w.rows(), w.cols()), Vector<Wide>::Zero(beta.size())};
  for (Index t = 0; t < w.cols(); ++t) {
    const auto& dA = of.steps[static_cast<std::size_t>(t)];
    const Vector<Wide> x = w.col(t), right = detail::image(dA, x), left = detail::transposed_image(dA, x);
    g.beta[t] = -x.dot(right);
    g.w.col(t) = -beta[t] * (right + left);
  }
  return g;
}

/// dr (d_c × T), dΛ (d_c × m) and skew(UᵀdU) (d × d), the part of it that a basis which stays orthogonal can follow.
struct StructuredGradientReference {
  Matrix<Wide> positions,  ///< dr
      frequencies,         ///< dΛ
      basis;               ///< skew(UᵀdU)
};

/// R_STR(r) = U R(Λᵀr) Uᵀ at every position; U empty is the identity.
[[nodiscard]] inline Matrix<Wide> structured_matrix(const Matrix<Wide>& lambda, const Matrix<Wide>& U, Index d,
                                                    const Vector<Wide>& r) {
  const Matrix<Wide> R = wide_rotation(detail::transposed_image(lambda, r), d);
  if (U.size() == 0) return R;
  return detail::times(detail::times(U, R), U.transpose());
}

/// The A_t of `structured_rotary` with frequencies Λ (d_c × m), basis U and positions r: R_STR(r_t - r_{t-1}), r_0 = 0.
[[nodiscard]] inline std::vector<Matrix<Wide>> structured_steps(const Matrix<Wide>& lambda, const Matrix<Wide>& U,
                                                                Index d, const Matrix<Wide>& r) {
  std::vector<Matrix<Wide>> steps;
  for (Index t = 0; t < r.cols(); ++t) {
    Vector<Wide> step = r.col(t);
    if (t > 0) step -= r.col(t - 1);
    steps.push_back(structured_matrix(lambda, U, d, step));
  }
  return steps;
}

/// Gradients of `structured_rotary`, from those of R_STR(r_t) = A_1 … A_t.
[[nodiscard]] inline StructuredGradientReference structured_gradient(const GradientReference& of,
                                                                     const Matrix<Wide>& lambda, const Matrix<Wide>& U,
                                                                     const Matrix<Wide>& r) {
  const Index m = lambda.cols(), d = of.Q.rows();
  StructuredGradientReference g{Matrix<Wide>::Zero(r.rows(), r.cols()), Matrix<Wide>::Zero(r.rows(), m), {}};
  const Matrix<Wide> basis = U.size() > 0 ? U : Matrix<Wide>(Matrix<Wide>::Identity(d, d));
  Matrix<Wide> dU = Matrix<Wide>::Zero(d, d);
  for (Index t = 0; t < r.cols(); ++t) {
    const Matrix<Wide>& dB = of.products[static_cast<std::size_t>(t)];
    const Vector<Wide> angles = detail::transposed_image(lambda, r.col(t));
    const Matrix<Wide> R = wide_rotation(angles, d), dBU = detail::times(dB, basis);
    const Matrix<Wide> dR = detail::transposed_times(basis, dBU);
    for (Index u = 0; u < m; ++u) {
      const Wide flow = detail::angle_gradient(dR, angles[u], {2 * u, 2 * u + 1});
      for (Index k = 0; k < r.rows(); ++k) {
        g.positions(k, t) += lambda(k, u) * flow;
        g.frequencies(k, u) += r(k, t) * flow;
      }
    }
    dU += detail::times(dBU, R.transpose()) + detail::times(detail::transposed_times(dB, basis), R);
  }
  const Matrix<Wide> turned = detail::transposed_times(basis, dU);
  g.basis = (turned - turned.transpose()) / 2;
  return g;
}

/// Of `rotary_gradient`: dβ max|θ| W_t, dθ_u Σ_ij |Σ_{j<t≤i} β_t| ε_ij, dμ_0 W_1, W levers; each with the frame's own.
[[nodiscard]] inline RotaryGradientReference rotary_bounds(const GradientBounds& of, const GradientCall& call,
                                                           const Vector<Wide>& theta, const Vector<Wide>& beta) {
  Wide fastest = 0, turned = 0;
  for (Index u = 0; u < theta.size(); ++u) fastest = std::max(fastest, std::abs(theta[u]));
  const auto between = [&](Index a, Index b) {  // |Σ β_t| of the tokens behind the earlier one
    Wide sum = 0;
    for (Index t = std::min(a, b) + 1; t <= std::max(a, b); ++t) sum += beta[t];
    return std::abs(sum);
  };
  for (Index t = 0; t < beta.size(); ++t)
    turned += std::abs(beta[t]) * (of.frame_lever + (call.is_absolute() ? of.step_levers[t] : Wide(0)));
  for (Index i = 0; i < of.levers.cols() && !call.is_absolute(); ++i)
    for (Index j = -1; j + 1 < of.levers.rows(); ++j)
      if (const Index at = of.row_tokens[static_cast<std::size_t>(i)]; at >= 0)
        turned += between(j, at) * of.levers(j + 1, i);
  RotaryGradientReference bounds{Vector<Wide>::Constant(theta.size(), turned), Vector<Wide>::Zero(beta.size()), {}};
  for (Index t = 0; t < beta.size(); ++t) bounds.beta[t] = fastest * (of.step_levers[t] + of.frame_lever);
  const Wide first = of.step_levers.size() > 0 ? of.step_levers[0] : Wide(0);
  bounds.mu = Vector<Wide>::Constant(theta.size(), first + of.frame_lever);
  return bounds;
}

/// Of `channel_gradient`: W_t for every channel.
[[nodiscard]] inline Matrix<Wide> channel_bounds(const GradientBounds& of, Index d) {
  return of.step_levers.transpose().replicate(d, 1);
}

/// Of `householder_gradient`: dw_t 2 |β_t| ‖w_t‖ W_t, dβ_t ‖w_t‖² W_t.
[[nodiscard]] inline HouseholderGradientReference householder_bounds(const GradientBounds& of, const Matrix<Wide>& w,
                                                                     const Vector<Wide>& beta) {
  HouseholderGradientReference bounds{Matrix<Wide>(w.rows(), w.cols()), Vector<Wide>(beta.size())};
  for (Index t = 0; t < w.cols(); ++t) {
    const Wide length = w.col(t).norm();
    bounds.w.col(t).setConstant(2 * std::abs(beta[t]) * length * of.step_levers[t]);
    bounds.beta[t] = length * length * of.step_levers[t];
  }
  return bounds;
}

/// Of `structured_gradient`: dr_t ‖Λ‖_∞ w_t, dΛ Σ_t |r_t| w_t, skew(UᵀdU) Σ_t w_t with w the levers of a token's pairs.
[[nodiscard]] inline StructuredGradientReference structured_bounds(const GradientBounds& of, const Matrix<Wide>& lambda,
                                                                   const Matrix<Wide>& r, Index d) {
  StructuredGradientReference bounds{
      Matrix<Wide>::Zero(r.rows(), r.cols()), Matrix<Wide>::Zero(lambda.rows(), lambda.cols()), {}};
  for (Index k = 0; k < r.rows(); ++k) {
    Wide rates = 0, sum = 0;
    for (Index u = 0; u < lambda.cols(); ++u) rates += std::abs(lambda(k, u));
    for (Index t = 0; t < r.cols(); ++t) {
      bounds.positions(k, t) = rates * of.own_levers[t];
      sum += std::abs(r(k, t)) * of.own_levers[t];
    }
    bounds.frequencies.row(k).setConstant(sum);
  }
  bounds.basis = Matrix<Wide>::Constant(d, d, of.own_levers.sum());
  return bounds;
}

}  // namespace SYMPOW_NAMESPACE::verify
