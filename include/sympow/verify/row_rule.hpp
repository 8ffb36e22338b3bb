// The row rule: how far two results may be apart where both are right.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <sympow/attention/options.hpp>
#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/verify/residual.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Rows by the definition in arithmetic of the type Real, with what the row rule needs.
template <class Real>
struct DirectRows {
  Matrix<Real> Y;            ///< e × T
  Vector<Real> denominator;  ///< Σ_j s_ij; of means up to a factor above 0, which A_i has as well
  Vector<Real> condition;    ///< K_i for normalised rows, A_i for sums, K_i (1 + |Y_i| / max|V|) for signed means
  Vector<Real> window;       ///< Σ_j b_ij, tokens inside the gate's effective window
  Real largest_value{};      ///< max |V|

  /// Some rows of them.
  [[nodiscard]] DirectRows segment(Index begin, Index size) const {
    return {Y.middleCols(begin, size), denominator.segment(begin, size), condition.segment(begin, size),
            window.segment(begin, size), largest_value};
  }
};

/// Whether rows are divided by their sums of scores.
template <class Normalization, FeatureMap F>
inline constexpr bool divides =
    std::is_same_v<Normalization, DefaultNormalization> ? F::nonnegative : !std::is_same_v<Normalization, Unnormalized>;

/// Whether a row says nothing: its scores cancel to within what the state forms can tell from zero, 16 u A_i. One that
/// is no number says that something is wrong.
template <class Real>
[[nodiscard]] bool degenerate(const DirectRows<Real>& rows, Index i, double unit) {
  return rows.denominator[i] == Real(0) || rows.condition[i] * Real(16 * unit) >= Real(1);
}

namespace detail {

/// The row rule for one row, its difference and what it allows, as a number.
template <class Real>
double row_ratio(const DirectRows<Real>& rows, Index i, const Matrix<Real>& a, const Matrix<Real>& b, double unit,
                 double updates) {
  using std::abs;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Real difference(0);
  for (Index r = 0; r < a.rows(); ++r) {
    const Real entry = abs(a(r, i) - b(r, i));
    if (!(entry == entry)) return infinity;
    if (difference < entry) difference = entry;
  }
  if (difference == Real(0)) return 0;
  const Real allowed = Real(4 * unit * (1 + std::sqrt(updates))) * rows.condition[i] * rows.largest_value;
  const auto ratio = static_cast<double>(difference / allowed);
  return std::isnan(ratio) ? infinity : ratio;
}

}  // namespace detail

/// The row rule: how far two results are apart, in units of what their arithmetic excuses, and in which row; at most 1
/// is agreement.
///
///     max_i |ΔY_i| / (4 u · K_i · max|V| · (1 + √n_i))
///
/// n_i = window_i / tokens_per_update, the updates of whichever side makes more of them: 1 for a recurrence, and for
/// the definition where it moves keys on token by token; the chunk for the chunked form; infinity (no updates) for the
/// attention form. Chunks under gates that close fast are cut into pieces, of 8 tokens or more and in double up to four
/// to a window, which then are the updates. Degenerate rows of means are not compared. A result that is not finite
/// gives infinity. Throws `ShapeMismatch`.
template <class Normalization = DefaultNormalization, FeatureMap F, class Real, class DA, class DB>
[[nodiscard]] Residual worst_row(const DirectRows<Real>& rows, const Eigen::MatrixBase<DA>& a,
                                 const Eigen::MatrixBase<DB>& b, double unit, double tokens_per_update = 1) {
  constexpr double shortest_piece = 8, most_pieces = std::is_same_v<typename DA::Scalar, double> ? 4 : 2. / 27;
  const Matrix<Real> x = a.template cast<Real>(), y = b.template cast<Real>();
  sympow::detail::check_size("columns of Y", x.cols(), rows.Y.cols(), "rows that were evaluated");
  sympow::detail::check_size("columns of the other Y", y.cols(), rows.Y.cols(), "rows that were evaluated");
  const bool has_chunks = 1 < tokens_per_update && std::isfinite(tokens_per_update);
  Residual worst{0, 1};
  for (Index i = 0; i < rows.Y.cols(); ++i) {
    if (rows.Y.rows() == 0 || (divides<Normalization, F> && degenerate(rows, i, unit))) continue;
    const auto window = static_cast<double>(rows.window[i]);
    const double pieces = has_chunks ? std::min(window / shortest_piece, most_pieces) : 0;
    const double ratio = detail::row_ratio(rows, i, x, y, unit, std::max(window / tokens_per_update, pieces));
    if (ratio > worst.residual) worst.residual = ratio, worst.row = i;
  }
  return worst;
}

/// The number of `worst_row` alone.
template <class Normalization = DefaultNormalization, FeatureMap F, class Real, class DA, class DB>
[[nodiscard]] double row_rule(const DirectRows<Real>& rows, const Eigen::MatrixBase<DA>& a,
                              const Eigen::MatrixBase<DB>& b, double unit, double tokens_per_update = 1) {
  return worst_row<Normalization, F>(rows, a, b, unit, tokens_per_update).residual;
}

}  // namespace SYMPOW_NAMESPACE::verify
