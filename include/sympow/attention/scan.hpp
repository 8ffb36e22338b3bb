// One long sequence on several threads: its segments, and a scan over their states.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <sympow/attention/form_calls.hpp>
#include <sympow/attention/merge.hpp>
#include <sympow/core/parallel.hpp>
#include <sympow/transition/transition_segment.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Moves the frame to the end of a segment: by `advance_frame` of the transition, or else by turning zeros.
template <class Scalar>
void advance_frame(const TransitionView<Scalar>& transition, Frame& frame, Segment segment, Index d,
                   Workspace<Scalar>& work) {
  if (transition.advance_frame(frame, segment) || transition.key_action() != KeyAction::turn) return;
  SegmentBuffers<Scalar>& memory = memory_of(work).segment;
  auto queries = memory.queries(d, segment.size), keys = memory.keys(d, segment.size);
  queries.setZero();
  keys.setZero();
  transition.to_segment_frame(frame, segment, Batch<Scalar>(queries), Batch<Scalar>(keys), no_logits<Scalar>());
}

/// Folds the tail of a state and gives it another size.
template <class Scalar, class F>
void set_tail(State<Scalar, F>& state, Index tail) {
  fold_state(state.feature(), StateAccess::content(state));
  StateAccess::content(state).sums.recent.clear(tail);
}

/// A state of nothing, from these coordinates on, without a tail; the memory of its sums stays.
template <class Scalar, class F>
void clear(State<Scalar, F>& state, const Frame& from) {
  auto& [sums, frames, interrupted] = StateAccess::content(state);
  sums.clear();
  sums.recent.clear(0);
  frames = {};
  frames.start = frames.end = from;
  frames.log_channels.setZero(state.key_dimension());
}

/// The chunked form of one sequence by segments of whole chunks, `options.chunk` each, on several threads. With state s
/// that before segment s, part s that of its tokens alone:
///
///     absorb    part s from nothing, in the coordinates of segment s                 half of the work
///     merge     state s + 1 from state s and part s                                   the only chain
///     read      the outputs of segment s from state s and directly, keeping tokens   the other half
///               in a tail as long as the segment, so that nothing is folded twice
///
/// Nothing depends on the number of threads but which of them does what: results are the same bit for bit. Segments go
/// through the three steps by windows, each step a window behind the one before, so that a round is many independent
/// jobs on few states; memory: four windows of states. Work beside the chunked form's own: the merges, 5 (e + 1) D a
/// segment, tails, T · segment (d + e), and the angles of what turns keys, which both halves need. At d = e = 64, P = 2
/// in float and 65,536 tokens 3.0 µs a token become 3.4 on one thread and 1.8 on two. (To give each thread some of the
/// e values instead is simpler, but repeats embeddings and logits: 1.4 times the speed on two threads.)
template <class F, class Scalar>
void scan(const FormInputs<Scalar, F>& x, State<Scalar, F>& state, Batch<Scalar> Y, Workspaces<Scalar>& workspaces,
          const Threads& threads) {
  using StateType = State<Scalar, F>;
  using Forms = FormCalls<Scalar, F>;
  const Index T = x.Q.cols(), d = x.Q.rows(), e = x.V.rows(),
              size = scanned_segment(x.feature.dimension(d), x.options.chunk), segments = (T + size - 1) / size;
  const auto segment = [&](Index s) { return Segment{s * size, std::min(size, T - s * size)}; };
  const Index window = std::max(4, 2 * threads.count), windows = (segments + window - 1) / window;
  if (workspaces.empty()) workspaces.resize(1);

  std::vector<Frame> frames{state.frame()};
  for (Index s = 0; s + 1 < segments; ++s) {
    frames.push_back(frames.back());
    advance_frame(x.transition, frames.back(), segment(s), d, workspaces[0]);
  }
  StateType blank(x.feature, d, e, 0);
  blank.read_as_bf16(state.reads_as_bf16());
  std::vector<StateType> parts(static_cast<std::size_t>(std::min(segments, 2 * window)), blank),
      states(parts.size() + 1, blank);
  const auto part = [&](Index s) -> StateType& { return parts[static_cast<std::size_t>(s) % parts.size()]; };
  const auto before = [&](Index s) -> StateType& { return states[static_cast<std::size_t>(s) % states.size()]; };
  before(0) = state;
  set_tail(before(0), 0);

  const auto absorb_one = [&](Index s, Workspace<Scalar>& work) {
    clear(part(s), frames[static_cast<std::size_t>(s)]);
    const Segment own = segment(s);
    Forms::run_from_state(
        Form::chunked,
        {RowKind::sums, x.feature, SegmentView<Scalar>(x.transition, own), x.K.middleCols(own.begin, own.size),
         x.K.middleCols(own.begin, own.size), x.V.middleCols(own.begin, own.size), x.options},
        part(s), {}, work);
  };
  const auto merge_one = [&](Index s) {
    check_adjacent(before(s), part(s));
    add_state(x.feature, StateAccess::content(before(s)), StateAccess::content(part(s)));
    std::swap(before(s + 1), part(s));
  };
  const auto read_one = [&](Index s, Workspace<Scalar>& work) {
    const Segment own = segment(s);
    set_tail(before(s), own.size);
    before(s).drop_key_product();  // it has been merged
    Batch<Scalar> rows = Y.middleCols(own.begin, own.size);
    Forms::run_from_state(
        Form::chunked,
        {x.kind, x.feature, SegmentView<Scalar>(x.transition, own), x.Q.middleCols(own.begin, own.size),
         x.K.middleCols(own.begin, own.size), x.V.middleCols(own.begin, own.size), x.options, x.group},
        before(s), rows, work);
  };
  const auto of_window = [&](Index w) {
    return w < 0 || w >= windows ? Segment{} : Segment{w * window, std::min(window, segments - w * window)};
  };
  for (Index round = 0; round < windows + 2; ++round) {
    const Segment absorbed = of_window(round), merged = of_window(round - 1), read = of_window(round - 2);
    parallel_for(1 + absorbed.size + read.size, threads, workspaces, [&](Index n, Workspace<Scalar>& work) {
      if (n == 0)
        for (Index s = merged.begin; s < merged.end(); ++s) merge_one(s);
      else if (n <= read.size)
        read_one(read.begin + n - 1, work);
      else
        absorb_one(absorbed.begin + n - 1 - read.size, work);
    });
  }
  set_tail(before(segments), state.tail_capacity());
  state = std::move(before(segments));
}

}  // namespace SYMPOW_NAMESPACE::detail
