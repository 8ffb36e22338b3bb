// What the loss asks of the rows of a segment, and of their scores.
#pragma once

#include <numbers>

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

  double M = 0;
  double* shifts;   ///< shift_j
  Scalar* weights;  ///< w_j, 0 for a key without weight

  KeyScales(double* shifts_of, Scalar* weights_of) : shifts(shifts_of), weights(weights_of) {}

  template <FeatureMap F>
  void set(const WeightedKeys<Scalar>& keys) {
    M = 0;
    std::fill_n(shifts, keys.size, 0.);
    if constexpr (F::score == Score::exponential) return;
    double largest = log2_zero, of_zeros = log2_zero;
    for (Index j = 0; j < keys.size; ++j) {
      double& level = keys.norms[j] == Scalar(0) ? of_zeros : largest;
      level = std::max(level, keys.exponents[j]);
    }
    if (largest == log2_zero) largest = of_zeros;
    if (largest != log2_zero) M = largest;
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
template <FeatureMap F, class Scalar, class X, class W>
[[gnu::always_inline]] inline void differentiate_scores(X& x, X& D, X& slope, const W& w) {
  constexpr int P = degree_of<F>;
  if constexpr (F::score == Score::exponential) {
    D = slope = X(x * D);
  } else if constexpr (P == 1) {
    slope = w * D;
    D = x * slope;
    x = x * w;
  } else {
    const X of_score = power<P - 1>(x) * w;
    x = x * of_score;
    slope = Scalar(P) * (of_score * D);
    D = x * D;
  }
}

/// A row with n keys, from e_j = v_j·dŷ and D_j = factor e_j + last: x ← scores, e ← couplings, d ← slopes.
template <FeatureMap F, class Scalar>
void differentiate_scores_of_row(Scalar* x, Scalar* e, Scalar* d, const Scalar* w, Scalar factor, Scalar last,
                                 Index n) {
  using Lanes = Eigen::Array<Scalar, 16, 1>;
  Index j = 0;
  for (; j + 16 <= n; j += 16) {
    Lanes score = Lanes::Map(x + j), D = factor * Lanes::Map(e + j) + last, slope;
    differentiate_scores<F, Scalar>(score, D, slope, Lanes(Lanes::Map(w + j)));
    Lanes::Map(x + j) = score;
    Lanes::Map(e + j) = D;
    Lanes::Map(d + j) = slope;
  }
  for (; j < n; ++j) {
    e[j] = factor * e[j] + last;
    differentiate_scores<F, Scalar>(x[j], e[j], d[j], w[j]);
  }
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
template <FeatureMap F, class Scalar, class RowsOf>
void differentiate_block(MatrixView<Scalar> x, MatrixView<Scalar> e, const Scalar* w, const Scalar* last,
                         const CouplingSums<Scalar>& sums, const RowsOf& rows_of) {
  using Lanes = Eigen::Array<Scalar, 16, 1>;
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
      Lanes of_key = Lanes::Zero();
      Index i = seen.begin;
      for (; i + 16 <= seen.end(); i += 16) {
        Lanes score = Lanes::Map(scores + i), coupling = Lanes::Map(slopes + i) + Lanes::Map(last + i), slope;
        differentiate_scores<F, Scalar>(score, coupling, slope, weight);
        Lanes::Map(scores + i) = score;
        Lanes::Map(slopes + i) = slope;
        Lanes::Map(sums.scratch + i) += factor * coupling;
        of_key += coupling * Lanes::Map(sums.row_factors + i);
      }
      for (Index r = 0; i < seen.end(); ++i, ++r) {
        Scalar coupling = slopes[i] + last[i];
        differentiate_scores<F, Scalar>(scores[i], coupling, slopes[i], weight);
        sums.scratch[i] += factor * coupling;
        of_key[r] += coupling * sums.row_factors[i];
      }
      sums.of_keys[j] += static_cast<double>(of_key.sum());
    }
    for (Index i = 0; i < rows; ++i) sums.of_rows[i] += static_cast<double>(sums.scratch[i]);
  }
}

/// Σ_j s_j and Σ_j s_j e_j of a row with n keys, s_j = x_j^P w_j.
struct ScoreTotals {
  double sum = 0, product = 0;
};
template <int P, class Scalar>
ScoreTotals totals_of_scores(const Scalar* x, const Scalar* w, const Scalar* e, Index n) {
  using Lanes = Eigen::Array<Scalar, 16, 1>;
  Lanes sums = Lanes::Zero(), products = Lanes::Zero();
  Index j = 0;
  for (; j + 16 <= n; j += 16) {
    const Lanes scores = power<P>(Lanes(Lanes::Map(x + j))) * Lanes::Map(w + j);
    sums += scores;
    products += scores * Lanes::Map(e + j);
  }
  for (Index r = 0; j < n; ++j, ++r) {
    const Scalar score = power<P>(x[j]) * w[j];
    sums[r] += score;
    products[r] += score * e[j];
  }
  return {static_cast<double>(sums.sum()), static_cast<double>(products.sum())};
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

/// flows_t += Σ_{i ≥ t} of_rows_i + Σ_{j < t} of_keys_j + through: what acts at t multiplies exactly these pairs.
inline void add_flows_beyond(const double* of_rows, const double* of_keys, double through, double* flows, Index n) {
  double from = 0, before = 0;
  for (Index t = n - 1; t >= 0; --t) flows[t] += from += of_rows[t];
  for (Index t = 0; t < n; ++t) {
    flows[t] += before + through;
    before += of_keys[t];
  }
}

// ---- What the loss asks of the rows of a segment

template <class Scalar>
struct RowGradientBuffers {
  Panel<Scalar> dY, factors, last;
  Panel<double> of_dY, exponents, sums, products, levels, noise;
  Panel<double> outside;  ///< see `exponent_outside`

  void reserve(Index e, Index n) {
    dY(e, n);
    for (auto* panel : {&factors, &last}) (*panel)(n);
    for (auto* panel : {&of_dY, &exponents, &sums, &products, &levels, &noise, &outside}) (*panel)(n);
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
  /// The exponent of what row i gives to keys outside the segment, if all rows see them; -∞ if it gives nothing. So it
  /// is for a query of length 0. It is also if an earlier row of the segment gives every such key 2^-negligible_weight
  /// times as much or more. Source: the bound on gradients, which has 2^exponent |factor| of each row.
  [[nodiscard]] double exponent_outside(Index i) { return buffers_.outside(n_)[i]; }
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
    double most = log2_zero;
    for (Index i = 0; i < n_; ++i) {
      buffers_.exponents(n_)[i] = buffers_.outside(n_)[i] = log2_zero;
      buffers_.factors(n_)[i] = buffers_.last(n_)[i] = 0;
      if (!has_dY(i)) continue;
      if (divides())
        end_mean(i);
      else
        end_sum(i, segment);
      if (!is_exponential && segment.queries().lengths[i] == log2_zero) continue;
      if (const Scalar size = std::abs(factor(i)); size > 0 && !is_exponential)
        most = std::max(most, exponent(i) + exponent_above(size));
      if (!(exponent(i) < most + negligible_weight<Scalar, F>)) buffers_.outside(n_)[i] = exponent(i);
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
