// Gradients of the attention form, O(T²).
#pragma once

#include <sympow/attention/gradient/attention_adjoint.hpp>
#include <sympow/attention/gradient/vjp_call.hpp>
#include <sympow/attention/gradient/vjp_mistakes.hpp>
#include <sympow/attention/row_sums.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {

/// Takes a call back that is checked; adds to the gradients.
template <class Normalization, class F, class A, class Scalar>
void run_attention_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                       const VjpResults<Scalar, A>& results, VjpWorkspace<Scalar>& workspace, const Options& options,
                       const KnownRows<Scalar>& known = {}) {
  VjpViews<Scalar, F, A> views(transition, results.transition);
  auto call = vjp_call<Normalization, F>(views, arguments, results, workspace, options);
  call.known = known;
  AttentionVjp<Scalar, F>::run(feature, call);
}

/// Checks a call and takes it back; known(dY) are the rows of its forward pass.
template <class Normalization, class F, class A, class DQ, class DK, class DV, class DY, class Known>
void check_and_run_attention_vjp(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                 const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                 const Eigen::MatrixBase<DY>& dY, Gradients<typename DQ::Scalar, A>& gradients,
                                 VjpWorkspace<typename DQ::Scalar>& workspace, const Options& options,
                                 const Known& known) {
  using Scalar = typename DQ::Scalar;
  if constexpr (check_types<F, A, DQ, DK, DV>() && check_vjp<F, A, Scalar, true>() && check_d_rows<Scalar, DY>()) {
    const ConstBatch<Scalar> queries(Q.derived()), keys(K.derived()), values(V.derived()), d_rows(dY.derived());
    const VjpArguments<Scalar> arguments{queries, keys, values, d_rows};
    check_vjp_call(transition, arguments, options);
    const KnownRows<Scalar> rows = known(arguments.dY);
    const auto results = begin_gradients(gradients, transition, arguments, options, true);
    run_attention_vjp<Normalization>(feature, transition, arguments, results, workspace, options, rows);
  }
}

}  // namespace detail

/// The gradients of `attention`, from dY = ∂loss/∂Y.
///
///     dQ, dK, dV and those of the transition and of the scale, of Σ_i dy_i·y_i
///
/// Shapes: as of `attention`; dY: e × T, as Y. A row without weight has no gradient, and its dy changes nothing. Cost:
/// T² (3 d + 2 e) + O(T²) operations under a causal mask, and those of `attention`, which finds the rows and their
/// sums; O(T (d + e)) memory. Throws as `attention` does, before anything is touched. Source: reverse
/// mode of the definition, the normaliser's part by y_i·dy_i.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
void attention_vjp(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                   const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY,
                   Gradients<typename DQ::Scalar, A>& gradients, VjpWorkspace<typename DQ::Scalar>& workspace,
                   const Options& options = {}) {
  detail::check_and_run_attention_vjp<Normalization>(
      feature, transition, Q, K, V, dY, gradients, workspace, options,
      [](const auto&) { return detail::KnownRows<typename DQ::Scalar>(); });
}

/// The same from the rows that `attention` has left, without its cost: the same bits. Throws `InvalidArgument` for rows
/// that are empty or of another normalisation, scale or mask, `ShapeMismatch` for those of another shape.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
void attention_vjp(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                   const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY,
                   const RowSums<typename DQ::Scalar, F>& rows, Gradients<typename DQ::Scalar, A>& gradients,
                   VjpWorkspace<typename DQ::Scalar>& workspace, const Options& options = {}) {
  detail::check_and_run_attention_vjp<Normalization>(
      feature, transition, Q, K, V, dY, gradients, workspace, options, [&](const auto& d_rows) {
        return detail::RowSumsAccess::checked(rows, detail::row_kind<Normalization, F>(), d_rows, options);
      });
}

/// The same, returning the gradients.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
[[nodiscard]] Gradients<typename DQ::Scalar, A> attention_vjp(
    const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
    const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY, const Options& options = {}) {
  Gradients<typename DQ::Scalar, A> gradients;
  VjpWorkspace<typename DQ::Scalar> workspace;
  attention_vjp<Normalization>(feature, transition, Q, K, V, dY, gradients, workspace, options);
  return gradients;
}

/// The same from the rows that `attention` has left.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
[[nodiscard]] Gradients<typename DQ::Scalar, A> attention_vjp(
    const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
    const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY, const RowSums<typename DQ::Scalar, F>& rows,
    const Options& options = {}) {
  Gradients<typename DQ::Scalar, A> gradients;
  VjpWorkspace<typename DQ::Scalar> workspace;
  attention_vjp<Normalization>(feature, transition, Q, K, V, dY, rows, gradients, workspace, options);
  return gradients;
}

/// What is no call of it, with a sentence why.
template <class Normalization = DefaultNormalization, class F, Transition A, class... Arguments>
  requires(sizeof...(Arguments) > 0 && detail::VjpMistakes<F, A, 4, Arguments...>::any)
auto attention_vjp(const F&, const A&, Arguments&&...) {
  return detail::VjpMistakes<F, A, 4, Arguments...>::explain();
}

}  // namespace SYMPOW_NAMESPACE
