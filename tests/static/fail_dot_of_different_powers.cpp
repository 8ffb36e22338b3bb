// expect: the inner product of two different powers of embeddings is not defined: their dimensions differ
#include <sympow/tensor/symmetric_power.hpp>

int main() {
  const Eigen::VectorXd x = Eigen::VectorXd::Ones(3);
#ifdef SYMPOW_CONTROL
  return sympow::symmetric_power<2>(x).dot(sympow::symmetric_power<2>(x)) == 9 ? 0 : 1;
#else
  return sympow::symmetric_power<2>(x).dot(sympow::symmetric_power<3>(x)) == 9 ? 0 : 1;
#endif
}
