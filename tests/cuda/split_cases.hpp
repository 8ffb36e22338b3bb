// Cases of states in two terms, for every power, number of channels and format.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "forward_cases.hpp"

namespace sympow::test {

/// Layouts, gates and resets, a state at the beginning, several stages of keys and rows of blocks that end early.
template <class K>
void check_split() {
  Case how = case_of<K>({200, 0, 64, 65});
  how.is_split = true;
  how.heads = {4, 2, 1};
  how.e = 72;
  how.log_gate = [](int t) { return t == 130 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  how.packed = true;
  check<K>(how);
  how = case_of<K>({300});
  how.is_split = true;
  how.chunk = 128;
  check<K>(how);
  check_joined<K>({150, 40}, 70, {}, true);
}

/// Of rows that read nothing but a state.
struct ReadAlone {
  std::string wrong;  ///< "" if they are right
  double error;       ///< root mean square of their errors, in relation to that of rows
};

/// Queries of ±1 that are orthogonal to the mean of all keys, keys of 1 and 2, no gates: all monomials are exact. Keys
/// from token 128 on are 0, so rows from there on read the state alone, and most of it cancels. `bound`: whether they
/// are held to that of split states.
template <class K>
ReadAlone read_alone(bool is_split, bool bound) {
  Case how = case_of<K>({160});
  how.is_split = is_split;
  how.is_exact = true;
  ArraysOf<K> x(how);
  std::mt19937 random(11);
  std::vector<double> signs(K::d, 1);
  std::fill(signs.begin(), signs.begin() + K::d / 2, -1);
  for (int t = 0; t < 160; ++t) {
    std::shuffle(signs.begin(), signs.end(), random);
    for (int c = 0; c < K::d; ++c) {
      x.set(x.queries, 0, t, 0, c, signs[index(c)]);
      x.set(x.keys, 0, t, 0, c, t >= 128 ? 0 : random() % 2 == 0 ? 1 : 2);
    }
    for (int c = 0; c < how.e; ++c)
      x.set(x.values, 0, t, 0, c, 1 + double{to_float(x.values.data[x.values.at(0, t, 0, c)])} / 4);
  }
  Forward<typename K::T, K::P, K::d> forward(x);
  const host::Report report = forward.run({});
  INFO(report.text());
  REQUIRE(report.clean());
  x.how.is_split = bound;
  RowsOfHead<typename K::T, K::P, K::d> rows(x, {false, 0}, 0, 0);
  std::string wrong;
  for (int t = 128; t < 160 && wrong.empty(); ++t) wrong = rows.wrong(t);
  return {wrong, rows.error()};
}

/// Rows of split states are rounded once, at the end, which is u of them at most; beside that the errors of rows of
/// rounded states are large.
template <class K>
void check_rest() {
  const ReadAlone split = read_alone<K>(true, true), rounded = read_alone<K>(false, false);
  CAPTURE(K::P, K::d, fraction_bits<typename K::T>, split.error, rounded.error);
  REQUIRE(split.wrong == "");
  REQUIRE(rounded.wrong == "");
  REQUIRE(split.error < u_of<typename K::T>);
  REQUIRE(rounded.error > 4 * split.error);
}

}  // namespace sympow::test
