// Dense matrices for the propositions about structured rotations: exponentials, Cayley transforms and commuting
// families.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <sympow/core/random.hpp>
#include <sympow/structured/commuting_generators.hpp>
#include "propositions/dense.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// exp A by a Taylor series of A/2^n, squared n times. Error: some ‖A‖ d u.
template <class Scalar>
[[nodiscard]] Dense<Scalar> exponential(const Dense<Scalar>& A) {
  const double norm = A.norm();
  const int halvings = norm > 0 ? std::max(0, std::ilogb(norm) + 3) : 0;
  const Dense<Scalar> small = std::ldexp(1., -halvings) * A;
  Dense<Scalar> sum = Dense<Scalar>::identity(A.rows()), term = sum;
  for (int n = 1; n < 20; ++n) {
    term = term * small / n;
    sum += term;
  }
  for (int n = 0; n < halvings; ++n) sum = sum * sum;
  return sum;
}

/// (I - S)(I + S)⁻¹ for any S without the eigenvalue -1.
template <class Scalar>
[[nodiscard]] Dense<Scalar> dense_cayley(const Dense<Scalar>& S) {
  const auto I = Dense<Scalar>::identity(S.rows());
  return (I + S).transpose().solve((I - S).transpose()).transpose();
}

template <class Scalar>
[[nodiscard]] Dense<Scalar> commutator(const Dense<Scalar>& A, const Dense<Scalar>& B) {
  return A * B - B * A;
}

/// Σ_k r_k L_k.
template <class Scalar>
[[nodiscard]] Dense<Scalar> combined(const std::vector<Dense<Scalar>>& L, const DenseVector<Scalar>& r) {
  auto sum = Dense<Scalar>::zero(L.front().rows(), L.front().cols());
  for (std::size_t k = 0; k < L.size(); ++k) sum += r[static_cast<Index>(k)] * L[k];
  return sum;
}

/// Σ_k |r_k|.
template <class Scalar>
[[nodiscard]] double one_norm(const DenseVector<Scalar>& r) {
  double sum = 0;
  for (Index k = 0; k < r.size(); ++k) sum += std::abs(static_cast<double>(r[k]));
  return sum;
}

/// ‖A - B‖.
template <class Scalar>
[[nodiscard]] double apart(const Dense<Scalar>& A, const Dense<Scalar>& B) {
  return (A - B).spectral_norm();
}

/// A family with random frequencies (d_c × planes) in a random basis, and its generators as dense matrices.
template <class Scalar>
struct DenseFamily {
  CommutingGenerators<Scalar> family;
  std::vector<Dense<Scalar>> L;

  DenseFamily(Random& random, Index generators, Index planes, Index null)
      : family(CommutingGenerators<Scalar>::from_frequencies(random.matrix(generators, planes), null)
                   .in_basis(random.rotation<Scalar>(2 * planes + null))) {
    for (Index k = 0; k < generators; ++k) {
      const Dense<Scalar> dense = family.generator(k);
      L.push_back((dense - dense.transpose()) / 2);
    }
  }

  /// The dense projector on the active space.
  [[nodiscard]] Dense<Scalar> projector() const {
    return family.project_active(Dense<Scalar>::identity(family.dimension()));
  }
};

}  // namespace SYMPOW_NAMESPACE::verify::detail
