// Scores of rows with keys on the way back.
#pragma once

#include <sympow/core/blocks.hpp>
#include <sympow/core/integer_power.hpp>
#include <sympow/feature/feature_map.hpp>

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

/// From logits x, products e_j = v_j·dŷ and the row's inv and last, with D_j = v⁺_j·g = inv e_j + last:
///
///     d_j ← P x_j^(P-1) w_j D_j  (of x)      e_j ← x_j^P w_j D_j  (of log s)      x_j ← s_j = x_j^P w_j
template <int P, class Scalar>
void differentiate_scores(Scalar* x, Scalar* e, Scalar* d, const Scalar* w, Scalar inv, Scalar last, Index n) {
  constexpr Index block = 16;
  using Block = Eigen::Array<Scalar, block, 1>;
  const auto some = [&](auto& logits, auto& products, auto& slopes, const auto& weights) {
    using Some = std::remove_cvref_t<decltype(logits)>;
    const Some of_score = inv * products + last, slope = slope_power<P>(logits) * weights;
    logits = logits * slope;
    slopes = Scalar(P) * slope * of_score;
    products = logits * of_score;
  };
  Index j = 0;
  for (; j + block <= n; j += block) {
    Block logits = Block::Map(x + j), products = Block::Map(e + j), slopes;
    const Block weights = Block::Map(w + j);
    some(logits, products, slopes, weights);
    Block::Map(x + j) = logits;
    Block::Map(e + j) = products;
    Block::Map(d + j) = slopes;
  }
  for (; j < n; ++j) some(x[j], e[j], d[j], w[j]);
}

/// flows_t += unit Σ_{j < t ≤ i} c_ij over the pairs of a segment, c_ij at couplings(j, i); the row of column 0 is
/// token `first`.
template <class Couplings>
void add_pair_flows(const Couplings& couplings, Index first, double unit, double* flows) {
  for (Index i = 0; i < couplings.cols(); ++i) {
    const auto* const of_row = couplings.col(i).data();
    double before = 0;
    for (Index t = 1; t <= first + i; ++t) flows[t] += unit * (before += static_cast<double>(of_row[t - 1]));
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
