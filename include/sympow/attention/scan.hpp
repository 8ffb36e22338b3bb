// One long sequence on several threads: its segments, their states joined, and a scan over these.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/form_calls.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/core/parallel.hpp>
#include <sympow/rotation/turns.hpp>
#include <sympow/transition/transition_segment.hpp>

namespace SYMPOW_NAMESPACE {

// ---- The states of two adjacent segments as the state of both: what a parallel scan is made of

namespace detail {

/// Whether two frames are the same up to what sums in another order differ by.
inline bool same_coordinates(const Frame& a, const Frame& b) {
  constexpr double most = 1e-9;
  if (a.size() != b.size() || (!a.empty() && a.kind() != b.kind())) return false;
  const bool are_angles = a.kind() == Frame::angles;
  for (Index n = 0; n < a.size(); ++n) {
    const double x = a.numbers()[n], apart = x - b.numbers()[n];
    if (!(std::abs(are_angles ? reduced_angle(apart) : apart) <=
          (are_angles ? most : most * std::max(1.0, std::abs(x)))))
      return false;
  }
  return true;
}

/// A frame in a message.
inline std::string described(const Frame& frame) {
  return frame.empty() ? "that of a first token" : "one of " + std::to_string(frame.size()) + " " + frame.kind();
}

/// Throws unless the right state goes on where the left one ends.
template <class Scalar, class F>
void check_adjacent(const State<Scalar, F>& left, const State<Scalar, F>& right) {
  check_whole(left);
  check_whole(right);
  check_size("key dimension of the right state", right.key_dimension(), left.key_dimension(), "that of the left");
  check_size("value dimension of the right state", right.value_dimension(), left.value_dimension(), "that of the left");
  if (!same_feature(left.feature(), right.feature()))
    raise<FeatureMismatch>("merge: the right state was built with another feature map than the left one");
  const Frame &end = left.frame(), &start = right.start_frame();
  if (!same_coordinates(end, start))
    raise<FrameMismatch>("merge: the right state must be started at the left one's frame(), ", described(end),
                         "; it was started at ",
                         start.size() == end.size() && start.kind() == end.kind() ? "others" : described(start));
  const auto &of_left = StateAccess::content(left).frames, &of_right = StateAccess::content(right).frames;
  if (of_right.have_mixed() && !of_right.keep_product())
    raise<FrameMismatch>(
        "merge: the right state has dropped its key product, which takes the left one's sums over its tokens");
  const bool left_scaled = !left.log_channels().isZero(0), right_scaled = !right.log_channels().isZero(0);
  if ((left_scaled && of_right.have_mixed()) || (right_scaled && of_left.have_mixed()))
    raise<FrameMismatch>(
        "merge: one state was built under channel decay, the other under a Householder chain; the two do not commute");
}

}  // namespace detail

/// The state after `left`'s tokens and then `right`'s.
///
///     S = S_left A_right + S_right,   A_right the whole transition of the right segment, its first gate included
///
/// `right` must have been started at `left.frame()`: `State right(feature, d, e, tail, left.frame())`. Associative up
/// to rounding, so a prefix scan over segments works. The result's tail is empty. Cost: two copies and 5 (e + 1) D.
/// Throws `InterruptedState`, `ShapeMismatch` for other sizes, `FeatureMismatch` for another feature map and
/// `FrameMismatch` for another frame, or for channel decay beside a Householder chain; its numbers may differ by 1e-9,
/// as sums taken in another order do.
template <class Scalar, FiniteFeatureMap F>
[[nodiscard]] State<Scalar, F> merge(const State<Scalar, F>& left, const State<Scalar, F>& right) {
  detail::check_adjacent(left, right);
  State<Scalar, F> first = left, result = right;
  auto &before = detail::StateAccess::content(first), &after = detail::StateAccess::content(result);
  detail::fold_state(left.feature(), before);
  detail::fold_state(left.feature(), after);
  detail::add_state(left.feature(), before, after);
  return result;
}

}  // namespace SYMPOW_NAMESPACE

namespace SYMPOW_NAMESPACE::detail {

// ---- One long sequence on several threads: its segments, and a scan over their states

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
