// What the rows of a segment see of the tokens before it. Every past has
//
//     void reset()                    a gate of 0: nothing before is seen any more
//     LogGate elapsed()               log gates since the past's time 0, from which a segment counts its own
//     void prepare()                  before rows read it, and before a segment counts from its time 0
//     bool ends_early(segment, K)     may cut the segment before its channels forget what past and keys weigh; returns
//                                     whether its first token forgets it: then that is taken before its query reads
//     PastLevel level(t)              of what the query at token t sees of it
//     Frame& frame()                  where queries and keys turn from
//     void read(segment, rows)        rows += what they see of it
//     void take(segment)              the segment's keys become past
//
// and this one is that of the attention form.
#pragma once

#include <optional>
#include <vector>

#include <sympow/detail/rows.hpp>
#include <sympow/detail/segment.hpp>
#include <sympow/detail/state_fold.hpp>
#include <sympow/simd/integer_power.hpp>
#include <sympow/simd/row_panels.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Consecutive keys as they are, seen from their end.
template <class Scalar>
struct KeyBlock {
  Segment tokens;
  WeightedKeys<Scalar> keys;
  LogGate total;
  double max_log2_weight;  ///< of its keys and of all before, at its end
};

template <class Scalar>
struct KeyPastBuffers {
  Panel<Scalar> vectors, values, norms, fractions;
  Panel<double> exponents, lengths;
  Panel<Scalar> pulled_queries;                  ///< times what channels have decayed by since a block
  Panel<Scalar> decayed_vectors, decayed_norms;  ///< of a block's keys when their channels have decayed
  Panel<double> decayed_exponents;
  Panel<double> channel_weights;  ///< log2 of the largest weight by channel, of all keys
  Panel<double> decays;           ///< Σ log a since a block, and e to them
  Eigen::VectorXd log_channels;   ///< Σ log a of a segment
  std::vector<KeyBlock<Scalar>> blocks;
  std::vector<double> log_channels_of_blocks;  ///< d numbers each
  Frame frame;
};

/// All keys, block by block. Time 0 is the start of the segment. A long key that its own channels have forgotten must
/// not set the level of a row: where channels decay by themselves the level comes from weights by channel, and where a
/// key lies far above it keys are seen as the decay leaves them.
template <class Scalar, FeatureMap F>
class KeyPast {
  static constexpr int P = degree_of<F>;

 public:
  /// Of T keys whose vectors have d rows, with e values each, by blocks of up to `most`.
  KeyPast(KeyPastBuffers<Scalar>& memory, const F& feature, KeyAction action, const Mask& mask, Index d, Index e,
          Index T, Index most)
      : memory_(memory),
        feature_(feature),
        mask_(mask),
        d_(d),
        e_(e),
        T_(T),
        decays_channels_(F::score == Score::power && action == KeyAction::scale && d > 0) {
    memory.vectors(d * T), memory.values(e * T);
    for (auto* panel : {&memory.norms, &memory.fractions}) (*panel)(T);
    for (auto* panel : {&memory.exponents, &memory.lengths}) (*panel)(T);
    if (decays_channels_) {
      memory.channel_weights(d).setConstant(log2_zero);
      memory.pulled_queries(d, most), memory.decayed_vectors(d, most), memory.decayed_norms(most),
          memory.decayed_exponents(most);
      memory.decays(d, 2);
      resize_safely(memory.log_channels, d);
    }
    memory.blocks.clear();
    memory.log_channels_of_blocks.clear();
    memory.frame.clear();
  }

  void reset() {
    first_ = size(), largest_value_ = 0;
    if (decays_channels_) memory_.channel_weights(d_).setConstant(log2_zero);
  }
  [[nodiscard]] LogGate elapsed() const { return {}; }
  void prepare() {}
  bool ends_early(LoadedSegment<Scalar, F>& segment, MatrixView<const Scalar> K) {
    if (!segment.may_forget()) return false;
    auto weights = memory_.decays(d_);
    weights = memory_.channel_weights(d_);
    return segment.end_before_forgetting(K, 0, weights);
  }
  [[nodiscard]] PastLevel<Scalar> level(Index t) const {
    const double slack = decays_channels_ ? 2 * far_above<Scalar> : 0;
    PastLevel<Scalar> some{.largest_value = largest_value_, .slack = slack};
    if (decays_channels_ && !sees_none()) {
      const double weight = std::ceil(log2_of_channels()),
                   longest = std::ceil(P * std::log2(static_cast<double>(d_)) / 2);  // of d channels beside the largest
      some.weight = weight - P, some.level = weight + longest + headroom_for(largest_value_);
      return some;
    }
    LogGate between;
    for (std::size_t n = size(); n-- > first_;) {
      if (mask_.first(t) >= memory_.blocks[n].tokens.end()) break;
      const WeightedKeys<Scalar>& keys = memory_.blocks[n].keys;
      const Segment seen = seen_keys(mask_, t, {keys.first_token, keys.size});
      between.add(memory_.blocks[n].total);
      const double heaviest =
                       seen.size == keys.size ? keys.heaviest : heaviest_of(keys.exponents + seen.begin, seen.size),
                   weight = std::ceil(heaviest + between.log2());
      some.weight = std::max(some.weight, weight);
      some.level = std::max(some.level, weight + headroom_for(keys.extent.largest));
    }
    return some;
  }
  Frame& frame() { return memory_.frame; }
  [[nodiscard]] std::size_t size() const { return memory_.blocks.size(); }
  [[nodiscard]] const KeyBlock<Scalar>& operator[](std::size_t n) const { return memory_.blocks[n]; }

  /// From the last block back, with queries pulled through the blocks between, or keys where one lies far above.
  template <class Rows>
  void read(LoadedSegment<Scalar, F>& segment, Rows& rows) {
    constexpr double far = 8;  // log2; factors that leave the type then weigh less than 2^{far - 126} of the level
    if (sees_none()) return;
    const ScaledQueries<Scalar> queries = segment.queries();
    const bool is_far = decays_channels_ && memory_.blocks.back().max_log2_weight - log2_of_channels() > far;
    auto log_decays = memory_.decays(d_, 2).col(0), factors = memory_.decays(d_, 2).col(1);
    log_decays.setZero();
    LogGate between;
    const Index first = mask_.first(segment.range().begin + segment.first_row());
    for (std::size_t n = size(); n-- > first_;) {
      const KeyBlock<Scalar>& block = memory_.blocks[n];
      if (first >= block.tokens.end()) return;
      const double slowest = decays_channels_ ? log_decays.maxCoeff() : 0;
      if (block.max_log2_weight + between.log2() + P * std::numbers::log2e * slowest < rows.horizon()) return;
      if (slowest == log2_zero) return;
      between.add(block.total);
      if (!decays_channels_) {
        rows.add(feature_, block.keys, between, queries);
        segment.transition().apply_to_queries(block.tokens, queries.direct);
        continue;
      }
      LogGate decay = between;
      decay.add(P * slowest);
      factors = log_decays.array() - slowest;
      set_exponential(factors, factors);
      if (is_far)
        rows.add(feature_, decayed(block.keys), decay, queries);
      else
        rows.add(feature_, block.keys, decay, pulled(queries));
      log_decays += Eigen::VectorXd::Map(&memory_.log_channels_of_blocks[n * static_cast<std::size_t>(d_)], d_);
    }
  }

  void take(const LoadedSegment<Scalar, F>& segment) {
    const Index first = segment.range().begin;
    WeightedKeys<Scalar> keys = segment.keys();
    const Index n = keys.size;
    if (decays_channels_) decay_channels(segment, keys);
    if (n > 0) {
      Scalar* const vectors = memory_.vectors(d_ * T_).data() + d_ * first;
      RowPanels<Scalar>::pack(n, d_, keys.vectors, vectors);
      keys.vectors = {vectors, 1, n};
      keys.is_packed = true;
      Scalar* const values = memory_.values(e_ * T_).data() + e_ * first;
      RowPanels<Scalar>::pack(e_, n, strided(keys.values), values);
      keys.packed_values = values;
      keys.exponents = copied(memory_.exponents, first, keys.exponents, n);
      keys.lengths = copied(memory_.lengths, first, keys.lengths, n);
      keys.fractions = copied(memory_.fractions, first, keys.fractions, n);
      keys.given_norms = keys.norms = copied(memory_.norms, first, keys.given_norms, n);
    }
    largest_value_ = std::max(largest_value_, keys.extent.largest);
    const double before = sees_none() ? log2_zero : memory_.blocks.back().max_log2_weight;
    memory_.blocks.push_back(
        {segment.range(), keys, segment.total(), std::max(keys.heaviest, before) + segment.total().log2()});
  }

 private:
  [[nodiscard]] bool sees_none() const { return first_ == size(); }
  // Of the channel that weighs most.
  [[nodiscard]] double log2_of_channels() const { return memory_.channel_weights(d_).maxCoeff(); }
  // The weights by channel after a segment with these keys.
  void decay_channels(const LoadedSegment<Scalar, F>& segment, const WeightedKeys<Scalar>& keys) {
    auto weights = memory_.channel_weights(d_);
    segment.transition().log_channel_totals(segment.range(), memory_.log_channels);
    for (const double x : memory_.log_channels) memory_.log_channels_of_blocks.push_back(x);
    weights += P * std::numbers::log2e * memory_.log_channels;
    raise_channel_weights<P>(weights, keys);  // whose vectors have come to the segment's end
    weights.array() += segment.total().log2();
  }
  // Queries times what the decay of channels leaves beside the slowest one.
  ScaledQueries<Scalar> pulled(const ScaledQueries<Scalar>& queries) {
    const double* const factors = memory_.decays(d_, 2).col(1).data();
    auto vectors = memory_.pulled_queries(d_, queries.direct.cols());
    vectors = queries.direct;
    for (Index i = 0; i < vectors.cols(); ++i) multiply_entries(vectors.col(i).data(), factors, d_);
    return {queries.vectors, vectors, queries.lengths, queries.norms, queries.given_norms};
  }
  // Keys times the same, which is taken from their lengths.
  WeightedKeys<Scalar> decayed(WeightedKeys<Scalar> keys) {
    const double* const factors = memory_.decays(d_, 2).col(1).data();
    const Index n = keys.size;
    auto vectors = memory_.decayed_vectors(d_, n);
    auto norms = memory_.decayed_norms(n);
    auto exponents = memory_.decayed_exponents(n);
    RowPanels<Scalar>(keys.vectors.data, n, d_).unpack({vectors.data(), d_, 1});
    for (Index j = 0; j < n; ++j) {
      const double whole = normalize_product<Scalar>(vectors.col(j), vectors.col(j).data(), factors);
      norms[j] = std::sqrt(squared_norm(vectors.col(j).data(), d_));
      exponents[j] = keys.exponents[j] + P * whole;
    }
    keys.vectors = {vectors.data(), d_, 1};
    keys.is_packed = false;
    keys.norms = keys.given_norms = norms.data();
    keys.exponents = exponents.data();
    keys.heaviest = heaviest_of(exponents.data(), n);
    return keys;
  }
  template <class Number>
  const Number* copied(Panel<Number>& to, Index first, const Number* from, Index n) {
    Number* const at = to(T_).data() + first;
    std::copy_n(from, n, at);
    return at;
  }

  KeyPastBuffers<Scalar>& memory_;
  const F& feature_;
  Mask mask_;
  Index d_, e_, T_;
  bool decays_channels_;
  std::size_t first_ = 0;  // of the blocks that are seen
  Scalar largest_value_ = 0;
};

// ---- A state as the past of a segment: what the state forms read, and take tokens into

template <class Scalar>
struct StatePastBuffers {
  FoldBuffers<Scalar> fold;
  Panel<double> noise, roots, channel_weights;
  Eigen::VectorXd log_channels;  ///< Σ log a of a segment
};

/// A past, as above. Time 0 is that of the state's sums.
template <class Scalar, FeatureMap F>
class StatePast {
  static constexpr int P = degree_of<F>;

 public:
  /// For segments of up to `most` tokens.
  StatePast(StatePastBuffers<Scalar>& memory, const F& feature, const TransitionView<Scalar>& transition,
            StateContent<Scalar>& state, Index most, bool diagnoses)
      : memory_(memory),
        feature_(feature),
        transition_(transition),
        sums_(state.sums),
        recent_(state.sums.recent),
        frames_(state.frames),
        is_few_(most <= few_tokens),
        diagnoses_(diagnoses) {
    const Index d = recent_.keys.rows();
    const bool by_channel = transition.key_action() == KeyAction::scale || sums_.channels_decay();
    memory.fold.reserve(feature, F::score == Score::embedded ? sums_.Z.size() : d, d, sums_, recent_.capacity() + most,
                        by_channel);
    memory.noise(most), memory.roots(d), memory.channel_weights(d), memory.fold.channels(d, 2);
    if (transition.key_action() == KeyAction::scale) sums_.bound_channels();
  }

  void reset() {
    sums_.clear();
    if (transition_.key_action() == KeyAction::scale) sums_.bound_channels();
    frames_.log_decay = log2_zero;
  }
  [[nodiscard]] LogGate elapsed() const { return sums_.elapsed; }
  void prepare() {
    const Eigen::VectorXd& log_a = sums_.log_channels;
    if (sums_.channel_weights.size() > 0 && sums_.channels_differ() &&
        P * std::numbers::log2e * (log_a.minCoeff() - log_a.maxCoeff()) < -far_above<Scalar> / 2 &&
        sums_.template log2_left<P>() < -far_above<Scalar> / 2)
      fold<Scalar>(feature_, memory_.fold, sums_, {});
    keys_.emplace(recent_keys<Scalar>(feature_, memory_.fold, sums_, true, diagnoses_));
    sums_weight_ = Weight(LogGate{sums_.template slowest_channel<P>()});
    sums_weight_.exponent += sums_.exponent();
  }
  bool ends_early(LoadedSegment<Scalar, F>& segment, MatrixView<const Scalar> K) {
    if (!segment.may_forget()) return false;
    auto weights = memory_.channel_weights(recent_.keys.rows());
    weights.setConstant(log2_zero);
    if (sums_.channel_weights.size() > 0 && !sums_.empty())
      for (Index c = 0; c < weights.size(); ++c)
        weights[c] =
            sums_.exponent() + std::numbers::log2e * (std::log(sums_.channel_weights[c]) + P * sums_.log_channels[c]);
    raise_channel_weights<P>(weights, recent_keys<Scalar>(feature_, memory_.fold, sums_, true, false));
    return segment.end_before_forgetting(K, sums_.elapsed.high, weights);
  }
  /// The sums have been given headroom, nobody knows which: their weight may be lower than their exponent by that.
  [[nodiscard]] PastLevel<Scalar> level(Index) const {
    using Limits = std::numeric_limits<Scalar>;
    const bool has_sums = sums_weight_.exponent != log2_zero;
    return {std::max(sums_weight_.exponent - Limits::max_exponent / 2, keys_->heaviest),
            std::max(sums_weight_.exponent, keys_->level()), has_sums ? Limits::max() : recent_.extent.largest,
            F::score == Score::power && transition_.key_action() == KeyAction::scale ? 2 * far_above<Scalar> : 0};
  }
  Frame& frame() { return frames_.end; }

  template <class Rows>
  void read(LoadedSegment<Scalar, F>& segment, Rows& rows) {
    const ScaledQueries<Scalar> queries = segment.queries();
    rows.add(feature_, *keys_, {}, queries);
    if (sums_weight_.exponent == log2_zero) return;
    const Index n = segment.size(), e = sums_.value_rows();
    const bool pulls = sums_.channels_differ();
    if (pulls)  // to time 0, but for the decay of the slowest channel, which is in the weight of the sums
      multiply_channels(memory_.fold, sums_.log_channels, 1, queries.vectors, largest_gate(sums_.log_channels));
    auto noise = memory_.noise(n);
    set_noise(queries, pulls, rows.divides(), noise);
    const Index seeing = rows.begin_read(sums_weight_, sums_.A, noise.data(), queries);
    for (Index i = 0, count = 0; i < seeing; i += count) {
      count = std::min(phi_panel_tokens, seeing - i);
      rows.begin_strip();
      for_phi_panels(feature_, memory_.fold.phi, queries.vectors.middleCols(i, count), is_few_,
                     [&](Index first, Strided<const Scalar*> phi, Index width) {
                       rows.add_panel(i, count, panel(first, width, e), phi, width);
                     });
      rows.end_panels(i, count);
    }
  }

  /// All that the state holds undergoes what the segment does to it, and its tokens become recent ones, or with these
  /// go into the sums.
  void take(const LoadedSegment<Scalar, F>& segment) {
    const Index n = segment.size();
    frames_.tokens += n;
    frames_.log_decay += segment.log_decay();
    if (transition_.key_action() == KeyAction::scale) decay_channels(segment.range());
    if constexpr (keys_are_features<F>)
      if (transition_.key_action() == KeyAction::mix) mix(segment.range());
    sums_.elapsed = segment.total();
    const WeightedKeys<Scalar> own = segment.keys();
    if (recent_.size + n > recent_.capacity()) return fold<Scalar>(feature_, memory_.fold, sums_, own, true);
    recent_.keys.middleCols(recent_.size, n) = segment.key_vectors();
    recent_.values.middleCols(recent_.size, n) = own.values;
    for (Index j = 0; j < n; ++j) {
      const bool is_embedded = F::score == Score::embedded;
      recent_.exponents[recent_.size + j] = is_embedded ? -segment.gate_exponents()[j] : own.exponents[j];
      recent_.fractions[recent_.size + j] = own.fractions[j];
    }
    recent_.size += n;
    recent_.extent.largest = std::max(recent_.extent.largest, own.extent.largest);
    recent_.extent.all_finite = recent_.extent.all_finite && own.extent.all_finite;
  }

 private:
  // Few queries read S as it is stored, all of it at once; for many queries the high halves are made dense once.
  [[nodiscard]] StatePanel<Scalar> panel(Index first, Index width, Index e) const {
    const Scalar* const Z = sums_.Z.data() + first;
    if (!sums_.is_split()) return {{sums_.S.data() + first * e, 1, e}, nullptr, Z};
    if (is_few_) return {{nullptr, 1, e}, &sums_.split, Z};
    const auto rounded = memory_.fold.columns(e, width);
    sums_.split.get_high(first, rounded);
    return {{rounded.data(), 1, e}, nullptr, Z};
  }
  // The largest denominator of each row that can be rounding: ‖φ(q)‖ A, or where channels have decayed by themselves
  // (Σ_c |q_c| A_c^{1/P})^P if that is less, by Minkowski's inequality. Nothing cancels among entries of one sign.
  void set_noise(const ScaledQueries<Scalar>& queries, bool pulls, bool divides, ColumnView<double> noise) const {
    if (!divides || entries_are_nonnegative(feature_)) return noise.setZero(), void();
    const auto& weights = sums_.channel_weights;
    auto roots = memory_.roots(weights.size());
    for (Index c = 0; c < roots.size(); ++c) roots[c] = std::pow(weights[c], 1. / P);
    for (Index i = 0; i < noise.size(); ++i) {
      const auto q = queries.vectors.col(i);
      const Scalar length = pulls ? std::sqrt(squared_norm(q.data(), q.size())) : queries.norms[i];
      noise[i] = power<P>(static_cast<double>(length)) * sums_.A;
      double sum = 0;
      for (Index c = 0; c < roots.size(); ++c) sum += std::abs(static_cast<double>(q[c])) * roots[c];
      if (roots.size() > 0) noise[i] = std::min(noise[i], power<P>(sum));
    }
  }
  // Recent keys decay as they are, but for their lengths where channels have closed: a key that its own channels have
  // forgotten must not set a row's level.
  void decay_channels(Segment range) {
    Eigen::VectorXd& log_a = memory_.log_channels;
    transition_.log_channel_totals(range, log_a);
    frames_.log_channels += log_a;
    sums_.log_channels += log_a;
    const auto keys = MatrixView<Scalar>(recent_.keys).leftCols(recent_.size);
    if (log_a.size() == 0 || !(P * sums_.log_channels.minCoeff() < least_log_decay))  // they keep digits enough
      return multiply_channels(memory_.fold, log_a, 1, keys);
    auto decays = memory_.fold.channels(log_a.size());
    decays = log_a;
    set_exponential(decays, decays);
    for (Index j = 0; j < keys.cols(); ++j)
      recent_.exponents[j] += P * normalize_product<Scalar>(keys.col(j), keys.col(j).data(), decays.data());
  }
  // Multiplies the whole state by the A_i of a segment that mix channels; its features are the keys themselves.
  void mix(Segment range) {
    frames_.begin_mixing(recent_.keys.rows());
    transition_.apply_to_keys(range, Batch<Scalar>(recent_.keys.leftCols(recent_.size)));
    transition_.apply_to_keys(range, Batch<Scalar>(sums_.Z));
    const Index D = sums_.Z.size();
    sums_.change_columns(0, D, D, memory_.fold.columns,
                         [&](Index, MatrixView<Scalar> S) { transition_.apply_to_state(range, S); });
    if (frames_.keep_product()) transition_.apply_to_state(range, Batch<Scalar>(frames_.key_product));
  }

  StatePastBuffers<Scalar>& memory_;
  const F& feature_;
  const TransitionView<Scalar>& transition_;
  StateSums<Scalar>& sums_;
  RecentTokens<Scalar>& recent_;
  Frames<Scalar>& frames_;
  bool is_few_, diagnoses_;
  std::optional<WeightedKeys<Scalar>> keys_;  // the recent ones, for scores
  Weight sums_weight_{LogGate{}};             // of the sums, seen now; no exponent without them
};

}  // namespace SYMPOW_NAMESPACE::detail
