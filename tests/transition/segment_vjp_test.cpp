// The way back through scalar decays and rotations: gradients are slopes, and flows are exactly what the rule allows.
#include "way_back.hpp"

#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

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
  const Index planes = 3, n = 12;
  const auto family = rotations(random, planes, n, true, Pairing::interleaved);
  for (Index j = 0; j < n; ++j)
    for (Index i = j; i < n; ++i) {
      auto way = random_way(random, 2 * planes, {0, n}, planes, planes, 0);
      way.dX.setZero();
      way.dX(j, i) = 1;
      way.dQ.setZero();
      way.dK.setZero();
      way.through.setZero();
      const auto g = way.run(family.build(family.parameters), n);
      for (Index t = 0; t < n; ++t) {
        CAPTURE(j, i, t);
        REQUIRE((g.right().beta[t] != 0) == (j < t && t <= i));
      }
    }
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
