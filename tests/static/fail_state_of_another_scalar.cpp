// expect: the state is one of another feature map or scalar type than the call: State<Scalar, Feature>
#include <sympow/sympow.hpp>

using namespace sympow;

void f(const Eigen::MatrixXf& Q, Workspace<float>& workspace) {
#ifdef SYMPOW_CONTROL
  State<float, SymmetricPower<2>> state(4, 4);
#else
  State state(SymmetricPower<2>{}, 4, 4);
#endif
  absorb(SymmetricPower<2>{}, stationary(), Q, Q, state, workspace);
}
