// Exponential scores with log gates above 0: a bias of logits that grows towards earlier keys.
#include <cmath>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

/// Rows by the definition, y_i = Σ_j p_ij v_j with p_ij ∝ e^{q_i·k_j + Σ_{j<t≤i} l_t}, and the gradients of Σ dy·y.
struct Expected {
  Eigen::MatrixXd Y, dQ, dK, dV;
  Eigen::VectorXd d_gates;

  Expected(const Eigen::MatrixXd& Q, const Eigen::MatrixXd& K, const Eigen::MatrixXd& V, const Eigen::MatrixXd& dY,
           const Eigen::VectorXd& log_gates)
      : Y(0 * V), dQ(0 * Q), dK(0 * K), dV(0 * V), d_gates(0 * log_gates) {
    for (Index i = 0; i < Q.cols(); ++i) {
      Eigen::VectorXd logits(i + 1);
      double bias = 0;
      for (Index j = i; j >= 0; bias += log_gates[j--]) logits[j] = Q.col(i).dot(K.col(j)) + bias;
      Eigen::VectorXd p = (logits.array() - logits.maxCoeff()).exp();
      p /= p.sum();
      Y.col(i) = V.leftCols(i + 1) * p;
      for (Index j = 0; j <= i; ++j) {
        const double d_logit = p[j] * dY.col(i).dot(V.col(j) - Y.col(i));
        dV.col(j) += p[j] * dY.col(i);
        dQ.col(i) += d_logit * K.col(j);
        dK.col(j) += d_logit * Q.col(i);
        d_gates.segment(j + 1, i - j).array() += d_logit;
      }
    }
  }
};

}  // namespace

TEST_CASE("log gates above 0 are a bias under exponential scores, and refused under others", "[attention]") {
  Random random(3);
  constexpr Index d = 5, e = 3, T = 500;  // more than two blocks of keys
  const Eigen::MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T),
                        dY = random.matrix(e, T);
  for (const double size : {.01, 1., 20.}) {
    CAPTURE(size);
    const Eigen::VectorXd log_gates = size * random.vector(T);
    REQUIRE(log_gates.maxCoeff() > 0);
    const Expected expected(Q, K, V, dY, log_gates);
    const auto near = [](const Eigen::MatrixXd& found, const Eigen::MatrixXd& x) {
      return (found - x).cwiseAbs().maxCoeff() <= 1e-11 * (1 + x.cwiseAbs().maxCoeff());
    };
    CHECK(near(attention(Exponential{}, decay(log_gates), Q, K, V), expected.Y));
    const auto g = attention_vjp(Exponential{}, decay(log_gates),
                                 VjpCall<double, Exponential, Decay>{.Q = Q, .K = K, .V = V, .dY = dY});
    CHECK(near(g.Q, expected.dQ));
    CHECK(near(g.K, expected.dK));
    CHECK(near(g.V, expected.dV));
    CHECK(near(g.transition.log_gamma, expected.d_gates));
    CHECK_THROWS_AS(attention(SymmetricPower<2>{}, decay(log_gates), Q, K, V), InvalidGate);
    CHECK_THROWS_AS(chunked(Linear{}, decay(log_gates), Q, K, V), InvalidGate);
  }
  const Eigen::MatrixXd by_constant = attention(Exponential{}, ConstantDecay::from_log(.25), Q, K, V);
  CHECK((by_constant - Expected(Q, K, V, dY, Eigen::VectorXd::Constant(T, .25)).Y).cwiseAbs().maxCoeff() <= 1e-11);
  CHECK_THROWS_AS(attention(Linear{}, ConstantDecay::from_log(.25), Q, K, V), InvalidGate);
  CHECK_THROWS_AS(ConstantDecay::from_log(std::nan("")), InvalidGate);
}

// Beside logits of 10^20 and more a gate of e^-1000 is lost in a sum, but not between equal ones.
TEMPLATE_TEST_CASE("a gate decides between equal logits of any size", "[attention]", float, double) {
  using M = Matrix<TestType>;
  constexpr int most = std::numeric_limits<TestType>::max_exponent10;
  for (const int exponent : {4, most / 2, most - 3}) {
    CAPTURE(exponent);
    const auto size = static_cast<TestType>(std::pow(10., exponent / 2));
    const M Q = M::Constant(3, 3, size), K = M::Constant(3, 3, size),
            V = Eigen::RowVector3d(1, 2, 4).template cast<TestType>();
    const auto A = decay(Eigen::Vector3d(0, -1000, -1000));
    CHECK(attention(Exponential{}, A, Q, K, V) == V);
    const auto g = attention_vjp(Exponential{}, A, VjpCall<TestType, Exponential, Decay>{Q, K, V, V});
    CHECK(g.Q.allFinite());
    CHECK(g.K.allFinite());
    CHECK(g.V.allFinite());
  }
}
