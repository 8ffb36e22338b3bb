// Rows by their definition in double, and how far a row in tensor cores' formats may be from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tokens.hpp"

namespace sympow::test {

/// What kernels did on the way to a row.
struct Way {
  int chunk;              ///< tokens of a chunk
  double monomials;       ///< D; 0: no state was read
  double chunks;          ///< on the way of the oldest token
  bool is_split = false;  ///< states are sums of two numbers of the format
  bool is_exact = false;  ///< monomials of queries and keys are numbers of the format, and rows only read states
};

/// Row i of a query head:
///   numerator, denominator = Σ_j b_ij (scale q_i·k_j)^P (v_j, 1), j ≤ i
///   sizes = Σ_j b_ij (|scale| Σ_c |q_c k_c|)^P (|v_j|, 1)
/// and what is added to sizes where small numbers of fp16 have absolute errors. With rotary q and k are the turned
/// ones, and sizes grow by what these may be off; so does the error of a score.
class ReferenceRow {
 public:
  std::vector<double> numerator, sizes;
  double denominator = 0, size = 0, condition = 0;

  ReferenceRow(const Tokens& x, std::int64_t b, std::int64_t i, std::int64_t h, double scale)
      : numerator(static_cast<std::size_t>(x.e)), sizes(numerator.size()), x_(x) {
    const std::int64_t key_head = h * x.key_heads / x.query_heads;
    const std::int64_t gate_head = x.gate_heads == 0 ? 0 : h * x.gate_heads / x.query_heads;
    const auto all = static_cast<std::size_t>(x.d);
    const Channels q(x, x.queries, x.row(b, i, h, x.query_heads), path(i, key_head), true);
    more_.resize(numerator.size());
    double way = q.path, gate = 0, largest = 0, mass = 0, most_value = 0, seen = 0, query = 0, query_sum = 0,
           query_largest = 0, key_sums = 0;
    for (std::size_t c = 0; c < all; ++c) {
      query += q.most(c) * q.most(c);
      query_sum += q.most(c);
      query_largest = std::max(query_largest, q.most(c));
    }
    for (std::int64_t j = i; j >= 0; --j) {  // from the row back, so that nothing is subtracted
      const Channels k(x, x.keys, x.row(b, j, key_head, x.key_heads), way, false);
      if (x.rotary) way -= static_cast<double>(x.step(j, key_head));
      const double* v = &x.values[x.row(b, j, key_head, x.key_heads) * static_cast<std::size_t>(x.e)];
      double dot = 0, absolute = 0, exact = 0, key = 0, key_sum = 0;
      for (std::size_t c = 0; c < all; ++c) {
        dot += q.x[c] * k.x[c];
        exact += std::abs(q.x[c] * k.x[c]);
        absolute += q.most(c) * k.most(c);
        key += k.most(c) * k.most(c);
        key_sum += k.most(c);
      }
      const double weight = std::exp(gate), score = weight * std::pow(scale * dot, x.power);
      const double score_size = weight * std::pow(std::abs(scale) * absolute, x.power);
      const double more = score_size - weight * std::pow(std::abs(scale) * exact, x.power);
      for (std::size_t c = 0; c < numerator.size(); ++c) {
        numerator[c] += score * v[c];
        sizes[c] += score_size * std::abs(v[c]);
        more_[c] += more * std::abs(v[c]);
        most_value = std::max(most_value, std::abs(v[c]));
      }
      denominator += score;
      size += score_size;
      all_more_ += more;
      condition += weight * std::pow(std::abs(scale) * std::sqrt(query * key), x.power);
      mass += weight * std::pow(key, x.power / 2.);
      key_sums += weight * std::pow(key_sum, x.power);
      largest = std::max(largest, weight * std::exp2(std::ceil(std::log2(key) / 2) * x.power));
      seen += 1;
      if (!x.log_gates.empty()) gate += static_cast<double>(x.log_gates[x.row(b, j, gate_head, x.gate_heads)]);
      if (std::isinf(gate)) break;
    }
    // Numbers of a format have an absolute error, too. In units of powers of 2: P of each token beside the largest
    // weight, one of a prefix (of P 1 two), whose unit is up to 16 times its mass, times the sum of a query's
    // monomials; and P - 1 of each of these, times the sum of the state's.
    const double of_keys =
        (2 * x.power * seen * largest + (x.power == 1 ? 32 : 16) * mass) * std::pow(query_sum, x.power);
    const double of_query = (x.power - 1) * std::exp2(std::ceil(std::log2(query_largest)) * x.power) * key_sums;
    tiny_ = x.format.tiny() * std::pow(std::abs(scale), x.power) * (of_keys + of_query) * 1.1;
    most_value_ = most_value;
  }

  /// How much of its bound the error of a row's channel takes: beyond 1 it is wrong.
  double error(std::size_t c, double y, bool normalised, const Way& way) const {
    const double u = x_.format.u(), rounding = roundings(way);
    const double off = rounding * sizes[c] + more_[c] + tiny_ * most_value_;
    if (!normalised) {
      const double bound = off + u * (std::abs(numerator[c]) + off) + x_.format.tiny();
      return std::abs(y - numerator[c]) / bound;
    }
    const double exact = numerator[c] / denominator, denominator_off = rounding * size + all_more_ + tiny_;
    const double quotient = (off + std::abs(exact) * denominator_off) / (denominator - denominator_off);
    const double bound = quotient + (u + 0x1p-22) * (std::abs(exact) + quotient) + x_.format.tiny();
    return denominator_off < denominator ? std::abs(y - exact) / bound : 0;
  }

  /// What no condition of this row is above: all tokens, as if none were read but through a state.
  double largest_condition(const Way& way) const {
    const double off = roundings(way) * size + all_more_ + tiny_;
    return off < std::abs(denominator) ? condition / (std::abs(denominator) - off) * (1 + 0x1p-12) : HUGE_VAL;
  }

 private:
  /// A query or key, turned where there is rotary, and how far it may be off then.
  struct Channels {
    std::vector<double> x, off;
    double path;

    Channels(const Tokens& tokens, const std::vector<double>& all, std::size_t row, double at, bool is_query)
        : x(static_cast<std::size_t>(tokens.d)), off(x.size()), path(at) {
      for (std::size_t c = 0; c < x.size(); ++c) x[c] = all[row * x.size() + c];
      if (!tokens.rotary) return;
      const bool halves = tokens.rotary->halves;
      turn_row(x.data(), tokens.d, halves, [&](int j) { return path * Rotation::rate(j, tokens.d / 2); });
      double unit = 1;  // of a query's small numbers
      for (const double c : x) unit = is_query ? std::max(unit, 2 * std::abs(c)) : 1;
      off = turned_off(x.data(), tokens.d, halves, tokens.format.u(), tokens.format.tiny() * unit);
    }
    double most(std::size_t c) const { return std::abs(x[c]) + off[c]; }
  };
  double path(std::int64_t i, std::int64_t key_head) const {
    double sum = 0;
    for (std::int64_t t = 0; t <= i && x_.rotary; ++t) sum += static_cast<double>(x_.step(t, key_head));
    return sum;
  }

  /// Roundings to the format: a weighted key, P - 1 products; the state, or u of that where it is split, of P 1 before
  /// its chunk and before its tile; P - 1 products of a query, or a weighted score; all but the state's are none where
  /// monomials are exact. Sums of 16 products: over the tokens of a chunk, the monomials of each term, the keys of a
  /// row; of floats P scores, too. A sum of floats for each chunk; weights and powers a few units of float. Products of
  /// floats leave out something: of a key that comes through the state twice, else P times of a score, and once of its
  /// weight.
  double roundings(const Way& way) const {
    const double terms = way.is_split ? 2 : 1, P = x_.power;
    const double steps = 2 * (way.chunk / 16. + 1) + terms * way.monomials * 1.2 / 16;
    const double of_state = (way.is_split ? x_.format.u() : 1) * (P == 1 ? 2 : 1);
    const double formats = way.monomials == 0 ? 2 : of_state + (way.is_exact ? 0 : P == 1 ? 1 : 2 * P);
    return (formats * x_.format.u() + (P + 1) * x_.format.lost() + x_.format.cut(P + 3, steps) +
            (2 * way.chunks + 8 * P + 8) * 0x1p-23) *
           1.1;
  }

  const Tokens& x_;
  std::vector<double> more_;  // of turned q and k
  double all_more_ = 0, tiny_ = 0, most_value_ = 0;
};

}  // namespace sympow::test
