// Floats on tensor cores: their parts, and products of matrices of them.
#include <cmath>
#include <limits>
#include <random>

#include "mini.hpp"

using namespace sympow::test;

namespace {

double sum(const std::array<bf16, 3>& parts) {
  return double{to_float(parts[0])} + double{to_float(parts[1])} + double{to_float(parts[2])};
}

// Reads 16 rows of 64 both ways.
struct Exchanged {
  struct Args {};
  static constexpr int threads = 32, shared_bytes = 16 * 64 * 4;
  static void run(const Args&) {
    Arena arena;
    const auto s = arena.take<float>(16 * 64);
    for (int n = 0; n < 8; ++n) {
      const Lanes<float> zero[4] = {0.f, 0.f, 0.f, 0.f};
      store(s, lane() * 4 + n * 128, zero);
    }
    warp_barrier();
    Lanes<Pair<float>> r[4];
    const Lanes<int> row = lane() % 16;
    ldmatrix<false>(r, s, row * 64 + ((lane() / 16) ^ (row & 7)) * 8);
    ldmatrix<true>(r, s, row * 64 + ((lane() / 16 + 4) ^ (row & 7)) * 8);
  }
};

}  // namespace

TEST_CASE("three bf16 are a float", "[cuda]") {
  std::mt19937 random(3);
  bool exact = true, small = true, near = true, signs = true;
  for (int n = 0; n < 200000; ++n) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!(std::abs(x) < 0x1.ffp127f)) continue;
    const auto parts = split(x);
    const double size = std::abs(double{x}), off = std::abs(sum(parts) - double{x});
    exact = exact && (size < 0x1p-110 || off == 0);
    near = near && off <= 0x1p-134;
    small = small && std::abs(double{to_float(parts[1])}) <= std::max(0x1p-8 * size, 0x1p-134) &&
            std::abs(double{to_float(parts[2])}) <= std::max(0x1p-17 * size, 0x1p-134);
    const auto opposite = split(-x);
    for (std::size_t i = 0; i < 3; ++i) signs = signs && to_float(opposite[i]) == -to_float(parts[i]);
  }
  REQUIRE(exact);
  REQUIRE(near);
  REQUIRE(small);
  REQUIRE(signs);
  REQUIRE(sum(split(std::nextafter(0x1.ffp127f, 0.f))) == double{std::nextafter(0x1.ffp127f, 0.f)});
  REQUIRE(sum(split(0x1p-110f * (1 + 0x1p-23f))) == 0x1p-110 * (1 + 0x1p-23));
  REQUIRE(!std::isfinite(sum(split(0x1.ffp127f))));
  REQUIRE(!std::isfinite(sum(split(std::numeric_limits<float>::infinity()))));
  REQUIRE(std::isnan(sum(split(std::numeric_limits<float>::quiet_NaN()))));
}

// With s = Σ |a b| the six products leave out (1 + 2^-9) 2^-24 s, three of them (1 + 2^-8) 2^-15 s. By the rule that
// cuts most an mma loses 17/4 + 1 times 2^-23 of the sizes it sums (kernels_test.cpp): the last of six (1 + 2^-6) s,
// those before it 2^-6.9 s each or less. At last the sum with the accumulator is rounded to float.
TEST_CASE("exact products of floats are as exact as floats, fast ones are not", "[cuda]") {
  static double worst[2];  // error over the bound of exact products, of both kinds
  constexpr auto body = [](const MiniArgs&, auto) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (int n = 0; n < 60; ++n) {
      float A[16][16], B[16][8], C[16][8];
      const auto number = [&](int spread) { return std::ldexp(normal(random), static_cast<int>(random()) % spread); };
      for (auto& row : A)
        for (float& x : row) x = number(1 + n % 3 * 10);
      for (auto& row : B)
        for (float& x : row) x = number(1 + n % 3 * 10);
      for (auto& row : C)
        for (float& x : row) x = n % 2 == 0 ? 0.f : number(12);
      Lanes<Pair<float>> a[4], b[2];
      Lanes<float> c[2][4];
      for (int l = 0; l < 32; ++l)
        for (int r = 0; r < 4; ++r) {
          const auto p = a_position(l, r), q = b_position(l, r % 2), s = c_position(l, r);
          a[r].set(l, {A[p.row][p.column], A[p.row][p.column + 1]});
          b[r % 2].set(l, {B[q.row][q.column], B[q.row + 1][q.column]});
          for (auto& sum : c) sum[r].set(l, C[s.row][s.column]);
        }
      mma(c[0], a, b);
      mma<Products::fast>(c[1], a, b);
      for (int l = 0; l < 32; ++l)
        for (int r = 0; r < 4; ++r) {
          const auto p = c_position(l, r);
          double exact = double{C[p.row][p.column]}, size = 0;
          for (int k = 0; k < 16; ++k) {
            const double product = double{A[p.row][k]} * double{B[k][p.column]};
            exact += product, size += std::abs(product);
          }
          constexpr double cuts = (17. / 4 + 1) * 0x1p-23 * (1 + 0x1p-6 + 5 * 0x1p-6 * .54);  // 2^-6.9 = .54 2^-6
          double bound[2];
          for (std::size_t i = 0; i < 2; ++i) {
            const double off = ((i == 0 ? (1 + 0x1p-9) * 0x1p-24 : (1 + 0x1p-8) * 0x1p-15) + cuts) * size;
            bound[i] = off + 0x1p-24 * (std::abs(exact) + off);
            const double error = std::abs(double{c[i][r][l]} - exact);
            REQUIRE(error <= bound[i]);
            worst[i] = std::max(worst[i], error / bound[0]);
          }
        }
    }
  };
  const auto how = GENERATE(host::MmaSum::hopper, host::MmaSum::nearest, host::MmaSum::toward_zero);
  host::Buffer<float> x(64);
  host::Buffer<bf16> y(64);
  REQUIRE(host::launch<Mini<1, body>>({1, 1, 1}, {x, y}, {host::Schedule::forward, 0, how, {}}).clean());
  REQUIRE(worst[1] > 8);
}

// Entry (i, j) of 8 rows of 32 is 32 i + j.
TEST_CASE("matrices of floats are loaded, and what they name is one matrix", "[cuda]") {
  constexpr auto body = [](const MiniArgs&, auto s) {
    Lanes<float> entries[8], again[8];  // 32 bytes a lane
    for (int h = 0; h < 8; ++h) entries[h] = detail::map([&](int l) { return static_cast<float>(8 * l + h); }, lane());
    store(s, lane() * 8, entries);
    load(again, s, lane() * 8);
    for (int h = 0; h < 8; ++h)
      for (int l = 0; l < 32; ++l) REQUIRE(again[h][l] == entries[h][l]);
    warp_barrier();
    Lanes<Pair<float>> plain[4], turned[2], one[1];
    ldmatrix<false>(plain, s, lane() % 8 * 32 + lane() / 8 * 8);
    ldmatrix<true>(turned, s, lane() % 8 * 32 + lane() / 8 % 2 * 8);
    ldmatrix<false>(one, s, lane() % 8 * 32);
    for (int l = 0; l < 32; ++l) {
      const auto p = ldmatrix_position(l, false), q = ldmatrix_position(l, true);
      for (int m = 0; m < 4; ++m) {
        REQUIRE(plain[m][l].lower == static_cast<float>(32 * p.row + 8 * m + p.column));
        REQUIRE(plain[m][l].upper == static_cast<float>(32 * p.row + 8 * m + p.column + 1));
      }
      for (int m = 0; m < 2; ++m) {
        REQUIRE(turned[m][l].lower == static_cast<float>(32 * q.row + 8 * m + q.column));
        REQUIRE(turned[m][l].upper == static_cast<float>(32 * (q.row + 1) + 8 * m + q.column));
      }
      REQUIRE(one[0][l].lower == plain[0][l].lower);
    }
    const auto product = multiply(both_lower(plain[0]), both_upper(plain[1]));
    const auto joined = join(lower(plain[0]), upper(plain[1]));
    for (int l = 0; l < 32; ++l) {
      REQUIRE(product[l].lower == plain[0][l].lower * plain[1][l].upper);
      REQUIRE(product[l].upper == product[l].lower);
      REQUIRE(joined[l].lower == plain[0][l].lower);
      REQUIRE(joined[l].upper == plain[1][l].upper);
    }
  };
  REQUIRE(faults<1, body>() == "");
  constexpr auto beyond = [](const MiniArgs&, auto s) {
    Lanes<Pair<float>> r[1];
    ldmatrix<false>(r, s, lane() % 8 * 32 + 32);
  };
  REQUIRE(always<1, beyond>({"out of bounds: entry 256 of an array of 256 in shared memory"}));
  constexpr auto between = [](const MiniArgs&, auto s) {
    Lanes<Pair<float>> r[1];
    ldmatrix<true>(r, s, lane() % 8 * 16 + 4);
  };
  REQUIRE(always<1, between>({"misaligned: 32 bytes from byte 16 in shared memory"}));
}

TEST_CASE("rows of floats, octets exchanged, meet no bank twice", "[cuda]") {
  const host::Report report = host::launch<Exchanged>({}, {}, {});
  INFO(report.text());
  REQUIRE(report.clean());
  for (const auto& [place, site] : report.sites) REQUIRE(site.shared.transactions == site.shared.ideal);
}
