// Decoding in few instantiations, quick to compile.
#include "decode_cases.hpp"

using namespace sympow::test;

namespace {

template <class Problem>
void require_right(const DecodeCase& c) {
  Problem problem(c, 5);
  const host::Report report = problem.run({host::Schedule::random, 3, host::MmaSum::hopper, {}});
  CAPTURE(c.query, c.state, c.key, c.tokens, c.tail, c.e, static_cast<int>(c.gates), c.normalised, c.rows);
  INFO(report.text());
  REQUIRE(report.clean());
  REQUIRE(problem.appended());
  const Verdict of = verdict(problem);
  REQUIRE(of.error <= 1);
  REQUIRE(of.degenerate == 0);
  REQUIRE(of.either == 0);
}

}  // namespace

TEST_CASE("decoding is right", "[cuda]") {
  DecodeCase c;
  c.query = 4, c.state = 2, c.key = 1;
  for (const int tail : {0, 1, 63})
    for (const int tokens : {1, 5}) {
      c.tail = tail, c.tokens = tokens, c.e = tail == 63 ? 200 : 24;
      require_right<DecodeProblem<bf16, 2, 32, 1>>(c);
      require_right<DecodeProblem<bf16, 2, 32, 8>>(c);
    }
  c.tail = 20, c.tokens = 3, c.e = 8;
  for (const Gates gates : {Gates::none, Gates::steep, Gates::resets})
    for (const bool normalised : {true, false}) {
      c.gates = gates, c.normalised = normalised, c.decades = normalised ? 0 : 4;
      require_right<DecodeProblem<bf16, 3, 16, 8>>(c);
      require_right<DecodeProblem<bf16, 2, 32, 1>>(c);
    }
  c.gates = Gates::slow, c.normalised = true, c.decades = 0;
  for (const int rows : {32, 40, 264}) {
    c.rows = rows;
    require_right<DecodeProblem<bf16, 2, 32, 1>>(c);
  }
  DecodeCase full;
  full.query = full.state = full.key = 1, full.batch = 1, full.tail = 114, full.tokens = 14, full.e = 256;
  require_right<DecodeProblem<bf16, 2, 32, 8>>(full);
}

TEST_CASE("a row is degenerate by the noise that is asked for", "[cuda]") {
  check_noise<bf16, 2, 16, 1>();
  check_noise<bf16, 3, 16, 8>();
}

TEST_CASE("threads that are left over load and store nothing", "[cuda]") { check_threads_left_over<bf16, 2, 16, 1>(); }

TEST_CASE("what lies behind a gate of 0 is not looked at", "[cuda]") {
  DecodeCase c;
  c.batch = 1, c.tail = 5, c.tokens = 3;
  DecodeProblem<bf16, 2, 16, 1> problem(c);
  for (std::size_t i = 0; i < 2 * 16; ++i)
    problem.tail_values.set(i, round_to<bf16>(std::numeric_limits<float>::quiet_NaN()));
  for (std::size_t i = 3 * 16; i < 4 * 16; ++i) problem.tail_keys.set(i, {});  // seen, without weight
  for (const int head : {0, 1})
    problem.tail_gates.set(problem.at(0, head, 2, 2, 8), -std::numeric_limits<float>::infinity());
  REQUIRE(problem.run().clean());
  REQUIRE(verdict(problem).error <= 1);
}
