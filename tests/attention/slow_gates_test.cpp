// Gates so near 1 that the digits of a state do not show one of them: a mean stays, a sum follows all of them together.
#include <sstream>

#include <sympow/attention/chunked.hpp>
#include <sympow/attention/merge.hpp>
#include <sympow/attention/recurrent.hpp>
#include <sympow/attention/state_file.hpp>

#include "catch.hpp"

using namespace sympow;

namespace {

constexpr Index tokens = 3'000, rounds = 9;  // at a time

// One token of key and value (1, 0) and v, and then only gates, in all forms, through files and merges.
template <int P>
void check(const auto& transition, double log_gamma, Index tail, Index chunk) {
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
                 bound = 4 * std::ldexp(1., -24) * wanted * (1 + std::sqrt(static_cast<double>(n / 3)));  // merges
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

}  // namespace

TEST_CASE("gates that one digit of a float state cannot show are not lost, and others are not doubled", "[attention]") {
  for (const double log_gamma : {-1e-10, -2.5e-8, -1e-5}) {
    const auto scalar = decay(Eigen::VectorXd(Eigen::VectorXd::Constant(tokens, log_gamma)));
    Eigen::MatrixXd log_a = Eigen::MatrixXd::Zero(2, tokens);
    log_a.row(0).setConstant(log_gamma);
    const auto by_channel = channel_decay(log_a);
    check<1>(scalar, log_gamma, 0, 0);
    check<2>(scalar, log_gamma, 32, 0);
    check<1>(scalar, log_gamma, 32, 48);
    check<2>(scalar, log_gamma, 32, 240);
    check<1>(by_channel, log_gamma, 0, 0);
    check<1>(by_channel, log_gamma, 32, 48);
    check<2>(by_channel, log_gamma, 32, 48);
  }
}
