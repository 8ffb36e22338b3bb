// expect: an embedded score needs Index dimension(Index d) const and an embed that takes whatever tokens stand in
#include <sympow/sympow.hpp>

using namespace sympow;

struct EluPlusOne {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  Index dimension(Index d) const { return d; }
#ifdef SYMPOW_CONTROL
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
#else
  void embed(const Eigen::MatrixXd& x, Eigen::MatrixXd& y) const {
#endif
      y = (x.array() > 0).select(x.array() + 1, x.array().min(0).exp());
}
}
;

Eigen::MatrixXd f(const Eigen::MatrixXd& Q) { return chunked(EluPlusOne{}, constant_decay(.5), Q, Q, Q); }
