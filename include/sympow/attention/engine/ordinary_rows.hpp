// Rows of one common scale: the sums of scores that are powers, where nothing is near the ends of the scalar type.
#pragma once

#include <sympow/attention/workspace.hpp>
#include <sympow/core/blocks.hpp>

namespace sympow::detail {

/// log2 of the smallest ordinary weight: the largest that a row sees. What leaves the type beside it is lost beside 2^-86.
inline constexpr double least_weight = -40;

/// The smallest ordinary decay of a segment, as a natural logarithm. Gates are split at a segment's ends, and logarithms of this size
/// cost as many roundings of a double: none that a float sees.
template <class Scalar>
inline constexpr double least_log_decay = std::is_same_v<Scalar, double> ? -.5 : -27;

/// e^log 2^whole.
inline double weight_of(double log, double whole) {
  return std::ldexp(std::exp(log), static_cast<int>(std::clamp(whole, -4096.0, 4096.0)));
}

/// max_j log2 (b_j 2^{P n_j}), from the natural logarithms of b and the exponents n of keys; log2 of 0 without any.
template <int degree>
double largest_log2_weight(ColumnView<const double> log_b, ColumnView<const double> exponents) {
  double largest = no_weight;
  for (Index j = 0; j < log_b.size(); ++j)
    largest = std::max(largest, degree * exponents[j] + std::numbers::log2e * log_b[j]);
  return largest;
}

/// Σ_j w_j n_j^P of lengths n_j, in double.
template <int degree, class Scalar>
double absolute_weight(ColumnView<const Scalar> weights, ColumnView<const Scalar> norms) {
  double sum = 0;
  for (Index j = 0; j < weights.size(); ++j)
    sum += static_cast<double>(weights[j]) * power<degree>(static_cast<double>(norms[j]));
  return sum;
}

/// scores_j ← scores_j^P w_j for n logits; returns their sum.
template <int degree, class Scalar>
Scalar weigh_scores(Scalar* scores, const Scalar* weights, Index n) {
  constexpr Index block = 16;
  using Block = Eigen::Array<Scalar, block, 1>;
  Block sums = Block::Zero();
  Index j = 0;
  for (; j + block <= n; j += block) {
    const Block some = power<degree>(Block(Block::Map(scores + j))) * Block::Map(weights + j);
    Block::Map(scores + j) = some;
    sums += some;
  }
  Scalar rest(0);
  for (; j < n; ++j) rest += scores[j] = power<degree>(scores[j]) * weights[j];
  return rest + sums.sum();
}

/// For rows i = 0 … n - 1 of one common scale
///
///     numerators_i = Σ_j s_ij^P w_j v_j,   denominators_i = Σ_j s_ij^P w_j
///
/// some contributions at a time; these enter the rows in a sum that keeps what its roundings lose, so that a row is as good after
/// thousands of them.
template <class Scalar, int degree>
class OrdinaryRows {
  static constexpr Index at_once = 4;  // contributions
  static constexpr Index group = 24;   // queries that see the same number of keys
  static constexpr int block = 16;     // scores

 public:
  OrdinaryRows(Workspace<Scalar>& work, Rows rows, Diagnostics* diagnostics)
      : work_(work),
        diagnostics_(diagnostics),
        normalized_(rows == Rows::weighted_means),
        divides_(normalized_ || diagnostics != nullptr) {}

  /// Memory for so many rows.
  void reserve(Index value_rows, Index rows) {
    for (auto* panel : {&work_.partial, &work_.sums, &work_.sum_residues}) (*panel)(value_rows, rows);
    for (auto* panel : {&work_.partial_denominators, &work_.denominators, &work_.denominator_residues}) (*panel)(rows);
  }

  /// Rows without any contribution.
  void reset(Index value_rows, Index rows) {
    e_ = value_rows;
    n_ = rows;
    pending_ = settled_ = 0;
    last_ = 0;
  }

  /// Adds the scores of keys with the weights w, from their logits, which are used up. Query i sees the first i + 1 of them, or all.
  void add_scores(MatrixView<Scalar> logits, ColumnView<const Scalar> weights, MatrixView<const Scalar> values,
                  bool causal) {
    const Index keys = logits.rows(), step = causal ? group : n_;
    auto numerators = work_.partial(e_, n_);
    auto denominators = work_.partial_denominators(n_);
    for (Index begin = 0; begin < n_; begin += step) {
      const Index end = std::min(begin + step, n_), seen = causal ? std::min(end, keys) : keys;
      for (Index i = begin; i < end; ++i) {
        const Index own = causal ? std::min(i + 1, keys) : keys;
        Scalar* const scores = &logits(0, i);
        std::fill(scores + own, scores + seen, Scalar(0));
        const Index of_whole_blocks = (own + block - 1) / block * block;
        const Scalar sum = weigh_scores<degree>(scores, weights.data(), std::min(of_whole_blocks, seen));
        if (divides_) denominators[i] = pending_ == 0 ? sum : denominators[i] + sum;
      }
      add(numerators.middleCols(begin, end - begin), values.leftCols(seen), logits.block(0, begin, seen, end - begin));
    }
    ++pending_;
  }

  /// Adds S φ and Z φ for some entries of φ, n × entries.
  template <class Features>
  void add_read(MatrixView<const Scalar> S, ColumnView<const Scalar> Z, const Features& features) {
    add(work_.partial(e_, n_), S, features.transpose());
    if (divides_) add(work_.partial_denominators(n_), features, Z);
    ++pending_;
  }

  /// Takes contributions into the rows, `factor` times, once there are some of them.
  void settle_some(Scalar factor) {
    if (pending_ >= at_once) settle(factor);
  }
  /// The same for those that are left.
  void settle(Scalar factor) {
    if (pending_ == 0) return;
    settle(work_.sums, work_.sum_residues, factor, work_.partial, e_ * n_);
    settle_denominators(factor);
  }
  /// The same for the last, before the rows are written.
  void finish(Scalar factor) {
    if (pending_ == 0 || settled_ != 1) return settle(factor);
    last_ = factor;  // numerators are added on the way out
    settle_denominators(factor);
  }

  /// y ← row i times gate 2^whole, or divided by its denominator. `noise` is the weight relative to which that can be rounding, `absolute`
  /// that of the row condition number, both without the scale; log is that of the gate.
  void write(Index token, Index i, double noise, double absolute, double log, double gate, double whole,
             ColumnView<Scalar> y) const {
    constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    const bool degenerate = normalized_ && static_cast<double>(denominator(i)) <= tolerance * noise;
    const auto sums = work_.sums(e_, n_).col(i), partial = work_.partial(e_, n_).col(i);
    constexpr double moderate = std::numeric_limits<Scalar>::max_exponent / 2;
    const bool is_near = std::abs(whole) < moderate;
    const Scalar scale =
        static_cast<Scalar>(gate) * (is_near ? normal_power_of_two<Scalar>(static_cast<int>(whole)) : 1);
    const Scalar divisor = normalized_ ? denominator(i) : Scalar(1);
    using Block = Eigen::Array<Scalar, block, 1>;
    Index r = 0;
    for (; r + block <= e_; r += block) {
      Block some = Block::Map(sums.data() + r);
      if (last_ != Scalar(0)) some += last_ * Block::Map(partial.data() + r);
      if (normalized_)
        some /= divisor;
      else
        some *= scale;
      Block::Map(y.data() + r) = some;
    }
    for (; r < e_; ++r) {
      const Scalar sum = last_ == Scalar(0) ? sums[r] : sums[r] + last_ * partial[r];
      y[r] = normalized_ ? sum / divisor : sum * scale;
    }
    if (degenerate)
      y.setZero();
    else if (!normalized_ && !is_near)
      set_times_power_of_two<Scalar>(y, y, whole);
    if (diagnostics_ == nullptr) return;
    const double sum = std::abs(static_cast<double>(denominator(i)));
    double* const said = &(*diagnostics_)(0, token);
    said[0] = sum == 0 ? no_weight : std::log(sum) + log + whole * std::numbers::ln2;
    said[1] = absolute == 0 ? 0 : absolute / sum;
    said[2] = degenerate ? 1 : 0;
  }

  /// Σ_j s_ij^P w_j of rows that are divided.
  [[nodiscard]] Scalar denominator(Index i) const { return work_.denominators(n_)[i]; }
  [[nodiscard]] bool normalized() const { return normalized_; }

 private:
  template <class C, class A, class B>
  void add(C&& c, const A& a, const B& b) const {
    if (pending_ == 0)
      set_product(c, a, b);
    else
      add_product(c, a, b);
  }

  void settle_denominators(Scalar factor) {
    if (divides_) settle(work_.denominators, work_.denominator_residues, factor, work_.partial_denominators, n_);
    pending_ = 0;
    ++settled_;
  }

  // The first contribution needs no residue, the second has none before it.
  void settle(Panel<Scalar>& sums, Panel<Scalar>& residues, Scalar factor, Panel<Scalar>& partial, Index size) const {
    if (settled_ == 0 && factor == Scalar(1)) return std::swap(sums, partial);
    if (settled_ == 0)
      sums(size) = factor * partial(size);
    else
      add_compensated(sums(size), residues(size), factor, partial(size), settled_ == 1);
  }

  Workspace<Scalar>& work_;
  Diagnostics* diagnostics_;
  bool normalized_, divides_;
  Index e_ = 0, n_ = 0, pending_ = 0, settled_ = 0;
  Scalar last_ = 0;  // what the numerators that are still pending are multiplied by
};

}  // namespace sympow::detail
