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
  SegmentBuffers<Scalar>& memory = WorkspaceAccess::forward(work).segment;
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

/// The segments of a sequence, whole chunks each, and their states: state s that before segment s, part s that of its
/// tokens alone, in the coordinates of segment s. So many of either are held at a time.
template <class Scalar, class F>
class SegmentStates {
  using StateType = State<Scalar, F>;

 public:
  SegmentStates(const F& feature, const TransitionView<Scalar>& transition, MatrixView<const Scalar> K,
                MatrixView<const Scalar> V, const Options& options)
      : feature_(feature),
        transition_(transition),
        K_(K),
        V_(V),
        options_(options),
        size_(scanned_segment(feature.dimension(K.rows()), options.chunk)) {}

  [[nodiscard]] Index count() const { return (K_.cols() + size_ - 1) / size_; }
  [[nodiscard]] Index size() const { return size_; }  ///< tokens of a segment, the last except
  [[nodiscard]] Segment tokens(Index s) const { return {s * size_, std::min(size_, K_.cols() - s * size_)}; }
  StateType& part(Index s) { return parts_[static_cast<std::size_t>(s) % parts_.size()]; }
  StateType& before(Index s) { return states_[static_cast<std::size_t>(s) % states_.size()]; }

  /// From the frame of a state, whose way to read sums all have.
  void begin(const StateType& state, Index parts, Index states, Workspace<Scalar>& work) {
    frames_ = {state.frame()};
    for (Index s = 0; s + 1 < count(); ++s) {
      frames_.push_back(frames_.back());
      advance_frame(transition_, frames_.back(), tokens(s), K_.rows(), work);
    }
    StateType blank(feature_, K_.rows(), V_.rows(), 0);
    blank.read_as_bf16(state.reads_as_bf16());
    parts_.assign(static_cast<std::size_t>(parts), blank);
    states_.assign(static_cast<std::size_t>(states), blank);
  }
  /// Part s from nothing.
  void absorb(Index s, Workspace<Scalar>& work) {
    clear(part(s), frames_[static_cast<std::size_t>(s)]);
    const Segment own = tokens(s);
    const auto K = K_.middleCols(own.begin, own.size), V = V_.middleCols(own.begin, own.size);
    const SegmentView<Scalar> transition(transition_, own);
    FormCalls<Scalar, F>::run(Form::chunked, {RowKind::sums, feature_, transition, K, K, V, options_}, part(s), {},
                              work);
  }
  /// to ← the state that goes on by segment s; part s is used up.
  void merge(const StateType& state, Index s, StateType& to) {
    add_state(feature_, StateAccess::content(state), StateAccess::content(part(s)));
    std::swap(to, part(s));
  }

 private:
  const F& feature_;
  const TransitionView<Scalar>& transition_;
  MatrixView<const Scalar> K_, V_;
  const Options& options_;
  Index size_;
  std::vector<Frame> frames_;
  std::vector<StateType> parts_, states_;
};

/// The chunked form of one sequence by segments of whole chunks, `options.chunk` each, on several threads:
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
template <class F, class Scalar>
void scan(const FormInputs<Scalar, F>& x, State<Scalar, F>& state, Batch<Scalar> Y, Workspaces<Scalar>& workspaces,
          const Threads& threads) {
  SegmentStates<Scalar, F> all(x.feature, x.transition, x.K, x.V, x.options);
  const Index window = std::max(4, 2 * threads.count), parts = std::min(all.count(), 2 * window);
  if (workspaces.empty()) workspaces.resize(1);
  all.begin(state, parts, parts + 1, workspaces[0]);
  all.before(0) = state;
  set_tail(all.before(0), 0);
  const auto absorb = [&](Index s, Workspace<Scalar>& work) { all.absorb(s, work); };
  const auto merge = [&](Index s, Workspace<Scalar>&) {
    check_adjacent(all.before(s), all.part(s));
    all.merge(all.before(s), s, all.before(s + 1));
  };
  const auto read = [&](Index s, Workspace<Scalar>& work) {
    const Segment own = all.tokens(s);
    const auto columns = [&](const auto& matrix) { return matrix.middleCols(own.begin, own.size); };
    State<Scalar, F>& before = all.before(s);
    set_tail(before, own.size);
    before.drop_key_product();  // it has been merged
    const SegmentView<Scalar> transition(x.transition, own);
    Batch<Scalar> rows = Y.middleCols(own.begin, own.size);
    FormCalls<Scalar, F>::run(
        Form::chunked, {x.kind, x.feature, transition, columns(x.Q), columns(x.K), columns(x.V), x.options, x.group},
        before, Output<Scalar, Tape<Scalar, F>>(rows), work);
  };
  run_by_windows<Workspace<Scalar>>(all.count(), window, false,
                                    {{StepOrder::any, absorb}, {StepOrder::rising, merge}, {StepOrder::any, read}},
                                    threads, workspaces);
  set_tail(all.before(all.count()), state.tail_capacity());
  state = std::move(all.before(all.count()));
}

}  // namespace SYMPOW_NAMESPACE::detail
