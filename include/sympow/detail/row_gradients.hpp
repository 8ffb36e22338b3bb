// What the loss asks of the rows of a segment.
#pragma once

#include <sympow/attention/diagnostics.hpp>
#include <sympow/detail/pair_gradients.hpp>

namespace SYMPOW_NAMESPACE::detail {

template <class Scalar>
struct RowGradientBuffers {
  Panel<Scalar> dY, factors, last;
  Panel<double> of_dY, exponents, sums, products, levels, noise;

  void reserve(Index e, Index n) {
    dY(e, n);
    for (auto* panel : {&factors, &last}) (*panel)(n);
    for (auto* panel : {&of_dY, &exponents, &sums, &products, &levels, &noise}) (*panel)(n);
  }
};

/// Rows i of queries q_i = 2^{n_i} q̂_i, with gates e^{G_i} since time 0, whose scores at time 0 are ŝ_ij = 2^{E_j} f_j
/// (q̂_i·k̂_j)^P, and dy_i = 2^{y_i} dŷ_i:
///
///     den_i = Σ_j ŝ_ij        num_i = Σ_j ŝ_ij v_j·dŷ_i        both in units of 2^{level_i}
///     means   g_i = (dy_i, -dy_i·num_i / den_i) / den_i
///     sums    g_i = (2^{P n_i} e^{G_i} dy_i, 0)
///
/// as g_i = 2^{exponent_i} (factor_i dŷ_i, last_i) with numbers of the type: ŝ_ij v⁺_j·g_i is what the loss gains by
/// log s_ij. Exponential scores count from 2^{level_i} themselves. Source: gradients of a weighted mean, in which the
/// row's length and gate cancel.
template <class Scalar, FeatureMap F>
class RowGradients {
  static constexpr bool is_exponential = F::score == Score::exponential;

 public:
  RowGradients(RowGradientBuffers<Scalar>& buffers, RowKind kind) : buffers_(buffers), kind_(kind) {}

  /// n rows; those from `first` on have the columns of dY, the others no gradient.
  void begin(Index n, Index first, MatrixView<const Scalar> dY) {
    e_ = dY.rows(), n_ = n;
    auto scaled = this->dY();
    auto of_dY = buffers_.of_dY(n_);
    of_dY.setConstant(log2_zero);
    if (dY.cols() < n) scaled.setZero();
    Scalar norm;
    for (Index i = 0; i < dY.cols(); ++i)
      of_dY[first + i] = normalize_column<Scalar>(dY.col(i), scaled.col(first + i), Scalar(1), norm);
    for (auto* panel : {&buffers_.sums, &buffers_.products, &buffers_.noise}) (*panel)(n_).setZero();
    buffers_.levels(n_).setConstant(log2_zero);
  }

  [[nodiscard]] bool divides() const { return kind_ != RowKind::sums; }
  [[nodiscard]] Index size() const { return n_; }
  /// dŷ, e × n.
  [[nodiscard]] MatrixView<Scalar> dY() { return buffers_.dY(e_, n_); }
  /// Whether the loss asks for row i.
  [[nodiscard]] bool has_dY(Index i) { return buffers_.of_dY(n_)[i] != log2_zero; }
  /// Levels, and the largest part of den_i that can be rounding, beside them.
  [[nodiscard]] ColumnView<double> levels() { return buffers_.levels(n_); }
  [[nodiscard]] ColumnView<double> noise() { return buffers_.noise(n_); }
  /// After `finish`: -∞ for a row without gradient.
  [[nodiscard]] double exponent(Index i) { return buffers_.exponents(n_)[i]; }
  [[nodiscard]] bool has_gradient(Index i) { return exponent(i) != log2_zero; }
  [[nodiscard]] Scalar factor(Index i) { return buffers_.factors(n_)[i]; }
  [[nodiscard]] Scalar last(Index i) { return buffers_.last(n_)[i]; }

  /// Adds to den_i and num_i, in units of 2^{level_i}.
  void add(Index i, const ScoreTotals& some) {
    buffers_.sums(n_)[i] += some.sum;
    buffers_.products(n_)[i] += some.product;
  }
  /// What the forward pass has left of row i: Σ_j s_ij and y_i. A row that is not finite stays none.
  void restore(Index i, const RowSum& saved, ColumnView<const Scalar> y, const LoadedSegment<Scalar, F>& segment) {
    const bool is_finite = std::isfinite(saved.sum) && std::isfinite(segment.queries().given_norms[i]) &&
                           (saved.sum != 0 || y.allFinite());
    if (saved.sum == 0 && is_finite) return;
    const auto mean = static_cast<double>(dot_product(y.data(), dY().col(i).data(), y.size()));
    double sum = is_finite ? saved.sum : std::numeric_limits<double>::quiet_NaN();
    const double exponent = is_finite ? saved.exponent : 0;
    if constexpr (is_exponential) {
      int taken = 0;
      if (is_finite) sum = std::frexp(sum, &taken);
      levels()[i] = exponent + taken;
    } else {
      levels()[i] = exponent - segment.gate_exponents()[i] - length_of(segment, i);
      sum /= static_cast<double>(segment.gate_fractions()[i]);
    }
    add(i, {sum, mean * sum});
  }
  /// All is added.
  void finish(const LoadedSegment<Scalar, F>& segment) {
    for (Index i = 0; i < n_; ++i) {
      buffers_.exponents(n_)[i] = log2_zero;
      buffers_.factors(n_)[i] = buffers_.last(n_)[i] = 0;
      if (!has_dY(i)) continue;
      if (divides())
        end_mean(i);
      else
        end_sum(i, segment);
    }
  }
  /// 2^shift g_i without `last`, 0 where the row has no gradient, whatever dy is.
  void set_gradient(ColumnView<Scalar> g, Index i, Scalar power_of_two) {
    if (!has_gradient(i)) return g.setZero(), void();
    set_scaled(g.data(), dY().col(i).data(), power_of_two * factor(i), g.size());
  }

 private:
  // P n_i; a zero query stands for itself.
  static double length_of(const LoadedSegment<Scalar, F>& segment, Index i) {
    const double length = segment.queries().lengths[i];
    return length == log2_zero ? 0 : degree_of<F> * length;
  }
  void end_mean(Index i) {
    constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    const double sum = buffers_.sums(n_)[i], noise = buffers_.noise(n_)[i], size = std::abs(sum);
    if (levels()[i] == log2_zero) return;
    if ((kind_ == RowKind::signed_means ? size : sum) <= tolerance * noise && std::isfinite(noise)) return;
    int taken = 0, exponent = 0;
    const double inverse = 1 / (std::isfinite(sum) ? std::frexp(sum, &taken) : sum),
                 of_ones = -std::ldexp(buffers_.products(n_)[i], -taken) * inverse * inverse,
                 largest = std::max(std::abs(inverse), std::abs(of_ones));
    if (std::isfinite(largest)) std::frexp(largest, &exponent);
    buffers_.factors(n_)[i] = static_cast<Scalar>(std::ldexp(inverse, -exponent));
    buffers_.last(n_)[i] = static_cast<Scalar>(std::ldexp(of_ones, -exponent));
    buffers_.exponents(n_)[i] = buffers_.of_dY(n_)[i] + exponent - taken - (is_exponential ? 0 : levels()[i]);
  }
  void end_sum(Index i, const LoadedSegment<Scalar, F>& segment) {
    if constexpr (is_exponential) {
      if (levels()[i] == log2_zero) return;
      buffers_.factors(n_)[i] = std::isnan(buffers_.sums(n_)[i]) ? std::numeric_limits<Scalar>::quiet_NaN() : Scalar(1);
      buffers_.exponents(n_)[i] = buffers_.of_dY(n_)[i] + levels()[i];
    } else {
      const bool is_finite = std::isfinite(segment.queries().given_norms[i]);  // what is not shows in its row
      buffers_.factors(n_)[i] = is_finite ? segment.gate_fractions()[i] : std::numeric_limits<Scalar>::quiet_NaN();
      buffers_.exponents(n_)[i] = buffers_.of_dY(n_)[i] + segment.gate_exponents()[i] + length_of(segment, i);
    }
  }

  RowGradientBuffers<Scalar>& buffers_;
  RowKind kind_;
  Index e_ = 0, n_ = 0;
};

}  // namespace SYMPOW_NAMESPACE::detail
