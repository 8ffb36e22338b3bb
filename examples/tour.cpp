// A walk through the library: every comment below is checked when this program runs.
#include <cstdlib>
#include <iostream>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;

namespace {

void expect(bool true_as_the_comment_says, const char* comment) {
  if (true_as_the_comment_says) return;
  std::cerr << "not true: " << comment << '\n';
  std::exit(EXIT_FAILURE);
}

}  // namespace

int main() {
  // [tour]
  const int d = 16, e = 8, T = 1000;
  const VectorXd q = VectorXd::Random(d), k = VectorXd::Random(d);

  // Multi-indices: non-decreasing, lexicographic, 0-based.
  const MultiIndices indices(d, 4);  // a random-access range; indices.size() == symmetric_dimension(16, 4) == 3876
  const auto alpha = indices[100];   // unrank; indices.rank(alpha) == 100
  const auto copies = multiplicity(alpha);  // 4! / Π c_i!, the size of its orbit

  // Embeddings are lazy.
  const VectorXd phi = symmetric_power<4>(q);  // 3876 entries
  const double score =
      symmetric_power<4>(q).dot(symmetric_power<4>(k));  // pow(q·k, 4): 16 multiplications, no embedding

  // Rotations are never matrices.
  const VectorXd theta = rotary_frequencies<double>(d, 4096);  // θ_i = 2π / N^{2(i-1)/d}, d/2 of them
  const BlockRotation<double> R(theta);
  const VectorXd rotated = R.pow(1000) * q;                       // R(1000 θ) q
  const VectorXd lifted = induced<4>(R) * symmetric_power<4>(q);  // φ⁴(R q), Proposition 2

  // Structured rotations: any commuting family of skew generators.
  const MatrixXd X = MatrixXd::Random(d, d), skew_a = X - X.transpose(), skew_b = skew_a * skew_a * skew_a;
  const CommutingGenerators<double> family({skew_a, skew_b});  // throws NotSkew / NotCommuting with the residual
  const VectorXd position = VectorXd::Random(2);
  const VectorXd placed = family.at(position) * q;  // R_STR(r) q
  const auto P = cayley(skew_a);                    // factored once
  const VectorXd turned = P * q;                    // (I - S)(I + S)⁻¹ q, by a solve

  // Powers with gates and learned rotary (conformal-sympow): the same outputs by three algorithms. Tokens are columns.
  const MatrixXd Q = MatrixXd::Random(d, T), K = MatrixXd::Random(d, T), V = MatrixXd::Random(e, T);
  const VectorXd log_gamma = -VectorXd::Random(T).cwiseAbs() * .01, beta = VectorXd::Random(T).array() + 1;
  const auto A = decay(log_gamma) * rotary(theta, beta, Pairing::interleaved);
  const MatrixXd Y = attention(SymmetricPower<2>{}, A, Q, K, V);
  State<double, SymmetricPower<2>> state(d, e), streamed(d, e);         // or State(feature, d, e)
  const MatrixXd Y2 = chunked(SymmetricPower<2>{}, A, Q, K, V, state);  // state is ready for token T + 1
  const MatrixXd Y3 = recurrent(SymmetricPower<2>{}, A, Q, K, V, streamed);

  // Token by token: a state carries all that came before, the rotation included.
  State<double, SymmetricPower<2>> live(d, e);
  Workspace<double> workspace;
  MatrixXd Y4(e, T);
  for (Index t = 0; t < T; ++t) {
    const auto step = decay(log_gamma.segment(t, 1)) * rotary(theta, beta.segment(t, 1), Pairing::interleaved);
    recurrent(SymmetricPower<2>{}, step, Q.col(t), K.col(t), V.col(t), live, Y4.col(t), workspace);
  }

  // Its softmax dual: swap the feature map, keep the transition.
  const MatrixXd Z = attention(Exponential{}, A, Q, K, V);  // FoX with learned rotary
  // [tour]

  expect(indices.size() == 3876 && symmetric_dimension(16, 4) == 3876, "indices.size() == 3876");
  expect(indices.rank(alpha) == 100, "indices.rank(alpha) == 100");
  expect(copies == static_cast<Index>(orbit(alpha).size()), "the size of its orbit");
  expect(phi.size() == 3876, "3876 entries");
  expect(std::abs(score - std::pow(q.dot(k), 4)) <= 1e-14 * std::abs(score), "pow(q·k, 4)");
  expect(theta.size() == d / 2, "d/2 of them");
  expect((rotated - BlockRotation<double>(1000 * theta) * q).norm() <= 1e-12 * q.norm(), "R(1000 θ) q");
  expect((lifted - symmetric_power<4>(R.toDenseMatrix() * q)).norm() <= 1e-13 * lifted.norm(), "φ⁴(R q)");
  expect((family.at(2 * position).toDenseMatrix() * q - family.at(position) * placed).norm() <= 1e-9 * q.norm(),
         "R_STR(r) q");
  const MatrixXd I = MatrixXd::Identity(d, d);
  expect(((I + skew_a) * turned - (I - skew_a) * q).norm() <= 1e-12 * q.norm() * skew_a.norm(), "(I - S)(I + S)⁻¹ q");
  expect((Y2 - Y).norm() <= 1e-11 * Y.norm() && (Y3 - Y).norm() <= 1e-11 * Y.norm(), "three forms, one function");
  expect((Y4 - Y).norm() <= 1e-11 * Y.norm() && live.tokens() == T, "a state carries all that came before");
  expect(state.tokens() == T && streamed.tokens() == T, "state is ready for token T + 1");
  expect(Z.rows() == e && Z.cols() == T && Z.allFinite() && Z.cwiseAbs().maxCoeff() <= V.cwiseAbs().maxCoeff(), "FoX");
  std::cout << "tour: " << T << " tokens, three forms, largest difference "
            << std::max((Y2 - Y).norm(), (Y3 - Y).norm()) / Y.norm() << " of ‖Y‖\n";
}
