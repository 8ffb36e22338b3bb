// The tokens of a segment, loaded: queries and keys of length 1/2 to 1, moved by the transition, and their weights.
#pragma once

#include <sympow/attention/options.hpp>
#include <sympow/core/panel.hpp>
#include <sympow/feature/pass_feature.hpp>
#include <sympow/simd/exponential.hpp>
#include <sympow/simd/product.hpp>
#include <sympow/simd/scaled.hpp>
#include <sympow/simd/weights.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// What is known of the tokens before a segment: log2 of the largest weight in them, at their time 0 and rounded up,
/// and the same with headroom for the values.
template <class Scalar>
struct PastLevel {
  double weight = log2_zero, level = log2_zero;
  Scalar largest_value = 0;
  double slack = 0;  ///< log2 of what rows may have forgotten of any weight
};

/// Log2 by which a level may lie above the weights that a row has not forgotten.
template <class Scalar>
inline constexpr double far_above = std::numeric_limits<Scalar>::max_exponent / 4;

/// Log2 of weights that do not matter beside a row's largest, whatever the number of keys: the row rule allows
/// 4u · K_i ≥ 2^{2 - digits}, and there are fewer than 2^32 keys of ‖k̂‖ ≥ 1/2. Where scores are embedded the lightest
/// key can have the largest score, and all matter that the type can hold.
template <class Scalar, FeatureMap F>
double negligible_weight(const F& feature) {
  return F::score == Score::embedded ? -2.0 * std::numeric_limits<Scalar>::max_exponent
                                     : -(std::numeric_limits<Scalar>::digits + degree_in(feature) + 34.0);
}

/// Keys k_j = 2^{lengths_j} vectors_j and their values. At a time t the weight of key j is
///
///     b_tj ‖k_j‖^P = 2^{exponents_j} fractions_j · e^{G_t} ‖vectors_j‖^P
///
/// where G_t is the sum of log gates from a time 0 through t that its owner knows. (`Exponential`: b_tj alone, and
/// fractions are log2 of them. Embedded scores: vectors and lengths are those of φ(k_j), and P is 1.)
template <class Scalar>
struct WeightedKeys {
  Index size = 0, first_token = 0;                    ///< key j stands at token first_token + j
  Strided<const Scalar*> vectors{};                   ///< (j, c) is channel c of key j; what logits are made of
  MatrixView<const Scalar> values{nullptr, 0, 0, 0};  ///< e × n
  const double* exponents = nullptr;                  ///< whole; -∞ without a weight
  const Scalar* fractions = nullptr;                  ///< in [0.7, 1.42]
  const double* lengths = nullptr;
  const Scalar* norms = nullptr;          ///< ‖vectors_j‖ before the transition moved them; null: as they are
  double heaviest = log2_zero;            ///< max_j exponents_j
  Extent<Scalar> extent{};                ///< of the values
  bool is_packed = false;                 ///< `vectors` lie as `RowPanels::pack` writes them
  const Scalar* packed_values = nullptr;  ///< `values` as it writes them too, if somebody has

  /// The same with headroom for the values.
  [[nodiscard]] double level() const { return heaviest + headroom_for(extent.largest); }
};

/// The length of the vector of a key whose channels lie side by side.
template <class Scalar>
Scalar norm_of(const WeightedKeys<Scalar>& keys, Index j) {
  return std::sqrt(squared_norm(keys.vectors.at(j, 0).data, keys.vectors.down));
}

/// max_j exponents_j.
inline double heaviest_of(const double* exponents, Index n) {
  double largest = log2_zero;
  for (Index j = 0; j < n; ++j) largest = std::max(largest, exponents[j]);
  return largest;
}

/// The tokens of a that are tokens of b, too; where there are none, an empty range in a.
inline Segment common(Segment a, Segment b) {
  const Index begin = std::clamp(b.begin, a.begin, a.end());
  return {begin, std::clamp(b.end(), begin, a.end()) - begin};
}

/// The tokens of a range that have keys, and those that have queries.
Segment key_tokens(const auto& call, Segment range) { return common(range, {0, call.K.cols()}); }
Segment query_tokens(const auto& call, Segment range) {
  return common(range, {call.options.mask.offset, call.Q.cols()});
}

/// Which of the keys of some tokens the query at token t sees, counted from the first of these tokens.
inline Segment seen_keys(const Mask& mask, Index t, Segment tokens) {
  const Index end = std::clamp<Index>(mask.end(t) - tokens.begin, 0, tokens.size),
              first = std::clamp<Index>(mask.first(t) - tokens.begin, 0, end);
  return {first, end - first};
}

/// The largest of a number of the keys that one row after the other sees.
class RunningLargest {
 public:
  template <class Number>
  double over(Segment seen, const Number& number) {
    if (seen.begin != first_) first_ = next_ = seen.begin, largest_ = log2_zero;
    for (; next_ < seen.end(); ++next_) largest_ = std::max(largest_, number(next_));
    return largest_;
  }

 private:
  Index first_ = 0, next_ = 0;
  double largest_ = log2_zero;
};

/// Queries q_i = 2^{lengths_i} vectors_i.
template <class Scalar>
struct ScaledQueries {
  MatrixView<Scalar> vectors;  ///< what reads a state
  MatrixView<Scalar> direct;   ///< what logits are made of
  const double* lengths;
  const Scalar* norms;  ///< ‖vectors_i‖ before the transition moved them
};

template <class Scalar>
struct SegmentBuffers {
  Panel<Scalar> queries, keys, query_features, key_features, logits;
  Panel<Scalar> query_norms, key_norms, fractions, gate_fractions;
  Panel<double> gates, sums, sums_low, query_lengths, key_lengths, exponents, gate_exponents, scratch;
  Eigen::VectorXd log_channels;  ///< Σ log a of a segment
};

/// Loads one segment after the other.
template <class Scalar, FeatureMap F>
class LoadedSegment {
  static constexpr bool is_exponential = F::score == Score::exponential, is_embedded = F::score == Score::embedded;

 public:
  /// Of up to `most` tokens; with φ of embedded scores where it `embeds`, else with logits alone.
  LoadedSegment(SegmentBuffers<Scalar>& memory, const F& feature, const TransitionView<Scalar>& transition,
                double scale, Index d, Index most, bool embeds)
      : memory_(memory),
        feature_(feature),
        transition_(transition),
        P_(degree_in(feature)),
        scale_(scale),
        d_(d),
        embeds_(embeds) {
    if constexpr (is_embedded)
      if (embeds) vector_rows_ = feature.dimension(d);
    if (!is_exponential && transition.key_action() == KeyAction::scale) resize_safely(memory.log_channels, d);
    for (auto* panel : {&memory.queries, &memory.keys}) (*panel)(d, most);
    for (auto* panel : {&memory.query_features, &memory.key_features}) (*panel)(vector_rows_, most);
    memory.logits(most, most);
    for (auto* panel : {&memory.query_norms, &memory.key_norms, &memory.fractions, &memory.gate_fractions})
      (*panel)(most);
    for (auto* panel : {&memory.gates, &memory.sums, &memory.sums_low, &memory.query_lengths, &memory.key_lengths,
                        &memory.exponents, &memory.gate_exponents, &memory.scratch})
      (*panel)(most);
  }

  /// From now on segments also end before their scalar gates, without the first, multiply to less than 2^-log2.
  void limit_decay(double log2) { most_decay_ = log2 * std::numbers::ln2; }

  /// Loads the gates of a range and ends it before the next gate of 0. Returns whether its own first gate is 0:
  /// nothing before is seen then.
  bool load_gates(Segment range) {
    constexpr double closed = log2_zero;
    double* const gates = memory_.gates(range.size).data();
    transition_.log_decays(range, gates);
    resets_ = range.size > 0 && gates[0] == closed;
    if (resets_) gates[0] = 0;
    double decayed = 0;
    for (Index i = 1; i < range.size; ++i)
      if (decayed -= gates[i]; decayed > most_decay_ || gates[i] == closed) range.size = i;
    range_ = range;
    forgets_ = false;
    if (!is_exponential && transition_.key_action() == KeyAction::scale) cut_fast_channels();
    return resets_;
  }

  /// Ends a segment whose channels may forget the key that sets the level of a row, far above the row's own: before
  /// they do, or else behind its first token. Returns whether that token's gates forget it: it is taken before its
  /// query reads.
  template <class Past>
  bool end_before_forgetting(MatrixView<const Scalar> K, Past& past) {
    if (!forgets_) return false;
    double level = past.level(range_.begin).weight, elapsed = past.elapsed().high;
    for (Index i = 0; i < size(); ++i) {
      const Index t = range_.begin + i;
      elapsed += memory_.gates(size())[i];
      const Scalar largest = t < K.cols() ? measure_extent<Scalar>(K.middleCols(t, 1)).largest : Scalar(0);
      const double weight = P_ * exponent_above(largest) - elapsed * std::numbers::log2e;
      level = std::max(level, weight);
      if (!(level - weight > far_above<Scalar>)) continue;
      while (forgets_ && size() > 1) range_.size /= 2, measure_channels();
      return forgets_;
    }
    return false;
  }

  /// Keys of length 0 count as 2^0 · 0: they have gradients where scores are linear.
  void weigh_zero_keys(bool weighs) { weighs_zero_keys_ = weighs && !is_exponential && P_ == 1; }

  /// Loads the tokens: queries from row `first_row` on, none where Q is empty, and the first tokens' keys. Log gates
  /// are summed from `elapsed` on, which is the time 0 of whatever the queries read. The frame goes on to the end.
  void load(const LogGate& elapsed, Frame& frame, MatrixView<const Scalar> Q, Index first_row,
            MatrixView<const Scalar> K, MatrixView<const Scalar> V) {
    const Index n = size();
    first_row_ = first_row, rows_ = Q.cols(), keys_ = K.cols();
    sum_gates(elapsed);
    auto queries = memory_.queries(d_, n), keys = memory_.keys(d_, n);
    load_columns(queries, Q, first_row, memory_.query_lengths(n), memory_.query_norms(n), scale_);
    load_columns(keys, K, 0, memory_.key_lengths(n), memory_.key_norms(n), 1);
    const bool meet = has_queries() && has_keys(), needs_features = is_embedded && scores_need_features(feature_);
    auto logits = memory_.logits(n, n);
    transition_.to_segment_frame(frame, range_, queries, keys,
                                 meet && !needs_features ? Batch<Scalar>(logits) : no_logits<Scalar>());
    if constexpr (is_embedded) embed(queries, keys, logits, meet, needs_features);
    for (Index j = 0; j < keys_ && weighs_zero_keys_; ++j)
      if (double& length = memory_.key_lengths(n)[j]; length == log2_zero) length = 0;
    set_weights(V);
  }

  /// The queries of one token at its end, for a past that has moved on to there, `elapsed` since its time 0.
  void move_query_to_end(MatrixView<const Scalar> Q, const LogGate& elapsed) {
    const KeyAction action = transition_.key_action();
    if (action == KeyAction::scale || action == KeyAction::mix)
      load_columns(memory_.queries(d_, 1), Q, 0, memory_.query_lengths(1), memory_.query_norms(1), scale_);
    const Weight gate(elapsed);
    memory_.gate_exponents(1)[0] = gate.exponent;
    memory_.gate_fractions(1)[0] = static_cast<Scalar>(gate.fraction);
    keys_ = 0;
  }

  [[nodiscard]] const TransitionView<Scalar>& transition() const { return transition_; }
  [[nodiscard]] const F& feature() const { return feature_; }
  [[nodiscard]] Segment range() const { return range_; }
  [[nodiscard]] Index size() const { return range_.size; }
  [[nodiscard]] Index vector_rows() const { return vector_rows_ > 0 ? vector_rows_ : d_; }  ///< of keys and queries
  [[nodiscard]] bool resets() const { return resets_; }
  [[nodiscard]] bool has_queries() const { return rows_ > 0; }
  [[nodiscard]] bool has_keys() const { return keys_ > 0; }
  [[nodiscard]] Index first_row() const { return first_row_; }  ///< the first token that has a query
  [[nodiscard]] Index rows() const { return rows_; }            ///< tokens that have one
  [[nodiscard]] ScaledQueries<Scalar> queries() const {
    const auto given = memory_.queries(d_, size()),
               vectors = embeds_ ? memory_.query_features(vector_rows_, size()) : given;
    return {vectors, is_embedded && embeds_ && scores_need_features(feature_) ? vectors : given,
            memory_.query_lengths(size()).data(), memory_.query_norms(size()).data()};
  }
  /// Keys after the transition, d × n; those of tokens without a key are 0.
  [[nodiscard]] MatrixView<Scalar> key_vectors() const { return memory_.keys(d_, size()); }
  /// Logits of keys with queries, (j, i), used up by the rows.
  [[nodiscard]] MatrixView<Scalar> logits() const { return memory_.logits(size(), size()).topRows(keys_); }
  /// Queries and keys before the transition moved them, for its way back.
  void load_plain(MatrixView<Scalar> queries, MatrixView<Scalar> keys, MatrixView<const Scalar> Q,
                  MatrixView<const Scalar> K) {
    const Index n = size();
    load_columns(queries, Q, first_row_, memory_.scratch(n), memory_.gate_fractions(n), scale_);
    load_columns(keys, K, 0, memory_.scratch(n), memory_.gate_fractions(n), 1);
  }
  /// e^{G_i} as 2^exponent times a fraction.
  [[nodiscard]] const double* gate_exponents() const { return memory_.gate_exponents(size()).data(); }
  [[nodiscard]] const Scalar* gate_fractions() const { return memory_.gate_fractions(size()).data(); }
  /// G_i, and G of the last token.
  [[nodiscard]] LogGate gate(Index i) const { return {memory_.sums(size())[i], memory_.sums_low(size())[i]}; }
  [[nodiscard]] LogGate total() const { return gate(size() - 1); }
  /// Σ log γ of its own tokens, but for a first gate of 0.
  [[nodiscard]] double log_decay() const { return memory_.gates(size()).sum(); }
  /// The keys as rows and states take them: φ of embedded scores where there is one.
  [[nodiscard]] WeightedKeys<Scalar> keys() const {
    const auto k = embeds_ ? memory_.key_features(vector_rows_, size()) : key_vectors();
    return {keys_,
            range_.begin,
            {k.data(), k.rows(), 1},
            {values_, value_rows_, keys_, value_stride_},
            memory_.exponents(size()).data(),
            memory_.fractions(size()).data(),
            memory_.key_lengths(size()).data(),
            memory_.key_norms(size()).data(),
            heaviest_,
            extent_};
  }
  /// Logits of some keys with queries ← their scores, where embedded scores have a closed form. Causal: for j ≤ i.
  static void set_scores(const F& feature, MatrixView<Scalar> logits, const double* key_lengths,
                         const double* query_lengths, bool causal) {
    if constexpr (is_embedded)
      if (feature.has_kappa() && logits.size() > 0)
        feature.set_scores(logits, column(key_lengths, logits.rows()), column(query_lengths, logits.cols()), causal);
  }

 private:
  static ColumnView<const double> column(const double* data, Index n) { return {data, n}; }
  // Ends the segment before its channels leave less than e^least_log_decay of each other's keys: decays of channels are
  // in the numbers, and their sums are rounded to a double.
  void cut_fast_channels() {
    const double* const gates = memory_.gates(size()).data();
    double sum = 0;
    for (Index n = 1; n < size(); ++n)
      if (sum += gates[n]; sum < least_log_decay) range_.size = n;
    while (P_ * measure_channels() < least_log_decay && size() > 1) range_.size /= 2;
  }
  // Whether a channel decays by so much that rows may forget the keys that set their level; returns the slowest decay.
  double measure_channels() {
    Eigen::VectorXd& log_a = memory_.log_channels;
    transition_.log_channel_totals(range_, log_a);
    forgets_ = F::score == Score::power && d_ > 0 && P_ * std::numbers::log2e * log_a.minCoeff() < -far_above<Scalar>;
    return largest_gate(log_a);
  }
  void sum_gates(LogGate sum) {
    constexpr double least = -0x1p40;  // sums of smaller gates could leave double
    const double* const gates = memory_.gates(size()).data();
    auto high = memory_.sums(size()), low = memory_.sums_low(size());
    for (Index i = 0; i < size(); ++i) {
      sum.add(std::max(gates[i], least));
      high[i] = sum.high, low[i] = sum.low;
    }
  }
  // Columns from `first` on ← factor x / 2^length, the others ← 0. An exponential score keeps lengths in its numbers
  // unless they are near the type's ends, an embedded one all.
  void load_columns(MatrixView<Scalar> to, MatrixView<const Scalar> x, Index first, ColumnView<double> lengths,
                    ColumnView<Scalar> norms, double factor) {
    if (x.cols() < to.cols()) to.setZero(), norms.setZero(), lengths.setConstant(log2_zero);
    int of_factor = 0;
    const auto mantissa = static_cast<Scalar>(factor == 1 ? 1 : std::frexp(factor, &of_factor));
    for (Index t = 0; t < x.cols(); ++t) {
      const Index i = first + t;
      prefetch_column(x, t + 12);
      if constexpr (is_embedded) {
        set_scaled(to.col(i).data(), x.col(t).data(), static_cast<Scalar>(factor), x.rows());
        lengths[i] = 0;
        continue;
      }
      lengths[i] = normalize_column<Scalar>(x.col(t), to.col(i), mantissa, norms[i]) + of_factor;
      if constexpr (is_exponential) {
        constexpr double moderate = std::numeric_limits<Scalar>::max_exponent / 2 - 4;
        if (std::abs(lengths[i]) > moderate && lengths[i] != log2_zero) continue;
        if (lengths[i] != log2_zero) {
          const auto back = normal_power_of_two<Scalar>(static_cast<int>(lengths[i]));
          set_scaled(to.col(i).data(), to.col(i).data(), back, x.rows());
          norms[i] *= back;
        }
        lengths[i] = 0;
      }
    }
  }
  // φ of queries and keys, or its lengths, and logits of what has no closed form.
  void embed(MatrixView<Scalar> queries, MatrixView<Scalar> keys, MatrixView<Scalar> logits, bool meet,
             bool needs_features)
    requires(is_embedded)
  {
    const Index n = size();
    auto query_features = memory_.query_features(vector_rows_, n), key_features = memory_.key_features(vector_rows_, n);
    embed_tokens(queries, query_features, memory_.query_lengths(n), memory_.query_norms(n), first_row_, rows_);
    embed_tokens(keys, key_features, memory_.key_lengths(n), memory_.key_norms(n), 0, keys_);
    if (!meet) return;
    if (needs_features)
      set_product(logits, key_features.transpose(), query_features);
    else
      set_scores(feature_, logits.topRows(keys_), memory_.key_lengths(n).data(), memory_.query_lengths(n).data(), true);
  }
  void embed_tokens(MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<double> lengths,
                    ColumnView<Scalar> norms, Index first, Index count)
    requires(is_embedded)
  {
    const auto tokens = x.middleCols(first, count);
    if (count == 0) return;
    if (!embeds_) return feature_.set_lengths(tokens, lengths.segment(first, count), norms.segment(first, count));
    if (count < size()) features.setZero();
    feature_.embed(tokens, features.middleCols(first, count), lengths.segment(first, count),
                   norms.segment(first, count));
  }
  // Row i has the gate e^{G_i}; key j, which has missed the gates up to its own, e^{-G_j}.
  void set_weights(MatrixView<const Scalar> V) {
    const Index n = size();
    const double *const sums = memory_.sums(n).data(), *const low = memory_.sums_low(n).data(),
                        *const lengths = memory_.key_lengths(n).data();
    double *const exponents = memory_.exponents(n).data(), *const of_gates = memory_.gate_exponents(n).data(),
                  *const rests = memory_.scratch(n).data();
    Scalar *const fractions = memory_.fractions(n).data(), *const inverses = memory_.gate_fractions(n).data();
    values_ = V.data(), value_rows_ = V.rows(), value_stride_ = V.outerStride(), extent_ = measure_extent(V);
    for (Index j = 0; j < n; ++j) {
      const ReducedExponent gate = reduced_exponent(-sums[j]);
      of_gates[j] = -gate.whole;
      exponents[j] = gate.whole + (is_exponential ? 0 : P_ * lengths[j]);
      rests[j] = gate.rest - low[j];
    }
    heaviest_ = heaviest_of(exponents, keys_);
    if constexpr (is_exponential)
      for (Index j = 0; j < n; ++j) fractions[j] = static_cast<Scalar>(rests[j] * std::numbers::log2e);
    set_exponential<double>(rests, rests, n, 0);
    for (Index j = 0; j < n; ++j) inverses[j] = static_cast<Scalar>(1 / rests[j]);
    if constexpr (!is_exponential)
      for (Index j = 0; j < n; ++j) fractions[j] = static_cast<Scalar>(rests[j]);
  }

  SegmentBuffers<Scalar>& memory_;
  const F& feature_;
  const TransitionView<Scalar>& transition_;
  int P_;
  double scale_;
  Index d_, vector_rows_ = 0;
  bool embeds_;
  Segment range_;
  Index first_row_ = 0, rows_ = 0, keys_ = 0;
  bool resets_ = false, forgets_ = false, weighs_zero_keys_ = false;
  double most_decay_ = -log2_zero;
  const Scalar* values_ = nullptr;
  Index value_rows_ = 0, value_stride_ = 0;
  double heaviest_ = log2_zero;
  Extent<Scalar> extent_;
};

}  // namespace SYMPOW_NAMESPACE::detail
