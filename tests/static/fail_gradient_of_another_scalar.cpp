// expect: dY must have the scalar type of queries, keys and values
#include <sympow/attention/attention_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

auto f(const MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  return attention_vjp(Linear{}, stationary(), Q, Q, Q, Q);
#else
  return attention_vjp(Linear{}, stationary(), Q, Q, Q, Q.cast<float>());
#endif
}
