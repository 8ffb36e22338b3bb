// What a turn of all tokens changes, of a gradient in states: as it is defined, and back.
#include "state_arrays/gauges.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "batches.hpp"
#include "catch.hpp"

using namespace sympow::test;

namespace {

using Channels = std::vector<int>;

/// Every monomial of degree P, and its place.
std::map<Channels, int> monomials(int P, int d) {
  std::map<Channels, int> all;
  Channels one(index(P));
  for (int place = 0;; ++place) {
    all[one] = place;
    std::size_t last = one.size();
    while (last > 0 && one[last - 1] == d - 1) --last;
    if (last == 0) return all;
    std::fill(one.begin() + static_cast<std::ptrdiff_t>(last) - 1, one.end(), one[last - 1] + 1);
  }
}
double coefficient(const Channels& one) {
  double result = 1, run = 1;
  for (std::size_t p = 1; p < one.size(); ++p) {
    run = one[p] == one[p - 1] ? run + 1 : 1;
    result *= static_cast<double>(p + 1) / run;
  }
  return result;
}

struct Expected {
  double value = 0, size = 0;
  void add(double term) { value += term, size += std::abs(term); }
};

/// Two sequences of four heads, of which two share their keys; the first state and the last gradient are 0.
struct Problem {
  int P, d, e = 12;
  bool halves;
  Heads heads{4, 4, 2};
  int count = 2 * heads.state, D = monomial_count(P, d), pairs = d / 2;
  host::Buffer<float> S{index(count * D * e)}, Z{index(count * D)}, H{S.size()}, of_Z{Z.size()}, mass{index(count)};
  host::Buffer<double> level{index(count)}, gradient_level{index(count)};
  host::Buffer<double> angles{index(count * pairs)}, gauge{angles.size() / 2};

  Problem(int power, int channels, bool of_halves) : P(power), d(channels), halves(of_halves) {
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    for (auto* all : {&S, &Z, &H, &of_Z})
      for (std::size_t i = 0; i < all->size(); ++i) all->set(i, normal(random));
    const float nan = std::numeric_limits<float>::quiet_NaN();  // in empty ones nothing is looked at
    for (int i = 0; i < D * e; ++i) S.set(index(i), nan), H.set(index((count - 1) * D * e + i), nan);
    for (int i = 0; i < D; ++i) Z.set(index(i), nan), of_Z.set(index((count - 1) * D + i), nan);
    for (int n = 0; n < count; ++n) {
      level.set(index(n), n == 0 ? -infinity : 40. * (n % 4) - .75);
      gradient_level.set(index(n), n == count - 1 ? -infinity : 2.25 - 39. * (n % 4));
    }
    for (std::size_t i = 0; i < angles.size(); ++i) angles.set(i, 10. * static_cast<double>(normal(random)));
    for (std::size_t i = 0; i < gauge.size(); ++i) gauge.set(i, 10. * static_cast<double>(normal(random)));
  }
  host::Report run(bool to_angles, bool has_state, bool has_source, const host::Options& options = {}) {
    const Global<double> none = {};
    host::Report report = host::launch<Gauges>(grid(Gauges::blocks(2, heads, d)),
                                               {has_state ? States{S, Z, level, mass} : States{},
                                                {H, of_Z, gradient_level, mass},
                                                to_angles && !has_source ? none : Global<double>(gauge),
                                                !to_angles && !has_source ? none : Global<double>(angles),
                                                heads,
                                                P,
                                                d,
                                                e,
                                                halves,
                                                to_angles},
                                               options);
    (to_angles ? angles : gauge).check_stored(report, to_angles ? "angles" : "gauge", [](std::size_t) { return true; });
    return report;
  }
  /// Σ_m c_m H_m·(L_u S)_m of a state, in numbers of units of 1, by the places of every monomial.
  [[nodiscard]] Expected turned(int state, int u, const std::map<Channels, int>& places) const {
    Expected result;
    if (level[index(state)] == -infinity || gradient_level[index(state)] == -infinity) return result;
    const double unit = std::exp2(std::ceil(level[index(state)]) + std::ceil(gradient_level[index(state)]));
    const int first = halves ? u : 2 * u, second = halves ? u + pairs : 2 * u + 1;
    for (const auto& [channels, m] : places)
      for (std::size_t p = 0; p < channels.size(); ++p) {
        if (channels[p] != first && channels[p] != second) continue;
        Channels other = channels;
        other[p] = channels[p] == first ? second : first;
        std::sort(other.begin(), other.end());
        const double sign = channels[p] == first ? -unit : unit;
        const int row = state * D + m, turned_row = state * D + places.at(other);
        const auto product = [](float a, float b) { return static_cast<double>(a) * static_cast<double>(b); };
        for (int c = 0; c < e; ++c)
          result.add(sign * coefficient(channels) * product(H[index(row * e + c)], S[index(turned_row * e + c)]));
        result.add(sign * coefficient(channels) * product(of_Z[index(row)], Z[index(turned_row)]));
      }
    return result;
  }
};

constexpr double many_roundings = 0x1p-53 * 1e5;  // no more terms than that

}  // namespace

TEST_CASE("what a turn of all tokens changes is as it is defined", "[cuda]") {
  for (const auto& [P, d] : {std::pair(1, 70), {2, 24}, {3, 8}, {4, 8}})
    for (const bool halves : {false, true}) {
      CAPTURE(P, d, halves);
      const auto places = monomials(P, d);
      Problem x(P, d, halves), back(P, d, halves);
      const host::Report report =
          x.run(false, true, true, {halves ? host::Schedule::reverse : host::Schedule::forward});
      INFO(report.text());
      REQUIRE(report.clean());
      REQUIRE(back.run(true, true, true).clean());
      for (int key = 0; key < 4; ++key)
        for (int u = 0; u < x.pairs; ++u) {
          const int first = 2 * key * x.pairs + u, second = first + x.pairs;
          Expected way, back_way;
          for (const int n : {2 * key, 2 * key + 1}) {
            const Expected turned = x.turned(n, u, places);
            way.value += turned.value, way.size += turned.size;
          }
          back_way = way;
          for (const int at : {first, second}) way.add(x.angles[index(at)]);
          const double got = x.gauge[index(key * x.pairs + u)];
          REQUIRE(std::abs(got - way.value) <= many_roundings * way.size);
          const double given = back.gauge[index(key * x.pairs + u)], angle = back.angles[index(first)];
          REQUIRE(std::abs(angle - (given - back_way.value)) <= many_roundings * (back_way.size + std::abs(given)));
          REQUIRE(back.angles[index(second)] == 0);
        }
    }
}
TEST_CASE("a turn of all tokens is that of angles alone where there is no state", "[cuda]") {
  Problem x(2, 6, false), back(2, 6, false), of_nothing(2, 6, false);
  REQUIRE(x.run(false, false, true).clean());
  REQUIRE(back.run(true, false, true).clean());
  REQUIRE(of_nothing.run(false, false, false).clean());
  for (int key = 0; key < 4; ++key)
    for (int u = 0; u < 3; ++u) {
      const int first = 6 * key + u;
      REQUIRE(x.gauge[index(3 * key + u)] == x.angles[index(first)] + x.angles[index(first + 3)]);
      REQUIRE(back.angles[index(first)] == back.gauge[index(3 * key + u)]);
      REQUIRE(of_nothing.gauge[index(3 * key + u)] == 0);
    }
  REQUIRE(back.run(true, false, false).clean());
  for (std::size_t i = 0; i < back.angles.size(); ++i) REQUIRE(back.angles[i] == 0);
}
TEST_CASE("what is 0 stays 0 where units are beyond all numbers", "[cuda]") {
  Problem x(2, 6, false);
  for (int n = 1; n + 1 < x.count; ++n) x.level.set(index(n), 3000), x.gradient_level.set(index(n), 3000);
  for (auto* all : {&x.H, &x.of_Z})
    for (std::size_t i = 0; i < all->size(); ++i) all->set(i, 0);
  REQUIRE(x.run(false, true, false).clean());
  for (std::size_t i = 0; i < x.gauge.size(); ++i) REQUIRE(x.gauge[i] == 0);
}
