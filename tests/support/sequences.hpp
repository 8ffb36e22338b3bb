// Random sequences of every kind that the contract speaks of: gates, lengths of queries and keys, turning and channel
// decay.
#pragma once

#include <sympow/rotation/frequencies.hpp>

#include "random.hpp"
#include "tokens.hpp"

namespace sympow::test {

enum class Gates { none, open, slow, slower, closed, strong, random, mixed };
enum class Lengths { ordinary, with_zeros, tiny, huge, mixed, falling };
enum class Turning { none, rotary, channels };

inline constexpr std::array all_gates = {Gates::none,   Gates::open,   Gates::slow,   Gates::slower,
                                         Gates::closed, Gates::strong, Gates::random, Gates::mixed};
inline constexpr std::array all_lengths = {Lengths::ordinary, Lengths::with_zeros, Lengths::tiny,
                                           Lengths::huge,     Lengths::mixed,      Lengths::falling};

/// log γ of T tokens: nothing; γ = 1, .999, .9999, 0; log γ = -1000; log σ of normal numbers; any of these.
[[nodiscard]] inline Eigen::VectorXd log_gates(Random& random, Index T, Gates gates) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto one = [&](Gates kind) {
    switch (kind) {
      case Gates::none:
      case Gates::open:
        return 0.0;
      case Gates::slow:
        return std::log(.999);
      case Gates::slower:
        return std::log(.9999);
      case Gates::closed:
        return -infinity;
      case Gates::strong:
        return -1000.0;
      default:
        return -std::log1p(std::exp(-1 - random.normal()));
    }
  };
  if (gates == Gates::none) return {};
  return Eigen::VectorXd::NullaryExpr(T, [&] {
    return one(gates != Gates::mixed   ? gates
               : random.uniform() < .8 ? Gates::slow
                                       : static_cast<Gates>(random.integer(1, 6)));
  });
}

/// Multiplies the columns of x by the lengths of a kind; `falling` is 1e6, then nothing, then 1e-6.
inline void set_lengths(Random& random, Eigen::MatrixXd& x, Lengths lengths) {
  const Index T = x.cols();
  for (Index t = 0; t < T; ++t) {
    const auto falling = [&] { return t < T / 3 ? 1e6 : t < T / 2 ? 0 : 1e-6; };
    x.col(t) *= lengths == Lengths::tiny         ? 1e-6
                : lengths == Lengths::huge       ? 1e6
                : lengths == Lengths::with_zeros ? (random.uniform() < .5 ? 0 : 1)
                : lengths == Lengths::mixed      ? (random.uniform() < .1 ? 0 : std::pow(10, random.uniform(-6, 6)))
                : lengths == Lengths::falling    ? falling()
                                                 : 1;
  }
}

/// Normal queries, keys and values with these gates, lengths and turning.
[[nodiscard]] inline Tokens sequence(Random& random, Index d, Index e, Index T, Gates gates,
                                     Lengths lengths = Lengths::ordinary, Turning turning = Turning::none) {
  Tokens tokens{.Q = random.matrix(d, T),
                .K = random.matrix(d, T),
                .V = random.matrix(e, T),
                .log_gamma = log_gates(random, T, gates)};
  set_lengths(random, tokens.K, lengths);
  set_lengths(random, tokens.Q, lengths == Lengths::falling ? Lengths::mixed : lengths);
  if (lengths == Lengths::falling) tokens.log_gamma = Eigen::VectorXd::Constant(T, std::log(.8));
  if (turning == Turning::rotary && d % 2 == 0) {
    tokens.theta = rotary_frequencies<double>(d, 4096);
    tokens.beta = Eigen::VectorXd::NullaryExpr(T, [&] { return 1 + std::tanh(random.normal()); });
  }
  if (turning == Turning::channels) tokens.log_a = -.02 * random.matrix(d, T).cwiseAbs();
  return tokens;
}

}  // namespace sympow::test
