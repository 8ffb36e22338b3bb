// Gradients by their definition, the gradient row rule that bounds those of every form, and what their roundings come
// to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "turned.hpp"

namespace sympow::test {

/// One sequence in double: entry (t, h, c) of an array with H heads of w channels is [(t H + h) w + c].
struct GradientProblem {
  int power, d, e, tokens, query_heads, key_heads, gate_heads;  ///< gate_heads 0: no gates
  bool normalised;
  double scale;
  std::vector<double> q, k, v, dy, log_gates;
  std::vector<double> rates = {}, beta = {};  ///< of rotary, beta by key heads; none: nothing turns
  bool halves = false;
};

/// Gradients of Σ dy·y by sums over pairs, and the rule's bounds without the factor (6 + P) u (1 + √n), n the states on
/// the way: with m_ij = b_ij (|scale| ‖q_i‖ ‖k_j‖)^P, ω = m / den, ω' = b |x|^{P-1} |scale| ‖q‖ ‖k‖ / den, K_i = Σ_j
/// ω_ij, h_i = ‖dy_i‖₁ (max|v| + max|y_i|), ε = h (ω + K ω'),
///   dv: Σ_i max|dy_i| (ω + K p)    dq: P Σ_j ε / ‖q_i‖    dk: P Σ_i ε / ‖k_j‖    d log γ_t: Σ_{j<t≤i} ε
/// Sums have den = 1, K = 0 and no y. The lengths that are divided by are left out of ε first.
///
/// And roundings to the kernels' format, one by one, with absolute values in the place of norms: a = Σ_c |scale q_c
/// k_c|. On any way from q, k, v and dy to a sum there are at most R = (2 P + 4) u of them: of a weighted key or query
/// u, of φ on both sides P - 1 products each, of states between chunks u, or of both where a coupling passes through a
/// chunk; of a pair u; the rest is for sums in float, of less than 300 products of tensor cores in fp16. Then
///   φ_i = R Σ_j b a^P / den, over 1 - that     of 1 / den
///   δy = R Σ_j b a^P (|v| + |y|) / den (1 + φ) + u |y|     δℓ_i = Σ_c |dy| δy
///   c̄_ij = Σ_c |dy| (|v| + |y|)                δc = (R + φ) c̄ + δℓ
///   dv: Σ_i b a^P / den (R + φ) |dy|    dq: P Σ_j b a^{P-1} / den δc |scale k_j|    dk: with q_i    d log γ: b a^P /
///   den δc
///
/// And of sums d scale = P Σ_ij t_ij / scale, by P Σ ε / |scale|, and with u more in R for rows that are rounded.
///
/// Floats are held to their roundings alone, with R + F in the place of R: F is what floats lose, in sums (`floats`),
/// and of a weight 2^-g, whose exponent is a float, g of that.
///
/// With rotary, q and k are turned ones and dq, dk turn back, |cos| and |sin| in the place of both for their bounds.
/// Beside
///   dβ_t = Σ_{j<t≤i} Σ_u rates_u dx_ij ⟨k_j, J_u q_i⟩    d rates_u = Σ_{j<t≤i} β_t dx_ij ⟨k_j, J_u q_i⟩
/// the rule has P max|rates| Σ_{j<t≤i} ε and P Σ_{j<t≤i} |β_t| ε. Turned rows are rounded: 2 P u more, by norms and in
/// R; and once more the row that J turns or the pair that paths weigh: of angles u more in R.
struct GradientRule {
  struct Entries {
    std::vector<double> exact, bound, off;
    explicit Entries(std::size_t n) : exact(n), bound(n), off(n) {}
    void add(std::size_t i, double more, double by_norms, double by_roundings) {
      exact[i] += more, bound[i] += by_norms, off[i] += by_roundings;
    }
  };
  Entries q, k, v, gates, beta, rates, d_scale;

  /// The factor of a rule, over n states; so large of floats that it is none.
  static double factor(int power, double u, double states, bool turns) {
    return u < 0x1p-20 ? 0x1p200 : (6 + (turns ? 3 : 1) * power) * u * (1 + std::sqrt(states));
  }

  /// What floats lose on a way from q, k, v and dy to a sum, in relation to a^P. A sum of tensor cores leaves out
  /// `lost` of its products, cuts 1 + 2^-4 times (17/4 + 1) 2^-23, and adds 16 products at a time in float; there are P
  /// scores, c, what a row or key gets, and of states, in chunks of `chunk` tokens (0: there are none), S and H, what
  /// is read of each, and W. Beside these in float: ℓ, e products; what turns, d; of `rows` monomials in a state a lane
  /// adds 32 of 64 up; 20 for each chunk that a state goes through; and 200 + 60 P at once, in units, weights and
  /// factors.
  static double floats(const GradientProblem& x, double lost, int chunk, int rows) {
    const double group = static_cast<double>(x.query_heads) / x.key_heads, pairs = group * (x.tokens + 64) / 16;
    const double states = chunk > 0 ? 5 : 0, chunks = chunk > 0 ? x.tokens / chunk + 2 : 0;
    const double steps = x.power * x.d / 16. + x.e / 16. + 1 + pairs +
                         (chunk > 0 ? 2 * group * chunk / 16 + group * rows / 8 + x.e / 16. + 1 : 0);
    const double once = x.e + x.d + group * (chunk > 0 ? rows / 2 : 0) + 20 * chunks + 200 + 60 * x.power;
    return (x.power + 2 + states) * (lost + (1 + 0x1p-4) * (17. / 4 + 1) * 0x1p-23) + (steps + once) * 0x1p-24;
  }

  GradientRule(const GradientProblem& given, double u, double of_floats = 0)
      : q(given.q.size()),
        k(given.k.size()),
        v(given.v.size()),
        gates(given.log_gates.size()),
        beta(given.beta.size()),
        rates(given.rates.size()),
        d_scale(1) {
    const bool turns = !given.rates.empty();
    const GradientProblem x = turned(given);
    const double R = (2 * x.power + 4 + (turns ? 2 * x.power : 0)) * u + of_floats;
    const auto d = static_cast<std::size_t>(x.d), e = static_cast<std::size_t>(x.e);
    const double scale = x.normalised ? 1 : x.scale;
    double largest = 0;
    for (const double c : x.v) largest = std::max(largest, std::abs(c));
    for (int h = 0; h < x.query_heads; ++h)
      for (int i = 0; i < x.tokens; ++i) {
        const int key_head = h * x.key_heads / x.query_heads;
        const std::size_t row = at(i, h, x.query_heads);
        const double *of_q = &x.q[row * d], *dy = &x.dy[row * e];
        const double q_norm = norm(of_q, d);
        std::vector<double> weight, dot, absolute;
        std::vector<std::size_t> keys;
        double gate = 0, den = 0;
        for (int j = i; j >= 0 && gate > -1e300; --j) {
          keys.push_back(at(j, key_head, x.key_heads));
          weight.push_back(std::exp(gate));
          dot.push_back(scale * product(of_q, &x.k[keys.back() * d], d));
          den += weight.back() * std::pow(dot.back(), x.power);
          absolute.push_back(0);
          for (std::size_t c = 0; c < d; ++c) absolute.back() += std::abs(scale * of_q[c] * x.k[keys.back() * d + c]);
          if (x.gate_heads > 0) gate += x.log_gates[gate_of(x, j, h)];
        }
        if (!x.normalised) den = 1;
        double all = 0;
        for (std::size_t n = 0; n < keys.size(); ++n) all += weight[n] * std::pow(absolute[n], x.power) / std::abs(den);
        const double phi = !x.normalised ? 0 : R * all < 1 ? R * all / (1 - R * all) : HUGE_VAL;
        double K = 0, offset = 0, most_y = 0, most_dy = 0, dy_size = 0, coupling = 0, offset_off = 0;
        for (std::size_t c = 0; c < e; ++c) {
          double y = 0, y_size = 0;
          for (std::size_t n = 0; n < keys.size() && x.normalised; ++n) {
            y += weight[n] * std::pow(dot[n], x.power) * x.v[keys[n] * e + c] / den;
            y_size += weight[n] * std::pow(absolute[n], x.power) * std::abs(x.v[keys[n] * e + c]) / std::abs(den);
          }
          coupling += std::abs(dy[c] * y);
          offset_off += std::abs(dy[c]) * (R * (y_size + all * std::abs(y)) * (1 + phi) + u * std::abs(y));
          offset -= dy[c] * y;
          most_y = std::max(most_y, std::abs(y)), most_dy = std::max(most_dy, std::abs(dy[c]));
          dy_size += std::abs(dy[c]);
        }
        if (most_dy == 0) continue;
        const auto key_norm = [&](std::size_t n) { return norm(&x.k[keys[n] * d], d); };
        const auto size = [&](std::size_t n) { return std::abs(scale) * q_norm * key_norm(n); };
        for (std::size_t n = 0; n < keys.size() && x.normalised; ++n) K += weight[n] * std::pow(size(n), x.power) / den;
        for (std::size_t n = 0; n < keys.size(); ++n) {
          const double* of_k = &x.k[keys[n] * d];
          const double steep = weight[n] * std::pow(dot[n], x.power - 1) / den, p = steep * dot[n];
          const double c = product(dy, &x.v[keys[n] * e], e) + offset, dx = x.power * steep * c * scale;
          double c_size = coupling;
          for (std::size_t m = 0; m < e; ++m) c_size += std::abs(dy[m] * x.v[keys[n] * e + m]);
          const double gap = of_floats > 0 ? -std::log2(weight[n]) * 0x1p-24 : 0;
          const double c_off = (R + gap + phi) * c_size + (x.normalised ? offset_off * (1 + phi) : 0);
          const double of_slope = weight[n] * std::pow(absolute[n], x.power - 1) / std::abs(den);
          const double height = dy_size * (largest + most_y);
          // ε / size, so that nothing is divided by 0
          const double off =
              height * (weight[n] * std::pow(size(n), x.power - 1) / std::abs(den) + K * std::abs(steep));
          for (std::size_t m = 0; m < d; ++m) {
            q.add(row * d + m, dx * of_k[m], x.power * off * std::abs(scale) * key_norm(n),
                  x.power * of_slope * c_off * std::abs(scale * of_k[m]));
            k.add(keys[n] * d + m, dx * of_q[m], x.power * off * std::abs(scale) * q_norm,
                  x.power * of_slope * c_off * std::abs(scale * of_q[m]));
          }
          const double weight_size = weight[n] * std::pow(size(n), x.power) / std::abs(den);
          for (std::size_t m = 0; m < e; ++m)
            v.add(keys[n] * e + m, p * dy[m], most_dy * (weight_size + K * std::abs(p)),
                  of_slope * absolute[n] * (R + gap + phi) * std::abs(dy[m]));
          for (int t = i - static_cast<int>(n) + 1; t <= i && x.gate_heads > 0; ++t)
            gates.add(gate_of(x, t, h), p * c, off * size(n), of_slope * absolute[n] * c_off);
          if (!x.normalised && scale != 0)
            d_scale.add(0, x.power * p * c / scale, x.power * off * size(n) / std::abs(scale),
                        x.power * of_slope * absolute[n] * (c_off + u * c_size) / std::abs(scale));
          if (turns)
            add_angles(x, i, i - static_cast<int>(n), key_head, of_q, of_k, dx, x.power * off * size(n),
                       x.power * of_slope * (c_off + u * c_size) * std::abs(scale));
        }
      }
    if (!turns) return;
    turn_back(x, q, x.query_heads);
    turn_back(x, k, x.key_heads);
  }

 private:
  /// Of pair i, j, of which x_ij has this slope.
  void add_angles(const GradientProblem& x, int i, int j, int key_head, const double* of_q, const double* of_k,
                  double slope, double by_norms, double slope_off) {
    double largest = 0, flow = 0, flow_size = 0, way = 0, length = 0;
    for (const double rate : x.rates) largest = std::max(largest, std::abs(rate));
    for (int t = j + 1; t <= i; ++t) {
      const double step = x.beta[at(t, key_head, x.key_heads)];
      way += step, length += std::abs(step);
    }
    for (int u = 0; u < x.d / 2; ++u) {
      const PairOfChannels c(x.halves, x.d, u);
      const double one = of_k[c.second] * of_q[c.first], other = of_k[c.first] * of_q[c.second];
      const double size = std::abs(one) + std::abs(other), rate = x.rates[static_cast<std::size_t>(u)];
      flow += rate * (one - other), flow_size += std::abs(rate) * size;
      rates.add(static_cast<std::size_t>(u), slope * way * (one - other), length * by_norms, length * slope_off * size);
    }
    for (int t = j + 1; t <= i; ++t)
      beta.add(at(t, key_head, x.key_heads), slope * flow, largest * by_norms, slope_off * flow_size);
  }
  /// The problem of rows that have turned.
  static GradientProblem turned(GradientProblem x) {
    each_row(x, x.query_heads, [&](std::size_t row, const auto& angle) {
      turn_row(&x.q[row * static_cast<std::size_t>(x.d)], x.d, x.halves, angle);
    });
    each_row(x, x.key_heads, [&](std::size_t row, const auto& angle) {
      turn_row(&x.k[row * static_cast<std::size_t>(x.d)], x.d, x.halves, angle);
    });
    return x;
  }
  static void turn_back(const GradientProblem& x, Entries& of, int heads) {
    each_row(x, heads, [&](std::size_t row, const auto& angle) {
      const std::size_t first = row * static_cast<std::size_t>(x.d);
      turn_row(&of.exact[first], x.d, x.halves, [&](int u) { return -angle(u); });
      for (auto* bounds : {&of.bound, &of.off})
        for (int u = 0; u < x.d / 2; ++u) {
          const PairOfChannels at(x.halves, x.d, u);
          double &a = (*bounds)[first + at.first], &b = (*bounds)[first + at.second];
          const double c = std::abs(std::cos(angle(u))), s = std::abs(std::sin(angle(u))), before = a;
          a = c * before + s * b, b = s * before + c * b;
        }
    });
  }
  /// f(row, its angle of pair u) of all tokens and heads.
  template <class F>
  static void each_row(const GradientProblem& x, int heads, const F& f) {
    if (x.rates.empty()) return;
    for (int h = 0; h < heads; ++h) {
      double path = 0;
      for (int t = 0; t < x.tokens; ++t) {
        path += x.beta[at(t, h * x.key_heads / heads, x.key_heads)];
        f(at(t, h, heads), [&](int u) { return path * x.rates[static_cast<std::size_t>(u)]; });
      }
    }
  }
  static std::size_t at(int t, int h, int heads) { return static_cast<std::size_t>(t * heads + h); }
  static std::size_t gate_of(const GradientProblem& x, int t, int h) {
    return at(t, h * x.gate_heads / x.query_heads, x.gate_heads);
  }
  static double product(const double* a, const double* b, std::size_t n) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
  }
  static double norm(const double* a, std::size_t n) { return std::sqrt(product(a, a, n)); }
};

}  // namespace sympow::test
