// Gradients of one long sequence on several threads: its segments, and scans over states there and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <sympow/attention/gradient_calls.hpp>
#include <sympow/attention/scan.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The gradients of the chunked form of one sequence by segments, a chunk each, on several threads. With state s that
/// before segment s, H s the adjoint state before it, and part s and own s what its tokens alone make of them:
///
///     absorb    part s from nothing, in the coordinates of segment s
///     merge     state s + 1 from state s and part s                       a chain from the first
///     rows      what the rows of segment s read of state s, and own s     reads once, one product more
///     meet      H s from own s and H s + 1                                a chain from the last
///     keys      what keys read of H s + 1, pairs, and what flows          two products
///
/// First on the way there, where the state before every few segments is kept; then on the way back by windows of
/// segments, each step a window behind the one before, with the parts between made again. Nothing depends on the number
/// of threads but which of them does what: results are the same bit for bit. Memory: 128 MiB of states, and eight
/// windows of them.
template <class Scalar, class F>
class ScanVjp {
  using StateType = StateContent<Scalar>;
  using Work = VjpWorkspace<Scalar>;

 public:
  ScanVjp(const F& feature, const VjpInputs<Scalar>& x, const VjpResults<Scalar>& to, VjpWorkspaces<Scalar>& workspaces,
          const Threads& threads)
      : feature_(feature), x_(x), to_(to), workspaces_(workspaces), threads_(threads) {}

  /// The state's gradient is that behind the last token, and then that before the first.
  void run() {
    StateType state = x_.state ? *x_.state : blank_;
    fold_whole(feature_, state);
    const StateType first = state;
    frames_ = frames_before(call_, segments_, state.frames.end);
    x_.vjp.begin_parts(call_.K.cols(), segments_.size);
    const bool turns = call_.transition->key_action() == KeyAction::turn, needs_last = turns && !adjoint_.has_gauge;
    walk_there(state, needs_last ? count_ : (count_ - 1) / every_ * every_);
    if (needs_last) find_gauge(state, true);
    walk_back();
    adjoint_.sums = std::move(adjoints_[0].sums);
    if (turns) find_gauge(first, false);
    x_.vjp.join_parts();
    for (const double of_segment : scales_.items) to_.scale += of_segment;
    if (x_.d_state) *x_.d_state = std::move(adjoint_);
  }

 private:
  [[nodiscard]] StateType folded(StateType state) const {
    fold_whole(feature_, state);
    return state;
  }
  void find_gauge(const StateType& state, bool from_frame) {
    LiftedTurns lifted;
    StateType content = folded(state);
    content.sums.settle();
    set_gauge(feature_, x_.vjp, content.sums, adjoint_, lifted, from_frame);
  }

  // `state` goes to segment `end`; every so many are kept on the way.
  void walk_there(StateType& state, Index end) {
    const auto absorb = [&](Index s, Work& work) {
      absorb_segment(feature_, call_, segments_[s], frames_[s], parts_[s], work);
    };
    const auto merge = [&](Index s, Work&) {
      merge_segment(feature_, state, parts_[s], state);
      if ((s + 1) % every_ == 0 && s + 1 < count_) kept_.push_back(state);
    };
    kept_.push_back(state);
    run_by_windows<Work>(end, window_, false, {{StepOrder::any, absorb}, {StepOrder::rising, merge}}, threads_,
                         workspaces_);
  }

  void walk_back() {
    adjoints_[count_] = adjoint_;
    const auto absorb = [&](Index s, Work& work) {
      if ((s + 1) % every_ != 0 && s + 1 < count_)
        absorb_segment(feature_, call_, segments_[s], frames_[s], parts_[s], work);
    };
    const auto merge = [&](Index s, Work&) {
      if (s % every_ == 0)
        std::swap(states_[s], kept_[static_cast<std::size_t>(s / every_)]);
      else
        merge_segment(feature_, states_[s - 1], parts_[s - 1], states_[s]);
    };
    const auto rows = [&](Index s, Work& work) { take_back(s, true, work); };
    const auto meet = [&](Index s, Work&) { add_later(s); };
    const auto keys = [&](Index s, Work& work) { take_back(s, false, work); };
    run_by_windows<Work>(count_, window_, true,
                         {{StepOrder::any, absorb},
                          {StepOrder::rising, merge},
                          {StepOrder::any, rows},
                          {StepOrder::falling, meet},
                          {StepOrder::any, keys}},
                         threads_, workspaces_);
  }
  // H before segment s, of its own rows and of what is behind it.
  void add_later(Index s) {
    const TransitionView<Scalar>& transition = *call_.transition;
    const Segment own = segments_[s];
    double total = 0;
    for (Index t = own.begin; t < own.end(); ++t) total += transition.log_decay(t);
    Eigen::VectorXd log_a = Eigen::VectorXd::Zero(x_.d());
    transition.log_channel_totals(own, log_a);
    StateSums<Scalar> later = adjoints_[s + 1].sums;
    if (transition.key_action() == KeyAction::mix) {  // H (A_a … A_b)ᵀ
      Matrix<Scalar> rows = later.S.transpose();
      transition.apply_to_queries(own, Batch<Scalar>(rows));
      transition.apply_to_queries(own, Batch<Scalar>(later.Z));
      later.S = rows.transpose();
    }
    add_sums<Scalar>([&](StateSums<Scalar>& sums) { fold_state(feature_, sums); }, std::move(later), total, log_a,
                     adjoints_[s].sums);
  }
  // The rows of a segment, or what is left of it.
  void take_back(Index s, bool rows, Work& work) {
    const Segment own = segments_[s];
    const auto columns = [&](auto matrix) { return matrix.middleCols(own.begin, own.size); };
    const VjpResults<Scalar> to{columns(to_.dQ), columns(to_.dK), columns(to_.dV), scales_[s]};
    const auto load = [](Index, StateType&) {};  // there is one
    Adjoint<Scalar>& adjoint = adjoints_[rows ? s : s + 1];
    const CheckpointSource<Scalar> source{load, 1, 0, adjoint, &reads_[s]};
    x_.vjp.with_part(s, [&](VjpView<Scalar>& part) {
      const VjpInputs<Scalar> x{
          {call_.rows, &part.transition(), columns(call_.Q), columns(call_.K), columns(call_.V), call_.options},
          part,
          columns(x_.dY)};
      with_backward_call(feature_, x, to, work, [&](const BackwardCall<Scalar>& call) {
        StateType state = folded(states_[s]);
        if (rows) {
          source.reads->clear();
          adjoint.sums.clear();
          adjoint.gauge = adjoint_.gauge;
        }
        BackwardPasses<Scalar, F>::from_states(feature_, call, source, own.size, state,
                                               rows ? BackwardPart::rows : BackwardPart::all);
      });
    });
  }

  const F& feature_;
  const VjpInputs<Scalar>& x_;
  const VjpResults<Scalar>& to_;
  VjpWorkspaces<Scalar>& workspaces_;
  Threads threads_;
  const ForwardCall<Scalar>& call_ = x_.call;
  const EqualSegments segments_ = segments_of(feature_, call_);
  const Index count_ = segments_.count();
  Adjoint<Scalar> adjoint_ = adjoint_of(feature_, x_);  // behind the last token
  // A state is kept every so many segments: 128 MiB of them.
  const double bytes_ = static_cast<double>(adjoint_.sums.S.size() + adjoint_.sums.Z.size()) * sizeof(Scalar);
  const Index every_ = std::max<Index>(1, static_cast<Index>(std::ceil(static_cast<double>(count_) * bytes_ / 0x1p27))),
              window_ = (std::max(4, 2 * threads_.count) + every_ - 1) / every_ * every_,
              in_use_ = std::min(count_, 4 * window_);
  const StateType blank_ = empty_state<Scalar>(feature_, x_.d(), x_.e(), 0);
  std::vector<StateType> kept_;
  Ring<Frame> frames_;
  Ring<StateType> parts_{std::min(count_, 2 * window_), blank_}, states_{in_use_, blank_};
  Ring<Adjoint<Scalar>> adjoints_{in_use_ + 1, {{x_.d(), x_.e(), adjoint_.sums.S.cols(), 0}}};
  Ring<std::vector<StateReads<Scalar>>> reads_{in_use_};
  Ring<double> scales_{count_};
};

}  // namespace SYMPOW_NAMESPACE::detail
