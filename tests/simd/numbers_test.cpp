// Powers by repeated squaring and of two, exponentials, and factors of two parts.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <sympow/simd/blocks.hpp>
#include <sympow/simd/exponential.hpp>
#include <sympow/simd/integer_power.hpp>
#include <sympow/simd/power_of_two.hpp>
#include <sympow/simd/scaled.hpp>
#include <sympow/simd/two_part_factor.hpp>

#include "catch.hpp"
#include "counted.hpp"
#include "random.hpp"

using namespace sympow;
using namespace sympow::test;

// ---- whole powers ----

namespace {

static_assert(integer_power(3, 4) == 81 && integer_power(2.5, 0) == 1);

}  // namespace

TEST_CASE("a whole power is the repeated product", "[core]") {
  const std::int64_t base = GENERATE(-3, -1, 0, 1, 2, 7);
  CAPTURE(base);
  std::int64_t product = 1;
  for (Index exponent = 0; exponent <= 22; ++exponent, product *= exponent <= 22 ? base : 1) {  // 7^22 < 2^63
    CAPTURE(exponent);
    REQUIRE(integer_power(base, exponent) == product);
    if (exponent > 0) REQUIRE(detail::RaiseTo{static_cast<int>(exponent)}(base) == product);
  }
}

TEST_CASE("exponents far apart in size are exact on powers of two", "[core]") {
  REQUIRE(integer_power(2., 1000) == std::ldexp(1., 1000));
  REQUIRE(integer_power(-1., (Index(1) << 62) + 1) == -1);
  REQUIRE(integer_power(.5f, 100) == std::ldexp(1.f, -100));
}

TEST_CASE("a whole power costs a squaring for every bit and a product for every further one", "[core]") {
  for (Index exponent = 1; exponent <= 300; ++exponent) {
    CAPTURE(exponent);
    const auto bits = static_cast<std::uint64_t>(exponent);
    const Index squarings = static_cast<Index>(std::bit_width(bits)) - 1, products = std::popcount(bits) - 1;
    const auto done = test::operations_of([&] { static_cast<void>(integer_power(test::Counted(1.5), exponent)); });
    REQUIRE(done == test::Operations{.multiplications = squarings + products});
    REQUIRE(done.multiplications <= 2 * squarings);  // squarings = log2, rounded down
  }
  REQUIRE(test::operations_of([] { static_cast<void>(integer_power(test::Counted(1.5), 0)); }) == test::Operations{});
}

// ---- powers of two and exponentials ----

namespace {

template <class Scalar>
void powers_and_exponents_are_those_of_the_standard_library() {
  using Limits = std::numeric_limits<Scalar>;
  for (int n = Limits::min_exponent; n < Limits::max_exponent; ++n) {
    const Scalar power = std::ldexp(Scalar(1), n);
    REQUIRE(detail::normal_power_of_two<Scalar>(n) == power);
    REQUIRE(detail::nearest_power_of_two<Scalar>(n) == (n > Limits::min_exponent ? power : 0));
    for (const Scalar x : {power, power * Scalar(1.5), std::nextafter(2 * power, Scalar(0))}) {
      int exponent = 0;
      std::frexp(x, &exponent);
      REQUIRE(detail::exponent_above(x) == exponent);
    }
  }
  CHECK(detail::nearest_power_of_two<Scalar>(-Limits::infinity()) == 0);
  CHECK(detail::nearest_power_of_two<Scalar>(1e9) == std::ldexp(Scalar(1), Limits::max_exponent - 1));
}

// Beyond the type's ends too, where a factor of its own would have been 0 or infinite, and where there is no number.
template <class Scalar>
void products_with_powers_are_rounded_once() {
  using Limits = std::numeric_limits<Scalar>;
  constexpr double infinity = std::numeric_limits<double>::infinity(), none = std::numeric_limits<double>::quiet_NaN();
  const int range = 2 * Limits::max_exponent + Limits::digits;
  for (const Scalar x : {Scalar(1.5), Limits::max(), Limits::min(), Limits::denorm_min(), Scalar(-0.75), Scalar(0)}) {
    for (int n = -range; n <= range; ++n) REQUIRE(detail::times_power_of_two(x, n) == std::ldexp(x, n));
    CHECK(detail::times_power_of_two(x, -infinity) == 0);
    CHECK(std::isnan(detail::times_power_of_two(x, none)));
  }
  CHECK(detail::times_power_of_two(Scalar(-1), infinity) == -Limits::infinity());
}

}  // namespace

TEST_CASE("powers of two by their bits", "[core]") {
  powers_and_exponents_are_those_of_the_standard_library<float>();
  powers_and_exponents_are_those_of_the_standard_library<double>();
  products_with_powers_are_rounded_once<float>();
  products_with_powers_are_rounded_once<double>();
}

TEST_CASE("exponentials end in an exact zero", "[core]") {
  const double infinity = std::numeric_limits<double>::infinity();
  Eigen::ArrayXd x(19);
  x << 0, -1e-20, -1, -700, -707.9, -708.1, -709, -720, -745, -746, -1e4, -1e300, -infinity, 0, -2, -infinity, -5, -800,
      3;
  Eigen::ArrayXd y(19);
  detail::set_exponential(y, x);
  for (Index i = 0; i < x.size(); ++i) CHECK(std::abs(y[i] - (x[i] < -708 ? 0 : std::exp(x[i]))) <= 4e-16 * y[i]);
  detail::set_exponential(x, x);
  CHECK((x == y).all());
}

TEST_CASE("blocks cover a vector once", "[core]") {
  for (const Index size : {0, 1, 15, 16, 17, 100}) {
    Vector<float> x = Vector<float>::Zero(size);
    detail::for_blocks(size, [&](Index first, auto count) { x.segment(first, count).array() += 1; });
    CHECK(x == Vector<float>::Ones(size));
    const Vector<float> y = Random(5).vector(size).cast<float>();
    CHECK(std::abs(detail::squared_norm(y.data(), y.size()) - y.squaredNorm()) <= 1e-5F * y.squaredNorm());
  }
}

// ---- factors of two parts ----

TEMPLATE_TEST_CASE("a number times a factor of two parts has the same bits wherever it lies", "[core]", float, double) {
  Random random(1);
  const detail::TwoPartFactor<TestType> factor(.912345678912345678);
  for (Index n = 0; n < 64; ++n) {
    const Vector<TestType> x = random.matrix<TestType>(n, 1);
    Vector<TestType> product = x;
    factor.multiply(product.data(), n);
    for (Index i = 0; i < n; ++i) {
      TestType alone = x[i];
      factor.multiply(&alone, 1);
      CAPTURE(n, i);
      REQUIRE(product[i] == alone);
    }
  }
}

TEST_CASE("a factor of two parts has the digits of a double", "[core]") {
  Random random(2);
  for (const double exact : {.9999, .3, 1 - 0x1p-30}) {
    const detail::TwoPartFactor<float> factor(exact);
    Vector<float> x = random.matrix<float>(50, 1);
    const Vector<float> before = x;
    factor.multiply(x.data(), 50);
    for (Index i = 0; i < 50; ++i) {
      const double wanted = exact * static_cast<double>(before[i]), u = 0x1p-24 * std::abs(wanted);
      CHECK(std::abs(static_cast<double>(x[i]) - wanted) <=
            2.01 * u);  // two roundings, one of them fused on some processors
    }
  }
}

TEST_CASE("a factor of 0 leaves 0 of whatever there is", "[core]") {
  std::vector<float> x(21, std::numeric_limits<float>::quiet_NaN());
  detail::TwoPartFactor<float>(0).multiply(x.data(), 20);
  for (int i = 0; i < 20; ++i) CHECK(x[static_cast<std::size_t>(i)] == 0);
  CHECK(std::isnan(x.back()));
}
