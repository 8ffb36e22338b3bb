// expect: this feature map (Exponential, or one without dimension and embed) has no finite embedding, hence no state:
// it has the attention form only
#include <sympow/sympow.hpp>

using namespace sympow;

Eigen::MatrixXd f(const Eigen::MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  return attention(Exponential{}, stationary(), Q, Q, Q);
#else
  return chunked(Exponential{}, stationary(), Q, Q, Q);
#endif
}
