// States from arrays and back: each entry is rounded once, and masses and angles are those of the definition.
#include "state_arrays/to_arrays.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "batches.hpp"
#include "catch.hpp"

using namespace sympow::test;

namespace {

constexpr double u = 0x1p-24;
double wide(float x) { return static_cast<double>(x); }

/// Of every monomial in lexicographic order: its coefficient, and 0, or how often it is in the mass.
struct Monomials {
  std::vector<double> coefficient, in_mass;

  Monomials(int P, int d) {
    std::vector<int> channels(index(P));
    for (;;) {
      double run = 1;
      coefficient.push_back(1);
      bool is_square = P % 2 == 0;
      for (std::size_t p = 1; p < channels.size(); ++p) {
        run = channels[p] == channels[p - 1] ? run + 1 : 1;
        coefficient.back() *= static_cast<double>(p + 1) / run;
      }
      for (std::size_t p = 1; p < channels.size(); p += 2) is_square = is_square && channels[p] == channels[p - 1];
      in_mass.push_back(!is_square ? 0 : P == 4 && channels.front() != channels.back() ? 2 : 1);
      std::size_t last = channels.size();
      while (last > 0 && channels[last - 1] == d - 1) --last;
      if (last == 0) return;
      std::fill(channels.begin() + static_cast<std::ptrdiff_t>(last) - 1, channels.end(), channels[last - 1] + 1);
    }
  }
};

/// Two sequences of four heads, of which two share their keys. The first state of each has a mass, in the second it
/// would be below 0, the last one is 0; units are far apart.
struct Problem {
  int power, d, e = 12;
  bool is_gradient = false;
  Heads heads{4, 4, 2};
  int states = 2 * heads.state, D = monomial_count(power, d);
  Monomials monomials{power, d};
  host::Buffer<float> S{index(states * D * e)}, Z{index(states * D)}, sums{S.size()}, normaliser{Z.size()};
  host::Buffer<double> angles{index(states * d / 2)}, turns{angles.size() / 2}, level{index(states)};
  host::Buffer<float> mass{index(states)}, to_S{S.size()}, to_Z{Z.size()};
  host::Buffer<double> to_angles{angles.size()};

  Problem(int of_power, int of_d, bool of_gradient) : power(of_power), d(of_d), is_gradient(of_gradient) {
    std::mt19937 random(8);
    std::normal_distribution<double> normal;
    for (int n = 0; n < states; ++n) {
      const double unit = n + 1 == states ? 0 : std::ldexp(1, 20 * (n - 2));
      for (int i = 0; i < D * e; ++i) S.set(index(n * D * e + i), static_cast<float>(unit * normal(random)));
      for (int m = 0; m < D; ++m)
        Z.set(index(n * D + m), static_cast<float>(unit * (n % 4 == 1 ? -1 : 7) * (1 + m % 3)));
    }
    for (std::size_t i = 0; i < angles.size(); ++i) angles.set(i, 9 * normal(random));
  }
  [[nodiscard]] States state() { return {sums, normaliser, level, mass}; }

  host::Report take(const host::Options& options, bool has_angles, bool has_turns) {
    const Global<double> none = {};
    host::Report report = host::launch<OfArrays>(grid(OfArrays::blocks(2, heads)),
                                                 {{S, Z, has_angles ? Global<double>(angles) : none},
                                                  state(),
                                                  has_turns ? Global<double>(turns) : none,
                                                  heads,
                                                  power,
                                                  d,
                                                  e,
                                                  is_gradient},
                                                 options);
    const auto all = [](std::size_t) { return true; };
    sums.check_stored(report, "S", all), normaliser.check_stored(report, "Z", all);
    level.check_stored(report, "L", all), mass.check_stored(report, "A", all);
    turns.check_stored(report, "turns", [&](std::size_t) { return has_turns; });
    return report;
  }
  host::Report give(const host::Options& options, bool has_angles, bool has_turns) {
    const Global<double> none = {};
    const Global<const double> no_turns = {};
    host::Report report = host::launch<ToArrays>(grid(ToArrays::blocks(2, heads, D, e)),
                                                 {state(),
                                                  has_turns ? Global<const double>(turns) : no_turns,
                                                  {to_S, to_Z, has_angles ? Global<double>(to_angles) : none},
                                                  heads,
                                                  power,
                                                  d,
                                                  e},
                                                 options);
    const auto all = [](std::size_t) { return true; };
    to_S.check_stored(report, "S", all), to_Z.check_stored(report, "Z", all);
    to_angles.check_stored(report, "angles", [&](std::size_t) { return has_angles; });
    return report;
  }
  void check_state() const {
    for (int n = 0; n < states; ++n) {
      double largest = 0, in_mass = 0, sizes = 0;
      for (int i = 0; i < D * e; ++i) largest = std::max(largest, std::abs(wide(S[index(n * D * e + i)])));
      for (int m = 0; m < D; ++m) largest = std::max(largest, std::abs(wide(Z[index(n * D + m)])));
      int exponent = 0;
      std::frexp(largest, &exponent);
      REQUIRE(level[index(n)] == (largest == 0 ? -infinity : exponent));
      for (int m = 0; m < D; ++m) {
        const double factor = std::ldexp(1 / std::sqrt(monomials.coefficient[index(m)]), -exponent);
        const auto is_right = [&](float got, float given) {
          REQUIRE(std::abs(wide(got) - wide(given) * factor) <= (1 + 1e-6) * u * std::abs(wide(given) * factor));
        };
        is_right(normaliser[index(n * D + m)], Z[index(n * D + m)]);
        for (int c = 0; c < e; ++c) is_right(sums[index((n * D + m) * e + c)], S[index((n * D + m) * e + c)]);
        const double part = monomials.in_mass[index(m)] * wide(Z[index(n * D + m)]) * factor;
        in_mass += part, sizes += std::abs(part);
      }
      const double exact = is_gradient ? std::ldexp(largest, -exponent) : std::max(in_mass, 0.);
      REQUIRE(std::abs(wide(mass[index(n)]) - exact) <= (1 + 1e-6) * u * exact + sizes * 0x1p-45);
    }
  }
  void check_arrays() const {
    for (std::size_t i = 0; i < S.size(); ++i)
      REQUIRE(std::abs(wide(to_S[i]) - wide(S[i])) <= (2 + 1e-6) * u * std::abs(wide(S[i])));
    for (std::size_t i = 0; i < Z.size(); ++i)
      REQUIRE(std::abs(wide(to_Z[i]) - wide(Z[i])) <= (2 + 1e-6) * u * std::abs(wide(Z[i])));
  }
};

}  // namespace

TEST_CASE("states of arrays are theirs, and become them again", "[cuda]") {
  for (const auto& [power, d] : {std::pair(1, 70), {2, 40}, {3, 16}, {4, 10}})
    for (const bool is_gradient : {false, true})
      for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse}) {
        CAPTURE(power, d, is_gradient);
        Problem x(power, d, is_gradient);
        const host::Options options{schedule, 0, host::MmaSum::hopper, {}};
        host::Report report = x.take(options, true, true);
        INFO(report.text());
        REQUIRE(report.clean());
        x.check_state();
        for (int n = 0; n + 1 < x.states; ++n)
          x.level.set(index(n), x.level[index(n)] - .75);                        // the unit is that of ⌈L⌉
        x.sums.set(x.sums.size() - 1, std::numeric_limits<float>::quiet_NaN());  // an empty state is not looked at
        report = x.give(options, true, true);
        INFO(report.text());
        REQUIRE(report.clean());
        x.check_arrays();
        const int pairs = d / 2;
        for (int n = 0; n < x.states; ++n)
          for (int j = 0; j < pairs; ++j) {  // those of the first state of the key head
            const double given = x.angles[index(n / 2 * 2 * pairs + j)], got = x.to_angles[index(n * pairs + j)];
            REQUIRE(std::abs(std::remainder(got - given, 2 * std::numbers::pi)) <= 0x1p-50 * (std::abs(given) + 7));
            REQUIRE(std::abs(got) < 3.1416);
          }
      }
}
TEST_CASE("angles of states may be missing", "[cuda]") {
  Problem x(2, 10, false);
  REQUIRE(x.take({}, false, true).clean());
  for (std::size_t i = 0; i < x.turns.size(); ++i) REQUIRE(x.turns[i] == 0);
  REQUIRE(x.give({}, false, true).clean());
  Problem of_arrays(2, 10, false);
  REQUIRE(of_arrays.take({}, true, false).clean());
  REQUIRE(of_arrays.give({}, true, false).clean());
  for (std::size_t i = 0; i < of_arrays.angles.size(); ++i) REQUIRE(of_arrays.to_angles[i] == 0);
}
