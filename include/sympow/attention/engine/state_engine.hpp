// Segments of tokens through a state: the engine of the recurrent and of the chunked form.
#pragma once

#include <optional>

#include <sympow/attention/engine/segment_engine.hpp>
#include <sympow/attention/engine/state_call.hpp>
#include <sympow/attention/engine/sums_reader.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Takes segments through a state. With its folded sums S, its tail and the segment's own keys
///
///     rows i:   b_0i S φ(q_i) + Σ_{j in the tail} s_ij v_j + Σ_{j ≤ i} s_ij v_j     (and the same with v = 1)
///     tail  ←   the segment's tokens, or where it cannot hold them S ← b_0n S + Σ_j b_jn v_j φ(k_j)ᵀ over both
///
/// by panels of φ that never leave the cache.
template <class Scalar, FeatureMap F>
class StateEngine final : SegmentEngine<Scalar, F> {
  using Base = SegmentEngine<Scalar, F>;
  using Base::degree, Base::loader_, Base::memory_, Base::head_, Base::load, Base::undo;

 public:
  StateEngine(const F& feature, StateCall<Scalar>& call)
      : Base(feature, call, call.heads(), F::score == Score::embedded),
        feature_(feature),
        call_(call),
        sums_(call.state.sums),
        tail_(call.state.tail),
        frames_(call.state.frames),
        reader_(feature, sums_, memory_, call.rows),
        action_(call.transition.key_action()) {}

  /// Segments of `size` tokens, one after the other.
  void run(Index tokens, Index size) {
    size = std::max<Index>(1, std::min(size, tokens));
    reserve(size);
    for (Index begin = 0; begin < tokens; begin += size) {
      if (call_.visit_chunk != nullptr) (*call_.visit_chunk)(begin);
      Base::take({begin, std::min(size, tokens - begin)});
    }
  }

  /// The papers' literal step: the token enters the sums first, and is read with all others through φ.
  void run_literally(Index tokens) {
    reserve(1);
    for (Index token = 0; token < tokens; ++token)
      for (head_ = 0; head_ < call_.heads(); ++head_) {
        if (head_ == 0) {
          take_unread(Base::load_gates({token, 1}));
        } else {
          undo(1);
          load({token, 1});
        }
        loader_.stand_at_end(call_.queries_of(head_).middleCols(token, 1));
        auto rows = Base::fresh_own_scale_rows();
        if (reader_.begin(rows, loader_.queries(), {})) reader_.read_all(rows, loader_.queries().vectors);
        write(rows);
      }
  }

 private:
  // Memory for n tokens and the longest tail, so that no later segment asks for more.
  void reserve(Index n) {
    const Index longest = tail_.capacity(), rows = loader_.vector_rows(), e = call_.V.rows();
    Base::reserve(n, std::max(n, longest));
    reader_.reserve(n);
    memory_.tail.reserve(rows, longest);
    memory_.fold.template reserve<F>(rows, e, sums_.S.cols(), longest + n, action_ == KeyAction::scale);
    if (sums_.is_halved()) memory_.fold.columns(e, degree > 1 ? panel_width : sums_.S.cols());
    memory_.noise(n), memory_.lengths(n), memory_.channels(call_.Q.rows());
    call_.state.interrupted = true;  // until the call is done
  }

  Frame& frame() override { return call_.takes() ? frames_.end : *call_.standing; }
  [[nodiscard]] Scalar largest_value() const override { return tail_.largest_value(); }
  bool has_queries(Segment) override { return call_.reads; }

  void begin_anew() override {
    sums_.clear();
    tail_.clear();
    frames_.log_decay = no_weight;
  }

  void load_tokens(Segment segment) override {
    const Segment nothing{segment.begin, 0};
    const auto columns = [&](MatrixView<const Scalar> x, bool wanted) {
      return x.middleCols(wanted ? segment.begin : 0, wanted ? segment.size : 0);
    };
    loader_.load(segment.size, frame(), call_.reads ? segment : nothing, columns(call_.queries_of(head_), call_.reads),
                 call_.takes() ? segment : nothing, columns(call_.K, call_.takes()), columns(call_.V, call_.takes()));
    if (call_.reads)
      tail_keys_.emplace(memory_.tail.direct_keys(feature_, tail_, call_.options.diagnostics != nullptr));
  }

  // The decay of the sums over a segment, without its scalar gates: of the channel that forgets least.
  double slowest_channel_over(Segment segment) {
    const Eigen::VectorXd* log_a = loader_.log_channels(segment, memory_.log_channels);
    if (log_a == nullptr) return sums_.template slowest_decay<degree>() - sums_.log_decay;
    double slowest = log_a->size() == 0 ? 0 : no_weight;
    for (Index c = 0; c < log_a->size(); ++c) slowest = std::max(slowest, sums_.log_channels[c] + (*log_a)[c]);
    return degree * slowest;
  }

  Index moderate_tokens(Segment segment) override {
    Index n = loader_.tokens_within(least_log_decay);
    const double before = action_ == KeyAction::scale ? degree * largest_of(sums_.log_channels) : 0;
    while (action_ == KeyAction::scale && n > 1 &&
           !(slowest_channel_over({segment.begin, n}) - before >= least_log_decay))
      n /= 2;
    return n;
  }
  CommonScale<degree> scale_before() override {
    CommonScale<degree> scale;
    const Keys<Scalar>& tail = *tail_keys_;
    const double first = loader_.first().high;
    scale.add(sums_.L + (sums_.log_decay + first + slowest_channel_over(loader_.segment())) * std::numbers::log2e);
    scale.add(largest_log2_weight<degree>(tail.log_b, tail.exponents) + first * std::numbers::log2e);
    return scale;
  }

  // Scores of the segment's own keys and of those in the tail.
  bool add(Rows<Scalar>& rows) override {
    const Queries<Scalar> queries = loader_.queries();
    if (const Keys<Scalar> own = loader_.keys(); own.size() > 0) rows.add_own(loader_.logits(), own, queries);
    const Keys<Scalar>& tail = *tail_keys_;
    if (tail.size() == 0 || !rows.sees(tail.M, loader_.first())) return sums_.empty();
    const auto set_logits = [&](Index first, MatrixView<Scalar> logits) {
      set_product(logits, tail.vectors.transpose(), loader_.direct_queries().middleCols(first, logits.cols()));
      loader_.set_scores(logits, tail.exponents, queries.exponents.segment(first, logits.cols()));
    };
    rows.add_earlier(set_logits, tail, queries, loader_.first());
    return sums_.empty();
  }

  // Reads the sums, takes the tokens, and writes.
  void complete(Rows<Scalar>& rows) override {
    const Queries<Scalar> queries = loader_.queries();
    if (reader_.begin(rows, queries, loader_.first())) reader_.read_all(rows, queries.vectors);
    if (call_.takes() && Base::is_last_head()) take_keys();
    write(rows);
    if (!Base::is_last_head()) undo(0);
  }

  void write(Rows<Scalar>& rows) {
    const Segment own = loader_.segment();
    const Queries<Scalar> queries = loader_.queries();
    MatrixView<const Scalar> Q = call_.queries_of(head_);
    const MatrixView<Scalar> Y = call_.outputs_of(head_);
    rows.finish(queries);
    for (Index i = 0; i < own.size; ++i) {
      for (const auto* x : {&Q, &call_.K, &call_.V}) prefetch_column(*x, own.end() + i);
      prefetch_column<true>(Y, own.begin + i + 8);
      rows.write(i, own.begin + i, queries, Y.col(own.begin + i));
    }
  }

  // All that the state holds undergoes what the loaded segment does to it, and its tokens go into the tail, or with it
  // into the sums.
  void take_keys() {
    const Segment own = loader_.segment();
    const Keys<Scalar> keys = loader_.keys();
    const bool folds = !tail_.has_room_for(own.size);
    const Eigen::VectorXd* log_a = loader_.log_channels(own, memory_.log_channels);
    const LogDecay& total = loader_.total();
    frames_.tokens += own.size;
    frames_.log_decay += total.high;
    if (log_a != nullptr) frames_.log_channels += *log_a;
    if constexpr (keys_are_features<F>)
      if (action_ == KeyAction::mix) mix(own);
    sums_.forget(total.high, log_a);
    if (!folds) {
      tail_.forget(total.high, log_a, degree);
      return tail_.append(loader_.plain_keys(), keys, loader_.rest());
    }
    tail_.forget(0, log_a, degree);  // the gates go into all keys
    sums_.absorb(feature_, memory_.fold, memory_.tail.keys(feature_, tail_), total, keys, loader_.rest());
    tail_.clear();
  }

  void take_unread(Segment segment) override {
    load(segment);
    take_keys();
  }

  // Multiplies the whole state by the A_i of a segment that mix channels; its features are the keys themselves.
  void mix(Segment segment) {
    Matrix<Scalar>& product = frames_.key_product;
    frames_.begin_mixing(call_.Q.rows());
    call_.transition.push(segment, tail_.keys());
    call_.transition.push(segment, sums_.Z);
    const Index D = sums_.S.cols();
    sums_.change_columns(0, D, D, memory_.fold.columns,
                         [&](Index, MatrixView<Scalar> S) { call_.transition.advance(segment, S); });
    if (frames_.keep_product()) call_.transition.advance(segment, product);
  }

  const F& feature_;
  StateCall<Scalar>& call_;
  FoldedSums<Scalar>& sums_;
  Tail<Scalar>& tail_;
  Frames<Scalar>& frames_;
  SumsReader<Scalar, F> reader_;
  std::optional<Keys<Scalar>> tail_keys_;  // as the rows of the loaded segment see them
  KeyAction action_;
};

}  // namespace SYMPOW_NAMESPACE::detail
