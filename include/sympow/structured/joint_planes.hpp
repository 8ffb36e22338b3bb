// Joint invariant planes of commuting skew matrices, the algorithm behind `CommutingGenerators`.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include <sympow/core/random.hpp>
#include <sympow/core/view.hpp>
#include <sympow/simd/linear_algebra.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Qᵀ A Q is skew-symmetric and tridiagonal with this subdiagonal, for a skew A, n × n. Cost: 10/3 n³.
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
    MatrixView<Real> v = MatrixView<Real>(A).block(j + 1, j, rest, 1);
    const Real length = stable_norm<Real>(v.data(), rest);
    if (length == 0) continue;
    subdiagonal[j] = -std::copysign(length, v(0, 0));
    v(0, 0) -= subdiagonal[j];
    const Real divisor = stable_norm<Real>(v.data(), rest);
    for (Index i = 0; i < rest; ++i) v(i, 0) /= divisor;
    MatrixView<Real> B = MatrixView<Real>(A).block(j + 1, j + 1, rest, rest),
                     columns = MatrixView<Real>(Q).rightCols(rest);
    const Matrix<Real> Bv = times(B, v), Qv = times(columns, v);
    Matrix<Real> left(rest, 2), right(rest, 2), reflected(rest, 1);
    for (Index i = 0; i < rest; ++i) {
      left(i, 0) = v(i, 0), left(i, 1) = -2 * Bv(i, 0);
      right(i, 0) = 2 * Bv(i, 0), right(i, 1) = v(i, 0);
      reflected(i, 0) = -2 * v(i, 0);
    }
    add_product(B, left, right.transpose());  // (I - 2vvᵀ) B (I - 2vvᵀ) = B + 2 (v (Bv)ᵀ - Bv vᵀ), for vᵀ B v = 0
    add_product(columns, Qv, reflected.transpose());
  }
  if (n > 1) subdiagonal[n - 2] = A(n - 1, n - 2);
}

/// Orthogonal U = [p_1 q_1 p_2 q_2 … (z)] with A p_u = s_u q_u, A q_u = -s_u p_u, s_u ≥ 0, A z = 0 for odd n. The odd
/// rows and even columns of the tridiagonal form are bidiagonal; their SVD gives all planes, also for repeated and zero
/// frequencies.
template <class Real>
[[nodiscard]] Matrix<Real> skew_planes(const Matrix<Real>& A) {
  const Index n = A.rows(), odd = n / 2, even = n - odd;
  const SkewTridiagonal<Real> form(A);
  if (n < 2) return form.Q;
  Matrix<Real> M = Matrix<Real>::Zero(odd, even), Q_even(n, even), Q_odd(n, odd);
  for (Index i = 0; i + 1 < n; ++i) M(i / 2, (i + 1) / 2) = i % 2 == 0 ? form.subdiagonal[i] : -form.subdiagonal[i];
  for (Index i = 0; i < n; ++i) (i % 2 == 0 ? Q_even : Q_odd).col(i / 2) = form.Q.col(i);
  for (Index c = odd; even > odd && c-- > 0;) {  // eliminates the last column of M; that of Q_even becomes z
    Eigen::JacobiRotation<Real> turn;
    turn.makeGivens(M(c, c), M(c, odd));
    M.applyOnTheRight(c, odd, turn);
    Q_even.applyOnTheRight(c, odd, turn);
  }
  const SquareSvd<Real> svd(M.leftCols(odd));
  const Matrix<Real> P = times(MatrixView<Real>(Q_even).leftCols(odd), svd.V), Q = times(Q_odd, svd.U);
  Matrix<Real> U(n, n);
  for (Index u = 0; u < odd; ++u) {
    U.col(2 * u) = P.col(u);
    U.col(2 * u + 1) = Q.col(u);
  }
  if (even > odd) U.col(n - 1) = Q_even.col(odd);
  return U;
}

/// Generators L_k / ‖L_k‖ (Frobenius; unscaled if 0) in the basis U.
template <class Real>
struct PlaneBlocks {
  std::vector<Matrix<Real>> rest;  ///< Uᵀ L_k U / ‖L_k‖ minus its 2 × 2 blocks λ J
  Matrix<Real> lambda;             ///< d_c × ⌊d/2⌋, divided by ‖L_k‖
  Vector<Real> residual;           ///< ‖rest_k‖

  PlaneBlocks(const std::vector<Matrix<Real>>& scaled, const Matrix<Real>& U);

  [[nodiscard]] Real worst() const;  ///< largest residual, 0 if there are no generators
};

template <class Real>
PlaneBlocks<Real>::PlaneBlocks(const std::vector<Matrix<Real>>& scaled, const Matrix<Real>& U)
    : lambda(static_cast<Index>(scaled.size()), U.rows() / 2), residual(lambda.rows()) {
  for (std::size_t k = 0; k < scaled.size(); ++k) {
    const auto row = static_cast<Index>(k);
    Matrix<Real> T = times(U.transpose(), times(scaled[k], U));
    for (Index u = 0; u < lambda.cols(); ++u) {
      const Real value = (T(2 * u + 1, 2 * u) - T(2 * u, 2 * u + 1)) / 2;
      T(2 * u + 1, 2 * u) -= value;
      T(2 * u, 2 * u + 1) += value;
      lambda(row, u) = value;
    }
    residual[row] = stable_norm<Real>(T.data(), T.size());
    rest.push_back(std::move(T));
  }
}

template <class Real>
Real PlaneBlocks<Real>::worst() const {
  Real largest = 0;
  for (Index k = 0; k < residual.size(); ++k)
    if (std::isnan(residual[k]) || residual[k] > largest) largest = residual[k];
  return largest;
}

/// The planes of the best of at most `draws` random combinations Σ g_k L_k / ‖L_k‖. They are planes of all L_k for
/// almost every g. Stops once the residual is at rounding level.
template <class Real>
[[nodiscard]] Matrix<Real> joint_planes(const std::vector<Matrix<Real>>& scaled, Index d, std::uint64_t seed,
                                        int draws = 5) {
  Random random(seed);
  Matrix<Real> best = Matrix<Real>::Identity(d, d);
  Real smallest = std::numeric_limits<Real>::infinity();
  const Real rounding = static_cast<Real>(d) * std::numeric_limits<Real>::epsilon() / 2;
  for (int draw = 0; draw < draws && !scaled.empty() && smallest > rounding; ++draw) {
    const Vector<Real> g = random.vector<Real>(static_cast<Index>(scaled.size())).normalized();
    Matrix<Real> A = Matrix<Real>::Zero(d, d);
    for (std::size_t k = 0; k < scaled.size(); ++k) A += g[static_cast<Index>(k)] * scaled[k];
    Matrix<Real> U = skew_planes(A);
    const Real residual = PlaneBlocks(scaled, U).worst();
    if (residual < smallest) {
      smallest = residual;
      best = std::move(U);
    }
  }
  return best;
}

/// The step of `refine_planes`: the skew K whose Cayley transform removes the off-block remainder to first order.
///
/// A 2 × 2 block of L_k between planes u and v is a I + b J, which commutes with J, plus [p q; q -p], which
/// anticommutes. As complex numbers these are a + bi and p + qi, and J is i. Least squares over k removes them through
/// the differences and sums of λ_ku and λ_kv. Blocks larger than half that gap stay: they belong to (nearly) repeated
/// frequencies, whose planes are not unique.
template <class Real>
[[nodiscard]] Matrix<Real> refinement_step(const PlaneBlocks<Real>& blocks, Index n) {
  using Complex = std::complex<Real>;
  const Index m = blocks.lambda.cols(), generators = blocks.lambda.rows();
  // J Σ gap_k part_k / Σ gap_k²; a part of 1 has `entries` entries of size 1.
  const auto fit = [&](auto&& gap_of, auto&& part_of, Real entries) -> Complex {
    Complex sum = 0;
    Real gap2 = 0, size2 = 0;
    for (Index k = 0; k < generators; ++k) {
      const Real gap = gap_of(k);
      const Complex part = part_of(k);
      sum += gap * part;
      gap2 += gap * gap;
      size2 += entries * std::norm(part);
    }
    if (gap2 == 0 || size2 > gap2 / 4) return 0;
    return Complex(0, 1) * sum / gap2;
  };
  Matrix<Real> K = Matrix<Real>::Zero(n, n);
  for (Index u = 0; u < m; ++u) {
    for (Index v = u + 1; v < m; ++v) {
      const auto fit_with_sign = [&](Real sign) {
        return fit([&](Index k) { return blocks.lambda(k, u) - sign * blocks.lambda(k, v); },
                   [&](Index k) {
                     const auto& B = blocks.rest[static_cast<std::size_t>(k)];
                     return Complex(B(2 * u, 2 * v) + sign * B(2 * u + 1, 2 * v + 1),
                                    B(2 * u + 1, 2 * v) - sign * B(2 * u, 2 * v + 1)) /
                            Real(2);
                   },
                   2);
      };
      const Complex commuting = fit_with_sign(1), anticommuting = fit_with_sign(-1);
      K(2 * u, 2 * v) = commuting.real() + anticommuting.real();
      K(2 * u + 1, 2 * v) = commuting.imag() + anticommuting.imag();
      K(2 * u, 2 * v + 1) = anticommuting.imag() - commuting.imag();
      K(2 * u + 1, 2 * v + 1) = commuting.real() - anticommuting.real();
    }
    if (n % 2 == 0) continue;
    const Complex z = fit([&](Index k) { return blocks.lambda(k, u); },  // against the null direction
                          [&](Index k) {
                            const auto& B = blocks.rest[static_cast<std::size_t>(k)];
                            return Complex(B(2 * u, n - 1), B(2 * u + 1, n - 1));
                          },
                          1);
    K(2 * u, n - 1) = z.real();
    K(2 * u + 1, n - 1) = z.imag();
  }
  for (Index j = 0; j < n; ++j)
    for (Index i = 0; i < j; ++i) K(j, i) = -K(i, j);
  return K;
}

/// Newton's method on U: at most `steps` steps, each accepted only if the largest residual falls by a tenth. Cost:
/// O((d_c + 2) d³) per step.
template <class Real>
[[nodiscard]] Matrix<Real> refine_planes(const std::vector<Matrix<Real>>& scaled, Matrix<Real> U, int steps = 12) {
  const Index n = U.rows();
  PlaneBlocks blocks(scaled, U);
  for (int step = 0; step < steps; ++step) {
    const Matrix<Real> K = refinement_step(blocks, n);
    Matrix<Real> minus(n, n), plus(n, n);  // I ∓ K/2
    for (Index j = 0; j < n; ++j)
      for (Index i = 0; i < n; ++i) {
        const Real half_step = K(i, j) / 2, identity = i == j ? 1 : 0;
        minus(i, j) = identity - half_step, plus(i, j) = identity + half_step;
      }
    Matrix<Real> next = times(U, Factored<Real>(minus).solve(plus));
    PlaneBlocks improved(scaled, next);
    if (!(improved.worst() < .9 * blocks.worst())) break;
    U = std::move(next);
    blocks = std::move(improved);
  }
  Matrix<Real> correction =
      times(U.transpose(), U);  // U - ½ U (UᵀU - I): the nearest orthogonal matrix, to first order
  for (Index j = 0; j < n; ++j)
    for (Index i = 0; i < n; ++i) correction(i, j) = ((i == j ? 1 : 0) - correction(i, j)) / 2;
  const Matrix<Real> previous = U;
  add_product(U, previous, correction);
  return U;
}

}  // namespace SYMPOW_NAMESPACE::detail
