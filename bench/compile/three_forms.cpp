// The program whose compilation is timed: everything included, three forms called.
#include <sympow/sympow.hpp>

using namespace sympow;

int main() {
  const Index d = 16, T = 100;
  const Matrix<float> Q = Matrix<float>::Random(d, T), K = Matrix<float>::Random(d, T), V = Matrix<float>::Random(d, T);
  const auto A =
      decay(Eigen::VectorXd::Constant(T, -.01)) * rotary(rotary_frequencies<double>(d, 4096), Pairing::interleaved);
  State<float, SymmetricPower<2>> state(d, d);
  const Matrix<float> Y = attention(SymmetricPower<2>{}, A, Q, K, V);
  const Matrix<float> largest = (chunked(SymmetricPower<2>{}, A, Q, K, V) - Y)
                                    .cwiseAbs()
                                    .cwiseMax((recurrent(SymmetricPower<2>{}, A, Q, K, V, state) - Y).cwiseAbs());
  return largest.maxCoeff() < 1e-3f ? 0 : 1;
}
