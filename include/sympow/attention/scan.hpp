// One long sequence on several threads: its segments, their states joined, and a scan over these.
#pragma once

#include <algorithm>
#include <utility>

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/form_calls.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/core/windows.hpp>
#include <sympow/transition/transition_segment.hpp>

namespace SYMPOW_NAMESPACE {

// ---- The states of two adjacent segments as the state of both: what a parallel scan is made of

namespace detail {

/// Throws unless the right state goes on where the left one ends.
template <class Scalar>
void check_adjacent(const StateContent<Scalar>& left, const StateContent<Scalar>& right, bool same_feature) {
  check_whole(left);
  check_whole(right);
  check_size("key dimension of the right state", right.key_dimension(), left.key_dimension(), "that of the left");
  check_size("value dimension of the right state", right.sums.value_rows(), left.sums.value_rows(), "that of the left");
  if (!same_feature)
    raise<FeatureMismatch>("merge: the right state was built with another feature map than the left one");
  const auto &of_left = left.frames, &of_right = right.frames;
  const Frame &end = of_left.end, &start = of_right.start;
  if (!same_coordinates(end, start))
    raise<FrameMismatch>("merge: the right state must be started at the left one's frame(), ", described(end),
                         "; it was started at ",
                         start.size() == end.size() && start.kind() == end.kind() ? "others" : described(start));
  if (of_right.have_mixed() && !of_right.keep_product())
    raise<FrameMismatch>(
        "merge: the right state has dropped its key product, which takes the left one's sums over its tokens");
  const bool left_scaled = !of_left.log_channels.isZero(0), right_scaled = !of_right.log_channels.isZero(0);
  if ((left_scaled && of_right.have_mixed()) || (right_scaled && of_left.have_mixed()))
    raise<FrameMismatch>(
        "merge: one state was built under channel decay, the other under a Householder chain; the two do not commute");
}

// ---- One long sequence on several threads: its segments, and a scan over their states

/// Folds the tail of a state and gives it another size.
template <class Scalar, class F>
void set_tail(const F& feature, StateContent<Scalar>& state, Index tail) {
  fold_state(feature, state.sums);
  state.sums.recent.clear(tail);
}

/// A sequence as segments of whole chunks.
struct EqualSegments {
  Index tokens, size;

  [[nodiscard]] Index count() const { return (tokens + size - 1) / size; }
  [[nodiscard]] Segment operator[](Index s) const { return {s * size, std::min(size, tokens - s * size)}; }
};
template <class Scalar, class F>
EqualSegments segments_of(const F& feature, const ForwardCall<Scalar>& call) {
  return {call.K.cols(), scanned_segment(feature.dimension(call.K.rows()), call.options.chunk)};
}

/// The frames before all segments, by turning zeros.
template <class Scalar>
Ring<Frame> frames_before(const ForwardCall<Scalar>& call, const EqualSegments& segments, const Frame& first) {
  Ring<Frame> frames(1, first);
  for (Index s = 0; s + 1 < segments.count(); ++s) {
    Frame frame = frames.items.back();
    if (call.transition->key_action() == KeyAction::turn) {
      Matrix<Scalar> queries = Matrix<Scalar>::Zero(call.K.rows(), segments[s].size), keys = queries;
      call.transition->to_segment_frame(frame, segments[s], queries, keys, no_logits<Scalar>());
    }
    frames.items.push_back(frame);
  }
  return frames;
}

/// The chunked form of a segment alone, from this state.
template <class Scalar, class F>
void run_segment(const F& feature, const ForwardCall<Scalar>& call, Segment own, StateContent<Scalar>& state,
                 bool has_queries, Workspace<Scalar>& work) {
  const SegmentView<Scalar> transition(*call.transition, own);
  const auto columns = [&](const auto& x) { return x.middleCols(own.begin, own.size); };
  FormCalls<Scalar, F>::from_state(Form::chunked, feature,
                                   {{call.rows, &transition, columns(call.Q), columns(call.K), columns(call.V),
                                     call.options, has_queries ? columns(call.Y) : call.Y, has_queries, call.group},
                                    {state}},
                                   work);
}

/// part ← the state of a segment's tokens alone, in the coordinates of that frame.
template <class Scalar, class F>
void absorb_segment(const F& feature, const ForwardCall<Scalar>& call, Segment own, const Frame& frame,
                    StateContent<Scalar>& part, Workspace<Scalar>& work) {
  auto& [sums, frames, interrupted] = part;
  sums.clear();  // its memory stays
  sums.recent.clear(0);
  frames = {};
  frames.start = frames.end = frame;
  frames.log_channels.setZero(call.K.rows());
  run_segment(feature, call, own, part, false, work);
}

/// to ← the state that goes on by a segment, whose part is used up.
template <class Scalar, class F>
void merge_segment(const F& feature, const StateContent<Scalar>& state, StateContent<Scalar>& part,
                   StateContent<Scalar>& to) {
  add_state<Scalar>([&](StateSums<Scalar>& sums) { fold_state(feature, sums); }, state, part);
  std::swap(to, part);
}

/// The chunked form of one sequence by segments of whole chunks, `options.chunk` each, on several threads. With state s
/// that before segment s, part s that of its tokens alone:
///
///     absorb    part s from nothing, in the coordinates of segment s                 half of the work
///     merge     state s + 1 from state s and part s                                   the only chain
///     read      the outputs of segment s from state s and directly, keeping tokens   the other half
///               in a tail as long as the segment, so that nothing is folded twice
///
/// Results are the same bit for bit for any number of threads. Memory: four windows of states. Work beside the chunked
/// form's own: the merges, 5 (e + 1) D a segment, tails, T · segment (d + e), and the angles of what turns keys, which
/// both halves need. At d = e = 64, P = 2 in float and 65,536 tokens 3.0 µs a token become 3.4 on one thread and 1.8 on
/// two. (To give each thread some of the e values instead is simpler, but repeats embeddings and logits: 1.4 times the
/// speed on two threads.)
template <class Scalar, class F>
void scan(const F& feature, const ForwardCall<Scalar>& call, StateContent<Scalar>& state,
          Workspaces<Scalar>& workspaces, const Threads& threads) {
  const EqualSegments segments = segments_of(feature, call);
  const Index window = std::max(4, 2 * threads.count), in_use = std::min(segments.count(), 2 * window);
  Ring<Frame> frames = frames_before(call, segments, state.frames.end);
  StateContent<Scalar> blank = empty_state<Scalar>(feature, call.K.rows(), call.V.rows(), 0);
  if (state.sums.is_split()) blank.sums.split_up();
  Ring<StateContent<Scalar>> parts(in_use, blank), states(in_use + 1, blank);
  states[0] = state;
  set_tail(feature, states[0], 0);
  const auto absorb = [&](Index s, Workspace<Scalar>& work) {
    absorb_segment(feature, call, segments[s], frames[s], parts[s], work);
  };
  const auto merge = [&](Index s, Workspace<Scalar>&) { merge_segment(feature, states[s], parts[s], states[s + 1]); };
  const auto read = [&](Index s, Workspace<Scalar>& work) {
    if (!call.has_queries) return;
    set_tail(feature, states[s], segments[s].size);
    states[s].frames.drop_product();  // it has been merged
    run_segment(feature, call, segments[s], states[s], true, work);
  };
  run_by_windows<Workspace<Scalar>>(segments.count(), window, false,
                                    {{StepOrder::any, absorb}, {StepOrder::rising, merge}, {StepOrder::any, read}},
                                    threads, workspaces);
  set_tail(feature, states[segments.count()], state.sums.recent.capacity());
  state = std::move(states[segments.count()]);
}

/// Both in one.
template <class Scalar>
StateContent<Scalar> merged(const FoldSums<Scalar>& fold, StateContent<Scalar> left, StateContent<Scalar> right) {
  fold(left.sums), fold(right.sums);
  add_state(fold, left, right);
  return right;
}

}  // namespace detail

/// The state after `left`'s tokens and then `right`'s.
///
///     S = S_left A_right + S_right,   A_right the whole transition of the right segment, its first gate included
///
/// `right` must have been started at `left.frame()`: `State right(feature, d, e, tail, left.frame())`. Associative up
/// to rounding, so a prefix scan over segments works. The result's tail is empty. Cost: three copies and 5 (e + 1) D.
/// Throws `InterruptedState`, `ShapeMismatch` for other sizes, `FeatureMismatch` for another feature map and
/// `FrameMismatch` for another frame, or for channel decay beside a Householder chain; its numbers may differ by 1e-9,
/// as sums taken in another order do.
template <class Scalar, FiniteFeatureMap F>
[[nodiscard]] State<Scalar, F> merge(const State<Scalar, F>& left, const State<Scalar, F>& right) {
  detail::check_adjacent(detail::StateAccess::content(left), detail::StateAccess::content(right),
                         same_feature(left.feature(), right.feature()));
  const auto fold = [&](detail::StateSums<Scalar>& sums) { detail::fold_state(left.feature(), sums); };
  return detail::StateAccess::make<State<Scalar, F>>(
      right.feature(),
      detail::merged<Scalar>(fold, detail::StateAccess::content(left), detail::StateAccess::content(right)));
}

}  // namespace SYMPOW_NAMESPACE
