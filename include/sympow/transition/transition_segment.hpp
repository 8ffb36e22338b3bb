// A segment of a transition.
#pragma once

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A segment of a transition as a transition.
template <Transition A>
class TransitionSegment {
 public:
  static constexpr KeyAction key_action = A::key_action;
  static constexpr bool checks_channels = has_checked_channels<A>;

  TransitionSegment(const A& whole, Segment segment) : whole_(whole), segment_(segment) {}

  [[nodiscard]] Index length() const { return segment_.size; }
  [[nodiscard]] Index key_dimension() const { return whole_.key_dimension(); }
  [[nodiscard]] double log_decay(Index token) const { return whole_.log_decay(segment_.begin + token); }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index i, Index d) const { return whole_.key_matrix(segment_.begin + i, d); }
  void check_frame(const Frame& frame, Index d) const { whole_.check_frame(frame, d); }

  template <class S>
  void to_segment_frame(Frame& frame, Segment s, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    whole_.to_segment_frame(frame, to_global(s), queries, keys, logits);
  }
  template <class S>
  void apply_to_queries(Segment s, Batch<S> queries) const {
    whole_.apply_to_queries(to_global(s), queries);
  }
  void log_channel_totals(Segment s, Eigen::VectorXd& totals) const
    requires HasChannelTotals<A>
  {
    whole_.log_channel_totals(to_global(s), totals);
  }
  template <class S>
    requires HasApplyToKeys<A, S>
  void apply_to_keys(Segment s, Batch<S> keys) const {
    whole_.apply_to_keys(to_global(s), keys);
  }
  template <class S>
    requires HasApplyToState<A, S>
  void apply_to_state(Segment s, Batch<S> X) const {
    whole_.apply_to_state(to_global(s), X);
  }

 private:
  [[nodiscard]] Segment to_global(Segment s) const { return {segment_.begin + s.begin, s.size}; }

  const A& whole_;
  Segment segment_;
};

}  // namespace SYMPOW_NAMESPACE::detail
