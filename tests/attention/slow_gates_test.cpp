// Gates so near 1 that the digits of a state do not show one of them: a mean stays, a sum follows all of them together.
#include <sstream>

#include <sympow/attention/forms.hpp>
#include <sympow/attention/scan.hpp>
#include <sympow/attention/state_file.hpp>

#include "catch.hpp"

using namespace sympow;

namespace {

// One token of key and value (1, 0) and v, and then only gates, in all forms, through files and merges: so many rounds
// of a transition, of whose decays so many go into the sums.
template <int P>
void check(const auto& transition, double log_gamma, Index tail, Index chunk, Index rounds = 9, Index decays = 0) {
  const Index tokens = transition.length();
  CAPTURE(P, log_gamma, tail, chunk);
  const SymmetricPower<P> feature;
  Matrix<float> Q = Matrix<float>::Zero(2, tokens), K = Q, V = Matrix<float>::Constant(1, tokens, .95f), Y(1, tokens);
  Q.row(0).setOnes();
  K(0, 0) = 1;
  Workspace<float> work;
  State<float, SymmetricPower<P>> state(2, 1, tail);
  Index seen = 0;
  for (Index n = 0; n < rounds; ++n) {
    if (chunk > 0)
      chunked(feature, transition, Q, K, V, state, Y, work, {.chunk = chunk});
    else
      recurrent(feature, transition, Q, K, V, state, Y, work);
    K.setZero();
    seen += tokens;
    const double gates = log_gamma * static_cast<double>(seen - 1), wanted = (P == 1 ? std::exp(gates) : 1) * V(0, 0),
                 roundings =
                     4 * (1 + std::sqrt(static_cast<double>(n / 3 + decays))),  // of merges, and folds that decay
        bound = std::ldexp(roundings * wanted, -24) + std::numeric_limits<float>::min();
    CAPTURE(n);
    REQUIRE(std::abs(static_cast<double>(Y(0, tokens - 1)) - wanted) <= bound);
    if (n % 3 == 1) {
      std::stringstream file;
      save(state, file);
      load(state, file);
    } else if (n % 3 == 2) {
      State<float, SymmetricPower<P>> part(2, 1, tail);
      absorb(feature, transition, K, V, part, work);
      state = merge(state, part);
      seen += tokens;
    }
  }
}

// T equal tokens, key and value 1: n folds lose n u at most, and what the row rule allows. See docs/numerics.md.
void check_equal(double log_gamma, Index tail, Index chunk, Index rounds) {
  constexpr Index tokens = 50'000;
  CAPTURE(log_gamma, tail, chunk, rounds);
  const auto transition = decay(Eigen::VectorXd(Eigen::VectorXd::Constant(tokens, log_gamma)));
  const Matrix<float> X = Matrix<float>::Ones(1, tokens);
  Matrix<float> Y(1, tokens);
  Workspace<float> work;
  const SymmetricPower<1> feature;
  State<float, SymmetricPower<1>> state(1, 1, tail);
  for (Index n = 1; n <= rounds; ++n) {
    if (chunk > 0)
      chunked<Unnormalized>(feature, transition, X, X, X, state, Y, work, {.chunk = chunk});
    else
      recurrent<Unnormalized>(feature, transition, X, X, X, state, Y, work);
    const auto T = static_cast<double>(n * tokens), folds = T / static_cast<double>(std::max<Index>(chunk + tail, 1)),
               wanted = std::expm1(T * log_gamma) / std::expm1(log_gamma),
               bound = std::ldexp(wanted, -24) * (folds + 8 * (1 + std::sqrt(T)));
    CAPTURE(n);
    REQUIRE(std::abs(static_cast<double>(Y(0, tokens - 1)) - wanted) <= bound);
  }
}

void check_slow_gates(Index tokens, Index rounds, std::initializer_list<double> gates) {
  for (const double log_gamma : gates) {
    const auto scalar = decay(Eigen::VectorXd(Eigen::VectorXd::Constant(tokens, log_gamma)));
    Eigen::MatrixXd log_a = Eigen::MatrixXd::Zero(2, tokens);
    log_a.row(0).setConstant(log_gamma);
    const auto by_channel = channel_decay(log_a);
    check<1>(scalar, log_gamma, 0, 0, rounds);
    check<2>(scalar, log_gamma, 32, 0, rounds);
    check<1>(scalar, log_gamma, 32, 48, rounds);
    check<2>(scalar, log_gamma, 32, 240, rounds);
    check<1>(by_channel, log_gamma, 0, 0, rounds);
    check<1>(by_channel, log_gamma, 32, 48, rounds);
    check<2>(by_channel, log_gamma, 32, 48, rounds);
  }
}

}  // namespace

TEST_CASE("gates that one digit of a float state cannot show are not lost, and others are not doubled", "[attention]") {
  check_slow_gates(3'000, 9, {-1e-10, -2.5e-8, -1e-5});
}
TEST_CASE("a mean stays where decays of one channel add up to what no float holds, each of them slow", "[attention]") {
  Eigen::MatrixXd log_a = Eigen::MatrixXd::Zero(2, 3'000);
  log_a.row(0).setConstant(-.01);
  for (const Index chunk : {0, 48, 240}) check<2>(channel_decay(log_a), -.01, 32, chunk, 2, 6'000 / 32);
  for (const Index chunk : {0, 240}) check<2>(channel_decay(log_a), -.01, 32, chunk, 9, 36'000 / 32);  // with merges
}

TEST_CASE("slow gates are followed for ten million tokens", "[attention][.long]") {
  check_slow_gates(100'000, 75, {-1e-10, -2.5e-8, -1e-7});
}

TEST_CASE("sums of equal tokens lose a rounding for every fold at most", "[attention]") {
  check_equal(-2.5e-8, 32, 0, 4);
  check_equal(-1e-10, 32, 240, 20);
}
TEST_CASE("sums of ten million equal tokens lose a rounding for every fold at most", "[attention][.long]") {
  check_equal(-2.5e-8, 0, 0, 200);
  check_equal(-2.5e-8, 32, 0, 200);
  check_equal(-1e-10, 32, 240, 200);
}
