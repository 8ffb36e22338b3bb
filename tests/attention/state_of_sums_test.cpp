// States that begin with sums of a caller.
#include <limits>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

/// Rows that go on from a state, and from another one that was made of its sums.
template <class Normalization, class Scalar, class F, class A>
void check_goes_on(const F& feature, const A& transition, Index d) {
  Random random(7);
  constexpr Index e = 3, before = 40, after = 70;
  const auto numbers = [&](Index rows, Index cols) -> Matrix<Scalar> {
    return random.matrix(rows, cols).template cast<Scalar>();
  };
  const Matrix<Scalar> K = numbers(d, before), V = numbers(e, before), Q = numbers(d, after), K2 = numbers(d, after),
                       V2 = numbers(e, after);
  State<Scalar, F> state(feature, d, e);
  static_cast<void>(chunked<Normalization>(feature, transition, K, K, V, state));
  State<Scalar, F> made(feature, d, state.values(), state.normalizer(), 8, state.frame());
  CHECK(made.tokens() == 0);
  CHECK(made.tail_capacity() == 8);
  const Matrix<Scalar> first = chunked<Normalization>(feature, transition, Q, K2, V2, state),
                       again = chunked<Normalization>(feature, transition, Q, K2, V2, made);
  const auto tolerance = 400 * std::numeric_limits<Scalar>::epsilon();
  CHECK((first - again).cwiseAbs().maxCoeff() <= tolerance * (1 + first.cwiseAbs().maxCoeff()));
  CHECK((made.values() - state.values()).cwiseAbs().maxCoeff() <=
        tolerance * (1 + state.values().cwiseAbs().maxCoeff()));
}

}  // namespace

TEMPLATE_TEST_CASE("a sequence goes on from a state that was made of sums", "[attention]", float, double) {
  const auto turning = constant_decay(.95) * rotary(Eigen::VectorXd::LinSpaced(2, .3, 1.), Pairing::interleaved);
  check_goes_on<Normalized, TestType>(SymmetricPower<2>{}, turning, 4);
  check_goes_on<Unnormalized, TestType>(SymmetricPower<3>{}, turning, 4);
  check_goes_on<Normalized, TestType>(SymmetricPower<4>{}, stationary(), 3);
  check_goes_on<Unnormalized, TestType>(Linear{}, constant_decay(.5), 5);
}

TEST_CASE("sums of a state may be large, or nothing", "[attention]") {
  const Eigen::MatrixXf S = Eigen::MatrixXf::Constant(1, 3, 0x1p100F), Z = Eigen::MatrixXf::Ones(3, 1);
  const State<float, SymmetricPower<2>> state({}, 2, S, Z);
  CHECK(state.values() == S);
  CHECK(state.normalizer() == Z);
  const State<float, SymmetricPower<2>> nothing({}, 2, 0 * S, 0 * Z);
  CHECK(nothing.values().isZero(0));
}

TEST_CASE("sums that are none of a state are refused", "[attention]") {
  using Squares = State<double, SymmetricPower<2>>;
  Eigen::MatrixXd S = Eigen::MatrixXd::Ones(2, 6);
  Eigen::VectorXd Z = Eigen::VectorXd::Ones(6);
  CHECK_THROWS_WITH(Squares({}, 4, S, Z), contains("columns of S is 6, must be 10"));
  CHECK_THROWS_WITH(Squares({}, 3, S, Z.head(5)), contains("entries of Z is 5, must be 6"));
  CHECK_THROWS_AS(Squares({}, 3, S, Z, -1), ShapeMismatch);
  Z[4] = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(Squares({}, 3, S, Z), NotFinite);
  Z[4] = 1, S(1, 2) = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(Squares({}, 3, S, Z), contains("entry 5 of S is nan"));
}
