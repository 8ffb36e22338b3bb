// New tokens against states and tails: what the kernels make of them, and the same in double.
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
  int pad = 8;  // entries between rows
};

/// Every entry of the inputs can be changed before `run`.
template <class T, int P, int d, int Q>
class DecodeProblem {
 public:
  using Read = cuda::ReadState<T, P, d, Q>;
  using Finish = cuda::FinishRows<T, d>;
  using Channels = std::array<double, std::size_t{d}>;
  static constexpr int D = Read::D, older = 12;
  static constexpr double scale = P % 2 == 0 ? .5 : -.5;

  DecodeCase c;
  int capacity, group, slab_rows, slabs;
  std::int64_t pad;
  host::Buffer<T> queries, keys, values, y, tail_keys, tail_values;
  host::Buffer<float> log_gates, tail_gates, condition, sums, normaliser, mass, parts, normaliser_parts;
  host::Buffer<double> level;

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
    const cuda::TailArrays<T> tail{tail_keys, tail_values, gated ? Global<float>(tail_gates) : Global<float>(),
                                   capacity, c.tail};
    const cuda::Heads heads{c.query, c.state, c.key};
    const cuda::States states{sums, normaliser, level, mass};
    const cuda::StateParts state_parts{parts, normaliser_parts};
    host::Report report =
        host::launch<Read>(grid(Read::blocks(c.batch, c.query, c.state, c.tokens, slab_rows)),
                           {query, fresh, tail, states, state_parts, heads, c.tokens, c.e, slab_rows}, options);
    parts.check_stored(report, "parts", [](std::size_t) { return true; });
    normaliser_parts.check_stored(report, "normaliser parts", [](std::size_t) { return true; });
    tail_keys.check_stored(report, "keys of the tail", [](std::size_t) { return true; });
    tail_values.check_stored(report, "values of the tail", [](std::size_t) { return true; });
    tail_gates.check_stored(report, "gates of the tail", [&](std::size_t i) {
      return gated || i % static_cast<std::size_t>(capacity) < static_cast<std::size_t>(c.tail);
    });
    if (!report.clean()) return report;
    const typename Finish::Args args{
        query,    tail,  states, state_parts, {y, o[0], o[1], o[2]}, {condition, n[0], n[1], n[2]}, heads,
        c.tokens, slabs, P,      c.e,         c.normalised,          Finish::default_noise,         std::pow(scale, P)};
    const host::Report second = host::launch<Finish>(grid(Finish::blocks(c.batch, c.query, c.tokens)), args, options);
    for (const auto& [what, times] : second.faults) report.faults[what] += times;
    for (const auto& [place, site] : second.sites) {
      host::Site& sum = report.sites[place];
      sum.instruction = site.instruction;
      sum.executed += site.executed;
      sum.shared.add(site.shared);
      sum.global.add(site.global);
      sum.masked = sum.masked || site.masked;
      sum.uneven = sum.uneven || site.uneven;
    }
    y.check_stored(report, "y", [&](std::size_t i) {
      return i % static_cast<std::size_t>(c.e + pad) < static_cast<std::size_t>(c.e);
    });
    condition.check_stored(report, "condition", [](std::size_t) { return true; });
    return report;
  }

  /// A row in double. A number of the kernel is a sum of exact terms; each is off by no more than the roundings on its way,
  /// u = 2^-24 each. Powers of 2 of x are off by ln 2 |x| u, for x as float, and 4 u (two units in the last place).
  struct Row {
    std::vector<double> y, bound;
    double condition = 0, condition_bound = 0;
    bool degenerate = false, either = false;  // either: rounding decides
  };
  Row expected(int b, int h, int i) const {
    constexpr double u = 0x1p-24, tiny = 0x1p-120, log2_e = 1.4426950408889634, ln_2 = 1 / log2_e;
    const int hs = h / group, hk = hs / (c.state / c.key), tokens = c.tail + i + 1;
    const double dot_roundings = 4 + std::log2(d / 8.), chain = 128 / (c.e / 8) + 12 + tokens / (128 / (c.e / 8));
    Row result{std::vector<double>(static_cast<std::size_t>(c.e)), std::vector<double>(static_cast<std::size_t>(c.e))};

    Channels q;
    double largest = 0, query_length = 0;
    for (int n = 0; n < d; ++n) {
      q[static_cast<std::size_t>(n)] =
          double{to_float(queries[row(b, i, c.query, h, d) + static_cast<std::size_t>(n)])};
      largest = std::max(largest, std::abs(q[static_cast<std::size_t>(n)]));
    }
    const double unit = largest > 0 ? std::exp2(std::floor(std::log2(largest))) : 1;
    for (double& x : q) {
      x /= unit;
      query_length += x * x;
    }
    query_length = std::sqrt(query_length);

    // What tokens weigh.
    struct Seen {
      int token;
      double weight, score, sizes, length;  // log2; of the score: Σ |q_n k_n|; ‖k‖
    };
    std::vector<Seen> seen;
    double since = 0, r = -infinity;
    for (int t = tokens - 1; t >= 0 && since > -infinity; --t) {
      Seen s{t, since * log2_e, 0, 0, 0};
      for (int n = 0; n < d; ++n) {
        const double k = channel(tail_keys, keys, b, hk, t, d, n), product = q[static_cast<std::size_t>(n)] * k;
        s.score += product, s.sizes += std::abs(product), s.length += k * k;
      }
      s.length = std::sqrt(s.length);
      if (s.score != 0) r = std::max(r, s.weight + P * std::log2(std::abs(s.score)));
      seen.push_back(s);
      since += gate(b, hs, t);
    }
    const std::size_t state = at(b, hs, c.state, 0, 1);
    const double state_weight = std::ceil(level[state]) + since * log2_e;
    const bool sees_state = state_weight > -infinity;
    r = std::max(r, state_weight);
    if (r == -infinity) r = 0;

    const auto size_e = static_cast<std::size_t>(c.e);
    std::vector<double> num(size_e), off(size_e), sizes(size_e);
    double den = 0, den_off = 0, noise = 0, absolute = 0, absolute_off = 0;
    const double widest = P / 2. * std::log2(16. * d * d);  // of a logarithm of lengths
    const auto exp2_off = [&](double x) { return u * (6 + ln_2 * (std::abs(x) + 2 * P)); };
    const auto length_off = [&](double x) {
      return u * (8 + ln_2 * (2 * std::abs(x) + 6 * widest) + P / 2. * (2 * dot_roundings + 4));
    };
    for (const Seen& s : seen) {
      const double size = std::abs(s.score), wrong = dot_roundings * u * s.sizes;
      const double x = size > 0 ? s.weight + P * std::log2(size) - r : 0;
      const double w = size > 0 ? std::exp2(x) * (P % 2 == 1 && s.score < 0 ? -1 : 1) : 0;
      const double w_off = size > 0 ? std::exp2(x) * (std::pow(1 + wrong / size, P) - 1 + exp2_off(x) + P * u) : 0;
      den += w, den_off += w_off + std::abs(w) * 12 * u;
      if (P % 2 == 1) noise += std::abs(w);
      for (int n = 0; n < c.e; ++n) {
        const double v = channel(tail_values, values, b, hk, s.token, c.e, n);
        const auto at_n = static_cast<std::size_t>(n);
        num[at_n] += w * v, off[at_n] += (w_off + std::abs(w) * chain * u + tiny) * std::abs(v);
      }
      const double long_x = s.length > 0 ? s.weight + P * std::log2(query_length * s.length) - r : -infinity;
      if (long_x > -infinity && query_length > 0)
        absolute += std::exp2(long_x), absolute_off += std::exp2(long_x) * length_off(long_x);
    }
    if (sees_state) {
      const double f = std::exp2(state_weight - r), f_off = exp2_off(state_weight - r);
      const double a = f * mass[state] * std::pow(query_length, P);
      noise += a, absolute += a, absolute_off += a * (f_off + length_off(0));
      const int at_once = 128 / (c.e / 4), turns = (slab_rows + at_once - 1) / at_once;
      const double roundings = P + 1 + turns + at_once + slabs + 2,
                   of_z = P + 1 + (slab_rows + 127) / 128 + 7 + slabs / 32 + 8;
      double z = 0, z_sizes = 0;
      std::fill(sizes.begin(), sizes.end(), 0);
      std::vector<double> read(size_e);
      for (int m = 0; m < D; ++m) {
        const double phi = monomials_[static_cast<std::size_t>(m)].of(q);
        const double of_m = phi * normaliser[state * D + static_cast<std::size_t>(m)];
        z += of_m, z_sizes += std::abs(of_m);
        for (std::size_t n = 0; n < size_e; ++n) {
          const double term = phi * sums[(state * D + static_cast<std::size_t>(m)) * size_e + n];
          read[n] += term, sizes[n] += std::abs(term);
        }
      }
      den += f * z, den_off += f * (z_sizes * (of_z * u + f_off) + tiny * D);
      for (std::size_t n = 0; n < size_e; ++n)
        num[n] += f * read[n], off[n] += f * (sizes[n] * (roundings * u + f_off) + tiny * D);
    }
    den_off += tiny * tokens;

    const double tau = static_cast<double>(Finish::default_noise), compared = P % 2 == 0 ? den : std::abs(den);
    const double slack = 1e-4;  // of `noise`, hundreds of roundings
    const bool surely_not = compared - den_off > tau * noise * (1 + slack);
    const bool surely = compared + (noise > 0 ? den_off : 0) <= tau * noise * (1 - slack);
    result.degenerate = c.normalised && surely;
    result.either = c.normalised && !surely && !surely_not;
    const double own = std::exp2(-fraction_bits<T> - 1.),
                 to_row = std::exp2(r) * std::pow(unit, P) * std::pow(scale, P);
    for (std::size_t n = 0; n < size_e; ++n) {
      if (c.normalised) {
        result.y[n] = num[n] / den;
        result.bound[n] = (off[n] + std::abs(result.y[n]) * den_off) / (std::abs(den) - den_off);
      } else {
        result.y[n] = num[n] * to_row;
        result.bound[n] = off[n] * std::abs(to_row);
      }
      result.bound[n] += std::abs(result.y[n]) * (own + 8 * u) + (std::is_same_v<T, bf16> ? 0x1p-134 : 0x1p-25);
    }
    result.condition = absolute / std::abs(den);
    result.condition_bound =
        (absolute_off + absolute * 10 * u + tiny * tokens + result.condition * den_off) / (std::abs(den) - den_off);
    return result;
  }

  /// The largest error over its bound, and rows of a kind; NaN where a degenerate row is not 0, or another one is.
  struct Verdict {
    double error = 0;
    int rows = 0, degenerate = 0, either = 0;
  };
  Verdict verdict() const {
    Verdict all;
    const auto judge = [&](bool right, double error) {
      all.error = right && !(error <= all.error) ? error : right ? all.error : std::numeric_limits<double>::quiet_NaN();
    };
    for (int b = 0; b < c.batch; ++b)
      for (int h = 0; h < c.query; ++h)
        for (int i = 0; i < c.tokens; ++i) {
          const Row of = expected(b, h, i);
          const float said = condition[at(b, i, c.tokens, h, c.query)];
          const bool degenerate = of.degenerate || (of.either && said == std::numeric_limits<float>::infinity());
          ++all.rows, all.degenerate += of.degenerate, all.either += of.either;
          const auto is = [&](int n) {
            return double{to_float(y[row(b, i, c.query, h, c.e) + static_cast<std::size_t>(n)])};
          };
          for (int n = 0; n < c.e; ++n) {
            const double exact = of.y[static_cast<std::size_t>(n)], bound = of.bound[static_cast<std::size_t>(n)];
            const double most = to_float(T{static_cast<std::uint16_t>(std::is_same_v<T, bf16> ? 0x7f7f : 0x7bff)});
            if (degenerate)
              judge(is(n) == 0, 0);
            else if (std::isinf(is(n)))
              judge(std::copysign(1, is(n)) * exact + bound > most, 0);
            else
              judge(!std::isnan(is(n)), std::abs(is(n) - exact) / bound);
          }
          if (degenerate)
            judge(said == std::numeric_limits<float>::infinity(), 0);
          else if (of.condition < 1e37)
            judge(!std::isnan(said), std::abs(said - of.condition) / of.condition_bound);
        }
    return all;
  }
  /// Whether new tokens stand in the tail.
  bool appended() const {
    bool all = true;
    for (int b = 0; b < c.batch; ++b)
      for (int t = 0; t < c.tokens; ++t) {
        for (int h = 0; h < c.key; ++h) {
          const std::size_t to = at(b, h, c.key, t + c.tail, capacity);
          for (std::size_t n = 0; n < d; ++n)
            all = all && tail_keys[to * d + n].bits == keys[row(b, t, c.key, h, d) + n].bits;
          for (std::size_t n = 0; n < static_cast<std::size_t>(c.e); ++n)
            all = all &&
                  tail_values[to * static_cast<std::size_t>(c.e) + n].bits == values[row(b, t, c.key, h, c.e) + n].bits;
        }
        for (int h = 0; h < c.state && c.gates != Gates::none; ++h)
          all = all && tail_gates[at(b, h, c.state, t + c.tail, capacity)] == log_gates[at(b, t, c.tokens, h, c.state)];
      }
    return all;
  }
  std::vector<std::uint16_t> bits() const {
    std::vector<std::uint16_t> all;
    for (std::size_t i = 0; i < y.size(); ++i) all.push_back(y[i].bits);
    return all;
  }

 private:
  struct Monomial {
    std::array<int, std::size_t{P}> channel;
    double coefficient;
    double of(const Channels& x) const {
      double product = coefficient;
      for (const int i : channel) product *= x[static_cast<std::size_t>(i)];
      return product;
    }
  };
  static std::vector<Monomial> monomials() {
    std::vector<Monomial> all;
    std::array<int, std::size_t{P}> channel{};
    const auto extend = [&](const auto& self, int level, int from) -> void {
      if (level == P) {
        double orders = 1, run = 1;
        for (std::size_t l = 1; l < P; ++l) {
          run = channel[l] == channel[l - 1] ? run + 1 : 1;
          orders *= static_cast<double>(l + 1) / run;
        }
        all.push_back({channel, std::round(orders)});
        return;
      }
      for (channel[static_cast<std::size_t>(level)] = from; channel[static_cast<std::size_t>(level)] < d;
           ++channel[static_cast<std::size_t>(level)])
        self(self, level + 1, channel[static_cast<std::size_t>(level)]);
    };
    extend(extend, 0, 0);
    return all;
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
        const double phi = weight[t] * monomials_[m].of(k[t]) / monomials_[m].coefficient;
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
  const std::vector<Monomial> monomials_ = monomials();
};

}  // namespace sympow::test
