// The identities of the papers as rules of types: what each expression turns into, and that its value is the dense one.
#include <cmath>
#include <concepts>

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/conformal.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/tensor/tensor_power.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;
using sympow::test::unit, sympow::test::distance;

namespace {

template <class T>
constexpr bool is_power_gram = false;
template <class X, class Y>
constexpr bool is_power_gram<LazyExpression<detail::PowerGram<X, Y>>> = true;

template <class T, int P>
constexpr bool is_induced = false;
template <class A, int P>
constexpr bool is_induced<Induced<P, A>, P> = true;

template <class T>
constexpr bool is_product = false;
template <class A, class B, int Option>
constexpr bool is_product<const Eigen::Product<A, B, Option>> = true;

using Rotation = BlockRotation<double>;

struct Example {
  explicit Example(unsigned seed) : random(seed) {}
  test::Random random;
  VectorXd x = random.vector(4), y = random.vector(4);
  MatrixXd X = random.matrix(4, 3), Y = random.matrix(4, 2), A = random.matrix(4, 4), B = random.matrix(4, 4);
  Rotation R{VectorXd(random.vector(2))}, Q{VectorXd(random.vector(2))};
};

/// Relative to the power of norms that bounds every entry: P levels of dot products of 4 entries on one side, D = 20
/// terms on the other, each of a few roundings.
constexpr double tolerance = 200 * unit<double>;

}  // namespace

TEST_CASE("φ(x)·φ(y) becomes (x·y)^P", "[rules]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  const Example e(seed);
  static_assert(std::same_as<decltype(symmetric_power<3>(e.x).dot(symmetric_power<3>(e.y))), double>);
  const VectorXd phi = test::defined_symmetric_power(e.x, 3).cast<double>(),
                 psi = test::defined_symmetric_power(e.y, 3).cast<double>();
  const double scale = std::pow(e.x.norm() * e.y.norm(), 3);
  REQUIRE(std::abs(symmetric_power<3>(e.x).dot(symmetric_power<3>(e.y)) - phi.dot(psi)) <= tolerance * scale);
  REQUIRE(symmetric_power<3>(e.x).dot(symmetric_power<3>(e.y)) == integer_power(e.x.dot(e.y), 3));
  REQUIRE(symmetric_power<3>(e.x).dot(symmetric_power(e.y, 3)) == integer_power(e.x.dot(e.y), 3));
  REQUIRE(symmetric_power<3>(e.x).squaredNorm() == integer_power(e.x.squaredNorm(), 3));
  REQUIRE(symmetric_power<3>(e.x).norm() == integer_power(e.x.norm(), 3));
  REQUIRE(std::abs(symmetric_power<3>(e.x).squaredNorm() - phi.squaredNorm()) <= tolerance * phi.squaredNorm());
  REQUIRE(tensor_power<3>(e.x).dot(tensor_power<3>(e.y)) == integer_power(e.x.dot(e.y), 3));
}

TEST_CASE("φ(X)ᵀ φ(Y) becomes the power of XᵀY, however it is written", "[rules]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  const Example e(seed);
  auto left = symmetric_power<3>(e.X);
  const auto constant = symmetric_power<3>(e.X);
  const auto right = symmetric_power<3>(e.Y);
  static_assert(is_power_gram<decltype(symmetric_power<3>(e.X).transpose() * symmetric_power<3>(e.Y))>);
  static_assert(is_power_gram<decltype(symmetric_power<3>(MatrixXd()).transpose() * symmetric_power<3>(MatrixXd()))>);
  static_assert(is_power_gram<decltype(symmetric_power<3>(e.X).adjoint() * symmetric_power<3>(e.Y))>);
  static_assert(is_power_gram<decltype(symmetric_power(e.X, 3).transpose() * symmetric_power<3>(e.Y))>);
  static_assert(is_power_gram<decltype(left.transpose() * right)> &&
                is_power_gram<decltype(constant.transpose() * right)>);
  static_assert(is_power_gram<decltype(tensor_power<3>(e.X).transpose() * tensor_power<3>(e.Y))>);
  static_assert(is_power_gram<decltype(symmetric_power<3>(e.x).transpose() * symmetric_power<3>(e.Y))>);
  static_assert(
      is_product<decltype(tensor_power<1>(e.X).transpose() * symmetric_power<1>(e.Y))>);  // no rule across the two
  static_assert(
      is_product<decltype(symmetric_power<3>(e.X) * symmetric_power<3>(e.Y).transpose())>);  // the outer product

  const MatrixXd phi = symmetric_power<3>(e.X), psi = symmetric_power<3>(e.Y);
  const double scale = std::pow(e.X.norm() * e.Y.norm(), 3);
  REQUIRE(distance((symmetric_power<3>(e.X).transpose() * symmetric_power<3>(e.Y)).eval(), phi.transpose() * psi) <=
          tolerance * scale);
  const MatrixXd expected = (e.X.transpose() * e.Y).unaryExpr([](double s) { return s * s * s; });
  REQUIRE(distance((left.transpose() * right).eval(), expected) <= tolerance * scale);
  REQUIRE(distance((symmetric_power(e.X, 3).transpose() * right).eval(), expected) <= tolerance * scale);
  REQUIRE(distance((tensor_power<3>(e.X).transpose() * tensor_power<3>(e.Y)).eval(), expected) <= tolerance * scale);
  const double number = symmetric_power<3>(e.x).transpose() * symmetric_power<3>(e.y);
  REQUIRE(std::abs(number - std::pow(e.x.dot(e.y), 3)) <= tolerance * std::pow(e.x.norm() * e.y.norm(), 3));
  const Eigen::RowVectorXd row = symmetric_power<3>(e.x).transpose() * symmetric_power<3>(e.Y);
  REQUIRE(distance(row, VectorXd(symmetric_power<3>(e.x)).transpose() * psi) <= tolerance * scale * e.x.norm());
}

TEST_CASE("Sym(A) φ(x) becomes φ(A x)", "[rules]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  const Example e(seed);
  static_assert(is_symmetric_power<decltype(induced<3>(e.A) * symmetric_power<3>(e.x))>);
  static_assert(is_symmetric_power<decltype(induced<3>(MatrixXd()) * symmetric_power<3>(VectorXd()))>);
  static_assert(is_symmetric_power<decltype(induced<3>(e.A * e.B) * symmetric_power<3>(e.X))>);
  static_assert(is_symmetric_power<decltype(induced<3>(e.R) * symmetric_power<3>(e.x))>);
  static_assert(is_symmetric_power<decltype(induced<3>(conformal(2., e.R)) * symmetric_power<3>(e.x))>);
  static_assert(is_symmetric_power<decltype(induced<3>(e.R) * (induced<3>(e.A) * symmetric_power<3>(e.x)))>);

  const MatrixXd lift = test::defined_induced(e.A, 3).cast<double>();
  const MatrixXd turn = test::defined_induced(MatrixXd(e.R), 3).cast<double>();
  const MatrixXd phi = symmetric_power<3>(e.X);
  const double scale = std::pow(e.A.norm() * e.X.norm(), 3);
  REQUIRE(distance((induced<3>(e.A) * symmetric_power<3>(e.X)).eval(), lift * phi) <= tolerance * scale);
  REQUIRE(distance((induced<3>(e.R) * symmetric_power<3>(e.X)).eval(), turn * phi) <= tolerance * scale);
  REQUIRE(distance((induced<3>(e.R) * (induced<3>(e.A) * symmetric_power<3>(e.X))).eval(), turn * lift * phi) <=
          tolerance * scale);
}

TEST_CASE("products, transposes and determinants of induced maps are induced", "[rules]") {
  const Example e(1);
  static_assert(is_induced<decltype(induced<3>(e.A) * induced<3>(e.B)), 3>);
  static_assert(is_induced<decltype(induced<3>(e.A) * induced<3>(e.R)), 3>);
  static_assert(is_induced<decltype(induced<3>(e.R) * induced<3>(e.A)), 3>);
  static_assert(std::same_as<decltype(induced<3>(e.R) * induced<3>(e.Q)), Induced<3, Rotation>>);
  static_assert(is_induced<decltype(induced<3>(e.A).transpose()), 3>);
  static_assert(std::same_as<decltype(induced<3>(e.R).transpose()), Induced<3, Rotation>>);
  static_assert(std::same_as<decltype(induced<3>(e.A).determinant()), double>);

  const MatrixXd a = test::defined_induced(e.A, 3).cast<double>(), b = test::defined_induced(e.B, 3).cast<double>();
  const double scale = std::pow(e.A.norm() * e.B.norm(), 3);
  REQUIRE(distance((induced<3>(e.A) * induced<3>(e.B)).toDenseMatrix(), a * b) <= tolerance * scale);
  REQUIRE(distance(induced<3>(e.A).transpose().toDenseMatrix(), a.transpose()) <= tolerance * std::pow(e.A.norm(), 3));
  REQUIRE(induced<3>(e.A).determinant() == integer_power(e.A.determinant(), 15));  // C(6, 4)
}

TEST_CASE("products, transposes and powers of rotations are rotations, of conformal maps conformal", "[rules]") {
  const Example e(2);
  using Map = Conformal<Rotation>;
  const Map T = conformal(1.5, e.R), U = conformal(.5, e.Q);
  static_assert(std::same_as<decltype(e.R * e.Q), Rotation> && std::same_as<decltype(e.R * e.Q * e.R), Rotation>);
  static_assert(std::same_as<decltype(e.R.transpose()), Rotation> && std::same_as<decltype(e.R.pow(.5)), Rotation>);
  static_assert(std::same_as<decltype(T * U), Map> && std::same_as<decltype(T.transpose()), Map>);
  static_assert(std::same_as<decltype(T.inverse()), Map> && std::same_as<decltype(T.pow(2)), Map>);
  static_assert(!detail::Orthogonal<Map>);

  const VectorXd sum = e.R.angles() + e.Q.angles();
  REQUIRE(e.R * e.Q == Rotation(sum));
  REQUIRE(e.R.transpose() == Rotation(-e.R.angles()));
  REQUIRE(e.R.pow(7) == Rotation(7 * e.R.angles()));
  REQUIRE((T * U).scale() == .75);
  REQUIRE((T * U).rotation() == e.R * e.Q);
  REQUIRE(distance((T * U).toDenseMatrix(), MatrixXd(T) * MatrixXd(U)) <= tolerance);
}

TEST_CASE("rotated lengths and scores are the lengths and scores, also under φ", "[rules]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  const Example e(seed);
  const VectorXd x = MatrixXd(e.R) * e.x, y = MatrixXd(e.R) * e.y;
  const double scale = e.x.norm() * e.y.norm();
  REQUIRE((e.R * e.x).norm() == e.x.norm());
  REQUIRE(std::abs((e.R * e.x).norm() - x.norm()) <= tolerance * x.norm());
  REQUIRE((e.R * e.x).dot(e.R * e.y) == e.x.dot(e.y));
  REQUIRE(std::abs((e.R * e.x).dot(e.R * e.y) - x.dot(y)) <= tolerance * scale);
  REQUIRE(symmetric_power<4>(e.R * e.x).dot(symmetric_power<4>(e.R * e.y)) == integer_power(e.x.dot(e.y), 4));
  REQUIRE((induced<4>(e.R) * symmetric_power<4>(e.x)).norm() == integer_power(e.x.norm(), 4));
  REQUIRE(std::abs((e.R * e.x).dot(e.Q * e.y) - x.dot(MatrixXd(e.Q) * e.y)) <= tolerance * scale);
  REQUIRE(std::abs((e.R * e.x).dot(e.Q * e.y) - e.x.dot(e.y)) > .01 * scale);  // different rotations: not the rule
}
