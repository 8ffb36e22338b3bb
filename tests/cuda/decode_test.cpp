// Decoding on the host: right against double, without faults, no transaction too many, and no line of it needless.
#include <string>
#include <vector>

#include "catch.hpp"
#include "decode_problem.hpp"

using namespace sympow::test;

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// Runs a problem in every order of warps and blocks: no fault, the same bits, and within the bound.
template <class Problem, class Change>
void require_right(const DecodeCase& c, const Change& change, int degenerate = 0) {
  std::vector<std::uint16_t> first;
  for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
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
    const auto verdict = problem.verdict();
    REQUIRE(verdict.error <= 1);
    REQUIRE(verdict.degenerate == degenerate);
    REQUIRE(verdict.either == 0);
  }
}
template <class Problem>
void require_right(const DecodeCase& c) {
  require_right<Problem>(c, [](Problem&) {});
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("every instantiation decodes", "[cuda]", ((class T, int P, int d), T, P, d), (bf16, 1, 64),
                       (bf16, 1, 128), (bf16, 2, 16), (bf16, 2, 32), (bf16, 2, 64), (bf16, 2, 128), (bf16, 3, 16),
                       (bf16, 3, 32), (bf16, 4, 16), (bf16, 4, 32), (fp16, 1, 64), (fp16, 2, 32), (fp16, 2, 64),
                       (fp16, 3, 16), (fp16, 4, 16)) {
  DecodeCase c;
  c.batch = 1, c.e = 8;
  c.normalised = P % 2 == 0;
  require_right<DecodeProblem<T, P, d, 1>>(c);
  c.tokens = 3, c.query = 8;  // two blocks of queries, the second not full
  require_right<DecodeProblem<T, P, d, 8>>(c);
}

TEST_CASE("tails, tokens, groups and value channels of any number decode", "[cuda]") {
  using Problem = DecodeProblem<bf16, 2, 32, 1>;
  using Problem8 = DecodeProblem<bf16, 2, 32, 8>;
  DecodeCase c;
  c.query = 4, c.state = 2, c.key = 1;
  for (const int tail : {0, 1, 63})
    for (const int tokens : {1, 2, 5}) {
      c.tail = tail, c.tokens = tokens;
      require_right<Problem>(c);
      require_right<Problem8>(c);
    }
  c.tail = 64, c.tokens = 64, c.batch = 1;
  require_right<Problem8>(c);
  c.tail = 9, c.tokens = 2;
  for (const int e : {8, 24, 64, 200, 256}) {
    c.e = e;
    require_right<Problem>(c);
    require_right<Problem8>(c);
  }
  c.e = 16, c.tail = 100;
  for (const int rows : {32, 40, 264}) {
    c.rows = rows;
    require_right<Problem>(c);
  }
  c.rows = 0, c.query = c.state = c.key = 3;
  require_right<Problem>(c);
}

TEMPLATE_TEST_CASE("gates from none to resets, keys from short to long", "[cuda]", bf16, fp16) {
  DecodeCase c;
  c.tail = 20, c.tokens = 4, c.query = c.state = 2;
  for (const Gates gates : {Gates::none, Gates::slow, Gates::steep, Gates::resets})
    for (const bool normalised : {true, false})
      for (const double decades : {0., 1., std::is_same_v<TestType, bf16> ? 15. : 4.}) {
        c.gates = gates, c.normalised = normalised, c.decades = decades;
        require_right<DecodeProblem<TestType, 2, 16, 1>>(c);
        require_right<DecodeProblem<TestType, 4, 16, 8>>(c);
        c.normalised = false;
        require_right<DecodeProblem<TestType, 1, 64, 1>>(c);
        require_right<DecodeProblem<TestType, 3, 16, 8>>(c);
      }
}
