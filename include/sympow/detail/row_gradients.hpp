// What the loss asks of the rows of a segment, and of their scores.
#pragma once

#include <numbers>
#include <vector>

#include <sympow/attention/diagnostics.hpp>
#include <sympow/attention/options.hpp>
#include <sympow/detail/segment.hpp>
#include <sympow/simd/blocks.hpp>
#include <sympow/simd/integer_power.hpp>
#include <sympow/simd/packed_exponential.hpp>

namespace SYMPOW_NAMESPACE::detail {

// ---- Scores of queries with keys on the way back

/// Key exponents E_j = M + shift_j + s_j with M the largest of keys that are not 0: s_j ≤ 0 stays in the weights
/// w_j = f_j 2^{s_j}, and shift_j, 0 unless the key is far lighter than the heaviest, is taken out of all that concerns
/// it. No number of a pair then depends on how light its key is. Exponential scores have M = shift_j = 0.
template <class Scalar>
struct KeyScales {
  static constexpr double most_apart = std::numeric_limits<Scalar>::max_exponent / 3;

  double M = 0, top = log2_zero;  ///< top: the largest exponent of keys that are not 0; of powers also M
  double* shifts = nullptr;       ///< shift_j
  Scalar* weights = nullptr;      ///< w_j, 0 for a key without weight

  template <FeatureMap F>
  void set(const WeightedKeys<Scalar>& keys) {
    std::fill_n(shifts, keys.size, 0.);
    for (Index j = 0; j < keys.size; ++j)
      if (F::score == Score::exponential || norm_of(keys, j) != Scalar(0)) top = std::max(top, keys.exponents[j]);
    if constexpr (F::score == Score::exponential) return;
    const double largest = top == log2_zero ? keys.heaviest : top;
    M = largest == log2_zero ? 0 : largest;
    for (Index j = 0; j < keys.size; ++j) {
      const double below = keys.exponents[j] - M;
      if (below != log2_zero && !(std::abs(below) <= most_apart)) shifts[j] = below;
      weights[j] = keys.fractions[j] * nearest_power_of_two<Scalar>(below - shifts[j]);
    }
  }
};

/// From logits x, or exponential scores in their place, and D = v⁺·g to what the loss gains by them, with s = x^P w:
///
///     slope ← ∂s/∂x D      D ← s D, the coupling      x ← s
struct OfExponentials {};
template <class Scalar, class Function, class X, class W>
[[gnu::always_inline]] inline void differentiate_scores(const Function& power, X& x, X& D, X& slope, const W& w) {
  if constexpr (std::is_same_v<Function, OfExponentials>) {
    D = slope = x * D;
  } else if constexpr (std::is_same_v<Function, FixedPower<1>>) {
    slope = D * w;
    D = x * slope;
    x = x * w;
  } else {
    const X of_score = power.lower()(x) * w;
    x = x * of_score;
    slope = (of_score * D) * static_cast<Scalar>(power.exponent);
    D = x * D;
  }
}
/// f(x ↦ x^P) for the degree P of F, or f of what says that scores are exponential.
template <FeatureMap F, class Function>
void with_scores(int P, const Function& f) {
  if constexpr (F::score == Score::exponential)
    f(OfExponentials{});
  else
    with_power<F>(P, f);
}

/// A row with n keys, from e_j = v_j·dŷ and D_j = factor e_j + last: x ← scores, e ← couplings, d ← slopes.
template <class Scalar, class Function>
void differentiate_scores_of_row(const Function& power, Scalar* x, Scalar* e, Scalar* d, const Scalar* w, Scalar factor,
                                 Scalar last, Index n) {
  for_lanes<Scalar>(n, [&](Index j, auto tag) {
    using X = typename decltype(tag)::type;
    X score = load_as<X>(x + j), D = load_as<X>(e + j) * factor + load_all<X>(last), slope;
    differentiate_scores<Scalar>(power, score, D, slope, load_as<X>(w + j));
    store_at(x + j, score), store_at(e + j, D), store_at(d + j, slope);
  });
}

/// Sums of the couplings of a block of pairs, and what multiplies them there.
template <class Scalar>
struct CouplingSums {
  const Scalar *row_factors, *key_factors;
  double *of_rows, *of_keys;  ///< Σ_j key_factors_j c_ij and Σ_i row_factors_i c_ij are added
  Scalar* scratch;            ///< a number a row
};

/// All pairs of keys j with the rows i in rows_of(j), from logits x(i, j) and e(i, j) = v_j·g_i without `last`: x ←
/// scores, e ← slopes. Both ← 0 for the other rows.
template <class Scalar, class Function, class RowsOf>
void differentiate_block(const Function& power, MatrixView<Scalar> x, MatrixView<Scalar> e, const Scalar* w,
                         const Scalar* last, const CouplingSums<Scalar>& sums, const RowsOf& rows_of) {
  const Index rows = x.rows(), keys = x.cols();
  for (Index first = 0; first < keys; first += short_sum) {
    std::fill_n(sums.scratch, rows, Scalar(0));
    const Index end = std::min(keys, first + short_sum);
    for (Index j = first; j < end; ++j) {
      Scalar *const scores = x.col(j).data(), *const slopes = e.col(j).data();
      const Scalar weight = w[j], factor = sums.key_factors[j];
      const Segment seen = rows_of(j);
      for (Scalar* const column : {scores, slopes})
        std::fill_n(column, seen.begin, Scalar(0)), std::fill(column + seen.end(), column + rows, Scalar(0));
      auto of_key = Lanes<Scalar>::all(0);
      Scalar rest(0);
      for_lanes<Scalar>(seen.size, [&](Index begin, auto tag) {
        using X = typename decltype(tag)::type;
        const Index i = seen.begin + begin;
        X score = load_as<X>(scores + i), coupling = load_as<X>(slopes + i) + load_as<X>(last + i), slope;
        differentiate_scores<Scalar>(power, score, coupling, slope, weight);
        store_at(scores + i, score), store_at(slopes + i, slope);
        store_at(sums.scratch + i, load_as<X>(sums.scratch + i) + coupling * factor);
        add_to(of_key, rest, coupling * load_as<X>(sums.row_factors + i));
      });
      sums.of_keys[j] += static_cast<double>(of_key.sum() + rest);
    }
    for (Index i = 0; i < rows; ++i) sums.of_rows[i] += static_cast<double>(sums.scratch[i]);
  }
}

/// n logits with one key, or of one row, ← exponential scores: log2 of them is log2(e) x + wholes_i + rests_i + whole +
/// rest, in which whole numbers meet before fractions are added.
template <class Scalar>
void set_exponential_scores(Scalar* x, const Scalar* wholes, const Scalar* rests, Index n, double whole, double rest) {
  using Exponentials = PackedExponential<Scalar>;
  constexpr double limit = static_cast<double>(Exponentials::limit);
  const Scalar largest = Exponentials::largest(x, wholes, n);
  if (std::abs(static_cast<double>(largest)) < limit && std::abs(whole) < limit) {
    Exponentials::set(x, wholes, rests, n, static_cast<Scalar>(-whole), static_cast<Scalar>(rest));
    return;
  }
  for (Index i = 0; i < n; ++i) {  // beyond the digits of packets
    const double log2 = static_cast<double>(x[i]) * std::numbers::log2e +
                        (static_cast<double>(wholes[i]) + whole + static_cast<double>(rests[i]) + rest);
    x[i] = static_cast<Scalar>(std::exp2(log2));
    if (x[i] < std::numeric_limits<Scalar>::min()) x[i] = 0;
  }
}

/// Logits of vectors 2^n x are 2^n times those of x; NaN and zeros stay as they are.
template <class Scalar>
void lengthen(Scalar* x, const double* lengths, double length, Index n) {
  const auto number = [](double exponent) { return exponent == log2_zero ? 0 : exponent; };
  for (Index i = 0; i < n; ++i)
    if (const double far = number(lengths[i]) + number(length); far != 0) x[i] = times_power_of_two(x[i], far);
}

// ---- What the loss asks of the rows of a segment

template <class Scalar>
struct RowGradient {
  double of_dY = log2_zero;                        ///< y_i, -∞ where the loss does not ask for the row
  double level = log2_zero, sum = 0, product = 0;  ///< den_i and num_i in units of 2^level
  double noise = 0;                                ///< the largest part of den_i that can be rounding
  double exponent = log2_zero;                     ///< -∞ for a row without gradient
  Scalar factor = 0, last = 0;

  [[nodiscard]] bool has_dY() const { return of_dY != log2_zero; }
  [[nodiscard]] bool has_gradient() const { return exponent != log2_zero; }
  void add(double den, double num) { sum += den, product += num; }
};

template <class Scalar>
struct RowGradientBuffers {
  Panel<Scalar> dY;
  std::vector<RowGradient<Scalar>> rows;
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
    buffers_.rows.assign(static_cast<std::size_t>(n), {});
    if (dY.cols() < n) scaled.setZero();
    Scalar norm;
    for (Index i = 0; i < dY.cols(); ++i)
      (*this)[first + i].of_dY = normalize_column<Scalar>(dY.col(i), scaled.col(first + i), Scalar(1), norm);
  }

  [[nodiscard]] bool divides() const { return kind_ != RowKind::sums; }
  /// dŷ, e × n.
  [[nodiscard]] MatrixView<Scalar> dY() { return buffers_.dY(e_, n_); }
  /// Its gradient is there after `finish`.
  [[nodiscard]] RowGradient<Scalar>& operator[](Index i) { return buffers_.rows[static_cast<std::size_t>(i)]; }

  /// What the forward pass has left of row i: Σ_j s_ij and y_i. A row that is not finite stays none.
  void restore(Index i, const RowSum& saved, ColumnView<const Scalar> y, const LoadedSegment<Scalar, F>& segment) {
    const bool is_finite =
        std::isfinite(saved.sum) && std::isfinite(segment.queries().norms[i]) && (saved.sum != 0 || y.allFinite());
    if (saved.sum == 0 && is_finite) return;
    const auto mean = static_cast<double>(dot_product(y.data(), dY().col(i).data(), y.size()));
    double sum = is_finite ? saved.sum : std::numeric_limits<double>::quiet_NaN();
    const double exponent = is_finite ? saved.exponent : 0;
    if constexpr (is_exponential) {
      int taken = 0;
      if (is_finite) sum = std::frexp(sum, &taken);
      (*this)[i].level = exponent + taken;
    } else {
      (*this)[i].level = exponent - segment.gate_exponents()[i] - length_of(segment, i);
      sum /= static_cast<double>(segment.gate_fractions()[i]);
    }
    (*this)[i].add(sum, mean * sum);
  }
  /// All is added.
  void finish(const LoadedSegment<Scalar, F>& segment) {
    for (Index i = 0; i < n_; ++i)
      if (RowGradient<Scalar>& row = (*this)[i]; row.has_dY() && divides())
        end_mean(row);
      else if (row.has_dY())
        end_sum(row, i, segment);
  }
  /// `power_of_two` times g_i without `last`; 0 where the row has no gradient, whatever dy is.
  void set_gradient(ColumnView<Scalar> g, Index i, Scalar power_of_two) {
    if (!(*this)[i].has_gradient()) return g.setZero(), void();
    set_scaled(g.data(), dY().col(i).data(), power_of_two * (*this)[i].factor, g.size());
  }

 private:
  // P n_i; a zero query stands for itself.
  static double length_of(const LoadedSegment<Scalar, F>& segment, Index i) {
    const double length = segment.queries().lengths[i];
    return length == log2_zero ? 0 : degree_in(segment.feature()) * length;
  }
  void end_mean(RowGradient<Scalar>& row) const {
    constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    const double size = kind_ == RowKind::signed_means ? std::abs(row.sum) : row.sum;
    if (row.level == log2_zero || (size <= tolerance * row.noise && std::isfinite(row.noise))) return;
    int taken = 0, exponent = 0;
    const double inverse = 1 / (std::isfinite(row.sum) ? std::frexp(row.sum, &taken) : row.sum),
                 of_ones = -std::ldexp(row.product, -taken) * inverse * inverse,
                 largest = std::max(std::abs(inverse), std::abs(of_ones));
    if (std::isfinite(largest)) std::frexp(largest, &exponent);
    row.factor = static_cast<Scalar>(std::ldexp(inverse, -exponent));
    row.last = static_cast<Scalar>(std::ldexp(of_ones, -exponent));
    row.exponent = row.of_dY + exponent - taken - (is_exponential ? 0 : row.level);
  }
  void end_sum(RowGradient<Scalar>& row, Index i, const LoadedSegment<Scalar, F>& segment) const {
    constexpr Scalar not_finite = std::numeric_limits<Scalar>::quiet_NaN();  // what is not shows in its row
    if constexpr (is_exponential) {
      if (row.level == log2_zero) return;
      row.factor = std::isnan(row.sum) ? not_finite : Scalar(1);
      row.exponent = row.of_dY + row.level;
    } else {
      row.factor = std::isfinite(segment.queries().norms[i]) ? segment.gate_fractions()[i] : not_finite;
      row.exponent = row.of_dY + segment.gate_exponents()[i] + length_of(segment, i);
    }
  }

  RowGradientBuffers<Scalar>& buffers_;
  RowKind kind_;
  Index e_ = 0, n_ = 0;
};

}  // namespace SYMPOW_NAMESPACE::detail
