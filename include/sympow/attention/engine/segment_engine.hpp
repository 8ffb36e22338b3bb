// Which rows a segment gets: those of a common scale as far as it allows them, else rows of a scale each.
#pragma once

#include <algorithm>

#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/engine/memory.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// What the engines share: segments of tokens, which they take one after the other. They differ in what the rows of a
/// segment see before it, and in what becomes of its keys.
template <class Scalar, FeatureMap F>
class SegmentEngine {
 protected:
  static constexpr int degree = degree_of<F>;

  /// Of a call of `heads` query heads that see the same keys; `embeds` where φ of an embedded score is wanted.
  template <class Call>
  SegmentEngine(const F& feature, const Call& call, Index heads, bool embeds)
      : memory_(call.memory),
        loader_(feature, call.transition, memory_.segment, call.K.rows(), call.options.scale, embeds),
        rows_(call.rows),
        reports_{call.options.diagnostics, call.sums},
        value_rows_(call.V.rows()),
        heads_(heads),
        has_common_scale_(F::score != Score::exponential && rows_ != RowKind::signed_means) {}
  ~SegmentEngine() = default;

  /// Memory for segments of n tokens, and for scores of so many keys at a time.
  void reserve(Index n, Index keys) {
    const Index own = has_common_scale_ ? std::min(n, few_tokens) : n;
    loader_.reserve(n);
    if (has_common_scale_) common_scale_rows().reserve(value_rows_, n, keys);
    own_scale_rows().reserve(value_rows_, own, keys);
  }

  /// Takes the tokens of a segment, by as many segments as their numbers ask for. What cuts a segment is the first
  /// token that does not fit it, so that tokens behind it change no row by more than rounding.
  void take(Segment segment) {
    while (segment.size > 0) {
      Index done = for_heads(segment, &SegmentEngine::take_common);
      if (done == 0) done = for_heads(segment, &SegmentEngine::take_own);
      segment = {segment.begin + done, segment.size - done};
    }
  }

  /// See `SegmentLoader::load_gates`.
  Segment load_gates(Segment segment) {
    segment = loader_.load_gates(segment);
    if (loader_.begins_anew()) begin_anew();
    return segment;
  }
  /// Loads its tokens.
  void load(Segment segment) {
    memory_.frame = frame();
    load_tokens(segment);
  }
  /// As before the last segment was loaded; returns its argument.
  Index undo(Index n) {
    frame() = memory_.frame;
    return n;
  }
  /// Rows of a scale each, without any contribution.
  OwnScaleRows<Scalar, F> fresh_own_scale_rows() {
    auto rows = own_scale_rows();
    rows.reset(value_rows_, loader_.queries(), room_for(std::max(largest_value(), loader_.keys().extent.largest)));
    return rows;
  }
  [[nodiscard]] bool is_last_head() const { return head_ + 1 == heads_; }

  /// Nothing before the loaded gates is seen any more.
  virtual void begin_anew() = 0;
  /// Where queries and keys turn from.
  virtual Frame& frame() = 0;
  virtual void load_tokens(Segment segment) = 0;
  /// Whether a segment has queries; if not, takes its keys.
  virtual bool has_queries(Segment segment) = 0;
  virtual void take_unread(Segment segment) = 0;
  /// max |v| of what the rows see before their segment.
  [[nodiscard]] virtual Scalar largest_value() const = 0;
  /// Tokens of a segment over which nothing decays so much that a common scale ends.
  virtual Index moderate_tokens(Segment) { return loader_.tokens_within(least_log_decay); }
  /// Of what all rows of the loaded segment see before it.
  virtual CommonScale<degree> scale_before() = 0;
  /// Adds what they see; returns false if `complete` adds more.
  virtual bool add(Rows<Scalar>& rows) = 0;
  /// Adds that, writes the rows and takes the keys.
  virtual void complete(Rows<Scalar>& rows) = 0;

  EngineMemory<Scalar>& memory_;
  SegmentLoader<Scalar, F> loader_;
  RowKind rows_;
  Index head_ = 0;  // of the group, whose rows are made

 private:
  /// Tokens that are given rows of a scale each before a common one is tried again; fewer are not worth a segment of
  /// their own.
  static constexpr Index few_tokens = 16;

  CommonScaleRows<Scalar, F> common_scale_rows() { return {memory_.common_scale, rows_, reports_}; }
  OwnScaleRows<Scalar, F> own_scale_rows() { return {memory_.own_scale, rows_, reports_}; }

  // For every head, each as many tokens as those before it could do.
  Index for_heads(Segment segment, Index (SegmentEngine::*take_some)(Segment)) {
    for (head_ = 0; head_ < heads_; ++head_) segment.size = segment.size > 0 ? (this->*take_some)(segment) : 0;
    return segment.size;
  }

  // By rows of a common scale, as many of the first tokens as allow it; returns how many.
  Index take_common(Segment segment) {
    segment = load_gates(segment);
    if (!has_queries(segment)) return take_unread(segment), segment.size;
    if (!has_common_scale_ || room_for(largest_value()) != 0) return 0;
    auto rows = common_scale_rows();
    for (Index n = moderate_tokens(segment), fit = n; n > 0; n = undo(fit)) {
      load({segment.begin, n});
      const Keys<Scalar> own = loader_.keys();
      CommonScale<degree> scale = scale_before();
      fit = std::min(tokens_without_room(own), scale.add_own(own.log_b, own.exponents));
      if (scale.exponent() == no_weight) return undo(0);
      if (fit < own.size()) continue;
      const Queries<Scalar> queries = loader_.queries();
      rows.reset(value_rows_, queries, scale.exponent());
      fit = n;
      if (add(rows)) {
        rows.finish(queries);
        fit = rows.first_too_small(queries);
      }
      if (fit == n) return complete(rows), n;
    }
    return 0;
  }

  // By rows of a scale each; returns how many tokens.
  Index take_own(Segment segment) {
    segment = load_gates(segment);
    if (has_common_scale_) segment.size = std::min(segment.size, few_tokens);
    load(segment);
    auto rows = fresh_own_scale_rows();
    add(rows);
    complete(rows);
    return segment.size;
  }

  RowReports reports_;
  Index value_rows_, heads_;
  bool has_common_scale_;
};

}  // namespace SYMPOW_NAMESPACE::detail
