// expect: channel decay and Householder chains are lifted to the embedding, which needs a feature map whose score is a
// power of the logit, or Exponential
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
};

Eigen::MatrixXd f(const Eigen::MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  return chunked(Shifted{}, constant_decay(.5), Q, Q, Q);
#else
  return chunked(Shifted{}, channel_decay(-Q.cwiseAbs()), Q, Q, Q);
#endif
}
