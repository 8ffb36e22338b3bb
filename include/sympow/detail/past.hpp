// What the rows of a segment see of the tokens before it. Every past has
//
//     void reset()                    a gate of 0: nothing before is seen any more
//     LogGate elapsed()               log gates since the past's time 0, from which a segment counts its own
//     void prepare(n)                 before n more tokens are loaded
//     PastLevel level(t)              of what the query at token t sees of it; before rows read it
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
  Panel<Scalar> given_vectors, decayed_vectors;  ///< before channels have decayed, and of one block after
  Panel<double> given_exponents, decays, factors;
  Eigen::VectorXd log_channels;  ///< Σ log a of a segment
  std::vector<KeyBlock<Scalar>> blocks;
  Frame frame;
};

/// All keys, block by block, and queries pulled back to them. Time 0 is the start of the segment. Where channels decay
/// by themselves, keys are brought to where a segment ends from time to time, as the decay has left them: one that its
/// own channels have forgotten must not set the level of a row, and each pull rounds.
template <class Scalar, FeatureMap F>
class KeyPast {
 public:
  /// Of T keys whose vectors have d rows, with e values each, by blocks of up to `most`.
  KeyPast(KeyPastBuffers<Scalar>& memory, const F& feature, KeyAction action, const Mask& mask, Index d, Index e,
          Index T, Index most)
      : memory_(memory),
        feature_(feature),
        P_(degree_in(feature)),
        mask_(mask),
        d_(d),
        e_(e),
        T_(T),
        decays_channels_(F::score == Score::power && action == KeyAction::scale && d > 0) {
    memory.vectors(d * T), memory.values(e * T);
    for (auto* panel : {&memory.norms, &memory.fractions}) (*panel)(T);
    for (auto* panel : {&memory.exponents, &memory.lengths}) (*panel)(T);
    if (decays_channels_) {
      memory.given_vectors(d * T), memory.given_exponents(T), memory.decayed_vectors(d, most);
      memory.decays(d).setZero(), memory.factors(d);
    }
    memory.blocks.clear();
    memory.frame.clear();
  }

  void reset() { first_ = size(), largest_value_ = 0; }
  [[nodiscard]] LogGate elapsed() const { return {}; }
  void prepare(Index) {}
  [[nodiscard]] PastLevel<Scalar> level(Index t) const {  // keys have decayed by far_above, and do in the segment
    PastLevel<Scalar> some{.largest_value = largest_value_, .slack = decays_channels_ ? 2 * far_above<Scalar> : 0};
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

  /// From the last block back, with queries pulled through the blocks between.
  template <class Rows>
  void read(LoadedSegment<Scalar, F>& segment, Rows& rows) {
    const ScaledQueries<Scalar> queries = segment.queries();
    LogGate between;
    const Index first = mask_.first(segment.range().begin + segment.first_row());
    for (std::size_t n = size(); n-- > first_;) {
      const KeyBlock<Scalar>& block = memory_.blocks[n];
      if (first >= block.tokens.end() || block.max_log2_weight + between.log2() < rows.horizon()) return;
      const bool is_seen = !(block.keys.heaviest + between.log2() < rows.horizon());
      between.add(block.total);
      if (is_seen) rows.add(feature_, block.keys, between, queries);
      if (n >= moved_) segment.transition().apply_to_queries(block.tokens, queries.direct);
    }
  }

  void take(const LoadedSegment<Scalar, F>& segment) {
    const Index first = segment.range().begin;
    WeightedKeys<Scalar> keys = segment.keys();
    const Index n = keys.size;
    if (decays_channels_) decay_blocks(segment);
    if (n > 0) {
      Scalar* const vectors = memory_.vectors(d_ * T_).data() + d_ * first;
      if (decays_channels_) {
        std::copy_n(keys.vectors.data, d_ * n, memory_.given_vectors(d_ * T_).data() + d_ * first);
        std::copy_n(keys.exponents, n, memory_.given_exponents(T_).data() + first);
      }
      RowPanels<Scalar>::pack(n, d_, keys.vectors, vectors);
      keys.vectors = {vectors, 1, n};
      keys.is_packed = true;
      Scalar* const values = memory_.values(e_ * T_).data() + e_ * first;
      RowPanels<Scalar>::pack(e_, n, strided(keys.values), values);
      keys.packed_values = values;
      keys.exponents = copied(memory_.exponents, first, keys.exponents, n);
      keys.lengths = copied(memory_.lengths, first, keys.lengths, n);
      keys.fractions = copied(memory_.fractions, first, keys.fractions, n);
      keys.norms = copied(memory_.norms, first, keys.norms, n);
    }
    largest_value_ = std::max(largest_value_, keys.extent.largest);
    const double before = sees_none() ? log2_zero : memory_.blocks.back().max_log2_weight;
    memory_.blocks.push_back(
        {segment.range(), keys, segment.total(), std::max(keys.heaviest, before) + segment.total().log2()});
  }

 private:
  [[nodiscard]] bool sees_none() const { return first_ == size(); }
  // All blocks come to the end of a segment, if some channel has decayed much since the last time or that was long ago:
  // what their channels have decayed by is taken from the lengths of keys.
  void decay_blocks(const LoadedSegment<Scalar, F>& segment) {
    constexpr std::size_t most_pulls = 16;
    auto log_decays = memory_.decays(d_);
    segment.transition().log_channel_totals(segment.range(), memory_.log_channels);
    log_decays += memory_.log_channels;
    if (size() < moved_ + most_pulls && P_ * std::numbers::log2e * log_decays.minCoeff() > -far_above<Scalar>) return;
    moved_ = size() + 1;  // those of the segment are there
    log_decays.setZero();
    Segment behind = segment.range();
    for (std::size_t n = size(); n-- > first_; behind = memory_.blocks[n].tokens) {
      segment.transition().log_channel_totals(behind, memory_.log_channels);
      log_decays += memory_.log_channels;
      WeightedKeys<Scalar>& keys = memory_.blocks[n].keys;
      if (keys.size == 0) continue;
      const Index first = keys.first_token;
      auto vectors = memory_.decayed_vectors(d_, keys.size);
      vectors = MatrixView<Scalar>(memory_.given_vectors(d_ * T_).data() + d_ * first, d_, keys.size);
      double* const exponents = memory_.exponents(T_).data() + first;
      std::copy_n(memory_.given_exponents(T_).data() + first, keys.size, exponents);
      decay_keys(P_, memory_.factors, log_decays, vectors, exponents, memory_.norms(T_).data() + first);
      RowPanels<Scalar>::pack(keys.size, d_, strided(vectors).transposed(),
                              memory_.vectors(d_ * T_).data() + d_ * first);
      keys.heaviest = heaviest_of(exponents, keys.size);
    }
    log_decays.setZero();
  }
  template <class Number>
  const Number* copied(Panel<Number>& to, Index first, const Number* from, Index n) {
    Number* const at = to(T_).data() + first;
    std::copy_n(from, n, at);
    return at;
  }

  KeyPastBuffers<Scalar>& memory_;
  const F& feature_;
  int P_;
  Mask mask_;
  Index d_, e_, T_;
  bool decays_channels_;
  std::size_t first_ = 0;  // of the blocks that are seen
  std::size_t moved_ = 0;  // blocks, from the first on, that stand where the last of them ends
  Scalar largest_value_ = 0;
};

// ---- A state as the past of a segment: what the state forms read, and take tokens into

template <class Scalar>
struct StatePastBuffers {
  FoldBuffers<Scalar> fold;
  Eigen::VectorXd log_channels;  ///< Σ log a of a segment
};

/// A past, as above. Time 0 is that of the state's sums.
template <class Scalar, FeatureMap F>
class StatePast {
 public:
  /// For segments of up to `most` tokens.
  StatePast(StatePastBuffers<Scalar>& memory, const F& feature, const TransitionView<Scalar>& transition,
            StateContent<Scalar>& state, Index most)
      : memory_(memory),
        feature_(feature),
        P_(degree_in(feature)),
        transition_(transition),
        sums_(state.sums),
        recent_(state.sums.recent),
        frames_(state.frames),
        is_few_(most <= few_tokens) {
    const Index d = recent_.keys.rows();
    const bool by_channel = transition.key_action() == KeyAction::scale || sums_.channels_decay();
    memory.fold.reserve(feature, F::score == Score::embedded ? sums_.Z.size() : d, d, sums_, recent_.capacity() + most,
                        by_channel);
    memory.fold.channels(d, 2);
    if (transition.key_action() == KeyAction::scale) sums_.bound_channels();
  }

  void reset() {
    sums_.clear();
    if (transition_.key_action() == KeyAction::scale) sums_.bound_channels();
    frames_.log_decay = log2_zero;
  }
  [[nodiscard]] LogGate elapsed() const { return sums_.elapsed; }
  /// Recent tokens go into the sums where there is no room for others, or where channels have forgotten much since
  /// time 0.
  void prepare(Index n) {
    const Eigen::VectorXd& log_a = sums_.log_channels;
    const bool forgets = sums_.channel_weights.size() > 0 && sums_.channels_differ() &&
                         P_ * std::numbers::log2e * (log_a.minCoeff() - log_a.maxCoeff()) < -far_above<Scalar> &&
                         sums_.log2_left(P_) < -far_above<Scalar>;
    if (forgets || (recent_.size > 0 && recent_.size + n > recent_.capacity()))
      fold_recent<Scalar>(feature_, memory_.fold, sums_, true);
  }
  /// The sums have been given headroom, nobody knows which: their weight may be lower than their exponent by that.
  [[nodiscard]] PastLevel<Scalar> level(Index) {
    using Limits = std::numeric_limits<Scalar>;
    keys_.emplace(recent_keys<Scalar>(feature_, memory_.fold, sums_, true));
    sums_weight_ = Weight(LogGate{sums_.slowest_channel(P_)});
    sums_weight_.exponent += sums_.exponent();
    const bool has_sums = sums_weight_.exponent != log2_zero;
    return {std::max(sums_weight_.exponent - Limits::max_exponent / 2, keys_->heaviest),
            std::max(sums_weight_.exponent, keys_->level()), has_sums ? Limits::max() : keys_->extent.largest,
            F::score == Score::power && transition_.key_action() == KeyAction::scale ? far_above<Scalar> : 0};
  }
  Frame& frame() { return frames_.end; }

  template <class Rows>
  void read(LoadedSegment<Scalar, F>& segment, Rows& rows) {
    const ScaledQueries<Scalar> queries = segment.queries();
    rows.add(feature_, *keys_, {}, queries);
    if (sums_weight_.exponent == log2_zero) return;
    const Index e = sums_.value_rows();
    // To time 0, but for the decay of the slowest channel, which is in the weight of the sums.
    if (sums_.channels_differ())
      multiply_channels(memory_.fold, sums_.log_channels, 1, queries.vectors, largest_gate(sums_.log_channels));
    const auto roots = roots_of_weights(P_, memory_.fold, sums_);
    const Index seeing = rows.begin_read(sums_weight_, sums_.A, queries, [&](Index i) {
      return noise_of<Scalar>(feature_, sums_, queries.vectors.col(i), roots);
    });
    for (Index i = 0, count = 0; i < seeing; i += count) {
      count = std::min(phi_panel_tokens, seeing - i);
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
    if constexpr (F::score == Score::power)
      if (transition_.key_action() == KeyAction::mix) mix(segment.range());
    sums_.elapsed = segment.total();
    const WeightedKeys<Scalar> own = segment.keys();
    if (n > recent_.capacity()) return fold<Scalar>(feature_, memory_.fold, sums_, own, true);
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
  // Recent keys decay as they are, but for their lengths where channels have closed: a key that its own channels have
  // forgotten must not set a row's level.
  void decay_channels(Segment range) {
    Eigen::VectorXd& log_a = memory_.log_channels;
    transition_.log_channel_totals(range, log_a);
    frames_.log_channels += log_a;
    sums_.log_channels += log_a;
    const auto keys = MatrixView<Scalar>(recent_.keys).leftCols(recent_.size);
    if (log_a.size() == 0 || !(P_ * sums_.log_channels.minCoeff() < least_log_decay))  // they keep digits enough
      return multiply_channels(memory_.fold, log_a, 1, keys);
    decay_keys(P_, memory_.fold.channels, log_a, keys, recent_.exponents.data(),
               memory_.fold.recent_norms(keys.cols()).data());
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
  int P_;
  const TransitionView<Scalar>& transition_;
  StateSums<Scalar>& sums_;
  RecentTokens<Scalar>& recent_;
  Frames<Scalar>& frames_;
  bool is_few_;
  std::optional<WeightedKeys<Scalar>> keys_;  // the recent ones, for scores
  Weight sums_weight_{LogGate{}};             // of the sums, seen now; no exponent without them
};

}  // namespace SYMPOW_NAMESPACE::detail
