// Gradients of one long sequence on several threads: its segments, and scans over states there and back.
#pragma once

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
  using StateType = State<Scalar, F>;
  static constexpr double most_bytes = 128 << 20;  // of states that are kept on the way there

 public:
  ScanVjp(const VjpInputs<Scalar, F>& x, const VjpResults<Scalar>& to, VjpWorkspaces<Scalar>& workspaces,
          const Threads& threads)
      : x_(x),
        to_(to),
        workspaces_(workspaces),
        threads_(threads),
        transition_(x.transition.transition()),
        all_(x.feature, transition_, x.K, x.V, x.options),
        segments_(all_.count()),
        adjoint_(adjoint_of(x)) {
    const double bytes = static_cast<double>(adjoint_.sums.S.size() + adjoint_.sums.Z.size()) * sizeof(Scalar);
    every_ = std::max<Index>(1, static_cast<Index>(std::ceil(static_cast<double>(segments_) * bytes / most_bytes)));
    window_ = (std::max(4, 2 * threads.count) + every_ - 1) / every_ * every_;
    if (workspaces.empty()) workspaces.resize(1);
  }

  /// The state's gradient is that behind the last token, and then that before the first.
  void run() {
    StateType state = x_.state ? *x_.state : StateType(x_.feature, x_.K.rows(), x_.V.rows(), 0);
    set_tail(state, 0);
    state.read_as_bf16(false);
    state.drop_key_product();
    begin(state);
    const StateType first = state;
    const bool turns = transition_.key_action() == KeyAction::turn, needs_last = turns && !adjoint_.has_gauge;
    walk_there(state, needs_last ? segments_ : (segments_ - 1) / every_ * every_);
    if (needs_last) find_gauge(state, true);
    walk_back();
    adjoint_.sums = std::move(adjoint_before(0).sums);
    if (turns) find_gauge(first, false);
    x_.transition.join_parts();
    for (const double of_segment : scales_) to_.scale += of_segment;
    if (x_.d_state) StateGradientAccess::content(*x_.d_state) = std::move(adjoint_);
  }

 private:
  static std::size_t at(Index n) { return static_cast<std::size_t>(n); }
  Adjoint<Scalar>& adjoint_before(Index s) { return adjoints_[at(s) % adjoints_.size()]; }
  [[nodiscard]] StateContent<Scalar> folded(const StateType& state) const {
    StateContent<Scalar> content = StateAccess::content(state);
    fold_whole(x_.feature, content);
    return content;
  }
  void find_gauge(const StateType& state, bool from_frame) {
    LiftedTurns lifted;
    StateContent<Scalar> content = folded(state);
    content.sums.settle();
    set_gauge<Scalar, F>(x_.transition, content.sums, adjoint_, lifted, from_frame);
  }

  void begin(const StateType& state) {
    const Index d = x_.K.rows(), e = x_.V.rows(), states = std::min(segments_, 4 * window_);
    all_.begin(state, std::min(segments_, 2 * window_), states, workspaces_[0]);
    x_.transition.begin_parts(x_.K.cols(), all_.size());
    scales_.assign(at(segments_), 0);
    adjoints_.assign(at(states) + 1, {{d, e, x_.feature.dimension(d), 0}});
    read_.resize(at(states));
  }

  // `state` goes to segment `end`; every so many are kept on the way.
  void walk_there(StateType& state, Index end) {
    const auto keep = [&](Index s) {
      if (s % every_ == 0 && (s == 0 || s < segments_)) kept_.push_back(state);
    };
    const auto absorb = [&](Index s, VjpWorkspace<Scalar>& work) { all_.absorb(s, work); };
    const auto merge = [&](Index s, VjpWorkspace<Scalar>&) {
      all_.merge(state, s, state);
      keep(s + 1);
    };
    keep(0);
    run_by_windows<VjpWorkspace<Scalar>>(end, window_, false, {{StepOrder::any, absorb}, {StepOrder::rising, merge}},
                                         threads_, workspaces_);
  }

  void walk_back() {
    adjoint_before(segments_) = adjoint_;
    const auto absorb = [&](Index s, VjpWorkspace<Scalar>& work) {
      if ((s + 1) % every_ != 0 && s + 1 < segments_) all_.absorb(s, work);
    };
    const auto merge = [&](Index s, VjpWorkspace<Scalar>&) {
      if (s % every_ == 0)
        std::swap(all_.before(s), kept_[at(s / every_)]);
      else
        all_.merge(all_.before(s - 1), s - 1, all_.before(s));
    };
    const auto rows = [&](Index s, VjpWorkspace<Scalar>& work) { take_back(s, true, work); };
    const auto meet = [&](Index s, VjpWorkspace<Scalar>&) { add_later(s); };
    const auto keys = [&](Index s, VjpWorkspace<Scalar>& work) { take_back(s, false, work); };
    run_by_windows<VjpWorkspace<Scalar>>(segments_, window_, true,
                                         {{StepOrder::any, absorb},
                                          {StepOrder::rising, merge},
                                          {StepOrder::any, rows},
                                          {StepOrder::falling, meet},
                                          {StepOrder::any, keys}},
                                         threads_, workspaces_);
  }
  // H before segment s, of its own rows and of what is behind it.
  void add_later(Index s) {
    const Segment own = all_.tokens(s);
    FoldBuffers<Scalar> memory;
    double total = 0;
    for (Index t = own.begin; t < own.end(); ++t) total += transition_.log_decay(t);
    Eigen::VectorXd log_a = Eigen::VectorXd::Zero(x_.K.rows());
    transition_.log_channel_totals(own, log_a);
    StateSums<Scalar>& later = adjoint_before(s + 1).sums;
    if (transition_.key_action() == KeyAction::mix) {  // H (A_a … A_b)ᵀ
      StateSums<Scalar> moved = later;
      Matrix<Scalar> rows = moved.S.transpose();
      transition_.apply_to_queries(own, Batch<Scalar>(rows));
      transition_.apply_to_queries(own, Batch<Scalar>(moved.Z));
      moved.S = rows.transpose();
      add_sums<Scalar>(x_.feature, memory, moved, total, log_a, adjoint_before(s).sums);
    } else {
      add_sums<Scalar>(x_.feature, memory, later, total, log_a, adjoint_before(s).sums);
    }
  }
  // The rows of a segment, or what is left of it.
  void take_back(Index s, bool rows, VjpWorkspace<Scalar>& work) {
    using Pass = BackwardPasses<Scalar, F>;
    const Segment own = all_.tokens(s);
    const auto columns = [&](auto matrix) { return matrix.middleCols(own.begin, own.size); };
    const VjpResults<Scalar> to{columns(to_.dQ), columns(to_.dK), columns(to_.dV), scales_[at(s)]};
    const auto load = [](Index, StateContent<Scalar>&) {};  // there is one
    Adjoint<Scalar>& adjoint = adjoint_before(rows ? s : s + 1);
    const CheckpointSource<Scalar> source{load, 1, 0, adjoint, &read_[at(s) % read_.size()]};
    x_.transition.with_part(s, [&](VjpView<Scalar>& part) {
      const VjpInputs<Scalar, F> x{x_.kind,       x_.feature,    part,           columns(x_.Q),
                                   columns(x_.K), columns(x_.V), columns(x_.dY), x_.options};
      with_backward_call(x, to, work, [&](const BackwardCall<Scalar>& call) {
        StateContent<Scalar> first = folded(all_.before(s));
        if (!rows) return Pass::chunked(x_.feature, call, source, own.size, std::move(first));
        source.reads->clear();
        adjoint.sums.clear();
        adjoint.gauge = adjoint_.gauge;
        Pass::rows(x_.feature, call, source, own.size, std::move(first));
      });
    });
  }

  const VjpInputs<Scalar, F>& x_;
  const VjpResults<Scalar>& to_;
  VjpWorkspaces<Scalar>& workspaces_;
  Threads threads_;
  const TransitionView<Scalar>& transition_;
  SegmentStates<Scalar, F> all_;
  Index segments_, every_ = 1, window_ = 1;
  Adjoint<Scalar> adjoint_;  // behind the last token
  std::vector<StateType> kept_;
  std::vector<Adjoint<Scalar>> adjoints_;
  std::vector<std::vector<StateReads<Scalar>>> read_;
  std::vector<double> scales_;
};

}  // namespace SYMPOW_NAMESPACE::detail
