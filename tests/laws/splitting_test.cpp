// Splitting a sequence anywhere changes nothing, and the test knows when the state was dropped.
#include <sympow/sympow.hpp>
#include "catch.hpp"

#include <sympow/core/random.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using namespace sympow::verify;

namespace {

// A conformal sequence with gates near .999, so that what came long before still weighs.
struct Sequence {
  Index d, e, T;
  Random random;
  Eigen::MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T);
  Eigen::VectorXd log_gamma = -.001 - .001 * random.vector(T).cwiseAbs().array();
  Eigen::VectorXd beta = 1 + random.vector(T).array().tanh();
  Eigen::VectorXd theta = rotary_frequencies<double>(d, 4096);

  auto conformal(Segment s) const {
    return decay(log_gamma.segment(s.begin, s.size)) *
           rotary(theta, beta.segment(s.begin, s.size), Pairing::interleaved);
  }
};

// The splitting law with the state dropped at the split: how large the difference is that the law must see.
template <class F>
double dropped(const F& feature, const Sequence& x, Index split) {
  const DirectRows rows = direct_attention(feature, x.conformal({0, x.T}), x.Q, x.K, x.V);
  Eigen::MatrixXd Y(x.e, x.T);
  Y.leftCols(split) =
      chunked(feature, x.conformal({0, split}), x.Q.leftCols(split), x.K.leftCols(split), x.V.leftCols(split));
  const Index rest = x.T - split;
  Y.rightCols(rest) =
      chunked(feature, x.conformal({split, rest}), x.Q.rightCols(rest), x.K.rightCols(rest), x.V.rightCols(rest));
  return row_rule<DefaultNormalization, F>(rows, Y, rows.Y, unit_roundoff<double>);
}

template <class F>
void check(Index d, Index T, std::uint64_t seed) {
  Sequence x{.d = d, .e = 3, .T = T, .random = Random(seed)};
  for (int n = 0; n < 4; ++n) {
    const Index split = x.random.integer(1, T - 1);
    CAPTURE(d, T, seed, split);
    REQUIRE(splitting_law(F{}, [&](Segment s) { return x.conformal(s); }, x.Q, x.K, x.V, split).residual <= 1);
    REQUIRE(dropped(F{}, x, split) > 1e6);
  }
}

}  // namespace

TEST_CASE("splitting at random interior points under slow gates changes nothing", "[laws]") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    check<Linear>(8, 200, seed);
    check<SymmetricPower<1>>(8, 130, seed);
    check<SymmetricPower<2>>(16, 300, seed);
    check<SymmetricPower<3>>(8, 150, seed);
    check<SymmetricPower<4>>(8, 150, seed);
  }
}

TEST_CASE("splitting at the ends and into many pieces changes nothing", "[laws]") {
  const SymmetricPower<2> feature;
  Sequence x{.d = 8, .e = 3, .T = 131, .random = Random(9)};
  for (const Index split : {Index(0), Index(1), x.T - 1, x.T}) {
    CAPTURE(split);
    REQUIRE(splitting_law(feature, [&](Segment s) { return x.conformal(s); }, x.Q, x.K, x.V, split).residual <= 1);
  }
  const DirectRows rows = direct_attention(feature, x.conformal({0, x.T}), x.Q, x.K, x.V);
  State<double, SymmetricPower<2>> state(x.d, x.e);
  Eigen::MatrixXd Y(x.e, x.T);
  for (Index begin = 0, n = 0; begin < x.T; begin += n) {
    n = std::min(x.random.integer(0, 9), x.T - begin);
    Y.middleCols(begin, n) = chunked(feature, x.conformal({begin, n}), x.Q.middleCols(begin, n),
                                     x.K.middleCols(begin, n), x.V.middleCols(begin, n), state, {.chunk = 4});
  }
  REQUIRE(row_rule<DefaultNormalization, SymmetricPower<2>>(rows, Y, rows.Y, unit_roundoff<double>) <= 1);
  REQUIRE(state.tokens() == x.T);
}

TEST_CASE("splitting under channel decay changes nothing", "[laws]") {
  Random random(4);
  const Index d = 6, T = 120;
  const auto Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(2, T);
  const Eigen::MatrixXd log_a = -.001 * random.matrix(d, T).cwiseAbs();
  const auto transition_of = [&](Segment s) { return channel_decay(log_a.middleCols(s.begin, s.size)); };
  for (const Index split : {1, 40, 64, 119}) {
    CAPTURE(split);
    REQUIRE(splitting_law(SymmetricPower<2>{}, transition_of, Q, K, V, split).residual <= 1);
    REQUIRE(splitting_law(Linear{}, transition_of, Q, K, V, split).residual <= 1);
  }
}
