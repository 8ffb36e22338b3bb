// Cases of a forward pass, for every power, number of channels and format.
#pragma once

#include "catch.hpp"
#include "forward_reference.hpp"

namespace sympow::test {

/// A kernel's parameters as a type.
template <class Format, int power, int channels>
struct Kernels {
  using T = Format;
  static constexpr int P = power, d = channels;
};

template <class K>
using ArraysOf = Arrays<typename K::T, K::d>;

/// Runs without a fault, all rows stored and right: "", else what is wrong. `chunked`: by states.
template <class K>
std::string run(ArraysOf<K>& x, bool chunked, const host::Options& options = {}) {
  Forward<typename K::T, K::P, K::d> forward(x);
  host::Report report = chunked ? forward.run(options) : forward.run_quadratic(options);
  x.rows.check_stored(report, "rows");
  x.condition.check_stored(report, "condition");
  forward.check_turned(report);
  return report.clean() ? wrong<typename K::T, K::P, K::d>(x, {!chunked, 0}) : report.text();
}

/// One case by states and as the quadratic form, with what `edit` changes of its numbers.
template <class K>
void check(Case how, const std::function<void(ArraysOf<K>&)>& edit = {}) {
  for (const bool chunked : {true, false}) {
    CAPTURE(K::P, K::d, fraction_bits<typename K::T>, chunked);
    if (!chunked) how.chunk = (*std::max_element(how.lengths.begin(), how.lengths.end()) + 63) / 64 * 64;
    ArraysOf<K> x(how);
    if (edit) edit(x);
    REQUIRE(run<K>(x, chunked) == "");
  }
}

/// Chunks of several tiles, along which a block of LinearAttention goes.
template <class Format, int channels>
struct Along : Kernels<Format, 1, channels> {
  static constexpr int chunk = 192;
};

/// Odd powers have no quotient that must mean something.
template <class K>
Case case_of(std::vector<int> lengths) {
  Case how{std::move(lengths)};
  how.normalised = K::P % 2 == 0;
  if constexpr (requires { K::chunk; }) how.chunk = K::chunk;
  return how;
}

/// Layouts: lengths at the borders of tiles and chunks, empty sequences, packed ones, heads in groups, value channels.
template <class K>
void check_layouts(int most) {
  const auto slow = [](int t) { return -.002 * (t % 7); };
  Case how = case_of<K>({});
  for (const int length : {1, 15, 63, 64, 65, 127, 128, 129, 300, 0})
    if (length <= most) how.lengths.push_back(length);
  how.log_gate = slow;
  check<K>(how);
  how.packed = true;
  check<K>(how);
  for (const int e : {8, 40, 64, 72, 128}) {
    Case wide = case_of<K>({std::min(most, 80), 3});
    wide.e = e;
    wide.heads = e == 40 ? Heads{4, 2, 1} : e == 72 ? Heads{2, 2, 1} : Heads{1, 1, 1};
    wide.log_gate = slow;
    check<K>(wide);
  }
}

/// Gates: none, slow, fast, so fast that nothing is left, resets at borders of tiles and inside.
inline std::vector<std::function<double(int)>> kinds_of_gates() {
  return {{},
          [](int) { return -1e-4; },
          [](int t) { return t % 3 == 0 ? -2. : -.5; },
          [](int t) { return t % 11 == 3 ? -1000. : 0.; },
          [](int t) { return t == 70 ? -1e6 : -.3; },
          [](int t) { return t % 32 == 0 ? -infinity : -.1; },
          [](int t) { return t == 40 || t == 63 || t == 127 ? -infinity
                             : t == 70                      ? -1000.
                                                            : -.01; },
          [](int t) { return t == 64 || t == 97 ? -infinity : 0.; }};
}
template <class K>
void check_gates(int length) {
  for (const auto& gate : kinds_of_gates()) {
    Case how = case_of<K>({length});
    how.log_gate = gate;
    how.heads = {2, 2, 2};
    check<K>(how);
  }
}

/// Norms of keys and queries that differ by many orders, up to the ends of the format; scales.
template <class K>
void check_norms(int length) {
  constexpr bool wide = fraction_bits<typename K::T> != 10;
  const auto gate = [](int t) { return t % 5 == 0 ? -3. : -.01; };
  for (const double decades : {2., wide ? 15. : 3.5}) {
    Case how = case_of<K>({length});
    how.normalised = true;
    how.key_decades = how.query_decades = decades;
    how.log_gate = gate;
    check<K>(how);
  }
  for (const double size : {wide ? 0x1p118 : 0x1p13, wide ? 0x1p-124 : 0x1p-20}) {
    Case how = case_of<K>({length});
    how.normalised = true;
    how.log_gate = gate;
    check<K>(how, [&](auto& x) {
      for (int t = 0; t < length; ++t)
        for (int c = 0; c < K::d; ++c) {
          x.set(x.keys, 0, t, 0, c, size * (1 + (t * 5 + c * 3) % 7) * ((t + c) % 3 - 1));
          x.set(x.queries, 0, t, 0, c, size * (1 + (t * 3 + c * 5) % 7) * ((t * c) % 3 - 1));
        }
    });
  }
  Case plain = case_of<K>({length});
  plain.normalised = false;
  plain.log_gate = gate;
  for (const double scale : {.125, -2.}) {
    plain.scale = scale;
    check<K>(plain);
  }
}

/// Zero queries and zero keys: rows that see nothing are 0, their condition is infinite.
template <class K>
void check_zeros(int length) {
  Case how = case_of<K>({length});
  how.normalised = true;
  check<K>(how, [&](auto& x) {
    for (int t = 0; t < length; ++t) {
      if (t % 6 == 1 || t < 3) x.set_row(x.keys, 0, t, 0, 0.);
      if (t % 10 == 7) x.set_row(x.queries, 0, t, 0, 0.);
    }
  });
  how.log_gate = [](int t) { return t == 66 ? -1000. : 0.; };
  check<K>(how, [&](auto& x) {
    for (int t = 66; t < length; ++t) x.set_row(x.keys, 0, t, 0, 0.);
  });
  how.normalised = false;
  check<K>(how, [&](auto& x) {
    for (int t = 0; t < length; ++t) x.set_row(x.keys, 0, t, 0, 0.);
  });
}

/// States of a case, of which nothing is set.
template <class K>
StateBuffers states_of(const ArraysOf<K>& x) {
  const int angles = x.how.rotary ? x.batch.size() * x.how.heads.key * K::d / 2 : 0;
  return {x.batch.size() * x.how.heads.state, monomial_count(K::P, K::d), x.how.e, angles};
}
/// Empty ones, with the angles that the case begins with.
template <class K>
void make_empty(StateBuffers& states, const ArraysOf<K>& x) {
  for (auto* buffer : {&states.sums, &states.normaliser, &states.mass})
    for (std::size_t i = 0; i < buffer->size(); ++i) buffer->set(i, 0);
  for (std::size_t i = 0; i < states.level.size(); ++i) states.level.set(i, -infinity);
  std::size_t i = 0;
  for (int b = 0; b < x.batch.size() && x.how.rotary; ++b)
    for (int h = 0; h < x.how.heads.key; ++h)
      for (int j = 0; j < K::d / 2; ++j) states.turns.set(i++, x.how.rotary->turns(b, h, j));
}

/// The final state of one run is the initial state of the next.
template <class K>
void check_joined(const std::vector<int>& lengths, int cut, const std::optional<Rotation>& rotary = {},
                  bool is_split = false) {
  Case how = case_of<K>(lengths);
  how.heads = rotary ? Heads{2, 2, 2} : Heads{2, 2, 1};
  how.rotary = rotary;
  how.is_split = is_split;
  how.log_gate = [](int t) { return t % 50 == 49 ? -1. : -1e-3; };
  ArraysOf<K> x(how);
  StateBuffers initial = states_of<K>(x), between = states_of<K>(x), last = states_of<K>(x);
  make_empty<K>(initial, x);
  Forward<typename K::T, K::P, K::d> before(x, 0, cut), after(x, cut);
  host::Report first = before.run({}, rotary ? &initial : nullptr, &between), second = after.run({}, &between, &last);
  x.rows.check_stored(second, "rows");
  INFO(first.text());
  INFO(second.text());
  REQUIRE((first.clean() && second.clean()));
  REQUIRE(wrong<typename K::T, K::P, K::d>(x, {false, cut}) == "");
}

/// NaN or an infinity in a token's key, value or query, or a NaN gate: rows that see it are NaN, all others are right;
/// but before a value rows of its 128 tokens are NaN, too, and those behind a reset in its 32: these are multiplied
/// together, with weights of 0.
template <class K>
void check_not_a_number(int length) {
  for (const auto& [place, reset] : {std::pair(5, 98), {70, 95}, {70, 96}})  // resets about the border of a tile
    for (const int what : {0, 1, 2, 3}) {
      CAPTURE(place, reset, what);
      if (what == 1 && reset / 32 == place / 32) continue;
      Case how = case_of<K>({length});
      how.log_gate = [last = reset](int t) { return t == last ? -infinity : -.01; };
      for (const bool chunked : {true, false}) {
        if (!chunked) how.chunk = (length + 63) / 64 * 64;
        ArraysOf<K> x(how);
        if (what == 3)
          x.gates.data.set(x.gates.at(0, place, 0, 0), std::numeric_limits<float>::quiet_NaN());
        else
          x.set(what == 0   ? x.keys
                : what == 1 ? x.values
                            : x.queries,
                0, place, 0, 3, place == 5 ? not_a_number : infinity);
        Forward<typename K::T, K::P, K::d> forward(x);
        const host::Report report = chunked ? forward.run({}) : forward.run_quadratic({});
        INFO(report.text());
        REQUIRE(report.clean());
        RowsOfHead<typename K::T, K::P, K::d> rows(x, {!chunked, 0}, 0, 0);
        for (int t = 0; t < length; ++t)
          if (what != 1 || t >= place || t / 128 != place / 128) REQUIRE(rows.wrong(t) == "");
      }
    }
}

/// What a reset hides from all rows of a block is not read: the state before it, keys and values.
template <class K>
void check_hidden() {
  using Kernel = Attention<typename K::T, K::P, K::d>;
  constexpr int rows = Kernel::rows_of_block;
  CAPTURE(K::P, K::d);
  const auto sectors = [](int length, int chunk, const std::function<double(int)>& gate, bool has_state) {
    Case how = case_of<K>({length});
    how.chunk = chunk;
    how.log_gate = gate;
    ArraysOf<K> x(how);
    Forward<typename K::T, K::P, K::d> forward(x);
    forward.by_pairs = true;
    REQUIRE((has_state ? forward.states({}) : forward.weights({})).clean());
    const host::Report report = forward.attention({}, has_state);
    REQUIRE(report.clean());
    return report.global().ideal;
  };
  const auto first_tokens = [](int t) { return t % 64 == 0 ? -infinity : 0.; };
  REQUIRE(sectors(128, 64, first_tokens, true) == sectors(128, 64, first_tokens, false));
  const auto one_token = [&](int reset) {  // in the stage of 64 keys before the second block
    return sectors(rows + 10, rows + 64, [=](int t) { return t == reset ? -infinity : 0.; }, false);
  };
  REQUIRE(one_token(rows - 63) - one_token(rows - 1) ==
          62 * (K::d + 64) * static_cast<long>(sizeof(typename K::T)) / 32);
}

/// Three orders of warps give equal bits; all sums of an mma that PTX permits hold the bound.
template <class K>
void check_orders(const Case& how) {
  for (const auto mma : {host::MmaSum::hopper, host::MmaSum::nearest, host::MmaSum::toward_zero})
    for (const bool chunked : {true, false}) {
      std::string first;
      for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
        if (mma != host::MmaSum::hopper && schedule != host::Schedule::forward) continue;
        Case other = how;
        if (!chunked) other.chunk = (how.lengths[0] + 63) / 64 * 64;
        ArraysOf<K> x(other);
        CAPTURE(K::P, K::d, static_cast<int>(mma), chunked, static_cast<int>(schedule));
        REQUIRE(run<K>(x, chunked, {schedule, 5, mma, {}}) == "");
        const std::string rows = bits(x.rows.data, x.condition.data);
        if (first.empty()) first = rows;
        REQUIRE(rows == first);
      }
    }
}

/// All of it.
template <class K>
void check_all() {
  SECTION("layouts") { check_layouts<K>(300); }
  SECTION("gates") { check_gates<K>(200); }
  SECTION("norms") { check_norms<K>(140); }
  SECTION("zeros") { check_zeros<K>(140); }
  SECTION("joined") {
    check_joined<K>({200, 129, 40}, 70);
    check_joined<K>({140}, 64);
  }
  SECTION("not a number") { check_not_a_number<K>(140); }
  SECTION("orders") {
    Case how = case_of<K>({130});
    how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
    check_orders<K>(how);
  }
  SECTION("longer chunks") {
    Case how = case_of<K>({127, 128, 300});
    how.chunk = 128;
    how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
    check<K>(how);
  }
}

/// Some of it, for many monomials.
template <class K>
void check_some() {
  Case how = case_of<K>({67, 0, 1});
  how.heads = {2, 1, 1};
  how.log_gate = [](int t) { return t == 20 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  SECTION("packed") {
    how.packed = true;
    check<K>(how);
  }
  SECTION("norms") {
    how.heads = {1, 1, 1};
    how.key_decades = how.query_decades = 2;
    check<K>(how);
  }
  SECTION("joined") { check_joined<K>({80}, 64); }
}

}  // namespace sympow::test
