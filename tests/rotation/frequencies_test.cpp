// Both families of rotation rates against their formulas.
#include <cmath>
#include <limits>
#include <numbers>

#include <sympow/rotation/frequencies.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"

using namespace sympow;
using sympow::test::contains, sympow::test::unit, sympow::test::Exact;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// The conditioning of base^e in the rounded exponent e ≤ 1 is log base; a power, a quotient and a conversion besides.
template <class Scalar>
Exact bound(double base) {
  return 4 * unit<Scalar> + static_cast<Exact>(2 * std::abs(std::log(base)) * unit<double>);
}

}  // namespace

TEMPLATE_TEST_CASE("rotary frequencies fall from 2π towards 2π/N as a geometric series", "[rotation]", float, double) {
  const Index d = GENERATE(0, 2, 6, 64, 128);
  const double largest = GENERATE(16., 4096., 65536.);
  CAPTURE(d, largest);
  const Vector<TestType> theta = rotary_frequencies<TestType>(d, largest);
  REQUIRE(theta.size() == d / 2);
  for (Index i = 1; i <= d / 2; ++i) {
    CAPTURE(i);
    const Exact exponent = 2 * static_cast<Exact>(i - 1) / static_cast<Exact>(d);
    const Exact expected = 2 * std::numbers::pi_v<Exact> / std::pow(static_cast<Exact>(largest), exponent);
    REQUIRE(std::abs(theta[i - 1] - expected) <= bound<TestType>(largest) * expected);
    REQUIRE(theta[i - 1] > 2 * std::numbers::pi / largest);
  }
}

TEMPLATE_TEST_CASE("RoPE's frequencies fall from 1 towards 1/base", "[rotation]", float, double) {
  const Index d = GENERATE(0, 2, 6, 64, 128);
  const double base = GENERATE(100., 10000., 500000.);
  CAPTURE(d, base);
  const Vector<TestType> theta = rope_frequencies<TestType>(d, base);
  REQUIRE(theta.size() == d / 2);
  for (Index i = 1; i <= d / 2; ++i) {
    CAPTURE(i);
    const Exact expected = std::pow(static_cast<Exact>(base), -2 * static_cast<Exact>(i - 1) / static_cast<Exact>(d));
    REQUIRE(std::abs(theta[i - 1] - expected) <= bound<TestType>(base) * expected);
  }
}

TEST_CASE("the known values of the first frequencies", "[rotation]") {
  REQUIRE(rotary_frequencies<double>(4, 4)[0] == 2 * std::numbers::pi);
  REQUIRE(rotary_frequencies<double>(4, 4)[1] == std::numbers::pi);
  REQUIRE(rope_frequencies<double>(4)[0] == 1);
  REQUIRE(std::abs(rope_frequencies<double>(4)[1] - .01) <= 4 * unit<double>);  // the base is 10000 unless told
}

TEST_CASE("odd dimensions and bases that are not positive are refused by name", "[rotation]") {
  REQUIRE_THROWS_AS(rotary_frequencies<double>(7, 4096), OddDimension);
  REQUIRE_THROWS_WITH(rotary_frequencies<double>(7, 4096), contains("d = 7 must be even"));
  REQUIRE_THROWS_AS(rope_frequencies<float>(-2), OddDimension);
  REQUIRE_THROWS_AS(rope_frequencies<float>(3), OddDimension);
  REQUIRE_THROWS_AS(rotary_frequencies<double>(8, 0), InvalidArgument);
  REQUIRE_THROWS_WITH(rotary_frequencies<double>(8, -1), contains("N = -1"));
  REQUIRE_THROWS_AS(rotary_frequencies<double>(8, not_a_number), InvalidArgument);
  REQUIRE_THROWS_WITH(rope_frequencies<double>(8, -10), contains("base = -10"));
  REQUIRE_THROWS_AS(rope_frequencies<double>(8, not_a_number), InvalidArgument);
}
