// The way back through scalar decays, rotations and gates by channel: gradients are slopes, flows are exactly what the
// rule allows, and closed gates get exactly nothing.
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

#include "way_back.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index sizes[] = {1, 2, 3, 5, 8, 31, 48, 49, 100};

struct NoParameters {
  static constexpr bool gauged = false;
  double steepness = 1;
  Eigen::VectorXd parameters;

  template <class S = double>
  [[nodiscard]] auto build(const Eigen::VectorXd&) const {
    return decay(Eigen::VectorXd::Zero(200)) * constant_decay(.5);
  }
  template <class Gradient>
  [[nodiscard]] Eigen::VectorXd flat(const Gradient& g) const {
    REQUIRE(g.left().log_gamma.isZero(0));
    REQUIRE(g.right().log_gamma == 0);
    return {};
  }
  [[nodiscard]] double passing(const Eigen::VectorXd&, Segment, const Eigen::VectorXd&, const Eigen::MatrixXd&,
                               const Eigen::MatrixXd&) const {
    return 0;
  }
  [[nodiscard]] Eigen::VectorXd weights(const Eigen::VectorXd&, const Eigen::VectorXd&) const { return {}; }
};

// θ, then β unless rates are fixed.
struct Rotations {
  static constexpr bool gauged = true;
  Eigen::VectorXd parameters;
  Index planes;
  Pairing pairing;
  double steepness = 1 + parameters.cwiseAbs().maxCoeff();

  [[nodiscard]] bool has_rates() const { return parameters.size() > planes; }
  template <class S = double>
  [[nodiscard]] auto build(const Eigen::VectorXd& p) const {
    const Eigen::VectorXd theta = p.head(planes), beta = p.tail(p.size() - planes);
    return constant_decay(.5) * (has_rates() ? rotary(theta, beta, pairing) : rotary(theta, pairing));
  }
  template <class Gradient>
  [[nodiscard]] Eigen::VectorXd flat(const Gradient& g) const {
    Eigen::VectorXd all(g.right().theta.size() + g.right().beta.size());
    all << g.right().theta, g.right().beta;
    return all;
  }
  [[nodiscard]] double passing(const Eigen::VectorXd& p, Segment s, const Eigen::VectorXd& through,
                               const Eigen::MatrixXd&, const Eigen::MatrixXd&) const {
    const double turns = has_rates() ? p.segment(planes + s.begin, s.size).sum() : static_cast<double>(s.size);
    return turns * through.dot(p.head(planes));
  }
  // Σ_j ⟨dk̂_j, J k̂_j⟩
  template <class A>
  [[nodiscard]] Eigen::VectorXd moment(const WayBack<double>& way, const A& transition) const {
    Eigen::MatrixXd Q = way.Q, K = way.K;
    Frame frame = way.frame();
    transition.template to_segment_frame<double>(frame, way.segment, Q, K, no_logits<double>());
    Eigen::VectorXd sums = Eigen::VectorXd::Zero(planes);
    const auto at = transition.planes();
    for (Index u = 0; u < planes; ++u)
      sums[u] = way.dK.row(at.second(u)).dot(K.row(at.first(u))) - way.dK.row(at.first(u)).dot(K.row(at.second(u)));
    return sums;
  }
  [[nodiscard]] Eigen::VectorXd weights(const Eigen::VectorXd& W, const Eigen::VectorXd&) const {
    Eigen::VectorXd all(parameters.size());
    const Index T = has_rates() ? parameters.size() - planes : W.size();
    const Eigen::VectorXd beta = has_rates() ? Eigen::VectorXd(parameters.tail(T)) : Eigen::VectorXd::Ones(T);
    all.head(planes).setConstant(beta.cwiseAbs().dot(W));
    if (has_rates()) all.tail(T) = parameters.head(planes).cwiseAbs().maxCoeff() * W;
    return all;
  }
};

Rotations rotations(Random& random, Index planes, Index tokens, bool rates, Pairing pairing) {
  Eigen::VectorXd p(planes + (rates ? tokens : 0));
  p = random.vector(p.size());
  return {p, planes, pairing};
}

}  // namespace

TEST_CASE("the way back through a segment without parameters in key space", "[transition][vjp]") {
  for (const Index n : sizes) {
    Random random(static_cast<std::uint64_t>(n));
    check_way_back(NoParameters{}, random_way(random, random.integer(1, 9), {3, n}, 0, 0, 0), random);
  }
}

TEST_CASE("the way back through rotations: dβ = θ·F, dθ = Σ β F", "[transition][vjp]") {
  for (const Pairing pairing : {Pairing::interleaved, Pairing::half_split})
    for (const bool rates : {true, false})
      for (const Index n : sizes) {
        CAPTURE(pairing == Pairing::half_split, rates);
        Random random(static_cast<std::uint64_t>(n));
        const Index planes = n == 49 ? 37 : random.integer(1, 5);
        const Segment s{n == 31 ? 0 : 3, n};
        const auto family = rotations(random, planes, s.end() + 2, rates, pairing);
        check_way_back(family, random_way(random, 2 * planes, s, n == 2 ? 0 : planes, planes, 0), random);
        check_way_back(family, random_way(random, 2 * planes, s, planes, planes, 0), random, true);
        check_pull_back(family, s, 3, random);
      }
}

TEST_CASE("what a rotation's segment passes on with embedded scores is what it got and its own moments",
          "[transition][vjp]") {
  Random random(3);
  const Index planes = 37, n = 20;  // more than are added up at once
  const auto family = rotations(random, planes, n, true, Pairing::interleaved);
  auto way = random_way(random, 2 * planes, {0, n}, planes, planes, 0);
  const Eigen::VectorXd before = way.through, beta = family.parameters.tail(n);
  const auto g = way.run(family.build(family.parameters), n, true);
  // All that flows through the first token passes on: the first β's gradient is θ times that.
  REQUIRE(std::abs(g.right().beta[0] - way.through.dot(family.parameters.head(planes))) <=
          1e-14 * (1 + std::abs(g.right().beta[0])));
  REQUIRE((way.through - before).norm() > .1);
}

TEST_CASE("pairs flow through what lies between them, and nothing else", "[transition][vjp]") {
  Random random(5);
  each_pair(rotations(random, 3, 12, true, Pairing::interleaved), random, 6, 3,
            [](bool between, Index t, const auto&, const auto& g) { REQUIRE((g.right().beta[t] != 0) == between); });
}

TEST_CASE("scores that scalar gates multiply give their flows to every gate of a product", "[transition][vjp]") {
  const Eigen::VectorXd log_gamma = -Eigen::VectorXd::Ones(5);
  const auto A = decay(log_gamma) * constant_decay(.5) * rotary(Eigen::VectorXd::Ones(2), Pairing::interleaved);
  auto g = A.zero_gradient(5);
  const double flows[] = {1, 2, 3};
  detail::VjpViewOf<float, std::remove_const_t<decltype(A)>> view(A, g);
  view.add_decay_flows({1, 3}, flows);
  view.add_decay_flows({3, 2}, flows);
  REQUIRE(g.left().left().log_gamma == (Eigen::VectorXd(5) << 0, 1, 2, 4, 2).finished());
  REQUIRE(g.left().right().log_gamma == 9);
  REQUIRE(g.right().theta.isZero(0));
  REQUIRE(view.planes().count == 2);
}

// ---- gates by channel ----

namespace {

constexpr double closed = -std::numeric_limits<double>::infinity();

struct Channels {
  static constexpr bool gauged = false;
  Eigen::VectorXd parameters;  // log a, d × T
  Index d;
  double steepness = 1;

  template <class S = double>
  [[nodiscard]] auto build(const Eigen::VectorXd& p) const {
    return channel_decay(p.reshaped(d, p.size() / d).template cast<double>()) * constant_decay(.5);
  }
  template <class Gradient>
  [[nodiscard]] Eigen::VectorXd flat(const Gradient& g) const {
    return test::flat(g.left().log_a);
  }
  [[nodiscard]] double passing(const Eigen::VectorXd& p, Segment s, const Eigen::VectorXd& through,
                               const Eigen::MatrixXd&, const Eigen::MatrixXd&) const {
    double sum = 0;  // of what is not closed
    for (Index t = s.begin; t < s.end(); ++t)
      for (Index c = 0; c < d; ++c)
        if (p[t * d + c] != closed) sum += through[c] * p[t * d + c];
    return sum;
  }
  [[nodiscard]] Eigen::VectorXd weights(const Eigen::VectorXd& W, const Eigen::VectorXd&) const {
    return test::flat(W.transpose().replicate(d, 1));
  }
};

// Gates of about so much a token, none of them open.
Channels channels(Random& random, Index d, Index tokens, double log_gate) {
  return {(log_gate * (random.vector(d * tokens).array().tanh() + 1.1)).matrix(), d};
}

}  // namespace

TEST_CASE("the way back through channel gates: d log a_t = F_t", "[transition][vjp]") {
  for (const Index n : {1, 2, 3, 5, 8, 31, 48, 49, 100})
    for (const double log_gate : {-.02, -.8, -9.}) {  // in one piece, in pieces, a token each
      CAPTURE(log_gate);
      Random random(static_cast<std::uint64_t>(n));
      const Index d = n == 49 ? 83 : random.integer(1, 9);
      const Segment s{n == 31 ? 0 : 3, n};
      const auto family = channels(random, d, s.end() + 2, log_gate);
      check_way_back(family, random_way(random, d, s, 0, d, 0), random);
      check_pull_back(family, s, 3, random);
    }
}

TEST_CASE("gates of float have gradients in double", "[transition][vjp]") {
  Random random(3);
  const Index d = 5, n = 40;
  const Eigen::MatrixXf log_a = -random.matrix(d, n).cwiseAbs().cast<float>();
  const auto narrow = channel_decay(log_a);
  const auto wide = channel_decay(log_a.cast<double>());
  auto way = random_way(random, d, {0, n}, 0, d, 0), again = way;
  const auto g = way.run(narrow, n);
  static_assert(std::is_same_v<decltype(g.log_a), Eigen::MatrixXd>);
  REQUIRE(g.log_a == again.run(wide, n).log_a);
}

TEST_CASE("through a closed channel nothing flows, to its first and its last token", "[transition][vjp]") {
  for (const double log_gate : {-.02, -.8}) {
    Random random(11);
    const Index d = 3, n = 20;
    auto family = channels(random, d, n + 2, log_gate);
    const Index first = 0, second = 9 * d + 1, third = (n - 1) * d + 2;
    for (const Index at : {first, second, third}) family.parameters[at] = closed;
    auto way = random_way(random, d, {0, n}, 0, d, 0);
    way.through.setZero();  // no state passes gates of 0
    auto far = way, back = way;
    const Eigen::VectorXd dp = family.flat(back.run(family.build(family.parameters), n + 2));
    REQUIRE(dp.allFinite());
    for (const Index at : {first, second, third}) REQUIRE(dp[at] == 0);
    REQUIRE((back.dQ.allFinite() && back.dK.allFinite()));
    check_way_back(family, way, random);
    // As behind a gate that is as good as closed, bit for bit.
    auto nearly = family;
    for (const Index at : {first, second, third}) nearly.parameters[at] = -1e5;
    REQUIRE(family.flat(far.run(nearly.build(nearly.parameters), n + 2)) == dp);
    REQUIRE((far.dQ == back.dQ && far.dK == back.dK));
  }
}

TEST_CASE("pairs flow through the channels between them, and nothing else", "[transition][vjp]") {
  Random random(5);
  for (const double log_gate : {-.02, -9.})
    each_pair(channels(random, 2, 14, log_gate), random, 2, 0, [](bool between, Index t, const auto&, const auto& g) {
      REQUIRE(!g.left().log_a.col(t).isZero(0) == between);
    });
}
