// The laws of the forms: all of them are the definition, wherever the positions begin.
#pragma once

#include <algorithm>
#include <limits>

#include <sympow/attention/forms.hpp>
#include <sympow/verify/direct.hpp>
#include <sympow/verify/proposition.hpp>
#include <sympow/verify/transition_functions.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// How far the forms are apart, each in units of the row rule; 0 for a form that there is not. And the functions that
/// move keys and queries, in units of their own.
struct FormResiduals {
  Residual attention{0, 1},  ///< the attention form from the definition
      recurrent{0, 1},       ///< the recurrence, with a tail and without, from the attention form
      chunked{0, 1},         ///< the chunked form from the attention form
      transition{0, 1};      ///< `transition_residual`: what forms of more tokens would call

  /// The largest of them, and that of the transition's functions if one of these is wrong: then it is the cause.
  [[nodiscard]] Residual worst() const {
    const Residual of_forms = worse(worse(attention, recurrent), chunked);
    return transition.holds() ? worse(of_forms, transition) : transition;
  }
};

namespace detail {

/// `found` with the name of the form that it was found in.
inline Residual named(const char* form, Residual found) {
  found.form = form;
  return found;
}

/// Tokens of a chunk of a call that leaves a state.
template <FeatureMap F, Transition A>
Index tokens_of_chunk(const F& feature, const A& transition, Index T, Index d, Index e, const Options& options) {
  if (options.chunk > 0) return std::clamp<Index>(T, 1, options.chunk);
  ProblemShape shape = head_shape(feature, transition, T, d, e);
  shape.is_full = options.mask.is_full;
  shape.keeps_state = true;
  return cheapest_chunk(shape, options.costs);
}

}  // namespace detail

/// Every form of a feature map and a transition against rows that were evaluated by the definition.
///
/// `rows` is what `direct_attention` gives for these arguments. Shapes as in `attention`. A pair that has the attention
/// form only, and a mask that shifts queries, which leaves no other form either, is compared in that form. Cost: that
/// of the forms.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class Real, class DQ, class DK,
          class DV>
[[nodiscard]] FormResiduals form_residuals(const DirectRows<Real>& rows, const F& feature, const A& transition,
                                           const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                           const Eigen::MatrixBase<DV>& V, const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  constexpr double never = std::numeric_limits<double>::infinity(), every_token = 1;
  const Matrix<Scalar> q = Q, k = K, v = V, Y = attention<Normalization>(feature, transition, q, k, v, options);
  const auto apart = [&](const char* form, const auto& a, const auto& b, double tokens_per_update) {
    return detail::named(form, worst_row<Normalization, F>(rows, a, b, unit_roundoff<Scalar>, tokens_per_update));
  };
  FormResiduals found;
  found.attention = apart("attention", Y, rows.Y, A::key_action != KeyAction::none ? every_token : never);
  found.transition = transition_residual<Scalar>(transition, K.cols(), Q.rows());
  if constexpr (has_state_forms<F, A>) {
    if (!options.mask.goes_with_states()) return found;  // a state has no place for it
    const Index d = Q.rows(), e = V.rows();
    State<Scalar, F> literal(feature, d, e, 0), tailed(feature, d, e), chunks = tailed;
    const auto by_token = [&](auto& state) {
      return recurrent<Normalization>(feature, transition, q, k, v, state, options);
    };
    found.recurrent = worse(apart("recurrent, tail 0", by_token(literal), Y, every_token),
                            apart("recurrent", by_token(tailed), Y, every_token));
    found.chunked = apart(
        "chunked", chunked<Normalization>(feature, transition, q, k, v, chunks, options), Y,
        static_cast<double>(detail::tokens_of_chunk(feature, transition, std::max(Q.cols(), K.cols()), d, e, options)));
  }
  return found;
}

/// attention = recurrent = chunked = the definition.
///
/// The largest of `form_residuals`, or the function of the transition that is wrong, such as "apply_to_queries";
/// bound 1. Cost: that of `direct_attention` and of the forms.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Residual three_forms_law(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                       const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                       const Options& options = {}) {
  const auto rows = direct_attention<Normalization>(feature, transition, Q, K, V, options);
  return form_residuals<Normalization>(rows, feature, transition, Q, K, V, options).worst();
}

/// Rows see differences of positions only.
///
///     rows(A_1, A_2, …, A_T) = rows(A'_1, A'_2, …, A'_T)   where A' is A with all positions shifted
///
/// `shifted` is the transition of the same tokens at positions that are all shifted by the same:
/// `structured_rotary(family, r)` with a constant added to every column of r, `rotary(θ, β)` with something added to
/// β_1, which every later angle contains. What is compared: all rows of every form under `shifted` with the rows of the
/// definition under `transition`, none of which is moved. For transitions that turn keys or leave them alone. A feature
/// map whose score is φ(q)·φ(k) obeys it only if turning both sides changes nothing. Residual and bound as in
/// `three_forms_law`.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, Transition B, class DQ, class DK,
          class DV>
  requires(A::key_action == B::key_action && (A::key_action == KeyAction::none || A::key_action == KeyAction::turn))
[[nodiscard]] Residual relative_position_law(const F& feature, const A& transition, const B& shifted,
                                             const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                             const Eigen::MatrixBase<DV>& V, const Options& options = {}) {
  const auto rows = direct_attention<Normalization>(feature, transition, Q, K, V, options);
  return form_residuals<Normalization>(rows, feature, shifted, Q, K, V, options).worst();
}

}  // namespace SYMPOW_NAMESPACE::verify
