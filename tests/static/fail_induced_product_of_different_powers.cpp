// expect: induced<P>(A) * induced<Q>(B) is defined for equal powers only: their dimensions differ
#include <sympow/tensor/induced.hpp>

int main() {
  const Eigen::MatrixXd a = Eigen::MatrixXd::Identity(3, 3);
#ifdef SYMPOW_CONTROL
  return (sympow::induced<2>(a) * sympow::induced<2>(a)).rows() == 6 ? 0 : 1;
#else
  return (sympow::induced<2>(a) * sympow::induced<3>(a)).rows() == 6 ? 0 : 1;
#endif
}
