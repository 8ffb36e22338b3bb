// What the rows of a segment see of the tokens before it. Every past has
//
//     void reset()                    a gate of 0: nothing before is seen any more
//     LogGate elapsed()               log gates since the past's time 0, from which a segment counts its own
//     void prepare()                  before rows read it
//     PastLevel level()               of what is in it
//     Frame& frame()                  where queries and keys turn from
//     void read(segment, rows)        rows += what they see of it
//     void take(segment)              the segment's keys become past
//
// and this one is that of the attention form.
#pragma once

#include <vector>

#include <sympow/core/row_panels.hpp>
#include <sympow/detail/segment.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Consecutive keys as they are, seen from their end.
template <class Scalar>
struct KeyBlock {
  Segment tokens;
  WeightedKeys<Scalar> keys;
  LogGate total;
  double reach, level;  ///< the largest weight of its keys and of all before, at its end, and with headroom
};

template <class Scalar>
struct KeyPastBuffers {
  Panel<Scalar> vectors, norms, fractions;
  Panel<double> exponents, lengths;
  std::vector<KeyBlock<Scalar>> blocks;
  Frame frame;
};

/// All keys, block by block. Time 0 is the start of the segment.
template <class Scalar, FeatureMap F>
class KeyPast {
 public:
  /// Of T keys whose vectors have d rows.
  KeyPast(KeyPastBuffers<Scalar>& memory, const F& feature, Index d, Index T)
      : memory_(memory), feature_(feature), d_(d), T_(T) {
    memory.vectors(d * T);
    for (auto* panel : {&memory.norms, &memory.fractions}) (*panel)(T);
    for (auto* panel : {&memory.exponents, &memory.lengths}) (*panel)(T);
    memory.blocks.clear();
    memory.frame.clear();
  }

  void reset() { first_ = size(), largest_value_ = 0; }
  [[nodiscard]] LogGate elapsed() const { return {}; }
  void prepare() {}
  [[nodiscard]] PastLevel<Scalar> level() const {
    if (sees_none()) return {};
    const KeyBlock<Scalar>& last = memory_.blocks.back();
    return {std::ceil(last.reach), std::ceil(last.level), largest_value_};
  }
  Frame& frame() { return memory_.frame; }
  [[nodiscard]] std::size_t size() const { return memory_.blocks.size(); }
  [[nodiscard]] const KeyBlock<Scalar>& operator[](std::size_t n) const { return memory_.blocks[n]; }

  /// From the last block back, with queries pulled through the blocks between.
  template <class Rows>
  void read(LoadedSegment<Scalar, F>& segment, Rows& rows) {
    const ScaledQueries<Scalar> queries = segment.queries();
    LogGate between;
    for (std::size_t n = size(); n-- > first_;) {
      const KeyBlock<Scalar>& block = memory_.blocks[n];
      if (block.reach + between.log2() < rows.horizon()) return;
      between.add(block.total);
      rows.add_keys(feature_, block.keys, between, queries);
      segment.transition().pull(block.tokens, queries.direct);
    }
  }

  void take(const LoadedSegment<Scalar, F>& segment) {
    const Index first = segment.range().begin;
    WeightedKeys<Scalar> keys = segment.keys();
    const Index n = keys.size;
    if (n > 0) {
      Scalar* const vectors = memory_.vectors(d_ * T_).data() + d_ * first;
      RowPanels<Scalar>::pack(n, d_, keys.vectors, vectors);
      keys.vectors = {vectors, 1, n}, keys.is_packed = true;
      keys.exponents = copied(memory_.exponents, first, keys.exponents, n);
      keys.lengths = copied(memory_.lengths, first, keys.lengths, n);
      keys.fractions = copied(memory_.fractions, first, keys.fractions, n);
      keys.given_norms = keys.norms = copied(memory_.norms, first, keys.given_norms, n);
    }
    largest_value_ = std::max(largest_value_, keys.extent.largest);
    const bool sees = !sees_none();
    const double reach = std::max(keys.heaviest, sees ? memory_.blocks.back().reach : no_weight),
                 level = std::max(keys.level(), sees ? memory_.blocks.back().level : no_weight),
                 decay = segment.total().log2();
    memory_.blocks.push_back({segment.range(), keys, segment.total(), reach + decay, level + decay});
  }

 private:
  [[nodiscard]] bool sees_none() const { return first_ == size(); }
  template <class Number>
  const Number* copied(Panel<Number>& to, Index first, const Number* from, Index n) {
    Number* const at = to(T_).data() + first;
    std::copy_n(from, n, at);
    return at;
  }

  KeyPastBuffers<Scalar>& memory_;
  const F& feature_;
  Index d_, T_;
  std::size_t first_ = 0;  // of the blocks that are seen
  Scalar largest_value_ = 0;
};

}  // namespace SYMPOW_NAMESPACE::detail
