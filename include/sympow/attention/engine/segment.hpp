// The tokens of a segment as the engines see them: queries at its start, keys at its end, gates, logits, exponents,
// weights.
#pragma once

#include <sympow/attention/embedded_feature.hpp>
#include <sympow/attention/keys.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Queries q_i = 2^{m_i} vectors_i, and their decay since the first token of their segment, whose own gate is not in
/// it.
template <class Scalar>
struct Queries {
  MatrixView<Scalar> vectors;
  ColumnView<const double> exponents;       ///< n
  ColumnView<const Scalar> norms;           ///< ‖vectors_i‖ before a transition has changed it
  ColumnView<const Scalar> lengths;         ///< ‖vectors_i‖
  ColumnView<const double> gates;           ///< log γ_i
  ColumnView<const double> from_first;      ///< Σ log γ from the second token through token i
  ColumnView<const double> from_first_low;  ///< what that has lost to rounding

  [[nodiscard]] Index size() const { return exponents.size(); }
};

/// What segments are loaded into.
template <class Scalar>
struct SegmentMemory {
  Panel<Scalar> queries, keys, query_features, key_features, logits, query_norms, key_norms, query_lengths, key_lengths,
      weights;
  Panel<double> query_exponents, key_exponents, gates, from_first, from_first_low, log_b, log_b_low, scratch;
};

/// Loads the segments of a call, one after the other; with φ of an embedded score, or without where nothing but scores
/// are wanted that have a closed form.
template <class Scalar, FeatureMap F>
class SegmentLoader {
 public:
  SegmentLoader(const F& feature, const TransitionView<Scalar>& transition, SegmentMemory<Scalar>& memory, Index d,
                double scale, bool embeds)
      : feature_(feature),
        transition_(transition),
        memory_(memory),
        d_(d),
        vector_rows_(d),
        scale_(scale),
        embeds_(embeds),
        keeps_lengths_(F::score == Score::embedded || transition.key_action() == KeyAction::none ||
                       transition.key_action() == KeyAction::turn) {
    if constexpr (F::score == Score::embedded)
      if (embeds) vector_rows_ = feature.dimension(d);
  }

  /// Memory for n tokens.
  void reserve(Index n) {
    for (auto* panel : {&memory_.queries, &memory_.keys}) (*panel)(d_, n);
    if (embeds_)
      for (auto* panel : {&memory_.query_features, &memory_.key_features}) (*panel)(vector_rows_, n);
    memory_.logits(n, n);
    for (auto* panel :
         {&memory_.query_norms, &memory_.key_norms, &memory_.query_lengths, &memory_.key_lengths, &memory_.weights})
      (*panel)(n);
    for (auto* panel : {&memory_.query_exponents, &memory_.key_exponents, &memory_.gates, &memory_.from_first,
                        &memory_.from_first_low, &memory_.log_b, &memory_.log_b_low})
      (*panel)(n);
    memory_.scratch(2 * n);
  }

  /// The rows of `Keys::vectors` and `Queries::vectors`.
  [[nodiscard]] Index vector_rows() const { return vector_rows_; }

  /// Loads the gates of a segment and ends it before its next gate of 0, from which on nothing before is seen. Returns
  /// what is left of it.
  Segment load_gates(Segment segment) {
    constexpr double nothing = -std::numeric_limits<double>::infinity();
    auto gates = memory_.gates(segment.size);
    transition_.log_decays(segment, gates.data());
    begins_anew_ = segment.size > 0 && gates[0] == nothing;
    if (begins_anew_) gates[0] = 0;
    segment_ = segment;
    for (Index i = 1; i < segment_.size; ++i)
      if (gates[i] == nothing) segment_.size = i;
    return segment_;
  }
  /// Whether its first gate is 0.
  [[nodiscard]] bool begins_anew() const { return begins_anew_; }
  /// Its tokens up to the first that lies e^least or more behind its first one.
  [[nodiscard]] Index tokens_within(double least) const {
    const auto gates = memory_.gates(segment_.size);
    double sum = 0;
    Index n = 1;
    while (n < segment_.size && (sum += gates[n]) >= least) ++n;
    return std::min(n, segment_.size);
  }

  /// Loads the first n tokens of the segment: the queries and keys that are given stand at some tokens of it, at the
  /// others there are none; V are the values of these keys. The frame goes on to the last one. Logits are made where
  /// there are both.
  void load(Index n, Frame& frame, Segment query_tokens, MatrixView<const Scalar> Q, Segment key_tokens,
            MatrixView<const Scalar> K, MatrixView<const Scalar> V) {
    segment_.size = n;
    sum_gates();
    auto queries = memory_.queries(d_, n), keys = memory_.keys(d_, n);
    load_some(queries, memory_.query_exponents(n), memory_.query_norms(n), query_tokens, Q, scale_);
    load_some(keys, memory_.key_exponents(n), memory_.key_norms(n), key_tokens, K, 1);
    auto logits = memory_.logits(n, n);
    const bool meet = query_tokens.size > 0 && key_tokens.size > 0, needs_features = scores_need_features(feature_);
    transition_.transport(frame, segment_, queries, keys,
                          meet && !needs_features ? Batch<Scalar>(logits) : no_logits<Scalar>());
    if constexpr (F::score == Score::embedded) {
      auto query_features = memory_.query_features(embeds_ ? vector_rows_ : 0, n),
           key_features = memory_.key_features(embeds_ ? vector_rows_ : 0, n);
      embed_some(queries, query_features, memory_.query_exponents(n), memory_.query_norms(n), query_tokens);
      embed_some(keys, key_features, memory_.key_exponents(n), memory_.key_norms(n), key_tokens);
      if (meet && needs_features) set_product(logits, key_features.transpose(), query_features);
    }
    if (!keeps_lengths_) {
      set_norms<Scalar>(queries, memory_.query_lengths(n));
      set_norms<Scalar>(keys, memory_.key_lengths(n));
    }
    present_ = key_tokens.size == 0 ? 0 : key_tokens.end() - segment_.begin;
    set_weights();
    values_ = V.data();
    value_rows_ = V.rows();
    value_stride_ = V.outerStride();
    extent_ = extent_of(V);
    if (meet) set_scores(this->logits(), memory_.key_exponents(n), memory_.query_exponents(n), true);
  }
  /// Logits of some keys with the queries ← their scores, where these have a closed form; causal: for j ≤ i.
  void set_scores([[maybe_unused]] MatrixView<Scalar> logits, [[maybe_unused]] ColumnView<const double> key_exponents,
                  [[maybe_unused]] ColumnView<const double> query_exponents, [[maybe_unused]] bool causal = false) {
    if constexpr (F::score == Score::embedded)
      if (feature_.has_kappa()) feature_.set_scores(logits, key_exponents, query_exponents, causal);
  }

  /// Gives keys of length 0 the exponent of the longest key, for whoever asks what a change of them does: they have a
  /// weight then, as they are 2^n 0 for every n.
  void weigh_zero_keys() {
    auto exponents = memory_.key_exponents(segment_.size).head(present_);
    double longest = no_weight;
    for (Index j = 0; j < present_; ++j) longest = std::max(longest, exponents[j]);
    if (std::find(exponents.begin(), exponents.end(), no_weight) == exponents.end()) return;
    for (Index j = 0; j < present_; ++j)
      if (exponents[j] == no_weight) exponents[j] = longest == no_weight ? 0 : longest;
    set_weights();
  }

  /// The queries of one token at its end, for a state that has moved on to there.
  void stand_at_end(MatrixView<const Scalar> Q) {
    auto queries = memory_.queries(d_, 1);
    if (!keeps_lengths_) {
      load_some(queries, memory_.query_exponents(1), memory_.query_norms(1), segment_, Q, scale_);
      set_norms<Scalar>(queries, memory_.query_lengths(1));
    }
    memory_.from_first(1).setZero();
    memory_.from_first_low(1).setZero();
  }

  [[nodiscard]] Segment segment() const { return segment_; }
  /// Σ log γ of it: of all tokens, of the first, and of the others.
  [[nodiscard]] const LogDecay& total() const { return total_; }
  [[nodiscard]] LogDecay first() const { return {segment_.size > 0 ? memory_.gates(segment_.size)[0] : 0, 0}; }
  [[nodiscard]] const LogDecay& rest() const { return rest_; }
  /// Σ log a of a segment by channel, null where none decays by itself.
  const Eigen::VectorXd* log_channels(Segment segment, Eigen::VectorXd& totals) const {
    if (transition_.key_action() != KeyAction::scale) return nullptr;
    transition_.log_channel_totals(segment, totals);
    return &totals;
  }
  [[nodiscard]] Queries<Scalar> queries() {
    const Index n = segment_.size;
    return {embeds_ ? memory_.query_features(vector_rows_, n) : memory_.queries(d_, n),
            memory_.query_exponents(n),
            memory_.query_norms(n),
            keeps_lengths_ ? memory_.query_norms(n) : memory_.query_lengths(n),
            memory_.gates(n),
            memory_.from_first(n),
            memory_.from_first_low(n)};
  }
  /// The segment's keys as far as there are any; its first tokens have one each.
  [[nodiscard]] Keys<Scalar> keys() {
    const Index n = present_;
    return {embeds_ ? memory_.key_features(vector_rows_, n) : memory_.keys(d_, n),
            {values_, value_rows_, n, value_stride_},
            memory_.key_exponents(n),
            memory_.log_b(n),
            memory_.log_b_low(n),
            memory_.key_norms(n),
            keeps_lengths_ ? memory_.key_norms(n) : memory_.key_lengths(n),
            memory_.weights(n),
            M_,
            extent_};
  }
  /// What scores of the queries are made of.
  [[nodiscard]] MatrixView<Scalar> direct_queries() {
    return scores_need_features(feature_) ? queries().vectors : memory_.queries(d_, segment_.size);
  }
  /// The keys before φ, for a tail.
  [[nodiscard]] MatrixView<Scalar> plain_keys() { return memory_.keys(d_, present_); }
  /// Logits of the keys that there are with all queries.
  [[nodiscard]] MatrixView<Scalar> logits() { return memory_.logits(segment_.size, segment_.size).topRows(present_); }

 private:
  // A key's decay is counted from the first token too: it has grown by what it has missed. No gate that comes later is
  // in it.
  void sum_gates() {
    const Index n = segment_.size;
    const auto gates = memory_.gates(n);
    auto from_first = memory_.from_first(n), low = memory_.from_first_low(n), log_b = memory_.log_b(n),
         log_b_low = memory_.log_b_low(n);
    rest_ = {};
    for (Index i = 0; i < n; ++i) {
      if (i > 0) rest_.add(gates[i]);
      from_first[i] = rest_.high;
      low[i] = rest_.low;
      log_b[i] = -rest_.high;
      log_b_low[i] = -rest_.low;
    }
    total_ = rest_;
    if (n > 0) total_.add(gates[0]);
  }

  void set_weights() {
    const Index n = segment_.size;
    M_ = detail::set_weights<degree_of<F>>(memory_.weights(present_), memory_.log_b(n).head(present_),
                                           memory_.log_b_low(n).head(present_), memory_.key_exponents(n).head(present_),
                                           memory_.scratch(2 * present_));
  }

  void load_some(MatrixView<Scalar> x, ColumnView<double> exponents, ColumnView<Scalar> norms, Segment tokens,
                 MatrixView<const Scalar> given, double factor) {
    const Index first = tokens.begin - segment_.begin;
    if (tokens.size < segment_.size) {
      x.setZero();
      norms.setZero();
      exponents.setConstant(no_weight);
    }
    if (tokens.size > 0)
      load_columns<F, Scalar>(given, x.middleCols(first, tokens.size), exponents.segment(first, tokens.size),
                              norms.segment(first, tokens.size), factor);
  }
  // φ of some tokens, or only its lengths.
  void embed_some(MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<double> exponents,
                  ColumnView<Scalar> norms, Segment tokens) {
    const Index first = tokens.begin - segment_.begin, n = tokens.size;
    const auto some = x.middleCols(first, n);
    if (!embeds_) return feature_.set_lengths(some, exponents.segment(first, n), norms.segment(first, n));
    if (n < segment_.size) features.setZero();
    feature_.embed(some, features.middleCols(first, n), exponents.segment(first, n), norms.segment(first, n));
  }

  const F& feature_;
  const TransitionView<Scalar>& transition_;
  SegmentMemory<Scalar>& memory_;
  Index d_, vector_rows_;
  double scale_;
  bool embeds_;
  bool keeps_lengths_;
  Segment segment_;
  Index present_ = 0;  // tokens that have keys, from the first on
  bool begins_anew_ = false;
  LogDecay total_, rest_;
  double M_ = no_weight;
  const Scalar* values_ = nullptr;  // of the keys
  Index value_rows_ = 0, value_stride_ = 0;
  Extent<Scalar> extent_;
};

}  // namespace SYMPOW_NAMESPACE::detail
