// What every instantiation of decoding must do.
#pragma once

#include "catch.hpp"
#include "decode_expected.hpp"

namespace sympow::test {

/// One query and several, in blocks of which the last is not full: no fault, and within the bound.
template <class T, int P, int d>
void check_instantiation() {
  const auto decode = [](auto problem) {
    const host::Report report = problem.run();
    INFO(report.text());
    REQUIRE(report.clean());
    REQUIRE(verdict(problem).error <= 1);
  };
  DecodeCase c;
  c.batch = 1, c.e = 8;
  c.normalised = P % 2 == 0;
  decode(DecodeProblem<T, P, d, 1>(c));
  c.tokens = 3, c.query = 8;
  decode(DecodeProblem<T, P, d, 8>(c));
}

/// A row that has a weight of 1 from its token, and none from a state of mass 1.25: where it begins to be degenerate.
template <class T, int P, int d, int Q>
void check_noise() {
  DecodeCase c;
  c.batch = c.query = c.state = 1, c.tail = 0, c.gates = Gates::none;
  for (const float relative : {.9f, 1.1f}) {
    DecodeProblem<T, P, d, Q> problem(c);
    const float absolute = P % 2 == 0 ? 1.25f : 1.25f + 1;  // of odd powers the sizes of weights count, too
    problem.noise = relative / absolute;
    for (std::size_t n = 0; n < std::size_t{d}; ++n) {
      const T x = round_to<T>(n == 0 ? 1.f : 0.f);
      problem.queries.set(n, x), problem.keys.set(n, x);
    }
    for (std::size_t m = 0; m < problem.normaliser.size(); ++m) problem.normaliser.set(m, 0);
    problem.level.set(0, 0), problem.mass.set(0, 1.25f);
    REQUIRE(problem.run().clean());
    const Verdict of = verdict(problem);
    CAPTURE(P, relative);
    REQUIRE(of.error <= 1);
    REQUIRE(of.degenerate == (relative > 1 ? 1 : 0));
    REQUIRE(of.either == 0);
  }
}

/// Where threads are left over they load nothing, so that sectors grow with the value channels as these do; and warps
/// that have none store no row.
template <class T, int P, int d, int Q>
void check_threads_left_over() {
  const auto report = [](int e) {
    DecodeCase c;
    c.batch = c.query = c.state = 1, c.tail = 69, c.e = e, c.rows = 136, c.pad = 16;
    DecodeProblem<T, P, d, Q> problem(c);
    host::Report of = problem.run();
    INFO(of.text());
    REQUIRE(of.clean());
    return of;
  };
  const auto sectors = [&](int e) { return report(e).global().transactions; };
  REQUIRE(sectors(48) - sectors(32) == sectors(32) - sectors(16));  // with 16 and 32 none is left over
  REQUIRE(report(72).executed("store.global") == report(64).executed("store.global") + 1);
}

}  // namespace sympow::test
