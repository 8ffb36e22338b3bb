// expect: queries, keys, values and outputs are matrices: give x.matrix() of an array expression x
#include <sympow/sympow.hpp>

using namespace sympow;

Eigen::MatrixXd f(const Eigen::MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  return attention<Unnormalized>(SymmetricPower<2>{}, stationary(), Q, Q.array().tanh().matrix(), Q);
#else
  return attention<Unnormalized>(SymmetricPower<2>{}, stationary(), Q, Q.array().tanh(), Q);
#endif
}
