// expect: gradients are those of a loss in Y: after the values stands dY
#include <sympow/attention/attention_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

auto f(const MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  return attention_vjp(Linear{}, stationary(), Q, Q, Q, Q);
#else
  return attention_vjp(Linear{}, stationary(), Q, Q, Q);
#endif
}
