// Gradients of linear scores whose weights vanish or cancel, though what a change of their keys does is not 0.
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3, T = 40;

// Calls change(x) on keys and queries.
template <class Change>
void check_changed(const Change& change) {
  Random random(11);
  Problem<float> x(random, d, e, T, .1);
  change(x);
  check_forms<SignedNormalized>(Linear{}, decay(x.parameters.log_gamma), x);
  Problem<double> y(random, d, e, T, .1);
  change(y);
  one_of_a_kind<double, Linear>([&](const Kind& kind, const auto& make) {
    check_forms<SignedNormalized>(Linear{}, make(y.parameters), y, kind);
  });
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
