// Binomial and multinomial coefficients, factorials and the two dimensions built on them.
#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <sympow/combinatorics/binomial.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;

namespace {

constexpr Index largest = std::numeric_limits<Index>::max();

static_assert(symmetric_dimension(64, 4) == 766480 && symmetric_dimension(16, 4) == 3876);
static_assert(tensor_dimension(64, 4) == 16777216);
static_assert(binomial(6, 3) == 20 && multinomial({2, 1}) == 3 && factorial(5) == 120);

/// a + b, nothing if an operand is nothing or the sum does not fit.
std::optional<Index> sum(std::optional<Index> a, std::optional<Index> b) {
  if (!a || !b || *a > largest - *b) return std::nullopt;
  return *a + *b;
}

}  // namespace

TEST_CASE("binomial is Pascal's triangle where it fits, and an overflow elsewhere", "[combinatorics]") {
  std::vector<std::optional<Index>> row = {1};
  int fitting = 0, overflowing = 0;
  for (Index n = 0; n <= 150; ++n) {
    for (Index k = 0; k <= n; ++k) {
      CAPTURE(n, k);
      const std::optional<Index> expected = row[static_cast<std::size_t>(k)];
      if (expected)
        REQUIRE(binomial(n, k) == *expected);
      else
        REQUIRE_THROWS_AS(binomial(n, k), DimensionOverflow);
      ++(expected ? fitting : overflowing);
    }
    row.push_back(0);
    for (std::size_t k = row.size() - 1; k > 0; --k) row[k] = sum(row[k], row[k - 1]);
  }
  REQUIRE(fitting > 67 * 68 / 2);  // every row up to 66 and the edges of the others
  REQUIRE(overflowing > 0);
}

TEST_CASE("binomial is exact up to the last value that an Index holds", "[combinatorics]") {
  const Index two_32 = Index(1) << 32;
  REQUIRE(binomial(66, 33) == 7219428434016265740);
  REQUIRE(binomial(two_32, 2) == two_32 / 2 * (two_32 - 1));  // 2^63 - 2^31
  REQUIRE(binomial(largest, 1) == largest);
  REQUIRE(binomial(largest, largest - 1) == largest);
  REQUIRE(binomial(largest, largest) == 1);
  REQUIRE(binomial(largest, 0) == 1);
  REQUIRE(binomial(5, 6) == 0);
  REQUIRE(binomial(0, largest) == 0);
  REQUIRE_THROWS_AS(binomial(two_32 + 1, 2), DimensionOverflow);
  REQUIRE_THROWS_WITH(binomial(67, 33), contains("C(67, 33) does not fit"));
}

TEST_CASE("binomial refuses negative arguments by name", "[combinatorics]") {
  REQUIRE_THROWS_AS(binomial(-1, 0), InvalidArgument);
  REQUIRE_THROWS_WITH(binomial(-4, 2), contains("n = -4"));
  REQUIRE_THROWS_WITH(binomial(5, -1), contains("k = -1"));
}

TEST_CASE("a factorial is its predecessor times n, up to 20", "[combinatorics]") {
  REQUIRE(factorial(0) == 1);
  for (Index n = 1; n <= 20; ++n) {
    CAPTURE(n);
    REQUIRE(factorial(n) == n * factorial(n - 1));
  }
  REQUIRE_THROWS_AS(factorial(21), DimensionOverflow);
  REQUIRE_THROWS_WITH(factorial(21), contains("21! does not fit"));
  REQUIRE_THROWS_AS(factorial(-1), InvalidArgument);
  REQUIRE_THROWS_WITH(factorial(-1), contains("n = -1"));
}

TEST_CASE("a multinomial coefficient is the ratio of factorials, in any order of the counts", "[combinatorics]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  test::Random random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Index> counts(static_cast<std::size_t>(random.integer(0, 5)));
    Index total = 0, divisor = 1;
    for (Index& count : counts) {
      count = random.integer(0, 4);
      total += count;
      divisor *= factorial(count);
    }
    CAPTURE(counts);
    REQUIRE(multinomial(counts) == factorial(total) / divisor);
    std::ranges::reverse(counts);
    REQUIRE(multinomial(counts) == factorial(total) / divisor);
  }
}

TEST_CASE("multinomial coefficients beyond the index type and negative counts are errors", "[combinatorics]") {
  REQUIRE(multinomial({33, 33}) == binomial(66, 33));
  REQUIRE(multinomial({0, 0}) == 1);
  REQUIRE(multinomial({largest, 0}) == 1);
  REQUIRE_THROWS_AS(multinomial({34, 34}), DimensionOverflow);
  REQUIRE_THROWS_WITH(multinomial({20, 20, 20}), contains("a total of 60"));
  REQUIRE_THROWS_WITH(multinomial({largest, 1}), contains("total of the counts does not fit"));
  REQUIRE_THROWS_AS(multinomial({2, -3}), InvalidArgument);
  REQUIRE_THROWS_WITH(multinomial({2, -3}), contains("count -3"));
}

TEST_CASE("the symmetric dimension counts non-decreasing sequences", "[combinatorics]") {
  // Those that begin with the smallest index continue over the same d, the others live on d - 1 indices.
  for (Index d = 1; d <= 200; ++d)
    for (int p = 2; p <= 6; ++p) {
      CAPTURE(d, p);
      REQUIRE(symmetric_dimension(d, p) == symmetric_dimension(d, p - 1) + symmetric_dimension(d - 1, p));
    }
  for (Index d : {Index(0), Index(1), Index(7), largest}) REQUIRE(symmetric_dimension(d, 1) == d);
  for (int p = 1; p <= 30; ++p) REQUIRE(symmetric_dimension(0, p) == 0);
}

TEST_CASE("the symmetric dimension reports what it cannot count", "[combinatorics]") {
  REQUIRE_THROWS_AS(symmetric_dimension(3, 0), InvalidPower);
  REQUIRE_THROWS_WITH(symmetric_dimension(3, -2), contains("p = -2"));
  REQUIRE_THROWS_AS(symmetric_dimension(-1, 2), InvalidArgument);
  REQUIRE_THROWS_WITH(symmetric_dimension(-1, 2), contains("d = -1"));
  REQUIRE_THROWS_AS(symmetric_dimension(1000, 8), DimensionOverflow);
  REQUIRE_THROWS_AS(symmetric_dimension(largest, 2), DimensionOverflow);
}

TEST_CASE("the tensor dimension is a power, and an overflow beyond the index type", "[combinatorics]") {
  for (Index d = 0; d <= 40; ++d) {
    Index power = 1;
    for (int p = 1; p <= 8; ++p) {
      CAPTURE(d, p);
      power *= d;
      REQUIRE(tensor_dimension(d, p) == power);
    }
  }
  REQUIRE(tensor_dimension(2, 62) == Index(1) << 62);
  REQUIRE_THROWS_WITH(tensor_dimension(2, 63), contains("2^63 does not fit"));
  REQUIRE_THROWS_AS(tensor_dimension(2, 63), DimensionOverflow);
  REQUIRE_THROWS_AS(tensor_dimension(2, 0), InvalidPower);
  REQUIRE_THROWS_WITH(tensor_dimension(2, 0), contains("p = 0"));
  REQUIRE_THROWS_AS(tensor_dimension(-2, 2), InvalidArgument);
  REQUIRE_THROWS_WITH(tensor_dimension(-2, 2), contains("d = -2"));
}
