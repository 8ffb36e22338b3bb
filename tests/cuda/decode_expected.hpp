// Decoded rows in double, and how far those of the kernels may be from them.
#pragma once

#include "decode_problem.hpp"

namespace sympow::test {

/// A row; `either`: rounding decides whether it is degenerate.
struct ExpectedRow {
  std::vector<double> y, bound;
  double condition = 0, condition_bound = 0;
  bool degenerate = false, either = false;
};

/// A number of the kernels is a sum of exact terms, off by no more than the roundings on its way, u = 2^-24 each. A
/// power of 2 of x is off by ln 2 |x| u, for x as float, and 4 u: two units in the last place. What leaves float below
/// is lost: `tiny` for each term, where the largest is 1.
template <class Problem>
class Expected {
 public:
  static constexpr int P = Problem::degree, d = Problem::channels;

  explicit Expected(const Problem& problem) : p_(problem), c_(problem.c), e_(static_cast<std::size_t>(c_.e)) {}

  [[nodiscard]] ExpectedRow row(int b, int h, int i) const {
    const int hs = h / p_.group, tokens = c_.tail + i + 1;
    const Query query = query_of(b, h, i);
    double since = 0;
    const std::vector<Seen> seen = seen_tokens(b, hs, tokens, query, since);
    const std::size_t state = p_.at(b, hs, c_.state, 0, 1);
    const double state_weight = std::ceil(p_.level[state]) + since * log2_e;
    double r = state_weight;
    for (const Seen& s : seen)
      if (s.score != 0) r = std::max(r, s.weight + P * std::log2(std::abs(s.score)));
    if (r == -infinity) r = 0;

    Sums sums{std::vector<double>(e_), std::vector<double>(e_)};
    for (const Seen& s : seen) add_token(sums, b, hs / (c_.state / c_.key), tokens, s, query, r);
    if (state_weight > -infinity) add_state(sums, state, state_weight - r, query);
    sums.den_off += tiny * tokens;
    return ended(sums, query, r, tokens);
  }

 private:
  using Channels = typename Problem::Channels;
  static constexpr double u = 0x1p-24, tiny = 0x1p-120, log2_e = 1.4426950408889634, ln_2 = 1 / log2_e;
  static constexpr double own_u = Problem::own_u;
  static constexpr double smallest = Problem::least;

  struct Query {  // unit q̂, and how far q̂ may be off where it turns
    Channels x, off;
    double unit, length, length_off;
  };
  struct Seen {
    int token;
    double weight, score, sizes, length;  // log2 b_ij; q̂·k; Σ |q̂_n k_n|; ‖k‖
    double off, length_off;               // of the score and the length, where q̂ or k turns
  };
  struct Sums {  // and how far they may be off
    std::vector<double> num, num_off;
    double den = 0, den_off = 0, noise = 0, absolute = 0, absolute_off = 0;
  };

  [[nodiscard]] Query query_of(int b, int h, int i) const {
    Query query{{}, {}, 1, 0, 0};
    double largest = 0;
    for (std::size_t n = 0; n < query.x.size(); ++n)
      query.x[n] = to_float(p_.queries[p_.row(b, i, c_.query, h, d) + n]);
    if (c_.rotary) p_.turn(query.x, query.off, b, h / (c_.query / c_.key), c_.tail + i, 0, 0);
    for (const double x : query.x) largest = std::max(largest, std::abs(x));
    if (largest > 0) query.unit = std::exp2(std::floor(std::log2(largest)));
    for (std::size_t n = 0; n < query.x.size(); ++n) {
      query.x[n] /= query.unit, query.off[n] /= query.unit;
      query.length += query.x[n] * query.x[n], query.length_off += query.off[n] * query.off[n];
    }
    query.length = std::sqrt(query.length), query.length_off = std::sqrt(query.length_off);
    return query;
  }
  /// From the youngest on; then `since` is the sum of all log gates.
  [[nodiscard]] std::vector<Seen> seen_tokens(int b, int hs, int tokens, const Query& query, double& since) const {
    std::vector<Seen> seen;
    for (int t = tokens - 1; t >= 0 && since > -infinity; --t) {
      Seen s{t, since * log2_e, 0, 0, 0, 0, 0};
      Channels off;
      const Channels key = p_.key_of(b, hs / (c_.state / c_.key), t, off);
      for (std::size_t n = 0; n < d; ++n) {
        const double product = query.x[n] * key[n], size = std::abs(product);
        s.score += product, s.sizes += size, s.length += key[n] * key[n], s.length_off += off[n] * off[n];
        s.off += (std::abs(query.x[n]) + query.off[n]) * (std::abs(key[n]) + off[n]) - size;
      }
      s.length = std::sqrt(s.length), s.length_off = std::sqrt(s.length_off);
      seen.push_back(s);
      since += p_.gate(b, hs, t);
    }
    return seen;
  }

  static double exp2_off(double x) { return u * (6 + ln_2 * (std::abs(x) + 2 * P)); }
  /// Of a power of lengths: products of two sums, their logarithm times P / 2, added to x, to the power of 2.
  static double length_off(double x) {
    const double widest = P / 2. * std::log2(16. * d * d);
    return u * (8 + ln_2 * (2 * std::abs(x) + 6 * widest) + P / 2. * (2 * dot_roundings() + 4));
  }
  static double dot_roundings() { return 4 + std::log2(d / 8.); }

  void add_token(Sums& sums, int b, int key_head, int tokens, const Seen& s, const Query& query, double r) const {
    const int at_once = 128 / (c_.e / 8);
    const double size = std::abs(s.score), score_off = dot_roundings() * u * (s.sizes + s.off) + s.off;
    double w = 0, w_off = 0;
    if (size > 0) {
      const double x = s.weight + P * std::log2(size) - r;
      w = std::exp2(x) * (P % 2 == 1 && s.score < 0 ? -1 : 1);
      w_off = std::exp2(x) * (std::pow(1 + score_off / size, P) - 1 + exp2_off(x) + P * u);
    }
    sums.den += w, sums.den_off += w_off + std::abs(w) * 12 * u;
    if (P % 2 == 1) sums.noise += std::abs(w);
    const double roundings = at_once + 12 + tokens / at_once;
    for (std::size_t n = 0; n < e_; ++n) {
      const double v = p_.channel(p_.tail_values, p_.values, b, key_head, s.token, c_.e, static_cast<int>(n));
      sums.num[n] += w * v, sums.num_off[n] += (w_off + std::abs(w) * roundings * u + tiny) * std::abs(v);
    }
    if (s.length > 0 && query.length > 0) {
      const double x = s.weight + P * std::log2(query.length * s.length) - r;
      const double most = (1 + query.length_off / query.length) * (1 + s.length_off / s.length);
      sums.absolute += std::exp2(x);
      sums.absolute_off += std::exp2(x) * (std::pow(most, P) * (1 + length_off(x)) - 1);
    }
  }

  void add_state(Sums& sums, std::size_t state, double x, const Query& query) const {
    const double f = std::exp2(x), mass = f * p_.mass[state] * std::pow(query.length, P);
    const double lengths = query.length > 0 ? std::pow(1 + query.length_off / query.length, P) : 1, f_off = exp2_off(x);
    sums.noise += mass, sums.absolute += mass, sums.absolute_off += mass * (lengths * (1 + f_off + length_off(0)) - 1);
    const int at_once = 128 / (c_.e / 4), of_thread = (p_.slab_rows + at_once - 1) / at_once;
    const double roundings = P + 1 + of_thread + at_once + p_.slabs + 2;
    const double den_roundings = P + 1 + p_.slab_rows / 128 + 8 + p_.slabs / 32 + 8;
    double den = 0, den_sizes = 0, den_more = 0;  // more: of turned queries, what monomials may be off
    std::vector<double> num(e_), sizes(e_), num_more(e_);
    Channels most;
    for (std::size_t n = 0; n < d; ++n) most[n] = std::abs(query.x[n]) + query.off[n];
    for (std::size_t m = 0; m < p_.monomials.size(); ++m) {
      const std::size_t at = state * p_.monomials.size() + m;
      const double phi = p_.monomials[m].of(query.x), wide = p_.monomials[m].of(most), more = wide - std::abs(phi);
      den += phi * p_.normaliser[at], den_sizes += wide * std::abs(p_.normaliser[at]);
      den_more += more * std::abs(p_.normaliser[at]);
      for (std::size_t n = 0; n < e_; ++n) {
        const double entry = p_.sums[at * e_ + n];
        num[n] += phi * entry, sizes[n] += wide * std::abs(entry), num_more[n] += more * std::abs(entry);
      }
    }
    const double lost = tiny * static_cast<double>(p_.monomials.size());
    sums.den += f * den, sums.den_off += f * (den_sizes * (den_roundings * u + f_off) + den_more + lost);
    for (std::size_t n = 0; n < e_; ++n)
      sums.num[n] += f * num[n], sums.num_off[n] += f * (sizes[n] * (roundings * u + f_off) + num_more[n] + lost);
  }

  [[nodiscard]] ExpectedRow ended(const Sums& sums, const Query& query, double r, int tokens) const {
    ExpectedRow row{std::vector<double>(e_), std::vector<double>(e_)};
    const double noise = double{p_.noise} * sums.noise, size = std::abs(sums.den);
    const double compared = P % 2 == 0 ? sums.den : size, slack = 1e-4;  // of `noise`, a few hundred roundings
    const bool surely_not = compared - sums.den_off > noise * (1 + slack);
    const bool surely = compared + (noise > 0 ? sums.den_off : 0) <= noise * (1 - slack);
    row.degenerate = c_.normalised && surely;
    row.either = c_.normalised && !surely && !surely_not;
    const double to_row = std::exp2(r) * std::pow(query.unit * Problem::scale, P);
    for (std::size_t n = 0; n < e_; ++n) {
      if (c_.normalised) {
        row.y[n] = sums.num[n] / sums.den;
        row.bound[n] = (sums.num_off[n] + std::abs(row.y[n]) * sums.den_off) / (size - sums.den_off);
      } else {
        row.y[n] = sums.num[n] * to_row;
        row.bound[n] = sums.num_off[n] * std::abs(to_row);
      }
      row.bound[n] += std::abs(row.y[n]) * (own_u + 8 * u) + smallest;
    }
    row.condition = sums.absolute / size;
    const double off = sums.absolute_off + sums.absolute * 10 * u + tiny * tokens + row.condition * sums.den_off;
    row.condition_bound = size > sums.den_off ? off / (size - sums.den_off) : infinity;
    return row;
  }

  const Problem& p_;
  const DecodeCase& c_;
  std::size_t e_;
};

/// The largest error over its bound; infinite if a degenerate row is not 0, or another one is said to be.
struct Verdict {
  double error = 0;
  int rows = 0, degenerate = 0, either = 0;
};
template <class Problem>
Verdict verdict(const Problem& p) {
  Verdict all;
  const DecodeCase& c = p.c;
  const auto judge = [&](double error) {
    all.error = error <= all.error ? all.error : std::isnan(error) ? infinity : error;
  };
  const auto require = [&](bool right) { judge(right ? 0 : infinity); };
  const double most = Problem::own_u == 0x1p-8 ? 0x1.fep127 : Problem::own_u == 0x1p-11 ? 65504. : 0x1.fffffep127;
  const Expected<Problem> expected(p);
  for (int b = 0; b < c.batch; ++b)
    for (int h = 0; h < c.query; ++h)
      for (int i = 0; i < c.tokens; ++i) {
        const ExpectedRow row = expected.row(b, h, i);
        const double said = double{p.condition[p.at(b, i, c.tokens, h, c.query)]};
        const bool degenerate = row.degenerate || (row.either && said == infinity);
        ++all.rows, all.degenerate += row.degenerate, all.either += row.either;
        for (std::size_t n = 0; n < row.y.size(); ++n) {
          const double is = to_float(p.y[p.row(b, i, c.query, h, c.e) + n]), exact = row.y[n];
          if (degenerate)
            require(is == 0);
          else if (std::isinf(is))
            require(std::copysign(1, is) * exact + row.bound[n] > most);
          else
            judge(std::abs(is - exact) / row.bound[n]);
        }
        if (degenerate)
          require(said == infinity);
        else if (row.condition < 1e37)
          judge(std::abs(said - row.condition) / row.condition_bound);
      }
  return all;
}

}  // namespace sympow::test
