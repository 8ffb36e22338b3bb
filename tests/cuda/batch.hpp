// A batch on the host: random queries, keys, values and gates, the kernels of a forward pass, and what must come out.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "attention/attention.hpp"
#include "block/host/machine.hpp"
#include "levels/levels.hpp"
#include "scan/scan.hpp"
#include "update/update.hpp"
#include "weights/weights.hpp"

namespace sympow::test {

using namespace sympow::cuda;
using block::bf16, block::fp16;
namespace host = block::host;

/// The sizes of a batch of padded sequences, and how its numbers are drawn.
struct Sizes {
  int batch = 1, longest = 100;
  Heads heads = {1, 1, 1};
  int e = 64, chunk = 64;
  std::vector<std::int32_t> lengths = {};              ///< none: all are `longest`
  double key_decades = 0, query_decades = 0;           ///< norms are 10^± this
  std::function<double(int)> log_gate = {};            ///< of token t; none: no gates
  bool normalised = true;
  double scale = 1;
  unsigned seed = 1;
};

template <class T>
constexpr double unit_roundoff = std::is_same_v<T, bf16> ? 0x1p-8 : 0x1p-11;

inline host::Grid grid(const Blocks& blocks) { return {static_cast<int>(blocks.x), blocks.y, 1}; }

/// [B, T, H, D] with rows next to each other.
template <class T>
struct Array4 {
  int tokens, heads, width;
  host::Buffer<T> data;
  Array4(int batch, int t, int h, int w)
      : tokens(t), heads(h), width(w), data(static_cast<std::size_t>(batch) * static_cast<std::size_t>(t * h * w)) {}
  [[nodiscard]] std::size_t at(int b, int t, int h, int c) const {
    return ((static_cast<std::size_t>(b) * static_cast<std::size_t>(tokens) + static_cast<std::size_t>(t)) *
                static_cast<std::size_t>(heads) + static_cast<std::size_t>(h)) * static_cast<std::size_t>(width) +
           static_cast<std::size_t>(c);
  }
  template <class U>
  Rows<U> rows() {
    const std::int64_t token = std::int64_t{heads} * width;
    return {data, token * tokens, token, width};
  }
};

/// Runs a forward pass of P and d, and keeps everything.
template <class T, int P, int d>
struct Forward {
  static constexpr int D = monomial_count(P, d);
  Sizes sizes;
  Array4<T> q, k, v, y;
  Array4<float> gates, condition;
  host::Buffer<std::int32_t> lengths;
  Sequences sequences{};
  std::size_t chunks, tokens;
  host::Buffer<double> sum, key, level, total, end, enter;
  host::Buffer<float> inverse, to_end, own_mass, mass, keep, add, own_sums, own_normaliser;
  host::Buffer<std::int32_t> reset, shift;
  host::Buffer<T> prefix_sums, prefix_normaliser;

  explicit Forward(const Sizes& s)
      : sizes(s), q(s.batch, s.longest, s.heads.query, d), k(s.batch, s.longest, s.heads.key, d),
        v(s.batch, s.longest, s.heads.key, s.e), y(s.batch, s.longest, s.heads.query, s.e),
        gates(s.batch, s.longest, s.heads.state, 1), condition(s.batch, s.longest, s.heads.query, 1), lengths(s.lengths.size()),
        chunks(static_cast<std::size_t>(s.heads.state) * static_cast<std::size_t>(slots(s))), tokens(chunks * static_cast<std::size_t>(s.chunk)),
        sum(tokens), key(tokens), level(tokens), total(chunks), end(chunks), enter(chunks), inverse(tokens), to_end(tokens),
        own_mass(chunks), mass(chunks), keep(chunks), add(chunks), own_sums(chunks * D * static_cast<std::size_t>(s.e)),
        own_normaliser(chunks * D), reset(tokens), shift(chunks), prefix_sums(chunks * D * static_cast<std::size_t>(s.e)),
        prefix_normaliser(chunks * D * 4) {
    std::mt19937 random(s.seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(-1, 1);
    const auto fill = [&](Array4<T>& x, double decades) {
      for (std::size_t i = 0; i < x.data.size(); i += static_cast<std::size_t>(x.width)) {
        const double size = std::pow(10., decades * uniform(random));
        for (std::size_t c = 0; c < static_cast<std::size_t>(x.width); ++c)
          x.data.set(i + c, block::round_to<T>(static_cast<float>(size * normal(random))));
      }
    };
    fill(q, s.query_decades);
    fill(k, s.key_decades);
    fill(v, 0);
    for (int b = 0; b < s.batch; ++b)
      for (int t = 0; t < s.longest; ++t)
        for (int h = 0; h < s.heads.state; ++h)
          gates.data.set(gates.at(b, t, h, 0), s.log_gate ? static_cast<float>(s.log_gate(t + h)) : 0.f);
    for (std::size_t b = 0; b < s.lengths.size(); ++b) lengths.set(b, s.lengths[b]);
    sequences = {{}, s.lengths.empty() ? Global<const std::int32_t>{} : Global<const std::int32_t>(lengths), s.batch,
                 s.longest, s.chunk, slots(s)};
  }
  static int slots(const Sizes& s) { return s.batch * s.longest / s.chunk + s.batch; }
  [[nodiscard]] int length(int b) const { return sizes.lengths.empty() ? sizes.longest : sizes.lengths[static_cast<std::size_t>(b)]; }

  TokenArrays token_arrays() { return {sum, key, level, inverse, to_end, reset}; }
  ChunkArrays chunk_arrays() { return {total, end, own_mass, enter, mass, keep, add, shift}; }

  /// One report of all kernels. Quadratic: without states, the chunk holds all tokens.
  host::Report run(const host::Options& options, bool quadratic = false) {
    const Rows<const float> g = sizes.log_gate ? gates.template rows<const float>() : Rows<const float>{};
    host::Report all = host::launch<Weights<T>>(grid(Weights<T>::blocks(sequences, sizes.heads)),
      {k.template rows<const T>(), g, sequences, sizes.heads, d, P, token_arrays(), chunk_arrays()}, options);
    if (!quadratic) {
      add_report(all, host::launch<Levels>(grid(Levels::blocks(sequences, sizes.heads)), {sequences, sizes.heads, chunk_arrays(), {}, {}}, options));
      add_report(all, host::launch<Update<T, P, d>>(grid(Update<T, P, d>::blocks(sequences, sizes.heads, sizes.e)),
        {k.template rows<const T>(), v.template rows<const T>(), token_arrays(), sequences, sizes.heads, {own_sums, own_normaliser}, sizes.e}, options));
      add_report(all, host::launch<Scan<T>>(grid(Scan<T>::blocks(sequences, sizes.heads, D, sizes.e)),
        {{own_sums, own_normaliser}, chunk_arrays(), {prefix_sums, prefix_normaliser}, {}, {}, sequences, sizes.heads, P, d, D, sizes.e}, options));
    }
    add_report(all, host::launch<Attention<T, P, d>>(grid(Attention<T, P, d>::blocks(sequences, sizes.heads, sizes.e)),
      {q.template rows<const T>(), k.template rows<const T>(), v.template rows<const T>(), y.template rows<T>(),
       condition.template rows<float>(), token_arrays(), chunk_arrays(), {prefix_sums, prefix_normaliser}, sequences, sizes.heads, sizes.e,
       !quadratic, sizes.normalised, P * std::log2(std::abs(sizes.scale)), sizes.scale < 0 && P % 2 == 1 ? -1.f : 1.f, 0x1p-12f}, options));
    return all;
  }
  static void add_report(host::Report& all, host::Report&& more) {
    for (const auto& [what, times] : more.faults) all.faults[what] += times;
    for (const auto& [place, site] : more.sites) all.sites[place] = site;
  }

  /// The largest error of a row over its bound, 2^10 where a row is not finite; see `bound`.
  double error(bool quadratic = false) const {
    double worst = 0;
    const auto number = [](const Array4<T>& x, int b, int t, int h, int c) { return double{block::to_float(x.data[x.at(b, t, h, c)])}; };
    for (int b = 0; b < sizes.batch; ++b)
      for (int h = 0; h < sizes.heads.query; ++h) {
        const int hs = h / (sizes.heads.query / sizes.heads.state), hk = hs / (sizes.heads.state / sizes.heads.key);
        double largest = 0;
        for (int t = 0; t < length(b); ++t)
          for (int c = 0; c < sizes.e; ++c) largest = std::max(largest, std::abs(number(v, b, t, hk, c)));
        for (int i = 0; i < length(b); ++i) {
          // Everything relative to the largest log2 |weight|.
          std::vector<double> score(static_cast<std::size_t>(i + 1)), size(score.size()), exponent(score.size());
          double decay = 0, reference = -std::numeric_limits<double>::infinity();
          for (int j = i; j >= 0; --j) {
            double s = 0, a = 0;
            for (int c = 0; c < d; ++c) {
              const double product = number(q, b, i, h, c) * number(k, b, j, hk, c);
              s += product;
              a += std::abs(product);
            }
            const auto at = static_cast<std::size_t>(j);
            exponent[at] = decay + P * std::log2(a);
            score[at] = a > 0 ? std::pow(s / a, P) : 0;
            if (std::isfinite(exponent[at])) reference = std::max(reference, exponent[at]);
            decay += sizes.log_gate ? double{gates.data[gates.at(b, j, hs, 0)]} * std::log2(std::exp(1.)) : 0;
          }
          const int chunk_begin = quadratic ? 0 : i / sizes.chunk * sizes.chunk;
          double den = 0, through = 0, direct = 0;
          std::vector<double> row(static_cast<std::size_t>(sizes.e));
          for (int j = 0; j <= i; ++j) {
            const auto at = static_cast<std::size_t>(j);
            const double weight = std::isfinite(exponent[at]) ? std::exp2(exponent[at] - reference) : 0;
            den += weight * score[at];
            (j < chunk_begin ? through : direct) += j < chunk_begin ? weight : weight * std::abs(score[at]);
            for (int c = 0; c < sizes.e; ++c) row[static_cast<std::size_t>(c)] += weight * score[at] * number(v, b, j, hk, c);
          }
          constexpr double u = unit_roundoff<T>;
          const double unit = sizes.normalised ? 1 / den : std::exp2(reference) * std::pow(sizes.scale, P);
          const double bound = (((4 * P - 1) * through + 3 * direct) * u * std::abs(unit) + (through + direct) * std::abs(unit) * (sizes.longest / 16 + 1) * 8 * 0x1p-23) * largest * (1 + 0x1p-4);
          for (int c = 0; c < sizes.e; ++c) {
            const double exact = row[static_cast<std::size_t>(c)] * unit, got = number(y, b, i, h, c);
            const double error = std::abs(got - exact) / (bound + u * std::abs(exact) + 1e-300);
            worst = std::max(worst, error < 1024 ? error : 1024);
          }
        }
      }
    return worst;
  }
};

}  // namespace sympow::test
