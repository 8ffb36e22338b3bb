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
  std::vector<Segment> segments;                  ///< of a call
  Panel<Scalar> Y;                                ///< of a forward pass that nobody has saved,
  std::vector<RowSum> sums;                       ///< and its sums
  std::vector<StateContent<Scalar>> kept, group;  ///< states before some chunks, and those between two of them
};

/// The state before the first token or, one after the other, those before every so many tokens; and the adjoint state:
/// behind the last token, then before the first.
template <class Scalar>
struct CheckpointSource {
  Visitor<Index, StateContent<Scalar>&> load;  ///< load(n, at): at ← number n of them
  Index count, tokens_between;                 ///< whole chunks; none where there is one state
  Adjoint<Scalar>& adjoint;
  std::vector<StateReads<Scalar>>* reads = nullptr;  ///< of the rows of every chunk
};

/// What a pass back through states does: all of it; only have the rows read the states, and H become that before the
/// first token; or only take the state before the first token to behind the last.
enum class BackwardPart { all, rows, absorb };

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

  /// From the state before the first token, which is used up. Rows only read the states if it `reads_only`.
  void run(At first, bool reads_only) {
    auto* const reads = states_.reads;
    if (reads_only) reads->resize(call_.buffers.segments.size());
    if (segments_.is_absolute()) segments_.through() = states_.adjoint.gauge;
    if (call_.options.mask.is_full) return run_full(first);
    for_chunks(first, [&](At& before, Index n) {
      settle_channels(before.sums);
      before.sums.settle();
      segments_.segment.load_gates(range(n));
      segments_.load(before.frames.end, true, true);
      past_.begin(segments_, before.sums, reads == nullptr ? nullptr : &(*reads)[static_cast<std::size_t>(n)],
                  n > 0 || reads == nullptr || reads_only);
      if (reads_only)
        past_.take_rows(segments_);
      else
        segments_.go_back(past_);
    });
    if (reads_only) return;
    settle_channels(states_.adjoint.sums);
    if (segments_.is_absolute()) states_.adjoint.gauge = segments_.through();
  }
  /// A state before the first token goes to behind the last.
  void absorb_all(At& state) {
    for (const Segment& s : call_.buffers.segments) absorb(state, s);
  }

 private:
  // Of states that are kept where the call leaves it open, and of those whose memory stays for the next call.
  static constexpr double most_bytes = 128 << 20;

  [[nodiscard]] Segment range(Index n) const { return call_.buffers.segments[static_cast<std::size_t>(n)]; }
  // No decay of channels waits.
  void settle_channels(StateSums<Scalar>& sums) {
    if (sums.channels_decay()) fold<Scalar>(feature_, call_.buffers.state.fold, sums, {});
  }
  void absorb(At& state, Segment s) {
    StatePast<Scalar, F> past(call_.forward.state, feature_, *call_.transition, state, chunk_);
    segments_.segment.weigh_zero_keys(false);
    if (segments_.segment.load_gates(s)) past.reset();
    past.prepare(s.size);
    past.frame() = segments_.load(past.frame(), false, true, past.elapsed());
    past.take(segments_.segment);
    segments_.segment.weigh_zero_keys(true);
  }

  // State n ← x, in memory that is there if there is some.
  static At& set_at(std::vector<At>& states, std::size_t n, const At& x) {
    if (n < states.size())
      states[n] = x;
    else
      states.push_back(At(x));
    return states[n];
  }
  static At& copy_last(std::vector<At>& states, std::size_t n) { return set_at(states, n, states[n - 1]); }
  // visit(state before chunk n, n) from the last to the first.
  template <class Visit>
  void for_chunks(const At& first, const Visit& visit) {
    const Index count = std::ssize(call_.buffers.segments), every = spacing(count, first.sums);
    std::vector<Index> starts;  // of groups of chunks, before which a state is kept
    for (Index n = 0; n < count; ++n)
      if (states_.tokens_between > 0 ? range(n).begin % states_.tokens_between == 0 : n % every == 0)
        starts.push_back(n);
    auto& kept = call_.buffers.kept;
    auto& group = call_.buffers.group;
    for (std::vector<At>* states : {&kept, &group})
      if (!states->empty() && !states->front().has_sizes_of(first)) states->clear();
    set_at(group, 0, first);
    if (states_.count == 1) {
      set_at(kept, 0, first);
      for (std::size_t g = 1; g < starts.size(); ++g) {
        At& state = copy_last(kept, g);
        for (Index n = starts[g - 1]; n < starts[g]; ++n) absorb(state, range(n));
      }
    }
    for (std::size_t g = starts.size(); g-- > 0;) {
      const Index end = g + 1 < starts.size() ? starts[g + 1] : count;
      if (states_.count == 1)
        std::swap(group.front(), kept[g]);
      else
        states_.load(static_cast<Index>(g), group.front());
      for (Index n = starts[g] + 1; n < end; ++n)
        absorb(copy_last(group, static_cast<std::size_t>(n - starts[g])), range(n - 1));
      for (Index n = end; n-- > starts[g];) visit(group[static_cast<std::size_t>(n - starts[g])], n);
    }
    if (static_cast<double>(kept.size() + group.size()) * bytes_of(first.sums) > most_bytes)
      kept.clear(), group.clear();
  }
  [[nodiscard]] static double bytes_of(const StateSums<Scalar>& sums) {
    return static_cast<double>(sums.S.size() + sums.Z.size()) * sizeof(Scalar);
  }
  [[nodiscard]] Index spacing(Index chunks, const StateSums<Scalar>& sums) const {
    if (call_.options.checkpoint > 0) return call_.options.checkpoint;
    const double bytes = bytes_of(sums);
    Index every = 1;
    while (every * every<chunks&& static_cast<double>(chunks / every + every) * bytes> most_bytes) ++every;
    return every;
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
        segments_.segment.load_gates(range(n));
        segments_.load(starts[static_cast<std::size_t>(n)], with_rows, !with_rows);
        past_.begin(segments_, state.sums, nullptr, true);
        segments_.go_back(past_);
      }
    };
    auto absolute = segments_.through();
    absolute.setZero();
    take_back(true);
    const Eigen::VectorXd of_rows = absolute;  // to dμ, whose way goes by keys
    absolute.setZero();
    if (states_.adjoint.frame.size() == absolute.size()) absolute = states_.adjoint.frame;
    state.sums.clear();
    take_back(false);
    if constexpr (F::score == Score::embedded) states_.adjoint.gauge = absolute + of_rows;
  }

  const F& feature_;
  const BackwardCall<Scalar>& call_;
  const CheckpointSource<Scalar>& states_;
  Index tokens_, chunk_;
  SegmentBackward<Scalar, F> segments_;
  StateBackward<Scalar, F> past_;
};

/// The gradients of the forms, compiled once for a scalar type and a feature map as passes see it.
template <class Scalar, FeatureMap F>
struct BackwardPasses {
  using Call = BackwardCall<Scalar>;

  static void attention(const F& feature, const Call& call);
  /// `first` is the first of the states, and used up.
  static void from_states(const F& feature, const Call& call, const CheckpointSource<Scalar>& states, Index chunk,
                          StateContent<Scalar>& first, BackwardPart part = BackwardPart::all)
    requires has_embedding<F>;
};

/// Under a full mask rows come first and see all blocks, and then keys do.
template <class Scalar, FeatureMap F>
void BackwardPasses<Scalar, F>::attention(const F& feature, const Call& given) {
  using Segments = SegmentBackward<Scalar, F>;
  using Blocks = KeyBlocksBackward<Scalar, F>;
  Call call = given;
  if (call.saved.sums == nullptr && (call.rows != RowKind::sums || F::score == Score::exponential)) {
    auto& sums = call.buffers.sums;
    sums.resize(static_cast<std::size_t>(call.Q.cols()));
    const auto Y = call.buffers.Y(call.V.rows(), call.Q.cols());
    ForwardCall<Scalar> again{call.rows, call.transition, call.Q, call.K, call.V, call.options, Y};
    again.sums = sums.data();
    ForwardPasses<Scalar, F>::attention(feature, again, call.forward);
    call.saved = {sums.data(), Y.data()};
  }
  const Mask mask = call.options.mask;
  const Index tokens = std::max(call.K.cols(), call.Q.cols() == 0 ? 0 : call.Q.cols() + mask.offset);
  Segments segments(feature, call, call.buffers.segment, std::min(Blocks::block_tokens, std::max<Index>(tokens, 1)),
                    Segments::has_slope(feature));
  Blocks past(feature, call.buffers.blocks);
  past.load(segments, tokens);
  const auto take_back = [&](bool with_queries, bool with_keys) {
    segments.through().setZero();
    for (Index b = past.size(); b-- > 0;) {
      segments.segment.load_gates(past[b].tokens);
      segments.load(past[b].start, with_queries, with_keys);
      past.begin(b);
      segments.go_back(past);
    }
  };
  if (mask.is_full) take_back(true, false);
  take_back(!mask.is_full, true);
}
template <class Scalar, FeatureMap F>
void BackwardPasses<Scalar, F>::from_states(const F& feature, const Call& call, const CheckpointSource<Scalar>& states,
                                            Index chunk, StateContent<Scalar>& first, BackwardPart part)
  requires has_embedding<F>
{
  ChunkedBackward<Scalar, F> pass(feature, call, states, chunk);
  if (part == BackwardPart::absorb) return pass.absorb_all(first);
  pass.run(std::move(first), part == BackwardPart::rows);
}

}  // namespace SYMPOW_NAMESPACE::detail
