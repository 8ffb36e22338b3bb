// Gradients: queries, gates and rotation rates of conformal-sympow learned by gradient descent, and a sequence that is
// taken back in two calls.
//
// A teacher with queries, gates and rates of its own makes the outputs; a student that starts from others comes to the
// same outputs. The program fails if the loss does not fall a hundred times, if two calls give other gradients than
// one, or if rows that are kept do.
#include <sympow/sympow.hpp>

#include <iostream>
#include <vector>

using namespace sympow;
using Eigen::MatrixXd, Eigen::RowVectorXd, Eigen::VectorXd;

namespace {

constexpr int d = 8, e = 4, T = 64;
const SymmetricPower<2> feature;

// The part of the loss |Y - teacher's|² / 2 that is left after descent in Q, log γ and β.
double learn(const MatrixXd& Q, const MatrixXd& K, const MatrixXd& V) {
  const VectorXd theta = rotary_frequencies<double>(d, 256);
  const RowVectorXd gates = -.2 * RowVectorXd::Random(T).cwiseAbs(), rates = .3 * RowVectorXd::Random(T).array() + 1;
  const MatrixXd wanted = attention(feature, decay(gates) * rotary(theta, rates, Pairing::interleaved), Q, K, V);

  MatrixXd queries = MatrixXd::Random(d, T);
  VectorXd log_gamma = VectorXd::Constant(T, -.01), beta = VectorXd::Ones(T);
  double first = 0, loss = 0;
  for (int n = 0; n <= 2000; ++n) {
    const auto A = decay(log_gamma) * rotary(theta, beta, Pairing::interleaved);
    const MatrixXd dY = attention(feature, A, queries, K, V) - wanted;  // ∂loss/∂Y
    loss = dY.squaredNorm() / 2;
    if (n == 0) first = loss;
    const auto g = attention_vjp(feature, A, {.Q = queries, .K = K, .V = V, .dY = dY});
    queries -= .2 * g.Q;
    log_gamma = (log_gamma - .02 * g.of<Decay>().log_gamma).cwiseMin(0);  // a gate is at most 1
    beta -= .02 * g.of<Rotary>().beta;
    if (n % 500 == 0) std::cout << "step " << n << ": loss " << loss << '\n';
  }
  return loss / first;
}

// The largest difference of dK between one call over all tokens and two, the second half first.
double split(const MatrixXd& Q, const MatrixXd& K, const MatrixXd& V, const MatrixXd& dY) {
  constexpr int half = T / 2;
  const auto A = constant_decay(.95) * rotary(rotary_frequencies<double>(d, 256), Pairing::interleaved);
  const auto whole = chunked_vjp(feature, A, {.Q = Q, .K = K, .V = V, .dY = dY});

  State<double, SymmetricPower<2>> first(feature, d, e), second = first;
  Workspace<double> workspace;
  absorb(feature, A, K.leftCols(half), V.leftCols(half), second, workspace);  // the state between
  StateGradient<double, SymmetricPower<2>> adjoint(feature, d, e);            // of the last state: 0
  const auto later = chunked_vjp(feature, A,
                                 {.Q = Q.rightCols(half),
                                  .K = K.rightCols(half),
                                  .V = V.rightCols(half),
                                  .dY = dY.rightCols(half),
                                  .state = second,
                                  .d_state = adjoint});  // now that of the state between
  const auto earlier = chunked_vjp(feature, A,
                                   {.Q = Q.leftCols(half),
                                    .K = K.leftCols(half),
                                    .V = V.leftCols(half),
                                    .dY = dY.leftCols(half),
                                    .state = first,
                                    .d_state = adjoint});
  return std::max((whole.K.leftCols(half) - earlier.K).cwiseAbs().maxCoeff(),
                  (whole.K.rightCols(half) - later.K).cwiseAbs().maxCoeff());
}

// The same of a batch whose segments lie apart, as [B, half, H, D] each.
double split_batch() {
  constexpr Index B = 2, H = 2, half = T / 2;
  using Numbers = std::vector<double>;
  const auto draw = [](Index D) {
    const MatrixXd x = MatrixXd::Random(D, B * T * H);
    return Numbers(x.data(), x.data() + x.size());
  };
  const auto cut = [](const Numbers& x, Index D) {  // of [B, T, H, D]
    std::vector<Numbers> segments(2);
    for (Index b = 0, n = half * H * D; b < B; ++b)
      for (Index s = 0; s < 2; ++s)
        segments[std::size_t(s)].insert(segments[std::size_t(s)].end(), &x[std::size_t((2 * b + s) * n)],
                                        &x[std::size_t((2 * b + s) * n)] + n);
    return segments;
  };
  Numbers Q = draw(d), K = draw(d), V = draw(e), dY = draw(e), whole_dQ = Q, whole_dK = K, whole_dV = V;
  auto q = cut(Q, d), k = cut(K, d), v = cut(V, e), dy = cut(dY, e), y = dy, dq = q, dk = k, dv = v;
  const auto A = constant_decay(.95) * rotary(rotary_frequencies<double>(d, 256), Pairing::interleaved);
  Workspaces<double> workspaces;
  VjpWorkspaces<double> vjp_workspaces;

  const auto heads = [](Numbers& x, Index D) { return Heads<double>::bthd(x.data(), B, half, H, D); };
  std::vector<State<double, SymmetricPower<2>>> first(B * H, {feature, d, e}), second = first;
  attend(feature, A,
         {.Q = heads(q[0], d),
          .K = heads(k[0], d),
          .V = heads(v[0], e),
          .states = second,
          .Y = heads(y[0], e),
          .workspaces = workspaces});
  std::vector<StateGradient<double, SymmetricPower<2>>> adjoints(B * H, {feature, d, e});  // new in every step
  for (const std::size_t s : {1U, 0U})                                                     // the last segment first
    (void)attend_vjp(feature, A,
                     {.Q = heads(q[s], d),
                      .K = heads(k[s], d),
                      .V = heads(v[s], e),
                      .dY = heads(dy[s], e),
                      .states = s == 0 ? first : second,
                      .d_states = adjoints,
                      .dQ = heads(dq[s], d),
                      .dK = heads(dk[s], d),
                      .dV = heads(dv[s], e),
                      .workspaces = vjp_workspaces});

  const auto all = [](Numbers& x, Index D) { return Heads<double>::bthd(x.data(), B, T, H, D); };
  (void)attend_vjp(feature, A,
                   {.Q = all(Q, d),
                    .K = all(K, d),
                    .V = all(V, e),
                    .dY = all(dY, e),
                    .dQ = all(whole_dQ, d),
                    .dK = all(whole_dK, d),
                    .dV = all(whole_dV, e),
                    .workspaces = vjp_workspaces,
                    .options = {.form = Form::chunked}});
  const auto expected = cut(whole_dK, d);
  double apart = 0;
  for (const std::size_t s : {0U, 1U})
    for (std::size_t n = 0; n < dk[s].size(); ++n) apart = std::max(apart, std::abs(dk[s][n] - expected[s][n]));
  return apart;
}

// Whether rows that the forward pass has kept give the same gradient.
bool keep(const MatrixXd& Q, const MatrixXd& K, const MatrixXd& V, const MatrixXd& dY) {
  const auto A = constant_decay(.95) * rotary(rotary_frequencies<double>(d, 256), Pairing::interleaved);
  MatrixXd Y(e, T);
  Workspace<double> workspace;
  Tape<double, SymmetricPower<2>> tape;
  attention(feature, A, Q, K, V, {Y, tape}, workspace);
  const auto g = attention_vjp(feature, A, {.Q = Q, .K = K, .V = V, .dY = dY, .tape = tape});
  return g.K == attention_vjp(feature, A, {.Q = Q, .K = K, .V = V, .dY = dY}).K;
}

}  // namespace

int main() {
  std::srand(1);
  const MatrixXd Q = MatrixXd::Random(d, T), K = MatrixXd::Random(d, T), V = MatrixXd::Random(e, T),
                 dY = MatrixXd::Random(e, T);
  const double left = learn(Q, K, V), apart = std::max(split(Q, K, V, dY), split_batch());
  std::cout << "of the loss " << left << " is left; two calls and one are " << apart << " apart\n";
  return left < .01 && apart < 1e-12 && keep(Q, K, V, dY) ? 0 : 1;
}
