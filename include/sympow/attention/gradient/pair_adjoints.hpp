// Scores of rows with keys on the way back.
#pragma once

#include <limits>
#include <numbers>

#include <sympow/attention/keys.hpp>
#include <sympow/core/blocks.hpp>
#include <sympow/core/integer_power.hpp>
#include <sympow/core/product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// x^(P-1), 1 for P = 1 whatever x is.
template <int P, class X>
[[gnu::always_inline]] inline X slope_power(const X& x) {
  if constexpr (P == 1)
    return X(x * 0 + 1);
  else
    return power<P - 1>(x);
}

/// Σ_j s_j and Σ_j s_j e_j, s_j = x_j^P w_j.
struct ScoreSums {
  double sum, product;
};
template <int P, class Scalar>
ScoreSums sums_of_scores(const Scalar* x, const Scalar* w, const Scalar* e, Index n) {
  constexpr Index block = 16;
  using Block = Eigen::Array<Scalar, block, 1>;
  Block sums = Block::Zero(), products = Block::Zero();
  Index j = 0;
  for (; j + block <= n; j += block) {
    const Block scores = power<P>(Block(Block::Map(x + j))) * Block::Map(w + j);
    sums += scores;
    products += scores * Block::Map(e + j);
  }
  for (Index r = 0; j < n; ++j, ++r) {
    const Scalar score = power<P>(x[j]) * w[j];
    sums[r] += score;
    products[r] += score * e[j];
  }
  return {static_cast<double>(sums.sum()), static_cast<double>(products.sum())};
}

/// From logits x, or exponentials in their place, to what the loss gains by them, with D = v⁺·g and s = x^P w:
///
///     d ← ∂s/∂x D  (of the logit)      D ← s D  (the coupling, of log s)      x ← s
template <FeatureMap F, class Scalar, class X, class W>
[[gnu::always_inline]] inline void differentiate_some(X& x, X& D, X& d, const W& w) {
  if constexpr (F::score == Score::exponential) {
    D = d = X(x * D);
  } else {
    const X slope = slope_power<degree_of<F>>(x) * w;
    x = x * slope;
    d = Scalar(degree_of<F>) * slope * D;
    D = x * D;
  }
}
/// Of a row with n keys, from e_j = v_j·dŷ and its inv and last; e ← the couplings.
template <FeatureMap F, class Scalar>
void differentiate_row(Scalar* x, Scalar* e, Scalar* d, const Scalar* w, Scalar inv, Scalar last, Index n) {
  constexpr Index block = 16;
  using Block = Eigen::Array<Scalar, block, 1>;
  Index j = 0;
  for (; j + block <= n; j += block) {
    Block scores = Block::Map(x + j), some = inv * Block::Map(e + j) + last, slopes;
    const Block weights = Block::Map(w + j);
    differentiate_some<F, Scalar>(scores, some, slopes, weights);
    Block::Map(x + j) = scores;
    Block::Map(e + j) = some;
    Block::Map(d + j) = slopes;
  }
  for (; j < n; ++j) {
    e[j] = inv * e[j] + last;
    differentiate_some<F, Scalar>(x[j], e[j], d[j], w[j]);
  }
}
/// Of all pairs of rows i with keys j, from e(i, j) = v_j·g_i without `last`; e ← d. Couplings go to of_rows and
/// of_keys, times 2^R; returns their sum without it. `sums` is scratch of a row each.
template <FeatureMap F, class Scalar>
double differentiate_pairs(MatrixView<Scalar> x, MatrixView<Scalar> e, const Scalar* w, const Scalar* last, double R,
                           double* of_rows, double* of_keys, Scalar* sums) {
  constexpr Index block = 16;
  using Block = Eigen::Array<Scalar, block, 1>;
  const Index rows = x.rows(), keys = x.cols(), whole = rows / block * block;
  double all = 0;
  for (Index first = 0; first < keys; first += short_sum) {
    std::fill_n(sums, rows, Scalar(0));
    for (Index j = first; j < std::min(keys, first + short_sum); ++j) {
      Scalar *const scores = x.col(j).data(), *const products = e.col(j).data();
      const Scalar weight = w[j];
      Block of_key = Block::Zero();
      Index i = 0;
      for (; i < whole; i += block) {
        Block some = Block::Map(scores + i), coupling = Block::Map(products + i) + Block::Map(last + i), slope;
        differentiate_some<F, Scalar>(some, coupling, slope, weight);
        Block::Map(scores + i) = some;
        Block::Map(products + i) = slope;
        Block::Map(sums + i) += coupling;
        of_key += coupling;
      }
      for (Index r = 0; i < rows; ++i, ++r) {
        Scalar coupling = products[i] + last[i];
        differentiate_some<F, Scalar>(scores[i], coupling, products[i], weight);
        sums[i] += coupling;
        of_key[r] += coupling;
      }
      const auto sum = static_cast<double>(of_key.sum());
      of_keys[j] += times_power_of_two(sum, R);
      all += sum;
    }
    for (Index i = 0; i < rows; ++i) of_rows[i] += times_power_of_two(static_cast<double>(sums[i]), R);
  }
  return all;
}

/// From logits of many rows with a key, or of many keys with a row, to exponential scores beside 2^E of each row:
///
///     x_n ← exp(2^{lengths_n + length} x_n + highs_n + lows_n + own - E_n log 2)
///
/// Exactly 0 where that is below all normal numbers, and where E_n is no_weight. Lengths of what is 0 count as 0.
/// Exponents are added up in double.
template <class Scalar, class Lengths, class Highs, class Lows, class References>
void weigh_exponentials(Scalar* x, Index size, const Lengths& lengths, double length, const Highs& highs,
                        const Lows& lows, const LogDecay& own, const References& E) {
  const double own_length = length == no_weight ? 0 : length;
  for_blocks(size, [&](Index first, auto count) {
    using Exponents = Eigen::Array<double, block_size<decltype(count)>, 1, 0, 16, 1>;
    const auto some = [&](const auto& list) { return list.segment(first, count).array(); };
    auto logits = ColumnView<Scalar>(x, size).segment(first, count).array();
    Exponents exponents = logits.template cast<double>();
    const Exponents far = (some(lengths) == no_weight).select(own_length, some(lengths) + own_length);
    if ((far != 0).any())
      for (Index i = 0; i < far.size(); ++i) exponents[i] = times_power_of_two(exponents[i], far[i]);
    exponents = ((exponents + (some(highs) + own.high)) + (some(lows) + own.low)) - some(E) * std::numbers::ln2;
    logits = (some(E) == no_weight).select(no_weight, exponents).template cast<Scalar>();
  });
  set_exponential<Scalar>(x, x, size, Scalar(0));
  constexpr Scalar least = 2 * std::numeric_limits<Scalar>::min();  // packets end a little below
  for (Index n = 0; n < size; ++n) x[n] = x[n] < least ? Scalar(0) : x[n];
}

/// flows_t += Σ_{j < t ≤ i} c_ij over the pairs of a segment, c_ij at couplings(j, i) for the tokens j that have keys,
/// the first of it; the row of column 0 is token `first`.
template <class Couplings>
void add_pair_flows(const Couplings& couplings, Index first, double* flows) {
  for (Index i = 0; i < couplings.cols(); ++i) {
    const auto* const of_row = couplings.col(i).data();
    double before = 0;
    for (Index t = 1; t <= first + i; ++t) {
      if (t <= couplings.rows()) before += static_cast<double>(of_row[t - 1]);
      flows[t] += before;
    }
  }
}

/// flows_t += Σ_{i ≥ t} of_rows_i + Σ_{j < t} of_keys_j + through: what rows read of earlier keys, what keys give to
/// later rows, and what passes the segment.
inline void add_outer_flows(const double* of_rows, const double* of_keys, double through, double* flows, Index n) {
  double from = 0, before = 0;
  for (Index t = n - 1; t >= 0; --t) flows[t] += from += of_rows[t];
  for (Index t = 0; t < n; ++t) {
    flows[t] += before + through;
    before += of_keys[t];
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
