// The planes in which commuting skew matrices turn, all at once: the algorithm behind `CommutingGenerators`.
#pragma once

#include <Eigen/LU>
#include <Eigen/SVD>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <sympow/core/random.hpp>

namespace sympow::detail {

/// Q with Qᵀ A Q skew-symmetric and tridiagonal, and its subdiagonal. A is skew, n × n. Cost: 10/3 n³.
template <class Real>
struct SkewTridiagonal {
  Matrix<Real> Q;
  Vector<Real> subdiagonal;

  explicit SkewTridiagonal(Matrix<Real> A);
};

template <class Real>
SkewTridiagonal<Real>::SkewTridiagonal(Matrix<Real> A)
    : Q(Matrix<Real>::Identity(A.rows(), A.rows())), subdiagonal(Vector<Real>::Zero(std::max<Index>(A.rows() - 1, 0))) {
  const Index n = A.rows();
  for (Index j = 0; j + 2 < n; ++j) {
    const Index rest = n - j - 1;
    Vector<Real> v = A.col(j).tail(rest);
    const Real length = v.stableNorm();
    if (length == 0) continue;
    subdiagonal[j] = -std::copysign(length, v[0]);
    v[0] -= subdiagonal[j];
    v /= v.stableNorm();
    auto B = A.bottomRightCorner(rest, rest);  // (I - 2vvᵀ) B (I - 2vvᵀ) = B + 2 (v wᵀ - w vᵀ), for vᵀ B v = 0
    const Vector<Real> w = 2 * (B * v);
    B += v * w.transpose() - w * v.transpose();
    Q.rightCols(rest) -= 2 * (Q.rightCols(rest) * v) * v.transpose();
  }
  if (n > 1) subdiagonal[n - 2] = A(n - 1, n - 2);
}

/// Orthogonal U = [p_1 q_1 p_2 q_2 … (z)] with A p_u = s_u q_u, A q_u = -s_u p_u, s_u ≥ 0, A z = 0 for odd n. The odd rows and even
/// columns of the tridiagonal form are bidiagonal; their SVD gives all planes at once, repeated and zero frequencies included.
template <class Real>
[[nodiscard]] Matrix<Real> skew_planes(const Matrix<Real>& A) {
  const Index n = A.rows(), odd = n / 2, even = n - odd;
  const SkewTridiagonal<Real> form(A);
  if (n < 2) return form.Q;
  Matrix<Real> M = Matrix<Real>::Zero(odd, even);
  for (Index i = 0; i + 1 < n; ++i) M(i / 2, (i + 1) / 2) = i % 2 == 0 ? form.subdiagonal[i] : -form.subdiagonal[i];
  const Eigen::JacobiSVD<Matrix<Real>> svd(M, Eigen::ComputeFullU | Eigen::ComputeFullV);
  Matrix<Real> Q_even(n, even), Q_odd(n, odd), U(n, n);
  for (Index i = 0; i < n; ++i) (i % 2 == 0 ? Q_even : Q_odd).col(i / 2) = form.Q.col(i);
  const Matrix<Real> P = Q_even * svd.matrixV(), Q = Q_odd * svd.matrixU();
  for (Index u = 0; u < odd; ++u) {
    U.col(2 * u) = P.col(u);
    U.col(2 * u + 1) = Q.col(u);
  }
  if (n % 2 == 1) U.col(n - 1) = P.col(even - 1);
  return U;
}

/// Generators L_k in the coordinates of U, scaled by 1/‖L_k‖ (Frobenius; as they are if 0).
template <class Real>
struct PlaneBlocks {
  std::vector<Matrix<Real>> rest;  ///< Uᵀ L_k U / ‖L_k‖ without its 2 × 2 blocks λ J
  Matrix<Real> lambda;             ///< d_c × ⌊d/2⌋, divided by ‖L_k‖ as well
  Vector<Real> residual;           ///< ‖rest_k‖

  PlaneBlocks(const std::vector<Matrix<Real>>& scaled, const Matrix<Real>& U);

  [[nodiscard]] Real worst() const;  ///< the largest residual, 0 if there is none
};

template <class Real>
PlaneBlocks<Real>::PlaneBlocks(const std::vector<Matrix<Real>>& scaled, const Matrix<Real>& U)
    : lambda(static_cast<Index>(scaled.size()), U.rows() / 2), residual(lambda.rows()) {
  for (std::size_t k = 0; k < scaled.size(); ++k) {
    const auto row = static_cast<Index>(k);
    Matrix<Real> T = U.transpose() * scaled[k] * U;
    for (Index u = 0; u < lambda.cols(); ++u) {
      const Real value = (T(2 * u + 1, 2 * u) - T(2 * u, 2 * u + 1)) / 2;
      T(2 * u + 1, 2 * u) -= value;
      T(2 * u, 2 * u + 1) += value;
      lambda(row, u) = value;
    }
    residual[row] = T.norm();
    rest.push_back(std::move(T));
  }
}

template <class Real>
Real PlaneBlocks<Real>::worst() const {
  return residual.size() > 0 ? residual.maxCoeff() : 0;
}

/// The best of at most `draws` random combinations Σ g_k L_k / ‖L_k‖: its planes are those of all L_k, unless g hits a coincidence. One
/// whose residual is rounding is not improved upon.
template <class Real>
[[nodiscard]] Matrix<Real> joint_planes(const std::vector<Matrix<Real>>& scaled, Index d, std::uint64_t seed,
                                        int draws = 5) {
  Random random(seed);
  Matrix<Real> best = Matrix<Real>::Identity(d, d);
  Real least = std::numeric_limits<Real>::infinity();
  const Real rounding = static_cast<Real>(d) * std::numeric_limits<Real>::epsilon() / 2;
  for (int draw = 0; draw < draws && !scaled.empty() && least > rounding; ++draw) {
    const Vector<Real> g = random.vector<Real>(static_cast<Index>(scaled.size())).normalized();
    Matrix<Real> A = Matrix<Real>::Zero(d, d);
    for (std::size_t k = 0; k < scaled.size(); ++k) A += g[static_cast<Index>(k)] * scaled[k];
    Matrix<Real> U = skew_planes(A);
    const Real residual = PlaneBlocks(scaled, U).worst();
    if (residual < least) {
      least = residual;
      best = std::move(U);
    }
  }
  return best;
}

/// The rotation step of `polished_planes`: the skew K whose Cayley transform removes the rest of the blocks to first order.
///
/// A 2 × 2 block B of L_k between the planes u and v has a part that commutes with J and one that anticommutes. They are removed, in
/// least squares over k, through the differences and the sums of λ_ku and λ_kv. Blocks larger than half of that gap are left alone:
/// they belong to (nearly) repeated frequencies, for which planes are a matter of choice.
template <class Real>
[[nodiscard]] Matrix<Real> polishing_step(const PlaneBlocks<Real>& blocks, Index n) {
  const Index m = blocks.lambda.cols(), generators = blocks.lambda.rows();
  Eigen::Matrix<Real, 2, 2> J;
  J << 0, -1, 1, 0;
  Matrix<Real> K = Matrix<Real>::Zero(n, n);
  const auto solve = [&](Index u, Index v, Real sign) -> Eigen::Matrix<Real, 2, 2> {
    Eigen::Matrix<Real, 2, 2> sum = Eigen::Matrix<Real, 2, 2>::Zero();
    Real gap2 = 0, size2 = 0;
    for (Index k = 0; k < generators; ++k) {
      const Eigen::Matrix<Real, 2, 2> B = blocks.rest[static_cast<std::size_t>(k)].template block<2, 2>(2 * u, 2 * v);
      const Eigen::Matrix<Real, 2, 2> part = (B - sign * J * B * J) / 2;
      const Real gap = blocks.lambda(k, u) - sign * blocks.lambda(k, v);
      sum += gap * part;
      gap2 += gap * gap;
      size2 += part.squaredNorm();
    }
    if (gap2 == 0 || size2 > gap2 / 4) return Eigen::Matrix<Real, 2, 2>::Zero();
    return J * sum / gap2;
  };
  for (Index u = 0; u < m; ++u) {
    for (Index v = u + 1; v < m; ++v) K.template block<2, 2>(2 * u, 2 * v) = solve(u, v, 1) + solve(u, v, -1);
    if (n % 2 == 0) continue;
    Eigen::Vector<Real, 2> sum = Eigen::Vector<Real, 2>::Zero();  // against the direction that nothing turns
    Real gap2 = 0, size2 = 0;
    for (Index k = 0; k < generators; ++k) {
      const Eigen::Vector<Real, 2> part = blocks.rest[static_cast<std::size_t>(k)].template block<2, 1>(2 * u, n - 1);
      sum += blocks.lambda(k, u) * part;
      gap2 += blocks.lambda(k, u) * blocks.lambda(k, u);
      size2 += part.squaredNorm();
    }
    if (gap2 > 0 && size2 <= gap2 / 4) K.template block<2, 1>(2 * u, n - 1) = J * sum / gap2;
  }
  return K - K.transpose();
}

/// Newton's method on U: at most `steps` steps, each taken only if it lowers the worst residual by a tenth. Cost: O((d_c + 2) d³) a step.
template <class Real>
[[nodiscard]] Matrix<Real> polished_planes(const std::vector<Matrix<Real>>& scaled, Matrix<Real> U, int steps = 12) {
  const Index n = U.rows();
  PlaneBlocks blocks(scaled, U);
  for (int step = 0; step < steps; ++step) {
    const Matrix<Real> K = polishing_step(blocks, n), I = Matrix<Real>::Identity(n, n);
    const Matrix<Real> turn = (I - K / 2).partialPivLu().solve(I + K / 2);
    Matrix<Real> next = U * turn;
    PlaneBlocks improved(scaled, next);
    if (!(improved.worst() < .9 * blocks.worst())) break;
    U = std::move(next);
    blocks = std::move(improved);
  }
  return U -
         .5 * U * (U.transpose() * U - Matrix<Real>::Identity(n, n));  // the nearest orthogonal matrix, to first order
}

}  // namespace sympow::detail

/// The functions for one type: with `extern` they are compiled elsewhere, with nothing here.
#define SYMPOW_JOINT_PLANES(LINKAGE, Real)                                                                 \
  namespace sympow::detail {                                                                               \
  LINKAGE template struct SkewTridiagonal<Real>;                                                           \
  LINKAGE template struct PlaneBlocks<Real>;                                                               \
  LINKAGE template Matrix<Real> skew_planes(const Matrix<Real>&);                                          \
  LINKAGE template Matrix<Real> joint_planes(const std::vector<Matrix<Real>>&, Index, std::uint64_t, int); \
  LINKAGE template Matrix<Real> polishing_step(const PlaneBlocks<Real>&, Index);                           \
  LINKAGE template Matrix<Real> polished_planes(const std::vector<Matrix<Real>>&, Matrix<Real>, int);      \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_JOINT_PLANES(extern, double)
#endif
