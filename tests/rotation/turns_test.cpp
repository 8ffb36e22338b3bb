#include <cmath>
#include <numbers>

#include <sympow/rotation/turns.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::VectorXd;
using sympow::test::Random;

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
