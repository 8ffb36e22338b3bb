// Everything included, one form called.
#include <sympow/sympow.hpp>

using namespace sympow;

int main() {
  const Matrix<float> Q = Matrix<float>::Random(16, 100), K = Matrix<float>::Random(16, 100), V = K;
  const Eigen::VectorXd log_gamma = Eigen::VectorXd::Constant(100, -.01);
  return attention(SymmetricPower<2>{}, decay(log_gamma), Q, K, V).allFinite() ? 0 : 1;
}
