// expect: a state form needs push(Segment, Batch<S> K) of a transition that mixes channels
#include <sympow/sympow.hpp>

using namespace sympow;

struct Shift {
  static constexpr KeyAction key_action = KeyAction::mix;
  Index length() const { return Dynamic; }
  Index key_dimension() const { return Dynamic; }
  double log_decay(Index) const { return 0; }
  void check_frame(const Frame& frame, Index) const { frame.require(); }
  Eigen::MatrixXd key_matrix(Index, Index d) const { return Eigen::MatrixXd::Identity(d, d); }
  void transport(Frame&, Segment, Batch<double>, Batch<double>, Batch<double>) const {}
  void pull(Segment, Batch<double>) const {}
  void advance(Segment, Batch<double>) const {}
#ifdef SYMPOW_CONTROL
  void push(Segment, Batch<double>) const {}
#endif
};

Eigen::MatrixXd f(const Eigen::MatrixXd& Q) { return chunked(Linear{}, constant_decay(.5) * Shift{}, Q, Q, Q); }
