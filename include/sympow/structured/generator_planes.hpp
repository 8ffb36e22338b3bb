// The planes and frequencies of commuting generators, in double for every scalar type.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <sympow/core/checks.hpp>
#include <sympow/structured/joint_planes.hpp>

namespace SYMPOW_NAMESPACE {

/// Treatment of generators that commute only approximately.
enum class Commutation {
  exact,   ///< reject
  nearest  ///< use the nearest planes; `deviation_bound` bounds the error
};

namespace detail {

/// Frequencies of d_c commuting generators in their m planes, and their residuals: `CommutingGenerators` without the
/// basis.
template <class Real>
struct GeneratorPlanes {
  Index dimension = 0;            ///< d
  Matrix<Real> lambda;            ///< d_c × m
  Matrix<Real> commutators;       ///< ‖[L_a, L_b]‖, d_c × d_c
  Vector<Real> norms, residuals;  ///< ‖L_k‖, and ‖L_k - L̂_k‖ / ‖L_k‖

  /// Finds the planes of skew matrices, d × d each, given to unit roundoff `unit`. Returns U, active planes first.
  Matrix<Real> find(std::vector<Matrix<Real>> generators, Commutation mode, std::uint64_t seed, double unit);
  /// Sets planes of consecutive coordinates with the given Λ.
  void set(Matrix<Real> frequencies, Index null);

  [[nodiscard]] double gap() const;
  [[nodiscard]] Vector<Real> angles(const Vector<Real>& r) const;
  [[nodiscard]] double deviation_bound(const Vector<Real>& r) const;
  void require_full_rank(double unit) const;

 private:
  // Scales the generators to norm 1; stores norms and commutators.
  void normalize(std::vector<Matrix<Real>>& generators, Commutation mode, double tolerance);
  // Sets Λ of the active planes; returns U with these first.
  Matrix<Real> select_active(const PlaneBlocks<Real>& blocks, const Matrix<Real>& U, Commutation mode,
                             double tolerance);
};

template <class Real>
Matrix<Real> GeneratorPlanes<Real>::find(std::vector<Matrix<Real>> generators, Commutation mode, std::uint64_t seed,
                                         double unit) {
  dimension = generators.front().rows();
  const double tolerance = 8 * static_cast<double>(dimension) * unit;
  normalize(generators, mode, tolerance);
  const Matrix<Real> U = refine_planes(generators, joint_planes(generators, dimension, seed));
  return select_active(PlaneBlocks<Real>(generators, U), U, mode, tolerance);
}

template <class Real>
void GeneratorPlanes<Real>::normalize(std::vector<Matrix<Real>>& generators, Commutation mode, double tolerance) {
  const auto count = static_cast<Index>(generators.size());
  norms.resize(count);
  for (Index k = 0; k < count; ++k) {
    Matrix<Real>& L = generators[static_cast<std::size_t>(k)];
    norms[k] = stable_norm<Real>(L.data(), L.size());
    if (!std::isfinite(norms[k])) raise<NotFinite>("generator ", k, ": its norm is ", norms[k], ", must be finite");
    for (Index n = 0; norms[k] > 0 && n < L.size(); ++n) L.data()[n] /= norms[k];
  }
  commutators = Matrix<Real>::Zero(count, count);
  for (Index a = 0; a < count; ++a)
    for (Index b = a + 1; b < count; ++b) {
      const Matrix<Real> xy = times(generators[static_cast<std::size_t>(a)], generators[static_cast<std::size_t>(b)]);
      Matrix<Real> commutator(dimension, dimension);  // (x y)ᵀ = y x
      for (Index j = 0; j < dimension; ++j)
        for (Index i = 0; i < dimension; ++i) commutator(i, j) = xy(i, j) - xy(j, i);
      const Real size = stable_norm<Real>(commutator.data(), commutator.size());
      commutators(a, b) = commutators(b, a) = size * norms[a] * norms[b];
      if (mode == Commutation::exact && size > tolerance)
        raise<NotCommuting>("generators ", a, " and ", b, ": |[L_a, L_b]| is ", size, " |L_a| |L_b|, must be at most ",
                            tolerance, "; see Commutation::nearest");
    }
}

template <class Real>
Matrix<Real> GeneratorPlanes<Real>::select_active(const PlaneBlocks<Real>& blocks, const Matrix<Real>& U,
                                                  Commutation mode, double tolerance) {
  const Index count = norms.size();
  const double worst = blocks.worst();
  if (mode == Commutation::exact && !(worst <= 2 * tolerance))
    raise<NotCommuting>("generators: the residual of their joint planes is ", worst, ", must be at most ",
                        2 * tolerance);
  residuals = blocks.residual;
  std::vector<Index> active, null;
  for (Index u = 0; u < blocks.lambda.cols(); ++u) {
    double size = 0;
    for (Index k = 0; k < count; ++k) size = std::max(size, std::abs(blocks.lambda(k, u)));
    (size <= tolerance ? null : active).push_back(u);
    if (size <= tolerance) {
      for (Index k = 0; k < count; ++k)
        residuals[k] = std::hypot(residuals[k], std::numbers::sqrt2 * blocks.lambda(k, u));
    } else if (mode == Commutation::exact && size <= 2 * tolerance) {
      raise<AmbiguousRank>("plane ", u, ": its frequencies are at most ", size,
                           " of their generators, and rounding leaves ", tolerance, " to ", 2 * tolerance, " open");
    }
  }
  lambda.resize(count, static_cast<Index>(active.size()));
  Matrix<Real> ordered = U;
  Index plane = 0;
  for (const auto* planes : {&active, &null})
    for (const Index u : *planes) {
      for (Index k = 0; planes == &active && k < count; ++k) lambda(k, plane) = blocks.lambda(k, u) * norms[k];
      ordered.col(2 * plane) = U.col(2 * u);
      ordered.col(2 * plane + 1) = U.col(2 * u + 1);
      ++plane;
    }
  return ordered;
}

template <class Real>
void GeneratorPlanes<Real>::set(Matrix<Real> frequencies, Index null) {
  if (null < 0) raise<ShapeMismatch>("frequencies: the null dimension is ", null, ", must not be negative");
  const Index count = frequencies.rows();
  norms = Vector<Real>::Zero(count);
  for (Index u = 0; u < frequencies.cols(); ++u)
    for (Index k = 0; k < count; ++k) {
      const Real value = frequencies(k, u);
      if (!std::isfinite(value)) raise<NotFinite>("frequencies: (", k, ", ", u, ") is ", value, ", must be finite");
      norms[k] = std::hypot(norms[k], std::numbers::sqrt2 * value);
    }
  dimension = 2 * frequencies.cols() + null;
  residuals = Vector<Real>::Zero(count);
  commutators = Matrix<Real>::Zero(count, count);
  lambda = std::move(frequencies);
}

template <class Real>
double GeneratorPlanes<Real>::gap() const {
  double smallest = std::numeric_limits<double>::infinity();
  for (Index u = 0; u < lambda.cols(); ++u)
    for (Index v = u + 1; v < lambda.cols(); ++v)
      for (const double sign : {1., -1.}) {
        double distance = 0;
        for (Index k = 0; k < lambda.rows(); ++k)
          if (norms[k] > 0) distance = std::max(distance, std::abs(lambda(k, u) - sign * lambda(k, v)) / norms[k]);
        smallest = std::min(smallest, distance);
      }
  return smallest;
}

template <class Real>
Vector<Real> GeneratorPlanes<Real>::angles(const Vector<Real>& r) const {
  check_size("entries of the position", r.size(), lambda.rows(), "generators of the family");
  return times(lambda.transpose(), r);
}

template <class Real>
double GeneratorPlanes<Real>::deviation_bound(const Vector<Real>& r) const {
  check_size("entries of the position", r.size(), lambda.rows(), "generators of the family");
  double bound = 0;
  for (Index k = 0; k < r.size(); ++k) bound += std::abs(r[k]) * norms[k] * residuals[k];
  return bound;
}

template <class Real>
void GeneratorPlanes<Real>::require_full_rank(double unit) const {
  const Vector<Real> s = singular_values(lambda);
  const double limit = s.size() > 0 ? 8 * static_cast<double>(dimension) * unit * s[0] : 0;
  const Index rank = std::count_if(s.data(), s.data() + s.size(), [=](double value) { return value > limit; });
  if (rank < lambda.rows())
    raise<RankDeficient>("frequencies: rank is ", rank, ", must be ", lambda.rows(), ", or some r turn nothing");
}

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE

/// Explicit instantiations for one type; LINKAGE is `extern` where another file compiles them.
#define SYMPOW_GENERATOR_PLANES(LINKAGE, Real)                                                             \
  namespace sympow::detail {                                                                               \
  LINKAGE template struct SkewTridiagonal<Real>;                                                           \
  LINKAGE template struct PlaneBlocks<Real>;                                                               \
  LINKAGE template Matrix<Real> skew_planes(const Matrix<Real>&);                                          \
  LINKAGE template Matrix<Real> joint_planes(const std::vector<Matrix<Real>>&, Index, std::uint64_t, int); \
  LINKAGE template Matrix<Real> refinement_step(const PlaneBlocks<Real>&, Index);                          \
  LINKAGE template Matrix<Real> refine_planes(const std::vector<Matrix<Real>>&, Matrix<Real>, int);        \
  LINKAGE template struct GeneratorPlanes<Real>;                                                           \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_GENERATOR_PLANES(extern, double)
#endif
