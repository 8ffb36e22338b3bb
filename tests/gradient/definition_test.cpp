// All gradients of all forms are those of the definition, by the gradient row rule.
#include "catch.hpp"
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3;

void require_by_rule(const Residual& found) {
  INFO(found);
  CHECK(found.holds());
}

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
      require_by_rule(
          definition.worst(found_in(attention_vjp<Normalization>(feature, A, x.Q, x.K, x.V, dY, options)), 0));
      if constexpr (has_state_forms<F, std::remove_const_t<decltype(A)>>)
        for (const Index chunk : {1, 7, 16, 64}) {
          CAPTURE(chunk);
          options.chunk = chunk;
          const bool mixes = kind.steps == Steps::mixing;
          const auto found = found_in(chunked_vjp<Normalization>(feature, A, x.Q, x.K, x.V, dY, options));
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
