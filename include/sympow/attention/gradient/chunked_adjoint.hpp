// A sequence on the way back, chunk by chunk from the last: the engine of the gradients of the chunked form.
#pragma once

#include <sympow/attention/gradient/chunk_adjoint.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A state in a sequence: all that the way back needs of it.
template <class Scalar>
struct StateAt {
  FoldedSums<Scalar> sums;
  Frame frame;
};

/// The state before the first token, and the adjoint state: behind the last token, then before the first.
template <class Scalar>
struct StatesOfVjp {
  StateAt<Scalar>& state;
  AdjointContent<Scalar>& adjoint;
};

/// Takes chunks back from the last to the first, each from the state before it. Of these every k-th is kept and the
/// others are made again, `Options::checkpoint` = k; which makes no difference to a bit.
template <class Scalar, FeatureMap F>
class ChunkedAdjoint final : ChunkAdjoint<Scalar, F> {
  using Base = ChunkAdjoint<Scalar, F>;
  using Base::action_, Base::call_, Base::feature_, Base::loader_, Base::memory_, Base::own_;

 public:
  ChunkedAdjoint(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states)
      : Base(feature, call, states.adjoint), state_(states.state) {}

  /// By chunks of so many tokens. The state becomes any of those of the sequence.
  void run(Index chunk) {
    const Index tokens = call_.K.cols();
    chunk = std::max<Index>(1, std::min(chunk, tokens));
    Base::reserve(chunk);
    cut(tokens, chunk);
    const Index count = std::ssize(own_.segments), every = spacing(count);
    std::vector<StateAt<Scalar>> kept;
    for (Index n = 0; n < count; ++n) {
      if (n % every == 0) kept.push_back(state_);
      if (n + 1 < count) absorb(state_, segment(n));
    }
    std::vector<StateAt<Scalar>> group;
    for (Index end = count; end > 0; end = (end - 1) / every * every) {
      const Index first = (end - 1) / every * every;
      group.push_back(std::move(kept.back()));
      kept.pop_back();
      for (Index n = first; n + 1 < end; ++n) {
        StateAt<Scalar> next = group.back();
        absorb(next, segment(n));
        group.push_back(std::move(next));
      }
      for (Index n = end; n-- > first; group.pop_back()) take_back(group.back(), segment(n));
    }
  }
  /// The state behind the last token.
  void absorb_all(Index chunk) {
    const Index tokens = call_.K.cols();
    chunk = std::max<Index>(1, std::min(chunk, tokens));
    Base::reserve(chunk);
    cut(tokens, chunk);
    for (const Segment& s : own_.segments) absorb(state_, s);
  }

 private:
  static constexpr double most_bytes = 128 << 20;  // of states that are kept where the call leaves it open

  [[nodiscard]] Segment segment(Index n) const { return own_.segments[static_cast<std::size_t>(n)]; }

  // Chunks over which nothing decays so much that numbers end, and from whose second token on no gate is 0.
  void cut(Index tokens, Index chunk) {
    own_.segments.clear();
    for (Segment rest{0, tokens}; rest.size > 0;) {
      Segment some = loader_.load_gates({rest.begin, std::min(chunk, rest.size)});
      some.size = loader_.tokens_within(least_log_decay);
      while (some.size > 1 && !(Base::slowest_channel(some) >= least_log_decay)) some.size /= 2;
      own_.segments.push_back(some);
      rest = {some.end(), rest.size - some.size};
    }
  }

  // Every how many chunks a state is kept.
  [[nodiscard]] Index spacing(Index chunks) const {
    if (call_.options.checkpoint > 0) return call_.options.checkpoint;
    const double bytes = static_cast<double>((state_.sums.S.size() + state_.sums.Z.size())) * sizeof(Scalar);
    Index every = 1;
    while (every * every < chunks && static_cast<double>(chunks / every + every) * bytes > most_bytes) ++every;
    return every;
  }

  void absorb(StateAt<Scalar>& state, Segment s) {
    loader_.load_gates(s);
    if (loader_.begins_anew()) state.sums.clear();
    Base::load(s, state.frame, {s.begin, 0}, s);
    const Keys<Scalar> keys = loader_.keys();
    if constexpr (keys_are_features<F>)
      if (action_ == KeyAction::mix) {
        call_.transition.push(s, Batch<Scalar>(state.sums.Z));
        call_.transition.advance(s, Batch<Scalar>(state.sums.S));
      }
    const auto none = Keys<Scalar>::none(keys.vectors.rows(), call_.V.rows());
    state.sums.forget(loader_.total().high, Base::log_channels(s));
    state.sums.absorb(feature_, memory_.fold, none.vectors, none, {}, keys, loader_.rest(),
                      [](Index, const Entries<Scalar>&) {});
  }

  void take_back(StateAt<Scalar>& before, Segment s) {
    loader_.load_gates(s);
    Frame frame = before.frame;
    Base::load(s, frame, s, s);
    Base::take_back(before.sums, before.frame);
  }

  StateAt<Scalar>& state_;
};

/// The gradients of the chunked form, compiled once for a scalar type and a feature map.
template <class Scalar, FeatureMap F>
struct ChunkedVjp {
  static void run(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states, Index chunk);
  /// The state goes to behind the last token.
  static void absorb(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states, Index chunk);
};
template <class Scalar, FeatureMap F>
void ChunkedVjp<Scalar, F>::run(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states,
                                Index chunk) {
  if constexpr (is_own_embedded<Scalar, F>)
    ChunkedVjp<Scalar, EmbeddedFeature<Scalar>>::run(EmbeddedFeatureOf<Scalar, F>(feature), call, states, chunk);
  else
    ChunkedAdjoint<Scalar, F>(feature, call, states).run(chunk);
}
template <class Scalar, FeatureMap F>
void ChunkedVjp<Scalar, F>::absorb(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states,
                                   Index chunk) {
  if constexpr (is_own_embedded<Scalar, F>)
    ChunkedVjp<Scalar, EmbeddedFeature<Scalar>>::absorb(EmbeddedFeatureOf<Scalar, F>(feature), call, states, chunk);
  else
    ChunkedAdjoint<Scalar, F>(feature, call, states).absorb_all(chunk);
}

}  // namespace SYMPOW_NAMESPACE::detail
