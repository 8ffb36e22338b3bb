// One multi-index: its value semantics, counts, orbit and stabiliser.
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>

#include "catch.hpp"

using namespace sympow;
using sympow::test::contains;

namespace {

static_assert(std::constructible_from<std::span<const Index>, const MultiIndex<3>&>);
static_assert(MultiIndex<3>({0, 1, 1}) < MultiIndex<3>({0, 1, 2}));
static_assert(multiplicity(MultiIndex<4>({0, 0, 1, 2})) == 12);
static_assert(stabilizer_order(MultiIndex<4>({0, 0, 0, 2})) == 6);

/// The entries at the positions.
template <int P>
MultiIndex<P> composed(const MultiIndex<P>& alpha, const MultiIndex<P>& positions) {
  MultiIndex<P> result(alpha.size());
  for (int l = 0; l < alpha.size(); ++l) result[l] = alpha[static_cast<int>(positions[l])];
  return result;
}

}  // namespace

TEST_CASE("orbit and stabiliser are what permuting positions gives", "[combinatorics]") {
  const Index d = 4;
  const int p = GENERATE(1, 2, 3, 4, 5, 6);
  for (const auto& alpha : MultiIndices(d, p)) {
    CAPTURE(std::vector<Index>(alpha.begin(), alpha.end()));
    MultiIndex sigma(p);
    std::iota(sigma.begin(), sigma.end(), Index(0));
    std::set<MultiIndex<>> arrangements, fixing;
    do {
      const MultiIndex arrangement = composed(alpha, sigma);
      arrangements.insert(arrangement);
      if (arrangement == alpha) fixing.insert(sigma);
    } while (std::ranges::next_permutation(sigma).found);

    REQUIRE(std::ranges::equal(orbit(alpha), arrangements));  // the set is in lexicographic order, too
    REQUIRE(std::ranges::equal(stabilizer(alpha), fixing));
    REQUIRE(multiplicity(alpha) == std::ssize(arrangements));
    REQUIRE(stabilizer_order(alpha) == std::ssize(fixing));
    REQUIRE(multiplicity(alpha) * stabilizer_order(alpha) == factorial(p));
    const std::vector<Index> count = counts(alpha, d);
    REQUIRE(multiplicity(alpha) == multinomial(count));
    for (Index i = 0; i < d; ++i) REQUIRE(count[static_cast<std::size_t>(i)] == std::ranges::count(alpha, i));
  }
}

TEST_CASE("the order of the entries does not matter to orbit, stabiliser and counts", "[combinatorics]") {
  const MultiIndex<5> sorted({0, 1, 1, 3, 3}), mixed({3, 1, 0, 3, 1});
  REQUIRE(orbit(mixed) == orbit(sorted));
  REQUIRE(stabilizer_order(mixed) == 4);
  REQUIRE(multiplicity(mixed) == 30);
  REQUIRE(counts(mixed, 4) == std::vector<Index>{1, 2, 0, 2});
  for (const auto& sigma : stabilizer(mixed)) REQUIRE(composed(mixed, sigma) == mixed);
  REQUIRE(stabilizer(mixed).size() == 4);
}

TEST_CASE("multi-indices compare lexicographically", "[combinatorics]") {
  REQUIRE(MultiIndex({0, 2}) < MultiIndex({1, 0}));
  REQUIRE(MultiIndex({0, 2}) < MultiIndex({0, 2, 0}));
  REQUIRE(MultiIndex({0, 2}) == MultiIndex({0, 2}));
  REQUIRE(MultiIndex({0, 2}) != MultiIndex({0, 2, 0}));
  REQUIRE(MultiIndex<2>() == MultiIndex<2>({0, 0}));
  REQUIRE(MultiIndex(3) == MultiIndex({0, 0, 0}));
  MultiIndex<2> alpha;
  alpha[1] = 7;
  REQUIRE(alpha == MultiIndex<2>({0, 7}));
  REQUIRE(alpha.size() == 2);
}

TEST_CASE("a multi-index of a wrong number of entries is refused", "[combinatorics]") {
  REQUIRE_NOTHROW(MultiIndex(8));
  REQUIRE_THROWS_AS(MultiIndex(0), InvalidPower);
  REQUIRE_THROWS_AS(MultiIndex(9), InvalidPower);
  REQUIRE_THROWS_WITH(MultiIndex(9), contains("9 entries, must be 1 to 8"));
  REQUIRE_THROWS_WITH(MultiIndex<3>({0, 1}), contains("2 entries, must be 3"));
  REQUIRE_THROWS_AS(MultiIndex({0, 1, 2, 3, 4, 5, 6, 7, 8}), InvalidPower);
}

TEST_CASE("counts refuses entries outside of the dimension", "[combinatorics]") {
  REQUIRE_THROWS_AS(counts(MultiIndex({0, 3}), 3), InvalidMultiIndex);
  REQUIRE_THROWS_WITH(counts(MultiIndex({0, 3}), 3), contains("entry 3 must lie in 0 … 2"));
  REQUIRE_THROWS_WITH(counts(MultiIndex({-1, 2}), 3), contains("entry -1"));
}
