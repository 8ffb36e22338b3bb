// What a backward pass must come to, by sums over pairs, and how far it may be off: the sum of all roundings, none of
// it fitted.
#pragma once

#include "backward.hpp"
#include "forward_reference.hpp"

namespace sympow::test {

/// The gradients of a sequence, in long double, by Σ over pairs, and a bound of what the kernels may be off.
///
/// With w the gates between a key and a row, x = q·k, a = Σ_c |q_c k_c|, den the normaliser (sums: 1), δ as in |δz|,
/// F what floats lose (off_of_sums of tensor cores; the rest is counted and bounded from above, a few dozen u_float):
///   forward   s = w x^P, δs = u |s| + F w a^P; δden = Σ δs; φ = δden / (den - δden), that of 1 / den; of y,
///             δy = (Σ δs |v| + |y| δden) / (den - δden) + u |y|
///   rows      ℓ = -y·dy, δℓ = Σ |dy| δy;  c = dy·v + ℓ, δc = δℓ + F (Σ |dy v| + |ℓ|)
///   pairs     p = s / den,                 δp  = |p| (u + φ) + F w a^P / den                     weighs dy in dv
///             dx = P w x^{P-1} c / den,    δdx = |dx| (u + φ) + P w (|x|^{P-1} δc + F a^{P-1} |c|) / den    dq, dk
///             t = p c,                     δt  = |p| (φ |c| + δc) + F w a^P |c| / den                 d log γ
/// and a gradient that is rounded, u of it. u and φ multiply: all is taken times (1 + u)(1 + φ).
/// Of numbers near 0, η: q̂, k̂ and dŷ are off by η, which multiplies what they are multiplied by, and a grows by
/// η (‖q‖₁ + ‖k‖₁) in units of q̂ and k̂; weights are off by η of the largest that the row (dq), the key (dk, dv) has.
template <class T, int P, int d>
class GradientsOfSequence {
 public:
  using Wide = long double;
  struct Entry {
    Wide exact = 0, off = 0;
  };

  GradientsOfSequence(const Arrays<T, d>& arrays, const Tokens<T>& d_rows, int b)
      : x_(arrays), d_rows_(d_rows), b_(b), length_(arrays.batch.length(b)), e_(arrays.how.e) {
    const Heads& heads = x_.how.heads;
    q.assign(index(length_ * heads.query * d), {});
    k.assign(index(length_ * heads.key * d), {});
    v.assign(index(length_ * heads.key * e_), {});
    gate.assign(index(length_ * heads.state), {});
    for (int h = 0; h < heads.key; ++h) add_key_head(h);
    for (auto* all : {&q, &k, &v})
      for (Entry& of : *all) of.off += (u_of<T> + 16 * u_float) * (std::abs(of.exact) + of.off) + least_of<T>;
    for (Entry& of : gate) of.off += 16 * u_float * (std::abs(of.exact) + of.off) + 0x1p-149L;
  }

  std::vector<Entry> q, k, v, gate;  ///< [token, head, channel]
  /// Rows, by token and query head, of which nothing is known: their dy must be 0.
  std::vector<std::pair<int, int>> unknown;

  /// What is wrong, "" if nothing is.
  std::string wrong(const GradientBuffers<T, d>& got, bool has_gates) const {
    std::string text = compare("dq", q, got.d_queries);
    if (text.empty()) text = compare("dk", k, got.d_keys);
    if (text.empty()) text = compare("dv", v, got.d_values);
    if (text.empty() && has_gates) text = compare("d log gate", gate, got.d_gates);
    return text;
  }

 private:
  /// A row, or a key, as a vector with what its unit is.
  struct Vector {
    std::vector<Wide> x;
    Wide sum = 0;      // ‖·‖₁
    int exponent = 0;  // of q̂, dŷ: of the largest entry; of k̂: of the norm
  };
  static Vector vector_of(const Tokens<T>& from, int b, int t, int h, bool by_norm) {
    Vector result;
    Wide largest = 0, square = 0;
    for (int c = 0; c < from.width; ++c) {
      result.x.push_back(Wide{to_float(from.data[from.at(b, t, h, c)])});
      const Wide size = std::abs(result.x.back());
      result.sum += size, largest = std::max(largest, size), square += size * size;
    }
    if (largest > 0)
      result.exponent = by_norm ? static_cast<int>(std::ceil(std::log2(std::sqrt(square))))
                                : static_cast<int>(std::floor(std::log2(largest))) + 1;
    return result;
  }
  static Wide power_of(Wide x, int n) { return n == 0 ? 1 : x * power_of(x, n - 1); }
  static Wide two_to(Wide x) { return std::exp2(x); }

  struct Pair {
    bool seen = false;
    Wide x = 0, a = 0, s = 0, size = 0, slope = 0, steep = 0, float_off = 0;  // s, w a^P, w x^{P-1}, w a^{P-1}
    Wide unit = 0;                                                            // of s: w 2^{P (x_j + n_i)}
    Wide s_off = 0, slope_off = 0;                                            // of numbers near 0
  };

  void add_key_head(int key_head) {
    keys_.clear(), values_.clear();
    Wide largest = 0;
    for (int t = 0; t < length_; ++t) {
      keys_.push_back(vector_of(x_.keys, b_, t, key_head, true));
      values_.push_back(vector_of(x_.values, b_, t, key_head, false));
      for (const Wide c : values_.back().x) largest = std::max(largest, std::abs(c));
    }
    shift_ = 4 + (largest > 0 ? static_cast<int>(std::floor(std::log2(largest))) + 1 : 0);
    key_unit_.assign(index(length_), 0);
    key_sum_.assign(index(length_ * d), 0), value_sum_.assign(index(length_ * e_), 0);
    const int group = x_.how.heads.query / x_.how.heads.key;
    for (int h = 0; h < group; ++h) add_head(key_head * group + h, key_head);
    for (int j = 0; j < length_; ++j) {  // numbers near 0: each weight is off by η of the largest
      const Wide off = 2 * Wide{least_of<T>} * key_unit_[index(j)];
      for (int c = 0; c < d; ++c)
        k[index((j * x_.how.heads.key + key_head) * d + c)].off +=
            off * two_to(shift_ - keys_[index(j)].exponent) * key_sum_[index(j * d + c)];
      for (int c = 0; c < e_; ++c)
        v[index((j * x_.how.heads.key + key_head) * e_ + c)].off += off * value_sum_[index(j * e_ + c)];
    }
  }

  void add_head(int head, int key_head) {
    const Heads& heads = x_.how.heads;
    const int state_head = head / (heads.query / heads.state);
    std::vector<Wide> log_gate;
    for (int t = 0; t < length_; ++t)
      log_gate.push_back(x_.how.log_gate
                             ? Wide{x_.gates.data[x_.gates.at(b_, t, state_head, 0)]} * std::log2(std::exp(Wide{1}))
                             : Wide{0});
    std::vector<Entry> flow(index(length_ * length_));  // t_ij
    for (int i = 0; i < length_; ++i) add_row(i, head, key_head, log_gate, flow);
    for (int t = 1; t < length_ && x_.how.log_gate; ++t) {
      Entry& of = gate[index(t * heads.state + state_head)];
      Wide sizes = 0;
      for (int i = t; i < length_; ++i)
        for (int j = 0; j < t; ++j) {
          const Entry& pair = flow[index(i * length_ + j)];
          of.exact += pair.exact, of.off += pair.off, sizes += std::abs(pair.exact) + pair.off;
        }
      of.off += (length_ / 4 + 60) * Wide{u_float} * sizes;
    }
  }

  /// All that row i gives.
  void add_row(int i, int head, int key_head, const std::vector<Wide>& log_gate, std::vector<Entry>& flow) {
    constexpr Wide u = u_of<T>, least = least_of<T>;
    const Heads& heads = x_.how.heads;
    const bool normalised = x_.how.normalised;
    const Vector query = vector_of(x_.queries, b_, i, head, false), dy = vector_of(d_rows_, b_, i, head, false);
    std::vector<Pair> pairs(index(i + 1));
    Wide top = 0, decay = 0;
    for (int j = i; j >= 0; --j) {
      pairs[index(j)] = pair_of(query, keys_[index(j)], decay);
      if (keys_[index(j)].sum > 0) top = std::max(top, pairs[index(j)].unit);
      decay += log_gate[index(j)];
      if (log_gate[index(j)] == -infinity) break;
    }
    const Wide steps = (i + 16) / 16, sums_off = off_of_sums<T>(static_cast<double>(steps), x_.how.products);

    // The forward pass.
    Wide den = 0, den_off = 0;
    for (Pair& p : pairs) {
      if (!p.seen) continue;
      const Wide gap = p.unit > 0 && top > 0 ? std::abs(std::log2(top / p.unit)) : 0;
      p.float_off =
          P * Wide{off_of_sums<T>(d / 16., x_.how.products)} + sums_off + (60 + 16 * P + 4 * gap) * Wide{u_float};
      p.s_off += 2 * least * top;
      den += p.s;
      den_off += u * std::abs(p.s) + p.float_off * p.size + p.s_off;
    }
    if (!normalised) den = power_of(1 / Wide{x_.how.scale}, P), den_off = 0;
    const bool zero_row = dy.sum == 0;
    if (normalised && den <= -den_off) return;  // flagged, as is what no key has a weight in
    if (normalised && !(den_off < .5L * std::abs(den))) {
      if (!zero_row) unknown.emplace_back(i, head);
      return;
    }
    if (zero_row) return;
    const Wide size = std::abs(den), phi = den_off / (size - den_off) + 8 * Wide{u_float};
    Wide delta = 0, delta_off = 0, delta_size = 0;
    for (int c = 0; normalised && c < e_; ++c) {
      Wide num = 0, num_off = 0;
      for (int j = 0; j <= i; ++j) {
        const Pair& p = pairs[index(j)];
        const Wide v_jc = values_[index(j)].x[index(c)];
        if (!p.seen) continue;
        num += p.s * v_jc, num_off += (u * std::abs(p.s) + p.float_off * p.size + p.s_off) * std::abs(v_jc);
      }
      const Wide y = num / den;
      Wide y_off = (num_off + std::abs(y) * den_off) / (size - den_off);
      y_off += (u + 16 * Wide{u_float}) * (std::abs(y) + y_off) + least;
      const Wide dy_c = std::abs(dy.x[index(c)]);
      delta += dy.x[index(c)] * y, delta_size += dy_c * (std::abs(y) + y_off);
      delta_off += dy_c * y_off;
    }
    delta_off += (e_ + 8) * Wide{u_float} * delta_size;

    // Pairs.
    const Wide more = (1 + u) * (1 + phi), near = least * two_to(dy.exponent),
               near_value = sizeof(T) == 2 ? 0 : least;  // as factors of a product
    Entry* const dq = &q[index((i * heads.query + head) * d)];
    std::vector<Wide> near_zero(index(d));
    for (int j = 0; j <= i; ++j) {
      const Pair& p = pairs[index(j)];
      if (!p.seen) continue;
      const Vector &key = keys_[index(j)], &value = values_[index(j)];
      Wide c = -delta, c_size = delta_size, c_off = delta_off + near * value.sum + near_value * dy.sum;
      for (int n = 0; n < e_; ++n) {
        const Wide product = dy.x[index(n)] * value.x[index(n)];
        c += product, c_size += std::abs(product);
      }
      c_off += (off_of_sums<T>((e_ + 15) / 16., x_.how.products) + 8 * Wide{u_float}) * c_size;
      const Wide weight = p.s / den, weight_size = p.size / size;
      const Wide weight_off = more * (std::abs(weight) * (u + phi) + (p.float_off * p.size + p.s_off) / size);
      const Wide dx = P * p.slope * c / den;
      const Wide dx_off = more * (std::abs(dx) * (u + phi) + P * std::abs(p.slope) * c_off / size +
                                  P * (p.float_off * p.steep + p.slope_off) * (std::abs(c) + c_off) / size);
      const Wide dx_size = P * p.steep * (std::abs(c) + c_off) / size;
      Entry& pair = flow[index(i * length_ + j)];
      pair.exact = weight * c;
      pair.off = more * (std::abs(weight) * (phi * std::abs(c) + c_off) +
                         (p.float_off * p.size + p.s_off) * (std::abs(c) + c_off) / size);
      const auto in = static_cast<std::size_t>(j);
      for (int n = 0; n < d; ++n) {
        const Wide k_n = key.x[index(n)], q_n = query.x[index(n)];
        dq[n].exact += dx * k_n;
        dq[n].off += dx_off * std::abs(k_n) + sums_off * dx_size * std::abs(k_n) +
                     (std::abs(dx) + dx_off) * least * two_to(key.exponent);
        near_zero[index(n)] += std::abs(k_n) * two_to(-key.exponent);
        Entry& dk = k[index((j * heads.key + key_head) * d + n)];
        dk.exact += dx * q_n;
        dk.off += dx_off * std::abs(q_n) + all_sums() * dx_size * std::abs(q_n) +
                  (std::abs(dx) + dx_off) * least * two_to(query.exponent);
        key_sum_[in * index(d) + index(n)] += std::abs(q_n) * two_to(-query.exponent);
      }
      for (int n = 0; n < e_; ++n) {
        const Wide dy_n = std::abs(dy.x[index(n)]);
        Entry& dv = v[index((j * heads.key + key_head) * e_ + n)];
        dv.exact += weight * dy.x[index(n)];
        dv.off += weight_off * dy_n + all_sums() * weight_size * dy_n + (std::abs(weight) + weight_off) * near;
        value_sum_[in * index(e_) + index(n)] += dy_n * two_to(-dy.exponent);
      }
      key_unit_[in] = std::max(key_unit_[in], 2 * more * p.unit * two_to(dy.exponent) / size);
    }
    for (int n = 0; n < d; ++n)
      dq[n].off += 2 * more * least * top / size * two_to(dy.exponent + shift_ - query.exponent) * near_zero[index(n)];
  }

  /// Sums over all rows of a group.
  [[nodiscard]] Wide all_sums() const {
    const int group = x_.how.heads.query / x_.how.heads.key;
    return off_of_sums<T>(group * ((length_ + 63) / 64 * 4.), x_.how.products) + 4 * group * Wide{u_float};
  }

  [[nodiscard]] Pair pair_of(const Vector& query, const Vector& key, Wide decay) const {
    Pair p;
    p.seen = true;
    for (int c = 0; c < d; ++c) {
      p.x += query.x[index(c)] * key.x[index(c)];
      p.a += std::abs(query.x[index(c)] * key.x[index(c)]);
    }
    const Wide w = two_to(decay), unit = two_to(query.exponent + key.exponent);
    const Wide near = query.sum > 0 && key.sum > 0
                          ? Wide{least_of<T>} * (query.sum * two_to(key.exponent) + key.sum * two_to(query.exponent) +
                                                 d * Wide{least_of<T>} * unit)
                          : 0;
    const Wide a = p.a + near;
    p.s = w * power_of(p.x, P), p.slope = w * power_of(p.x, P - 1);
    p.size = w * power_of(a, P), p.steep = w * power_of(a, P - 1);
    p.s_off = w * P * power_of(a, P - 1) * near;
    p.slope_off = P > 1 ? w * (P - 1) * power_of(a, P > 1 ? P - 2 : 0) * near : 0;
    p.unit = w * power_of(unit, P);
    return p;
  }

  template <class Number>
  std::string compare(const std::string& what, const std::vector<Entry>& expected, const Tokens<Number>& got) const {
    for (int t = 0; t < length_; ++t)
      for (int h = 0; h < got.heads; ++h)
        for (int c = 0; c < got.width; ++c) {
          const Entry& of = expected[index((t * got.heads + h) * got.width + c)];
          const Wide number = Wide{to_float(got.data[got.at(b_, t, h, c)])};
          const bool is_lost = !std::isfinite(of.exact) && !std::isfinite(number);
          const bool beyond = is_lost || (std::isinf(number) && (number > 0) == (of.exact > 0) &&
                                          std::abs(of.exact) + of.off > Wide{largest_of<Number>});
          if (!beyond && !(std::abs(number - of.exact) <= of.off)) {
            std::ostringstream text;
            text << what << " of token " << t << ", head " << h << ", channel " << c << ", sequence " << b_ << ": "
                 << number << " is not " << of.exact << " ± " << of.off;
            return text.str();
          }
        }
    return "";
  }

  const Arrays<T, d>& x_;
  const Tokens<T>& d_rows_;
  int b_, length_, e_, shift_ = 0;
  std::vector<Vector> keys_, values_;
  std::vector<Wide> key_unit_;             // the largest weight of a key
  std::vector<Wide> key_sum_, value_sum_;  // Σ_i |q̂_i|, Σ_i |dŷ_i| of the rows that see it
};

}  // namespace sympow::test
