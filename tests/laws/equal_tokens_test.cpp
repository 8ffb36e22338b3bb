// One token over and over: every sum of a form rounds the same way at every step.
#include "catch.hpp"
#include "forms.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

// One number over and over in queries and in keys, one value: every sum of a form rounds the same way at every step.
template <class Scalar, int P>
void check_equal_tokens(Index d, Index T, Index chunk = 64) {
  Random random(static_cast<std::uint64_t>(d));
  for (const double gate : {-1., -.01, -.0001, 0.}) {
    Tokens tokens{.Q = Eigen::MatrixXd::Constant(d, T, random.uniform(.1, 1)),
                  .K = Eigen::MatrixXd::Constant(d, T, random.uniform(.1, 1)),
                  .V = random.vector(3).replicate(1, T),
                  .log_gamma = Eigen::VectorXd::Constant(T, gate)};
    const auto verdicts = judge_forms<Scalar, SymmetricPower<P>>(tokens, chunk, Inputs::aligned);
    for (std::size_t form = 0; form < verdicts.size(); ++form) {
      CAPTURE(P, sizeof(Scalar), d, T, gate, form_names[form], verdicts[form].row);
      CHECK(verdicts[form].worst <= 1);
    }
  }
}

}  // namespace

TEST_CASE("the same token over and over keeps the rule", "[laws]") {
  check_equal_tokens<float, 2>(64, 500);
  check_equal_tokens<float, 2>(128, 200);
  check_equal_tokens<float, 2>(3, 2000);
  check_equal_tokens<float, 8>(8, 300);
  check_equal_tokens<double, 2>(64, 300);
}
