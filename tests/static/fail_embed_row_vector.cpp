// expect: an embedding takes columns: this is a row vector, transpose it
#include <sympow/tensor/symmetric_power.hpp>

int main() {
  const Eigen::RowVectorXd x = Eigen::RowVectorXd::Ones(3);
#ifdef SYMPOW_CONTROL
  const Eigen::VectorXd phi = sympow::symmetric_power<2>(x.transpose());
#else
  const Eigen::VectorXd phi = sympow::symmetric_power<2>(x);
#endif
  return phi.size() == 6 ? 0 : 1;
}
