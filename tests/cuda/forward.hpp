// A forward pass on the host: random queries, keys, values and gates through all kernels of attention.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention/linear_attention.hpp"
#include "batches.hpp"
#include "levels/levels.hpp"
#include "paths/paths.hpp"
#include "reports.hpp"
#include "scan/scan.hpp"
#include "turned.hpp"
#include "update/update.hpp"
#include "weights/weights.hpp"

namespace sympow::test {

/// What is computed, and how the numbers are drawn.
struct Case {
  std::vector<int> lengths;
  bool packed = false;
  Heads heads = {1, 1, 1};
  int e = 64, chunk = 64;
  std::function<double(int)> log_gate = {};   ///< of token t; none: no gates
  double key_decades = 0, query_decades = 0;  ///< norms are 10^± this
  bool normalised = true;
  double scale = 1;
  float noise = 0x1p-12f;               ///< τ
  Products products = Products::exact;  ///< of floats
  std::optional<Rotation> rotary = {};
  bool is_split = false;     ///< states between chunks
  bool has_factors = false;  ///< they are written, for gradients
  /// Monomials of queries and of weighted keys are numbers of T: powers of 2, or P 1; and no gates.
  bool is_exact = false;
};

/// Numbers by tokens, heads and channels. Eight entries that nobody may touch lie between rows.
template <class X>
struct Tokens {
  static constexpr int gap = 8;
  const Batch& batch;
  int heads, width;
  host::Buffer<X> data;

  Tokens(const Batch& of, int h, int w) : batch(of), heads(h), width(w), data(index(of.tokens() * h * (w + gap))) {}
  [[nodiscard]] std::size_t at(int b, int t, int h, int c) const {
    return index(((batch.first(b) + t) * heads + h) * (width + gap) + c);
  }
  /// As a kernel takes them, from token `from` of padded sequences on.
  template <class U>
  Rows<U> rows(int from = 0) {
    const std::int64_t token = std::int64_t{heads} * (width + gap);
    Global<U> memory = data;
    memory.data += from * token;
    return {memory, batch.packed ? 0 : batch.longest * token, token, width + gap};
  }
  /// Faults unless rows of all tokens, and nothing else, were stored.
  void check_stored(host::Report& report, const char* name) const {
    std::vector<bool> expected(data.size());
    for (int b = 0; b < batch.size(); ++b)
      for (int t = 0; t < batch.length(b); ++t)
        for (int h = 0; h < heads; ++h)
          for (int c = 0; c < width; ++c) expected[at(b, t, h, c)] = true;
    data.check_stored(report, name, [&](std::size_t i) { return bool{expected[i]}; });
  }
};

/// The arrays of a caller.
template <class T, int d>
struct Arrays {
  Case how;
  Batch batch;
  Tokens<T> queries, keys, values, rows;
  Tokens<float> gates, condition, factors, beta;
  host::Buffer<double> rates;

  explicit Arrays(const Case& of)
      : how(of),
        batch(of.lengths, of.packed, of.chunk),
        queries(batch, of.heads.query, d),
        keys(batch, of.heads.key, d),
        values(batch, of.heads.key, of.e),
        rows(batch, of.heads.query, of.e),
        gates(batch, of.heads.state, 1),
        condition(batch, of.heads.query, 1),
        factors(batch, of.heads.query, 1),
        beta(batch, of.heads.key, 1),
        rates(d / 2) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(-1, 1);
    const auto fill = [&](Tokens<T>& x, double decades) {
      for (int b = 0; b < batch.size(); ++b)
        for (int t = 0; t < batch.length(b); ++t)
          for (int h = 0; h < x.heads; ++h) {
            const double size = std::pow(10., decades * uniform(random));
            for (int c = 0; c < x.width; ++c) set(x, b, t, h, c, size * normal(random));
          }
    };
    fill(queries, how.query_decades);
    fill(keys, how.key_decades);
    fill(values, 0);
    for (int b = 0; b < batch.size(); ++b)
      for (int t = 0; t < batch.length(b); ++t)
        for (int h = 0; h < how.heads.state; ++h)
          gates.data.set(gates.at(b, t, h, 0), how.log_gate ? static_cast<float>(how.log_gate(t + h)) : 0.f);
    for (int j = 0; j < d / 2; ++j) rates.set(index(j), Rotation::rate(j, d / 2));
    for (int b = 0; b < batch.size() && how.rotary; ++b)
      for (int t = 0; t < batch.length(b); ++t)
        for (int h = 0; h < how.heads.key; ++h)
          beta.data.set(beta.at(b, t, h, 0), static_cast<float>(how.rotary->step(t, h)));
  }
  static void set(Tokens<T>& x, int b, int t, int h, int c, double number) {
    x.data.set(x.at(b, t, h, c), round_to<T>(static_cast<float>(number)));
  }
  static void set_row(Tokens<T>& x, int b, int t, int h, double number) {
    for (int c = 0; c < x.width; ++c) set(x, b, t, h, c, number);
  }
};

/// States of all sequences and heads, as kernels pass them on.
struct StateBuffers {
  StateBuffers(int count, int D, int e, int angles)
      : sums(index(count * D * e)),
        normaliser(index(count * D)),
        level(index(count)),
        mass(index(count)),
        turns(index(angles)) {}
  States arrays() { return {sums, normaliser, level, mass}; }

  host::Buffer<float> sums, normaliser;
  host::Buffer<double> level;
  host::Buffer<float> mass;
  host::Buffer<double> turns;
};

/// The kernels over tokens from … to - 1 of each sequence, and all that they keep.
template <class T, int P, int d>
struct Forward {
  static constexpr int D = monomial_count(P, d);
  Arrays<T, d>& x;
  int from;
  Batch batch;
  TokenBuffers tokens;
  ChunkBuffers chunks;
  host::Buffer<float> own_sums, own_normaliser;
  host::Buffer<T> prefix_sums, prefix_normaliser, prefix_rest;
  host::Buffer<double> paths, begin;  // of rotary, as the next
  host::Buffer<T> turned;
  static constexpr bool is_linear = goes_along<T, P, d>;  // rows with states, by LinearAttention
  bool by_pairs = false;                                  // by Attention in any case
  Global<float> whole = {};  // normalisers of states as gradients read them, in place of `prefix_normaliser`

  explicit Forward(Arrays<T, d>& arrays, int first = 0, int end = 1 << 30)
      : x(arrays),
        from(first),
        batch(part(arrays.batch.lengths, first, end), arrays.batch.packed, arrays.batch.chunk),
        tokens(slots() * batch.chunk),
        chunks(slots()),
        own_sums(index(slots() * D * x.how.e)),
        own_normaliser(index(slots() * D)),
        prefix_sums(index(slots() * state_rows(P, d) * x.how.e)),
        prefix_normaliser(index(slots() * state_rows(P, d) * 4)),
        prefix_rest(x.how.is_split ? prefix_sums.size() : 0),
        paths(index(x.how.rotary ? batch.tokens() * heads().key : 0)),
        begin(index(x.how.rotary ? batch.size() * heads().key * d / 2 : 0)),
        turned(paths.size() * d) {}
  [[nodiscard]] int slots() const { return x.how.heads.state * batch.slots; }

  /// The quadratic form: no states, so a chunk must hold a whole sequence.
  host::Report run_quadratic(const host::Options& options) {
    host::Report report = weights(options, nullptr, nullptr);
    by_pairs = true;
    join(report, attention(options, false));
    by_pairs = false;
    return report;
  }
  host::Report run(const host::Options& options, StateBuffers* initial = nullptr, StateBuffers* final = nullptr) {
    host::Report report = states(options, initial, final);
    join(report, attention(options, true));
    return report;
  }
  /// All but the rows.
  host::Report states(const host::Options& options, StateBuffers* initial = nullptr, StateBuffers* final = nullptr) {
    host::Report report = weights(options, initial, final);
    const States before = initial ? initial->arrays() : States{}, after = final ? final->arrays() : States{};
    join(report, launch<Levels>(Levels::blocks(batch.sequences(), heads()),
                                {batch.sequences(), heads(), chunks.arrays(), before, after}, options));
    join(report, update(options));
    join(report, launch<Scan<T>>(Scan<T>::blocks(batch.sequences(), heads(), P, d, x.how.e),
                                 {{own_sums, own_normaliser},
                                  chunks.arrays(),
                                  prefixes(),
                                  before,
                                  after,
                                  batch.sequences(),
                                  heads(),
                                  P,
                                  d,
                                  x.how.e},
                                 options));
    return report;
  }
  host::Report weights(const host::Options& options, StateBuffers* initial = nullptr, StateBuffers* final = nullptr) {
    host::Report report;
    if (x.how.rotary)
      report = launch<Paths>(Paths::blocks(batch.size(), heads().key),
                             {x.how.rotary->beta ? x.beta.template rows<const float>(from) : Rows<const float>{},
                              dense<double>(paths, 1),
                              batch.sequences(),
                              {},
                              heads().key,
                              d / 2,
                              x.rates,
                              initial ? Global<const double>(initial->turns) : Global<const double>{},
                              begin,
                              final ? Global<double>(final->turns) : Global<double>{}},
                             options);
    join(report, launch<Weights<T>>(Weights<T>::blocks(batch.sequences(), heads()),
                                    {x.keys.template rows<const T>(from),
                                     x.how.log_gate ? x.gates.template rows<const float>(from) : Rows<const float>{},
                                     batch.sequences(), heads(), d, P, is_linear ? tokens.with_mass() : tokens.arrays(),
                                     chunks.arrays(), rotary(), dense<T>(turned, d)},
                                    options));
    return report;
  }
  host::Report update(const host::Options& options) {
    if constexpr (sizeof(T) == 4)
      if (x.how.products == Products::fast) return update<Products::fast>(options);
    return update<Products::exact>(options);
  }
  template <Products products>
  host::Report update(const host::Options& options) {
    using Kernel = Update<T, P, d, products>;
    return launch<Kernel>(Kernel::blocks(batch.sequences(), heads(), x.how.e),
                          {keys(),
                           x.values.template rows<const T>(from),
                           tokens.arrays(),
                           batch.sequences(),
                           heads(),
                           {own_sums, own_normaliser},
                           x.how.e},
                          options);
  }
  host::Report attention(const host::Options& options, bool has_state) {
    if constexpr (sizeof(T) == 4)
      if (x.how.products == Products::fast) return attention<Products::fast>(options, has_state);
    return attention<Products::exact>(options, has_state);
  }
  template <Products products>
  host::Report attention(const host::Options& options, bool has_state) {
    if constexpr (is_linear)
      if (!by_pairs) return rows<LinearAttention<T, d>>(options, has_state);
    return rows<Attention<T, P, d, products>>(options, has_state);
  }
  template <class Kernel>
  host::Report rows(const host::Options& options, bool has_state) {
    const double scale = x.how.scale;
    return launch<Kernel>(
        Kernel::blocks(batch.sequences(), heads(), x.how.e),
        {x.queries.template rows<const T>(from), keys(), x.values.template rows<const T>(from),
         x.rows.template rows<T>(from), x.condition.template rows<float>(from),
         is_linear ? tokens.with_mass() : tokens.arrays(), chunks.arrays(), prefixes(), batch.sequences(), heads(),
         x.how.e, has_state, x.how.normalised, P * std::log2(std::abs(scale)), scale < 0 && P % 2 == 1 ? -1.f : 1.f,
         x.how.noise, rotary(), x.how.has_factors ? x.factors.template rows<float>(from) : Rows<float>{}},
        options);
  }
  [[nodiscard]] const Heads& heads() const { return x.how.heads; }
  /// Faults unless the keys of all tokens, and nothing else, were stored as they turn.
  void check_turned(host::Report& report) const {
    std::vector<bool> expected(turned.size());
    for (int b = 0; b < batch.size() && x.how.rotary; ++b)
      for (int i = 0; i < batch.length(b) * heads().key * d; ++i)
        expected[index(batch.first(b) * heads().key * d + i)] = true;
    turned.check_stored(report, "turned keys", [&](std::size_t i) { return bool{expected[i]}; });
  }

  /// An array [B, T, heads, width] of the workspace; [B, T, Hk, width].
  template <class U, class Memory>
  Rows<U> dense(Memory& memory, int width, int of) {
    const std::int64_t token = std::int64_t{of} * width;
    return {memory, batch.packed ? 0 : batch.longest * token, token, width};
  }
  template <class U, class Memory>
  Rows<U> dense(Memory& memory, int width) {
    return dense<U>(memory, width, heads().key);
  }
  template <class Kernel>
  static host::Report launch(const Blocks& blocks, const typename Kernel::Args& args, const host::Options& options) {
    return host::launch<Kernel>(grid(blocks), args, options);
  }

  Prefixes<T> prefixes() {
    return {prefix_sums, prefix_normaliser, x.how.is_split ? Global<T>(prefix_rest) : Global<T>{}, whole};
  }

  Rotary rotary() {
    if (!x.how.rotary) return {};
    return {x.rates, dense<const double>(paths, 1), begin, heads().key, x.how.rotary->halves};
  }
  Rows<const T> keys() { return x.how.rotary ? dense<const T>(turned, d) : x.keys.template rows<const T>(from); }

 private:
  static std::vector<int> part(std::vector<int> lengths, int first, int end) {
    for (int& length : lengths) length = std::clamp(length, first, std::max(first, end)) - first;
    return lengths;
  }
};

}  // namespace sympow::test
