// A backward pass of rows that turn.
#pragma once

#include "chunked_backward.hpp"

namespace sympow::test {

/// Every pair of tokens has a coupling and flows of one sign, in every pair of channels, so that bounds of sums over
/// them are those of what they add up to: q has first and k second channels, both turn little, values and dY are
/// positive.
template <class K>
void make_aligned(ArraysOf<K>& x, GradientBuffers<typename K::T, K::d>& gradients) {
  const auto each = [&](auto& tokens, const auto& share) {
    for (int b = 0; b < x.batch.size(); ++b)
      for (int t = 0; t < x.batch.length(b); ++t)
        for (int h = 0; h < tokens.heads; ++h)
          for (int c = 0; c < tokens.width; ++c) {
            const double number = std::abs(static_cast<double>(to_float(tokens.data[tokens.at(b, t, h, c)])));
            x.set(tokens, b, t, h, c, share(c) * (.25 + number));
          }
  };
  const auto is_first = [&](int c) { return x.how.rotary->halves ? c < K::d / 2 : c % 2 == 0; };
  each(x.queries, [&](int c) { return is_first(c) ? 1. : .25; });
  each(x.keys, [&](int c) { return is_first(c) ? .25 : 1.; });
  each(x.values, [](int) { return 1.; });
  each(gradients.d_rows, [](int) { return 1.; });
}

/// Steps of which 300 are less than an eighth of a turn.
inline double small_step(int t) { return .002 * (1 + .9 * std::sin(t)); }

/// A case of sums whose flows all add up.
template <class K>
void check_aligned(Case how, const std::vector<int>& cuts) {
  how.normalised = false;
  CAPTURE(K::P, K::d, fraction_bits<typename K::T>, how.chunk, how.rotary->halves, cuts.size());
  REQUIRE(run_chunked_backward<K>(how, cuts, make_aligned<K>) == "");
}
/// A case as it is drawn, without negative entries before rows turn.
template <class K>
void check_turned(const Case& how, const std::vector<int>& cuts) {
  CAPTURE(K::P, K::d, fraction_bits<typename K::T>, how.chunk, how.rotary->halves, cuts.size());
  REQUIRE(run_chunked_backward<K>(how, cuts, [](auto& x, auto&) { make_positive<K>(x); }) == "");
}

/// Both forms and pairings: layouts, lengths at the borders of tiles and chunks, β and none; heads in groups and gates
/// with each.
template <class K>
void check_rotary_layouts() {
  const auto gate = [](int t) { return t % 90 == 70 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  const auto steps = [](int t) { return .3 + .9 * std::sin(t); };
  for (const bool halves : {false, true})
    for (const auto& cuts : {std::vector<int>{}, {0, 1 << 30}}) {
      Case how = case_of<K>({1, 63, 64, 65, 0, 200});
      how.e = 16;
      how.rotary = Rotation{halves, steps, 0};
      check_turned<K>(how, cuts);
      how.packed = halves;
      how.rotary->beta = small_step;
      check_aligned<K>(how, cuts);
      if (halves != cuts.empty()) continue;  // the long tests have both pairings in both forms
      how.lengths = {270, 70};
      how.chunk = 128;
      how.log_gate = gate;
      how.heads = halves ? Heads{4, 2, 1} : Heads{4, 4, 2};
      how.e = 72;
      check_aligned<K>(how, cuts);
      how.rotary->beta = {};
      check_turned<K>(how, cuts);
    }
}

/// Calls with states and gradients of states between them.
template <class K>
void check_rotary_calls() {
  Case how = case_of<K>({140, 70, 0});
  how.e = 8;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  for (const bool halves : {false, true}) {
    how.rotary = Rotation{halves, small_step, 0};
    check_aligned<K>(how, {0, 30, 94, 95, 1 << 30});
    how.rotary->beta = [](int t) { return std::sin(t); };
    check_turned<K>(how, {0, 64, 1 << 30});
  }
}

/// What a turn of all tokens changes comes back to every one of them, and changes nothing else.
template <class Kernel>
void check_gauge() {
  Case how = case_of<Kernel>({150, 70, 0});
  how.e = 8;
  how.has_factors = true;
  how.heads = {4, 4, 2};
  how.log_gate = [](int t) { return t % 90 == 70 ? -infinity : -.01; };
  how.rotary = Rotation{false, small_step, 0};
  const int pairs = Kernel::d / 2, keys = how.heads.key;
  host::Buffer<double> gauge(index(3 * keys * pairs));
  for (std::size_t i = 0; i < gauge.size(); ++i) gauge.set(i, std::sin(static_cast<double>(i) + 1));
  for (const auto& cuts : {std::vector<int>{0, 1 << 30}, {0, 70, 1 << 30}}) {
    CAPTURE(cuts.size());
    ArraysOf<Kernel> x(how);
    GradientBuffers<typename Kernel::T, Kernel::d> without(x, 0), with(x, 0);
    REQUIRE(run_calls<Kernel>(x, without, cuts).clean());
    REQUIRE(run_calls<Kernel>(x, with, cuts, {}, gauge).clean());
    REQUIRE(bits(with.d_queries.data, with.d_keys.data, with.d_values.data, with.d_gates.data) ==
            bits(without.d_queries.data, without.d_keys.data, without.d_values.data, without.d_gates.data));
    std::vector<double> of_rates(index(pairs));
    for (int b = 0; b < 3; ++b)
      for (int h = 0; h < keys; ++h) {
        const auto of_pair = [&](int u) { return gauge[index((b * keys + h) * pairs + u)]; };
        double flow = 0, path = 0;
        for (int u = 0; u < pairs; ++u) flow += x.rates[index(u)] * of_pair(u);
        for (int t = 0; t < x.batch.length(b); ++t) {
          path += how.rotary->step(t, h);
          const auto beta = [&](const auto& all) {
            return static_cast<double>(all.d_beta.data[all.d_beta.at(b, t, h, 0)]);
          };
          const double one = beta(with), other = beta(without);
          REQUIRE(std::abs(one - other - flow) <= 0x1p-24 * (std::abs(one) + std::abs(other)) * (1 + 1e-6));
        }
        for (int u = 0; u < pairs; ++u) of_rates[index(u)] += path * of_pair(u);
      }
    for (int u = 0; u < pairs; ++u) {
      const double one = with.d_rates[index(u)], other = without.d_rates[index(u)];
      REQUIRE(std::abs(one - other - of_rates[index(u)]) <= 1e-13 * (std::abs(one) + std::abs(other) + 3));
    }
  }
}

}  // namespace sympow::test
