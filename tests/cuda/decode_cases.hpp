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

}  // namespace sympow::test
