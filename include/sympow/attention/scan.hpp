// One long sequence on several threads: its segments, their states joined, and a scan over these.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>
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

/// What a scan does with a segment: each in a job of its own, or those of a window one after the other in one job.
enum class StepOrder { any, rising, falling };
template <class Scratch>
struct ScanStep {
  StepOrder order;
  Visitor<Index, Scratch&> run;
};

/// Segments go through the steps by windows, from the first or from the last, each step a window behind the one before,
/// so that a round is many independent jobs on few states. Nothing depends on the number of threads but which of them
/// does what.
template <class Scratch>
void run_by_windows(Index segments, Index window, bool from_last, std::initializer_list<ScanStep<Scratch>> steps,
                    const Threads& threads, std::vector<Scratch>& scratch) {
  const Index windows = (segments + window - 1) / window, count = std::ssize(steps);
  std::vector<std::pair<const ScanStep<Scratch>*, Segment>> jobs;
  for (Index round = 0; round < windows + count - 1; ++round) {
    jobs.clear();
    for (const bool is_chain : {true, false})  // the longest first
      for (Index k = count; k-- > 0;) {
        const ScanStep<Scratch>& step = steps.begin()[k];
        const Index nth = round - k, begin = (from_last ? windows - 1 - nth : nth) * window;
        if (nth < 0 || nth >= windows || (step.order != StepOrder::any) != is_chain) continue;
        const Segment all{begin, std::min(window, segments - begin)};
        if (is_chain) jobs.emplace_back(&step, all);
        for (Index s = all.begin; !is_chain && s < all.end(); ++s) jobs.emplace_back(&step, Segment{s, 1});
      }
    parallel_for(std::ssize(jobs), threads, scratch, [&](Index n, Scratch& work) {
      const auto& [step, range] = jobs[static_cast<std::size_t>(n)];
      for (Index i = 0; i < range.size; ++i)
        step->run(step->order == StepOrder::falling ? range.end() - 1 - i : range.begin + i, work);
    });
  }
}

/// A sequence as segments of whole chunks.
struct EqualSegments {
  Index tokens, size;

  [[nodiscard]] Index count() const { return (tokens + size - 1) / size; }
  [[nodiscard]] Segment operator[](Index s) const { return {s * size, std::min(size, tokens - s * size)}; }
};
template <class Scalar, class F>
EqualSegments segments_of(const FormInputs<Scalar, F>& x) {
  return {x.K.cols(), scanned_segment(x.feature.dimension(x.K.rows()), x.options.chunk)};
}

/// As many of a list's items as are in use at a time.
template <class T>
struct Ring {
  std::vector<T> items;

  Ring() = default;
  explicit Ring(Index count, const T& x = {}) : items(static_cast<std::size_t>(count), x) {}
  T& operator[](Index n) { return items[static_cast<std::size_t>(n) % items.size()]; }
};

/// The frames before all segments, by turning zeros.
template <class Scalar, class F>
Ring<Frame> frames_before(const FormInputs<Scalar, F>& x, const EqualSegments& segments, const Frame& first) {
  Ring<Frame> frames(1, first);
  for (Index s = 0; s + 1 < segments.count(); ++s) {
    Frame frame = frames.items.back();
    if (x.transition.key_action() == KeyAction::turn) {
      Matrix<Scalar> queries = Matrix<Scalar>::Zero(x.K.rows(), segments[s].size), keys = queries;
      x.transition.to_segment_frame(frame, segments[s], queries, keys, no_logits<Scalar>());
    }
    frames.items.push_back(frame);
  }
  return frames;
}

/// The chunked form of a segment alone, from this state.
template <class Scalar, class F>
void run_segment(const FormInputs<Scalar, F>& x, Segment own, StateContent<Scalar>& state, bool has_rows,
                 Workspace<Scalar>& work) {
  const SegmentView<Scalar> transition(x.transition, own);
  const auto columns = [&](auto& matrix) { return matrix.middleCols(own.begin, own.size); };
  FormInputs<Scalar, F> inputs{x.kind,       x.feature,    transition, columns(x.Q),
                               columns(x.K), columns(x.V), x.options,  {state}};
  inputs.group = x.group;
  if (auto Y = x.Y; has_rows) inputs.Y.emplace(columns(*Y));
  FormCalls<Scalar, F>::run(Form::chunked, inputs, work);
}

/// part ← the state of a segment's tokens alone, in the coordinates of that frame.
template <class Scalar, class F>
void absorb_segment(const FormInputs<Scalar, F>& x, Segment own, const Frame& frame, StateContent<Scalar>& part,
                    Workspace<Scalar>& work) {
  auto& [sums, frames, interrupted] = part;
  sums.clear();  // its memory stays
  sums.recent.clear(0);
  frames = {};
  frames.start = frames.end = frame;
  frames.log_channels.setZero(x.K.rows());
  run_segment(x, own, part, false, work);
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
void scan(const FormInputs<Scalar, F>& x, StateContent<Scalar>& state, Workspaces<Scalar>& workspaces,
          const Threads& threads) {
  const EqualSegments segments = segments_of(x);
  const Index window = std::max(4, 2 * threads.count), in_use = std::min(segments.count(), 2 * window);
  Ring<Frame> frames = frames_before(x, segments, state.frames.end);
  StateContent<Scalar> blank = empty_state<Scalar>(x.feature, x.K.rows(), x.V.rows(), 0);
  if (state.sums.is_split()) blank.sums.split_up();
  Ring<StateContent<Scalar>> parts(in_use, blank), states(in_use + 1, blank);
  states[0] = state;
  set_tail(x.feature, states[0], 0);
  const auto absorb = [&](Index s, Workspace<Scalar>& work) {
    absorb_segment(x, segments[s], frames[s], parts[s], work);
  };
  const auto merge = [&](Index s, Workspace<Scalar>&) { merge_segment(x.feature, states[s], parts[s], states[s + 1]); };
  const auto read = [&](Index s, Workspace<Scalar>& work) {
    if (!x.Y) return;
    set_tail(x.feature, states[s], segments[s].size);
    states[s].frames.drop_product();  // it has been merged
    run_segment(x, segments[s], states[s], true, work);
  };
  run_by_windows<Workspace<Scalar>>(segments.count(), window, false,
                                    {{StepOrder::any, absorb}, {StepOrder::rising, merge}, {StepOrder::any, read}},
                                    threads, workspaces);
  set_tail(x.feature, states[segments.count()], state.sums.recent.capacity());
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
