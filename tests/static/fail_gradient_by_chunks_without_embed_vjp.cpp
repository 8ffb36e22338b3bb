// expect: and embed_vjp(x, y, dy, dx) of the feature map; those of attention do without the latter for a power
#include <sympow/sympow.hpp>

using namespace sympow;

struct OwnSquare {
  static constexpr Score score = Score::power;
  static constexpr int degree = 2;
  static constexpr bool nonnegative = true;
  SymmetricPower<2> square;
  Index dimension(Index d) const { return square.dimension(d); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    square.embed(x, y);
  }
};

#ifdef SYMPOW_CONTROL
auto f(const Eigen::MatrixXd& Q) { return attention_vjp(OwnSquare{}, Stationary{}, {.Q = Q, .K = Q, .V = Q, .dY = Q}); }
#else
auto f(const Eigen::MatrixXd& Q) { return chunked_vjp(OwnSquare{}, Stationary{}, {.Q = Q, .K = Q, .V = Q, .dY = Q}); }
#endif
