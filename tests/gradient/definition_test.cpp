// All gradients of all forms are those of the definition, by the gradient row rule.
#include "catch.hpp"
#include "problem.hpp"
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3;

template <class Normalization, class Scalar, class F>
void check_map(const std::string& name, const F& feature, Index T = 40, double scale = .8) {
  for (const double gates : {.1, 3.}) {
    Random random(1);
    const Problem<Scalar> x(random, d, e, T, gates);
    each_transition<Scalar, F>([&](const Kind& kind, const auto& make) {
      CAPTURE(name, kind.name, gates, T);
      const auto A = make(x.parameters);
      Options options{.scale = scale};
      const Definition definition = definition_of<Normalization>(feature, A, x, kind, options);
      const Matrix<Scalar> dY = definition.dY<Scalar>();
      require_by_rule(definition.worst(found_in(attention_vjp<Normalization>(
                                           feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = options})),
                                       0));
      if constexpr (has_state_forms<F, std::remove_const_t<decltype(A)>>)
        for (const Index chunk : {1, 7, 16, 64}) {
          CAPTURE(chunk);
          options.chunk = chunk;
          const bool mixes = kind.steps == Steps::mixing;
          const auto found = found_in(
              chunked_vjp<Normalization>(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = options}));
          require_by_rule(definition.worst(found, mixes ? 1 : chunk));
        }
    });
  }
}

}  // namespace

TEST_CASE("gradients of linear attention are those of the definition", "[gradient]") {
  check_map<Unnormalized, double>("sums", Linear{});
  check_map<SignedNormalized, double>("signed means", Linear{});
  check_map<Unnormalized, float>("sums in float", Linear{});
  check_map<SignedNormalized, float>("signed means in float", Linear{});
}

TEST_CASE("gradients of power attention are those of the definition", "[gradient]") {
  check_map<Normalized, double>("2, means", SymmetricPower<2>{});
  check_map<Unnormalized, double>("2, sums", SymmetricPower<2>{});
  check_map<Unnormalized, double>("3, sums", SymmetricPower<3>{});
  check_map<SignedNormalized, double>("3, signed means", SymmetricPower<3>{});
  check_map<Normalized, float>("2, means in float", SymmetricPower<2>{});
  check_map<Normalized, float>("4, means in float", SymmetricPower<4>{});
  check_map<Unnormalized, float>("4, sums in float", SymmetricPower<4>{});
}

TEST_CASE("gradients of softmax attention are those of the definition", "[gradient]") {
  check_map<Normalized, double>("means", Exponential{});
  check_map<Unnormalized, double>("sums", Exponential{});
  check_map<Normalized, float>("means in float", Exponential{});
  check_map<Unnormalized, float>("sums in float", Exponential{});
}

TEST_CASE("gradients of feature maps are those of the definition", "[gradient]") {
  check_map<Normalized, double>("positive", RandomFeatures<RandomFeatureKind::positive>(d, 12));
  check_map<Normalized, double>("hyperbolic", RandomFeatures<RandomFeatureKind::hyperbolic>(d, 12));
  check_map<Unnormalized, double>("trigonometric", RandomFeatures<RandomFeatureKind::trigonometric>(d, 12));
  check_map<Normalized, double>("a map of one's own", Squares{});
  check_map<Normalized, double>("a map of one's own in closed form", ClosedSquares{});
}

TEST_CASE("gradients through blocks of attention are those of the definition", "[gradient]") {
  for (const Index T : {150, 300}) {  // blocks of 96
    Random random(2);
    const Problem<double> x(random, d, 2, T, .02);
    const auto check = [&](auto norm, const auto& feature, const Kind& kind, const auto& transition) {
      using Normalization = decltype(norm);
      CAPTURE(T, kind.name);
      const Definition definition = definition_of<Normalization>(feature, transition, x, kind, {});
      const auto found = attention_vjp<Normalization>(feature, transition,
                                                      {.Q = x.Q, .K = x.K, .V = x.V, .dY = definition.dY<double>()});
      require_by_rule(definition.worst(found_in(found), 0));
    };
    const test::Parameters& p = x.parameters;
    check(Normalized{}, SymmetricPower<2>{}, {"decay"}, decay(p.log_gamma));
    check(Normalized{}, SymmetricPower<2>{}, {"channels", Steps::channels}, channel_decay(p.log_a));
    check(Normalized{}, Exponential{}, {"rates", Steps::rates},
          decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::interleaved));
    check(Unnormalized{}, SymmetricPower<3>{}, {"reflections", Steps::mixing}, householder(p.w, p.strengths));
    check(Normalized{}, Squares{}, {"rates", Steps::rates},
          decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::interleaved));
    if (T > 150) continue;
    check(Unnormalized{}, Linear{}, {"half_split", Steps::rates, Pairing::half_split},
          rotary(p.theta, p.beta, Pairing::half_split));
  }
}

TEST_CASE("gradients of queries that stand elsewhere than their keys are those of the definition", "[gradient]") {
  Random random(4);
  const Index T_q = 20, T_k = 30;
  for (const Mask mask : {causal(10), causal(-4), causal(25)}) {
    CAPTURE(mask.offset);
    Problem<double> x(random, d, e, std::max(T_k, T_q + mask.offset), .1);
    x.Q = x.Q.leftCols(T_q).eval(), x.dY = x.dY.leftCols(T_q).eval();
    x.K = x.K.leftCols(T_k).eval(), x.V = x.V.leftCols(T_k).eval();
    const auto check = [&](auto norm, const auto& feature, const Kind& kind, const auto& transition) {
      using Normalization = decltype(norm);
      CAPTURE(kind.name);
      const Options options{.mask = mask};
      const Definition definition = definition_of<Normalization>(feature, transition, x, kind, options);
      const auto found = attention_vjp<Normalization>(
          feature, transition, {.Q = x.Q, .K = x.K, .V = x.V, .dY = definition.dY<double>(), .options = options});
      require_by_rule(definition.worst(found_in(found), 0));
    };
    const test::Parameters& p = x.parameters;
    check(Normalized{}, SymmetricPower<2>{}, {"stationary"}, stationary());
    check(Normalized{}, Exponential{}, {"rates", Steps::rates}, rotary(p.theta, p.beta, Pairing::interleaved));
    check(Normalized{}, SymmetricPower<2>{}, {"decay"}, decay(p.log_gamma));
    check(Unnormalized{}, Linear{}, {"channels", Steps::channels}, channel_decay(p.log_a));
    check(Unnormalized{}, Linear{}, {"reflections", Steps::mixing}, householder(p.w, p.strengths));
  }
}
