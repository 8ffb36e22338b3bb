// expect: induced<P>(A) multiplies symmetric_power<P>(x) of the same P only
#include <sympow/tensor/induced.hpp>

int main() {
  const Eigen::MatrixXd a = Eigen::MatrixXd::Identity(3, 3);
  const Eigen::VectorXd x = Eigen::VectorXd::Ones(3);
#ifdef SYMPOW_CONTROL
  const Eigen::VectorXd image = sympow::induced<2>(a) * sympow::symmetric_power<2>(x);
  return image.size() == 6 ? 0 : 1;
#else
  sympow::induced<2>(a) * sympow::symmetric_power<3>(x);
#endif
}
