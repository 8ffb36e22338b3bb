// expect: this feature map (Exponential, or one without dimension and embed) has no finite embedding
#include <sympow/attention/chunked_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

auto f(const MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  return chunked_vjp(Linear{}, stationary(), Q, Q, Q, Q);
#else
  return chunked_vjp(Exponential{}, stationary(), Q, Q, Q, Q);
#endif
}
