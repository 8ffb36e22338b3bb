// expect: for any other vector ask for induced<P>(A).toDenseMatrix(), which is D x D
#include <sympow/tensor/induced.hpp>

int main() {
  const Eigen::MatrixXd a = Eigen::MatrixXd::Identity(3, 3);
  const Eigen::VectorXd phi = Eigen::VectorXd::Ones(6);
#ifdef SYMPOW_CONTROL
  const Eigen::VectorXd image = sympow::induced<2>(a).toDenseMatrix() * phi;
  return image.size() == 6 ? 0 : 1;
#else
  sympow::induced<2>(a) * phi;
#endif
}
