// expect: the state is one of another feature map or scalar type than the call: State<Scalar, Feature>
#include <sympow/sympow.hpp>

using namespace sympow;

Eigen::MatrixXd f(const Eigen::MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  State<double, SymmetricPower<2>> state(4, 4);
#else
  State<double, SymmetricPower<3>> state(4, 4);
#endif
  return chunked(SymmetricPower<2>{}, stationary(), Q, Q, Q, state);
}
