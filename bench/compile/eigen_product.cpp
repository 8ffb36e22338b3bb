// What the others are compared with: Eigen, and one product.
#include <Eigen/Dense>

int main() {
  const Eigen::MatrixXf a = Eigen::MatrixXf::Random(16, 16), b = Eigen::MatrixXf::Random(16, 16), c = a * b;
  return c.allFinite() ? 0 : 1;
}
