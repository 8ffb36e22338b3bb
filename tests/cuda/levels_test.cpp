// Levels of states between chunks: right for any totals and levels, behind resets and behind NaN.
#include "levels/levels.hpp"

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "batches.hpp"
#include "catch.hpp"

using namespace sympow::test;

namespace {

/// The chunks of a batch, 64 tokens each, and initial states.
struct Problem {
  Batch batch;
  int heads;
  bool started;
  ChunkBuffers chunks;
  host::Buffer<double> initial_level, final_level;
  host::Buffer<float> initial_mass, final_mass;

  Problem(std::vector<int> lengths, bool packed, int of_heads, bool with_initial)
      : batch(std::move(lengths), packed, 64),
        heads(of_heads),
        started(with_initial),
        chunks(heads * batch.slots),
        initial_level(states()),
        final_level(states()),
        initial_mass(states()),
        final_mass(states()) {}
  [[nodiscard]] std::size_t states() const { return index(batch.size() * heads); }
  [[nodiscard]] std::size_t slot(int b, int n, int h) const { return index(h * batch.slots + batch.slot(b) + n); }

  /// Totals and ends about `total(n)` and `end(n)`, with some noise; -∞ and NaN stay.
  void fill(const std::function<double(int)>& total, const std::function<double(int)>& end, double level) {
    std::mt19937 random(6);
    std::uniform_real_distribution<double> noise(.9, 1.1);
    for (int h = 0; h < heads; ++h)
      for (int b = 0; b < batch.size(); ++b) {
        for (int n = 0; n < batch.chunks(b); ++n) {
          chunks.total.set(slot(b, n, h), total(n) * noise(random));
          const double level_of_sums = end(n) * noise(random);
          chunks.end.set(slot(b, n, h), level_of_sums);
          chunks.own_mass.set(slot(b, n, h), level_of_sums == -infinity ? 0 : static_cast<float>(60 * noise(random)));
        }
        initial_level.set(index(b * heads + h), level * noise(random));
        initial_mass.set(index(b * heads + h), level == -infinity ? 0 : static_cast<float>(1e5 * noise(random)));
      }
  }

  host::Report run(const host::Options& options = {}, bool finals = true) {
    Levels::Args args{batch.sequences(), {2 * heads, heads, 1}, chunks.arrays(), {}, {}};
    if (started) args.initial.level = initial_level, args.initial.mass = initial_mass;
    if (finals) args.final.level = final_level, args.final.mass = final_mass;
    host::Report report = host::launch<Levels>(grid(Levels::blocks(args.sequences, args.heads)), args, options);
    const std::vector<bool> used = batch.used(heads);
    const auto of_chunk = [&](std::size_t i) { return bool{used[i]}; };
    chunks.enter.check_stored(report, "enter", of_chunk);
    chunks.mass.check_stored(report, "mass", of_chunk);
    chunks.keep.check_stored(report, "keep", of_chunk);
    chunks.add.check_stored(report, "add", of_chunk);
    chunks.shift.check_stored(report, "shift", of_chunk);
    final_level.check_stored(report, "final level", [&](std::size_t) { return finals; });
    final_mass.check_stored(report, "final mass", [&](std::size_t) { return finals; });
    return report;
  }
  [[nodiscard]] std::string results() const {
    return bits(chunks.enter, chunks.mass, chunks.keep, chunks.add, chunks.shift, final_level, final_mass);
  }

  /// The first number that is out of its bound, in words.
  [[nodiscard]] std::string wrong() const {
    for (int h = 0; h < heads; ++h)
      for (int b = 0; b < batch.size(); ++b)
        if (const std::string what = wrong_in(b, h); !what.empty())
          return what + " of head " + std::to_string(h) + ", sequence " + std::to_string(b);
    return "";
  }

 private:
  /// Each L against that before it, rounded once: max and sum are those of double. Each A against that before it too:
  /// two products and a sum.
  [[nodiscard]] std::string wrong_in(int b, int h) const {
    const std::size_t state = index(b * heads + h);
    double level = started ? initial_level[state] : -infinity, mass = started ? double{initial_mass[state]} : 0;
    for (int n = 0; n < batch.chunks(b); ++n) {
      const std::size_t at = slot(b, n, h);
      const auto say = [&](const char* what) { return what + (" of chunk " + std::to_string(n)); };
      if (chunks.enter[at] != level) return say("enter");
      if (double{chunks.mass[at]} != mass) return say("mass");
      int exponent;
      const bool power = std::frexp(std::max(mass, 1.), &exponent) == .5;
      if (chunks.shift[at] != exponent - power + 3) return say("shift");

      const double total = chunks.total[at], end = chunks.end[at];
      const double after = std::max(total == -infinity ? -infinity : level + total, end);
      // Two roundings of the exponent in double, its fraction to float, exp2 by 2 units in the last place; below 2^-126
      // multiples of 2^-149.
      const auto off = [&](float factor, bool none, double from, double decay) {
        if (none) return factor != 0;
        const double exact = std::exp2(std::ceil(from) - std::ceil(after) + decay);
        const double sizes = std::abs(std::ceil(from) - std::ceil(after)) + std::abs(decay);
        const double bound = (5 * u_float + 2 * u_double * sizes) * exact + (exact < 0x1p-125 ? 0x1p-146 : 0);
        return !(std::abs(double{factor} - exact) <= bound) || factor > 2;
      };
      if (off(chunks.keep[at], level == -infinity || total == -infinity, level, total)) return say("keep");
      if (off(chunks.add[at], end == -infinity, end, 0)) return say("add");
      const double exact = double{chunks.keep[at]} * mass + double{chunks.add[at]} * double{chunks.own_mass[at]};
      const bool last = n + 1 == batch.chunks(b);
      const double mass_after = double{last ? final_mass[state] : chunks.mass[slot(b, n + 1, h)]};
      if (!(std::abs(mass_after - exact) <= 2 * u_float * exact + 0x1p-148)) return say("mass after");
      level = after;
      mass = mass_after;
    }
    if (final_level[state] != level) return "final level";
    if (double{final_mass[state]} != mass) return "final mass";
    return "";
  }
};

/// Three schedules: no fault, right, the same bits.
void check(const std::function<void(Problem&)>& fill, const std::vector<int>& lengths, bool packed, int heads,
           bool started) {
  std::string first;
  for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
    Problem problem(lengths, packed, heads, started);
    fill(problem);
    const host::Report report = problem.run({schedule, 3, host::MmaSum::hopper, {}});
    INFO(report.text());
    REQUIRE(report.clean());
    REQUIRE(problem.wrong() == "");
    if (first.empty()) first = problem.results();
    REQUIRE(problem.results() == first);
  }
}

}  // namespace

TEST_CASE("levels are right whatever the decay", "[cuda]") {
  const bool packed = GENERATE(false, true), started = GENERATE(false, true);
  const double decay = GENERATE(0., -1e-9, -.3, -40., -1500., -1e30), size = GENERATE(0., 3., 200., -500.);
  CAPTURE(packed, started, decay, size);
  const auto fill = [&](Problem& problem) {
    problem.fill([&](int n) { return n % 13 == 7  ? -infinity
                                     : n % 3 == 0 ? decay
                                                  : -.2; },
                 [&](int n) { return n % 5 == 1 || n == 7 ? -infinity : size + n % 4; }, size + 30);
  };
  check(fill, {64 * 33 + 1, 0, 1, 64 * 32, 64, 65, 64 * 71}, packed, 3, started);
}

TEST_CASE("a level of nothing stays nothing", "[cuda]") {
  Problem problem({640}, false, 1, true);
  problem.fill([](int) { return -1; }, [](int n) { return n < 4 ? -infinity : n == 4 ? 7 : -infinity; }, -infinity);
  REQUIRE(problem.run().clean());
  REQUIRE(problem.wrong() == "");
  for (std::size_t n = 0; n < 10; ++n) {
    REQUIRE((problem.chunks.enter[n] == -infinity) == (n < 5));
    REQUIRE((problem.chunks.mass[n] > 0) == (n >= 5));
    REQUIRE((problem.chunks.keep[n] > 0) == (n >= 5));
    REQUIRE((problem.chunks.add[n] > 0) == (n == 4));
  }
}

TEST_CASE("a prefix is divided by its mass, and by no more than a float can hold", "[cuda]") {
  const auto [mass, shift] = GENERATE(table<float, int>({{0.f, 3},
                                                         {1.f, 3},
                                                         {1 + 0x1p-23f, 4},
                                                         {2.f, 4},
                                                         {3.f, 5},
                                                         {0x1p119f, 122},
                                                         {0x1p127f, 123},
                                                         {std::nanf(""), 3},
                                                         {std::numeric_limits<float>::infinity(), 123}}));
  Problem problem({64}, false, 1, true);
  problem.fill([](int) { return -1; }, [](int) { return 0; }, 0);
  problem.initial_mass.set(0, mass);
  REQUIRE(problem.run().clean());
  REQUIRE(problem.chunks.shift[0] == shift);
}

TEST_CASE("a decay at the border of a unit keeps the mass", "[cuda]") {
  // L and its unit ⌈L⌉ go down at different times; what is kept is 2^-1 for sixty steps, or nearly nothing.
  Problem problem({64 * 60}, false, 1, true);
  const double step = GENERATE(-1., -1 + 0x1p-40, -1 - 0x1p-40, -0x1p-40);
  problem.fill([](int) { return 0; }, [](int) { return -infinity; }, 0);
  for (std::size_t n = 0; n < 60; ++n) problem.chunks.total.set(n, step);
  REQUIRE(problem.run().clean());
  REQUIRE(problem.wrong() == "");
  const double mass = double{problem.final_mass[0]} * std::exp2(std::ceil(problem.final_level[0])),
               exact = double{problem.initial_mass[0]} * std::exp2(60 * step);
  REQUIRE(std::abs(mass - exact) <= 60 * (6 * u_float + 8 * u_double) * exact);
}

TEST_CASE("what is not a number stays in the levels up to a reset", "[cuda]") {
  const int at = GENERATE(0, 5, 31, 32, 40), which = GENERATE(0, 1, 2);
  CAPTURE(at, which);
  const auto fill = [](Problem& problem) {
    problem.fill([](int n) { return n == 45 ? -infinity : -1; }, [](int n) { return n % 2; }, 3);
  };
  Problem problem({64 * 50}, false, 1, true), without({64 * 50}, false, 1, true);
  fill(problem);
  fill(without);
  const auto n = index(at);
  if (which == 0) problem.chunks.end.set(n, not_a_number), problem.chunks.own_mass.set(n, std::nanf(""));
  if (which == 1) problem.chunks.total.set(n, not_a_number);
  if (which == 2) problem.initial_level.set(0, not_a_number), problem.initial_mass.set(0, std::nanf(""));
  REQUIRE(problem.run().clean());
  REQUIRE(without.run().clean());
  for (std::size_t i = 0; i < 50; ++i) {
    CAPTURE(i);
    const bool inside = i <= 45 && (which == 2 || i > n), after = inside || (i == n && which != 2 && i != 45);
    REQUIRE(std::isnan(problem.chunks.enter[i]) == inside);
    REQUIRE(std::isnan(problem.chunks.mass[i]) == inside);
    REQUIRE(std::isnan(problem.chunks.keep[i]) == (after && i != 45));
    if (i > 45) REQUIRE(problem.chunks.enter[i] == without.chunks.enter[i]);
    if (i > 45) REQUIRE(problem.chunks.mass[i] == without.chunks.mass[i]);
  }
  REQUIRE(problem.chunks.keep[45] == 0);
  REQUIRE(problem.final_level[0] == without.final_level[0]);
  REQUIRE(problem.final_mass[0] == without.final_mass[0]);
}

TEST_CASE("levels without any one of their predicates or indices are found out", "[cuda]") {
  host::Report clean;
  const auto run = [&](const host::Mutation& mutation) {
    Problem problem({64 * 33, 100}, false, 2, true);
    problem.fill([](int) { return -.1; }, [](int) { return 1; }, 2);
    const host::Report report = problem.run({host::Schedule::forward, 0, host::MmaSum::hopper, mutation});
    if (mutation.change == host::Change::none) clean = report;
    return report.clean() && problem.wrong().empty() ? problem.results() : "";
  };
  run({});
  REQUIRE(host::mutations(clean).size() == 33);
  REQUIRE(survivors(clean, run) == "");
  INFO(clean.text());
  // The 32 chunks of one sequence and head begin inside of a sector: one more for each of the 5 arrays of 4 bytes.
  REQUIRE(clean.global().transactions == clean.global().ideal + 5);

  Problem problem({300}, false, 1, true);
  problem.fill([](int) { return -.1; }, [](int) { return 1; }, 2);
  REQUIRE(problem.run({}, false).clean());  // no final states
}
