// The laws of gradients: they are the transposes of derivatives, in every form, however a sequence is split.
#pragma once

#include <limits>
#include <string>

#include <sympow/verify/gradient_direction.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Gradients are the transpose of the derivative J: ⟨J δ, dY⟩ = ⟨δ, Jᵀ dY⟩.
///
/// First the functions that a feature map and a transition bring for gradients, by themselves: `feature_vjp_residual`
/// at the columns of Q and K, `transition_vjp_residual`. Then the whole call, along one direction δ of each of Q, K, V,
/// the scale and the transition's parameters: J δ by central differences of the definition, Jᵀ dY by `attention_vjp`
/// and, where there are states, `chunked_vjp`. In units of the gradient row rule along δ and of what the differences
/// may be off; bound 1. The residual's form is a function, such as "embed_vjp", or "chunked_vjp, the transition".
/// Shapes as in `attention_vjp`, T some tens. Cost: 30 definitions and a `gradient_bounds`, O(T³). Throws as
/// `attention_vjp`.
template <class Normalization = DefaultNormalization, FeatureMap F, class Moving, class DQ, class DK, class DV,
          class DdY>
[[nodiscard]] Residual adjoint_law(const F& feature, const Moving& moving, const Eigen::MatrixBase<DQ>& Q,
                                   const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                   const Eigen::MatrixBase<DdY>& dY, const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  const detail::GradientDirection<Normalization, typename DQ::Scalar, F, Moving> x(feature, moving, Q, K, V, dY,
                                                                                   options);
  const Index few = std::min<Index>({Q.cols(), K.cols(), 8});
  Matrix<double> tokens(Q.rows(), 2 * few);
  tokens << x.Q.leftCols(few).template cast<double>(), x.K.leftCols(few).template cast<double>();
  Residual functions =
      worse(feature_vjp_residual(feature, tokens),
            transition_vjp_residual<Scalar>(x.transition(), x.all().size, Q.rows(), F::score == Score::embedded));
  if (!functions.holds()) return functions;
  const auto differences = x.differences();
  Residual found{0, 1};
  const auto add = [&](const std::string& form, const auto& gradients) {
    const detail::GradientParts parts = x.parts(gradients);
    for (std::size_t n = 0; n < parts.size(); ++n)
      found = worse(found, {detail::ratio_of(parts[n], differences.slope[n], x.bounds()[n] + differences.error[n]), 1,
                            form + ", " + detail::gradient_names[n]});
  };
  add("attention_vjp", x.by_attention());
  if constexpr (x.has_chunks())
    if (options.mask == causal()) add("chunked_vjp", x.by_chunks());
  return found;
}

/// attention_vjp = chunked_vjp, by the gradient row rule, parameters of the transition along their δ; bound 1. What has
/// the attention form only agrees with itself. Cost: both, and a `gradient_bounds`, O(T³).
template <class Normalization = DefaultNormalization, FeatureMap F, class Moving, class DQ, class DK, class DV,
          class DdY>
[[nodiscard]] Residual gradient_forms_law(const F& feature, const Moving& moving, const Eigen::MatrixBase<DQ>& Q,
                                          const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                          const Eigen::MatrixBase<DdY>& dY, const Options& options = {}) {
  const detail::GradientDirection<Normalization, typename DQ::Scalar, F, Moving> x(feature, moving, Q, K, V, dY,
                                                                                   options);
  if constexpr (x.has_chunks()) {
    if (options.mask == causal()) {
      const auto a = x.by_attention(), b = x.by_chunks();
      return x.apart("chunked_vjp", b, moving.along(x.all(), b.transition), a, moving.along(x.all(), a.transition));
    }
  }
  return {0, 1};
}

/// Two calls with the gradient of the state between them are one call.
///
/// Tokens before `split` and the rest go through `chunked_vjp`, the last first, with a `StateGradient` that is handed
/// on. What is compared: all gradients, with those of one call, by the gradient row rule, parameters of the transition
/// along their δ; bound 1. Throws `InvalidArgument` for a split beyond the tokens.
template <class Normalization = DefaultNormalization, FiniteFeatureMap F, class Moving, class DQ, class DK, class DV,
          class DdY>
[[nodiscard]] Residual gradient_splitting_law(const F& feature, const Moving& moving, const Eigen::MatrixBase<DQ>& Q,
                                              const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                              const Eigen::MatrixBase<DdY>& dY, Index split,
                                              const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  const detail::GradientDirection<Normalization, typename DQ::Scalar, F, Moving> x(feature, moving, Q, K, V, dY,
                                                                                   options);
  const Index T = x.all().size, d = Q.rows(), e = V.rows();
  detail::check_splits({split}, T);
  const auto whole = x.by_chunks();
  State<Scalar, F> first(feature, d, e), between = first;
  StateGradient<Scalar, F> adjoint(feature, d, e);
  Workspace<Scalar> workspace;
  const Segment parts[2] = {{0, split}, {split, T - split}};
  absorb(feature, moving.at(parts[0], 0.), x.K.leftCols(split), x.V.leftCols(split), between, workspace, options);
  auto joined = whole;
  joined.scale = 0;
  double along = 0;
  for (const int part : {1, 0}) {
    const Segment s = parts[part];
    const auto of = [&](const Matrix<Scalar>& X) { return X.middleCols(s.begin, s.size); };
    const auto g = chunked_vjp<Normalization>(feature, moving.at(s, 0.),
                                              {.Q = of(x.Q),
                                               .K = of(x.K),
                                               .V = of(x.V),
                                               .dY = of(x.dY),
                                               .state = part == 0 ? first : between,
                                               .d_state = adjoint,
                                               .options = options});
    joined.Q.middleCols(s.begin, s.size) = g.Q;
    joined.K.middleCols(s.begin, s.size) = g.K;
    joined.V.middleCols(s.begin, s.size) = g.V;
    joined.scale += g.scale;
    along += moving.along(s, g.transition);
  }
  return x.apart("two calls", joined, along, whole, moving.along(x.all(), whole.transition));
}

/// What the loss says of a row that says nothing changes no bit.
///
/// The rows of Q that a form flags have dy_i times -3, and then NaN; the gradients are those without it bit for bit,
/// the parameters' along δ, and dq_i = 0. The residual is the number of entries that are not so, the bound 0. Where no
/// row is flagged nothing is compared: give queries of length 0.
template <class Normalization = DefaultNormalization, FeatureMap F, class Moving, class DQ, class DK, class DV,
          class DdY>
[[nodiscard]] Residual flagged_rows_law(const F& feature, const Moving& moving, const Eigen::MatrixBase<DQ>& Q,
                                        const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                        const Eigen::MatrixBase<DdY>& dY, const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  const Matrix<Scalar> q = Q, k = K, v = V, dy = dY;
  const Segment all{0, std::max(k.cols(), q.cols() + options.mask.offset)};
  const auto transition = moving.at(all, 0.);
  Residual found{0, 0};
  const auto compare = [&](const std::string& form, const auto& rows, const auto& gradients) {
    Diagnostics said;
    Options asking = options;
    asking.diagnostics = &said;
    static_cast<void>(rows(asking));
    const auto scalar = [](double x) { return Matrix<double>(Matrix<double>::Constant(1, 1, x)); };
    const auto a = gradients(dy);
    for (const Scalar factor : {Scalar(-3), std::numeric_limits<Scalar>::quiet_NaN()}) {
      Matrix<Scalar> other = dy;
      double kept = 0;
      for (Index i = 0; i < q.cols(); ++i)
        if (said.is_degenerate[i])
          other.col(i) *= factor, kept += static_cast<double>((a.Q.col(i).array() != 0).count());
      const auto b = gradients(other);
      found = worse(found, {kept, 0, form + ", dQ of flagged rows"});
      found = worse(found, detail::differing_bits(form + ", dQ", a.Q, b.Q, 0));
      found = worse(found, detail::differing_bits(form + ", dK", a.K, b.K, 0));
      found = worse(found, detail::differing_bits(form + ", dV", a.V, b.V, 0));
      found = worse(found, detail::differing_bits(form + ", d scale", scalar(a.scale), scalar(b.scale), 0));
      found = worse(found, detail::differing_bits(form + ", the transition", scalar(moving.along(all, a.transition)),
                                                  scalar(moving.along(all, b.transition)), 0));
    }
  };
  compare(
      "attention_vjp",
      [&](const Options& asking) { return attention<Normalization>(feature, transition, q, k, v, asking); },
      [&](const Matrix<Scalar>& d_rows) {
        return attention_vjp<Normalization>(feature, transition,
                                            {.Q = q, .K = k, .V = v, .dY = d_rows, .options = options});
      });
  if constexpr (detail::has_chunked_vjp<F, std::remove_cvref_t<decltype(transition)>>) {
    if (options.mask != causal()) return found;
    compare(
        "chunked_vjp",
        [&](const Options& asking) { return chunked<Normalization>(feature, transition, q, k, v, asking); },
        [&](const Matrix<Scalar>& d_rows) {
          return chunked_vjp<Normalization>(feature, transition,
                                            {.Q = q, .K = k, .V = v, .dY = d_rows, .options = options});
        });
  }
  return found;
}

}  // namespace SYMPOW_NAMESPACE::verify
