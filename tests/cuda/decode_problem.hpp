// New tokens against states and tails: inputs, and what the kernels make of them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "decode/finish_rows.hpp"
#include "decode/read_state.hpp"
#include "decode_monomials.hpp"
#include "decode_rotary.hpp"
#include "reports.hpp"

namespace sympow::test {

using namespace sympow::cuda::block;
namespace host = sympow::cuda::block::host;
namespace cuda = sympow::cuda;

inline constexpr double infinity = std::numeric_limits<double>::infinity();

enum class Gates { none, slow, steep, resets };

struct DecodeCase {
  int query = 2, state = 2, key = 1, tokens = 1, tail = 5, e = 16;
  Gates gates = Gates::slow;
  double decades = 0;  // lengths of keys: 10^-decades … 10^decades
  bool normalised = true;
  int rows = 0;  // of a slab; 0: as on a GPU of 132 multiprocessors
  int batch = 2;
  int pad = 8;                          // entries between rows
  std::optional<Rotation> rotary = {};  // beta positive
};

/// Every entry of the inputs can be changed before `run`.
template <class T, int P, int d, int Q>
class DecodeProblem {
 public:
  using Read = cuda::ReadState<T, P, d, Q>;
  using Finish = cuda::FinishRows<T, d>;
  using Type = T;
  static constexpr int degree = P, channels = d;
  using Channels = std::array<double, std::size_t{d}>;
  static constexpr int D = Read::D, older = 12;
  static constexpr double scale = P % 2 == 0 ? .5 : -.5;
  /// Rounding to T: relative, and of numbers near 0.
  static constexpr double own_u = fraction_bits<T> == 7 ? 0x1p-8 : fraction_bits<T> == 10 ? 0x1p-11 : 0x1p-24;
  static constexpr double least = fraction_bits<T> == 7 ? 0x1p-134 : fraction_bits<T> == 10 ? 0x1p-25 : 0x1p-150;

  const std::vector<MonomialOf<P, d>> monomials = MonomialOf<P, d>::all();
  DecodeCase c;
  float noise = Finish::default_noise;
  int capacity, group, slab_rows, slabs;
  std::int64_t pad;
  host::Buffer<T> queries, keys, values, y, tail_keys, tail_values;
  host::Buffer<float> log_gates, tail_gates, condition, sums, normaliser, mass, parts, normaliser_parts;
  host::Buffer<double> level;
  DecodeRotary rotary;

  explicit DecodeProblem(const DecodeCase& of, unsigned seed = 1)
      : c(of),
        capacity(c.tail + c.tokens),
        group(c.query / c.state),
        slab_rows(c.rows ? c.rows : Read::rows(132, std::int64_t{c.batch} * c.state)),
        slabs(Read::slabs(slab_rows)),
        pad(c.pad),
        queries(size(c.batch, c.tokens, c.query, d + pad)),
        keys(size(c.batch, c.tokens, c.key, d + pad)),
        values(size(c.batch, c.tokens, c.key, c.e + pad)),
        y(size(c.batch, c.tokens, c.query, c.e + pad)),
        tail_keys(size(c.batch, c.key, capacity, d)),
        tail_values(size(c.batch, c.key, capacity, c.e)),
        log_gates(size(c.batch, c.tokens, c.state)),
        tail_gates(size(c.batch, c.state, capacity)),
        condition(size(c.batch, c.tokens, c.query)),
        sums(size(c.batch, c.state, D, c.e)),
        normaliser(size(c.batch, c.state, D)),
        mass(size(c.batch, c.state)),
        parts(size(c.batch, c.query, c.tokens, slabs, c.e)),
        normaliser_parts(size(c.batch, c.query, c.tokens, slabs)),
        level(size(c.batch, c.state)),
        rotary(c.rotary, c.batch, c.key, c.tail, c.tokens, d),
        random_(seed) {
    for (int b = 0; b < c.batch; ++b) {
      for (int t = 0; t < c.tokens; ++t) {
        for (int h = 0; h < c.query; ++h) fill(queries, row(b, t, c.query, h, d), d, c.decades);
        for (int h = 0; h < c.key; ++h) fill(keys, row(b, t, c.key, h, d), d, c.decades);
        for (int h = 0; h < c.key; ++h) fill(values, row(b, t, c.key, h, c.e), c.e, 0);
        for (int h = 0; h < c.state; ++h) log_gates.set(at(b, t, c.tokens, h, c.state), gate());
      }
      for (int t = 0; t < c.tail; ++t) {
        for (int h = 0; h < c.key; ++h) fill(tail_keys, at(b, h, c.key, t, capacity) * d, d, c.decades);
        for (int h = 0; h < c.key; ++h)
          fill(tail_values, at(b, h, c.key, t, capacity) * static_cast<std::size_t>(c.e), c.e, 0);
        for (int h = 0; h < c.state; ++h) tail_gates.set(at(b, h, c.state, t, capacity), gate());
      }
      for (int h = 0; h < c.state; ++h) fold(b, h);
    }
  }

  // Entries of tokens.
  static std::size_t at(int i, int j, int of_j, int k, int of_k) {
    return (static_cast<std::size_t>(i) * static_cast<std::size_t>(of_j) + static_cast<std::size_t>(j)) *
               static_cast<std::size_t>(of_k) +
           static_cast<std::size_t>(k);
  }
  std::size_t row(int b, int t, int heads, int h, int width) const {
    return at(b, t, c.tokens, h, heads) * static_cast<std::size_t>(width + pad);
  }
  /// The first channel of the key or value of token t of what a head sees: those of the tail, then the new ones.
  template <class Of>
  double channel(const host::Buffer<Of>& tail, const host::Buffer<Of>& fresh, int b, int h, int t, int width,
                 int n) const {
    const auto entry = static_cast<std::size_t>(n);
    if (t < c.tail) return to_float(tail[at(b, h, c.key, t, capacity) * static_cast<std::size_t>(width) + entry]);
    return to_float(fresh[row(b, t - c.tail, c.key, h, width) + entry]);
  }
  /// A key, and how far the kernels' may be off: new ones turn, and are rounded.
  Channels key_of(int b, int h, int t, Channels& off) const {
    Channels key;
    off = {};
    for (int n = 0; n < d; ++n) key[static_cast<std::size_t>(n)] = channel(tail_keys, keys, b, h, t, d, n);
    if (c.rotary && t >= c.tail) turn(key, off, b, h, t, own_u, least);
    return key;
  }
  /// The row of a token turns, rounded to u and η.
  void turn(Channels& x, Channels& off, int b, int h, int t, double u, double eta) const {
    turn_row(x.data(), d, c.rotary->halves, rotary.angle(b, h, t));
    const std::vector<double> offs = turned_off(x.data(), d, c.rotary->halves, u, eta);
    std::copy(offs.begin(), offs.end(), off.begin());
  }
  double gate(int b, int h, int t) const {
    if (c.gates == Gates::none) return 0;
    return t < c.tail ? tail_gates[at(b, h, c.state, t, capacity)] : log_gates[at(b, t - c.tail, c.tokens, h, c.state)];
  }

  /// Both kernels. Faults and sites of both.
  host::Report run(const host::Options& options = {}) {
    const auto strides = [&](int heads, std::int64_t head) {
      return std::array<std::int64_t, 3>{c.tokens * heads * head, heads * head, head};
    };
    const auto q = strides(c.query, d + pad), k = strides(c.key, d + pad), v = strides(c.key, c.e + pad);
    const auto o = strides(c.query, c.e + pad), g = strides(c.state, 1), n = strides(c.query, 1);
    const bool gated = c.gates != Gates::none;
    const cuda::Rows<const T> query{queries, q[0], q[1], q[2]};
    const cuda::NewTokens<T> fresh{{keys, k[0], k[1], k[2]},
                                   {values, v[0], v[1], v[2]},
                                   {gated ? Global<const float>(log_gates) : Global<const float>(), g[0], g[1], g[2]}};
    const cuda::TailArrays<T> tail{
        tail_keys, tail_values, gated ? Global<float>(tail_gates) : Global<float>(), capacity, {c.tail}};
    const cuda::Heads heads{c.query, c.state, c.key};
    const cuda::States states{sums, normaliser, level, mass};
    const cuda::StateParts state_parts{parts, normaliser_parts};
    host::Report report = rotary.run(options);
    const host::Report first = host::launch<Read>(
        grid(Read::blocks(c.batch, c.query, c.state, c.tokens, slab_rows)),
        {query, fresh, tail, states, state_parts, heads, c.tokens, c.e, slab_rows, rotary.arguments()}, options);
    join(report, first);
    parts.check_stored(report, "parts", [](std::size_t) { return true; });
    normaliser_parts.check_stored(report, "normaliser parts", [](std::size_t) { return true; });
    tail_keys.check_stored(report, "keys of the tail", [](std::size_t) { return true; });
    tail_values.check_stored(report, "values of the tail", [](std::size_t) { return true; });
    tail_gates.check_stored(report, "gates of the tail", [&](std::size_t i) {
      return gated || i % static_cast<std::size_t>(capacity) < static_cast<std::size_t>(c.tail);
    });
    if (!report.clean()) return report;
    const typename Finish::Args args{query,
                                     tail,
                                     states,
                                     state_parts,
                                     {y, o[0], o[1], o[2]},
                                     {condition, n[0], n[1], n[2]},
                                     heads,
                                     c.tokens,
                                     slabs,
                                     P,
                                     c.e,
                                     c.normalised,
                                     noise,
                                     std::pow(scale, P),
                                     rotary.arguments()};
    const host::Report second = host::launch<Finish>(grid(Finish::blocks(c.batch, c.query, c.tokens)), args, options);
    join(report, second);
    y.check_stored(report, "y", [&](std::size_t i) {
      return i % static_cast<std::size_t>(c.e + pad) < static_cast<std::size_t>(c.e);
    });
    condition.check_stored(report, "condition", [](std::size_t) { return true; });
    return report;
  }

  /// Whether new tokens stand in the tail.
  bool appended() const {
    bool all = rotary.appended();
    for (int b = 0; b < c.batch; ++b)
      for (int t = 0; t < c.tokens; ++t) {
        for (int h = 0; h < c.key; ++h) {
          const std::size_t to = at(b, h, c.key, t + c.tail, capacity);
          Channels off;
          const Channels key = key_of(b, h, t + c.tail, off);
          for (std::size_t n = 0; n < d; ++n) {
            const T is = tail_keys[to * d + n];
            all = all && (c.rotary ? std::abs(to_float(is) - key[n]) <= off[n]
                                   : bits_of(is) == bits_of(keys[row(b, t, c.key, h, d) + n]));
          }
          for (std::size_t n = 0; n < static_cast<std::size_t>(c.e); ++n)
            all = all && bits_of(tail_values[to * static_cast<std::size_t>(c.e) + n]) ==
                             bits_of(values[row(b, t, c.key, h, c.e) + n]);
        }
        for (int h = 0; h < c.state && c.gates != Gates::none; ++h)
          all = all && tail_gates[at(b, h, c.state, t + c.tail, capacity)] == log_gates[at(b, t, c.tokens, h, c.state)];
      }
    return all;
  }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (std::size_t i = 0; i < y.size(); ++i) all.push_back(bits_of(y[i]));
    return all;
  }

 private:
  static std::uint32_t bits_of(T x) {
    if constexpr (sizeof(T) == 2)
      return x.bits;
    else
      return std::bit_cast<std::uint32_t>(x);
  }
  template <class... I>
  static std::size_t size(I... i) {
    return (static_cast<std::size_t>(i) * ...);
  }
  static host::Grid grid(cuda::Blocks blocks) { return {static_cast<int>(blocks.x), blocks.y, blocks.z}; }

  void fill(host::Buffer<T>& buffer, std::size_t first, int width, double decades) {
    const double length = std::pow(10, std::uniform_real_distribution(-decades, decades)(random_));
    for (std::size_t n = 0; n < static_cast<std::size_t>(width); ++n)
      buffer.set(first + n, round_to<T>(static_cast<float>(length * normal_(random_) / std::sqrt(width))));
  }
  float gate() {
    const double x = uniform_(random_);
    if (c.gates == Gates::steep) return x < .2 ? -1000.f : static_cast<float>(-x);
    if (c.gates == Gates::resets) return x < .1 ? -std::numeric_limits<float>::infinity() : static_cast<float>(-.1 * x);
    return static_cast<float>(-.02 * x);
  }
  /// A state of tokens that decay, as it is kept in float.
  void fold(int b, int h) {
    std::vector<Channels> k(older);
    std::vector<double> weight(older);
    double highest = -infinity;
    for (int t = 0; t < older; ++t) {
      auto& key = k[static_cast<std::size_t>(t)];
      const double length = std::pow(10, std::uniform_real_distribution(-c.decades, c.decades)(random_));
      double square = 0;
      for (double& x : key) {
        x = to_float(round_to<T>(static_cast<float>(length * normal_(random_) / std::sqrt(d))));
        square += x * x;
      }
      weight[static_cast<std::size_t>(t)] = -.02 * (older - t);
      highest = std::max(highest, weight[static_cast<std::size_t>(t)] + P * std::ceil(std::log2(square) / 2));
    }
    const std::size_t state = at(b, h, c.state, 0, 1), width = static_cast<std::size_t>(c.e);
    std::vector<double> S(width), values_of(older * width);
    for (double& v : values_of) v = normal_(random_);
    double A = 0;
    for (std::size_t t = 0; t < older; ++t) {
      double square = 0;
      for (const double x : k[t]) square += x * x;
      weight[t] = std::exp2(weight[t] - std::ceil(highest));
      A += weight[t] * std::pow(square, P / 2.);
    }
    for (std::size_t m = 0; m < D; ++m) {
      double Z = 0;
      std::fill(S.begin(), S.end(), 0);
      for (std::size_t t = 0; t < older; ++t) {
        const double phi = weight[t] * monomials[m].of(k[t]) / monomials[m].coefficient;
        Z += phi;
        for (std::size_t n = 0; n < width; ++n) S[n] += phi * values_of[t * width + n];
      }
      normaliser.set(state * D + m, static_cast<float>(Z));
      for (std::size_t n = 0; n < width; ++n) sums.set((state * D + m) * width + n, static_cast<float>(S[n]));
    }
    level.set(state, highest);
    mass.set(state, static_cast<float>(A));
  }

  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
};

}  // namespace sympow::test
