// Sizes and offsets near the ends of the index type, and expressions that are evaluated once.
#include <limits>
#include <sstream>

#include <sympow/sympow.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;
using sympow::test::contains, sympow::test::Random;

namespace {

constexpr Index most = std::numeric_limits<Index>::max(), least = std::numeric_limits<Index>::min();

long evaluated = 0;
struct Counting {
  double operator()(double x) const {
    ++evaluated;
    return x;
  }
};

}  // namespace

TEST_CASE("offsets where no token can be are refused, and work follows the tokens that there are", "[attention]") {
  Random random(1);
  const MatrixXd Q = random.matrix(4, 3), K = random.matrix(4, 5), V = random.matrix(2, 5);
  const auto call = [&](Mask mask) { return attention(SymmetricPower<2>{}, stationary(), Q, K, V, {.mask = mask}); };
  for (const Index offset : {most, most / 2, most / 3, least, least / 2, least + 1}) {
    CAPTURE(offset);
    REQUIRE_THROWS_AS(call(causal(offset)), InvalidArgument);
    REQUIRE_THROWS_AS(call(full(offset)), InvalidArgument);
  }
  REQUIRE_THROWS_WITH(call(causal(Index{1} << 40)),
                      contains("which leaves more than 16777216 tokens behind the 5 columns of K"));
  REQUIRE_THROWS_AS(call(full(Index{1} << 40)), InvalidArgument);
  REQUIRE(call(causal(-(Index{1} << 60))) == MatrixXd::Zero(2, 3));  // before token 0
  REQUIRE(call(causal(1000)).isApprox(call(full()), 1e-14));         // they see all keys
}

TEST_CASE("any chunk and any number of threads is served", "[attention]") {
  Random random(2);
  const Index T = 50, d = 4;
  const MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(d, T);
  const MatrixXd expected = chunked(SymmetricPower<2>{}, stationary(), Q, K, V, {.chunk = T});
  REQUIRE(chunked(SymmetricPower<2>{}, stationary(), Q, K, V, {.chunk = most}) == expected);
  MatrixXd Y(d, T);
  Workspaces<double> workspaces;
  const auto heads = [&](const MatrixXd& x) { return Heads<const double>::bthd(x.data(), 1, T, 1, d); };
  attend(SymmetricPower<2>{}, stationary(),
         {.Q = heads(Q),
          .K = heads(K),
          .V = heads(V),
          .Y = Heads<double>::bthd(Y.data(), 1, T, 1, d),
          .workspaces = workspaces,
          .options = {.form = Form::chunked, .threads = std::numeric_limits<int>::max(), .head = {.chunk = most}}});
  REQUIRE(Y == expected);
  REQUIRE(workspaces.size() <= 1024);
}

TEST_CASE("an expression is evaluated once, checked for finite entries or not", "[attention]") {
  Random random(3);
  const MatrixXd Q = random.matrix(4, 8), V = random.matrix(2, 8), left = random.matrix(4, 4),
                 right = random.matrix(4, 8);
  for (const bool check_finite : {false, true}) {
    evaluated = 0;
    const auto K = (left * right).unaryExpr(Counting{});
    const MatrixXd Y = attention(SymmetricPower<2>{}, stationary(), Q, K, V, {.check_finite = check_finite});
    CAPTURE(check_finite);
    REQUIRE(evaluated == 4 * 8);
  }
}

TEST_CASE("a state of huge sizes is refused by their names", "[attention]") {
  const SymmetricPower<2> feature;
  REQUIRE_THROWS_AS(State(feature, 8, most), DimensionOverflow);
  REQUIRE_THROWS_WITH(State(feature, 8, most), contains("d = 8 and e = " + std::to_string(most)));
  REQUIRE_THROWS_AS(State(feature, 8, most / 100), DimensionOverflow);
  REQUIRE_THROWS_AS(State(feature, 8, 2, most), DimensionOverflow);
  REQUIRE_THROWS_AS(State(feature, 8, 2, most / 8), DimensionOverflow);
  for (const Index d : {most, most - 1, most / 2, Index{1} << 33}) {
    CAPTURE(d);
    REQUIRE_THROWS_AS(State(feature, d, 2), DimensionOverflow);
    REQUIRE_THROWS_WITH(State(feature, d, 2), contains("State: d = " + std::to_string(d) + " and e = 2"));
    REQUIRE_THROWS_AS(State(SymmetricPower<8>{}, d, 2), DimensionOverflow);
    REQUIRE_THROWS_AS(State(Linear{}, d, most), DimensionOverflow);
    REQUIRE_THROWS_AS(State(Linear{}, d, 0, d), DimensionOverflow);
  }
  REQUIRE_THROWS_WITH(State(Linear{}, most, 2), contains("d = " + std::to_string(most) + " and e = 2"));
}

TEST_CASE("a file holds the tokens of a tail that there are", "[attention]") {
  Random random(4);
  const auto bytes_after = [&](Index tokens) {
    State<double, SymmetricPower<2>> state(4, 3, 1000);
    const MatrixXd X = random.matrix(4, tokens), V = random.matrix(3, tokens);
    (void)recurrent(state.feature(), stationary(), X, X, V, state);
    std::ostringstream out;
    save(state, out);
    return static_cast<long>(out.str().size());
  };
  REQUIRE(bytes_after(0) < 4000);
  REQUIRE(bytes_after(11) - bytes_after(1) == 10 * 8 * (4 + 3 + 2));
}

TEST_CASE("a chain that is required to contract can be a temporary", "[attention]") {
  Random random(5);
  const MatrixXd w = random.matrix(4, 6).colwise().normalized();
  const auto& chain = householder(w, VectorXd::Ones(6)).require_contraction();
  REQUIRE(chain.length() == 6);
  REQUIRE_THROWS_AS(householder(w, VectorXd::Constant(6, 3)).require_contraction(), InvalidGate);
}
