// Gradients: queries, gates and rotation rates of conformal-sympow learned by gradient descent, and a sequence that is
// taken back in two calls.
//
// A teacher with queries, gates and rates of its own makes the outputs; a student that starts from others comes to the
// same outputs. The program fails if the loss does not fall a hundred times, if two calls give other gradients than
// one, or if rows that are kept do.
#include <sympow/sympow.hpp>

#include <sympow/attention/attention_vjp.hpp>
#include <sympow/attention/chunked_vjp.hpp>

#include <iostream>

using namespace sympow;
using Eigen::MatrixXd, Eigen::RowVectorXd, Eigen::VectorXd;

namespace {

constexpr int d = 8, e = 4, T = 64;
const SymmetricPower<2> feature;

// The part of the loss |Y - teacher's|² / 2 that is left after descent in Q, log γ and β.
double learn(const MatrixXd& Q, const MatrixXd& K, const MatrixXd& V) {
  const VectorXd theta = rotary_frequencies<double>(d, 256);
  const RowVectorXd gates = -.2 * RowVectorXd::Random(T).cwiseAbs(), rates = .3 * RowVectorXd::Random(T).array() + 1;
  const MatrixXd wanted = attention(feature, decay(gates) * rotary(theta, rates), Q, K, V);

  MatrixXd queries = MatrixXd::Random(d, T);
  VectorXd log_gamma = VectorXd::Constant(T, -.01), beta = VectorXd::Ones(T);
  double first = 0, loss = 0;
  for (int n = 0; n <= 2000; ++n) {
    const auto A = decay(log_gamma) * rotary(theta, beta);
    const MatrixXd dY = attention(feature, A, queries, K, V) - wanted;  // ∂loss/∂Y
    loss = dY.squaredNorm() / 2;
    if (n == 0) first = loss;
    const auto g = attention_vjp(feature, A, queries, K, V, dY);
    queries -= .2 * g.Q;
    log_gamma = (log_gamma - .02 * g.transition.left.log_gamma).cwiseMin(0);  // a gate is at most 1
    beta -= .02 * g.transition.right.beta;
    if (n % 500 == 0) std::cout << "step " << n << ": loss " << loss << '\n';
  }
  return loss / first;
}

// The largest difference of dK between one call over all tokens and two, the second half first.
double split(const MatrixXd& Q, const MatrixXd& K, const MatrixXd& V, const MatrixXd& dY) {
  constexpr int half = T / 2;
  const auto A = constant_decay(.95) * rotary(rotary_frequencies<double>(d, 256));
  const auto whole = chunked_vjp(feature, A, Q, K, V, dY);

  State<double, SymmetricPower<2>> first(feature, d, e), second = first;
  Workspace<double> workspace;
  absorb(feature, A, K.leftCols(half), V.leftCols(half), second, workspace);  // the state between
  StateGradient<double, SymmetricPower<2>> adjoint(feature, d, e);            // of the last state: 0
  const auto later = chunked_vjp(feature, A, Q.rightCols(half), K.rightCols(half), V.rightCols(half),
                                 dY.rightCols(half), second, adjoint);  // now that of the state between
  const auto earlier =
      chunked_vjp(feature, A, Q.leftCols(half), K.leftCols(half), V.leftCols(half), dY.leftCols(half), first, adjoint);
  return std::max((whole.K.leftCols(half) - earlier.K).cwiseAbs().maxCoeff(),
                  (whole.K.rightCols(half) - later.K).cwiseAbs().maxCoeff());
}

// Whether rows that the forward pass has kept give the same gradient.
bool keep(const MatrixXd& Q, const MatrixXd& K, const MatrixXd& V, const MatrixXd& dY) {
  const auto A = constant_decay(.95) * rotary(rotary_frequencies<double>(d, 256));
  MatrixXd Y(e, T);
  Workspace<double> workspace;
  RowSums<double, SymmetricPower<2>> rows;
  attention(feature, A, Q, K, V, Y, rows, workspace);
  const auto g = attention_vjp(feature, A, Q, K, V, dY, rows);
  return g.K == attention_vjp(feature, A, Q, K, V, dY).K;
}

}  // namespace

int main() {
  std::srand(1);
  const MatrixXd Q = MatrixXd::Random(d, T), K = MatrixXd::Random(d, T), V = MatrixXd::Random(e, T),
                 dY = MatrixXd::Random(e, T);
  const double left = learn(Q, K, V), apart = split(Q, K, V, dY);
  std::cout << "of the loss " << left << " is left; two calls and one are " << apart << " apart\n";
  return left < .01 && apart < 1e-12 && keep(Q, K, V, dY) ? 0 : 1;
}
