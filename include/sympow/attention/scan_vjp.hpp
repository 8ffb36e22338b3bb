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
  ScanVjp(RowKind kind, const F& feature, VjpTransition<Scalar>& transition, const VjpArguments<Scalar>& x,
          const VjpResults<Scalar>& to, VjpWorkspaces<Scalar>& workspaces, const Options& options,
          const Threads& threads)
      : kind_(kind),
        feature_(feature),
        of_call_(transition),
        transition_(transition.given()),
        x_(x),
        to_(to),
        workspaces_(workspaces),
        options_(options),
        threads_(threads),
        size_(scanned_segment(feature.dimension(x.K.rows()), options.chunk)),
        segments_((x.K.cols() + size_ - 1) / size_) {
    const double bytes = static_cast<double>(feature.dimension(x.K.rows()) * (x.V.rows() + 1)) * sizeof(Scalar);
    every_ = std::max<Index>(1, static_cast<Index>(std::ceil(static_cast<double>(segments_) * bytes / most_bytes)));
    window_ = (std::max(4, 2 * threads.count) + every_ - 1) / every_ * every_;
    windows_ = (segments_ + window_ - 1) / window_;
    if (workspaces.empty()) workspaces.resize(1);
  }

  /// From the state before the first token; `adjoint` is that behind the last, and then that before the first.
  void run(const StateType& state, StateGradient<Scalar, F>& adjoint) {
    Adjoint<Scalar> content = StateGradientAccess::content(adjoint);
    const bool turns = transition_.key_action() == KeyAction::turn;
    const auto find_gauge = [&](const StateType& at, bool from_frame) {
      if (!turns) return;
      LiftedTurns lifted;
      StateContent<Scalar> settled = folded(at);
      settled.sums.settle();
      set_gauge<Scalar, F>(of_call_.back(), settled.sums, content, lifted, from_frame);
    };
    begin(state);
    const bool needs_last = turns && !content.has_gauge;
    const StateType last = walk_there(whole(state), needs_last ? segments_ : (segments_ - 1) / every_ * every_);
    if (needs_last) find_gauge(last, true);
    walk_back(content);
    content.sums = std::move(adjoint_before(0).sums);
    find_gauge(whole(state), false);
    of_call_.join_parts();
    for (Index s = 0; s < segments_; ++s) to_.scale += scales_[at(s)];
    StateGradientAccess::content(adjoint) = std::move(content);
  }

 private:
  static std::size_t at(Index n) { return static_cast<std::size_t>(n); }
  // All of its tokens in sums that are read as they are.
  static StateType whole(StateType state) {
    set_tail(state, 0);
    state.read_as_bf16(false);
    return state;
  }
  [[nodiscard]] StateContent<Scalar> folded(const StateType& state) const {
    StateContent<Scalar> at = empty_content<Scalar>(feature_, x_.K.rows(), x_.V.rows());
    set_folded<Scalar, F>(feature_, StateAccess::content(state), at);
    return at;
  }
  [[nodiscard]] Segment segment(Index s) const { return {s * size_, std::min(size_, x_.K.cols() - s * size_)}; }
  // Window w of those that do not go beyond the end; none where there is no such window.
  [[nodiscard]] Segment window(Index w, Index end) const {
    const Index begin = w * window_;
    return w < 0 || begin >= end ? Segment{} : Segment{begin, std::min(window_, end - begin)};
  }
  StateType& part(Index s) { return parts_[at(s) % parts_.size()]; }
  StateType& before(Index s) { return states_[at(s) % states_.size()]; }
  Adjoint<Scalar>& adjoint_before(Index s) { return adjoints_[at(s) % adjoints_.size()]; }

  void begin(const StateType& state) {
    const Index d = x_.K.rows(), e = x_.V.rows();
    frames_ = {state.frame()};
    for (Index s = 0; s + 1 < segments_; ++s) {
      frames_.push_back(frames_.back());
      advance_frame<Scalar>(transition_, frames_.back(), segment(s), d, workspaces_[0]);
    }
    of_call_.begin_parts(x_.K.cols(), size_);
    scales_.assign(at(segments_), 0);
    const StateType blank(feature_, d, e, 0);
    parts_.assign(at(std::min(segments_, 2 * window_)), blank);
    states_.assign(at(std::min(segments_, 4 * window_)), blank);
    adjoints_.assign(at(std::min(segments_, 4 * window_) + 1), {{d, e, feature_.dimension(d), 0}});
    read_.resize(states_.size());
  }

  void absorb_one(Index s, Workspace<Scalar>& work) {
    clear(part(s), frames_[at(s)]);
    const Segment own = segment(s);
    const auto K = x_.K.middleCols(own.begin, own.size);
    FormCalls<Scalar, F>::run_from_state(Form::chunked,
                                         {RowKind::sums, feature_, SegmentView<Scalar>(transition_, own), K, K,
                                          x_.V.middleCols(own.begin, own.size), options_},
                                         part(s), {}, work);
  }
  // `state` goes on by segment s.
  void merge_one(StateType& state, Index s) {
    add_state(feature_, StateAccess::content(state), StateAccess::content(part(s)));
  }

  // Keeps states on the way to segment `end`, and returns that before it.
  StateType walk_there(StateType state, Index end) {
    state.drop_key_product();
    const auto keep = [&](Index s) {
      if (s % every_ == 0) kept_.push_back(state);
    };
    keep(0);
    for (Index w = 0; w == 0 || w * window_ < end + window_; ++w) {
      const Segment absorbed = window(w, end), merged = window(w - 1, end);
      parallel_for(1 + absorbed.size, threads_, workspaces_, [&](Index n, VjpWorkspace<Scalar>& work) {
        if (n > 0) return absorb_one(absorbed.begin + n - 1, work);
        for (Index s = merged.begin; s < merged.end(); ++s) {
          merge_one(state, s);
          std::swap(state, part(s));
          if (s + 1 < segments_) keep(s + 1);
        }
      });
    }
    return state;
  }

  void walk_back(const Adjoint<Scalar>& last) {
    adjoint_before(segments_) = last;
    for (Index w = windows_ - 1; w > -5; --w) {
      const auto of = [&](Index later) { return window(w + later, segments_); };
      const Segment absorbed = of(0), merged = of(1), rows = of(2), met = of(3), keys = of(4);
      parallel_for(
          2 + rows.size + keys.size + absorbed.size, threads_, workspaces_, [&](Index n, VjpWorkspace<Scalar>& work) {
            if (n == 0) {
              for (Index s = merged.begin; s < merged.end(); ++s) find_state(s);
            } else if (n == 1) {
              for (Index s = met.end(); s-- > met.begin;) meet(s);
            } else if ((n -= 2) < keys.size) {
              take_back(keys.begin + n, false, last.gauge, work);
            } else if ((n -= keys.size) < rows.size) {
              take_back(rows.begin + n, true, last.gauge, work);
            } else if (const Index s = absorbed.begin + n - rows.size; (s + 1) % every_ != 0 && s + 1 < segments_) {
              absorb_one(s, work);
            }
          });
    }
  }
  void find_state(Index s) {
    if (s % every_ == 0) return std::swap(before(s), kept_[at(s / every_)]);
    merge_one(before(s - 1), s - 1);
    std::swap(before(s), part(s - 1));
  }
  // H before segment s, of its own rows and of what is behind it.
  void meet(Index s) {
    FoldBuffers<Scalar> memory;
    double total = 0;
    for (Index t = segment(s).begin; t < segment(s).end(); ++t) total += transition_.log_decay(t);
    Eigen::VectorXd log_a = Eigen::VectorXd::Zero(x_.K.rows());
    transition_.log_channel_totals(segment(s), log_a);
    if (transition_.key_action() == KeyAction::mix) {  // H (A_a … A_b)ᵀ
      StateSums<Scalar> moved = adjoint_before(s + 1).sums;
      Matrix<Scalar> rows = moved.S.transpose();
      transition_.apply_to_queries(segment(s), Batch<Scalar>(rows));
      transition_.apply_to_queries(segment(s), Batch<Scalar>(moved.Z));
      moved.S = rows.transpose();
      add_sums<Scalar>(feature_, memory, moved, total, log_a, adjoint_before(s).sums);
    } else {
      add_sums<Scalar>(feature_, memory, adjoint_before(s + 1).sums, total, log_a, adjoint_before(s).sums);
    }
  }
  // The rows of a segment, or all the rest of it.
  void take_back(Index s, bool rows, const Eigen::VectorXd& gauge, VjpWorkspace<Scalar>& work) {
    const Segment own = segment(s);
    const auto columns = [&](auto x) { return x.middleCols(own.begin, own.size); };
    const VjpArguments<Scalar> x{columns(x_.Q), columns(x_.K), columns(x_.V), columns(x_.dY)};
    const VjpResults<Scalar> to{columns(to_.dQ), columns(to_.dK), columns(to_.dV), scales_[at(s)]};
    std::vector<StateReads<Scalar>>& read = read_[at(s) % read_.size()];
    const auto load = [](Index, StateContent<Scalar>&) {};  // there is one
    of_call_.with_part(s, [&](VjpTransition<Scalar>& part) {
      const auto call = backward_call<F>(kind_, part, x, to, work, options_);
      StateContent<Scalar> first = folded(before(s));
      if (rows) {
        read.clear();
        adjoint_before(s).sums.clear();
        adjoint_before(s).gauge = gauge;
        BackwardPasses<Scalar, F>::chunked(feature_, call, {load, 1, 0, adjoint_before(s), &read, true}, own.size,
                                           std::move(first));
      } else {
        BackwardPasses<Scalar, F>::chunked(feature_, call, {load, 1, 0, adjoint_before(s + 1), &read}, own.size,
                                           std::move(first));
      }
    });
  }

  RowKind kind_;
  const F& feature_;
  VjpTransition<Scalar>& of_call_;
  const TransitionView<Scalar>& transition_;
  const VjpArguments<Scalar>& x_;
  const VjpResults<Scalar>& to_;
  VjpWorkspaces<Scalar>& workspaces_;
  const Options& options_;
  Threads threads_;
  Index size_, segments_, every_ = 1, window_ = 1, windows_ = 0;
  std::vector<Frame> frames_;
  std::vector<StateType> kept_, parts_, states_;
  std::vector<Adjoint<Scalar>> adjoints_;
  std::vector<std::vector<StateReads<Scalar>>> read_;
  std::vector<double> scales_;
};

}  // namespace SYMPOW_NAMESPACE::detail
