// Generators of which the joint planes are known, and what is owed by planes that are found from the generators alone.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <limits>

#include <sympow/verify/proposition.hpp>
#include "propositions/dense_rotations.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// Frequencies, d_c × m, and a null dimension: a family of which the planes are known.
struct FrequencyTable {
  const char* name;
  Dense<double> lambda;
  Index null;
};

/// A matrix from its rows.
[[nodiscard]] inline Dense<double> rows(std::initializer_list<std::initializer_list<double>> entries) {
  Dense<double> table(static_cast<Index>(entries.size()), static_cast<Index>(entries.begin()->size()));
  Index k = 0;
  for (const auto& row : entries) {
    Index plane = 0;
    for (const double entry : row) table(k, plane++) = entry;
    ++k;
  }
  return table;
}

/// Eighteen families with distinct, repeated, zero and tiny frequencies; tiny ones are relative to the roundoff u.
inline std::vector<FrequencyTable> frequency_tables(Random& random, double u) {
  const double tiny = 8192 * u, gap = std::sqrt(u) / 16, longest = 1 / (32768 * u);
  const auto step = [](Index n, Index m, double base) {
    return std::pow(base, -static_cast<double>(n) / static_cast<double>(m));
  };
  const auto mixed = [&](Index axes, Index m, double base) {  // along random directions
    Dense<double> lambda = random.matrix(axes, m);
    for (Index n = 0; n < m; ++n) {
      const double size = step(n, m, base) / lambda.column(n).norm();
      for (Index k = 0; k < axes; ++k) lambda(k, n) *= size;
    }
    return lambda;
  };
  auto rope = Dense<double>::zero(3, 64);
  for (Index n = 0; n < 64; ++n) {
    rope(0, n) = step(n % 32, 32, std::min(1e4, longest));
    rope(1, (n + 5) % 64) = rope(0, n);
  }
  const auto three = mixed(3, 64, std::min(5e5, longest)), two = mixed(2, 61, std::min(1e4, longest));
  return {{"distinct", random.matrix(2, 4), 0},
          {"one generator, d = 7", random.matrix(1, 3), 1},
          {"six generators, d = 17", random.matrix(6, 7), 3},
          {"L_1 repeated, L_2 distinct", rows({{1, 1, 1, 1}, {.3, .7, 1.1, 2}}), 1},
          {"jointly repeated, null 2", rows({{1, 1, 2, 2}, {3, 3, -1, -1}}), 2},
          {"both orientations", rows({{1, 1}, {1, -1}}), 0},
          {"axial with zeros, d = 11", rows({{1, .1, 0, 0}, {0, 0, 1, .1}}), 3},
          {"down to 8192 u, d = 11", rows({{1, std::pow(tiny, .3), std::pow(tiny, .6), std::pow(tiny, .8), tiny}}), 1},
          {"8192 u beside null 4", rows({{1, tiny, 1}, {2, 0, 2}}), 4},
          {"L_2 scaled by 1e-9", rows({{1, 1, .5, .5}, {1e-9, 2e-9, 3e-9, 4e-9}}), 0},
          {"gaps of √u/16", rows({{1, 1 + gap, 1 - gap, 1}, {0, gap, 2 * gap, 3 * gap}}), 0},
          {"all zero, d = 5", Dense<double>::zero(2, 0), 5},
          {"d = 1", Dense<double>::zero(1, 0), 1},
          {"d = 2", Dense<double>::constant(3, 1, 1), 0},
          {"one zero generator, d = 3", rows({{.7}, {0}}), 1},
          {"RoPE in three ways, d = 128", rope, 0},
          {"mixed directions, d = 128", three, 0},
          {"mixed directions, d = 127", two, 5}};
}

/// max_k ‖L_k - L'_k‖ / ‖L_k‖.
template <class Scalar>
[[nodiscard]] double largest_residual(const CommutingGenerators<Scalar>& family) {
  return DenseVector<double>(family.residuals()).largest();
}

/// The generators of a table in a random basis, rounded once; what the library's steps make of them is in double, as in
/// the library.
template <class Scalar>
struct GivenGenerators {
  CommutingGenerators<double> truth;
  std::vector<Matrix<Scalar>> L;
  std::vector<Matrix<double>> scaled;  // L_k / ‖L_k‖

  GivenGenerators(const FrequencyTable& table, Random& random)
      : truth(CommutingGenerators<double>::from_frequencies(table.lambda, table.null)
                  .in_basis(random.rotation(2 * table.lambda.cols() + table.null))) {
    for (Index k = 0; k < truth.size(); ++k) {
      const Dense<double> dense = truth.generator(k);
      const auto rounded = ((dense - dense.transpose()) / 2).template to<Scalar>();
      const auto given = rounded.in_double();
      L.push_back(rounded);
      scaled.push_back(given.norm() > 0 ? given.normalized() : given);
    }
  }

  [[nodiscard]] Index dimension() const { return truth.dimension(); }
  /// 8 d u, the library's limit for what rounding makes of generators of norm 1.
  [[nodiscard]] double limit() const { return 8 * static_cast<double>(dimension()) * unit_roundoff<Scalar>; }
  /// The worst ‖Uᵀ L_k U - blocks‖ / ‖L_k‖.
  [[nodiscard]] double residual(const Dense<double>& U) const {
    return sympow::detail::PlaneBlocks<double>(scaled, U).worst();
  }
  [[nodiscard]] Dense<double> planes() const {
    return sympow::detail::refine_planes(scaled, sympow::detail::joint_planes(scaled, dimension(), 1));
  }
  /// max_k |λ_ku| / ‖L_k‖ of every plane u that was found, null planes included, in falling order.
  [[nodiscard]] std::vector<double> sizes() const {
    const Dense<double> lambda = sympow::detail::PlaneBlocks<double>(scaled, planes()).lambda;
    std::vector<double> found;
    for (Index plane = 0; plane < lambda.cols(); ++plane) found.push_back(lambda.column(plane).largest());
    std::sort(found.rbegin(), found.rend());
    return found;
  }
  /// Planes that a test max_k |λ_ku| > tolerance ‖L_k‖ calls active beyond the true ones, or the other way round.
  [[nodiscard]] double miscounted(double tolerance) const {
    const auto found = sizes();
    const auto active = std::count_if(found.begin(), found.end(), [=](double size) { return size > tolerance; });
    return std::abs(static_cast<double>(active - truth.planes()));
  }

  /// The largest difference of found and true frequencies in units of ‖L_k‖, planes matched greedily in either
  /// orientation.
  [[nodiscard]] double frequency_error(const Dense<double>& found) const {
    const Dense<double> lambda = truth.frequencies();
    std::vector<double> norms;
    for (const auto& generator : L) norms.push_back(static_cast<double>(generator.norm()));
    std::vector<Index> left;
    for (Index t = 0; t < truth.planes(); ++t) left.push_back(t);
    double worst = 0;
    for (Index n = 0; n < found.cols(); ++n) {
      double best = std::numeric_limits<double>::infinity();
      std::size_t match = 0;
      for (std::size_t i = 0; i < left.size(); ++i)
        for (const double sign : {1., -1.}) {
          double size = 0;
          for (Index k = 0; k < truth.size(); ++k) {
            const double norm = norms[static_cast<std::size_t>(k)];
            if (norm > 0) size = std::max(size, std::abs(found(k, n) - sign * lambda(k, left[i])) / norm);
          }
          if (size < best) {
            best = size;
            match = i;
          }
        }
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(match));
      worst = std::max(worst, best);
    }
    return worst;
  }

  /// The worst of what a family found from L owes, in units of 4 d u.
  [[nodiscard]] double violation() const {
    const CommutingGenerators<Scalar> family(L);
    if (family.planes() != truth.planes() || family.null_dimension() != truth.null_dimension())
      return std::numeric_limits<double>::infinity();
    const Dense<Scalar> U = family.basis();
    Largest worst;
    worst.add((U.transpose() * U - Dense<Scalar>::identity(dimension())).norm());
    worst.add(largest_residual(family));
    worst.add(frequency_error(family.frequencies()));
    for (std::size_t k = 0; k < L.size(); ++k) {
      const Dense<Scalar> given = L[k], found = family.generator(static_cast<Index>(k));
      if (given.norm() > 0) worst.add((found - given).norm() / given.norm());
    }
    return 2 * worst.value() / limit();
  }
};

}  // namespace SYMPOW_NAMESPACE::verify::detail
