// The way back through gates by channel: gradients are slopes, through pieces and through halves, and closed gates get
// exactly nothing.
#include "way_back.hpp"

#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>

using namespace sympow;
using namespace sympow::test;

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
  const Index d = 2, n = 12;
  for (const double log_gate : {-.02, -9.}) {
    const auto family = channels(random, d, n + 2, log_gate);
    for (Index j = 0; j < n; ++j)
      for (Index i = j; i < n; ++i) {
        auto way = random_way(random, d, {0, n}, 0, d, 0);
        for (auto* zero : {&way.dX, &way.dQ, &way.dK}) zero->setZero();
        way.through.setZero();
        way.dX(j, i) = 1;
        const auto g = way.run(family.build(family.parameters), n);
        for (Index t = 0; t < n; ++t) {
          CAPTURE(j, i, t);
          REQUIRE(!g.left().log_a.col(t).isZero(0) == (j < t && t <= i));
        }
      }
  }
}
