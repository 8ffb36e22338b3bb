// Rational numbers as a scalar of Eigen, and what is made of them: nothing rounds.
#include <sympow/core/rational.hpp>
#include <sympow/exact/forms.hpp>
#include <sympow/tensor/symmetric_basis.hpp>

#include <concepts>
#include <sstream>

#include "catch.hpp"

using namespace sympow;

static_assert(ExactScalar<Rational> && ExactScalar<const Rational&> && !ExactScalar<double> && !ExactScalar<float>);
static_assert(std::convertible_to<int, Rational> && std::convertible_to<Index, Rational>);
static_assert(!std::constructible_from<Rational, double> && !std::constructible_from<Rational, float>);
static_assert(!std::convertible_to<Rational, double>);

TEST_CASE("rational numbers are a field", "[exact]") {
  const Rational half(1, 2), third(-2, -6), zero;
  REQUIRE((half + third).text() == "5/6");
  REQUIRE((half - third).text() == "1/6");
  REQUIRE((half * third).text() == "1/6");
  REQUIRE((half / third).text() == "3/2");
  REQUIRE((-half).text() == "-1/2");
  REQUIRE(abs(-half) == half);
  REQUIRE((third < half && half > third && third <= third && half >= third));
  REQUIRE((zero.sign() == 0 && half.sign() == 1 && (-half).sign() == -1));
  REQUIRE(half.to_double() == .5);
  REQUIRE_THROWS_AS(half / zero, InvalidArgument);
  Rational sum = half;
  sum += third, sum -= 1, sum *= 6, sum /= 2;
  std::ostringstream out;
  out << sum;
  REQUIRE(out.str() == "-1/2");

  Rational tiny(1);
  for (int n = 0; n < 2000; ++n) tiny /= 2;  // below every double
  REQUIRE((Rational(1) + tiny) - Rational(1) == tiny);
}

TEST_CASE("what is no number or no square matrix is refused", "[exact]") {
  STATIC_REQUIRE(!std::is_constructible_v<Rational, double, int>);
  STATIC_REQUIRE(!std::is_constructible_v<Rational, int, float>);
  REQUIRE(Rational(std::numeric_limits<unsigned long>::max()) > Rational(std::numeric_limits<long>::max()));
  const Matrix<Rational> square = Matrix<Rational>::Identity(2, 2), wide = Matrix<Rational>::Ones(2, 3);
  REQUIRE_THROWS_AS(exact::power(square, -1), InvalidArgument);
  REQUIRE_THROWS_AS(exact::inverse(wide), ShapeMismatch);
  REQUIRE_THROWS_AS(exact::determinant(wide), ShapeMismatch);
}

TEST_CASE("Eigen computes with rational numbers", "[exact]") {
  Matrix<Rational> hilbert(6, 6);
  for (Index i = 0; i < 6; ++i)
    for (Index j = 0; j < 6; ++j) hilbert(i, j) = Rational(1, i + j + 1);
  const Matrix<Rational> inverse = exact::inverse(hilbert), one = Matrix<Rational>::Identity(6, 6);
  REQUIRE(hilbert * inverse == one);
  REQUIRE(inverse(5, 5) == Rational(698544));
  REQUIRE(Rational(1) / exact::determinant(hilbert) == Rational(186313420339200000));
  REQUIRE(exact::rank(hilbert) == 6);
  Matrix<Rational> singular = hilbert;
  singular.row(3) = singular.row(1) * Rational(2) - singular.row(0);
  REQUIRE(exact::rank(singular) == 5);
  REQUIRE(exact::determinant(singular) == Rational(0));
  REQUIRE_THROWS_AS(exact::inverse(singular), InvalidArgument);
  const Vector<Rational> x = hilbert.col(0);
  REQUIRE(x.dot(x) == x.squaredNorm());
  REQUIRE((x.transpose() * hilbert * x)(0, 0) == x.dot(hilbert * x));
}

TEST_CASE("rotations with rational entries are orthogonal", "[exact]") {
  Vector<Rational> t(2);
  t << Rational(1, 2), Rational(-3, 7);
  const Matrix<Rational> R = exact::rotation(t), one = Matrix<Rational>::Identity(4, 4);
  REQUIRE((R(0, 0).text() == "3/5" && R(1, 0).text() == "4/5" && R(0, 1).text() == "-4/5"));
  REQUIRE(R.transpose() * R == one);
  REQUIRE(exact::determinant(R) == Rational(1));
  Matrix<Rational> S = Matrix<Rational>::Zero(4, 4);
  for (Index i = 0; i < 4; ++i)
    for (Index j = 0; j < i; ++j) S(i, j) = Rational(i + 1, j + 2), S(j, i) = -S(i, j);
  const Matrix<Rational> P = exact::cayley(S);
  REQUIRE(P.transpose() * P == one);
  REQUIRE(P != one);
  REQUIRE(exact::power(R, 3) == R * R * R);
  REQUIRE(exact::power(R, 0) == one);
}

TEST_CASE("monomials, weights and lifts by hand", "[exact]") {
  Vector<Rational> x(2);
  x << 3, 5;
  REQUIRE(exact::monomials(x, 3) == (Vector<Rational>(4) << 27, 45, 75, 125).finished());
  REQUIRE(exact::weights<Rational>(2, 3) == (Vector<Rational>(4) << 1, 3, 3, 1).finished());
  Matrix<Rational> A(2, 2), expected(3, 3);
  A << 1, 2, 0, 1;  // (x + 2 y)², (x + 2 y) y, y²
  expected << 1, 4, 4, 0, 1, 2, 0, 0, 1;
  REQUIRE(exact::lift(A, 2) == expected);
}

TEST_CASE("the exact forms by hand", "[exact]") {
  // One coordinate, three tokens, p = 2: scores (q k)² b.
  exact::Tokens<Rational> x{Matrix<Rational>::Ones(1, 3), Matrix<Rational>::Ones(1, 3), Matrix<Rational>::Ones(1, 3)};
  x.K << 1, 2, 1;
  x.V << 1, 3, -1;
  const exact::Gates<Rational> gates{{Rational(7), Rational(1, 2), Rational(1, 3)}, {}};
  const Matrix<Rational> Y = exact::definition(exact::Power{2}, gates, x);
  REQUIRE(Y(0, 0) == Rational(1));
  REQUIRE(Y(0, 1) == Rational(1 + 24, 1 + 8));              // (1/2 · 1 + 4 · 3)/(1/2 + 4)
  REQUIRE(Y(0, 2) == Rational(1 + 24 * 1 - 6, 1 + 8 + 6));  // (1/6 + 4/3 · 3 - 1)/(1/6 + 4/3 + 1)
  exact::State<Rational> state;
  REQUIRE(exact::recurrent(exact::Power{2}, gates, x, state) == Y);
  REQUIRE(exact::chunked(exact::Power{2}, gates, x, 2) == Y);
  REQUIRE(exact::chunked(exact::Power{2}, gates, x, 5) == Y);
  REQUIRE(state.S.row(1)(0) == Rational(5, 2));
  x.Q.setZero();
  REQUIRE_THROWS_AS(exact::definition(exact::Power{2}, gates, x), InvalidArgument);
  REQUIRE(exact::definition(exact::Power{2}, gates, x, true) == Matrix<Rational>::Zero(1, 3));
}
