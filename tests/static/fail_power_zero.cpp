// expect: the power must lie in 1
#include <sympow/tensor/symmetric_power.hpp>

int main() {
  const Eigen::VectorXd x = Eigen::VectorXd::Ones(3);
#ifdef SYMPOW_CONTROL
  return sympow::symmetric_power<8>(x).rows() == 45 ? 0 : 1;
#else
  return sympow::symmetric_power<0>(x).rows() == 45 ? 0 : 1;
#endif
}
