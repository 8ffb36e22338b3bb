// Both families of rotation rates against their formulas; cosines and sines of many angles at once.
#include <cmath>
#include <limits>
#include <numbers>

#include <sympow/rotation/frequencies.hpp>
#include <sympow/rotation/turns.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::VectorXd;
using sympow::test::contains, sympow::test::unit, sympow::test::Exact;
using sympow::test::Random;

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

// ---- cosines and sines ----

namespace {

constexpr double u = 0x1p-53, pi = std::numbers::pi;

// The largest error of a cosine or sine, in units of u.
using SomeAngles = Eigen::Array<double, detail::angle_block, 1>;
double worst_error(const SomeAngles& angles) {
  SomeAngles cosines, sines;
  detail::set_cosines_and_sines(angles.data(), cosines.data(), sines.data());
  double worst = 0;
  for (Index i = 0; i < angles.size(); ++i) {
    const auto exact = static_cast<long double>(angles[i]);
    worst = std::max({worst, static_cast<double>(std::abs(cosines[i] - std::cos(exact))),
                      static_cast<double>(std::abs(sines[i] - std::sin(exact)))});
  }
  return worst / u;
}

}  // namespace

TEST_CASE("cosines and sines of many angles at once are good to a rounding or two", "[rotation]") {
  Random random(1);
  SomeAngles special = SomeAngles::Zero();
  special << 0, pi, -pi, pi / 2, -pi / 2, pi / 4, -pi / 4, 3 * pi / 4, -3 * pi / 4, 1e-300, -1e-8, 1, 2, 3, -3, -2;
  CHECK(worst_error(special) <= 2);
  for (int draw = 0; draw < 2000; ++draw)
    REQUIRE(worst_error(SomeAngles::NullaryExpr([&] { return random.uniform(-pi, pi); })) <= 2);
}

TEST_CASE("angles go on by steps of any size and stay reduced", "[rotation]") {
  Random random(2);
  const auto pairing = GENERATE(Pairing::interleaved, Pairing::half_split);
  const auto first = [=](Index j) { return pairing == Pairing::interleaved ? 2 * j : j; };
  const auto second = [=](Index j) { return pairing == Pairing::interleaved ? 2 * j + 1 : j + 21; };
  for (const double size : {1e-3, 1., 30., 900., 5e3, 1e7}) {
    CAPTURE(size);
    const VectorXd start = random.vector(21), steps = size * random.vector(21);
    VectorXd mu = start.unaryExpr(&reduced_angle), query = random.vector(42), key = random.vector(42);
    const VectorXd before = mu, q = query, k = key;
    detail::advance_and_rotate(Eigen::Map<VectorXd>(mu.data(), mu.size()), steps.data(), 1, pairing, query.data(),
                               key.data());
    for (Index j = 0; j < mu.size(); ++j) {
      const double expected = reduced_angle(before[j] + steps[j]), c = std::cos(expected), s = std::sin(expected);
      CHECK(std::abs(mu[j]) <= pi * (1 + 4 * u));
      CHECK(std::abs(reduced_angle(mu[j] - expected)) <= 8 * u);
      CHECK(std::abs(query[first(j)] - (c * q[first(j)] - s * q[second(j)])) <= 16 * u * q.norm());
      CHECK(std::abs(key[second(j)] - (s * k[first(j)] + c * k[second(j)])) <= 16 * u * k.norm());
    }
  }
}

TEST_CASE("frequencies of longer contexts", "[rotation]") {
  // Qwen2.5 with YaRN: head of 128, base 10^6, 4 times 32,768 tokens; dimensions by 2 ln, worked out by hand.
  const auto yarn = yarn_frequencies<double>(128, 1e6, 4, 32768);
  const auto rope = rope_frequencies<double>(128, 1e6);
  const double low = std::floor(128 * std::log(32768 / (2 * std::numbers::pi * 32)) / (2 * std::log(1e6))),
               high = std::ceil(128 * std::log(32768 / (2 * std::numbers::pi)) / (2 * std::log(1e6)));
  CHECK(low == 23);
  CHECK(high == 40);
  for (Index i = 0; i < 64; ++i) {
    CAPTURE(i);
    const double stays = i <= 23 ? 1 : i >= 40 ? 0 : (40. - static_cast<double>(i)) / 17;
    CHECK(std::abs(yarn[i] / (rope[i] * (stays + (1 - stays) / 4)) - 1) < 1e-14);
  }
  CHECK(std::abs(yarn_scale(4) - 1.2964) < 1e-4);  // 1.1386²
  CHECK(yarn_scale(1) == 1);
  const auto ntk = ntk_frequencies<double>(64, 1e4, 8);
  CHECK(ntk[0] == 1);
  CHECK(std::abs(ntk[31] * 8 / rope_frequencies<double>(64)[31] - 1) < 1e-13);
  REQUIRE_THROWS_AS(ntk_frequencies<double>(2, 1e4, 8), InvalidArgument);
  REQUIRE_THROWS_AS(yarn_frequencies<double>(64, 1e4, 0, 4096), InvalidArgument);
}
