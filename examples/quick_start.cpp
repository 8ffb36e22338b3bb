// The library in twenty lines: symmetric power attention with gates and rotations in two of its forms, and its softmax
// dual.
#include <iostream>

#include <sympow/sympow.hpp>

int main() {
  using namespace sympow;
  using Eigen::MatrixXf, Eigen::RowVectorXf;

  const Index d = 16, e = 8, T = 1000;  // key size, value size, tokens
  const MatrixXf Q = MatrixXf::Random(d, T), K = MatrixXf::Random(d, T), V = MatrixXf::Random(e, T);
  const RowVectorXf x = RowVectorXf::Random(T).array() + 4.f;  // logits of the gates γ = σ(x)

  const SymmetricPower<2> feature;  // the score of a pair is (q·k)²
  const auto A = decay(systems::log_sigmoid(x)) * rotary(rope_frequencies<double>(d), Pairing::interleaved);
  const MatrixXf Y = attention(feature, A, Q, K, V);  // e × T: every query against every key before it

  State<float, SymmetricPower<2>> state(d, e);                // e × D and D numbers, D = 136, however many tokens
  const MatrixXf same = chunked(feature, A, Q, K, V, state);  // the same rows in linear time
  std::cout << "largest difference: " << (same - Y).cwiseAbs().maxCoeff() << '\n';

  const MatrixXf dual = attention(Exponential{}, A, Q, K, V);  // softmax with the same gates and rotations
  return (same - Y).cwiseAbs().maxCoeff() < 1e-3f && dual.allFinite() ? 0 : 1;
}
