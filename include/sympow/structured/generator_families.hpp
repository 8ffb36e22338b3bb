// Families of commuting generators in closed form, and grid positions.
#pragma once

#include <numbers>

#include <sympow/rotation/frequencies.hpp>
#include <sympow/structured/commuting_generators.hpp>

namespace SYMPOW_NAMESPACE {

/// RoPE: one coordinate; plane u rotates by base^{-2u/d} radians per unit, u = 0, 1, …. Throws `OddDimension`.
template <class Scalar>
[[nodiscard]] CommutingGenerators<Scalar> rope_family(Index d, double base = 10000) {
  return CommutingGenerators<Scalar>::from_frequencies(rope_frequencies<double>(d, base).transpose());
}

/// Axial RoPE: coordinate k has d/(2 axes) planes with the RoPE frequencies of that number of planes. Throws
/// `OddDimension`, and `ShapeMismatch` unless `axes` divides d/2.
template <class Scalar>
[[nodiscard]] CommutingGenerators<Scalar> axial_family(Index d, Index axes, double base = 10000) {
  if (axes < 1 || (d / 2) % axes != 0)
    detail::raise<ShapeMismatch>("axial family: d/2 = ", d / 2, " planes must be a multiple of the ", axes,
                                 " axes, at least 1");
  const Eigen::VectorXd axis_rates = rope_frequencies<double>(d / axes, base);
  Eigen::MatrixXd lambda = Eigen::MatrixXd::Zero(axes, d / 2);
  for (Index k = 0; k < axes; ++k)
    for (Index u = 0; u < axis_rates.size(); ++u) lambda(k, k * axis_rates.size() + u) = axis_rates[u];
  return CommutingGenerators<Scalar>::from_frequencies(lambda);
}

/// Mixed n-dimensional RoPE: plane u rotates by Σ_k λ_ku r_k, with the RoPE frequencies along d/2 seeded random
/// directions of R^axes. Throws `OddDimension`, `ShapeMismatch`. For given directions use
/// `CommutingGenerators::from_frequencies`.
template <class Scalar>
[[nodiscard]] CommutingGenerators<Scalar> mixed_family(Index d, Index axes, std::uint64_t seed, double base = 10000) {
  if (axes < 1) detail::raise<ShapeMismatch>("mixed family: there are ", axes, " axes, must be at least 1");
  const Eigen::VectorXd rates = rope_frequencies<double>(d, base);
  Random random(seed);
  Eigen::MatrixXd lambda(axes, d / 2);
  for (Index u = 0; u < d / 2; ++u) lambda.col(u) = rates[u] * random.vector(axes).normalized();
  return CommutingGenerators<Scalar>::from_frequencies(lambda);
}

/// Periodic coordinates: λ_ku = 2π n_ku / period_k for integers n (d_c × m), so R is invariant under r_k ← r_k +
/// period_k. Throws `ShapeMismatch`, and `InvalidArgument` for a period that is not positive and finite.
template <class Scalar>
[[nodiscard]] CommutingGenerators<Scalar> periodic_family(const Eigen::VectorXd& periods, const Eigen::MatrixXi& n,
                                                          Index null = 0) {
  detail::check_size("rows of the whole frequencies", n.rows(), periods.size(), "periods");
  for (Index k = 0; k < periods.size(); ++k)
    if (!(periods[k] > 0) || !std::isfinite(periods[k]))
      detail::raise<InvalidArgument>("periodic family: period ", k, " is ", periods[k],
                                     ", must be positive and finite");
  Eigen::MatrixXd lambda(n.rows(), n.cols());
  for (Index u = 0; u < n.cols(); ++u)
    for (Index k = 0; k < n.rows(); ++k) lambda(k, u) = 2 * std::numbers::pi * (n(k, u) / periods[k]);
  return CommutingGenerators<Scalar>::from_frequencies(std::move(lambda), null);
}

/// Skew circulant generators. L_k has first column c_k = (0, a_k1, …, -a_k1), an odd sequence with a_kj =
/// `coefficients`(k, j - 1) for j = 1 … ⌊(d-1)/2⌋. They commute; their planes are the Fourier basis, with
///
///     λ_ku = 2 Σ_j a_kj sin(2π u j / d),   u = 1 … ⌊(d-1)/2⌋
///
/// The constant vector, and for even d the alternating one, span the null space. Throws `ShapeMismatch`, `NotFinite`.
template <class Scalar>
[[nodiscard]] CommutingGenerators<Scalar> circulant_family(Index d, const Eigen::MatrixXd& coefficients) {
  const Index m = d > 0 ? (d - 1) / 2 : 0;
  detail::check_size("columns of the coefficients", coefficients.cols(), m, "(d - 1)/2, rounded down");
  const auto angle = [d](Index u, Index j) {
    return 2 * std::numbers::pi * static_cast<double>((u * j) % d) / static_cast<double>(d);
  };
  Eigen::MatrixXd sines(m, m);
  Matrix<Scalar> U = Matrix<Scalar>::Zero(d, d);
  const double size = std::sqrt(2. / static_cast<double>(std::max<Index>(d, 1)));
  for (Index u = 1; u <= m; ++u) {
    for (Index j = 1; j <= m; ++j) sines(j - 1, u - 1) = 2 * std::sin(angle(u, j));
    for (Index t = 0; t < d; ++t) {
      U(t, 2 * u - 2) = static_cast<Scalar>(size * std::cos(angle(u, t)));
      U(t, 2 * u - 1) = static_cast<Scalar>(size * std::sin(angle(u, t)));
    }
  }
  const double null = 1 / std::sqrt(static_cast<double>(std::max<Index>(d, 1)));
  for (Index t = 0; t < d; ++t) {
    U(t, 2 * m) = static_cast<Scalar>(null);
    if (d % 2 == 0) U(t, d - 1) = static_cast<Scalar>(t % 2 == 0 ? null : -null);
  }
  return CommutingGenerators<Scalar>::from_frequencies(detail::times(coefficients, sines), d - 2 * m).in_basis(U);
}

/// Coordinates of grid points.
enum class Grid {
  indices,   ///< 0, 1, …, n - 1
  centered,  ///< -(n - 1)/2 … (n - 1)/2, unit steps
  cells      ///< (i + ½)/n, midpoints of n cells of the unit interval
};

/// Positions of a grid of n_1 × … × n_c points, c × Π n_k, the last coordinate fastest (row-major pixels). Throws
/// `ShapeMismatch` for a negative size.
[[nodiscard]] inline Eigen::MatrixXd grid_positions(const std::vector<Index>& sizes, Grid grid = Grid::indices) {
  Index points = 1;
  for (const Index n : sizes) {
    if (n < 0) detail::raise<ShapeMismatch>("grid: a size is ", n, ", must not be negative");
    points *= n;
  }
  const auto axes = static_cast<Index>(sizes.size());
  Eigen::MatrixXd r(axes, points);
  for (Index t = 0; t < points; ++t) {
    Index remaining = t;
    for (Index k = axes - 1; k >= 0; --k) {
      const Index n = sizes[static_cast<std::size_t>(k)];
      const auto i = static_cast<double>(remaining % n), count = static_cast<double>(n);
      r(k, t) = grid == Grid::indices ? i : grid == Grid::centered ? i - (count - 1) / 2 : (i + .5) / count;
      remaining /= n;
    }
  }
  return r;
}

}  // namespace SYMPOW_NAMESPACE
