#include <cfenv>
#include <numbers>

#include <sympow/simd/exponential.hpp>
#include <sympow/simd/packed_exponential.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;

namespace {

// 2^x of one number, as the rest of an exponent.
template <class Scalar>
Scalar exp2_of(Scalar x) {
  Scalar y = 0;
  const Scalar none = 0;
  const Scalar sum = detail::PackedExponential<Scalar>::set(&y, &none, &x, 1, 0, 0);
  REQUIRE((sum == y || (std::isnan(sum) && std::isnan(y))));
  return y;
}

template <class Scalar>
void exponentials_are_good_over_the_range() {
  using Limits = std::numeric_limits<Scalar>;
  constexpr long double u = static_cast<long double>(Limits::epsilon()) / 2;
  long double worst = 0;
  const auto least = static_cast<Scalar>(Limits::min_exponent), step = Scalar(1) / 4099;
  for (Scalar x = least; x < 2; x += step) {
    const long double exact = std::exp2(static_cast<long double>(x));
    worst = std::max(worst, std::abs(static_cast<long double>(exp2_of(x)) - exact) / exact);
  }
  CAPTURE(static_cast<double>(worst / u));
  // At f = -1/2, in units of u and of 2^f: .71 for the last sum, .35 for its product where that is not fused, .53 for
  // the polynomial's sums, .09 for its coefficients.
  CHECK(worst <= 1.7L * u);
  CHECK(exp2_of(Scalar(0)) == 1);
  CHECK(exp2_of(Scalar(-37)) == std::ldexp(Scalar(1), -37));
  for (const Scalar below : {least - 2, Scalar(2) * least, Limits::lowest(), -Limits::infinity()})
    CHECK(exp2_of(below) == 0);
  for (Scalar x = least - 2; x < least + 1; x += step) {
    const Scalar y = exp2_of(x);
    CHECK((y == 0 || y >= Limits::min()));
  }
  CHECK(std::isnan(exp2_of(Limits::quiet_NaN())));
  CHECK_FALSE(std::isfinite(exp2_of(Limits::infinity())));
}

// Scores of n keys against the definition in long double, in memory that ends with them.
template <class Scalar>
void rows_of_every_length_are_those_of_the_definition(Index n) {
  using Row = detail::PackedExponential<Scalar>;
  Random random(static_cast<unsigned>(n) + 3);
  const Vector<Scalar> x = 20 * random.vector(n).template cast<Scalar>();
  Vector<Scalar> whole(n), rest = (random.vector(n) / 8).template cast<Scalar>();
  for (Index j = 0; j < n; ++j) whole[j] = -1000 + static_cast<Scalar>(j % 7);  // gates that all keys have in common
  const Scalar top = Row::largest(x.data(), whole.data(), n), shift = std::ceil(top) + 1, in_common = Scalar(.25);
  long double sum = 0, largest = -std::numeric_limits<long double>::infinity();
  Vector<Scalar> y = x;
  const Scalar returned = Row::set(y.data(), whole.data(), rest.data(), n, shift, in_common);
  constexpr long double log2e = 1.44269504088896340736L, u = std::numeric_limits<Scalar>::epsilon() / 2;
  for (Index j = 0; j < n; ++j) {
    const long double logit = log2e * static_cast<long double>(x[j]);
    const long double exact =
        std::exp2(logit + static_cast<long double>(whole[j] - shift) + static_cast<long double>(rest[j] + in_common));
    largest = std::max(largest, logit + static_cast<long double>(whole[j]));
    const long double distance = std::abs(logit) + std::abs(std::log2(exact)) + 4;  // what is rounded on the way
    CAPTURE(n, j);
    constexpr long double least = 2 * static_cast<long double>(std::numeric_limits<Scalar>::min());
    if (y[j] == 0)
      CHECK(exact < least);
    else
      CHECK(std::abs(static_cast<long double>(y[j]) - exact) <= 2 * u * distance * exact);
    CHECK(y[j] <= 1);
    sum += static_cast<long double>(y[j]);
  }
  CAPTURE(n);
  CHECK(std::abs(static_cast<long double>(returned) - sum) <= 20 * u * sum);
  if (n > 0) CHECK(std::abs(static_cast<long double>(top) - largest) <= 1000 * 2 * u);
}

}  // namespace

TEST_CASE("exponentials by packets are good over the range and end in an exact zero", "[core]") {
  exponentials_are_good_over_the_range<float>();
  exponentials_are_good_over_the_range<double>();
}

TEST_CASE("rows of exponentials of every length, behind gates of any size", "[core]") {
  for (const Index n : {0, 1, 2, 3, 4, 7, 15, 16, 17, 31, 33, 47, 48, 49, 95, 96, 200, 240}) {
    rows_of_every_length_are_those_of_the_definition<float>(n);
    rows_of_every_length_are_those_of_the_definition<double>(n);
  }
}

TEST_CASE("a key that is no number shows, and does not hide the largest of the others", "[core]") {
  using Row = detail::PackedExponential<float>;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (Index n = 2; n < 70; ++n)
    for (Index bad = 0; bad < n; ++bad) {
      Vector<float> x = Vector<float>::LinSpaced(n, -3, 0), none = Vector<float>::Zero(n);
      x[bad] = nan;
      CHECK(Row::largest(x.data(), none.data(), n) == (bad == n - 1 ? x[n - 2] * 1.44269504F : 0));
      CHECK(std::isnan(Row::set(x.data(), none.data(), none.data(), n, 1, 0)));
      for (Index j = 0; j < n; ++j) CHECK(std::isnan(x[j]) == (j == bad));
      x.setZero();
      x[bad] = -infinity;
      CHECK(Row::largest(x.data(), none.data(), n) == 0);
      CHECK(Row::set(x.data(), none.data(), none.data(), n, 0, 0) == static_cast<float>(n - 1));
      CHECK(x[bad] == 0);
    }
}

TEST_CASE("a large exponent is a whole power of two and a rest, however the thread rounds", "[core]") {
  Random random(7);
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO})
    for (int draw = 0; draw < 2000; ++draw) {
      const double whole = std::round(std::exp2(20 + 20 * random.uniform())), sign = draw % 2 == 0 ? 1 : -1;
      // near the middle between two whole numbers, where rounding says which of them it is
      const double x = sign * std::numbers::ln2 * (whole + .5);
      std::fesetround(mode);
      const sympow::detail::ReducedExponent reduced = sympow::detail::reduced_exponent(x);
      std::fesetround(FE_TONEAREST);
      const long double again = reduced.whole * std::numbers::ln2_v<long double> + reduced.rest;
      CAPTURE(mode, x, reduced.whole, reduced.rest);
      REQUIRE(std::abs(static_cast<double>(again - x)) <= 0x1p-62 * std::abs(x));
      REQUIRE(std::abs(reduced.rest) <= std::numbers::ln2);
    }
}
