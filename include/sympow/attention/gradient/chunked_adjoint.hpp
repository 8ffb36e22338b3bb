// A sequence on the way back, chunk by chunk from the last: the engine of the gradients of the chunked form.
#pragma once

#include <sympow/attention/gradient/chunk_adjoint.hpp>
#include <sympow/core/visitor.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A state in a sequence: all that the way back needs of it.
template <class Scalar>
struct StateAt {
  FoldedSums<Scalar> sums;
  Frame frame;
};

/// The state before the first token or, one after the other, those before every so many tokens; and the adjoint state:
/// behind the last token, then before the first.
template <class Scalar>
struct StatesOfVjp {
  Visitor<Index, StateAt<Scalar>&> load;  ///< load(n, at): at ← number n of them
  Index count, tokens_between;            ///< whole chunks; none where there is one state
  AdjointContent<Scalar>& adjoint;
  std::vector<ReadRows<Scalar>>* read = nullptr;  ///< what the rows of every chunk have read, from `rows` to `run`
};

/// Takes chunks back from the last to the first, each from the state before it. Of these every k-th is kept, if the
/// call does not have them, and the others are made again, `Options::checkpoint` = k; which makes no difference to a
/// bit. Under a full mask there is one state, behind all keys.
template <class Scalar, FeatureMap F>
class ChunkedAdjoint final : ChunkAdjoint<Scalar, F> {
  using Base = ChunkAdjoint<Scalar, F>;
  using Base::action_, Base::call_, Base::feature_, Base::gauge_, Base::loader_, Base::memory_, Base::own_;

 public:
  ChunkedAdjoint(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states)
      : Base(feature, call, states.adjoint), given_(states) {}

  /// By chunks of so many tokens, from the state before the first, which is used up.
  void run(Index chunk, StateAt<Scalar> first) {
    cut(chunk);
    if (call_.options.mask.is_full) return run_full(first);
    for_chunks(std::move(first), [&](StateAt<Scalar>& before, Index n) {
      load(before, n);
      ReadRows<Scalar>* read = given_.read == nullptr ? nullptr : &(*given_.read)[static_cast<std::size_t>(n)];
      Base::take_back(before.sums, before.frame, read, n > 0 || read == nullptr);
    });
  }
  /// Only has the rows read the states and go into H, which is that before the first chunk then.
  void run_rows(Index chunk, StateAt<Scalar> first) {
    cut(chunk);
    given_.read->resize(own_.segments.size());
    for_chunks(std::move(first), [&](StateAt<Scalar>& before, Index n) {
      load(before, n);
      Base::take_rows(before.sums, (*given_.read)[static_cast<std::size_t>(n)]);
    });
  }
  /// A state before the first token goes to behind the last.
  void absorb_all(Index chunk, StateAt<Scalar>& state) {
    cut(chunk);
    for (const Segment& s : own_.segments) absorb(state, s);
  }

 private:
  // visit(state before chunk n, n) from the last to the first.
  template <class Visit>
  void for_chunks(StateAt<Scalar> first, const Visit& visit) {
    const std::vector<Index> starts = starts_of_groups(first.sums);
    std::vector<StateAt<Scalar>> kept, group;  // the memory of its states is used again
    if (given_.count == 1) kept = states_at(starts, first);
    group.push_back(std::move(first));
    Index end = std::ssize(own_.segments);
    for (std::size_t g = starts.size(); g-- > 0; end = starts[g]) {
      if (given_.count == 1)
        std::swap(group.front(), kept[g]);
      else
        given_.load(static_cast<Index>(g), group.front());
      for (Index n = starts[g]; n + 1 < end; ++n) {
        const auto next = static_cast<std::size_t>(n + 1 - starts[g]);
        if (next == group.size())
          group.push_back(group.back());
        else
          group[next] = group[next - 1];
        absorb(group[next], segment(n));
      }
      for (Index n = end; n-- > starts[g];) visit(group[static_cast<std::size_t>(n - starts[g])], n);
    }
  }

  // All rows read the state behind all keys and go into H, which then all keys read.
  void run_full(StateAt<Scalar>& state) {
    std::vector<Frame> starts;
    for (const Segment& s : own_.segments) {
      starts.push_back(state.frame);
      absorb(state, s);
    }
    const auto take_back_all = [&](bool rows) {
      for (Index n = std::ssize(own_.segments); n-- > 0;) {
        const Segment s = loader_.load_gates(segment(n)), none{s.begin, 0};
        const Frame& start = starts[static_cast<std::size_t>(n)];
        Frame frame = start;
        Base::load(s, frame, rows ? Base::query_tokens(s) : none, rows ? none : Base::key_tokens(s));
        Base::take_back(state.sums, start);
      }
    };
    const Eigen::VectorXd gauge = gauge_;
    gauge_.setZero();
    take_back_all(true);
    const Eigen::VectorXd of_rows = gauge_;  // to dμ, whose way goes by keys
    gauge_ = given_.adjoint.frame;
    state.sums.clear();
    take_back_all(false);
    if constexpr (Base::is_embedded)
      gauge_ += of_rows;
    else
      gauge_ = gauge;
  }
  static constexpr double most_bytes = 128 << 20;  // of states that are kept where the call leaves it open

  [[nodiscard]] Segment segment(Index n) const { return own_.segments[static_cast<std::size_t>(n)]; }

  // Chunks, and where numbers end or a gate is 0 parts of them: nothing decays much over a segment, and no gate is 0
  // from its second token on.
  void cut(Index chunk) {
    const Index tokens = tokens_of(call_.Q, call_.K, call_.options.mask);
    chunk = std::max<Index>(1, std::min(chunk, tokens));
    Base::reserve(chunk);
    own_.segments.clear();
    for (Index t = 0; t < tokens;) {
      Segment some = loader_.load_gates({t, std::min(chunk - t % chunk, tokens - t)});
      some.size = loader_.tokens_within(least_log_decay);
      while (some.size > 1 && !(Base::slowest_channel(some) >= least_log_decay)) some.size /= 2;
      own_.segments.push_back(some);
      t = some.end();
    }
  }

  // The segments before which a state is kept.
  [[nodiscard]] std::vector<Index> starts_of_groups(const FoldedSums<Scalar>& sums) const {
    const Index count = std::ssize(own_.segments), every = spacing(count, sums), between = given_.tokens_between;
    std::vector<Index> starts;
    for (Index n = 0; n < count; ++n)
      if (between > 0 ? segment(n).begin % between == 0 : n % every == 0) starts.push_back(n);
    return starts;
  }
  [[nodiscard]] Index spacing(Index chunks, const FoldedSums<Scalar>& sums) const {
    if (call_.options.checkpoint > 0) return call_.options.checkpoint;
    const double bytes = static_cast<double>((sums.S.size() + sums.Z.size())) * sizeof(Scalar);
    Index every = 1;
    while (every * every<chunks&& static_cast<double>(chunks / every + every) * bytes> most_bytes) ++every;
    return every;
  }
  // The states before these segments.
  std::vector<StateAt<Scalar>> states_at(const std::vector<Index>& starts, const StateAt<Scalar>& first) {
    std::vector<StateAt<Scalar>> states;
    if (starts.empty()) return states;
    states.reserve(starts.size());
    states.push_back(first);
    for (std::size_t g = 1; g < starts.size(); ++g) {
      states.push_back(states.back());
      for (Index n = starts[g - 1]; n < starts[g]; ++n) absorb(states.back(), segment(n));
    }
    return states;
  }

  void absorb(StateAt<Scalar>& state, Segment s) {
    loader_.load_gates(s);
    if (loader_.begins_anew()) state.sums.clear();
    Base::load(s, state.frame, {s.begin, 0}, Base::key_tokens(s));
    const Keys<Scalar> keys = loader_.keys();
    if constexpr (keys_are_features<F>)
      if (action_ == KeyAction::mix) {
        call_.transition.push(s, Batch<Scalar>(state.sums.Z));
        call_.transition.advance(s, Batch<Scalar>(state.sums.S));
      }
    const auto none = Keys<Scalar>::none(keys.vectors.rows(), call_.V.rows());
    state.sums.forget(loader_.total().high, loader_.log_channels(s, memory_.log_channels));
    state.sums.absorb(feature_, memory_.fold, none, {}, keys, loader_.rest());
  }

  void load(const StateAt<Scalar>& before, Index n) {
    const Segment s = loader_.load_gates(segment(n));
    Frame frame = before.frame;
    Base::load(s, frame, s, s);
  }

  const StatesOfVjp<Scalar>& given_;
};

/// The gradients of the chunked form, compiled once for a scalar type and a feature map.
template <class Scalar, FeatureMap F>
struct ChunkedVjp {
  /// `first` is the first of the states, and used up.
  static void run(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states, Index chunk,
                  StateAt<Scalar> first);
  /// A state before the first token goes to behind the last.
  static void absorb(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states, Index chunk,
                     StateAt<Scalar>& state);
  /// H ← that before the first token, of these tokens' rows and of what it is behind them. `run` does the rest.
  static void rows(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states, Index chunk,
                   StateAt<Scalar> first);
};
template <class Scalar, FeatureMap F>
void ChunkedVjp<Scalar, F>::run(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states,
                                Index chunk, StateAt<Scalar> first) {
  if constexpr (is_own_embedded<Scalar, F>)
    ChunkedVjp<Scalar, EmbeddedFeature<Scalar>>::run(EmbeddedFeatureOf<Scalar, F>(feature), call, states, chunk,
                                                     std::move(first));
  else
    ChunkedAdjoint<Scalar, F>(feature, call, states).run(chunk, std::move(first));
}
template <class Scalar, FeatureMap F>
void ChunkedVjp<Scalar, F>::absorb(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states,
                                   Index chunk, StateAt<Scalar>& state) {
  if constexpr (is_own_embedded<Scalar, F>)
    ChunkedVjp<Scalar, EmbeddedFeature<Scalar>>::absorb(EmbeddedFeatureOf<Scalar, F>(feature), call, states, chunk,
                                                        state);
  else
    ChunkedAdjoint<Scalar, F>(feature, call, states).absorb_all(chunk, state);
}

template <class Scalar, FeatureMap F>
void ChunkedVjp<Scalar, F>::rows(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states,
                                 Index chunk, StateAt<Scalar> first) {
  if constexpr (is_own_embedded<Scalar, F>)
    ChunkedVjp<Scalar, EmbeddedFeature<Scalar>>::rows(EmbeddedFeatureOf<Scalar, F>(feature), call, states, chunk,
                                                      std::move(first));
  else
    ChunkedAdjoint<Scalar, F>(feature, call, states).run_rows(chunk, std::move(first));
}

}  // namespace SYMPOW_NAMESPACE::detail
