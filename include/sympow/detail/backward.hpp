// The way back of every form: the segments of the forward pass from the last to the first.
#pragma once

#include <sympow/core/visitor.hpp>
#include <sympow/detail/forward.hpp>
#include <sympow/detail/key_blocks_backward.hpp>
#include <sympow/detail/state_backward.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The scratch memory of the way back.
template <class Scalar>
struct BackwardBuffers {
  SegmentBackwardBuffers<Scalar> segment;
  KeyBlocksBackwardBuffers<Scalar> blocks;
  StateBackwardBuffers<Scalar> state;
  std::vector<Segment> segments;  ///< of a call
  Panel<Scalar> Y;                ///< of a forward pass that nobody has saved,
  std::vector<RowSum> sums;       ///< and its sums
};

/// The gradients of the attention form, of rows that the forward pass has left. Under a full mask rows come first and
/// see all blocks, and then keys do.
template <class Scalar, FeatureMap F>
void attention_backward(const F& feature, const BackwardCall<Scalar>& call) {
  using Segments = SegmentBackward<Scalar, F>;
  using Blocks = KeyBlocksBackward<Scalar, F>;
  const Mask mask = call.options.mask;
  const Index tokens = std::max(call.K.cols(), call.Q.cols() == 0 ? 0 : call.Q.cols() + mask.offset);
  Segments segments(feature, call, call.buffers.segment, std::min(Blocks::block_tokens, std::max<Index>(tokens, 1)),
                    Segments::has_slope(feature));
  Blocks past(feature, call.buffers.blocks);
  past.load(segments, tokens);
  const auto take_back = [&](bool with_queries, bool with_keys) {
    segments.absolute_through().setZero();
    for (Index b = past.size(); b-- > 0;) {
      const Segment range = past[b].tokens, none{range.begin, 0};
      segments.segment.load_gates(range);
      Frame frame = past[b].start;
      segments.load(frame, with_queries ? query_tokens(call, range) : none, with_keys ? key_tokens(call, range) : none);
      past.begin(b);
      segments.go_back(past, past[b].start);
    }
  };
  if (mask.is_full) take_back(true, false);
  take_back(!mask.is_full, true);
}

/// The state before the first token or, one after the other, those before every so many tokens; and the adjoint state:
/// behind the last token, then before the first.
template <class Scalar>
struct CheckpointSource {
  Visitor<Index, StateContent<Scalar>&> load;  ///< load(n, at): at ← number n of them
  Index count, tokens_between;                 ///< whole chunks; none where there is one state
  Adjoint<Scalar>& adjoint;
  std::vector<StateReads<Scalar>>* reads = nullptr;  ///< of the rows of every chunk
};

/// The gradients of a state form: chunks from the last to the first, each from the state before it. Of these every k-th
/// is kept, if the call does not have them, and the others are made again, `Options::checkpoint` = k; which makes no
/// difference to a bit. Under a full mask there is one state, behind all keys.
template <class Scalar, FeatureMap F>
class ChunkedBackward {
  using At = StateContent<Scalar>;

 public:
  ChunkedBackward(const F& feature, const BackwardCall<Scalar>& call, const CheckpointSource<Scalar>& states,
                  Index chunk)
      : feature_(feature),
        call_(call),
        states_(states),
        tokens_(std::max(call.K.cols(), call.Q.cols())),
        chunk_(std::clamp<Index>(chunk, 1, std::max<Index>(tokens_, 1))),
        segments_(feature, call, call.buffers.segment, chunk_, false),
        past_(feature, call.buffers.state, states.adjoint) {
    past_.reserve(segments_, chunk_);
    auto& gauge = states.adjoint.gauge;
    if (segments_.action() == KeyAction::turn && gauge.size() != segments_.flows_through())
      gauge.setZero(segments_.flows_through());
    if (!call.options.mask.is_full)
      segments_.segment.limit_decay(4 * KeyScales<Scalar>::most_apart);  // few passes for all rows
    auto& ranges = call.buffers.segments;
    ranges.clear();
    for (Index t = 0; t < tokens_; t = ranges.back().end()) {
      segments_.segment.load_gates({t, std::min(chunk_ - t % chunk_, tokens_ - t)});
      ranges.push_back(segments_.segment.range());
    }
  }

  /// From the state before the first token, which is used up.
  void run(At first) {
    if (segments_.is_absolute()) segments_.absolute_through() = states_.adjoint.gauge;
    if (call_.options.mask.is_full) return run_full(first);
    for_chunks(std::move(first), [&](At& before, Index n) {
      auto* reads = states_.reads == nullptr ? nullptr : &(*states_.reads)[static_cast<std::size_t>(n)];
      load(before, n);
      past_.begin(segments_, before.sums, reads, n > 0 || reads == nullptr);
      segments_.go_back(past_, before.frames.end);
    });
    past_.settle_channels();
    if (segments_.is_absolute()) states_.adjoint.gauge = segments_.absolute_through();
  }
  /// Only has the rows read the states and go into H, which is that before the first chunk then.
  void run_rows(At first) {
    states_.reads->resize(call_.buffers.segments.size());
    for_chunks(std::move(first), [&](At& before, Index n) {
      load(before, n);
      past_.begin(segments_, before.sums, &(*states_.reads)[static_cast<std::size_t>(n)], true);
      segments_.find_rows(past_);
      past_.take_rows(segments_);
    });
  }
  /// A state before the first token goes to behind the last.
  void absorb_all(At& state) {
    for (const Segment& s : call_.buffers.segments) absorb(state, s);
  }

 private:
  static constexpr double most_bytes = 128 << 20;  // of states that are kept where the call leaves it open

  [[nodiscard]] Segment range(Index n) const { return call_.buffers.segments[static_cast<std::size_t>(n)]; }
  // Chunk n behind a state.
  void load(At& before, Index n) {
    if (before.sums.channels_decay()) fold<Scalar>(feature_, call_.buffers.state.fold, before.sums, {});
    before.sums.settle();
    segments_.segment.load_gates(range(n));
    Frame frame = before.frames.end;
    segments_.load(frame, range(n), range(n));
  }
  void absorb(At& state, Segment s) {
    StatePast<Scalar, F> past(call_.forward.state, feature_, call_.transition, state, chunk_, false);
    segments_.segment.weigh_zero_keys(false);
    if (segments_.segment.load_gates(s)) past.reset();
    segments_.load(past.frame(), {s.begin, 0}, key_tokens(call_, s), past.elapsed());
    past.take(segments_.segment);
    segments_.segment.weigh_zero_keys(true);
  }

  // visit(state before chunk n, n) from the last to the first.
  template <class Visit>
  void for_chunks(At first, const Visit& visit) {
    const std::vector<Index> starts = starts_of_groups(first.sums);
    std::vector<At> kept, group;  // the memory of its states is used again
    if (states_.count == 1) kept = states_at(starts, first);
    group.push_back(std::move(first));
    Index end = std::ssize(call_.buffers.segments);
    for (std::size_t g = starts.size(); g-- > 0; end = starts[g]) {
      if (states_.count == 1)
        std::swap(group.front(), kept[g]);
      else
        states_.load(static_cast<Index>(g), group.front());
      for (Index n = starts[g]; n + 1 < end; ++n) {
        const auto next = static_cast<std::size_t>(n + 1 - starts[g]);
        if (next == group.size())
          group.push_back(group.back());
        else
          group[next] = group[next - 1];
        absorb(group[next], range(n));
      }
      for (Index n = end; n-- > starts[g];) visit(group[static_cast<std::size_t>(n - starts[g])], n);
    }
  }
  // The segments before which a state is kept.
  [[nodiscard]] std::vector<Index> starts_of_groups(const StateSums<Scalar>& sums) const {
    const Index count = std::ssize(call_.buffers.segments), every = spacing(count, sums);
    std::vector<Index> starts;
    for (Index n = 0; n < count; ++n)
      if (states_.tokens_between > 0 ? range(n).begin % states_.tokens_between == 0 : n % every == 0)
        starts.push_back(n);
    return starts;
  }
  [[nodiscard]] Index spacing(Index chunks, const StateSums<Scalar>& sums) const {
    if (call_.options.checkpoint > 0) return call_.options.checkpoint;
    const double bytes = static_cast<double>(sums.S.size() + sums.Z.size()) * sizeof(Scalar);
    Index every = 1;
    while (every * every<chunks&& static_cast<double>(chunks / every + every) * bytes> most_bytes) ++every;
    return every;
  }
  // The states before these segments.
  std::vector<At> states_at(const std::vector<Index>& starts, const At& first) {
    std::vector<At> states;
    if (starts.empty()) return states;
    states.reserve(starts.size());
    states.push_back(first);
    for (std::size_t g = 1; g < starts.size(); ++g) {
      states.push_back(states.back());
      for (Index n = starts[g - 1]; n < starts[g]; ++n) absorb(states.back(), range(n));
    }
    return states;
  }
  // All rows read the state behind all keys and go into H, which then all keys read.
  void run_full(At& state) {
    std::vector<Frame> starts;
    for (const Segment& s : call_.buffers.segments) {
      starts.push_back(state.frames.end);
      absorb(state, s);
    }
    state.sums.settle();
    const auto take_back = [&](bool with_rows) {
      for (Index n = std::ssize(call_.buffers.segments); n-- > 0;) {
        const Segment s = range(n), none{s.begin, 0};
        segments_.segment.load_gates(s);
        Frame frame = starts[static_cast<std::size_t>(n)];
        segments_.load(frame, with_rows ? query_tokens(call_, s) : none, with_rows ? none : key_tokens(call_, s));
        past_.begin(segments_, state.sums, nullptr, true);
        segments_.go_back(past_, starts[static_cast<std::size_t>(n)]);
      }
    };
    Eigen::VectorXd& gauge = states_.adjoint.gauge;
    const Eigen::VectorXd given = gauge;
    segments_.absolute_through().setZero();
    take_back(true);
    const Eigen::VectorXd of_rows = segments_.absolute_through();  // to dμ, whose way goes by keys
    auto absolute = segments_.absolute_through();
    absolute.setZero();
    if (states_.adjoint.frame.size() == absolute.size()) absolute = states_.adjoint.frame;
    state.sums.clear();
    take_back(false);
    if constexpr (F::score == Score::embedded)
      gauge = absolute + of_rows;
    else
      gauge = given;
  }

  const F& feature_;
  const BackwardCall<Scalar>& call_;
  const CheckpointSource<Scalar>& states_;
  Index tokens_, chunk_;
  SegmentBackward<Scalar, F> segments_;
  StateBackward<Scalar, F> past_;
};

/// The gradients of the forms, compiled once for a scalar type and a feature map. A map without an embedding has no
/// state.
template <class Scalar, FeatureMap F>
struct BackwardPasses {
  using Call = BackwardCall<Scalar>;
  using States = CheckpointSource<Scalar>;

  static void attention(const F& feature, const Call& call);
  /// `first` is the first of the states, and used up.
  static void chunked(const F& feature, const Call& call, const States& states, Index chunk, StateContent<Scalar> first)
    requires has_embedding<F>;
  /// A state before the first token goes to behind the last.
  static void absorb(const F& feature, const Call& call, const States& states, Index chunk, StateContent<Scalar>& state)
    requires has_embedding<F>;
  /// H ← that before the first token, of these tokens' rows and of what it is behind them. `chunked` does the rest.
  static void rows(const F& feature, const Call& call, const States& states, Index chunk, StateContent<Scalar> first)
    requires has_embedding<F>;
};
/// Those of embedded scores are compiled for their interface.
template <class Scalar, FeatureMap F>
  requires is_own_embedded<Scalar, F>
struct BackwardPasses<Scalar, F> {};

template <class Scalar, FeatureMap F>
void BackwardPasses<Scalar, F>::attention(const F& feature, const Call& call) {
  Call with_rows = call;
  if (call.saved.sums == nullptr && (call.rows != RowKind::sums || F::score == Score::exponential)) {
    auto& sums = call.buffers.sums;
    sums.resize(static_cast<std::size_t>(call.Q.cols()));
    const auto Y = call.buffers.Y(call.V.rows(), call.Q.cols());
    ForwardPasses<Scalar, F>::attention(feature, {.transition = call.transition,
                                                  .rows = call.rows,
                                                  .options = call.options,
                                                  .Q = call.Q,
                                                  .K = call.K,
                                                  .V = call.V,
                                                  .Y = Y,
                                                  .memory = call.forward,
                                                  .sums = sums.data()});
    with_rows.saved = {sums.data(), Y.data()};
  }
  attention_backward(feature, with_rows);
}
template <class Scalar, FeatureMap F>
void BackwardPasses<Scalar, F>::chunked(const F& feature, const Call& call, const States& states, Index chunk,
                                        StateContent<Scalar> first)
  requires has_embedding<F>
{
  ChunkedBackward<Scalar, F>(feature, call, states, chunk).run(std::move(first));
}
template <class Scalar, FeatureMap F>
void BackwardPasses<Scalar, F>::absorb(const F& feature, const Call& call, const States& states, Index chunk,
                                       StateContent<Scalar>& state)
  requires has_embedding<F>
{
  ChunkedBackward<Scalar, F>(feature, call, states, chunk).absorb_all(state);
}
template <class Scalar, FeatureMap F>
void BackwardPasses<Scalar, F>::rows(const F& feature, const Call& call, const States& states, Index chunk,
                                     StateContent<Scalar> first)
  requires has_embedding<F>
{
  ChunkedBackward<Scalar, F>(feature, call, states, chunk).run_rows(std::move(first));
}

}  // namespace SYMPOW_NAMESPACE::detail
