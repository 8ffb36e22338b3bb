// A state as the past of a segment: what the state forms read, and take tokens into.
#pragma once

#include <optional>

#include <sympow/detail/power_rows.hpp>
#include <sympow/detail/state_fold.hpp>

namespace SYMPOW_NAMESPACE::detail {

template <class Scalar>
struct StatePastBuffers {
  FoldBuffers<Scalar> fold;
  Panel<double> noise, roots, channel_weights;
  Eigen::VectorXd log_channels;  ///< Σ log a of a segment
};

/// See key_past.hpp for what a past has. Time 0 is that of the state's sums.
template <class Scalar, FeatureMap F>
class StatePast {
  static constexpr int P = degree_of<F>;

 public:
  /// For segments of up to `most` tokens. `fixed_frame` is where queries turn from while the state stands still.
  StatePast(StatePastBuffers<Scalar>& memory, const F& feature, const TransitionView<Scalar>& transition,
            StateContent<Scalar>& state, Index most, bool diagnoses, Frame* fixed_frame = nullptr)
      : memory_(memory),
        feature_(feature),
        transition_(transition),
        sums_(state.sums),
        recent_(state.sums.recent),
        frames_(state.frames),
        frame_(fixed_frame == nullptr ? &state.frames.end : fixed_frame),
        is_few_(most <= few_tokens),
        diagnoses_(diagnoses) {
    const Index d = recent_.keys.rows();
    const bool by_channel = transition.key_action() == KeyAction::scale || sums_.channels_decay();
    memory.fold.reserve(feature, F::score == Score::embedded ? sums_.Z.size() : d, d, sums_, recent_.capacity() + most,
                        by_channel);
    memory.noise(most), memory.roots(d), memory.channel_weights(d), memory.fold.channels(d, 2);
    if (transition.key_action() == KeyAction::scale) sums_.count_channels();
  }

  void reset() {
    sums_.clear();
    if (transition_.key_action() == KeyAction::scale) sums_.count_channels();
    frames_.log_decay = log2_zero;
  }
  [[nodiscard]] LogGate elapsed() const { return sums_.elapsed; }
  void prepare() {
    if (sums_.template log2_left<P>(sums_.log_channels) < -far_above<Scalar>)
      fold<Scalar>(feature_, memory_.fold, sums_, {});
    keys_.emplace(recent_keys<Scalar>(feature_, memory_.fold, sums_, true, diagnoses_));
    sums_weight_.exponent = log2_zero;
    const double slowest = sums_.template slowest_channel<P>();
    if (sums_.empty() || slowest == log2_zero) return;
    sums_weight_ = Weight(LogGate{slowest});
    sums_weight_.exponent += sums_.exponent();
  }
  bool ends_early(LoadedSegment<Scalar, F>& segment) {
    return segment.end_before_forgetting([&] {
      auto weights = memory_.channel_weights(recent_.keys.rows());
      weights.setConstant(log2_zero);
      if (sums_.channel_weights.size() > 0 && !sums_.empty())
        weights.array() = sums_.exponent() +
                          std::numbers::log2e * (sums_.channel_weights.array().log() + P * sums_.log_channels.array());
      raise_channel_weights<P>(weights, recent_keys<Scalar>(feature_, memory_.fold, sums_, true, false));
      return ColumnView<const double>(weights);
    });
  }
  /// The sums have been given headroom, nobody knows which: their weight may be lower than their exponent by that.
  [[nodiscard]] PastLevel<Scalar> level(Index) const {
    using Limits = std::numeric_limits<Scalar>;
    const bool has_sums = sums_weight_.exponent != log2_zero;
    return {std::max(sums_weight_.exponent - Limits::max_exponent / 2, keys_->heaviest),
            std::max(sums_weight_.exponent, keys_->level()), has_sums ? Limits::max() : recent_.extent.largest,
            F::score == Score::power && transition_.key_action() == KeyAction::scale ? 2 * far_above<Scalar> : 0};
  }
  Frame& frame() { return *frame_; }
  [[nodiscard]] const StateSums<Scalar>& sums() const { return sums_; }

  template <class Rows>
  void read(LoadedSegment<Scalar, F>& segment, Rows& rows) {
    const ScaledQueries<Scalar> queries = segment.queries();
    rows.add_keys(feature_, *keys_, {}, queries);
    if (sums_weight_.exponent == log2_zero) return;
    const Index n = segment.size(), e = sums_.value_rows();
    const bool pulls = sums_.channels_differ();
    if (pulls) pull_to_time_0(queries.vectors);
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
  [[nodiscard]] bool entries_are_nonnegative() const {
    if constexpr (F::score == Score::embedded)
      return feature_.entries_are_nonnegative();
    else
      return has_nonnegative_entries<F>;
  }
  // The largest denominator of each row that can be rounding: ‖φ(q)‖ A, or where channels have decayed by themselves
  // (Σ_c |q_c| A_c^{1/P})^P if that is less, by Minkowski's inequality. Nothing cancels among entries of one sign.
  void set_noise(const ScaledQueries<Scalar>& queries, bool pulls, bool divides, ColumnView<double> noise) const {
    if (!divides || entries_are_nonnegative()) return noise.setZero(), void();
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
  // Queries at time 0, but for the decay of the slowest channel, which is in the weight of the sums.
  void pull_to_time_0(MatrixView<Scalar> queries) {
    auto decays = memory_.fold.channels(queries.rows());
    DecayFactors::set_beside_slowest(decays, sums_.log_channels);
    for (Index i = 0; i < queries.cols(); ++i) multiply_entries(queries.col(i).data(), decays.data(), queries.rows());
  }
  // Recent keys decay as they are, but for what the slowest channel leaves of them, which is in their weights, and for
  // their lengths where channels have closed: a key that its own channels have forgotten must not set a row's level.
  void decay_channels(Segment range) {
    Eigen::VectorXd& log_a = memory_.log_channels;
    transition_.log_channel_totals(range, log_a);
    frames_.log_channels += log_a;
    sums_.log_channels += log_a;
    const double slowest = largest_gate(log_a);
    if (slowest == log2_zero) {
      recent_.exponents.head(recent_.size).setConstant(log2_zero);
    } else if (slowest != 0) {
      for (Index j = 0; j < recent_.size; ++j) {
        LogGate log{P * slowest};
        log.add(std::log(static_cast<double>(recent_.fractions[j])));
        const Weight weight(log);
        recent_.exponents[j] += weight.exponent;
        recent_.fractions[j] = static_cast<Scalar>(weight.fraction);
      }
    }
    if (slowest == log2_zero || gates_agree(log_a)) return;
    auto decays = memory_.fold.channels(log_a.size());
    DecayFactors::set_beside_slowest(decays, log_a);
    const bool shortens = sums_.log_channels.minCoeff() < least_log_decay;  // else they keep digits enough
    for (Index j = 0; j < recent_.size; ++j) {
      const ColumnView<Scalar> key(recent_.keys.col(j).data(), recent_.keys.rows());
      if (shortens)
        recent_.exponents[j] += P * normalize_product<Scalar>(key, key.data(), decays.data());
      else
        multiply_entries(key.data(), decays.data(), key.size());
    }
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
  Frame* frame_;
  bool is_few_, diagnoses_;
  std::optional<WeightedKeys<Scalar>> keys_;  // the recent ones, for scores
  Weight sums_weight_{LogGate{}};             // of the sums, seen now; no exponent without them
};

}  // namespace SYMPOW_NAMESPACE::detail
