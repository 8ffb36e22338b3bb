// Structured rotary positions in every form: displacements only, in any coordinates, resumed anywhere.
#include <sympow/structured/generator_families.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/transition/structured_rotary.hpp>
#include <sympow/verify/laws.hpp>

#include <sympow/sympow.hpp>
#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;
using sympow::test::Random;

namespace {

template <class Scalar>
CommutingGenerators<Scalar> some_family(Random& random, Index generators, Index planes, Index null) {
  return CommutingGenerators<Scalar>::from_frequencies(random.matrix(generators, planes), null)
      .in_basis(random.rotation(2 * planes + null).template cast<Scalar>());
}

struct Inputs {
  Random random{1};
  Index d = 7, e = 3, T = 75;
  Eigen::MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T),
                  r = 3 * random.matrix(2, T);
  Eigen::VectorXd log_gamma = -.01 * random.vector(T).cwiseAbs();
  CommutingGenerators<double> family = some_family<double>(random, 2, 3, 1);
};

}  // namespace

TEST_CASE("the three forms agree under structured rotary positions", "[transition]") {
  const Inputs in;
  const auto transition = decay(in.log_gamma) * structured_rotary(in.family, in.r);
  REQUIRE(verify::three_forms_law(SymmetricPower<2>{}, transition, in.Q, in.K, in.V, {.chunk = 9}).residual <= 1);
  REQUIRE(verify::three_forms_law(SymmetricPower<3>{}, transition, in.Q, in.K, in.V).residual <= 1);
  REQUIRE(verify::three_forms_law(Linear{}, structured_rotary(in.family, in.r), in.Q, in.K, in.V).residual <= 1);
  Random random(2);
  const auto family = some_family<float>(random, 2, 3, 1);
  REQUIRE(verify::three_forms_law(SymmetricPower<2>{}, structured_rotary(family, in.r), in.Q.cast<float>().eval(),
                                  in.K.cast<float>().eval(), in.V.cast<float>().eval())
              .residual <= 1);
}

TEST_CASE("a score is that of the displacement R(r_j - r_i), also under Exponential", "[transition]") {
  const Inputs in;
  Eigen::MatrixXd expected(in.e, in.T);
  for (Index i = 0; i < in.T; ++i) {
    Eigen::VectorXd score(i + 1);
    for (Index j = 0; j <= i; ++j)
      score[j] = std::exp(in.Q.col(i).dot((in.family.at(in.r.col(j) - in.r.col(i)) * in.K.col(j)).eval()));
    expected.col(i) = in.V.leftCols(i + 1) * score / score.sum();
  }
  const Eigen::MatrixXd Y = attention(Exponential{}, structured_rotary(in.family, in.r), in.Q, in.K, in.V);
  REQUIRE((Y - expected).norm() <= 1e-12 * expected.norm());
}

TEST_CASE("a sequence is continued in the same coordinates", "[transition]") {
  const Inputs in;
  const Eigen::MatrixXd whole = chunked(SymmetricPower<2>{}, structured_rotary(in.family, in.r), in.Q, in.K, in.V);
  State<double, SymmetricPower<2>> state(in.d, in.e);
  const Index first = 31, rest = in.T - first;
  (void)chunked(SymmetricPower<2>{}, structured_rotary(in.family, in.r.leftCols(first)), in.Q.leftCols(first),
                in.K.leftCols(first), in.V.leftCols(first), state);
  REQUIRE(state.frame().numbers().size() == 3);
  const Eigen::MatrixXd after = recurrent(SymmetricPower<2>{}, structured_rotary(in.family, in.r.rightCols(rest)),
                                          in.Q.rightCols(rest), in.K.rightCols(rest), in.V.rightCols(rest), state);
  REQUIRE((after - whole.rightCols(rest)).cwiseAbs().maxCoeff() <= 1e-10);
  REQUIRE_THROWS_AS(recurrent(SymmetricPower<2>{}, stationary(), in.Q, in.K, in.V, state), FrameMismatch);
}

TEST_CASE("mistakes with positions", "[transition]") {
  const Inputs in;
  REQUIRE_THROWS_WITH(structured_rotary(in.family, in.r.topRows(1)), contains("rows of the positions is 1, must be 2"));
  Eigen::MatrixXd r = in.r;
  r(1, 5) = std::numeric_limits<double>::infinity();
  REQUIRE_THROWS_WITH(structured_rotary(in.family, r), contains("coordinate 1 of position 5 is inf"));
  REQUIRE_THROWS_WITH(attention(Linear{}, structured_rotary(in.family, in.r.leftCols(4)), in.Q, in.K, in.V),
                      contains("length of the transition is 4, must be 75"));
  REQUIRE_THROWS_WITH(attention(Linear{}, structured_rotary(in.family, in.r), in.Q.topRows(6), in.K.topRows(6), in.V),
                      contains("key dimension of the transition is 7, must be 6"));
}
