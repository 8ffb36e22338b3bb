// expect: an operator and what it multiplies must have the same scalar type; use .cast<>()
#include <sympow/rotation/block_rotation.hpp>

int main() {
  const sympow::BlockRotation<double> rotation(Eigen::VectorXd::Ones(2));
  const Eigen::VectorXf x = Eigen::VectorXf::Ones(4);
#ifdef SYMPOW_CONTROL
  const Eigen::VectorXd y = rotation * x.cast<double>();
#else
  const Eigen::VectorXd y = rotation * x;
#endif
  return y.size() == 4 ? 0 : 1;
}
