// expect: gradients need embed_vjp(x, y, dy, dx) of a feature map with an embedded score
#include <sympow/attention/attention_vjp.hpp>
#include <sympow/sympow.hpp>

using namespace sympow;

struct Shifted {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = false;
  Index dimension(Index d) const { return d; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = x.array() + 1;
  }
#ifdef SYMPOW_CONTROL
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X&, const Y&, const DY& dy, DX&& dx) const {
    dx = dy;
  }
#endif
};

auto f(const Eigen::MatrixXd& Q) { return attention_vjp(Shifted{}, stationary(), Q, Q, Q, Q); }
