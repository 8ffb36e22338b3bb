// Numbers, fragments and sums of the host's tensor core.
#include <cmath>
#include <limits>
#include <random>

#include "mini.hpp"

using namespace sympow::test;

namespace {

// Whether y is one of the 16-bit numbers nearest to x, and the even one of two.
template <class T>
bool is_nearest(float x, T y) {
  const double distance = std::abs(double{to_float(y)} - x);
  for (const int step : {-1, 1}) {
    const T other{static_cast<std::uint16_t>(y.bits + step)};
    if (!std::isfinite(to_float(other)) || (y.bits ^ other.bits) > 0x7fff) continue;
    const double its = std::abs(double{to_float(other)} - x);
    if (its < distance || (its == distance && y.bits % 2 != 0)) return false;
  }
  return true;
}

// 16 products p and an accumulator, summed.
template <class T = bf16>
float sum(const std::vector<std::pair<float, float>>& factors, float c, host::MmaSum how) {
  host::Decoded a[16], b[16];
  for (std::size_t k = 0; k < factors.size(); ++k) {
    a[k] = host::decode(round_to<T>(factors[k].first));
    b[k] = host::decode(round_to<T>(factors[k].second));
  }
  return host::mma_sum(a, b, 1, c, how);
}

}  // namespace

TEMPLATE_TEST_CASE("16-bit numbers are read exactly and rounded to nearest", "[cuda]", bf16, fp16) {
  bool same = true, nearest = true;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const TestType x{static_cast<std::uint16_t>(bits)};
    same = same && (std::isnan(to_float(x)) || round_to<TestType>(to_float(x)).bits == bits);
    if (!std::isfinite(to_float(x))) continue;
    const TestType next{static_cast<std::uint16_t>(bits + 1)};
    if (!std::isfinite(to_float(next)) || bits == 0x7fff) continue;
    const float middle = to_float(x) / 2 + to_float(next) / 2;
    for (const float y :
         {middle, std::nextafter(middle, 0.f), std::nextafter(middle, std::numeric_limits<float>::infinity())})
      nearest = nearest && is_nearest(y, round_to<TestType>(y));
  }
  REQUIRE(same);
  REQUIRE(nearest);
  REQUIRE(to_float(round_to<TestType>(1.5f)) == 1.5f);
  REQUIRE(to_float(TestType{1}) == (std::is_same_v<TestType, bf16> ? 0x1p-133f : 0x1p-24f));
  REQUIRE(round_to<TestType>(std::numeric_limits<float>::quiet_NaN()).bits == 0x7fff);
  REQUIRE(std::isinf(to_float(round_to<TestType>(std::numeric_limits<float>::max()))));
}

TEST_CASE("a tensor core cuts its terms 25 bits below the largest", "[cuda]") {
  using enum host::MmaSum;
  const std::vector<std::pair<float, float>> lost(16, {0x1p-13f, 0x1p-13f}), kept(16, {0x1p-12f, 0x1p-13f});
  REQUIRE(sum(lost, 1, hopper) == 1);
  REQUIRE(sum(lost, 1, nearest) == 1 + 0x1p-22f);
  REQUIRE(sum(lost, 1, toward_zero) == 1 + 0x1p-22f);
  REQUIRE(sum(kept, 1, hopper) == 1 + 0x1p-21f);
  REQUIRE(sum(lost, -1, hopper) == -1);
  REQUIRE(sum({{1, 1}, {-0x1p-13f, 0x1p-13f}}, 0, hopper) == 1);             // cut, not borrowed from
  REQUIRE(sum({{1, 1}, {-0x1p-12f, 0x1p-13f}}, 0, hopper) == 1 - 0x1p-24f);  // 1 - 2^-25, cut
  REQUIRE(sum({{1, 1}, {-0x1p-12f, 0x1p-13f}}, 0, nearest) == 1);
  REQUIRE(sum({{1, 1}, {-1, 1}}, 0x1p-26f, hopper) == 0);  // cancels to what was cut before
  REQUIRE(sum({{1, 1}, {-1, 1}}, 0x1p-26f, nearest) == 0x1p-26f);
  REQUIRE(sum({{1.5f, 1.5f}}, 0x1p-25f, hopper) == 2.25f);
  REQUIRE(sum({}, 3, hopper) == 3);
  REQUIRE(sum({}, 0x1p-149f, hopper) == 0x1p-149f);
  REQUIRE(sum<fp16>({{0x1p-24f, 0x1p-24f}}, 0, hopper) == 0x1p-48f);  // subnormal factors
  REQUIRE(sum({{0x1p-70f, 0x1.8p-79f}}, 0, hopper) == 0x1p-149f);     // 1.5 2^-149
  REQUIRE(std::isinf(sum({{0x1p100f, 0x1p100f}}, 0, hopper)));
  REQUIRE(std::isnan(sum({{std::numeric_limits<float>::infinity(), 0}}, 0, hopper)));
}

TEMPLATE_TEST_CASE("sums of a tensor core lose no more than their cuts", "[cuda]", bf16, fp16) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int n = 0; n < 2000; ++n) {
    std::vector<std::pair<float, float>> factors(16);
    const float c = std::ldexp(normal(random), n % 21 - 10);
    double exact = c, largest = std::abs(c);
    for (auto& [a, b] : factors) {
      a = to_float(round_to<TestType>(std::ldexp(normal(random), n % 7)));
      b = to_float(round_to<TestType>(normal(random)));
      exact += double{a} * double{b};
      largest = std::max(largest, std::abs(double{a} * double{b}));
    }
    CAPTURE(n, exact);
    const double off = std::abs(double{sum<TestType>(factors, c, host::MmaSum::hopper)} - exact);
    REQUIRE(off <= 17 * 0x1p-25 * largest + 0x1p-23 * (std::abs(exact) + 0x1p-20 * largest));
  }
}

TEST_CASE("what ldmatrix reads, mma multiplies and fragments name is one matrix", "[cuda]") {
  // A: 16 × 16 in shared memory, row-major, entry (i, j) = 16 i + j in bf16 exactly; B the first columns of it.
  constexpr auto product = [](const MiniArgs&, auto s) {
    const auto a = s.template as<bf16>();
    for (int n = 0; n < 4; ++n) {
      const Lanes<int> pairs = lane() + n * 32;
      Lanes<bf16> entries[2];
      for (int h = 0; h < 2; ++h)
        entries[h] = detail::map([&](int i) { return round_to<bf16>(static_cast<float>(2 * i + h)); }, pairs);
      store(a, pairs * 2, entries);
    }
    warp_barrier();
    Lanes<Pair<bf16>> A[4], B[2], single[1];
    ldmatrix<false>(A, a, lane() % 16 * 16 + lane() / 16 * 8);
    ldmatrix<true>(B, a, lane() % 16 * 16);
    Lanes<float> c[4] = {0.f, 0.f, 0.f, 0.f};
    mma(c, A, B);
    ldmatrix<false>(single, a, lane() % 8 * 16);
    for (int l = 0; l < 32; ++l)
      for (int r = 0; r < 4; ++r) {
        const auto p = c_position(l, r), q = a_position(l, r);
        REQUIRE(to_float(half(A[r][l], 1)) == static_cast<float>(16 * q.row + q.column + 1));
        double exact = 0;
        for (int k = 0; k < 16; ++k) exact += (16 * p.row + k) * (16 * k + p.column);
        REQUIRE(double{c[r][l]} == exact);
      }
    for (int l = 0; l < 32; ++l) REQUIRE(single[0][l].bits == A[0][l].bits);
  };
  REQUIRE(faults<1, product>() == "");
}

TEST_CASE("pairs are packed, multiplied and unpacked half by half; shuffles take from a lane", "[cuda]") {
  constexpr auto body = [](const MiniArgs&, auto) {
    const Lanes<float> x = detail::map([](int l) { return static_cast<float>(l) + 0.1f; }, lane());
    const auto p = pack<fp16>(x, x * 2.f), square = multiply(p, p);
    const Lanes<float> low = lower(square), high = upper(square), moved = shuffle(x, lane() + 1);
    for (int l = 0; l < 32; ++l) {
      const float a = to_float(round_to<fp16>(x[l])), b = to_float(round_to<fp16>(2 * x[l]));
      REQUIRE(low[l] == to_float(round_to<fp16>(a * a)));
      REQUIRE(high[l] == to_float(round_to<fp16>(b * b)));
      REQUIRE(moved[l] == x[(l + 1) % 32]);
    }
  };
  REQUIRE(faults<1, body>() == "");
}
