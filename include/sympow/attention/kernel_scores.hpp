// Scores in closed form: κ of logits, in the scale that scores of φ have.
#pragma once

#include <sympow/attention/columns.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Whether scores are made of φ: an embedded score without a closed form.
template <FeatureMap F>
inline constexpr bool scores_need_features = F::score == Score::embedded && !KernelFeatureMap<F>;

/// ‖φ(x)‖ = √κ(‖x‖²).
template <KernelFeatureMap F, class Scalar>
double kernel_length(const F& feature, ColumnView<const Scalar> x) {
  double square = 0;
  for (Index i = 0; i < x.size(); ++i) square += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::sqrt(static_cast<double>(feature.kappa(square)));
}

/// What `embed_scaled` says of φ of the columns of x, without φ: ‖φ(x_t)‖ = 2^exponents[t] norms[t].
template <KernelFeatureMap F, class Scalar>
void set_kernel_lengths(const F& feature, MatrixView<const Scalar> x, ColumnView<double> exponents,
                        ColumnView<Scalar> norms) {
  for (Index t = 0; t < x.cols(); ++t) {
    int exponent = 0;
    const double length = kernel_length<F, Scalar>(feature, x.col(t)), mantissa = std::frexp(length, &exponent);
    norms[t] = static_cast<Scalar>(mantissa);  // what is not finite is itself, and shows in the rows that see it
    exponents[t] = length == 0 ? no_weight : std::isfinite(length) ? exponent : 0;
  }
}

/// logits(j, i) ← κ(logits(j, i)) / 2^{n_j + m_i} for keys and queries of these exponents: at most 1 in size by
/// Cauchy's inequality, as the inner product of their scaled φ. Causal: for j ≤ i. Logits are true ones.
template <KernelFeatureMap F, class Scalar>
void set_kernel_scores(const F& feature, MatrixView<Scalar> logits, ColumnView<const double> of_keys,
                       ColumnView<const double> of_queries, bool causal) {
  using Number = std::common_type_t<Scalar, decltype(feature.kappa(Scalar()))>;
  constexpr Index block = 64;
  const auto inverse = [](double exponent) {
    return exponent == no_weight ? Number(0) : power_of_two<Number>(-exponent);
  };
  Number factors[block];
  for (Index first = 0; first < logits.rows(); first += block) {
    const Index n = std::min(block, logits.rows() - first);
    for (Index j = 0; j < n; ++j) factors[j] = inverse(of_keys[first + j]);
    for (Index i = causal ? first : 0; i < logits.cols(); ++i) {
      const Index seen = causal ? std::min(n, i + 1 - first) : n;
      const Number factor = inverse(of_queries[i]);
      Scalar* const x = &logits(first, i);
      for (Index j = 0; j < seen; ++j) x[j] = static_cast<Scalar>(feature.kappa(x[j]) * factors[j] * factor);
    }
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
