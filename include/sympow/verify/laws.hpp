// The laws of the field as functions: give them your own feature map, transition, rotation or data.
#pragma once

#include <algorithm>

#include <sympow/attention/attention.hpp>
#include <sympow/attention/chunked.hpp>
#include <sympow/attention/recurrent.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/verify/direct.hpp>
#include <sympow/verify/proposition.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Size of a violation and what rounding excuses; the law holds if residual ≤ bound.
struct Residual {
  double residual = 0;  ///< size of the violation
  double bound = 0;     ///< what rounding explains

  /// residual ≤ bound.
  [[nodiscard]] bool holds() const { return residual <= bound; }
};

/// How far the forms are apart, each in units of the row rule; 0 for a form that there is not.
struct FormResiduals {
  double attention = 0;  ///< the attention form from the definition
  double recurrent = 0;  ///< the recurrence, with a tail and without, from the attention form
  double chunked = 0;    ///< the chunked form from the attention form

  /// The largest of them.
  [[nodiscard]] double worst() const { return std::max({attention, recurrent, chunked}); }
};

namespace detail {

/// `form_residuals` of plain matrices.
template <class Normalization, FeatureMap F, Transition A, class Scalar>
FormResiduals residuals_of_forms(const DirectRows& rows, const F& feature, const A& transition, const Matrix<Scalar>& Q,
                                 const Matrix<Scalar>& K, const Matrix<Scalar>& V, const Options& options) {
  constexpr double never = std::numeric_limits<double>::infinity(), every_token = 1;
  const Matrix<Scalar> Y = attention<Normalization>(feature, transition, Q, K, V, options);
  const auto apart = [&](const Matrix<Scalar>& other, double tokens_per_update) {
    return row_rule<Normalization, F>(rows, other, Y, unit_roundoff<Scalar>, tokens_per_update);
  };
  FormResiduals found;
  found.attention = row_rule<Normalization, F>(rows, Y, rows.Y, unit_roundoff<Scalar>,
                                               A::key_action != KeyAction::none ? every_token : never);
  if constexpr (has_state_forms<F, A>) {
    HeadShape shape = head_shape(feature, transition, Q.cols(), Q.rows(), V.rows());
    shape.is_full = options.mask.is_full;
    shape.keeps_state = true;
    const auto chunk = static_cast<double>(sympow::detail::chunk_of(options, shape));
    State<Scalar, F> literal(feature, Q.rows(), V.rows(), 0), tailed(feature, Q.rows(), V.rows()), chunks = tailed;
    found.recurrent =
        std::max(apart(recurrent<Normalization>(feature, transition, Q, K, V, literal, options), every_token),
                 apart(recurrent<Normalization>(feature, transition, Q, K, V, tailed, options), every_token));
    found.chunked = apart(chunked<Normalization>(feature, transition, Q, K, V, chunks, options), chunk);
  }
  return found;
}

}  // namespace detail

/// Every form of a feature map and a transition against rows that were evaluated by the definition.
///
/// `rows` is what `direct_attention` gives for these arguments. Shapes as in `attention`. Cost: that of the forms.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] FormResiduals form_residuals(const DirectRows& rows, const F& feature, const A& transition,
                                           const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                           const Eigen::MatrixBase<DV>& V, const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  return detail::residuals_of_forms<Normalization, F, A, Scalar>(rows, feature, transition, Q.derived(), K.derived(),
                                                                 V.derived(), options);
}

/// attention = recurrent = chunked = the definition.
///
/// Residual: the largest of `form_residuals`; bound 1. What has no state form is compared in the attention form only. Cost: that
/// of `direct_attention` and of the three forms.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Residual three_forms_law(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                       const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                       const Options& options = {}) {
  const DirectRows rows = direct_attention<Normalization>(feature, transition, Q, K, V, options);
  return {form_residuals<Normalization>(rows, feature, transition, Q, K, V, options).worst(), 1};
}

/// Splitting a sequence anywhere changes nothing.
///
/// `transition_of(segment)` returns the transition of some tokens, such as `decay(log_gamma.segment(s.begin, s.size))`. Tokens before
/// `split` go through `recurrent` and the rest through `chunked`, and the other way round, with the state handed on. Residual and
/// bound as in `three_forms_law`.
template <class Normalization = DefaultNormalization, FiniteFeatureMap F, class TransitionOf, class DQ, class DK,
          class DV>
[[nodiscard]] Residual splitting_law(const F& feature, const TransitionOf& transition_of,
                                     const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                     const Eigen::MatrixBase<DV>& V, Index split, const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  const Segment before{0, split}, after{split, Q.cols() - split};
  const auto first = transition_of(before), second = transition_of(after), whole = transition_of(Segment{0, Q.cols()});
  const DirectRows rows = direct_attention<Normalization>(feature, whole, Q, K, V, options);
  double worst = 0;
  for (const bool recurrent_first : {true, false}) {
    State<Scalar, F> state(feature, Q.rows(), V.rows());
    Matrix<Scalar> Y(V.rows(), Q.cols());
    const auto run = [&](const auto& transition, Segment s, bool step_by_step) {
      const Matrix<Scalar> q = Q.middleCols(s.begin, s.size), k = K.middleCols(s.begin, s.size),
                           v = V.middleCols(s.begin, s.size);
      Y.middleCols(s.begin, s.size) = step_by_step
                                          ? recurrent<Normalization>(feature, transition, q, k, v, state, options)
                                          : chunked<Normalization>(feature, transition, q, k, v, state, options);
    };
    run(first, before, recurrent_first);
    run(second, after, !recurrent_first);
    worst = std::max(worst, row_rule<Normalization, F>(rows, Y, rows.Y, unit_roundoff<Scalar>));
  }
  return {worst, 1};
}

/// Scores see the difference of two positions only.
///
///     (R^i x)·(R^j y) = x·(R^{j-i} y)
///
/// For any rotation with `pow` and `*`. Residual relative to ‖x‖ ‖y‖; bound 4 d u, and u times the larger power for the angles.
template <StructuredOperator Rotation, VectorExpression X, VectorExpression Y>
[[nodiscard]] Residual relative_position_law(const Rotation& R, const X& x, const Y& y, Index i, Index j) {
  using Scalar = scalar_t<X>;
  const Vector<Scalar> a = x, b = y, left = R.pow(static_cast<double>(i)) * a,
                       right = R.pow(static_cast<double>(j)) * b, moved = R.pow(static_cast<double>(j - i)) * b;
  const double size = static_cast<double>(a.norm()) * static_cast<double>(b.norm());
  const double difference = std::abs(static_cast<double>(left.dot(right)) - static_cast<double>(a.dot(moved)));
  const double power = static_cast<double>(std::max(std::abs(i), std::abs(j)));
  return {size > 0 ? difference / size : 0,
          4 * static_cast<double>(a.size()) * unit_roundoff<Scalar> + 16 * power * unit_roundoff<double>};
}

/// Proposition 2 against the dense definition.
///
///     φ^P(A x) = Sym^P(A) φ^P(x),   Sym^P(A) by permanents
///
/// Residual relative to ‖|A| |x|‖^P, which is what the rounding of a monomial is relative to; bound 8 P d u times √D.
template <int P, MatrixExpression A, VectorExpression X>
[[nodiscard]] Residual proposition_2_law(const A& a, const X& x) {
  using Scalar = scalar_t<X>;
  const Matrix<Scalar> map = a, lift = induced<P>(map).toDenseMatrix();
  const Vector<Scalar> source = x, target = map * source, image = symmetric_power<P>(target),
                       phi = symmetric_power<P>(source), lifted = lift * phi;
  const Matrix<Scalar> absolute_map = map.cwiseAbs();
  const Vector<Scalar> absolute_source = source.cwiseAbs(), longest = absolute_map * absolute_source,
                       difference = image - lifted;
  const double size = std::pow(static_cast<double>(longest.norm()), P);
  const double dimensions = static_cast<double>(x.size()) * std::sqrt(static_cast<double>(image.size()));
  return {size > 0 ? static_cast<double>(difference.norm()) / size : 0, 8 * P * dimensions * unit_roundoff<Scalar>};
}

/// The lift is a homomorphism: Sym^P(A B) = Sym^P(A) Sym^P(B) and Sym^P(Aᵀ) = Sym^P(A)ᵀ, dense.
///
/// Residual relative to the largest entry of Sym^P(|A|) Sym^P(|B|); bound 8 P d u √D.
template <int P, MatrixExpression A, MatrixExpression B>
[[nodiscard]] Residual homomorphism_law(const A& a, const B& b) {
  using Scalar = scalar_t<A>;
  const auto lift = [](const Matrix<Scalar>& m) { return induced<P>(m).toDenseMatrix(); };
  const Matrix<Scalar> left = a, right = b, absolute_left = left.cwiseAbs(), absolute_right = right.cwiseAbs();
  const Matrix<Scalar> lifted_left = lift(left), product = (induced<P>(left) * induced<P>(right)).toDenseMatrix(),
                       of_product = product - lifted_left * lift(right),
                       of_transpose = induced<P>(left).transpose().toDenseMatrix() - lifted_left.transpose(),
                       size = lift(absolute_left) * lift(absolute_right);
  const double largest = static_cast<double>(size.maxCoeff());
  const double difference =
      std::max(static_cast<double>(of_product.cwiseAbs().maxCoeff()), static_cast<double>(of_transpose.norm()));
  const double dimensions = static_cast<double>(left.cols()) * std::sqrt(static_cast<double>(lifted_left.cols()));
  return {largest > 0 ? difference / largest : 0, 8 * P * dimensions * unit_roundoff<Scalar>};
}

/// Operators compose as their matrices do: (R Q) x = R (Q x), Rᵀ R x = s² x for a conformal map, checked on one vector.
///
/// `scale` is s², 1 for a rotation. Residual relative to ‖x‖ times the sizes of the maps; bound 16 u √d.
template <StructuredOperator Operator, VectorExpression X>
[[nodiscard]] Residual group_law(const Operator& R, const Operator& Q, const X& x, scalar_t<X> scale = 1) {
  using Scalar = scalar_t<X>;
  const auto RQ = R * Q;
  const auto transposed = R.transpose();
  const Vector<Scalar> source = x, composed = RQ * source, inner = Q * source, stepwise = R * inner;
  const Vector<Scalar> image = R * source, back = transposed * image;
  const double size =
      static_cast<double>(stepwise.norm()) + static_cast<double>(scale) * static_cast<double>(source.norm());
  const double difference = static_cast<double>((composed - stepwise).norm() + (back - scale * source).norm());
  return {size > 0 ? difference / size : 0, 16 * unit_roundoff<Scalar> * std::sqrt(static_cast<double>(x.size()))};
}

}  // namespace SYMPOW_NAMESPACE::verify
