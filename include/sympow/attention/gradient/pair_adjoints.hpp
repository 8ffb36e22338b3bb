// Scores of rows with keys on the way back.
#pragma once

#include <limits>

#include <sympow/attention/keys.hpp>
#include <sympow/core/integer_power.hpp>

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

/// From logits x, products e_j = v_j·dŷ and the row's inv and last, with D_j = v⁺_j·g = inv e_j + last and s_j = x_j^P
/// w_j, or x_j itself where exponentials are in its place:
///
///     d_j ← ∂s_j/∂x_j D_j  (of the logit)      e_j ← s_j D_j  (of log s)      x_j ← s_j
///
/// Returns Σ_j s_j D_j.
template <FeatureMap F, class Scalar>
double differentiate_scores(Scalar* x, Scalar* e, Scalar* d, const Scalar* w, Scalar inv, Scalar last, Index n) {
  constexpr Index block = 16;
  using Block = Eigen::Array<Scalar, block, 1>;
  const auto some = [&](auto& scores, auto& products, auto& slopes, const auto& weights) {
    using Some = std::remove_cvref_t<decltype(scores)>;
    const Some of_score = inv * products + last;
    if constexpr (F::score == Score::exponential) {
      slopes = scores * of_score;
      products = slopes;
    } else {
      const Some slope = slope_power<degree_of<F>>(scores) * weights;
      scores = scores * slope;
      slopes = Scalar(degree_of<F>) * slope * of_score;
      products = scores * of_score;
    }
  };
  Block sums = Block::Zero();
  Index j = 0;
  for (; j + block <= n; j += block) {
    Block scores = Block::Map(x + j), products = Block::Map(e + j), slopes;
    const Block weights = Block::Map(w + j);
    some(scores, products, slopes, weights);
    sums += products;
    Block::Map(x + j) = scores;
    Block::Map(e + j) = products;
    Block::Map(d + j) = slopes;
  }
  for (Index r = 0; j < n; ++j, ++r) {
    some(x[j], e[j], d[j], w[j]);
    sums[r] += e[j];
  }
  return static_cast<double>(sums.sum());
}

/// The exponent of an exponential score: a logit, times 2^(n + m) of its key and query, and the key's gates.
template <class Scalar>
double exponent_of_score(Scalar logit, const Keys<Scalar>& keys, Index j, const LogDecay& between, double length) {
  const double far = (keys.exponents[j] == no_weight ? 0 : keys.exponents[j]) + (length == no_weight ? 0 : length);
  const double x = far == 0 ? static_cast<double>(logit) : times_power_of_two(static_cast<double>(logit), far);
  return (x + (keys.log_b[j] + between.high)) + (keys.log_b_low[j] + between.low);
}
/// The largest of n of them.
template <class Scalar>
double largest_exponent(const Scalar* x, const Keys<Scalar>& keys, const LogDecay& between, double length, Index n) {
  double largest = no_weight;
  for (Index j = 0; j < n; ++j) largest = std::max(largest, exponent_of_score(x[j], keys, j, between, length));
  return largest;
}
/// x_j ← e^(exponent_j - largest), exactly 0 where that is below all normal numbers.
template <class Scalar>
void weigh_exponentials(Scalar* x, const Keys<Scalar>& keys, const LogDecay& between, double length, double largest,
                        Index n) {
  for (Index j = 0; j < n; ++j) x[j] = static_cast<Scalar>(exponent_of_score(x[j], keys, j, between, length) - largest);
  set_exponential<Scalar>(x, x, n, Scalar(0));
  constexpr Scalar least = 2 * std::numeric_limits<Scalar>::min();  // packets end a little below
  for (Index j = 0; j < n; ++j)
    if (x[j] < least) x[j] = 0;
}

/// flows_t += unit Σ_{j < t ≤ i} c_ij over the pairs of a segment, c_ij at couplings(j, i) for the tokens j that have
/// keys, the first of it; the row of column 0 is token `first`.
template <class Couplings>
void add_pair_flows(const Couplings& couplings, Index first, double unit, double* flows) {
  for (Index i = 0; i < couplings.cols(); ++i) {
    const auto* const of_row = couplings.col(i).data();
    double before = 0;
    for (Index t = 1; t <= first + i; ++t) {
      if (t <= couplings.rows()) before += static_cast<double>(of_row[t - 1]);
      flows[t] += unit * before;
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
