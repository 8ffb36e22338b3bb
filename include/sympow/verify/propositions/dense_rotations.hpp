// Dense matrices for the propositions about structured rotations: exponentials, Cayley transforms and commuting families.
#pragma once

#include <Eigen/LU>

#include <algorithm>
#include <cmath>
#include <vector>

#include <sympow/core/random.hpp>
#include <sympow/rotation/commuting_generators.hpp>
#include <sympow/verify/propositions/spectral_norm.hpp>

namespace sympow::verify::detail {

/// exp A by a Taylor series of A/2^n, squared n times. Error: some ‖A‖ d u.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> exponential(const Matrix<Scalar>& A) {
  const auto norm = static_cast<double>(A.norm());
  const int halvings = norm > 0 ? std::max(0, std::ilogb(norm) + 3) : 0;
  const Matrix<Scalar> small = std::ldexp(Scalar(1), -halvings) * A;
  Matrix<Scalar> sum = Matrix<Scalar>::Identity(A.rows(), A.cols()), term = sum;
  for (int n = 1; n < 20; ++n) {
    term = (term * small / static_cast<Scalar>(n)).eval();
    sum += term;
  }
  for (int n = 0; n < halvings; ++n) sum = (sum * sum).eval();
  return sum;
}

/// (I - S)(I + S)⁻¹ for any S without the eigenvalue -1.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> dense_cayley(const Matrix<Scalar>& S) {
  const Matrix<Scalar> I = Matrix<Scalar>::Identity(S.rows(), S.cols());
  return (I + S).transpose().partialPivLu().solve((I - S).transpose()).transpose();
}

template <class Scalar>
[[nodiscard]] Matrix<Scalar> commutator(const Matrix<Scalar>& A, const Matrix<Scalar>& B) {
  return A * B - B * A;
}

/// Σ_k r_k L_k.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> combined(const std::vector<Matrix<Scalar>>& L, const Vector<Scalar>& r) {
  Matrix<Scalar> sum = Matrix<Scalar>::Zero(L.front().rows(), L.front().cols());
  for (std::size_t k = 0; k < L.size(); ++k) sum += r[static_cast<Index>(k)] * L[k];
  return sum;
}

/// A family with random frequencies (d_c × planes) in a random basis, and its generators as dense matrices.
template <class Scalar>
struct DenseFamily {
  CommutingGenerators<Scalar> family;
  std::vector<Matrix<Scalar>> L;

  DenseFamily(Random& random, Index generators, Index planes, Index null)
      : family(CommutingGenerators<Scalar>::from_frequencies(random.matrix(generators, planes), null)
                   .in_basis(random.rotation<Scalar>(2 * planes + null))) {
    for (Index k = 0; k < generators; ++k) {
      const Matrix<Scalar> dense = family.generator(k);
      L.push_back((dense - dense.transpose()) / 2);
    }
  }

  /// The dense projector on the active space.
  [[nodiscard]] Matrix<Scalar> projector() const {
    return family.project_active(Matrix<Scalar>::Identity(family.dimension(), family.dimension()));
  }
};

}  // namespace sympow::verify::detail
