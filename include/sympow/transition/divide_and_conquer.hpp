// Divide-and-conquer to_segment_frame of a segment, for transitions on keys that no frame absorbs.
#pragma once

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Recursive to_segment_frame: with the queries of each half at its start and the keys at its end, the cross logits
/// are one product. The transition provides
///
///     Index split_point(Segment s) const;              where to split; s.begin if s is a leaf
///     void move_leaf(Segment, Batch<S> Q, Batch<S> K, Batch<S> logits) const;
///     void apply_to_queries(Segment, Batch<S> Q) const;            Q ← A_a … A_b Q
///     void apply_to_keys(Segment, Batch<S> K) const;            K ← (A_a … A_b)ᵀ K
///
/// Cost for n tokens: log2 n passes over queries and keys, and the products.
template <class S, class A>
void move_recursively(const A& transition, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) {
  if (segment.size == 0) return;
  const Index left_size = transition.split_point(segment) - segment.begin, right_size = segment.size - left_size;
  if (left_size == 0) return transition.move_leaf(segment, queries, keys, logits);
  const Segment left{segment.begin, left_size}, right{segment.begin + left_size, right_size};
  const bool has_logits = logits.size() != 0;
  move_recursively<S>(transition, left, queries.leftCols(left_size), keys.leftCols(left_size),
                      has_logits ? Batch<S>(logits.topLeftCorner(left_size, left_size)) : logits);
  move_recursively<S>(transition, right, queries.rightCols(right_size), keys.rightCols(right_size),
                      has_logits ? Batch<S>(logits.bottomRightCorner(right_size, right_size)) : logits);
  if (has_logits)
    set_product(logits.topRightCorner(left_size, right_size), keys.leftCols(left_size).transpose(),
                queries.rightCols(right_size));
  transition.template apply_to_queries<S>(left, queries.rightCols(right_size));
  transition.template apply_to_keys<S>(right, keys.leftCols(left_size));
}

}  // namespace SYMPOW_NAMESPACE::detail
