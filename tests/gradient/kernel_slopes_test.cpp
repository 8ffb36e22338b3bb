// Gradients of scores that are known in closed form with their slope, and of which no derivative of φ is.
#include "require_by_rule.hpp"

#include <sympow/verify/gradient_laws.hpp>

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3;

// κ(s) = (1 + s)², φ as of `Squares`.
struct Sloped {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true, is_squares = true;
  [[nodiscard]] Index dimension(Index n) const { return Squares{}.dimension(n); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    Squares{}.embed(x, y);
  }
  template <class S>
  [[nodiscard]] S kappa(S s) const {
    return (1 + s) * (1 + s);
  }
  template <class S>
  [[nodiscard]] S kappa_slope(S s) const {
    return 2 * (1 + s);
  }
};
struct HalfSlope : Sloped {
  [[nodiscard]] double kappa_slope(double s) const { return 1 + s; }
};
// κ(s) = s, which has a slope where κ is 0.
struct SlopedLinear {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = false;
  [[nodiscard]] Index dimension(Index n) const { return n; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = x;
  }
  [[nodiscard]] double kappa(double s) const { return s; }
  [[nodiscard]] double kappa_slope(double) const { return 1; }
};
static_assert(KernelWithSlope<Sloped> && !FeatureMapWithVjp<Sloped> && !FeatureMapWithVjp<SlopedLinear>);

template <class Normalization, class Scalar>
void check_transitions(Index T, double gates, const Options& options) {
  Random random(1);
  const Problem<Scalar> x(random, d, e, T, gates);
  one_of_a_kind<Scalar, Sloped>([&](const Kind& kind, const auto& make) {
    CAPTURE(gates);
    check_forms<Normalization>(Sloped{}, make(x.parameters), x, kind, options);
  });
}

}  // namespace

TEST_CASE("gradients of a score by its slope are those of the definition", "[gradient]") {
  for (const double gates : {.1, 3.}) {
    check_transitions<Normalized, double>(40, gates, {.scale = .8});
    check_transitions<Unnormalized, double>(40, gates, {.scale = -.5});
    check_transitions<SignedNormalized, float>(40, gates, {});
  }
  check_transitions<Normalized, double>(150, .05, {});  // two blocks
}

TEST_CASE("gradients of a score by its slope are those through its features", "[gradient]") {
  Random random(2);
  const Problem<double> x(random, d, e, 160, .02);
  const auto A = decay(x.parameters.log_gamma) * rotary(x.parameters.theta, x.parameters.beta, Pairing::interleaved);
  const auto by_slope = attention_vjp(Sloped{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY}),
             by_features = attention_vjp(ClosedSquares{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY});
  const auto near = [](const auto& a, const auto& b) { return (a - b).norm() <= 1e-11 * b.norm(); };
  CHECK(near(by_slope.Q, by_features.Q));
  CHECK(near(by_slope.K, by_features.K));
  CHECK(near(by_slope.V, by_features.V));
  CHECK(near(by_slope.template of<Decay>().log_gamma, by_features.template of<Decay>().log_gamma));
  CHECK(near(by_slope.template of<Rotary>().beta, by_features.template of<Rotary>().beta));
  CHECK(std::abs(by_slope.scale - by_features.scale) <= 1e-11 * std::abs(by_features.scale));
}

// Of maps without a derivative of φ the slope has to serve here as well.
TEST_CASE("gradients of a score by its slope under a full mask are those of the definition", "[gradient]") {
  for (const auto& [T_q, T_k, offset] : {std::tuple{30, 30, 0}, {40, 17, 0}, {20, 30, 5}, {12, 10, 30}, {30, 170, 0}}) {
    CAPTURE(T_q, T_k, offset);
    Random random(5);
    const auto x = Problem<double>::seen(random, d, e, T_q, T_k, offset);
    const auto& p = x.parameters;
    check_forms<Normalized>(Sloped{}, rotary(p.theta, p.beta, Pairing::interleaved), x, {"rates", Steps::rates},
                            {.scale = .8, .mask = full(offset)});
  }
}

TEST_CASE("a score that is 0 can have a slope", "[gradient]") {
  Random random(3);
  Problem<double> x(random, d, e, 40, .1);
  x.Q.col(9).setZero(), x.K.col(10).setZero();
  const auto A = decay(x.parameters.log_gamma);
  const auto found = attention_vjp<Unnormalized>(SlopedLinear{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY}),
             expected = attention_vjp<Unnormalized>(Linear{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY});
  CHECK(expected.Q.col(9).norm() > 0);
  CHECK(expected.K.col(10).norm() > 0);
  CHECK((found.Q - expected.Q).norm() <= 1e-12 * expected.Q.norm());
  CHECK((found.K - expected.K).norm() <= 1e-12 * expected.K.norm());
  CHECK((found.V - expected.V).norm() <= 1e-12 * expected.V.norm());
}

TEST_CASE("the adjoint law finds a wrong slope by its name", "[gradient]") {
  Random random(4);
  const Problem<double> x(random, d, e, 30, .1);
  const verify::MovingTransition still{[](Segment, double) { return stationary(); },
                                       [](Segment, const auto&) { return 0.; }};
  require_by_rule(verify::adjoint_law(Sloped{}, still, x.Q, x.K, x.V, x.dY));
  const Residual found = verify::adjoint_law(HalfSlope{}, still, x.Q, x.K, x.V, x.dY);
  CHECK(found.residual > 1e6);
  CHECK(found.form == "kappa_slope");
}
