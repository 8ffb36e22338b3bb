// expect: the inner product of two different powers of embeddings is not defined: their dimensions differ
#include <sympow/tensor/symmetric_power.hpp>

int main() {
  const Eigen::MatrixXd x = Eigen::MatrixXd::Ones(3, 2);
#ifdef SYMPOW_CONTROL
  const Eigen::MatrixXd gram = sympow::symmetric_power<2>(x).transpose() * sympow::symmetric_power<2>(x);
#else
  const Eigen::MatrixXd gram = sympow::symmetric_power<2>(x).transpose() * sympow::symmetric_power<3>(x);
#endif
  return gram.rows() == 2 ? 0 : 1;
}
