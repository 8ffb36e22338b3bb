// What a forward pass must come to, in double, and how far it may be off: the sum of all roundings, none of it fitted.
#pragma once

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "forward.hpp"

namespace sympow::test {

/// Rounding to T, to nearest: x (1 + δ) + ε with |δ| ≤ u, |ε| ≤ η. Of floats, as factors of a product on tensor cores:
/// three bf16 leave η of each, and six of their products u of the product (number.hpp), which is more than rounding.
template <class T>
inline constexpr double u_of = fraction_bits<T> == 7    ? 0x1p-8
                               : fraction_bits<T> == 10 ? 0x1p-11
                                                        : (1 + 0x1p-9) * 0x1p-24;
template <class T>
inline constexpr double least_of = fraction_bits<T> == 10 ? 0x1p-25 : 0x1p-134;
template <class T>
inline constexpr double largest_of = fraction_bits<T> == 7    ? 0x1.fep127
                                     : fraction_bits<T> == 10 ? 65504.
                                                              : 0x1.fffffep127;

/// What an mma may lose of S, the sum of the sizes of all terms, by the rule that cuts most: see kernels_test.cpp.
inline constexpr double u_mma = (17. / 4 + 1) * 0x1p-23;

/// What sums of so many times 16 products lose of S. Of floats, what products leave out, too: the last of the six takes
/// terms of 1 + 2^-6 in all, the five before it 2^-6.9 or less, each of 16 products alone; then these are added up in
/// float.
template <class T>
constexpr double off_of_sums(double steps, Products products) {
  if (sizeof(T) == 2) return steps * u_mma;
  const double left_out = products == Products::exact ? u_of<T> : (1 + 0x1p-8) * 0x1p-15;
  return left_out + (1 + 0x1p-4) * u_mma + steps * u_float;
}

/// How the tokens of a sequence are cut: chunks count from token `from`, what lies before comes as an initial state.
struct Cut {
  bool quadratic = false;
  int from = 0;
};

/// The rows of a sequence b and query head h. With w the product of the gates between a key and the row,
/// ‖·‖₁ = Σ_c |·_c|, a = Σ_c |q_c k_c|, a row may be off by the following, times |v| in its sum:
///   a key that comes through the state: a monomial of it takes P roundings to T (its weight included), one of the
///     query P - 1, one of the state 1 (a normaliser none), and Σ_m c_m |φ_m(q) φ_m(k)| = a^P: 2 P u w a^P, or, of the
///     normaliser, (2 P - 1) u w a^P. Monomials that are exact leave u w a^P, and 0.
///     An entry x of a split state is T(x) + T(x - T(x)), the difference being exact in float. It is at most u |x|, or
///     η where T(x) is near 0, and is rounded by u of that, or η: u² |x| + η take the place of u |x| + η.
///     Of numbers near 0: (2 P - 1) η ‖q‖₁^P times 2^⌈end⌉ of its chunk, which decays, for its 2 P - 1 roundings (k̂'s
///     as well); the same of the query with w ‖k‖₁^P; and once η ‖q‖₁^P 2^{M + p} for the state's entries.
///     Where a block goes along its chunk with the state (LinearAttention) all keys but those of the row's 64 tokens
///     come through it, and what was there before the chunk is rounded with it twice.
///   a key of the chunk: its weighted score is rounded: u w |q·k|^P + η 2^{G + r}; and q̂, P η w ‖k‖₁^P.
///     Of floats that score has factors near 0 itself: P η w ‖q‖₁ (‖q‖₁ ‖k‖₁)^{P-1}; and values do, η w a^P.
///   rotary: q and k are turned, and each is off by what turned_off says; of k that includes its rounding, of q̂ too,
///   but for the η that q̂ has anyway. With δq and δk, a grows by Σ_c |q_c| δk_c + δq_c |k_c| + δq_c δk_c, and so may
///   the score. Sizes are those in the frame of the kernels, scores those of angles that begin at 0.
///   floats: off_of_sums of tensor cores; other roundings are counted and bounded from above, a few dozen u_float.
/// A row N / den is off by (δN + |y| δden) / (den - δden), then by its own rounding.
template <class T, int P, int d>
class RowsOfHead {
 public:
  RowsOfHead(const Arrays<T, d>& arrays, const Cut& how, int b, int h)
      : e_(arrays.how.e), b_(b), h_(h), x_(arrays), cut_(how) {
    const Heads& heads = x_.how.heads;
    const int state_head = h / (heads.query / heads.state), key_head = state_head / (heads.state / heads.key);
    for (int t = 0; t < x_.batch.length(b); ++t) {
      for (int c = 0; c < d; ++c) q_.push_back(double{to_float(x_.queries.data[x_.queries.at(b, t, h, c)])});
      for (int c = 0; c < d; ++c) k_.push_back(double{to_float(x_.keys.data[x_.keys.at(b, t, key_head, c)])});
      if (x_.how.rotary) turn(t, key_head);
      for (const auto& [of, sizes, off] : {std::tuple{&q_, &q_sizes_, &q_off_}, std::tuple{&k_, &k_sizes_, &k_off_}})
        for (std::size_t c = sizes->size(); c < of->size(); ++c) {  // not turned
          sizes->push_back(std::abs((*of)[c]));
          off->push_back(0);
        }
      for (int c = 0; c < e_; ++c) v_.push_back(double{to_float(x_.values.data[x_.values.at(b, t, key_head, c)])});
      const double gate = x_.how.log_gate ? double{x_.gates.data[x_.gates.at(b, t, state_head, 0)]} : 0;
      gate_.push_back(gate * std::log2(std::exp(1.)));
      const Norms k(&k_sizes_[index(t * d)], &k_off_[index(t * d)]);
      k_norm_.push_back(k.norm);
      k_norm_off_.push_back(k.off);
      k_size_.push_back(k.size);
      k_level_.push_back(k.norm > 0 ? P * std::max(-126., std::ceil(std::log2(k.norm + k.off))) : -infinity);
    }
  }

  /// What is wrong about row i, "" if nothing is.
  std::string wrong(int i) {
    look(i);
    const auto say = [&](const std::string& what, double got, double exact, double bound) {
      std::ostringstream text;
      text << what << " of row " << i << ", head " << h_ << ", sequence " << b_ << ": " << got << " is not " << exact
           << " ± " << bound;
      return text.str();
    };
    const double condition = double{x_.condition.data[x_.condition.at(b_, i, h_, 0)]};
    const bool flagged = x_.how.normalised && condition == infinity;
    const double least_den = den_.exact - den_.off;
    if (!finite_) {
      if (!std::isnan(condition)) return say("condition", condition, not_a_number, 0);
    } else if (x_.how.normalised) {
      const double noise = double{x_.how.noise} * read_;
      const double about = (1 + 64 * P * u_float) * (1 + (read_ > 0 ? read_off_ / read_ : 0)) - 1;
      if (!flagged && den_.exact + den_.off <= noise * (1 - about)) return say("flag", 0, 1, 0);
      if (flagged && least_den > noise * (1 + about)) return say("flag", 1, 0, 0);
      if (!flagged && least_den <= 0) return "";  // not known to mean anything
      const double exact = read_ / den_.exact, off = exact * ((1 + den_.off / least_den) * (1 + about) - 1);
      if (!flagged && !(std::abs(condition - exact) <= off)) return say("condition", condition, exact, off);
      compared_ += !flagged;
    } else if (condition < 0) {
      return say("condition", condition, 0, infinity);
    }
    for (int c = 0; c < e_; ++c) {
      const double got = double{to_float(x_.rows.data[x_.rows.at(b_, i, h_, c)])};
      const Sum& sum = sums_[index(c)];
      double exact = sum.exact * unit_, off = sum.off * std::abs(unit_);
      if (x_.how.normalised) {
        exact = sum.exact / den_.exact;
        off = (sum.off + std::abs(exact) * den_.off) / least_den;
      }
      off += (u_of<T> + 16 * u_float) * (std::abs(exact) + off) + least_of<T>;
      if (flagged) exact = off = 0;
      if (!finite_ || !std::isfinite(sum.exact)) exact = not_a_number;
      const bool right = std::isnan(exact) ? !std::isfinite(got)
                         : std::isinf(got) ? std::abs(exact) + off > largest_of<T> && (got > 0) == (exact > 0)
                                           : std::abs(got - exact) <= off;
      if (!right) return say("channel " + std::to_string(c), got, exact, off);
      if (std::isfinite(got) && off > 0) worst_ = std::max(worst_, std::abs(got - exact) / off);
      if (std::isfinite(got) && std::isfinite(exact))
        errors_ += (got - exact) * (got - exact), squares_ += exact * exact;
    }
    return "";
  }
  [[nodiscard]] double worst() const { return worst_; }  ///< error over its bound so far
  /// Root mean square of errors so far, in relation to that of rows.
  [[nodiscard]] double error() const { return std::sqrt(errors_ / squares_); }
  [[nodiscard]] long compared() const { return compared_; }  ///< rows whose quotient was

 private:
  struct Sum {
    double exact = 0, off = 0;
  };

  /// Of a row of sizes that may be off: ‖·‖₁ and the largest with what they may be off, ‖·‖ and how far that may be.
  struct Norms {
    double size = 0, largest = 0, norm = 0, off = 0;

    Norms(const double* sizes, const double* offs) {
      for (int c = 0; c < d; ++c) {
        size += sizes[c] + offs[c];
        largest = std::max(largest, sizes[c] + offs[c]);
        norm += sizes[c] * sizes[c], off += offs[c] * offs[c];
      }
      norm = std::sqrt(norm), off = std::sqrt(off);
    }
  };

  /// The last query and key of q_ and k_, of token t: their sizes in the frame of the kernels, then as they turn.
  void turn(int t, int key_head) {
    const Rotation& how = *x_.how.rotary;
    path_ += double{x_.beta.data[x_.beta.at(b_, t, key_head, 0)]};
    const auto one = [&](std::vector<double>& of, std::vector<double>& sizes, std::vector<double>& offs, double least) {
      double* const x = &of[index(t * d)];
      std::vector<double> framed(x, x + d);
      const auto angle = [&](int j) { return path_ * Rotation::rate(j, d / 2); };
      turn_row(framed.data(), d, how.halves,
               [&](int j) { return angle(j) + 2 * std::numbers::pi * how.turns(b_, key_head, j); });
      for (const double off : turned_off(framed.data(), d, how.halves, u_of<T>, least)) offs.push_back(off);
      for (const double c : framed) sizes.push_back(std::abs(c));
      turn_row(x, d, how.halves, angle);
    };
    one(q_, q_sizes_, q_off_, 0);
    one(k_, k_sizes_, k_off_, least_of<T>);
  }

  /// Sums of row i, relative to its largest weight.
  void look(int i) {
    const double *q = &q_[index(i * d)], *q_sizes = &q_sizes_[index(i * d)], *q_off = &q_off_[index(i * d)];
    const Norms q_norms(q_sizes, q_off);
    const double q_size = q_norms.size, q_unit = q_size > 0 ? std::floor(std::log2(q_norms.largest)) + 1 : 0;
    finite_ = true;

    // From the last key backwards: log2 w, a and q·k; 2^reference is the largest w a^P.
    decay_.assign(index(i + 1), 0), a_ = score_ = wide_ = decay_;
    double decay = 0, reference = -infinity;
    int first = i;
    for (int j = i; j >= 0; --j) {
      const auto at = index(j);
      const double *k = &k_[index(j * d)], *k_sizes = &k_sizes_[index(j * d)], *k_off = &k_off_[index(j * d)];
      for (int c = 0; c < d; ++c) {
        score_[at] += q[c] * k[c], a_[at] += q_sizes[c] * k_sizes[c];
        wide_[at] += (q_sizes[c] + q_off[c]) * (k_sizes[c] + k_off[c]);
      }
      finite_ = finite_ && std::isfinite(q_size) && std::isfinite(k_size_[at]) && !std::isnan(gate_[at]);
      decay_[at] = decay;
      if (a_[at] > 0) reference = std::max(reference, decay + P * std::log2(a_[at]));
      decay += gate_[at];
      first = j;
      if (gate_[at] == -infinity) break;
    }
    sums_.assign(index(e_), {});
    den_ = {};
    read_ = read_off_ = 0;
    if (!finite_) return;
    if (reference == -infinity) reference = 0;
    unit_ = std::exp2(reference) * std::pow(x_.how.scale, P);

    const auto two_to = [&](double x) { return std::exp2(x - reference); };
    const auto size_of = [&](int j, const std::vector<double>& a) {
      return a[index(j)] > 0 ? two_to(decay_[index(j)] + P * std::log2(a[index(j)])) : 0;
    };
    const auto weight_of = [&](int j) {
      const auto at = index(j);
      return a_[at] > 0 ? size_of(j, a_) * std::pow(score_[at] / a_[at], P) : 0;
    };
    constexpr double u = u_of<T>, least = least_of<T>, least_factor = sizeof(T) == 2 ? 0 : least;
    const auto add = [&](int j, double weight, double off_sum, double off_one) {
      for (int c = 0; c < e_; ++c) {
        const double v = v_[index(j * e_ + c)];
        sums_[index(c)].exact += weight * v;
        sums_[index(c)].off += off_sum * std::abs(v) + least_factor * size_of(j, wide_);
      }
      den_.exact += weight;
      den_.off += off_one;
    };
    const bool is_linear = goes_along<T, P, d> && !cut_.quadratic;
    const int chunk = x_.how.chunk, block = is_linear ? stage_rows : chunk;  // of keys that go by pairs
    const auto begin_of = [&](int size) { return cut_.from + (i - cut_.from) / size * size; };
    const int begin = std::max(first, cut_.quadratic ? 0 : begin_of(block));
    const double steps = (std::min(chunk, x_.batch.longest) + 15) / 16, chunks = x_.batch.longest / block + 2;

    double row_level = -infinity;
    for (int j = first; j <= i; ++j) row_level = std::max(row_level, decay_[index(j)] + k_level_[index(j)]);
    for (int j = begin; j <= i; ++j) {
      const auto at = index(j);
      const double size = size_of(j, wide_), weight = weight_of(j), more = size - size_of(j, a_);
      const double exponent = row_level - decay_[at] - k_level_[at] + (more > 0 ? P : 0);  // as a float
      double off = u * (std::abs(weight) + more) + more;
      off += (P * off_of_sums<T>(d / 16, x_.how.products) + off_of_sums<T>(steps, x_.how.products) +
              (40 + 12 * P) * u_float) *
             size;
      if (size > 0) off += 2 * exponent * u_float * size;
      if (k_size_[at] > 0)
        off += P * least * two_to(decay_[at] + P * (q_unit + std::log2(k_size_[at]))) +
               least * two_to(row_level + P * q_unit);
      if (k_size_[at] > 0 && q_size > 0)
        off += P * least_factor * two_to(decay_[at] + P * std::log2(q_size) + (P - 1) * std::log2(k_size_[at]));
      add(j, weight, off, off);
    }

    const bool is_split = sizeof(T) == 2 && x_.how.is_split;
    const double read = 4 * Attention<T, P, d>::Features::stages * (is_split ? 2 * (1 + 2 * u) : 1);  // of both terms
    const double floats = off_of_sums<T>(2 * steps, x_.how.products) + off_of_sums<T>(read, x_.how.products) +
                          (60 + 24 * P + 10 * chunks) * u_float;
    const double factors = std::pow(1 + u, x_.how.is_exact ? 0 : 2 * P - 1), state = is_split ? u * u : u;
    const bool is_twice = is_linear && begin > begin_of(chunk);  // rounded before the chunk, and before the tile
    double mass = 0, most = 0, largest = -infinity;              // of the state, ‖k̂‖^P, at most that, and levels
    for (int end = begin; end > first;) {                        // chunk by chunk
      const int chunk_begin =
          std::max(first, end > cut_.from ? end - 1 - (end - 1 - cut_.from) % chunk : (end - 1) / chunk * chunk);
      const bool is_own = is_linear && chunk_begin >= begin_of(chunk);  // in units of all that the state has
      double level = -infinity;
      for (int j = is_own ? first : chunk_begin; j < end; ++j)
        level = std::max(level, decay_[index(j)] + k_level_[index(j)]);
      largest = std::max(largest, level);
      for (int j = chunk_begin; j < end; ++j) {
        const auto at = index(j);
        const double size = size_of(j, wide_), weight = weight_of(j), more = size - size_of(j, a_);
        double small = more;
        if (k_size_[at] > 0 && q_size > 0)
          small +=
              (2 * P - 1) * least *
              (2 * two_to(level + P * std::log2(q_size)) + two_to(decay_[at] + P * (q_unit + std::log2(k_size_[at]))));
        const auto off = [&](double roundings) { return (roundings * (1 + floats) - 1) * size + small; };
        add(j, weight, off(factors * (1 + state) * (is_twice && !is_own ? 1 + state : 1)), off(factors));
        if (k_norm_[at] > 0) mass += two_to(decay_[at] + P * std::log2(k_norm_[at]));
        if (k_norm_[at] > 0) most += two_to(decay_[at] + P * std::log2(k_norm_[at] + k_norm_off_[at]));
      }
      end = chunk_begin;
    }
    if (mass > 0 && q_size > 0) {
      read_ = mass * std::pow(q_norms.norm, P);
      read_off_ = most * std::pow(q_norms.norm + q_norms.off, P) - read_;
      const double off = least * (is_twice ? 32 : 16) * std::max(most, 2 * two_to(largest)) * std::pow(q_size, P);
      for (Sum& sum : sums_) sum.off += off;
      den_.off += off;
    }
  }

  int e_, b_, h_;
  const Arrays<T, d>& x_;
  Cut cut_;
  double path_ = 0;  // of rotary
  std::vector<double> q_, k_, v_, gate_, k_norm_, k_norm_off_, k_size_, k_level_;
  std::vector<double> q_sizes_, k_sizes_, q_off_, k_off_;  // |q|, |k| and how far they may be off
  std::vector<double> decay_, a_, wide_, score_;           // of one row; wide: a with what that may be off
  std::vector<Sum> sums_;
  Sum den_;
  double unit_ = 1, read_ = 0, read_off_ = 0, worst_ = 0, errors_ = 0, squares_ = 0;
  bool finite_ = true;
  long compared_ = 0;
};

/// What is wrong in rows from cut.from on: the first that is; "" if all are right.
template <class T, int P, int d>
std::string wrong(const Arrays<T, d>& x, const Cut& cut, double* worst = nullptr, long* compared = nullptr) {
  for (int b = 0; b < x.batch.size(); ++b)
    for (int h = 0; h < x.how.heads.query; ++h) {
      RowsOfHead<T, P, d> rows(x, cut, b, h);
      for (int i = cut.from; i < x.batch.length(b); ++i)
        if (const std::string what = rows.wrong(i); !what.empty()) return what;
      if (worst) *worst = std::max(*worst, rows.worst());
      if (compared) *compared += rows.compared();
    }
  return "";
}

}  // namespace sympow::test
