// expect: gradients need a transition with a way back (Gradient, zero_gradient, add_decay_flows
#include <sympow/sympow.hpp>

using namespace sympow;

struct Halved {
  static constexpr KeyAction key_action = KeyAction::none;
  Index length() const { return Dynamic; }
  Index key_dimension() const { return Dynamic; }
  double log_decay(Index) const { return -.5; }
  void check_frame(const Frame& frame, Index) const { frame.require(); }
  Eigen::MatrixXd key_matrix(Index, Index d) const { return Eigen::MatrixXd::Identity(d, d); }
  void to_segment_frame(Frame&, Segment, Batch<double>, Batch<double>, Batch<double>) const {}
  void apply_to_queries(Segment, Batch<double>) const {}
};

#ifdef SYMPOW_CONTROL
auto f(const Eigen::MatrixXd& Q) {
  return attention_vjp(Linear{}, constant_decay(.6), {.Q = Q, .K = Q, .V = Q, .dY = Q});
}
#else
auto f(const Eigen::MatrixXd& Q) { return attention_vjp(Linear{}, Halved{}, {.Q = Q, .K = Q, .V = Q, .dY = Q}); }
#endif
