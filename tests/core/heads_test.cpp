// Views of heads: every entry is where its order says, for unequal lengths, at any size, and nothing else is accepted.
#include <sympow/core/heads.hpp>

#include <numeric>
#include <vector>

#include "catch.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index B = 3, T = 5, H = 4, D = 2;

// Entry n is n, so that an entry says where it stands.
std::vector<double> numbered(Index size) {
  std::vector<double> data(static_cast<std::size_t>(size));
  std::iota(data.begin(), data.end(), 0);
  return data;
}

}  // namespace

TEST_CASE("entry (b, t, h, i) stands where the order says", "[core]") {
  const std::vector<double> data = numbered(B * T * H * D);
  const auto bthd = Heads<const double>::bthd(data.data(), B, T, H, D);
  const auto bhtd = Heads<const double>::bhtd(data.data(), B, H, T, D);
  const std::vector<Index> offsets = {0, 5, 5, 15};
  const auto packed = Heads<const double>::packed(data.data(), B * T, H, D, offsets);
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h) {
      CAPTURE(b, h);
      REQUIRE(bthd.head(b, h).cols() == T);
      REQUIRE(packed.head(b, h).rows() == D);
      for (Index i = 0; i < D; ++i) {
        for (Index t = 0; t < T; ++t) {
          REQUIRE(bthd.head(b, h)(i, t) == static_cast<double>(((b * T + t) * H + h) * D + i));
          REQUIRE(bhtd.head(b, h)(i, t) == static_cast<double>(((b * H + h) * T + t) * D + i));
        }
        const Index begin = offsets[static_cast<std::size_t>(b)];
        for (Index t = 0; t < packed.length(b); ++t)
          REQUIRE(packed.head(b, h)(i, t) == static_cast<double>(((begin + t) * H + h) * D + i));
      }
    }
}

TEST_CASE("entry (b, t, h, i) stands where the strides say, and tokens are apart", "[core]") {
  const std::vector<double> data = numbered(B * T * H * D + 7);
  const Index sequence = 35, token = 7, head = 3;
  const auto heads = Heads<const double>::strided(data.data(), 2, T, 2, D, {sequence, token, head});
  const Heads<const double> copy = heads;
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 2; ++h)
      for (Index t = 0; t < T; ++t)
        for (Index i = 0; i < D; ++i)
          REQUIRE(copy.head(b, h)(i, t) == static_cast<double>(b * sequence + t * token + h * head + i));
  REQUIRE(heads.to_next_head() == head);
  const auto strided = [&](Index tokens, Index stride) {
    return Heads<const double>::strided(data.data(), 1, tokens, 1, D, {0, stride, 0});
  };
  REQUIRE_THROWS_AS(strided(2, D - 1), ShapeMismatch);
  REQUIRE_THROWS_WITH(strided(2, D - 1), contains("the stride of tokens is 1, must be at least 2"));
  REQUIRE_NOTHROW(strided(1, 0));
}

TEST_CASE("lengths leave the rest of a sequence to padding, and a sequence may be empty", "[core]") {
  const std::vector<double> data = numbered(B * T * H * D);
  const std::vector<Index> lengths = {5, 0, 3};
  const auto bthd = Heads<const double>::bthd(data.data(), B, T, H, D, lengths);
  const auto bhtd = Heads<const double>::bhtd(data.data(), B, H, T, D, lengths);
  for (Index b = 0; b < B; ++b) {
    const Index n = lengths[static_cast<std::size_t>(b)];
    REQUIRE(bthd.length(b) == n);
    for (const auto& heads : {bthd, bhtd}) {
      REQUIRE(heads.head(b, 1).cols() == n);
      REQUIRE(heads.padding(b, 1).cols() == T - n);
    }
    if (n < T) {
      REQUIRE(bthd.padding(b, 1)(0, 0) == static_cast<double>(((b * T + n) * H + 1) * D));
      REQUIRE(bhtd.padding(b, 1)(0, 0) == static_cast<double>(((b * H + 1) * T + n) * D));
    }
  }
  const std::vector<Index> offsets = {0, 4, 4};
  const auto packed = Heads<const double>::packed(data.data(), 4, H, D, offsets);
  REQUIRE(packed.sequences() == 2);
  REQUIRE(packed.length(1) == 0);
  REQUIRE(packed.head(1, 0).size() == 0);
  REQUIRE(packed.padding(0, 0).size() == 0);
}

TEST_CASE("writable heads write in place and become read-only ones", "[core]") {
  std::vector<double> data(B * T * H * D);
  const auto heads = Heads<double>::bthd(data.data(), B, T, H, D);
  heads.head(2, 3).setConstant(7);
  REQUIRE(data[((2 * T + 4) * H + 3) * D + 1] == 7);
  REQUIRE(std::accumulate(data.begin(), data.end(), 0.) == 7 * T * D);
  const Heads<const double> same = heads;
  REQUIRE(same.head(2, 3).data() == data.data() + (2 * T * H + 3) * D);
  REQUIRE(same.head(2, 3).outerStride() == H * D);
}

TEST_CASE("lengths and offsets may end before the heads, and copies share what was given", "[core]") {
  std::vector<double> data(B * T * H * D);
  std::vector<Index> given = {5, 0, 3};
  const auto bthd = Heads<double>::bthd(data.data(), B, T, H, D, given);
  const auto packed = Heads<double>::packed(data.data(), B * T, H, D, std::vector<Index>{0, 5, 5, 15});
  given.assign({1, 1, 1});
  for (const auto& heads : {Heads<const double>(bthd), Heads<const double>(packed)}) {
    REQUIRE(heads.length(0) == 5);
    REQUIRE(heads.length(1) == 0);
  }
  REQUIRE(bthd.length(2) == 3);
  REQUIRE(packed.head(2, 1).data() == data.data() + (5 * H + 1) * D);
  REQUIRE(packed.length(2) == 10);
}

TEST_CASE("batches without anything in them are batches", "[core]") {
  REQUIRE(Heads<const float>::bthd(nullptr, 0, 0, 0, 0).sequences() == 0);
  REQUIRE(Heads<const float>::bthd(nullptr, 2, 0, 3, 4).head(1, 2).cols() == 0);
  REQUIRE(Heads<const float>::packed(nullptr, 0, 3, 4, std::vector<Index>{0}).sequences() == 0);
}

TEST_CASE("more than 2^31 elements are addressed as they are", "[core]") {
  // Nobody reads these addresses.
  auto* const base = reinterpret_cast<const float*>(std::uintptr_t{1} << 20);
  const auto distance = [&](const auto& head) {
    return (reinterpret_cast<std::intptr_t>(head.data()) - (std::intptr_t{1} << 20)) / 4;
  };
  constexpr Index many = 100'000, tokens = 65'536, heads = 96, d = 128;
  const auto bthd = Heads<const float>::bthd(base, many, tokens, heads, d);
  REQUIRE(distance(bthd.head(many - 1, 95)) == (many - 1) * tokens * heads * d + 95 * d);
  REQUIRE(bthd.head(0, 0).outerStride() == heads * d);
  const auto bhtd = Heads<const float>::bhtd(base, many, heads, tokens, d);
  REQUIRE(distance(bhtd.head(many - 1, 95)) == ((many - 1) * heads + 95) * tokens * d);
  const std::vector<Index> offsets = {0, 3'000'000'000, 5'000'000'000};
  const auto packed = Heads<const float>::packed(base, 5'000'000'000, 2, 8, offsets);
  REQUIRE(distance(packed.head(1, 1)) == Index{3'000'000'000} * 16 + 8);
  REQUIRE(packed.length(1) == 2'000'000'000);
}

TEST_CASE("sizes whose bytes the index type cannot hold are refused, also where another size is 0", "[core]") {
  constexpr Index large = Index{1} << 31;
  REQUIRE_THROWS_AS(Heads<const float>::bthd(nullptr, large, large, 1, 1), DimensionOverflow);
  REQUIRE_THROWS_AS(Heads<const double>::bhtd(nullptr, 0, large, large, 1), DimensionOverflow);
  REQUIRE_THROWS_WITH(Heads<const float>::packed(nullptr, large, large, 2, std::vector<Index>{0, large}),
                      contains("T = 2147483648, H = 2147483648 and D = 2 make more bytes than fit"));
  REQUIRE_NOTHROW(Heads<const float>::bthd(nullptr, large / 4, large / 4, 1, 1));
}

TEST_CASE("what is no batch is refused, with the argument and its value", "[core]") {
  const auto packed = [](Index tokens, const std::vector<Index>& offsets) {
    return Heads<const float>::packed(nullptr, tokens, 2, 3, offsets).sequences();
  };
  REQUIRE_THROWS_WITH(packed(9, {0, 5, 4, 9}), contains("offset 2 is 4, must not be below offset 1, which is 5"));
  REQUIRE_THROWS_WITH(packed(9, {1, 9}), contains("offset 0 is 1, must be 0"));
  REQUIRE_THROWS_WITH(packed(9, {0, 10}), contains("heads (2 of 3 numbers): the last offset is 10, must be 9 ("));
  REQUIRE_THROWS_WITH(packed(9, {0, 5}), contains("the last offset is 5, must be 9"));  // tokens of nobody
  REQUIRE_THROWS_WITH(packed(9, {}), contains("heads (2 of 3 numbers): there are no offsets"));
  REQUIRE_THROWS_AS(packed(9, {0, -1, 9}), ShapeMismatch);

  const auto padded = [](const std::vector<Index>& lengths) {
    return Heads<const float>::bthd(nullptr, 2, 7, 2, 3, lengths).sequences();
  };
  REQUIRE(padded({7, 0}) == 2);
  REQUIRE_THROWS_WITH(padded({7, 8}), contains("lengths[1] is 8, must lie in 0 … T = 7"));
  REQUIRE_THROWS_WITH(padded({-1, 7}), contains("heads (2 of 3 numbers): lengths[0] is -1"));
  REQUIRE_THROWS_WITH(padded({7, 7, 7}), contains("the number of lengths is 3, must be 2"));
  REQUIRE_THROWS_WITH(Heads<const float>::bhtd(nullptr, 2, -1, 7, 3), contains("heads is -1, must not be negative"));

  const auto heads = Heads<const float>::bthd(nullptr, 2, 7, 2, 3);
  REQUIRE_THROWS_WITH(heads.head(2, 0),
                      contains("heads (2 of 3 numbers): sequence 2, head 0 is not among 2 sequences of 2 heads"));
  REQUIRE_THROWS_AS(heads.head(0, 2), InvalidArgument);
  REQUIRE_THROWS_AS(heads.padding(-1, 0), InvalidArgument);
}
