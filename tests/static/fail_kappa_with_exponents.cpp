// expect: a feature map whose embedding has exponents gives no kappa
#include <sympow/sympow.hpp>

using namespace sympow;

struct Shifted {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  Index dimension(Index d) const { return d + 1; }
  double kappa(double s) const { return 1 + s; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y.row(0).setOnes();
    y.bottomRows(x.rows()) = x;
  }
#ifndef SYMPOW_CONTROL
  template <class X, class Y, class E>
  void embed(const X& x, Y&& y, E&& exponents) const {
    embed(x, y);
    exponents.setZero();
  }
#endif
};

Eigen::MatrixXd f(const Eigen::MatrixXd& Q) { return attention(Shifted{}, stationary(), Q, Q, Q); }
