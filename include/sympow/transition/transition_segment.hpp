// A segment of a transition.
#pragma once

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A segment of a transition as a transition.
template <class Scalar>
class SegmentView final : public TransitionView<Scalar> {
  using Whole = TransitionView<Scalar>;

 public:
  SegmentView(const Whole& whole, Segment segment) : whole_(whole), segment_(segment) {}

  [[nodiscard]] KeyAction key_action() const override { return whole_.key_action(); }
  [[nodiscard]] Index length() const override { return segment_.size; }
  [[nodiscard]] Index key_dimension() const override { return whole_.key_dimension(); }
  [[nodiscard]] bool moves_states() const override { return whole_.moves_states(); }
  [[nodiscard]] bool checks_channels() const override { return whole_.checks_channels(); }
  void check_frame(const Frame& frame, Index d) const override { whole_.check_frame(frame, d); }
  [[nodiscard]] double log_decay(Index token) const override { return whole_.log_decay(segment_.begin + token); }
  void log_decays(Segment s, double* log_gamma) const override { whole_.log_decays(to_global(s), log_gamma); }
  void to_segment_frame(Frame& frame, Segment s, Batch<Scalar> queries, Batch<Scalar> keys,
                        Batch<Scalar> logits) const override {
    whole_.to_segment_frame(frame, to_global(s), queries, keys, logits);
  }
  void apply_to_queries(Segment s, Batch<Scalar> queries) const override {
    whole_.apply_to_queries(to_global(s), queries);
  }
  void log_channel_totals(Segment s, Eigen::VectorXd& totals) const override {
    whole_.log_channel_totals(to_global(s), totals);
  }
  void apply_to_keys(Segment s, Batch<Scalar> keys) const override { whole_.apply_to_keys(to_global(s), keys); }
  void apply_to_state(Segment s, Batch<Scalar> X) const override { whole_.apply_to_state(to_global(s), X); }
  /// Its largest gates stay where they are.
  [[nodiscard]] double total_max_log_gate() const override { return 0; }
  [[nodiscard]] std::unique_ptr<const Whole> factor_out_max_gate(int) const override { return nullptr; }

 private:
  [[nodiscard]] Segment to_global(Segment s) const { return {segment_.begin + s.begin, s.size}; }

  const Whole& whole_;
  Segment segment_;
};

}  // namespace SYMPOW_NAMESPACE::detail
