// expect: the power must lie in 1
#include <sympow/tensor/induced.hpp>

int main() {
  const Eigen::MatrixXd a = Eigen::MatrixXd::Identity(3, 3);
#ifdef SYMPOW_CONTROL
  return sympow::induced<8>(a).rows() == 45 ? 0 : 1;
#else
  return sympow::induced<9>(a).rows() == 55 ? 0 : 1;
#endif
}
