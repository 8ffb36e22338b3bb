// Scores of pairs from their logits, sixteen at a time.
#pragma once

#include <cmath>

#include <sympow/core/concepts.hpp>
#include <sympow/core/integer_power.hpp>
#include <sympow/core/row_panels.hpp>
#include <sympow/detail/segment.hpp>

namespace SYMPOW_NAMESPACE::detail {

template <class Scalar>
using Lanes = Eigen::Array<Scalar, 16, 1>;

/// Logits of all keys with the queries of rows begin, …, one column a row.
template <class Scalar>
void set_logits(MatrixView<Scalar> logits, const WeightedKeys<Scalar>& keys, const ScaledQueries<Scalar>& queries,
                Index begin) {
  const Index d = queries.direct.rows(), stride = queries.direct.outerStride(), count = logits.cols();
  if (keys.is_packed)
    set_product(logits, RowPanels<Scalar>(keys.vectors.data, keys.size, d), queries.direct.middleCols(begin, count));
  else
    product<Scalar>(false, keys.size, count, d, keys.vectors, {queries.direct.data() + begin * stride, 1, stride},
                    strided(logits));
}

/// logits_j ← logits_j^P w_j, the scores of n pairs; returns their sum, which zeros at the end do not change by a bit.
template <int P, class Scalar>
Scalar weigh_logits(Scalar* logits, const Scalar* weights, Index n) {
  Lanes<Scalar> sums = Lanes<Scalar>::Zero();
  Index j = 0;
  for (; j + 16 <= n; j += 16) {
    const Lanes<Scalar> scores =
        power<P>(Lanes<Scalar>(Lanes<Scalar>::Map(logits + j))) * Lanes<Scalar>::Map(weights + j);
    Lanes<Scalar>::Map(logits + j) = scores;
    sums += scores;
  }
  if (j < n) {
    Lanes<Scalar> rest = Lanes<Scalar>::Zero();
    for (Index r = 0; j < n; ++j, ++r) rest[r] = logits[j] = power<P>(logits[j]) * weights[j];
    sums += rest;
  }
  return sums.sum();
}

/// Σ_j |scores_j|.
template <class Scalar>
double absolute_sum(const Scalar* scores, Index n) {
  double sum = 0;
  for (Index j = 0; j < n; ++j) sum += std::abs(static_cast<double>(scores[j]));
  return sum;
}

}  // namespace SYMPOW_NAMESPACE::detail
