// Every named system is its formula, in every form it has, and the reductions between them hold to the bit.
#include <sympow/sympow.hpp>
#include "catch.hpp"

#include <sympow/core/random.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/systems/linear_systems.hpp>
#include <sympow/systems/peer_parameters.hpp>
#include <sympow/systems/softmax_systems.hpp>
#include <sympow/transition/gate_distance.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using namespace sympow::verify;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double random_strengths = std::numeric_limits<double>::quiet_NaN();

// Tokens, and what every system takes.
template <class Scalar>
struct Inputs {
  Matrix<Scalar> Q, K, V, w;
  Eigen::VectorXd beta, log_gamma, theta, rates;
  Eigen::MatrixXd log_a;

  Inputs(Index d, Index e, Index T, double strength = random_strengths, double log_gate = -.001,
         std::uint64_t seed = 31) {
    Random random(seed);
    Q = random.matrix<Scalar>(d, T);
    K = systems::unit_columns(random.matrix<Scalar>(d, T));
    V = random.matrix<Scalar>(e, T);
    w = systems::unit_columns(random.matrix<Scalar>(d, T));
    beta = Eigen::VectorXd::NullaryExpr(
        T, [&] { return std::isnan(strength) ? 1 + std::tanh(random.normal()) : strength; });
    log_gamma = Eigen::VectorXd::Constant(T, log_gate);
    rates = Eigen::VectorXd::NullaryExpr(T, [&] { return 1 + std::tanh(random.normal()); });
    log_a = Eigen::MatrixXd::Constant(d, T, log_gate);
    if (std::isfinite(log_gate)) log_a = log_a.cwiseProduct(random.matrix(d, T).cwiseAbs()).eval();
    theta = rope_frequencies<double>(d);
  }

  [[nodiscard]] Matrix<Scalar> written() const { return systems::delta_rule_values(V, beta); }

  // f(system, values) for all that have a finite state, which are linear; those of powers but for what the state of a
  // power excludes.
  template <class F>
  void each_linear_system(const F& f) const {
    f("linear attention", systems::linear_attention(), V);
    f("RetNet", systems::retnet(systems::retnet_gamma(3)), V);
    f("Mamba-2", systems::mamba2(log_gamma), V);
    f("GLA", systems::gla(log_a), V);
    f("complex gate", systems::complex_gate(theta, Pairing::interleaved), V);
    f("DeltaNet", systems::delta_net(K, beta), written());
    f("Gated DeltaNet", systems::gated_delta_net(K, beta, log_gamma), written());
    f("Kimi Delta Attention", systems::kimi_delta_attention(K, beta, log_a), written());
  }
  template <class F>
  void each_power_system(const F& f) const {
    f("sympow", systems::sympow_attention<2>(), V);
    f("gated sympow", systems::gated_sympow<2>(log_gamma), V);
    f("conformal-sympow", systems::conformal_sympow<2>(log_gamma, theta, rates, Pairing::interleaved), V);
  }
  template <class F>
  void each_softmax_system(const F& f) const {
    f("NoPE", systems::nope(), V);
    f("ALiBi", systems::alibi(systems::alibi_slopes(8)[2]), V);
    f("FoX", systems::fox(log_gamma), V);
    f("FoX by channel", systems::dual(systems::gla(log_a)), V);
    f("RoPE", systems::rope(theta, Pairing::interleaved), V);
    f("PaTH", systems::path(w, beta), V);
    f("PaTH-FoX", systems::path_fox(w, beta, log_gamma, 1), V);
  }

  [[nodiscard]] auto law() const {
    return [this](const char* name, const auto& system, const auto& values) {
      CAPTURE(name);
      CHECK(three_forms_law(system.feature, system.transition, Q, K, values).residual <= 1);
    };
  }
};

template <class Scalar>
void check_softmax_and_linear(Index d, Index T, double strength, double log_gate) {
  const Inputs<Scalar> inputs(d, d / 2 + 3, T, strength, log_gate);
  CAPTURE(sizeof(Scalar), d, T, strength, log_gate);
  inputs.each_linear_system(inputs.law());
  inputs.each_softmax_system(inputs.law());
}

}  // namespace

TEST_CASE("every named system agrees in all its forms and with its definition", "[systems]") {
  for (const double log_gate : {0., -.001, -1., -1000., -infinity})
    for (const Index T : {0, 1, 63, 64, 65, 130}) {
      check_softmax_and_linear<double>(16, T, random_strengths, log_gate);
      check_softmax_and_linear<float>(16, T, random_strengths, log_gate);
    }
  for (const double strength : {0., 1., 2.})
    for (const Index d : {60, 64, 128}) check_softmax_and_linear<double>(d, 65, strength, -.001);
  for (const double log_gate : {0., -.001, -1., -1000., -infinity}) {
    const Inputs<double> inputs(16, 11, 130, random_strengths, log_gate);
    inputs.each_power_system(inputs.law());
  }
}

TEST_CASE("every named system agrees over a thousand tokens and for large heads", "[systems][.long]") {
  for (const Index d : {16, 60, 64, 128})
    for (const double strength : {0., random_strengths, 1., 2.})
      for (const double log_gate : {0., -.001, -1., -1000., -infinity}) {
        check_softmax_and_linear<double>(d, 1000, strength, log_gate);
        check_softmax_and_linear<float>(d, 130, strength, log_gate);
      }
  const Inputs<double> inputs(64, 48, 1000);
  inputs.each_power_system(inputs.law());
}

TEST_CASE("a system's recurrence is the one that its comment says", "[systems]") {
  const Inputs<double> in(6, 4, 20, random_strengths, -.2);
  const Index T = in.Q.cols();
  const auto check = [&](const char* name, const auto& system, const auto& values, const auto& step) {
    CAPTURE(name);
    Eigen::MatrixXd S = Eigen::MatrixXd::Zero(4, 6), Y(4, T);
    for (Index i = 0; i < T; ++i) {
      S = step(S, i);
      Y.col(i) = S * in.Q.col(i);
    }
    CHECK((attention(system.feature, system.transition, in.Q, in.K, values) - Y).norm() <= 1e-13 * Y.norm());
  };
  using S = Eigen::MatrixXd;
  const auto write = [&](Index i) -> S { return in.V.col(i) * in.K.col(i).transpose(); };
  const auto erase = [&](const S& s, Index i) -> S {
    return s - in.beta[i] * (s * in.K.col(i)) * in.K.col(i).transpose();
  };
  check("linear", systems::linear_attention(), in.V, [&](const S& s, Index i) -> S { return s + write(i); });
  check("RetNet", systems::retnet(.75), in.V, [&](const S& s, Index i) -> S { return .75 * s + write(i); });
  check("Mamba-2", systems::mamba2(in.log_gamma), in.V,
        [&](const S& s, Index i) -> S { return std::exp(in.log_gamma[i]) * s + write(i); });
  check("GLA", systems::gla(in.log_a), in.V,
        [&](const S& s, Index i) -> S { return s * in.log_a.col(i).array().exp().matrix().asDiagonal() + write(i); });
  check("DeltaNet", systems::delta_net(in.K, in.beta), in.written(),
        [&](const S& s, Index i) -> S { return erase(s, i) + in.beta[i] * write(i); });
  check("Gated DeltaNet", systems::gated_delta_net(in.K, in.beta, in.log_gamma), in.written(),
        [&](const S& s, Index i) -> S { return std::exp(in.log_gamma[i]) * erase(s, i) + in.beta[i] * write(i); });
  check("Kimi Delta Attention", systems::kimi_delta_attention(in.K, in.beta, in.log_a), in.written(),
        [&](const S& s, Index i) -> S {
          return erase(s * in.log_a.col(i).array().exp().matrix().asDiagonal(), i) + in.beta[i] * write(i);
        });
}

TEST_CASE("reductions hold to the bit", "[systems]") {
  const Inputs<double> in(16, 11, 130);
  const Eigen::VectorXd zeros = Eigen::VectorXd::Zero(130);
  const auto rows = [&](const auto& system) { return attention(system.feature, system.transition, in.Q, in.K, in.V); };
  const auto by_chunks = [&](const auto& system) {
    return chunked(system.feature, system.transition, in.Q, in.K, in.V, {.chunk = 96});  // gates alone would choose 144
  };
  CHECK(by_chunks(systems::gated_delta_net(in.K, in.beta, zeros)) == by_chunks(systems::delta_net(in.K, in.beta)));
  CHECK(by_chunks(systems::gated_delta_net(in.K, zeros, in.log_gamma)) == by_chunks(systems::mamba2(in.log_gamma)));
  CHECK(by_chunks(systems::delta_net(in.K, zeros)) == by_chunks(systems::linear_attention()));
  CHECK(rows(systems::path(in.w, zeros)) == rows(systems::nope()));
  CHECK(rows(systems::path_fox(in.w, in.beta, zeros, 1)) == rows(systems::path(in.w, in.beta)));
  CHECK(rows(systems::path_fox(in.w, zeros, in.log_gamma, 1)) == rows(systems::fox(in.log_gamma)));
  CHECK(rows(systems::path_fox(in.w, in.beta, in.log_gamma, .5)) ==
        rows(systems::path_fox(in.w, in.beta, .5 * in.log_gamma, 1)));
  const double slope = systems::alibi_slopes(12)[9];
  CHECK(rows(systems::fox(Eigen::VectorXd::Constant(130, -slope))) == rows(systems::alibi(slope)));
  CHECK(rows(systems::alibi(0)) == rows(systems::nope()));
  CHECK(rows(systems::dual(systems::gated_delta_net(in.w, in.beta, in.log_gamma))) ==
        rows(systems::path_fox(in.w, in.beta, in.log_gamma, 1)));
  CHECK(rows(systems::dual(systems::complex_gate(in.theta, Pairing::interleaved))) ==
        rows(systems::rope(in.theta, Pairing::interleaved)));
  CHECK(rows(systems::gated_sympow<2>(zeros)) == rows(systems::sympow_attention<2>()));
  CHECK(rows(systems::conformal_sympow<2>(in.log_gamma, in.theta, zeros, Pairing::interleaved)) ==
        rows(systems::gated_sympow<2>(in.log_gamma)));
}

TEST_CASE("peers' parameters are what their papers say", "[systems]") {
  const Eigen::Vector4d x(-800, -1, 0, 40);
  CHECK(systems::softplus(0) == std::log(2));
  CHECK(systems::softplus(-800) == 0);
  CHECK(systems::softplus(800) == 800);
  const Eigen::MatrixXd log_sigma = systems::log_sigmoid(x);
  CHECK(log_sigma(0) == -800);
  CHECK(std::abs(log_sigma(1) - std::log(1 / (1 + std::exp(1)))) <= 1e-15);
  CHECK(log_sigma(3) < 0);
  CHECK((systems::sigmoid(x).array() - 1 / (1 + (-x.array()).exp())).abs().maxCoeff() <= 1e-15);
  CHECK(systems::gla_log_gates(x, 16)(0) == -50);
  CHECK_THROWS_AS(systems::gla_log_gates(x, 0), InvalidArgument);
  CHECK(systems::sigmoid(Eigen::Vector2d(-1000, -infinity)).isZero(0));
  CHECK(systems::fox(systems::log_sigmoid(x)).transition.log_decay(0) == -800);  // a vector stays one
  CHECK(systems::delta_net(Eigen::Matrix4d::Identity(), systems::sigmoid(x)).transition.beta(2) == .5);
  const Eigen::VectorXd gates = systems::mamba2_log_gates(x, std::log(2), 1);
  CHECK(std::abs(gates[1] + 2 * std::log(2)) <= 1e-15);  // softplus(-1 + 1) = log 2, twice
  CHECK(systems::mamba2_steps(x, 1)[3] == 41);
  CHECK(systems::retnet_gamma(0) == 1 - 1. / 32);
  CHECK_THROWS_AS(systems::retnet_gamma(-1), InvalidArgument);
  CHECK(systems::alibi_slopes(8) ==
        Eigen::VectorXd::LinSpaced(8, -1, -8).unaryExpr([](double n) { return std::exp2(n); }));
  const Eigen::VectorXd twelve = systems::alibi_slopes(12);  // as published: 8, then every second of 16
  CHECK(twelve.head(8) == systems::alibi_slopes(8));
  for (Index n = 0; n < 4; ++n) CHECK(twelve[8 + n] == systems::alibi_slopes(16)[2 * n]);
  CHECK_THROWS_AS(systems::alibi_slopes(0), InvalidArgument);
  CHECK_THROWS_AS(systems::alibi(-1), InvalidGate);
  CHECK_THROWS_AS(systems::path_fox(Eigen::Matrix4d::Identity(), x, x, -1), InvalidArgument);
  Eigen::MatrixXf k = Eigen::MatrixXf::Constant(4, 2, 1e30f);
  k.col(1).setZero();
  CHECK(systems::unit_columns(k) == (Eigen::MatrixXf(4, 2) << .5f, 0, .5f, 0, .5f, 0, .5f, 0).finished());
  CHECK_THROWS_AS(systems::delta_rule_values(k, Eigen::VectorXd::Ones(3)), ShapeMismatch);
}

TEST_CASE("a gate's distances are those of its weights, and a metric but for symmetry", "[systems]") {
  const Index T = 30, d = 3;
  Random random(5);
  const Eigen::VectorXd log_gamma = -random.vector(T).cwiseAbs();
  const Eigen::MatrixXd log_a = -random.matrix(d, T).cwiseAbs();
  const auto scalar = decay(log_gamma) * constant_decay(.9);
  const auto channels = decay(log_gamma) * channel_decay(log_a);
  const Eigen::MatrixXd D = gate_distances(scalar, T), D1 = gate_distances(channels, T, 1);
  for (Index i = 0; i < T; ++i)
    for (Index j = 0; j < T; ++j) {
      CAPTURE(i, j);
      if (j > i) {
        CHECK(D(j, i) == infinity);
        CHECK(D1(j, i) == infinity);
        continue;
      }
      const double sum = log_gamma.segment(j + 1, i - j).sum();
      CHECK(std::abs(D(j, i) + sum + static_cast<double>(i - j) * std::log(.9)) <= 1e-13);
      CHECK(std::abs(D1(j, i) + sum + log_a.row(1).segment(j + 1, i - j).sum()) <= 1e-13);
    }
  const Eigen::MatrixXd open = gate_distances(stationary(), 4);
  CHECK(open(0, 3) == 0);  // open gates: different tokens at distance 0
  CHECK(gate_distances(decay(Eigen::Vector2d(0, -infinity)), 2)(0, 1) == infinity);
  CHECK_THROWS_AS(gate_distances(scalar, T - 1), ShapeMismatch);
  CHECK_THROWS_AS(gate_distances(stationary(), -1), ShapeMismatch);
  CHECK_THROWS_AS(gate_distances(channels, T, 3), InvalidArgument);
}
