// Decoding on the host: right against double, without faults, no transaction too many, and no line of it needless.
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "decode_cases.hpp"

using namespace sympow::test;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

using Orders = std::initializer_list<host::Schedule>;
constexpr Orders all_orders = {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random};

/// Runs a problem in such orders of warps and blocks: no fault, the same bits, and within the bound.
template <class Problem, class Change>
void require_right(const DecodeCase& c, const Change& change, int degenerate = 0, Orders orders = all_orders) {
  std::vector<std::uint32_t> first;
  for (const auto schedule : orders) {
    Problem problem(c, 5);
    change(problem);
    const host::Report report = problem.run({schedule, 3, host::MmaSum::hopper, {}});
    CAPTURE(c.query, c.state, c.key, c.tokens, c.tail, c.e, static_cast<int>(c.gates), c.decades, c.normalised, c.rows);
    INFO(report.text());
    REQUIRE(report.clean());
    REQUIRE(problem.appended());
    if (!first.empty()) {
      REQUIRE(problem.bits() == first);
      continue;
    }
    first = problem.bits();
    const Verdict of = verdict(problem);
    REQUIRE(of.error <= 1);
    REQUIRE(of.degenerate == degenerate);
    REQUIRE(of.either == 0);
  }
}
template <class Problem>
void require_right(const DecodeCase& c) {
  require_right<Problem>(c, [](Problem&) {});
}
/// In one order, for cases of which others run in all: a race is found in any order.
template <class Problem>
void require_right_once(const DecodeCase& c) {
  require_right<Problem>(c, [](Problem&) {}, 0, {host::Schedule::random});
}

}  // namespace

// The ends of all powers and numbers of channels; cuda/long has every instantiation.
TEMPLATE_TEST_CASE_SIG("the instantiations at the ends decode", "[cuda]", ((class T, int P, int d), T, P, d),
                       (bf16, 1, 128), (bf16, 3, 32), (float, 2, 64), (float, 4, 16)) {
  check_instantiation<T, P, d>();
}

TEST_CASE("tails, tokens, groups and value channels of any number decode", "[cuda]") {
  using Problem = DecodeProblem<bf16, 2, 32, 1>;
  using Problem8 = DecodeProblem<bf16, 2, 32, 8>;
  DecodeCase c;
  c.query = 4, c.state = 2, c.key = 1;
  for (const int tail : {0, 1, 63})
    for (const int tokens : {1, 2, 5}) {
      c.tail = tail, c.tokens = tokens;
      require_right_once<Problem>(c);
      require_right_once<Problem8>(c);
    }
  c.tail = 9, c.tokens = 2;
  for (const int e : {8, 24, 64, 200, 256}) {
    c.e = e;
    require_right_once<Problem>(c);
    require_right_once<Problem8>(c);
  }
  DecodeCase one_slab = c;
  one_slab.e = 40, one_slab.rows = 64;
  require_right<DecodeProblem<fp16, 1, 64, 1>>(one_slab);
  c.e = 16, c.tail = 100;
  for (const int rows : {32, 40, 264}) {
    c.rows = rows;
    require_right_once<Problem>(c);
  }
  c.rows = 0, c.query = c.state = c.key = 3;
  require_right<Problem>(c);
  c.query = c.state = c.key = 1, c.batch = 1, c.tail = 114, c.tokens = 14;  // as many as there may be
  require_right<Problem8>(c);
}

TEMPLATE_TEST_CASE("gates from none to resets, keys from short to long", "[cuda]", bf16, fp16) {
  DecodeCase c;
  c.tail = 20, c.tokens = 3, c.e = 8, c.batch = 1, c.query = c.state = 2, c.rows = 136;
  for (const Gates gates : {Gates::none, Gates::slow, Gates::steep, Gates::resets})
    for (const double decades : {0., 1., std::is_same_v<TestType, bf16> ? 15. : 4.}) {
      c.gates = gates, c.decades = decades;
      for (const bool normalised : {true, false}) {
        c.normalised = normalised;
        require_right_once<DecodeProblem<TestType, 2, 16, 1>>(c);
      }
      if constexpr (!std::is_same_v<TestType, bf16>) continue;
      require_right_once<DecodeProblem<bf16, 1, 64, 1>>(c);
      require_right_once<DecodeProblem<bf16, 3, 16, 8>>(c);
    }
  c.decades = std::is_same_v<TestType, bf16> ? 15. : 4., c.rows = 0;
  if constexpr (std::is_same_v<TestType, bf16>) require_right<DecodeProblem<bf16, 4, 16, 1>>(c);
}

TEST_CASE("new tokens turn where those of the tail have turned", "[cuda]") {
  DecodeCase c;
  c.query = c.state = 4, c.key = 2, c.e = 8;
  for (const bool halves : {false, true}) {
    c.rotary = Rotation{halves, {}, .3};
    c.tail = 0, c.tokens = 1;
    require_right<DecodeProblem<bf16, 2, 16, 1>>(c);
    c.rotary->beta = [](int t) { return 1 + .9 * std::sin(t); };
    c.tail = 20, c.tokens = 3;
    require_right<DecodeProblem<bf16, 2, 32, 8>>(c);
    require_right<DecodeProblem<fp16, 1, 64, 1>>(c);
    DecodeCase wide = c;
    wide.query = wide.state = wide.key, wide.batch = 1, wide.normalised = false;
    require_right<DecodeProblem<bf16, 1, 128, 8>>(wide);
  }
}

TEST_CASE("sums of signs are divided by where they are asked for", "[cuda]") {
  DecodeCase c;
  c.tail = 20, c.tokens = 3;
  require_right<DecodeProblem<bf16, 1, 64, 1>>(c);
  require_right<DecodeProblem<bf16, 3, 16, 8>>(c);
}

TEST_CASE("rows without weight are 0 and said to be", "[cuda]") {
  using Problem = DecodeProblem<bf16, 2, 16, 1>;
  DecodeCase c;
  c.batch = 1, c.query = c.state = 2, c.tokens = 2;
  const auto clear = [](auto& buffer, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) buffer.set(i, {});
  };
  // A query of 0: token 1 of head 0.
  require_right<Problem>(c, [&](Problem& p) { clear(p.queries, p.row(0, 1, 2, 0, 16), 16); }, 1);
  // Head 1 has an empty state and sees keys of 0.
  const auto no_keys = [&](Problem& p) {
    clear(p.keys, 0, p.keys.size());
    clear(p.tail_keys, 0, p.tail_keys.size() - 32);  // new tokens have not been written
    p.level.set(1, -infinity);
    p.mass.set(1, 0);
  };
  require_right<Problem>(c, no_keys, 2);
  // Keys of the state and query have no channel in common.
  const auto orthogonal = [&](Problem& p) {
    clear(p.keys, 0, p.keys.size());
    clear(p.tail_keys, 0, 5 * 16);
    clear(p.queries, p.row(0, 0, 2, 0, 16) + 1, 15);
    for (std::size_t m = 0; m < 16; ++m) p.normaliser.set(m, m == 0 ? p.mass[0] * 0x1p-21f : 0.f);
  };
  require_right<Problem>(c, orthogonal, 1);
  // A sum of squares that comes out below 0 is rounding, however large.
  const auto negative = [&](Problem& p) {
    for (std::size_t n = 0; n < 136; ++n) p.normaliser.set(n, 0);
    for (std::size_t m : {0u, 16u, 31u}) p.normaliser.set(m, -1000 * p.mass[0]);
  };
  require_right<Problem>(c, negative, 2);
  // Scores of both signs that leave 2^-20 of their sizes.
  c.tail = 2, c.tokens = 1, c.gates = Gates::none;
  using Linear = DecodeProblem<bf16, 1, 64, 1>;
  const auto cancelling = [&](Linear& p) {
    clear(p.keys, 0, p.keys.size());
    clear(p.tail_keys, 0, 2 * 64);
    clear(p.queries, 0, p.queries.size());
    for (const std::size_t head : {0u, 1u}) {
      p.level.set(head, -infinity);
      p.queries.set(p.row(0, 0, 2, static_cast<int>(head), 64), round_to<bf16>(1));
    }
    p.queries.set(p.row(0, 0, 2, 1, 64) + 1, round_to<bf16>(1));  // which sees a number of its own
    p.tail_keys.set(0, round_to<bf16>(1));
    p.tail_keys.set(64, round_to<bf16>(-1));
    p.keys.set(0, round_to<bf16>(0x1p-20f));
    p.keys.set(1, round_to<bf16>(0x1p-10f));
  };
  require_right<Linear>(c, cancelling, 1);
}

TEST_CASE("what lies behind a gate of 0 is not looked at", "[cuda]") {
  DecodeCase c;
  c.batch = 1, c.tail = 5, c.tokens = 3;
  DecodeProblem<bf16, 2, 16, 1> problem(c);
  const bf16 no_number = round_to<bf16>(not_a_number);
  for (std::size_t i = 0; i < problem.sums.size(); ++i) problem.sums.set(i, not_a_number);
  for (std::size_t i = 0; i < problem.normaliser.size(); ++i) problem.normaliser.set(i, not_a_number);
  for (std::size_t i = 0; i < 2 * 16; ++i) {  // tokens 0 and 1
    problem.tail_keys.set(i, no_number);
    problem.tail_values.set(i, no_number);
  }
  for (const std::size_t head : {0u, 1u}) {
    problem.mass.set(head, not_a_number);
    problem.tail_gates.set(problem.at(0, static_cast<int>(head), 2, 2, 8), -std::numeric_limits<float>::infinity());
  }
  const host::Report report = problem.run();
  INFO(report.text());
  REQUIRE(report.clean());
  const Verdict of = verdict(problem);
  REQUIRE(of.error <= 1);
  REQUIRE(of.degenerate == 0);
}

TEST_CASE("a row that sees a NaN or an infinity is not finite", "[cuda]") {
  using Problem = DecodeProblem<bf16, 2, 16, 1>;
  DecodeCase c;
  c.batch = 1, c.query = c.state = c.key = 2, c.tokens = 2;
  const auto not_finite = [&](const auto& change) {  // rows (token, head)
    Problem problem(c);
    change(problem);
    const host::Report report = problem.run();
    REQUIRE(report.clean());
    std::string rows;
    for (int i = 0; i < 2; ++i)
      for (int h = 0; h < 2; ++h) {
        int lost = 0;
        for (std::size_t n = 0; n < 16; ++n)
          lost += !std::isfinite(to_float(problem.y[problem.row(0, i, 2, h, 16) + n]));
        rows += lost == 16 ? "x" : lost == 0 ? "." : "1";
      }
    return rows;
  };
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {not_a_number, inf}) {
    const bf16 half = round_to<bf16>(bad);
    CHECK(not_finite([&](Problem& p) { p.queries.set(p.row(0, 1, 2, 0, 16) + 3, half); }) == "..x.");
    CHECK(not_finite([&](Problem& p) { p.keys.set(p.row(0, 1, 2, 0, 16) + 3, half); }) == "..x.");
    CHECK(not_finite([&](Problem& p) { p.keys.set(p.row(0, 0, 2, 1, 16) + 3, half); }) == ".x.x");
    CHECK(not_finite([&](Problem& p) { p.tail_keys.set(0, half); }) == "x.x.");
    CHECK(not_finite([&](Problem& p) { p.tail_values.set(5, half); }) == "1.1.");
    CHECK(not_finite([&](Problem& p) { p.values.set(p.row(0, 1, 2, 1, 16) + 3, half); }) == "...1");
    CHECK(not_finite([&](Problem& p) { p.sums.set(16 * 7 + 2, bad); }) == "1.1.");
    CHECK(not_finite([&](Problem& p) { p.normaliser.set(9, bad); }) == "x.x.");
    // a query of 0 hides nothing
    CHECK(not_finite([&](Problem& p) {
            for (std::size_t n = 0; n < 16; ++n) p.queries.set(n, {});
            p.tail_values.set(5, half);
          }) == "1.1.");
  }
  CHECK(not_finite([&](Problem& p) { p.mass.set(0, inf); }) == "....");
}

TEST_CASE("weights beyond the smallest float are told apart", "[cuda]") {
  DecodeCase c;
  c.batch = 1, c.query = c.state = c.key = 1, c.tail = 6, c.tokens = 2;
  for (const auto& [gate, normalised] : {std::pair(-1000.f, true), std::pair(-1e6f, true), std::pair(-1e6f, false)}) {
    DecodeProblem<bf16, 2, 16, 1> problem(c);
    problem.level.set(0, -infinity);
    problem.tail_gates.set(4, gate);  // tokens 0 … 3 lie behind it, all others are 0
    for (std::size_t n = 4 * 16; n < 6 * 16; ++n) problem.tail_keys.set(n, {});
    for (std::size_t n = 0; n < problem.keys.size(); ++n) problem.keys.set(n, {});
    problem.c.normalised = normalised;
    REQUIRE(problem.run().clean());
    const Verdict of = verdict(problem);
    REQUIRE(of.degenerate == 0);
    REQUIRE(of.error <= 1);
  }
}

TEST_CASE("slabs cover a state, and are many where states are few", "[cuda]") {
  using Read = sympow::cuda::ReadState<bf16, 2, 64, 1>;
  static_assert(Read::rows(132, 512) == 264 && Read::slabs(264) == 8);
  static_assert(Read::rows(132, 1) == 32 && Read::slabs(32) == 65);
  for (std::int64_t states = 1; states < 3000; states = states * 3 / 2 + 1) {
    const int rows = Read::rows(132, states);
    CAPTURE(states, rows);
    REQUIRE((rows % 8 == 0 && rows <= Read::most_rows && rows >= Read::least_rows));
    REQUIRE(Read::slabs(rows) * rows >= Read::D);
    REQUIRE((Read::slabs(rows) - 1) * rows < Read::D);
    REQUIRE((rows == 32 || states * Read::slabs(rows) >= 132 * 8 * 3 / 4 || Read::slabs(rows) == 8));
  }
}

TEST_CASE("decoding moves the fewest bytes", "[cuda]") {
  DecodeCase c;
  c.query = c.state = c.key = 2, c.tail = 63, c.e = 64, c.rows = 264, c.pad = 16;
  DecodeProblem<bf16, 2, 64, 1> problem(c);
  const host::Report report = problem.run();
  INFO(report.text());
  REQUIRE(report.clean());
  // Channels of monomials: (i, 63) and its neighbour (i + 1, i + 1) share a bank with channels 32 away.
  const host::Traffic channels{688, 568};
  int of_channels = 0;
  for (const auto& [place, site] : report.sites) {
    CAPTURE(place.text(), site.instruction);
    if (site.shared == channels) {
      ++of_channels;
      continue;
    }
    REQUIRE(site.shared.transactions == site.shared.ideal);
    REQUIRE(site.global.transactions == site.global.ideal);
  }
  REQUIRE(of_channels == 1);
  const long states = 4 * 2080 * (64 + 1) * 4, tokens = 4 * 64 * (64 + 64) * 2;  // bytes
  REQUIRE(32 * static_cast<double>(report.global().transactions) < 1.02 * (states + tokens));
}

TEST_CASE("a row is degenerate by the noise that is asked for", "[cuda]") {
  check_noise<bf16, 2, 16, 1>();
  check_noise<bf16, 3, 16, 8>();
}

TEST_CASE("threads that are left over load and store nothing", "[cuda]") { check_threads_left_over<bf16, 2, 16, 1>(); }

TEST_CASE("decoding without any one of its barriers, predicates or indices is found out", "[cuda]") {
  const auto broken = [](int rows, const host::Mutation& mutation) {
    DecodeCase c;
    c.batch = 1, c.query = 4, c.key = 1, c.tail = 11, c.tokens = 2, c.e = 24, c.rows = rows;
    DecodeProblem<bf16, 2, 32, 1> problem(c, 2);
    const host::Report report = problem.run({host::Schedule::forward, 0, host::MmaSum::hopper, mutation});
    return std::pair(report, !report.clean() || !(verdict(problem).error <= 1) || !problem.appended());
  };
  const auto [clean, wrong] = broken(264, {});
  INFO(clean.text());
  REQUIRE(!wrong);
  const auto all = host::mutations(clean);
  REQUIRE(all.size() == 125);
  std::string survivors;
  for (const host::Mutation& mutation : all)  // with as many rows as fit, or with an odd number of slabs
    if (!broken(264, mutation).second && !broken(176, mutation).second) survivors += text(mutation) + "\n";
  REQUIRE(survivors == "");
}
