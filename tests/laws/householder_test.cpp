// Householder chains in every form that has them: against the definition, split, saved, merged, alone, with decay and
// behind channel gates.
#include <sympow/sympow.hpp>
#include "catch.hpp"

#include <sympow/attention/scan.hpp>
#include <sympow/attention/state_file.hpp>
#include <sympow/core/random.hpp>
#include <sympow/transition/channel_decay.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/laws.hpp>

#include <ctime>
#include <sstream>

using namespace sympow;
using namespace sympow::verify;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Strengths β: a number for all tokens, or NaN for random ones in (0, 2).
constexpr double random_strengths = std::numeric_limits<double>::quiet_NaN();

template <class Scalar>
struct Chain {
  Matrix<Scalar> Q, K, V, w;
  Eigen::VectorXd beta, log_gamma;
  Eigen::MatrixXd log_a;  // none if empty

  Chain(Index d, Index e, Index T, double strength, double log_gate, std::uint64_t seed) {
    Random random(seed);
    Q = random.matrix<Scalar>(d, T);
    K = random.matrix<Scalar>(d, T);
    V = random.matrix<Scalar>(e, T);
    w = random.matrix<Scalar>(d, T).colwise().normalized();
    beta = Eigen::VectorXd::Constant(T, strength);
    if (std::isnan(strength)) beta = beta.unaryExpr([&](double) { return 1 + std::tanh(random.normal()); });
    log_gamma = Eigen::VectorXd::Constant(T, log_gate);
  }

  /// Channel gates of about e^-slowness, of which a share is closed.
  Chain& gate(double slowness, double closed) {
    Random random(5);
    log_a = -slowness * random.matrix(Q.rows(), Q.cols()).cwiseAbs();
    for (double& x : log_a.reshaped())
      if (random.uniform() < closed) x = -infinity;
    return *this;
  }

  [[nodiscard]] auto transition(Segment s) const {
    const auto chain = householder(w.middleCols(s.begin, s.size), beta.segment(s.begin, s.size));
    return decay(log_gamma.segment(s.begin, s.size)) *
           (log_a.size() == 0 ? chain : channel_decay(log_a.middleCols(s.begin, s.size)) * chain);
  }
  [[nodiscard]] auto transition() const { return transition({0, Q.cols()}); }

  template <class F>
  [[nodiscard]] double worst_row(const F& feature) const {
    return three_forms_law(feature, transition(), Q, K, V).residual;
  }
};

template <class Scalar>
void check(std::initializer_list<Index> dimensions, std::initializer_list<Index> lengths,
           std::initializer_list<double> log_gates) {
  for (const Index d : dimensions)
    for (const Index T : lengths)
      for (const double strength : {0., random_strengths, 1., 2.})
        for (const double log_gate : log_gates) {
          CAPTURE(sizeof(Scalar), d, T, strength, log_gate);
          const Chain<Scalar> chain(d, d / 2 + 3, T, strength, log_gate, 11);
          CHECK(chain.worst_row(Linear{}) <= 1);
        }
}

}  // namespace

TEST_CASE("DeltaNet's transition gives the same in three forms", "[laws]") {
  check<double>({16}, {0, 1, 63, 64, 65, 130}, {0, -.001, -1, -1000, -infinity});
  check<float>({16}, {65, 130}, {0, -.001, -1, -1000, -infinity});
  check<double>({60, 128}, {65}, {0, -.001});
  check<float>({64}, {65, 130}, {0, -.001});
  check<float>({16}, {500}, {0, -.001});
}

TEST_CASE("Kimi Delta Attention's transition gives the same in three forms, and its dual the defined rows", "[laws]") {
  const auto check_gates = [](auto scalar, Index d, Index T, std::initializer_list<double> slownesses) {
    using Scalar = decltype(scalar);
    for (const double slowness : slownesses)
      for (const double closed : {0., .02, 1.})
        for (const double log_gate : {0., -.1}) {
          Chain<Scalar> chain(d, d / 2 + 3, T, random_strengths, log_gate, 31);
          chain.gate(slowness, closed);
          CAPTURE(sizeof(Scalar), d, T, slowness, closed, log_gate);
          CHECK(chain.worst_row(Linear{}) <= 1);
          CHECK(chain.worst_row(Exponential{}) <= 1);
          if (T > 200) continue;
          const DirectRows rows = direct_attention(SymmetricPower<2>{}, chain.transition(), chain.Q, chain.K, chain.V);
          const auto Y = attention(SymmetricPower<2>{}, chain.transition(), chain.Q, chain.K, chain.V);
          CHECK(row_rule<DefaultNormalization, SymmetricPower<2>>(rows, Y, rows.Y, unit_roundoff<Scalar>) <= 1);
        }
  };
  for (const Index T : {0, 1, 2, 47, 130}) check_gates(double(), 16, T, {0, .001, .3, 20, 1000});
  for (const Index T : {65, 260}) check_gates(float(), 16, T, {0, .001, .3, 20, 1000});
  check_gates(float(), 64, 130, {.001, 20});
}

TEST_CASE("a state goes on, merges and is kept by channel gates before a chain", "[laws]") {
  for (const double slowness : {.01, 1., 300.})
    for (const double closed : {0., .01}) {
      Chain<double> chain(12, 5, 90, random_strengths, -.01, 33);
      chain.gate(slowness, closed);
      CAPTURE(slowness, closed);
      const auto of = [&](Segment s) { return chain.transition(s); };
      const auto holds = [](const Residual& found) {
        CAPTURE(found);
        CHECK(found.holds());
      };
      holds(splitting_law(Linear{}, of, chain.Q, chain.K, chain.V, 37));
      holds(merge_law(Linear{}, of, chain.Q, chain.K, chain.V, {20, 37, 60}));
      holds(saved_state_law(Linear{}, of, chain.Q, chain.K, chain.V, 37));
    }
}

TEST_CASE("keys behind closed gates are gone, and slow channels leave the range of the type together", "[laws]") {
  const Index d = 6, T = 40;
  Chain<float> chain(d, 3, T, random_strengths, 0, 35);
  chain.gate(.01, 0);
  chain.log_a.col(20).setConstant(-infinity);
  Chain<float> other = chain;
  other.K.leftCols(20).setConstant(std::numeric_limits<float>::quiet_NaN());
  const Matrix<float> Y = attention(Linear{}, chain.transition(), chain.Q, chain.K, chain.V);
  CHECK(attention(Linear{}, other.transition(), other.Q, other.K, other.V).rightCols(20) == Y.rightCols(20));
  // e^-400 is none of float's numbers: means of keys before it are as without it.
  chain.log_a.col(20).setConstant(-.25);
  other = chain;
  other.log_a.col(20).setConstant(-400);
  for (Chain<float>* x : {&chain, &other}) x->K.rightCols(20).setZero();
  const auto means = [](const Chain<float>& x) {
    return chunked<SignedNormalized>(Linear{}, x.transition(), x.Q, x.K, x.V, {.chunk = 8});
  };
  CHECK((means(chain) - means(other)).norm() <= 1e-4 * means(chain).norm());
}

TEST_CASE("PaTH's transition gives the defined rows for softmax and for powers", "[laws]") {
  for (const Index d : {16, 60, 128})
    for (const Index T : {1, 64, 65, 130}) {
      if (d > 16 && T != 65) continue;  // a factor more than a block of them
      for (const double strength : {0., random_strengths, 1., 2.})
        for (const double log_gate : {0., -.001, -1., -infinity}) {
          CAPTURE(d, T, strength, log_gate);
          const Chain<double> chain(d, d / 2 + 3, T, strength, log_gate, 12);
          CHECK(chain.worst_row(Exponential{}) <= 1);
          const Chain<float> rounded(d, d / 2 + 3, T, strength, log_gate, 13);
          CHECK(rounded.worst_row(Exponential{}) <= 1);
          const DirectRows rows = direct_attention(SymmetricPower<2>{}, chain.transition(), chain.Q, chain.K, chain.V);
          const auto Y = attention(SymmetricPower<2>{}, chain.transition(), chain.Q, chain.K, chain.V);
          CHECK(row_rule<DefaultNormalization, SymmetricPower<2>>(rows, Y, rows.Y, unit_roundoff<double>) <= 1);
        }
    }
}

// Rows are linear in queries: q·dq = y·dy, though a chain may leave nothing of a key that its own row has seen whole.
TEMPLATE_TEST_CASE("a key that a chain cancels keeps the gradients of the rows that see it", "[laws]", float, double) {
  using M = Matrix<TestType>;
  constexpr Index T = 200;
  const M one = M::Ones(1, T);
  for (const double log_gate : {0., -5., -60., -1000.})
    for (const bool by_channel : {false, true}) {
      CAPTURE(log_gate, by_channel);
      const auto check = [&]<class A>(const A& transition) {
        const VjpCall<TestType, Linear, A> call{.Q = one, .K = one, .V = one, .dY = one};
        const M Y = attention<Unnormalized>(Linear{}, transition, one, one, one);
        const auto near = [&](const M& dQ) { return (dQ - Y).cwiseAbs().maxCoeff() <= 1e-5; };
        CHECK(near(attention_vjp<Unnormalized>(Linear{}, transition, call).Q));
        CHECK(near(chunked_vjp<Unnormalized>(Linear{}, transition, call).Q));
      };
      const auto chain = householder(one, Eigen::VectorXd::Constant(T, .95));
      if (by_channel)
        check(channel_decay(Eigen::MatrixXd::Constant(1, T, log_gate)) * chain);
      else
        check(decay(Eigen::VectorXd::Constant(T, log_gate)) * chain);
    }
}

TEST_CASE("gradients of a chain take as long under strong gates as under weak ones", "[laws]") {
  using M = Matrix<float>;
  constexpr Index d = 16, T = 192;
  Random random(3);
  const M X = random.matrix<float>(d, T), W = random.matrix<float>(d, T).colwise().normalized();
  const auto time_of = [&](double log_gate) {
    auto transition = decay(Eigen::VectorXd::Constant(T, log_gate)) * householder(W, Eigen::VectorXd::Ones(T));
    const VjpCall<float, Linear, decltype(transition)> call{.Q = X, .K = X, .V = X, .dY = X};
    std::clock_t best = std::numeric_limits<std::clock_t>::max();
    for (int n = 0; n < 3; ++n) {
      const std::clock_t begin = std::clock();
      CHECK(chunked_vjp<Unnormalized>(Linear{}, transition, call).Q.allFinite());
      best = std::min(best, std::clock() - begin);
    }
    return static_cast<double>(best);
  };
  CHECK(time_of(-10) <= 10 * time_of(-.01));  // 200 times where a segment's keys are taken one by one
}

TEST_CASE("a long chain stays within the rule", "[laws]") {
  for (const double strength : {random_strengths, 1., 2.}) {
    CAPTURE(strength);
    CHECK(Chain<double>(16, 11, 1000, strength, 0, 14).worst_row(Exponential{}) <= 1);
    CHECK(Chain<float>(16, 11, 1000, strength, 0, 15).worst_row(Exponential{}) <= 1);
    CHECK(Chain<double>(16, 11, 1000, strength, 0, 16).worst_row(Linear{}) <= 1);
  }
}

TEST_CASE("a state that drops its key product gives the same rows and no longer merges on the right", "[laws]") {
  const Index d = 12, e = 5;
  const Chain<double> chain(d, e, 90, random_strengths, -.001, 21);
  const auto run = [&](Segment s, State<double, Linear>& state) {
    return chunked(Linear{}, chain.transition(s), chain.Q.middleCols(s.begin, s.size),
                   chain.K.middleCols(s.begin, s.size), chain.V.middleCols(s.begin, s.size), state, {.chunk = 20});
  };
  State<double, Linear> kept(d, e), dropped(d, e), right(d, e);
  static_cast<void>(run({0, 40}, kept));
  static_cast<void>(run({60, 30}, right));
  dropped = kept;
  dropped.drop_key_product();
  const Matrix<double> Y = run({40, 20}, kept), same = run({40, 20}, dropped);
  CHECK(Y == same);
  CHECK(kept.key_product().size() == d * d);
  CHECK(dropped.key_product().size() == 0);
  CHECK(kept.values() == dropped.values());
  Matrix<double> product = Matrix<double>::Identity(d, d);
  for (Index t = 0; t < 60; ++t) product *= chain.transition().key_matrix(t, d);
  CHECK((kept.key_product() - product).norm() <= 1e-12);

  std::stringstream file;
  save(dropped, file);
  State<double, Linear> loaded(d, e);
  load(loaded, file);
  static_cast<void>(run({60, 30}, loaded));
  CHECK(loaded.key_product().size() == 0);
  CHECK_THROWS_AS(merge(right, dropped), FrameMismatch);
  CHECK_THROWS_AS(merge(right, merge(dropped, right)), FrameMismatch);
  const Matrix<double> S = merge(kept, right).values();
  CHECK(merge(dropped, right).values() == S);

  // A state that has seen a chain is told from one that has not, kept product or dropped.
  const ChannelDecay channels = channel_decay(Eigen::MatrixXd::Constant(d, 20, -.1));
  CHECK_THROWS_AS(
      chunked(Linear{}, channels, chain.Q.leftCols(20), chain.K.leftCols(20), chain.V.leftCols(20), dropped),
      FrameMismatch);
  State<double, Linear> without(d, e);
  without.drop_key_product();
  static_cast<void>(
      chunked(Linear{}, channels, chain.Q.leftCols(20), chain.K.leftCols(20), chain.V.leftCols(20), without));
  CHECK(merge(without, State<double, Linear>(d, e)).values() == without.values());
  CHECK_THROWS_AS(merge(dropped, without), FrameMismatch);
  CHECK((loaded.values() - S).norm() <= 1e-12 * S.norm());
}

TEST_CASE("a state under a Householder chain is not resumed where the order would be lost", "[laws]") {
  const Index d = 4, e = 3, T = 5;
  const Chain<double> chain(d, e, T, random_strengths, -.001, 21);
  const Eigen::MatrixXd log_a = Eigen::MatrixXd::Constant(d, T, -.1);
  const Eigen::VectorXd theta = Eigen::VectorXd::Ones(d / 2);
  const auto run = [&](const auto& transition, auto& state) {
    return recurrent(Linear{}, transition, chain.Q, chain.K, chain.V, state);
  };
  State<double, Linear> mixed(d, e), scaled(d, e), turned(d, e);
  static_cast<void>(run(chain.transition(), mixed));
  static_cast<void>(run(channel_decay(log_a), scaled));
  static_cast<void>(run(rotary(theta, Pairing::interleaved), turned));
  CHECK_THROWS_AS(run(channel_decay(log_a), mixed), FrameMismatch);
  CHECK_THROWS_AS(run(chain.transition(), scaled), FrameMismatch);
  CHECK_THROWS_AS(run(chain.transition(), turned), FrameMismatch);
  CHECK_THROWS_AS(merge(mixed, scaled), FrameMismatch);
  CHECK_THROWS_AS(merge(scaled, mixed), FrameMismatch);
  CHECK_NOTHROW(run(rotary(theta, Pairing::interleaved), mixed));  // keys turn from where they are
}

TEST_CASE("a chain that leaves the range of the type shows as rows that are no numbers", "[laws]") {
  for (const Index T : {2, 4, 9}) {
    Chain<double> chain(5, 3, T, 1, 0, 23);
    chain.w *= 1e160;
    CAPTURE(T);
    CHECK(attention(Exponential{}, chain.transition(), chain.Q, chain.K, chain.V).col(T - 1).hasNaN());
    CHECK(attention(Linear{}, chain.transition(), chain.Q, chain.K, chain.V).col(T - 1).hasNaN());
  }
}

TEST_CASE("without strength a chain is not there, to the bit", "[laws]") {
  const Chain<double> chain(16, 5, 130, 0, -.01, 22);
  const auto alone = decay(chain.log_gamma);
  CHECK(attention(Exponential{}, chain.transition(), chain.Q, chain.K, chain.V) ==
        attention(Exponential{}, alone, chain.Q, chain.K, chain.V));
  const Options same_chunks{.chunk = 96};
  CHECK(chunked(Linear{}, chain.transition(), chain.Q, chain.K, chain.V, same_chunks) ==
        chunked(Linear{}, alone, chain.Q, chain.K, chain.V, same_chunks));
}
