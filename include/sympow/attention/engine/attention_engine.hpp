// Queries against keys, block by block: the engine of the attention form.
#pragma once

#include <sympow/attention/engine/key_blocks.hpp>
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
  RowSum* sums = nullptr;  ///< of the rows, where they are asked for
};

/// Attention by segments of queries against blocks of keys. The rows of a segment begin with their own keys and walk
/// back, pulled through the blocks between; then their keys are a block.
template <class Scalar, FeatureMap F>
class AttentionEngine final : SegmentEngine<Scalar, F> {
  using Base = SegmentEngine<Scalar, F>;
  using Base::degree, Base::loader_, Base::memory_, Base::take, Base::load;
  static constexpr Index most = 240;  // tokens of a segment

 public:
  AttentionEngine(const F& feature, AttentionCall<Scalar>& call)
      : Base(feature, call, 1, scores_need_features(feature)),
        call_(call),
        of_keys_(call.memory.attention),
        keys_(call.memory.attention, call.V, loader_.vector_rows()),
        mask_(call.options.mask),
        T_(tokens_of(call.Q, call.K, mask_)) {}

  void run() {
    reserve();
    const Index before = std::clamp<Index>(-mask_.offset, 0, call_.Y.cols());  // queries that stand before token 0
    call_.Y.leftCols(before).setZero();
    if (call_.options.diagnostics != nullptr) call_.options.diagnostics->leftCols(before).setZero();
    if (call_.sums != nullptr) std::fill_n(call_.sums, before, RowSum{});
    keys_.clear();
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
    const Index n = std::min(most, T_);
    Base::reserve(n, n);
    keys_.reserve(n);
  }

  void begin_anew() override { keys_.begin_anew(); }
  Frame& frame() override { return of_keys_.frame; }
  [[nodiscard]] Scalar largest_value() const override { return keys_.largest_value(); }
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
    walk_back([&](Index n, const LogDecay& between) {
      const KeyBlock& block = keys_[n];
      const double gate = between.high * std::numbers::log2e;
      scale.add(std::ceil(block.M + gate));
      return scale.exponent() < block.reach + gate;
    });
    return scale;
  }
  // All keys that the rows see, those of their own segment first.
  bool add(Rows<Scalar>& rows) override {
    const Queries<Scalar> queries = loader_.queries();
    if (const Keys<Scalar> own = loader_.keys(); own.size() > 0) rows.add_own(loader_.logits(), own, queries);
    walk_back([&](Index n, const LogDecay& between) {
      const KeyBlock& block = keys_[n];
      if (!rows.sees(block.reach + 1, between)) return false;  // beside the rounding of its sums
      if (const Keys<Scalar> keys = keys_.keys_in(block); keys.size() > 0 && rows.sees(keys.M, between)) {
        const auto set_logits = [&](Index first, MatrixView<Scalar> logits) {
          set_product(logits, keys_.rows_of(block), queries.vectors.middleCols(first, logits.cols()));
          loader_.set_scores(logits, keys.exponents, queries.exponents.segment(first, logits.cols()));
        };
        rows.add_earlier(set_logits, keys, queries, between);
      }
      call_.transition.pull(block.tokens, queries.vectors);
      return true;
    });
    return true;
  }
  // visit(n, decay from its end to the segment's first token) for the blocks n that it sees, the last one first,
  // while it returns true.
  template <class Visit>
  void walk_back(const Visit& visit) {
    if (!loader_.begins_anew()) keys_.walk_back(keys_.size(), loader_.first(), visit);
  }

  void complete(Rows<Scalar>& rows) override {
    const Segment own = loader_.segment(), present = queries_of(own);
    const Queries<Scalar> queries = loader_.queries();
    rows.finish(queries);
    for (Index t = present.begin; t < present.end(); ++t)
      rows.write(t - own.begin, t - mask_.offset, queries, call_.Y.col(t - mask_.offset));
    keep();
  }

  void keep() {
    if (takes_) keys_.keep(loader_);
  }
  // A block of keys that no query of the segment reads.
  void take_unread(Segment segment) override {
    load(segment);
    keep();
  }

  AttentionCall<Scalar>& call_;
  AttentionMemory<Scalar>& of_keys_;
  KeyBlocks<Scalar, F> keys_;
  Mask mask_;
  Index T_;
  bool reads_ = true, takes_ = true;  // in turn under a full mask
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
