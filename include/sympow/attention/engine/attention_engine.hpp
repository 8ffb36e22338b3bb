// Queries against keys, block by block: the engine of the attention form.
#pragma once

#include <sympow/attention/engine/segment_engine.hpp>

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

/// Attention by segments of queries against blocks of keys. The rows of a segment begin with their own keys and walk
/// back, pulled through the blocks between; then their keys are a block.
template <class Scalar, FeatureMap F>
class AttentionEngine final : SegmentEngine<Scalar, F> {
  using Base = SegmentEngine<Scalar, F>;
  using Base::degree, Base::loader_, Base::memory_, Base::take, Base::load;
  static constexpr Index most = 96;  // tokens of a segment

 public:
  AttentionEngine(const F& feature, AttentionCall<Scalar>& call)
      : Base(feature, call, 1, scores_need_features(feature)),
        call_(call),
        of_keys_(call.memory.attention),
        mask_(call.options.mask),
        d_(loader_.vector_rows()),
        T_(tokens_of(call.Q, call.K, mask_)) {}

  void run() {
    reserve();
    const Index before = std::clamp<Index>(-mask_.offset, 0, call_.Y.cols());  // queries that stand before token 0
    call_.Y.leftCols(before).setZero();
    if (call_.options.diagnostics != nullptr) call_.options.diagnostics->leftCols(before).setZero();
    of_keys_.blocks.clear();
    of_keys_.frame.clear();
    if (mask_.is_full) {
      reads_ = false;
      for (Index t = 0; t < T_; t += most) take(segment_at(t));
      of_keys_.frame.clear();
      reads_ = true;
      takes_ = false;
    }
    for (Index t = 0; t < T_; t += most) take(segment_at(t));
  }

 private:
  void reserve() {
    const Index n = std::min(most, T_), keys = call_.K.cols();
    Base::reserve(n, n);
    of_keys_.vectors(keys * d_);
    for (auto* panel : {&of_keys_.norms, &of_keys_.weights}) (*panel)(keys);
    for (auto* panel : {&of_keys_.exponents, &of_keys_.log_b, &of_keys_.log_b_low}) (*panel)(keys);
    of_keys_.logits(n, n);
  }

  void begin_anew() override { largest_value_ = 0; }
  Frame& frame() override { return of_keys_.frame; }
  [[nodiscard]] Scalar largest_value() const override { return largest_value_; }
  bool has_queries(Segment segment) override { return queries_of(segment).size > 0; }

  [[nodiscard]] Segment segment_at(Index begin) const { return {begin, std::min(most, T_ - begin)}; }
  // The tokens of a segment that have keys, and those that have queries.
  [[nodiscard]] Segment keys_of(Segment own) const {
    return {own.begin, takes_ ? std::clamp<Index>(call_.K.cols() - own.begin, 0, own.size) : 0};
  }
  [[nodiscard]] Segment queries_of(Segment own) const {
    const Index begin = std::clamp(mask_.offset, own.begin, own.end());
    return {begin, reads_ ? std::clamp(mask_.offset + call_.Q.cols(), begin, own.end()) - begin : 0};
  }

  void load_tokens(Segment own) override {
    const Segment keys = keys_of(own), queries = queries_of(own);
    loader_.load(own.size, of_keys_.frame, queries,
                 call_.Q.middleCols(queries.size == 0 ? 0 : queries.begin - mask_.offset, queries.size), keys,
                 columns_of(call_.K, keys), columns_of(call_.V, keys));
  }
  static MatrixView<const Scalar> columns_of(MatrixView<const Scalar> x, Segment tokens) {
    return x.middleCols(tokens.size == 0 ? 0 : tokens.begin, tokens.size);
  }

  CommonScale<degree> scale_before() override {
    CommonScale<degree> scale;
    walk_back([&](const KeyBlock& keys, const LogDecay& between) {
      scale.add(std::ceil(keys.M + between.high * std::numbers::log2e));
    });
    return scale;
  }
  // All keys that the rows see, those of their own segment first.
  bool add(Rows<Scalar>& rows) override {
    const Queries<Scalar> queries = loader_.queries();
    if (const Keys<Scalar> own = loader_.keys(); own.size() > 0) rows.add_own(loader_.logits(), own, queries);
    walk_back([&](const KeyBlock& block, const LogDecay& between) {
      if (const Keys<Scalar> keys = keys_in(block); rows.sees(keys, between)) {
        auto logits = of_keys_.logits(keys.size(), queries.size());
        set_product(logits, vectors_of(block), queries.vectors);
        loader_.set_scores(logits, keys.exponents, queries.exponents);
        rows.add_earlier(logits, keys, queries, between);
      }
      call_.transition.pull(block.tokens, queries.vectors);
    });
    return true;
  }
  // visit(block, decay from its end to the segment's first token) for the blocks that it sees, the last one first.
  template <class Visit>
  void walk_back(const Visit& visit) {
    const auto& blocks = of_keys_.blocks;
    LogDecay between = loader_.first();
    if (loader_.begins_anew()) return;
    for (std::size_t n = blocks.size(); n-- > 0 && between.high > no_weight;) {
      visit(blocks[n], between);
      if (blocks[n].begins_anew) break;
      between.add(blocks[n].decay);
    }
  }

  void complete(Rows<Scalar>& rows) override {
    const Segment own = loader_.segment(), present = queries_of(own);
    const Queries<Scalar> queries = loader_.queries();
    rows.finish(queries);
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
    of_keys_.blocks.push_back({own, no_weight, loader_.total(), loader_.begins_anew()});
    if (n == 0) return;
    KeyBlock& block = of_keys_.blocks.back();
    set_copy(vectors_of(block), loaded.vectors.transpose());
    const auto part = [&](auto& panel) { return panel(call_.K.cols()).segment(own.begin, n); };
    auto log_b = part(of_keys_.log_b), low = part(of_keys_.log_b_low);
    set_log_b_at_end(loaded, loader_.rest(), log_b, low);
    part(of_keys_.norms) = loaded.norms;
    part(of_keys_.exponents) = loaded.exponents;
    block.M = set_weights<degree>(part(of_keys_.weights), log_b, low, loaded.exponents, of_keys_.scratch(2 * n));
    largest_value_ = std::max(largest_value_, loaded.extent.largest);
  }
  // A block of keys that no query of the segment reads.
  void take_unread(Segment segment) override {
    load(segment);
    keep();
  }

  MatrixView<Scalar> vectors_of(const KeyBlock& block) {
    const Index n = keys_in_number(block);
    if (n == 0) return {nullptr, 0, d_};
    return {of_keys_.vectors(call_.K.cols() * d_).data() + block.tokens.begin * d_, n, d_};
  }
  [[nodiscard]] Index keys_in_number(const KeyBlock& block) const {
    return std::clamp<Index>(call_.K.cols() - block.tokens.begin, 0, block.tokens.size);
  }
  Keys<Scalar> keys_in(const KeyBlock& block) {
    const Index first = block.tokens.begin, n = keys_in_number(block);
    const auto part = [&](auto& panel) { return n == 0 ? panel(Index(0)) : panel(call_.K.cols()).segment(first, n); };
    return {vectors_of(block),
            columns_of(call_.V, {first, n}),
            part(of_keys_.exponents),
            part(of_keys_.log_b),
            part(of_keys_.log_b_low),
            part(of_keys_.norms),
            part(of_keys_.norms),
            part(of_keys_.weights),
            block.M,
            {}};
  }

  AttentionCall<Scalar>& call_;
  AttentionMemory<Scalar>& of_keys_;
  Mask mask_;
  Index d_, T_;
  bool reads_ = true, takes_ = true;  // in turn under a full mask
  Scalar largest_value_ = 0;          // of the keys that are kept and seen
};

/// The attention form, compiled once for a scalar type and a feature map, see `SYMPOW_INSTANTIATE_FORMS`.
template <class Scalar, FeatureMap F>
struct AttentionForm {
  static void run(const F& feature, AttentionCall<Scalar> call);
};
template <class Scalar, FeatureMap F>
void AttentionForm<Scalar, F>::run(const F& feature, AttentionCall<Scalar> call) {
  if constexpr (is_own_embedded<Scalar, F>)
    AttentionForm<Scalar, EmbeddedFeature<Scalar>>::run(EmbeddedFeatureOf<Scalar, F>(feature), call);
  else
    AttentionEngine<Scalar, F>(feature, call).run();
}

}  // namespace SYMPOW_NAMESPACE::detail
