// What gradients refuse before anything is touched, and what a row without a gradient cannot spoil.
#include "catch.hpp"
#include "problem.hpp"

#include <sympow/attention/batch_vjp.hpp>

using namespace sympow;
using namespace sympow::test;
using Eigen::MatrixXd, Eigen::VectorXd;

namespace {

using Feature = SymmetricPower<2>;
using Adjoint = StateGradient<double, Feature>;
constexpr Index d = 4, e = 3, T = 20, D = 10;

// H query heads and one key head of a sequence, and room for their gradients.
struct OneSequence {
  Index H;
  std::vector<double> q, k, v, dy, dq = q, dk = k, dv = v;
  VjpWorkspaces<double> workspaces = {};

  explicit OneSequence(Index heads) : H(heads), q(draw(H * d, 1)), k(draw(d, 2)), v(draw(e, 3)), dy(draw(H * e, 4)) {}

  static std::vector<double> draw(Index rows, std::uint64_t seed) {
    const MatrixXd X = Random(seed).matrix(rows, T);
    return {X.data(), X.data() + X.size()};
  }
  template <class A>
  auto run(const A& transition, const std::vector<State<double, Feature>>& states, std::vector<Adjoint>& adjoints) {
    const auto heads = [](std::vector<double>& x, Index n, Index rows) {
      return Heads<double>::bthd(x.data(), 1, T, n, rows);
    };
    return attend_vjp(Feature{}, transition,
                      {.Q = heads(q, H, d),
                       .K = heads(k, 1, d),
                       .V = heads(v, 1, e),
                       .dY = heads(dy, H, e),
                       .states = states,
                       .d_states = adjoints,
                       .dQ = heads(dq, H, d),
                       .dK = heads(dk, 1, d),
                       .dV = heads(dv, 1, e),
                       .workspaces = workspaces});
  }
};

}  // namespace

TEST_CASE("the gradient of a state under another rotation is refused, and nothing is touched", "[gradient]") {
  const VectorXd theta = rope_frequencies<double>(d);
  for (const Index H : {1, 2}) {  // a state of its own, or shared
    CAPTURE(H);
    OneSequence x(H);
    const std::vector<State<double, Feature>> states(1, State<double, Feature>(d, e));
    std::vector<Adjoint> adjoints(1, Adjoint(d, e));
    static_cast<void>(x.run(rotary(theta, Pairing::interleaved), states, adjoints));
    REQUIRE(adjoints[0].frame().size() == d / 2);
    const std::vector<double> dq = x.dq;
    const VectorXd frame = adjoints[0].frame();
    REQUIRE_THROWS_AS(x.run(constant_decay(.9), states, adjoints), FrameMismatch);
    REQUIRE_THROWS_WITH(x.run(constant_decay(.9), states, adjoints),
                        contains("under a rotation of 2 angles, the transition has 0"));
    CHECK(x.dq == dq);
    CHECK(adjoints[0].frame() == frame);
    static_cast<void>(x.run(rotary(theta, Pairing::interleaved), states, adjoints));  // its own is taken
  }
}

TEST_CASE("angles of a state's gradient are one a plane and finite, where something turns", "[gradient]") {
  const MatrixXd dS = MatrixXd::Ones(e, D);
  const VectorXd dZ = VectorXd::Ones(D);
  REQUIRE_THROWS_AS(Adjoint(Feature{}, d, dS, dZ, VectorXd::Ones(3)), ShapeMismatch);
  REQUIRE_THROWS_WITH(Adjoint(Feature{}, d, dS, dZ, VectorXd::Ones(3)), contains("angles of dmu are 3, must be 2"));
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    REQUIRE_THROWS_AS(Adjoint(Feature{}, d, dS, dZ, VectorXd::Constant(2, bad)), NotFinite);
  Random random(3);
  const Problem<double> x(random, d, e, T, .1);
  const State<double, Feature> state(d, e);
  Adjoint turned(Feature{}, d, dS, dZ, VectorXd::Ones(2));
  const auto back = [&](const auto& A) { return from_state(Feature{}, A, x, x.dY, state, turned); };
  REQUIRE_THROWS_AS(back(stationary()), FrameMismatch);
  REQUIRE_THROWS_AS(back(structured_rotary(CommutingGenerators<double>::from_frequencies(x.parameters.frequencies),
                                           x.parameters.positions)),
                    FrameMismatch);
  static_cast<void>(back(rotary(x.parameters.theta, Pairing::interleaved)));
}

TEST_CASE("the gradient of a state of a map with another dimension is refused", "[gradient]") {
  Random random(3);
  const Problem<double> x(random, d, e, T, .1);
  const PositiveRandomFeatures few(d, 8), many(d, 16);
  const State<double, PositiveRandomFeatures> state(many, d, e);
  StateGradient<double, PositiveRandomFeatures> adjoint(few, d, e);
  REQUIRE_THROWS_WITH(from_state(many, stationary(), x, x.dY, state, adjoint),
                      contains("dimension of the state's gradient is 8, must be 16"));
}

TEST_CASE("gradients of attention refuse a state and its gradient", "[gradient]") {
  Random random(4);
  const Problem<double> x(random, d, e, T, .1);
  const State<double, Feature> state(d, e);
  Adjoint adjoint(d, e);
  REQUIRE_THROWS_WITH(
      attention_vjp(Feature{}, stationary(), {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .state = state}),
      contains("attention_vjp: a state or its gradient is given"));
  REQUIRE_THROWS_AS(
      attention_vjp(Feature{}, stationary(), {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .d_state = adjoint}),
      InvalidArgument);
}

TEST_CASE("a row without weight changes no bit of any gradient, whatever its dy is", "[gradient]") {
  Random random(5);
  Problem<double> x(random, d, e, 60, .1);
  for (const Index row : {0, 9, 50}) x.Q.col(row).setZero();
  const auto check = [&](const auto& feature, const auto& A) {
    using F = std::remove_cvref_t<decltype(feature)>;
    for (const double bad :
         {1e300, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      CAPTURE(bad);
      MatrixXd dY = x.dY;
      for (const Index row : {0, 9, 50}) dY.col(row).setConstant(bad);
      const auto direct = [&](const MatrixXd& rows) {
        return attention_vjp<SignedNormalized>(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = rows});
      };
      CHECK(equal_bits(direct(dY), direct(x.dY)));
      for (const Index chunk : {8, 64}) {
        State<double, F> state(feature, d, e);  // which the first rows read
        static_cast<void>(recurrent(feature, constant_decay(.9), x.K, x.K, x.V, state));
        StateGradient<double, F> adjoint(feature, d, e), other = adjoint;
        const auto through = [&](const MatrixXd& rows, StateGradient<double, F>& at) {
          return from_state<SignedNormalized>(feature, A, x, rows, state, at, {.chunk = chunk});
        };
        CHECK(equal_bits(through(dY, adjoint), through(x.dY, other)));
        CHECK(adjoint.values() == other.values());
        CHECK(adjoint.normalizer() == other.normalizer());
        CHECK(adjoint.frame() == other.frame());
      }
    }
  };
  const auto& p = x.parameters;
  check(Feature{}, decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::interleaved));
  check(Linear{}, channel_decay(p.log_a));
}

TEST_CASE("gradients that lie in the memory of arguments or of each other are refused", "[gradient]") {
  Random random(6);
  const Problem<double> x(random, d, e, T, .1);
  Gradients<double, Stationary> g;
  VjpWorkspace<double> workspace;
  const State<double, Feature> state(d, e);
  Adjoint adjoint(d, e);
  g.Q = x.Q, g.K = x.K, g.V = x.V;
  const auto refuse = [&](const auto& Q, const auto& K, const auto& V, const auto& dY, const std::string& text) {
    CAPTURE(text);
    CHECK_THROWS_AS(g = attention_vjp(Feature{}, stationary(),
                                      {.Q = Q, .K = K, .V = V, .dY = dY, .reuse = g, .workspace = workspace}),
                    InvalidArgument);
    CHECK_THROWS_WITH(g = attention_vjp(Feature{}, stationary(),
                                        {.Q = Q, .K = K, .V = V, .dY = dY, .reuse = g, .workspace = workspace}),
                      contains(text));
    CHECK_THROWS_WITH(
        g = chunked_vjp(
            Feature{}, stationary(),
            {.Q = Q, .K = K, .V = V, .dY = dY, .state = state, .d_state = adjoint, .reuse = g, .workspace = workspace}),
        contains(text));
    CHECK(g.Q == x.Q);
    CHECK(g.V == x.V);
  };
  refuse(g.Q, x.K, x.V, x.dY, "dQ and Q share memory");
  refuse(x.Q, g.Q, x.V, x.dY, "dQ and K share memory");
  refuse(x.Q, x.K, g.V, x.dY, "dV and V share memory");
  refuse(x.Q, x.K, x.V, g.V, "dV and dY share memory");
  g = attention_vjp(Feature{}, stationary(),
                    {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .reuse = g, .workspace = workspace});
  g = attention_vjp(
      Feature{}, stationary(),
      {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .reuse = g, .workspace = workspace});  // again in the same place

  OneSequence y(1);
  const auto heads = [](double* data, Index n) { return Heads<double>::bthd(data, 1, T, 1, n); };
  const auto run = [&](double* dq, double* dk, double* dv) {
    VjpWorkspaces<double> workspaces;
    return attend_vjp(Feature{}, stationary(),
                      {.Q = heads(y.q.data(), d),
                       .K = heads(y.k.data(), d),
                       .V = heads(y.v.data(), e),
                       .dY = heads(y.dy.data(), e),
                       .dQ = heads(dq, d),
                       .dK = heads(dk, d),
                       .dV = heads(dv, e),
                       .workspaces = workspaces});
  };
  CHECK_THROWS_AS(run(y.q.data(), y.dk.data(), y.dv.data()), InvalidArgument);
  CHECK_THROWS_WITH(run(y.q.data(), y.dk.data(), y.dv.data()), contains("dQ and Q share memory"));
  CHECK_THROWS_WITH(run(y.dq.data(), y.k.data(), y.dv.data()), contains("dK and K share memory"));
  CHECK_THROWS_WITH(run(y.dq.data(), y.dk.data(), y.dy.data()), contains("dV and dY share memory"));
  CHECK_THROWS_WITH(run(y.dq.data(), y.dq.data(), y.dv.data()), contains("dK and dQ share memory"));
  static_cast<void>(run(y.dq.data(), y.dk.data(), y.dv.data()));
}

TEST_CASE("gradients have no diagnostics, and look for what is not finite in dY when asked", "[gradient]") {
  Random random(6);
  const Problem<double> x(random, d, e, T, .1);
  Diagnostics said;
  const auto both = [&](const MatrixXd& dY, const Options& options, const std::string& text) {
    CHECK_THROWS_WITH(
        attention_vjp(Feature{}, stationary(), {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = options}),
        contains(text));
    CHECK_THROWS_WITH(
        chunked_vjp(Feature{}, stationary(), {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = options}),
        contains(text));
  };
  both(x.dY, {.diagnostics = &said}, "diagnostics are of rows");
  MatrixXd dY = x.dY;
  dY(1, 7) = std::numeric_limits<double>::infinity();
  both(dY, {.check_finite = true}, "dY(1, 7) is inf");
}
