// Cases of a backward pass, for every power, number of channels and format.
#pragma once

#include "backward_reference.hpp"
#include "forward_cases.hpp"

namespace sympow::test {

/// Runs without a fault, all gradients stored and right: "", else what is wrong. dY is 0 in rows that say nothing.
template <class K>
std::string run_backward(ArraysOf<K>& x, GradientBuffers<typename K::T, K::d>& gradients,
                         const host::Options& options = {}) {
  using Expected = GradientsOfSequence<typename K::T, K::P, K::d>;
  std::vector<Expected> expected;
  for (int b = 0; b < x.batch.size(); ++b) {
    expected.emplace_back(x, gradients.d_rows, b);
    for (const auto& [t, h] : expected.back().unknown) ArraysOf<K>::set_row(gradients.d_rows, b, t, h, 0.);
  }
  Backward<typename K::T, K::P, K::d> backward(x, gradients);
  host::Report report = backward.run(options);
  backward.check_stored(report);
  if (!report.clean()) return report.text();
  for (int b = 0; b < x.batch.size(); ++b) {
    const std::string text = expected[index(b)].wrong(gradients, backward.has_flows());
    if (!text.empty()) return text;
  }
  return "";
}

/// One case, with what `edit` changes of its numbers.
template <class K>
void check_backward(Case how, const std::function<void(ArraysOf<K>&, GradientBuffers<typename K::T, K::d>&)>& edit = {},
                    double decades = 0) {
  CAPTURE(K::P, K::d, fraction_bits<typename K::T>);
  how.chunk = (*std::max_element(how.lengths.begin(), how.lengths.end()) + 63) / 64 * 64;
  how.has_factors = how.normalised;
  ArraysOf<K> x(how);
  GradientBuffers<typename K::T, K::d> gradients(x, decades);
  if (edit) edit(x, gradients);
  REQUIRE(run_backward<K>(x, gradients) == "");
}

/// Layouts: lengths at the borders of tiles, empty sequences, packed ones, heads in groups, value channels.
template <class K>
void check_backward_layouts(int most) {
  const auto slow = [](int t) { return -.002 * (t % 7); };
  Case how = case_of<K>({});
  for (const int length : {1, 15, 63, 64, 65, 129, 200, 0})
    if (length <= most) how.lengths.push_back(length);
  how.log_gate = slow;
  for (const bool packed : {false, true}) {
    how.packed = packed;
    check_backward<K>(how);
  }
  for (const int e : {8, 72, 136}) {
    Case wide = case_of<K>({std::min(most, 80), 3});
    wide.e = e;
    wide.heads = e == 8 ? Heads{2, 2, 2} : e == 72 ? Heads{4, 2, 1} : Heads{2, 1, 1};
    wide.log_gate = slow;
    check_backward<K>(wide);
  }
}

/// Gates of all kinds, normalised or not. Where a gate is 0, and at the first token, its gradient is, too.
template <class K>
void check_backward_gates(int length) {
  for (const auto& gate : kinds_of_gates())
    for (const bool normalised : {true, false}) {
      Case how{{length}};
      how.chunk = (length + 63) / 64 * 64;
      how.normalised = how.has_factors = normalised;
      how.log_gate = gate;
      ArraysOf<K> x(how);
      GradientBuffers<typename K::T, K::d> gradients(x, 0);
      REQUIRE(run_backward<K>(x, gradients) == "");
      for (int t = 0; t < length && gate; ++t)
        if (t == 0 || gate(t) == -infinity) REQUIRE(gradients.d_gates.data[gradients.d_gates.at(0, t, 0, 0)] == 0);
    }
}

/// Norms of keys, queries and dY that differ by many orders, up to the ends of the format; scales.
template <class K>
void check_backward_norms(int length) {
  constexpr bool wide = fraction_bits<typename K::T> != 10;
  Case how{{length}};
  how.log_gate = [](int t) { return t % 5 == 0 ? -3. : -.01; };
  for (const double decades : {1., wide ? 9. : 2.5}) {
    how.normalised = true;
    how.key_decades = how.query_decades = decades;
    check_backward<K>(how, {}, decades);
  }
  how.key_decades = how.query_decades = wide ? 3. : .5;
  how.normalised = false;
  for (const double scale : {.125, -2., 0.}) {
    how.scale = scale;
    check_backward<K>(how, {}, 1);
  }
  how.normalised = true;
  for (const double size : {wide ? 0x1p115 : 0x1p12, wide ? 0x1p-115 : 0x1p-18})
    check_backward<K>(how, [&](auto& x, auto&) {
      for (int t = 0; t < length; ++t)
        for (int c = 0; c < x.how.e; ++c) x.set(x.values, 0, t, 0, c, size * (1 + (t * 5 + c * 3) % 7));
    });
}

/// Zero queries, keys and dY. Of P 1 without normaliser a zero query, and a zero key, have a gradient.
template <class K>
void check_backward_zeros(int length) {
  for (const bool normalised : {true, false}) {
    Case how{{length}};
    how.normalised = normalised;
    how.log_gate = [](int t) { return t == 23 || t == 58 ? -infinity : t == 66 ? -1000. : -.5; };  // of rows with dy 0
    check_backward<K>(how, [&](auto& x, auto& gradients) {
      for (int t = 0; t < length; ++t) {
        if (t % 6 == 1 || t < 3) x.set_row(x.keys, 0, t, 0, 0.);
        if (t % 10 == 7) x.set_row(x.queries, 0, t, 0, 0.);
        if (t % 7 == 2) x.set_row(gradients.d_rows, 0, t, 0, 0.);
      }
    });
    check_backward<K>(how, [&](auto& x, auto& gradients) {
      for (int t = 0; t < length; ++t) x.set_row(x.keys, 0, t, 0, 0.);
      if (normalised) x.set_row(gradients.d_rows, 0, 5, 0, infinity);  // of a row that is flagged
    });
  }
}

/// Rows whose dy is 0 have no weight in any key, though their queries are by far the largest.
template <class K>
void check_backward_large_rows_of_zeros(int length) {
  Case how{{length}};
  how.normalised = false;
  check_backward<K>(how, [&](auto& x, auto& gradients) {
    for (int t = 0; t < length; ++t) {
      const bool is_large = t % 3 == 1;
      for (int c = 0; c < K::d; ++c) {
        x.set(x.keys, 0, t, 0, c, std::ldexp(1 + (t * 5 + c * 3) % 7, 20));
        x.set(x.queries, 0, t, 0, c, std::ldexp(1 + (t * 3 + c * 5) % 7, is_large ? 100 : -40));
      }
      if (is_large) x.set_row(gradients.d_rows, 0, t, 0, 0.);
    }
  });
}

/// Peaks of any exponents and resets, and the sizes of more blocks than a warp has lanes.
inline void check_peaks() {
  Batch batch({70, 2240}, true, 2240);
  const Heads heads{4, 2, 1};
  const int chunk = batch.chunk, blocks = chunk / block_tokens;
  host::Buffer<double> exponent(index(heads.query * batch.slots * chunk)), peak(exponent.size());
  host::Buffer<std::int32_t> reset(index(heads.state * batch.slots * chunk)), unit(index(heads.query * batch.slots)),
      sizes(index(heads.key * batch.slots * blocks));
  std::mt19937 random(3);
  for (std::size_t i = 0; i < exponent.size(); ++i)
    exponent.set(i, random() % 9 == 0 ? -infinity : static_cast<double>(random() % 1000));
  for (int i = 0, last = -1; i < static_cast<int>(reset.size()); ++i) {
    last = i % chunk == 0 ? -1 : random() % 90 == 0 ? i % chunk : last;
    reset.set(index(i), last);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes.set(i, static_cast<int>(i % 40) - 30);
  TokenArrays tokens{};
  tokens.reset = reset;
  RowArrays rows{};
  rows.exponent = exponent, rows.peak = peak, rows.unit = unit;
  const host::Report report = host::launch<Peaks>(grid(Peaks::blocks(batch.sequences(), heads)),
                                                  {tokens, rows, sizes, batch.sequences(), heads}, {});
  INFO(report.text());
  REQUIRE(report.clean());
  for (int b = 0; b < batch.size(); ++b)
    for (int h = 0; h < heads.query; ++h) {
      CAPTURE(b, h);
      const std::int64_t row_slot = h * batch.slots + batch.slot(b), token_slot = h / 2 * batch.slots + batch.slot(b);
      const int end = (batch.length(b) + block_tokens - 1) / block_tokens * block_tokens;
      for (int j = 0; j < end; ++j) {
        double expected = -infinity;
        for (int i = j; i < end && reset[index(token_slot * chunk + i)] <= j; ++i)
          expected = std::max(expected, exponent[index(row_slot * chunk + i)]);
        REQUIRE(peak[index(row_slot * chunk + j)] == expected);
      }
      int largest = -126;
      for (int n = 0; n < end / block_tokens; ++n)
        largest = std::max(largest, int{sizes[index(batch.slot(b) * blocks + n)]});
      REQUIRE(unit[index(row_slot)] == largest + 4);
    }
}

/// NaN or an infinity in a token's key, value, query or dy: gradients that it is part of are not finite, all others
/// are right, but that those of its own 64 tokens may be lost, too, and of a value those of rows that the forward pass
/// lost.
template <class K>
void check_backward_not_a_number(int length) {
  for (const int what : {0, 1, 2, 3}) {
    CAPTURE(what);
    const int place = 70, reset = 100;
    Case how{{length}};
    how.chunk = (length + 63) / 64 * 64;
    how.normalised = how.has_factors = K::P % 2 == 0;
    how.log_gate = [](int t) { return t == 100 ? -infinity : -.01; };
    ArraysOf<K> x(how);
    GradientBuffers<typename K::T, K::d> gradients(x, 0), right(x, 0);
    REQUIRE(run_backward<K>(x, right) == "");
    for (int t = 0; t < length; ++t)
      for (int c = 0; c < x.how.e; ++c) {
        const auto at = right.d_rows.at(0, t, 0, c);
        gradients.d_rows.data.set(at, right.d_rows.data[at]);
      }
    const GradientsOfSequence<typename K::T, K::P, K::d> expected(x, right.d_rows, 0);
    x.set(what == 0   ? x.keys
          : what == 1 ? x.values
          : what == 2 ? x.queries
                      : gradients.d_rows,
          0, place, 0, 3, what % 2 == 0 ? not_a_number : infinity);
    Backward<typename K::T, K::P, K::d> backward(x, gradients);
    host::Report report = backward.run({});
    backward.check_stored(report);
    INFO(report.text());
    REQUIRE(report.clean());
    const auto same = [](const auto& a, const auto& b, int t) {
      for (int c = 0; c < a.width; ++c)
        if (std::memcmp(&a.data[a.at(0, t, 0, c)], &b.data[b.at(0, t, 0, c)], sizeof(a.data[0])) != 0) return false;
      return true;
    };
    const auto lost = [](const auto& a, int t) {
      bool all = true;
      for (int c = 0; c < a.width; ++c) all = all && !std::isfinite(to_float(a.data[a.at(0, t, 0, c)]));
      return all;
    };
    for (int t = 0; t < length; ++t) {
      CAPTURE(t);
      const bool sees = t >= place && t < reset, is_seen = t <= place || (what < 2 && how.normalised && t < reset);
      const bool block = t / 64 == place / 64;
      if (what < 2 ? sees : t == place) REQUIRE(lost(gradients.d_queries, t));
      if (what == 0 ? t < place || t >= reset : what == 1 ? t >= reset : t != place)
        REQUIRE((block || same(gradients.d_queries, right.d_queries, t)));
      const bool key_is_lost = is_seen && (what > 1 || how.normalised || t == place);
      if (key_is_lost) REQUIRE(lost(gradients.d_keys, t));
      if (!is_seen) REQUIRE((block || same(gradients.d_keys, right.d_keys, t)));
      if (!is_seen) REQUIRE((block || same(gradients.d_values, right.d_values, t)));
      if (t < reset) continue;
      const double gate = double{gradients.d_gates.data[gradients.d_gates.at(0, t, 0, 0)]};
      REQUIRE(std::abs(gate - static_cast<double>(expected.gate[index(t)].exact)) <=
              static_cast<double>(expected.gate[index(t)].off));
      if (t == reset) REQUIRE(gate == 0);
    }
  }
}

/// Three orders of warps give equal bits; all sums of an mma that PTX permits hold the bound.
template <class K>
void check_backward_orders(Case how) {
  how.chunk = (how.lengths[0] + 63) / 64 * 64;
  how.has_factors = how.normalised;
  for (const auto mma : {host::MmaSum::hopper, host::MmaSum::nearest, host::MmaSum::toward_zero}) {
    std::string first;
    for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
      if (mma != host::MmaSum::hopper && schedule != host::Schedule::forward) continue;
      ArraysOf<K> x(how);
      GradientBuffers<typename K::T, K::d> gradients(x, 0);
      CAPTURE(K::P, K::d, static_cast<int>(mma), static_cast<int>(schedule));
      REQUIRE(run_backward<K>(x, gradients, {schedule, 5, mma, {}}) == "");
      const std::string all =
          bits(gradients.d_queries.data, gradients.d_keys.data, gradients.d_values.data, gradients.d_gates.data);
      if (first.empty()) first = all;
      REQUIRE(all == first);
    }
  }
}

}  // namespace sympow::test
