// All gradients of all forms are those of the definition, by the gradient row rule.
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3;

// Both forms under one transition.
template <class Normalization, class Scalar, class F>
auto check_with(const F& feature) {
  return [&feature](const Kind& kind, const auto& make) {
    for (const double gates : {.1, 3.}) {
      Random random(1);
      const Problem<Scalar> x(random, d, e, 40, gates);
      CAPTURE(gates);
      check_forms<Normalization>(feature, make(x.parameters), x, kind, {.scale = .8}, 0, {1, 7, 16, 64});
    }
  };
}
template <class Normalization, class Scalar, class F>
void check_map(const F& feature) {
  one_of_a_kind<Scalar, F>(check_with<Normalization, Scalar>(feature));
}

}  // namespace

TEST_CASE("gradients are those of the definition, whatever the transition", "[gradient]") {
  const SymmetricPower<2> power;
  const Linear linear;
  each_transition<double>(check_with<Normalized, double>(power));
  each_transition<double>(check_with<Unnormalized, double>(linear));
}

TEST_CASE("gradients are those of the definition, whatever the map", "[gradient]") {
  check_map<SignedNormalized, float>(Linear{});
  check_map<Normalized, float>(SymmetricPower<4>{});
  check_map<Unnormalized, double>(SymmetricPower<3>{});
  check_map<SignedNormalized, double>(SymmetricPower<3>{});
  check_map<Normalized, double>(Exponential{});
  check_map<Unnormalized, float>(Exponential{});
  check_map<Normalized, double>(RandomFeatures<RandomFeatureKind::positive>(d, 12));
  check_map<Normalized, double>(Squares{});
  check_map<Normalized, double>(ClosedSquares{});
}

TEST_CASE("gradients through blocks of attention are those of the definition", "[gradient]") {
  for (const Index T : {150, 200}) {  // two and three blocks of 96
    Random random(2);
    const Problem<double> x(random, d, e, T, .02);
    const auto& p = x.parameters;
    const auto check = [&](auto norm, const auto& feature, const Kind& kind, const auto& transition) {
      check_forms<decltype(norm)>(feature, transition, x, kind, {}, 0, {});
    };
    check(Normalized{}, SymmetricPower<2>{}, {"decay"}, decay(p.log_gamma));
    check(Normalized{}, SymmetricPower<2>{}, {"channels", Steps::channels}, channel_decay(p.log_a));
    check(Normalized{}, Exponential{}, {"rates", Steps::rates, Pairing::half_split},
          decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::half_split));
    check(Unnormalized{}, SymmetricPower<3>{}, {"reflections", Steps::mixing}, householder(p.w, p.strengths));
    check(Unnormalized{}, SymmetricPower<3>{}, gated_reflections, gated_chain<double>(p));
    check(Normalized{}, Squares{}, {"rates", Steps::rates, Pairing::half_split},
          decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::half_split));
  }
}

TEST_CASE("gradients in a sliding window are those of the definition", "[gradient]") {
  const auto check_in = [&](Index T, Index window) {
    CAPTURE(T, window);
    Random random(6);
    const Problem<double> x(random, d, e, T, .02);
    const auto& p = x.parameters;
    const auto check = [&](auto norm, const auto& feature, const Kind& kind, const auto& transition) {
      check_forms<decltype(norm)>(feature, transition, x, kind, {.mask = sliding_window(window)});
    };
    const auto turned = decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::half_split);
    const Kind rates{"rates", Steps::rates, Pairing::half_split};
    check(Normalized{}, SymmetricPower<2>{}, rates, turned);
    check(Normalized{}, Exponential{}, rates, turned);
    check(Unnormalized{}, Linear{}, {"decay"}, decay(p.log_gamma));
    check(Unnormalized{}, SymmetricPower<3>{}, {"reflections", Steps::mixing}, householder(p.w, p.strengths));
    check(Normalized{}, Exponential{}, {"channels", Steps::channels}, channel_decay(p.log_a));
    check(Normalized{}, Squares{}, rates, turned);
    check(Normalized{}, ClosedSquares{}, {"decay"}, decay(p.log_gamma));
  };
  for (const Index window : {20, 96, 130}) check_in(200, window);  // beside blocks of 96 tokens
  check_in(7, 3);
}

TEST_CASE("gradients of queries that stand elsewhere than their keys are those of the definition", "[gradient]") {
  Random random(4);
  for (const Mask mask : {causal(10), causal(-4), causal(25), sliding_window(6, 10), sliding_window(3, -4)}) {
    CAPTURE(mask.offset, mask.window);
    const auto x = Problem<double>::seen(random, d, e, 20, 30, mask.offset);
    const auto& p = x.parameters;
    const Options options{.mask = mask};
    check_forms<Normalized>(Exponential{}, decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::half_split), x,
                            {"rates", Steps::rates, Pairing::half_split}, options);
    check_forms<Normalized>(SymmetricPower<2>{}, decay(p.log_gamma), x, {"decay"}, options);
    if (!mask.has_window())
      check_forms<Unnormalized>(Linear{}, channel_decay(p.log_a), x, {"channels", Steps::channels}, options);
    check_forms<Unnormalized>(Linear{}, householder(p.w, p.strengths), x, {"reflections", Steps::mixing}, options);
    check_forms<Unnormalized>(Linear{}, gated_chain<double>(p), x, gated_reflections, options);
  }
}
