// Gradients of random calls, ordinary and hostile, are those of the definition by the gradient row rule.
#include <algorithm>
#include <cstdlib>

#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

/// A call of 1 to 24 tokens, or of more than a block of the attention form. A hostile one has lengths over 10^±3, dY
/// over 10^±6, zero tokens, and gates that close or nearly do.
template <class Scalar>
Problem<Scalar> any_problem(Random& random, bool hostile) {
  const Index d = 2 * random.integer(1, 3), e = random.integer(1, 3),
              T = random.uniform() < .03 ? random.integer(90, 130) : random.integer(1, 24);
  Problem<Scalar> x(random, d, e, T, T > 24 ? .02 : random.uniform() < .5 ? .1 : 2);
  if (!hostile) return x;
  const auto size = [&](double decades) {
    return static_cast<Scalar>(std::pow(10, random.uniform(-decades, decades)));
  };
  auto& gates = x.parameters.log_gamma;
  for (Index t = 0; t < T; ++t) {
    x.Q.col(t) *= size(3), x.K.col(t) *= size(3), x.dY.col(t) *= size(6);
    if (random.uniform() < .1) x.Q.col(t).setZero();
    if (random.uniform() < .1) x.K.col(t).setZero();
    const double kind = random.uniform();
    if (kind < .2)
      gates[t] = kind < .03 ? -std::numeric_limits<double>::infinity() : kind < .06 ? -1000 : -20 * kind / .2;
  }
  return x;
}

template <class Normalization, class Scalar, class F>
void check_call(const F& feature, Random& random, bool hostile) {
  const Problem<Scalar> x = any_problem<Scalar>(random, hostile);
  const auto& p = x.parameters;
  Options options{.scale = random.uniform() < .5 ? 1 : random.uniform(.1, 2)};
  const double mask = random.uniform();
  if (mask < .2) options.mask = sliding_window(random.integer(1, x.tokens() + 1));
  Wide least = 4096 * Wide(std::numeric_limits<Scalar>::denorm_min());
  if (F::score == Score::exponential) {  // weights below all normal numbers are 0
    const auto largest = [](const auto& X) { return std::max<Wide>(1, X.cwiseAbs().maxCoeff()); };
    least += 64 * Wide(std::numeric_limits<Scalar>::min()) * largest(x.dY) * largest(x.V) * largest(x.Q) * largest(x.K);
  }
  const auto check = [&](const Kind& kind, const auto& transition) {
    check_forms<Normalization>(feature, transition, x, kind, options, least, {random.integer(1, 24)});
  };
  const auto split = Pairing::half_split;
  const double kind = random.uniform();
  if (kind < .3) return check({"decay"}, decay(p.log_gamma));
  if (kind < .65) return check({"rates", Steps::rates, split}, decay(p.log_gamma) * rotary(p.theta, p.beta, split));
  if (kind < .75 || F::score == Score::exponential || options.mask.has_window())
    return check({"stationary"}, stationary());
  if (kind < .9) return check({"channels", Steps::channels}, channel_decay(p.log_a));
  if (kind < .95) return check(gated_reflections, gated_chain<Scalar>(p));
  check({"reflections", Steps::mixing}, householder(p.w.template cast<Scalar>(), p.strengths));
}

template <class Scalar>
void check_every_map(Random& random, bool hostile) {
  check_call<Normalized, Scalar>(SymmetricPower<2>{}, random, hostile);
  check_call<Normalized, Scalar>(SymmetricPower<4>{}, random, hostile);
  check_call<Unnormalized, Scalar>(SymmetricPower<1>{}, random, hostile);
  check_call<Unnormalized, Scalar>(SymmetricPower<2>{}, random, hostile);
  check_call<Unnormalized, Scalar>(SymmetricPower<3>{}, random, hostile);
  check_call<Normalized, Scalar>(Exponential{}, random, hostile);
}

}  // namespace

// SYMPOW_GRADIENT_DRAWS=2500 makes 100,000 gradients of calls and parameters.
TEST_CASE("gradients of random calls are those of the definition", "[gradient]") {
  const char* const asked = std::getenv("SYMPOW_GRADIENT_DRAWS");
  const long draws = asked == nullptr ? 40 : std::strtol(asked, nullptr, 10);
  for (long n = 0; n < draws; ++n) {
    CAPTURE(n);
    Random random(static_cast<std::uint64_t>(n) + 1);
    check_every_map<float>(random, n % 2 == 1);
    check_every_map<double>(random, n % 2 == 1);
  }
}
