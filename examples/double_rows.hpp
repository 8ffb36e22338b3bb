// What the row rule needs for long sequences: the attention form in double stands in for the definition.
#pragma once

#include <sympow/attention/forms.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/verify/direct.hpp>

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// ‖x_t‖ of every column, a row.
inline Matrix<double> lengths_of_columns(const Matrix<double>& x) {
  Matrix<double> lengths(1, x.cols());
  for (Index t = 0; t < x.cols(); ++t) lengths(0, t) = length_of(x.data() + t * x.rows(), x.rows());
  return lengths;
}

/// Sums of scores times [v; 1], and with them A_i and n_i, as rows; divided by the sums of scores if they are `means`.
inline DirectRows<double> rows_of_sums(const Matrix<double>& sums, const Matrix<double>& weight,
                                       const Matrix<double>& window, const Matrix<double>& v, bool means) {
  const Index e = v.rows(), T = v.cols();
  DirectRows<double> rows{Matrix<double>(e, T), Eigen::VectorXd(T), Eigen::VectorXd(T), Eigen::VectorXd(T),
                          largest_of(v)};
  for (Index i = 0; i < T; ++i) {
    const double sum = rows.denominator[i] = sums(e, i), divisor = means && sum != 0 ? sum : 1;
    rows.condition[i] = weight(0, i) / std::abs(divisor);
    rows.window[i] = window(0, i);
    for (Index r = 0; r < e; ++r) rows.Y(r, i) = sums(r, i) / divisor;
  }
  return rows;
}

}  // namespace detail

/// The rows of `direct_attention` for a power of the logit, computed by `attention` in double: O(T² (d + e)), by
/// blocks.
///
/// A_i and n_i are attention as well: of the lengths ‖q_i‖ and ‖k_j‖, and of ones, under the scalar decay. ‖M_ij k_j‖ ≤
/// ‖k_j‖, so under channel decay A_i is an upper bound; under a rotation it is exact. Shapes and errors as in
/// `attention`.
template <FiniteFeatureMap F, Transition A, class DQ, class DK, class DV>
  requires(F::score == Score::power)
[[nodiscard]] DirectRows<double> double_rows(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                             const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                             const Options& options = {}) {
  const Matrix<double> q = Q.template cast<double>(), k = K.template cast<double>(), v = V.template cast<double>();
  const Index T = q.cols(), e = v.rows();
  const Matrix<double> ones = Matrix<double>::Ones(1, T);
  Matrix<double> values(e + 1, T);
  values << v, ones;
  const Matrix<double> sums = attention<Unnormalized>(feature, transition, q, k, values, options);

  Eigen::VectorXd log_gamma(T);
  for (Index i = 0; i < T; ++i) log_gamma[i] = transition.log_decay(i);
  const Decay scalar_part(log_gamma);
  const Matrix<double> lengths_of_q = detail::lengths_of_columns(q), lengths_of_k = detail::lengths_of_columns(k);
  const Matrix<double> weight = attention<Unnormalized>(feature, scalar_part, lengths_of_q, lengths_of_k, ones,
                                                        {.scale = std::abs(options.scale)});
  const Matrix<double> window = attention<Unnormalized>(Linear{}, scalar_part, ones, ones, ones);
  return detail::rows_of_sums(sums, weight, window, v, F::nonnegative);
}

}  // namespace SYMPOW_NAMESPACE::verify
