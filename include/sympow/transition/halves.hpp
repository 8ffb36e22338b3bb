// Transport of a segment by halves, for transitions that act in key space and are not undone by a frame.
#pragma once

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Transport with the queries of each half at its start and its keys at its end: the logits across are then one
/// product. The transition has
///
///     Index middle(Segment s) const;                   where to cut; s.begin if s is a piece that is not cut
///     void transport_piece(Segment, Batch<S> Q, Batch<S> K, Batch<S> logits) const;
///     void pull(Segment, Batch<S> Q) const;            Q ← A_a … A_b Q
///     void push(Segment, Batch<S> K) const;            K ← (A_a … A_b)ᵀ K
///
/// Cost of n tokens: log2 n passes over queries and keys, and the products.
template <class S, class A>
void transport_by_halves(const A& transition, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) {
  if (segment.size == 0) return;
  const Index half = transition.middle(segment) - segment.begin, rest = segment.size - half;
  if (half == 0) return transition.transport_piece(segment, queries, keys, logits);
  const Segment left{segment.begin, half}, right{segment.begin + half, rest};
  const bool wanted = logits.size() != 0;
  transport_by_halves<S>(transition, left, queries.leftCols(half), keys.leftCols(half),
                         wanted ? Batch<S>(logits.topLeftCorner(half, half)) : logits);
  transport_by_halves<S>(transition, right, queries.rightCols(rest), keys.rightCols(rest),
                         wanted ? Batch<S>(logits.bottomRightCorner(rest, rest)) : logits);
  if (wanted) set_product(logits.topRightCorner(half, rest), keys.leftCols(half).transpose(), queries.rightCols(rest));
  transition.template pull<S>(left, queries.rightCols(rest));
  transition.template push<S>(right, keys.leftCols(half));
}

}  // namespace SYMPOW_NAMESPACE::detail
