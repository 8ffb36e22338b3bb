// expect: a state form needs a feature map with a finite embedding, which has dimension and embed (Exponential
#include <sympow/sympow.hpp>

using namespace sympow;

Eigen::MatrixXd f(const Eigen::MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  return attention(Exponential{}, stationary(), Q, Q, Q);
#else
  return chunked(Exponential{}, stationary(), Q, Q, Q);
#endif
}
