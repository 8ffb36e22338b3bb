// The range of all non-decreasing multi-indices: order, rank and unrank, iterators.
#include <algorithm>
#include <array>
#include <limits>
#include <ranges>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;

namespace {

static_assert(std::ranges::random_access_range<MultiIndices<>> &&
              std::ranges::random_access_range<const MultiIndices<3>>);
static_assert(std::ranges::sized_range<MultiIndices<>> && std::ranges::common_range<MultiIndices<4>>);
static_assert(!std::ranges::borrowed_range<MultiIndices<>>);  // its iterators refer to it
static_assert(std::same_as<std::ranges::range_value_t<MultiIndices<4>>, MultiIndex<4>>);
static_assert(std::same_as<decltype(MultiIndices(3, 2)), MultiIndices<Dynamic>>);
static_assert(MultiIndices<3>(4).rank(MultiIndices<3>(4)[11]) == 11);

/// Every non-decreasing sequence among all d^p sequences, in the order of counting in base d.
std::vector<MultiIndex<>> enumerated(Index d, int p) {
  std::vector<MultiIndex<>> found;
  for (Index n = 0; n < tensor_dimension(d, p); ++n) {
    MultiIndex alpha(p);
    Index rest = n;
    for (int level = p - 1; level >= 0; --level, rest /= d) alpha[level] = rest % d;
    if (std::ranges::is_sorted(alpha)) found.push_back(alpha);
  }
  return found;
}

template <int P>
void check_fixed_power(Index d) {
  const MultiIndices<P> fixed(d);
  const MultiIndices free(d, P);
  REQUIRE(fixed.size() == free.size());
  REQUIRE(fixed.power() == P);
  REQUIRE(std::ranges::equal(fixed, free, [](const auto& a, const auto& b) { return std::ranges::equal(a, b); }));
  for (Index n = 0; n < fixed.size(); ++n) REQUIRE(fixed.rank(fixed[n]) == n);
}

}  // namespace

TEST_CASE("the range is the brute-force enumeration, by iteration, by unrank and by rank", "[combinatorics]") {
  const Index d = GENERATE(0, 1, 2, 3, 4, 5);
  const int p = GENERATE(1, 2, 3, 4, 5, 6, 7, 8);
  CAPTURE(d, p);
  const MultiIndices indices(d, p);
  const auto expected = enumerated(d, p);
  REQUIRE(indices.dimension() == d);
  REQUIRE(indices.power() == p);
  REQUIRE(indices.size() == std::ssize(expected));
  REQUIRE(std::ranges::equal(indices, expected));
  for (Index n = 0; n < indices.size(); ++n) {
    REQUIRE(indices[n] == expected[static_cast<std::size_t>(n)]);
    REQUIRE(indices.rank(expected[static_cast<std::size_t>(n)]) == n);
  }
}

TEST_CASE("the multiplicities sum to the length of the tensor power", "[combinatorics]") {
  const Index d = GENERATE(1, 2, 5, 8);
  const int p = GENERATE(1, 2, 3, 4, 5, 6);
  CAPTURE(d, p);
  Index total = 0;
  for (const auto& alpha : MultiIndices(d, p)) total += multiplicity(alpha);
  REQUIRE(total == tensor_dimension(d, p));
}

TEST_CASE("rank undoes unrank at random positions of large ranges", "[combinatorics]") {
  const auto seed = GENERATE(1u, 2u);
  const auto [d, p] =
      GENERATE(std::pair<Index, int>(128, 8), std::pair<Index, int>(2000, 5), std::pair<Index, int>(16, 8),
               std::pair<Index, int>(3000000000, 2), std::pair<Index, int>(1000000, 3));
  CAPTURE(seed, d, p);
  test::Random random(seed);
  const MultiIndices indices(d, p);
  std::vector<Index> positions = {0, 1, d - 1, d, indices.size() - d, indices.size() - 2, indices.size() - 1};
  for (int trial = 0; trial < 200; ++trial) positions.push_back(random.integer(0, indices.size() - 1));
  for (const Index n : positions) {
    CAPTURE(n);
    const auto alpha = indices[n];
    REQUIRE(std::ranges::is_sorted(alpha));
    REQUIRE(indices.rank(alpha) == n);
    if (n + 1 < indices.size()) {
      REQUIRE(alpha < indices[n + 1]);
      REQUIRE(*++(indices.begin() + n) == indices[n + 1]);
    }
  }
}

TEST_CASE("the largest range that fits the index type ranks and unranks to its end", "[combinatorics]") {
  const int p = GENERATE(4, 6, 8);
  Index d = 1;
  for (Index step = Index(1) << 20; step > 0; step /= 2) try {
      static_cast<void>(symmetric_dimension(d + step, p));
      d += step;
    } catch (const DimensionOverflow&) {
    }
  CAPTURE(p, d);
  REQUIRE_THROWS_AS(MultiIndices(d + 1, p), DimensionOverflow);
  const MultiIndices indices(d, p);
  for (Index n : {Index(0), indices.size() / 3, indices.size() - 1}) REQUIRE(indices.rank(indices[n]) == n);
  REQUIRE(indices[indices.size() - 1][0] == d - 1);
}

TEST_CASE("a power fixed at compile time gives the same range", "[combinatorics]") {
  const Index d = GENERATE(0, 1, 2, 5);
  CAPTURE(d);
  check_fixed_power<1>(d);
  check_fixed_power<2>(d);
  check_fixed_power<3>(d);
  check_fixed_power<5>(d);
  check_fixed_power<8>(d);
}

TEST_CASE("iterators walk and jump consistently", "[combinatorics]") {
  const MultiIndices indices(4, 3);
  const auto begin = indices.begin(), end = indices.end();
  REQUIRE(end - begin == indices.size());
  REQUIRE(begin - end == -indices.size());
  for (Index n = 0; n < indices.size(); ++n) {
    CAPTURE(n);
    auto it = begin + n;
    REQUIRE(*it == indices[n]);
    REQUIRE(begin[n] == indices[n]);
    REQUIRE(end[n - indices.size()] == indices[n]);
    REQUIRE(it == n + begin);
    REQUIRE(it == end - (indices.size() - n));
    REQUIRE(*(end - (indices.size() - n)) == indices[n]);
    REQUIRE(begin <= it);
    REQUIRE(it < end);
    REQUIRE((n == 0) == (it == begin));
    REQUIRE(*it++ == indices[n]);
    REQUIRE(it - begin == n + 1);
    REQUIRE(it-- - begin == n + 1);
    REQUIRE(*it == indices[n]);
    it += 1;
    it -= 1;
    REQUIRE(*it == indices[n]);
    REQUIRE(*--++it == indices[n]);
  }
  auto walked = begin;
  for (Index n = 0; n < indices.size(); ++n) ++walked;
  REQUIRE(walked == end);
  REQUIRE(*--walked == MultiIndex({3, 3, 3}));
  REQUIRE(MultiIndices<3>::iterator() == MultiIndices<3>::iterator());
}

TEST_CASE("the standard algorithms find a multi-index where rank says it is", "[combinatorics]") {
  const MultiIndices<4> indices(6);
  for (const auto& alpha : {MultiIndex<4>({0, 0, 0, 0}), MultiIndex<4>({1, 2, 2, 5}), MultiIndex<4>({5, 5, 5, 5})})
    REQUIRE(std::ranges::lower_bound(indices, alpha) - indices.begin() == indices.rank(alpha));
}

TEST_CASE("a range of an impossible power or dimension is refused", "[combinatorics]") {
  REQUIRE_THROWS_AS(MultiIndices(3, 0), InvalidPower);
  REQUIRE_THROWS_WITH(MultiIndices(3, 9), contains("9 entries, must be 1 to 8"));
  REQUIRE_THROWS_WITH(MultiIndices<2>(3, 3), contains("3 entries, must be 2"));
  REQUIRE_THROWS_WITH(MultiIndices(-1, 2), contains("d = -1"));
  REQUIRE_THROWS_AS(MultiIndices(1000, 8), DimensionOverflow);
  REQUIRE_THROWS_AS(MultiIndices(std::numeric_limits<Index>::max(), 2), DimensionOverflow);
}

TEST_CASE("a position outside of the range is refused", "[combinatorics]") {
  const MultiIndices indices(3, 2);
  REQUIRE_THROWS_AS(indices[6], InvalidArgument);
  REQUIRE_THROWS_WITH(indices[6], contains("position 6 must lie in 0 … 5"));
  REQUIRE_THROWS_WITH(indices[-1], contains("position -1"));
  REQUIRE_THROWS_AS(MultiIndices(0, 2)[0], InvalidArgument);
}

TEST_CASE("rank refuses what is not one of the multi-indices", "[combinatorics]") {
  const MultiIndices indices(3, 2);
  REQUIRE(indices.rank({1, 2}) == 4);
  REQUIRE_THROWS_AS(indices.rank({0, 1, 2}), InvalidMultiIndex);
  REQUIRE_THROWS_WITH(indices.rank({0, 1, 2}), contains("3 entries, must have 2"));
  REQUIRE_THROWS_WITH(indices.rank({0}), contains("1 entries"));
  REQUIRE_THROWS_AS(indices.rank({2, 1}), InvalidMultiIndex);
  REQUIRE_THROWS_WITH(indices.rank({2, 1}), contains("entry 1 is 1, must lie in 2 … 2"));
  REQUIRE_THROWS_WITH(indices.rank({0, 3}), contains("entry 1 is 3"));
  REQUIRE_THROWS_WITH(indices.rank({-1, 0}), contains("entry 0 is -1"));
}
