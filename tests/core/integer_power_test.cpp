// Powers by repeated squaring: the value, and how many multiplications it takes.
#include <bit>
#include <cmath>
#include <cstdint>

#include <sympow/core/integer_power.hpp>

#include "catch.hpp"
#include "counted.hpp"

using namespace sympow;

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
    REQUIRE(detail::RaiseTo{static_cast<int>(exponent)}(base) == product);
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
