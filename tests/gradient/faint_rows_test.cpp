// Gradients of rows that see little of their keys, before a row of which nothing is asked.
#include <typeinfo>

#include "catch.hpp"
#include "problem.hpp"
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3, few = 40;

// Queries have nothing in the last two channels.
template <class Scalar>
Problem<Scalar> short_problem(Index tokens) {
  Random random(8);
  Problem<Scalar> x(random, d, e, tokens, .1);
  x.Q.bottomRows(2).setZero();
  return x;
}

}  // namespace

// The last row sees only what a gate has left, and its own key, which is orthogonal to it and too heavy for the rows
// before, of which something is asked.
TEST_CASE("a faint row of which nothing is asked hides nothing from the rows before it", "[gradient]") {
  const auto check = [](auto norm, const auto& feature, auto x, double gate) {
    const Index closed = 10, last = x.tokens() - 1;
    x.parameters.log_gamma[closed] = gate;
    x.K.middleCols(closed, last - closed).setZero();
    x.K.col(last).head(2).setZero();
    x.dY.col(last).setZero();
    using Normalization = decltype(norm);
    CAPTURE(typeid(feature).name(), gate);
    const auto A = decay(x.parameters.log_gamma);
    Definition definition = definition_of<Normalization>(feature, A, x, {}, {});
    using Scalar = typename decltype(x.Q)::Scalar;
    definition.excuse(4096 * Wide(std::numeric_limits<Scalar>::denorm_min()));
    const auto dY = definition.template dY<Scalar>();
    require_by_rule(definition.worst(
        found_in(attention_vjp<Normalization>(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY})), 0));
    const Options whole{.chunk = x.tokens()};
    require_by_rule(definition.worst(
        found_in(chunked_vjp<Normalization>(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = whole})),
        x.tokens()));
  };
  for (const double gate : {-110., -745.}) {
    check(Normalized{}, SymmetricPower<2>{}, short_problem<float>(few), gate);
    check(Normalized{}, SymmetricPower<8>{}, short_problem<float>(few), gate);
    check(SignedNormalized{}, SymmetricPower<3>{}, short_problem<double>(few), 10 * gate);
  }
}
