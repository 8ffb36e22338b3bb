// The keys that the attention form has loaded, block by block.
#pragma once

#include <numbers>

#include <sympow/attention/engine/memory.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Segments of keys, each seen from its end.
template <class Scalar, FeatureMap F>
class KeyBlocks {
 public:
  /// Of all keys of a call that has these values, whose vectors have d rows: a key a row of panels or, `by_column`, a
  /// column.
  KeyBlocks(AttentionMemory<Scalar>& memory, MatrixView<const Scalar> values, Index d, bool by_column = false)
      : memory_(memory), values_(values), d_(d), by_column_(by_column) {}

  /// Memory for all of them, in blocks of n.
  void reserve(Index n) {
    const Index keys = values_.cols();
    memory_.vectors(keys * d_);
    for (auto* panel : {&memory_.norms, &memory_.weights}) (*panel)(keys);
    for (auto* panel : {&memory_.exponents, &memory_.log_b, &memory_.log_b_low}) (*panel)(keys);
    memory_.scratch(2 * n);
  }
  void clear() {
    memory_.blocks.clear();
    largest_value_ = 0;
  }
  /// Nothing that is kept is seen any more.
  void begin_anew() { largest_value_ = 0; }

  [[nodiscard]] Index size() const { return std::ssize(memory_.blocks); }
  [[nodiscard]] const KeyBlock& operator[](Index n) const { return memory_.blocks[static_cast<std::size_t>(n)]; }
  /// max |v| of those that are kept and seen.
  [[nodiscard]] Scalar largest_value() const { return largest_value_; }

  /// The loaded keys as a block, seen from the next segment on; their decay is counted up to its end.
  void keep(SegmentLoader<Scalar, F>& loader) {
    const Segment own = loader.segment();
    const Keys<Scalar> loaded = loader.keys();
    const Index n = loaded.size();
    double reach = no_weight;
    if (!loader.begins_anew() && size() > 0)
      reach = (*this)[size() - 1].reach + loader.total().high * std::numbers::log2e;
    memory_.blocks.push_back({own, no_weight, loader.total(), loader.begins_anew(), reach});
    if (n == 0) return;
    KeyBlock& block = memory_.blocks.back();
    if (by_column_)
      vectors_of(block) = loaded.vectors;
    else
      RowPanels<Scalar>::pack(n, d_, strided(loaded.vectors).transposed(), vectors_of(block).data());
    auto log_b = part(memory_.log_b, own.begin, n), low = part(memory_.log_b_low, own.begin, n);
    set_log_b_at_end(loaded, loader.rest(), log_b, low);
    part(memory_.norms, own.begin, n) = loaded.norms;
    part(memory_.exponents, own.begin, n) = loaded.exponents;
    block.M = set_weights<degree_of<F>>(part(memory_.weights, own.begin, n), log_b, low, loaded.exponents,
                                        memory_.scratch(2 * n));
    block.reach = std::max(block.M, reach);
    largest_value_ = std::max(largest_value_, loaded.extent.largest);
  }

  /// visit(n, decay from the end of block n to a segment's first token) for the blocks before n = `end` that a segment
  /// sees whose first gate is `first`, the last one first, while it returns true.
  template <class Visit>
  void walk_back(Index end, LogDecay first, const Visit& visit) const {
    for (Index n = end; n-- > 0 && first.high > no_weight;) {
      if (!visit(n, first) || (*this)[n].begins_anew) break;
      first.add((*this)[n].decay);
    }
  }

  /// The keys of a block as rows, unless `by_column`.
  RowPanels<Scalar> rows_of(const KeyBlock& block) {
    return RowPanels<Scalar>(vectors_of(block).data(), keys_in_number(block), d_);
  }
  /// The numbers of a block: d × n `by_column`, else those of `rows_of`.
  MatrixView<Scalar> vectors_of(const KeyBlock& block) {
    const Index n = keys_in_number(block);
    Scalar* const data = n == 0 ? nullptr : memory_.vectors(values_.cols() * d_).data() + block.tokens.begin * d_;
    return {data, by_column_ ? d_ : n, by_column_ ? n : d_};
  }
  Keys<Scalar> keys_in(const KeyBlock& block) {
    const Index first = block.tokens.begin, n = keys_in_number(block);
    return {vectors_of(block),
            values_.middleCols(n == 0 ? 0 : first, n),
            part(memory_.exponents, first, n),
            part(memory_.log_b, first, n),
            part(memory_.log_b_low, first, n),
            part(memory_.norms, first, n),
            part(memory_.norms, first, n),
            part(memory_.weights, first, n),
            block.M,
            {}};
  }

 private:
  [[nodiscard]] Index keys_in_number(const KeyBlock& block) const {
    return std::clamp<Index>(values_.cols() - block.tokens.begin, 0, block.tokens.size);
  }
  template <class Number>
  ColumnView<Number> part(Panel<Number>& panel, Index first, Index n) {
    return n == 0 ? panel(Index(0)) : panel(values_.cols()).segment(first, n);
  }

  AttentionMemory<Scalar>& memory_;
  MatrixView<const Scalar> values_;
  Index d_;
  bool by_column_;
  Scalar largest_value_ = 0;
};

}  // namespace SYMPOW_NAMESPACE::detail
