// The way back through Householder chains, with channel gates and without: gradients are slopes, in one piece and in
// many, with a state and without.
#include "way_back.hpp"

#include <sympow/transition/channel_decay.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>

using namespace sympow;
using namespace sympow::test;

namespace {

// ⟨H, S A_a … A_b⟩, 0 without a state.
double passing_by(const auto& transition, Segment s, const Eigen::MatrixXd& state, const Eigen::MatrixXd& adjoint) {
  if (state.size() == 0) return 0;
  Eigen::MatrixXd after = state;
  transition.template apply_to_state<double>(s, after);
  return after.cwiseProduct(adjoint).sum();
}

// w, d × T, then β.
struct Chains {
  static constexpr bool gauged = false;
  Eigen::VectorXd parameters;
  Index d;
  double steepness = 4;  // of I - β w wᵀ, ‖w‖ = 1 and β ≤ 2

  [[nodiscard]] Index tokens() const { return parameters.size() / (d + 1); }
  template <class S = double>
  [[nodiscard]] auto build(const Eigen::VectorXd& p) const {
    return constant_decay(.5) *
           householder(p.head(d * tokens()).reshaped(d, tokens()).cast<S>().eval(), p.tail(tokens()));
  }
  template <class Gradient>
  [[nodiscard]] Eigen::VectorXd flat(const Gradient& g) const {
    Eigen::VectorXd all(parameters.size());
    all << test::flat(g.right().w.template cast<double>()), g.right().beta;
    return all;
  }
  [[nodiscard]] double passing(const Eigen::VectorXd& p, Segment s, const Eigen::VectorXd&,
                               const Eigen::MatrixXd& state, const Eigen::MatrixXd& adjoint) const {
    return passing_by(build(p), s, state, adjoint);
  }
  [[nodiscard]] Eigen::VectorXd weights(const Eigen::VectorXd& W, const Eigen::VectorXd&) const {
    Eigen::MatrixXd of_w(d, tokens());
    const Eigen::MatrixXd w = parameters.head(d * tokens()).reshaped(d, tokens());
    Eigen::VectorXd all(parameters.size()), of_beta(tokens());
    for (Index t = 0; t < tokens(); ++t) {
      of_w.col(t).setConstant(2 * std::abs(parameters[d * tokens() + t]) * w.col(t).norm() * W[t]);
      of_beta[t] = w.col(t).squaredNorm() * W[t];
    }
    all << test::flat(of_w), of_beta;
    return all;
  }
};

// w, d × T, β, then log a, d × T.
struct GatedChains : Chains {
  [[nodiscard]] Index tokens() const { return parameters.size() / (2 * d + 1); }
  [[nodiscard]] Chains chain() const { return {parameters.head((d + 1) * tokens()), d}; }
  template <class S = double>
  [[nodiscard]] auto build(const Eigen::VectorXd& p) const {
    const Eigen::MatrixXd log_a = p.tail(d * tokens()).reshaped(d, tokens());
    return constant_decay(.5) * channel_decay(log_a) *
           householder(p.head(d * tokens()).reshaped(d, tokens()).cast<S>().eval(), p.segment(d * tokens(), tokens()));
  }
  template <class Gradient>
  [[nodiscard]] Eigen::VectorXd flat(const Gradient& g) const {
    Eigen::VectorXd all(parameters.size());
    all << chain().flat(g), test::flat(g.template of<ChannelDecay<double>>().log_a);
    return all;
  }
  [[nodiscard]] double passing(const Eigen::VectorXd& p, Segment s, const Eigen::VectorXd&,
                               const Eigen::MatrixXd& state, const Eigen::MatrixXd& adjoint) const {
    return passing_by(build(p), s, state, adjoint);
  }
  [[nodiscard]] Eigen::VectorXd weights(const Eigen::VectorXd& W, const Eigen::VectorXd& E) const {
    Eigen::VectorXd all(parameters.size());
    all << chain().weights(W, E), test::flat(W.transpose().replicate(d, 1));
    return all;
  }
};

// Unit vectors and strengths in [0, 2], some of them 0, 1 and 2.
Chains chains(Random& random, Index d, Index tokens) {
  Eigen::VectorXd p(d * tokens + tokens);
  const Eigen::MatrixXd w = random.matrix(d, tokens).colwise().normalized();
  Eigen::VectorXd beta = random.vector(tokens).array().tanh() + 1;
  for (Index t = 0; t < tokens; ++t)
    if (random.uniform() < .3) beta[t] = static_cast<double>(random.integer(0, 2));
  p << test::flat(w), beta;
  return {p.cast<float>().cast<double>(), d};
}

// Gates of about e^-slowness, and one in twenty closed if `closes`.
GatedChains gated_chains(Random& random, Index d, Index tokens, double slowness, bool closes) {
  GatedChains all{chains(random, d, tokens)};
  all.parameters.conservativeResize((2 * d + 1) * tokens);
  for (double& x : all.parameters.tail(d * tokens)) {
    x = static_cast<float>(-slowness * (.1 + std::abs(random.normal())));
    if (closes && random.uniform() < .05) x = -std::numeric_limits<double>::infinity();
  }
  return all;
}

static_assert(detail::HasVjp<Householder<float>, float> && !detail::HasVjp<Householder<float>, double>);

}  // namespace

TEST_CASE("the way back through Householder chains", "[transition][vjp]") {
  for (const Index n : {1, 2, 3, 5, 8, 31, 48, 49, 100, 150})
    for (const Index e : {0, 4}) {
      CAPTURE(n, e);
      Random random(static_cast<std::uint64_t>(n));
      const Index d = n == 49 ? 19 : random.integer(1, 9);
      const Segment s{n == 31 ? 0 : 3, n};
      const auto family = chains(random, d, s.end() + 2);
      check_way_back(family, random_way(random, d, s, 0, 0, e), random);
      check_pull_back(family, s, 3, random);
    }
}

TEST_CASE("the way back through channel gates and a Householder chain", "[transition][vjp]") {
  for (const Index n : {1, 2, 3, 8, 31, 48, 49, 100, 150})
    for (const double slowness : {.01, 1., 30.})
      for (const bool closes : {false, true}) {
        CAPTURE(n, slowness, closes);
        Random random(static_cast<std::uint64_t>(n));
        const Index d = n == 49 ? 19 : random.integer(1, 9), e = closes ? 4 : 0;
        const Segment s{n == 31 ? 0 : 3, n};
        const auto family = gated_chains(random, d, s.end() + 2, slowness, closes);
        check_way_back(family, random_way(random, d, s, 0, 0, e), random);
        check_pull_back(family, s, 3, random);
      }
}

TEST_CASE("open gates leave the gradients of a chain", "[transition][vjp]") {
  Random random(7);
  const Index d = 5, T = 60;
  auto family = gated_chains(random, d, T, 0, false);
  family.parameters.tail(d * T).setZero();
  const Chains plain = family.chain();
  auto way = random_way(random, d, {2, 50}, 0, 0, 3), same = way;
  const auto g = way.run(family.build(family.parameters), T);
  const auto expected = same.run(plain.build(plain.parameters), T);
  const double bound = 1e-13 * way.Q.norm() * way.K.norm();
  CHECK((g.right().beta - expected.right().beta).norm() <= bound);
  CHECK((g.right().w - expected.right().w).norm() <= bound);
  CHECK((way.dQ - same.dQ).norm() <= bound);
  CHECK((way.dK - same.dK).norm() <= bound);
  CHECK(expected.right().log_a.size() == 0);
}

TEST_CASE("one direction for all tokens, where products are as large as they can be", "[transition][vjp]") {
  for (const double strength : {.5, 1., 2.}) {
    Random random(4);
    auto family = chains(random, 5, 32);
    for (Index t = 0; t < 32; ++t) family.parameters.segment(5 * t, 5) = family.parameters.head(5);
    family.parameters.tail(32).setConstant(strength);
    check_way_back(family, random_way(random, 5, {0, 30}, 0, 0, 3), random);
  }
}

TEST_CASE("a strength of 0 leaves its vector without gradient, exactly", "[transition][vjp]") {
  Random random(5);
  const Index d = 6, T = 100;
  auto family = chains(random, d, T);
  family.parameters.tail(T).array() += .1;
  for (const Index t : {0, 7, 48, 99}) family.parameters[d * T + t] = 0;
  auto way = random_way(random, d, {0, T}, 0, 0, 3);
  const auto g = way.run(family.build(family.parameters), T);
  for (Index t = 0; t < T; ++t) {
    CAPTURE(t);
    REQUIRE(g.right().w.col(t).isZero(0) == (family.parameters[d * T + t] == 0));
    REQUIRE(g.right().beta[t] != 0);
  }
}

TEST_CASE("pairs flow through the factors between them", "[transition][vjp]") {
  Random random(6);
  auto family = chains(random, 3, 12);
  family.parameters.tail(12).setConstant(.7);
  each_pair(family, random, 3, 0, [](bool between, Index t, const auto& way, const auto& g) {
    const double rounding = 1e-13 * way.Q.norm() * way.K.norm();
    CAPTURE(t);
    if (between) return;
    REQUIRE(std::abs(g.right().beta[t]) <= rounding);
    REQUIRE(g.right().w.col(t).norm() <= rounding);
  });
  auto gated = gated_chains(random, 3, 12, .5, false);
  gated.parameters.segment(36, 12).setConstant(.7);
  each_pair(gated, random, 3, 0, [](bool between, Index t, const auto&, const auto& g) {
    CAPTURE(t);
    REQUIRE(g.right().log_a.col(t).isZero(0) == !between);  // sums without subtractions
  });
}
