// What the row rule needs for long sequences: the attention form in double stands in for the definition.
#pragma once

#include <sympow/attention/attention.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/verify/direct.hpp>

namespace sympow::verify {
namespace detail {

/// The scalar decay of a transition alone.
template <Transition A>
struct ScalarPart : LeavesKeys {
  const A& transition;
  explicit ScalarPart(const A& whole) : transition(whole) {}
  [[nodiscard]] Index length() const { return transition.length(); }
  [[nodiscard]] double log_decay(Index token) const { return transition.log_decay(token); }
};

}  // namespace detail

/// The rows of `direct_attention` for a power of the logit, computed by `attention` in double: O(T² (d + e)), by blocks.
///
/// A_i and n_i are attention as well: of the lengths ‖q_i‖ and ‖k_j‖, and of ones, under the scalar decay. ‖M_ij k_j‖ ≤ ‖k_j‖, so under
/// channel decay A_i is an upper bound; under a rotation it is exact. Shapes and errors as in `attention`.
template <FiniteFeatureMap F, Transition A, class DQ, class DK, class DV>
  requires(F::score == Score::power)
[[nodiscard]] DirectRows double_rows(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                     const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                     const Options& options = {}) {
  const Matrix<double> q = Q.template cast<double>(), k = K.template cast<double>(), v = V.template cast<double>();
  const Index T = q.cols(), e = v.rows();
  Matrix<double> values(e + 1, T);
  values << v, Matrix<double>::Ones(1, T);
  const Matrix<double> sums = attention<Unnormalized>(feature, transition, q, k, values, options);
  const detail::ScalarPart<A> decay(transition);
  const Matrix<double> ones = Matrix<double>::Ones(1, T);
  const Matrix<double> weight = attention<Unnormalized>(feature, decay, q.colwise().norm(), k.colwise().norm(), ones,
                                                        {.scale = std::abs(options.scale)});
  const Matrix<double> window = attention<Unnormalized>(Linear{}, decay, ones, ones, ones);

  DirectRows rows{sums.topRows(e), sums.row(e), weight.row(0), window.row(0),
                  v.size() > 0 ? v.cwiseAbs().maxCoeff() : 0};
  if constexpr (F::nonnegative)
    for (Index i = 0; i < T; ++i)
      if (rows.denominator[i] != 0) {
        rows.Y.col(i) /= rows.denominator[i];
        rows.condition[i] /= std::abs(rows.denominator[i]);
      }
  return rows;
}

}  // namespace sympow::verify
