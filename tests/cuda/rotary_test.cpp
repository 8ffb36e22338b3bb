// Rotary: cosines and sines, rows that turn by them, and paths, the running sums of β.
#include <cmath>
#include <functional>
#include <numbers>
#include <random>
#include <sstream>

#include "batches.hpp"
#include "catch.hpp"
#include "layout/exponents.hpp"
#include "paths/paths.hpp"

using namespace sympow::test;

namespace {

/// A warp turns rows of d channels, N to a lane, the tokens 0, 1, … of sequence 1 and key head 2 of 3.
template <int d, int N>
struct TurnRows {
  static constexpr int threads = 32, shared_bytes = 0, blocks_per_multiprocessor = 1;
  static constexpr int lanes = d / N, rows = 32 / lanes;

  struct Args {
    Global<float> x;
    Rotary rotary;
    int used;  // rows
  };

  static void run(const Args& args) {
    Lanes<float> x[std::size_t{N}], one[1];
    const Lanes<int> row = lane() / lanes, part = lane() % lanes;
    const Lanes<bool> active = row < args.used;
    for (int c = 0; c < N; ++c) {
      one[0] = 0.f;
      load(one, args.x, row * d + part * N + c, active);
      x[c] = one[0];
    }
    args.rotary.turn(x, d, part, lanes / 2, 1, row, 2, active);
    for (int c = 0; c < N; ++c) {
      one[0] = x[c];
      store(args.x, row * d + part * N + c, one, active);
    }
  }
};

template <int d, int N>
void check_rows(bool halves, double path) {
  using Kernel = TurnRows<d, N>;
  constexpr std::size_t rows = Kernel::rows, pairs = d / 2;
  const int used = Kernel::rows > 1 ? Kernel::rows - 1 : 1;
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  host::Buffer<float> x(rows * d);
  host::Buffer<double> rates(pairs), paths(2 * 3 * rows), begin(2 * 3 * pairs);
  for (int t = 0; t < used; ++t) paths.set(index((Kernel::rows + t) * 3 + 2), path * normal(random));
  for (std::size_t j = 0; j < pairs; ++j) {
    rates.set(j, std::pow(1e4, -static_cast<double>(j) / pairs));
    begin.set(5 * pairs + j, std::uniform_real_distribution(-.5, .5)(random));
  }
  std::vector<double> exact(index(used * d));
  for (std::size_t i = 0; i < exact.size(); ++i) {
    x.set(i, static_cast<float>(normal(random)));
    exact[i] = double{x[i]};
  }
  const host::Report report =
      host::launch<Kernel>({1, 1, 1}, {x, {rates, {paths, 3 * Kernel::rows, 3, 1}, begin, 3, halves}, used});
  INFO(report.text());
  REQUIRE(report.clean());
  for (int t = 0; t < used; ++t)
    for (std::size_t j = 0; j < pairs; ++j) {
      const std::size_t a = index(t * d) + (halves ? j : 2 * j), b = halves ? a + pairs : a + 1;
      const double way = paths[index((Kernel::rows + t) * 3 + 2)];
      const double angle =
          std::remainder(way * rates[j], 2 * std::numbers::pi) + begin[5 * pairs + j] * 2 * std::numbers::pi;
      // Beside 6 u: the product with the rate takes 3 roundings in double, here and there.
      const double bound = (6 * u_float + 4 * u_double * std::abs(way * rates[j])) * std::hypot(exact[a], exact[b]);
      CAPTURE(d, N, halves, t, j);
      REQUIRE(std::abs(double{x[a]} - (std::cos(angle) * exact[a] - std::sin(angle) * exact[b])) <= bound);
      REQUIRE(std::abs(double{x[b]} - (std::sin(angle) * exact[a] + std::cos(angle) * exact[b])) <= bound);
    }
}

/// β of a batch, two entries apart in a row of heads, and what comes of it.
struct PathsProblem {
  static constexpr int pairs = 40;
  Batch batch;
  int heads, first;
  host::Buffer<float> beta;
  host::Buffer<double> paths, rates, before, begin, after;
  bool given = true, started = true;

  PathsProblem(std::vector<int> lengths, bool packed, int of_heads, int known = 0)
      : batch(std::move(lengths), packed, 64),
        heads(of_heads),
        first(known),
        beta(index(batch.tokens() * heads * 2)),
        paths(index((batch.tokens() + batch.size() * first) * heads)),
        rates(pairs),
        before(index(batch.size() * heads * pairs)),
        begin(before.size()),
        after(before.size()) {
    std::mt19937 random(6);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (std::size_t j = 0; j < pairs; ++j) rates.set(j, uniform(random));
    for (int b = 0; b < batch.size(); ++b)
      for (int h = 0; h < heads; ++h) {
        for (int i = 0; i < batch.length(b); ++i) beta.set(at_beta(b, i, h), static_cast<float>(1 + uniform(random)));
        if (first > 0) paths.set(at(b, -1, h), 10 * uniform(random));
        for (std::size_t j = 0; j < pairs; ++j) before.set(at_state(b, h) + j, uniform(random) / 2);
      }
  }
  [[nodiscard]] std::size_t at_beta(int b, int i, int h) const { return index(((batch.first(b) + i) * heads + h) * 2); }
  [[nodiscard]] std::size_t at(int b, int i, int h) const {
    return index((batch.first(b) + (batch.packed ? 0 : b * first) + first + i) * heads + h);
  }
  [[nodiscard]] std::size_t at_state(int b, int h) const { return index((b * heads + h) * pairs); }

  host::Report run(const host::Options& options = {}) {
    const auto rows = [&](auto memory, std::int64_t tokens, std::int64_t width) {
      return Rows<std::remove_pointer_t<decltype(memory.data)>>{memory, batch.packed ? 0 : tokens * heads * width,
                                                                heads * width, width};
    };
    Paths::Args args{rows(Global<const float>(beta), batch.longest, 2),
                     rows(Global<double>(paths), batch.longest + first, 1),
                     batch.sequences(),
                     {first},
                     heads,
                     pairs,
                     rates,
                     before,
                     begin,
                     after};
    if (!given) args.beta.data = {};
    if (!started) args.before = {};
    host::Report report = host::launch<Paths>(grid(Paths::blocks(batch.size(), heads)), args, options);
    std::vector<bool> expected(paths.size());
    for (int b = 0; b < batch.size(); ++b)
      for (int h = 0; h < heads; ++h)
        for (int i = first > 0 ? -1 : 0; i < batch.length(b); ++i) expected[at(b, i, h)] = true;
    paths.check_stored(report, "paths", [&](std::size_t i) { return bool{expected[i]}; });
    begin.check_stored(report, "begin", [](std::size_t) { return true; });
    after.check_stored(report, "after", [](std::size_t) { return true; });
    return report;
  }
  /// The first entry that is out of its bound. A sum takes up to 5 roundings in its 32 lanes, 7 in the warp, 5 over
  /// warps and 2 for each pass; the sum here one a token.
  [[nodiscard]] std::string wrong() const {
    std::ostringstream text;
    for (int b = 0; b < batch.size(); ++b)
      for (int h = 0; h < heads; ++h) {
        double path = first > 0 ? paths[at(b, -1, h)] : 0, sizes = std::abs(path), off = 0;
        for (int i = 0; i < batch.length(b); ++i) {
          const double step = given ? double{beta[at_beta(b, i, h)]} : 1;
          path += step, sizes += std::abs(step);
          off = given || first > 0 ? (17 + 2 * (i / 8192 + 1) + i) * u_double * sizes : 0;
          if (!(std::abs(paths[at(b, i, h)] - path) <= off)) {
            text << "path of token " << i << ", head " << h << ", sequence " << b << ": " << paths[at(b, i, h)]
                 << " is not " << path << " ± " << off;
            return text.str();
          }
        }
        for (std::size_t j = 0; j < pairs; ++j) {
          const std::size_t s = at_state(b, h) + j;
          const double from = started ? before[s] : 0, turns = path * rates[j] / (2 * std::numbers::pi);
          if (begin[s] != from) return "begin";
          if (!(std::abs(after[s]) <= .5)) return "an angle that is not reduced";
          // Two products and a sum, here and there; then what is left of whole turns.
          const double bound = 8 * u_double * (std::abs(turns) + 1) + off * std::abs(rates[j]);
          if (!(std::abs(std::remainder(after[s] - from - turns, 1)) <= bound)) return "an angle after";
        }
      }
    return "";
  }
};

}  // namespace

TEST_CASE("cosines and sines of turns are right to two units and a half", "[cuda]") {
  double worst = 0;
  const auto check = [&](double x) {
    const Turn turn = turn_of(Lanes<double>(x));
    const double angle = 2 * std::numbers::pi * x;
    worst = std::max(
        {worst, std::abs(double{turn.cosine[0]} - std::cos(angle)), std::abs(double{turn.sine[0]} - std::sin(angle))});
  };
  std::mt19937 random(1);
  for (int n = -4; n <= 4; ++n)  // where quarters end, and where the nearest one changes
    for (const double off : {0., 1e-17, 1e-9, 1e-7, -1e-17, -1e-9, -1e-7}) check(std::clamp(n / 8. + off, -.5, .5));
  for (int n = 0; n < 20000; ++n) check(std::uniform_real_distribution(-.5, .5)(random));
  REQUIRE(worst <= 2.5 * u_float);
  REQUIRE(worst > u_float / 2);  // no test compares with itself
  for (const double path :
       {0x1p52 + 1, -0x1p52 - 1, 0x1p53 - 1, -.5, .5, .75})  // turns, whose halves do not add to all
    REQUIRE(std::abs(turns_after(0., path, 2 * std::numbers::pi)[0]) <= .5);
  const Turn none = turn_of(Lanes<double>(not_a_number));
  REQUIRE((std::isnan(none.cosine[7]) && std::isnan(none.sine[7])));
}

TEST_CASE("rows turn by the angle of their token, in both pairings", "[cuda]") {
  for (const bool halves : {false, true})
    for (const double path : {1., 1e3, 1e9}) {
      check_rows<16, 2>(halves, path);
      check_rows<64, 2>(halves, path);
      check_rows<128, 4>(halves, path);
      check_rows<16, 8>(halves, path);
      check_rows<64, 8>(halves, path);
      check_rows<128, 8>(halves, path);
    }
}

TEST_CASE("paths are running sums in every layout of a batch, and angles go on", "[cuda]") {
  const bool packed = GENERATE(false, true), given = GENERATE(false, true), started = GENERATE(false, true);
  CAPTURE(packed, given, started);
  std::vector<double> all;
  for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
    PathsProblem problem({17000, 1, 0, 8192, 255, 300}, packed, 2);
    problem.given = given, problem.started = started;
    const host::Report report = problem.run({schedule, 3, host::MmaSum::hopper, {}});
    INFO(report.text());
    REQUIRE(report.clean());
    REQUIRE(problem.wrong() == "");
    std::vector<double> results;
    for (std::size_t i = 0; i < problem.paths.size(); ++i)
      if (problem.paths.is_set(i)) results.push_back(problem.paths[i]);
    if (all.empty()) all = results;
    REQUIRE(results == all);
  }
}

TEST_CASE("paths go on from those that are known", "[cuda]") {
  for (const int tokens : {0, 1, 5, 64}) {
    CAPTURE(tokens);
    PathsProblem problem({tokens, tokens, tokens}, false, 3, 7);
    const host::Report report = problem.run();
    INFO(report.text());
    REQUIRE(report.clean());
    REQUIRE(problem.wrong() == "");
  }
}

TEST_CASE("paths move no byte twice", "[cuda]") {
  PathsProblem problem({4096, 4096}, false, 1);
  const host::Report report = problem.run();
  INFO(report.text());
  const int tokens = 2 * 4096, states = 2 * 40 * 8 / 32;  // of sums every second entry of beta is used
  REQUIRE(report.global().transactions == tokens * 8 / 32 + tokens * 8 / 32 + 3 * states + 2 * 40 * 8 / 32);
  REQUIRE(report.shared().transactions == report.shared().ideal);
}

TEST_CASE("paths without any one of their barriers, predicates or indices are found out", "[cuda]") {
  host::Report clean;
  const auto run = [&](const host::Mutation& mutation) {
    PathsProblem problem({8800, 37}, false, 1, 2);
    const host::Report report = problem.run({host::Schedule::forward, 0, host::MmaSum::hopper, mutation});
    if (mutation.change == host::Change::none) clean = report;
    return report.clean() && problem.wrong().empty() ? bits(problem.paths, problem.begin, problem.after) : "";
  };
  run({});
  REQUIRE(host::mutations(clean).size() == 26);
  REQUIRE(survivors(clean, run) == "");
}
