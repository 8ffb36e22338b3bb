// Gradients of linear scores whose weights vanish or cancel, though what a change of their keys does is not 0.
#include <typeinfo>

#include "catch.hpp"
#include "problem.hpp"
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3, T = 40;

template <class Normalization, class Scalar, class A>
void check_forms(const A& transition, const Problem<Scalar>& x, const Kind& kind = {}) {
  CAPTURE(typeid(Normalization).name(), typeid(A).name());
  const Definition definition = definition_of<Normalization>(Linear{}, transition, x, kind, {});
  const Matrix<Scalar> dY = definition.template dY<Scalar>();
  require_by_rule(definition.worst(
      found_in(attention_vjp<Normalization>(Linear{}, transition, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY})), 0));
  for (const Index chunk : {1, 16}) {
    CAPTURE(chunk);
    const auto found = chunked_vjp<Normalization>(
        Linear{}, transition, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = {.chunk = chunk}});
    require_by_rule(definition.worst(found_in(found), kind.steps == Steps::mixing ? 1 : chunk));
  }
}

// Calls change(x) on keys and queries of either type.
template <class Change>
void check_changed(const Change& change) {
  const auto check = [&]<class Scalar>(Scalar) {
    CAPTURE(sizeof(Scalar));
    Random random(11);
    Problem<Scalar> x(random, d, e, T, .1);
    change(x);
    const auto& p = x.parameters;
    const auto A = decay(p.log_gamma);
    check_forms<SignedNormalized>(A, x);
    check_forms<Unnormalized>(A, x);
    check_forms<SignedNormalized>(stationary(), x);
    check_forms<SignedNormalized>(rotary(p.theta, p.beta, Pairing::interleaved), x, {"", Steps::rates});
    check_forms<SignedNormalized>(channel_decay(p.log_a), x, {"", Steps::channels});
    check_forms<SignedNormalized>(householder(p.w.template cast<Scalar>(), p.strengths), x, {"", Steps::mixing});
  };
  check(double());
  check(float());
}

}  // namespace

TEST_CASE("gradients of signed means with keys of length 0", "[gradient]") {
  check_changed([](auto& x) {
    for (const Index t : {1, 10, 11, 16, 38}) x.K.col(t).setZero();
  });
  check_changed([](auto& x) { x.K.leftCols(20).setZero(); });   // rows that see nothing
  check_changed([](auto& x) { x.K.rightCols(24).setZero(); });  // rows that see old keys alone
  check_changed([](auto& x) {
    for (Index t = 0; t < T; ++t) x.K.col(t) *= t % 3 != 0 ? 0 : t % 2 != 0 ? 1e-6f : 1e6f;
  });
}

TEST_CASE("gradients of signed means whose weights cancel, or vanish but for one", "[gradient]") {
  check_changed([](auto& x) {
    for (Index t = 1; t < T; t += 2) x.K.col(t) = -x.K.col(t - 1);
  });
  check_changed([](auto& x) {
    x.Q.bottomRows(2).setZero(), x.K.topRows(2).setZero();
    x.K(0, 5) = 1;
  });
  check_changed([](auto& x) {
    x.K.setZero();
    x.K(1, 0) = 1;
    x.Q.row(1).setOnes();
  });
}
