// expect: induced<P>(A) multiplies symmetric_power<P>(x) of the same P only
#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/conformal.hpp>
#include <sympow/tensor/induced.hpp>

int main() {
  const auto map = sympow::conformal(2., sympow::BlockRotation<double>(Eigen::VectorXd::Ones(2)));
  const Eigen::VectorXd x = Eigen::VectorXd::Ones(4);
#ifdef SYMPOW_CONTROL
  const Eigen::VectorXd image = sympow::induced<3>(map) * (sympow::induced<3>(map) * sympow::symmetric_power<3>(x));
  return image.size() == 20 ? 0 : 1;
#else
  sympow::induced<3>(map) * (sympow::induced<2>(map) * sympow::symmetric_power<2>(x));
#endif
}
