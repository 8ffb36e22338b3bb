// Queries against keys, block by block: the engine of the attention form.
#pragma once

#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/engine/dispatch.hpp>
#include <sympow/attention/engine/memory.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// One call of the attention form, in the terms of its engine: everything is checked.
template <class Scalar>
struct AttentionCall {
  const TransitionView<Scalar>& transition;
  RowKind rows;
  Options options;
  MatrixView<const Scalar> Q, K, V;
  MatrixView<Scalar> Y;
  EngineMemory<Scalar>& memory;
};

/// Attention by segments of queries against blocks of keys. The rows of a segment begin with their own keys and walk back, pulled through the
/// blocks between; then their keys are a block.
template <class Scalar, FeatureMap F>
class AttentionEngine {
  static constexpr Index most = 96;  // tokens of a segment
  static constexpr int degree = degree_of<F>;

 public:
  AttentionEngine(const F& feature, AttentionCall<Scalar>& call)
      : call_(call),
        memory_(call.memory),
        mask_(call.options.mask),
        loader_(feature, call.transition, memory_.segment, call.K.rows(), call.options.scale),
        d_(loader_.vector_rows()),
        T_(tokens_of(call.Q, call.K, mask_)),
        has_common_scale_(F::score != Score::exponential && call.rows != RowKind::signed_means) {}

  void run() {
    reserve();
    const Index before = std::clamp<Index>(-mask_.offset, 0, call_.Y.cols());  // queries that stand before token 0
    call_.Y.leftCols(before).setZero();
    if (call_.options.diagnostics != nullptr) call_.options.diagnostics->leftCols(before).setZero();
    memory_.attention.blocks.clear();
    memory_.attention.frame.clear();
    if (mask_.is_full) {
      for (Index t = 0; t < T_; t += most) take_keys(segment_at(t));
      memory_.attention.frame.clear();
      takes_ = false;
    }
    for (Index t = 0; t < T_; t += most) dispatch(*this, segment_at(t));
  }

  Index run_common(Segment segment) {
    segment = loader_.load_gates(segment);
    begin_anew();
    if (queries_of(segment).size == 0) return take_keys(segment);
    if (!has_common_scale_ || room_for(largest_value_) != 0) return 0;
    Index n = loader_.tokens_within(least_log_decay);
    CommonScaleRows<Scalar, F> rows(memory_.common_scale, call_.rows, call_.options.diagnostics);
    while (n > 0) {
      load({segment.begin, n});
      CommonScale<degree> scale;
      walk_back([&](const KeyBlock& keys, const LogDecay& between) {
        scale.add(std::ceil(keys.M + between.high * std::numbers::log2e));
      });
      const Keys<Scalar> own = loader_.keys();
      const Index fit = std::min(tokens_without_room(own), scale.add_own(own.log_b, own.exponents));
      if (scale.exponent() == no_weight) return undo(0);
      if (fit < own.size()) {
        n = undo(fit);
        continue;
      }
      rows.reset(call_.V.rows(), loader_.queries(), scale.exponent());
      add_all(rows, own);
      if (const Index fine = rows.first_too_small(loader_.queries()); fine < n) {
        n = undo(fine);
        continue;
      }
      write(rows);
      break;
    }
    return n;
  }

  Index run_own(Segment segment) {
    segment = loader_.load_gates(segment);
    if (has_common_scale_) segment.size = std::min(segment.size, few_tokens);
    load(segment);
    OwnScaleRows<Scalar, F> rows(memory_.own_scale, call_.rows, call_.options.diagnostics);
    const Keys<Scalar> own = loader_.keys();
    rows.reset(call_.V.rows(), loader_.queries(), room_for(std::max(largest_value_, own.extent.largest)));
    add_all(rows, own);
    write(rows);
    return segment.size;
  }

 private:
  void reserve() {
    const Index n = std::min(most, T_), own = has_common_scale_ ? std::min(n, few_tokens) : n, e = call_.V.rows(),
                keys = call_.K.cols();
    loader_.reserve(n);
    if (has_common_scale_) CommonScaleRows<Scalar, F>(memory_.common_scale, call_.rows, nullptr).reserve(e, n, n);
    OwnScaleRows<Scalar, F>(memory_.own_scale, call_.rows, nullptr).reserve(e, own, n);
    AttentionMemory<Scalar>& of_keys = memory_.attention;
    of_keys.vectors(keys * d_);
    for (auto* panel : {&of_keys.norms, &of_keys.weights}) (*panel)(keys);
    for (auto* panel : {&of_keys.exponents, &of_keys.log_b, &of_keys.log_b_low}) (*panel)(keys);
    of_keys.logits(n, n);
  }

  // Behind a gate of 0 no value is left.
  void begin_anew() {
    if (loader_.begins_anew()) largest_value_ = 0;
  }

  [[nodiscard]] Segment segment_at(Index begin) const { return {begin, std::min(most, T_ - begin)}; }
  // The tokens of a segment that have keys, and those that have queries.
  [[nodiscard]] Segment keys_of(Segment own) const {
    return {own.begin, takes_ ? std::clamp<Index>(call_.K.cols() - own.begin, 0, own.size) : 0};
  }
  [[nodiscard]] Segment queries_of(Segment own) const {
    const Index begin = std::clamp(mask_.offset, own.begin, own.end());
    return {begin, std::clamp(mask_.offset + call_.Q.cols(), begin, own.end()) - begin};
  }

  void load(Segment own) { load(own, queries_of(own)); }
  void load(Segment own, Segment queries) {
    const Segment keys = keys_of(own);
    memory_.frame = memory_.attention.frame;
    loader_.load(own.size, memory_.attention.frame, queries,
                 call_.Q.middleCols(queries.size == 0 ? 0 : queries.begin - mask_.offset, queries.size), keys,
                 columns_of(call_.K, keys), columns_of(call_.V, keys));
  }
  static MatrixView<const Scalar> columns_of(MatrixView<const Scalar> x, Segment tokens) {
    return x.middleCols(tokens.size == 0 ? 0 : tokens.begin, tokens.size);
  }
  // As before the last segment was loaded; returns its argument.
  Index undo(Index n) {
    memory_.attention.frame = memory_.frame;
    return n;
  }

  // All keys that the rows see, those of their own segment first.
  void add_all(Rows<Scalar>& rows, const Keys<Scalar>& own) {
    const Queries<Scalar> queries = loader_.queries();
    if (own.size() > 0) rows.add_own(loader_.logits(), own, queries);
    walk_back([&](const KeyBlock& block, const LogDecay& between) {
      if (const Keys<Scalar> keys = keys_in(block); rows.sees(keys, between)) {
        auto logits = memory_.attention.logits(keys.size(), queries.size());
        set_product(logits, vectors_of(block), queries.vectors);
        loader_.set_scores(logits, keys.exponents, queries.exponents);
        rows.add_earlier(logits, keys, queries, between);
      }
      call_.transition.pull(block.tokens, queries.vectors);
    });
    rows.finish(queries);
  }
  // visit(block, decay from its end to the segment's first token) for the blocks that it sees, the last one first.
  template <class Visit>
  void walk_back(const Visit& visit) {
    const auto& blocks = memory_.attention.blocks;
    LogDecay between = loader_.first();
    if (loader_.begins_anew()) return;
    for (std::size_t n = blocks.size(); n-- > 0 && between.high > no_weight;) {
      visit(blocks[n], between);
      if (blocks[n].begins_anew) break;
      between.add(blocks[n].decay);
    }
  }

  void write(Rows<Scalar>& rows) {
    const Segment own = loader_.segment(), present = queries_of(own);
    const Queries<Scalar> queries = loader_.queries();
    for (Index t = present.begin; t < present.end(); ++t)
      rows.write(t - own.begin, t - mask_.offset, queries, call_.Y.col(t - mask_.offset));
    keep();
  }

  // The loaded keys as a block, seen from the next segment on; their decay is counted up to its end.
  void keep() {
    if (!takes_) return;
    const Segment own = loader_.segment();
    const Keys<Scalar> loaded = loader_.keys();
    const Index n = loaded.size();
    memory_.attention.blocks.push_back({own, no_weight, loader_.total(), loader_.begins_anew()});
    if (n == 0) return;
    KeyBlock& block = memory_.attention.blocks.back();
    set_copy(vectors_of(block), loaded.vectors.transpose());
    AttentionMemory<Scalar>& of_keys = memory_.attention;
    const auto part = [&](auto& panel) { return panel(call_.K.cols()).segment(own.begin, n); };
    auto log_b = part(of_keys.log_b), low = part(of_keys.log_b_low);
    set_log_b_at_end(loaded, loader_.rest(), log_b, low);
    part(of_keys.norms) = loaded.norms;
    part(of_keys.exponents) = loaded.exponents;
    block.M = set_weights<degree>(part(of_keys.weights), log_b, low, loaded.exponents, of_keys.scratch(2 * n));
    largest_value_ = std::max(largest_value_, loaded.extent.largest);
  }
  // A block of keys that no query of the segment reads.
  Index take_keys(Segment segment) {
    segment = loader_.load_gates(segment);
    load(segment, {segment.begin, 0});
    keep();
    return segment.size;
  }

  MatrixView<Scalar> vectors_of(const KeyBlock& block) {
    const Index n = keys_in_number(block);
    if (n == 0) return {nullptr, 0, d_};
    return {memory_.attention.vectors(call_.K.cols() * d_).data() + block.tokens.begin * d_, n, d_};
  }
  [[nodiscard]] Index keys_in_number(const KeyBlock& block) const {
    return std::clamp<Index>(call_.K.cols() - block.tokens.begin, 0, block.tokens.size);
  }
  Keys<Scalar> keys_in(const KeyBlock& block) {
    const Index first = block.tokens.begin, n = keys_in_number(block);
    AttentionMemory<Scalar>& of_keys = memory_.attention;
    const auto part = [&](auto& panel) { return n == 0 ? panel(Index(0)) : panel(call_.K.cols()).segment(first, n); };
    return {vectors_of(block),
            columns_of(call_.V, {first, n}),
            part(of_keys.exponents),
            part(of_keys.log_b),
            part(of_keys.log_b_low),
            part(of_keys.norms),
            part(of_keys.norms),
            part(of_keys.weights),
            block.M,
            {}};
  }

  AttentionCall<Scalar>& call_;
  EngineMemory<Scalar>& memory_;
  Mask mask_;
  SegmentLoader<Scalar, F, scores_need_features<F>> loader_;
  Index d_, T_;
  bool has_common_scale_, takes_ = true;
  Scalar largest_value_ = 0;  // of the keys that are kept and seen
};

/// The attention form, compiled once for a scalar type and a feature map, see `SYMPOW_INSTANTIATE_FORMS`.
template <class Scalar, FeatureMap F>
struct AttentionForm {
  static void run(const F& feature, AttentionCall<Scalar> call);
};
template <class Scalar, FeatureMap F>
void AttentionForm<Scalar, F>::run(const F& feature, AttentionCall<Scalar> call) {
  AttentionEngine<Scalar, F>(feature, call).run();
}

}  // namespace SYMPOW_NAMESPACE::detail
