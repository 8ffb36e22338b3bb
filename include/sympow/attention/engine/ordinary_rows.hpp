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
  template <class Logits, class Weights, class Values>
  void add_scores(Logits& logits, const Weights& weights, const Values& values, bool causal) {
    const Index keys = logits.rows(), step = causal ? group : n_;
    auto numerators = work_.partial(e_, n_);
    auto denominators = work_.partial_denominators(n_);
    for (Index begin = 0; begin < n_; begin += step) {
      const Index end = std::min(begin + step, n_), seen = causal ? std::min(end, keys) : keys;
      for (Index i = begin; i < end; ++i) {
        const Index own = causal ? std::min(i + 1, keys) : keys;
        auto scores = logits.col(i).array();
        scores.segment(own, seen - own).setZero();
        Eigen::Array<Scalar, block, 1> sums = Eigen::Array<Scalar, block, 1>::Zero();
        Scalar sum(0);
        for_blocks<block>(std::min((own + block - 1) / block * block, seen), [&](Index first, auto count) {
          auto some = scores.segment(first, count);
          some = entries_to_the<degree>(some) * weights.array().segment(first, count);
          if constexpr (std::is_same_v<decltype(count), Index>)
            sum = some.sum();
          else
            sums += some;
        });
        sum += sums.sum();
        if (divides_) denominators[i] = pending_ == 0 ? sum : denominators[i] + sum;
      }
      add(numerators.middleCols(begin, end - begin), values.leftCols(seen), logits.block(0, begin, seen, end - begin));
    }
    ++pending_;
  }

  /// Adds S φ and Z φ for some entries of φ, n × entries.
  template <class Values, class Normalizer, class Features>
  void add_read(const Values& S, const Normalizer& Z, const Features& features) {
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
  template <class Column>
  void write(Index token, Index i, double noise, double absolute, double log, double gate, double whole,
             Column y) const {
    constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    const bool degenerate = normalized_ && static_cast<double>(denominator(i)) <= tolerance * noise;
    const auto sums = work_.sums(e_, n_).col(i), partial = work_.partial(e_, n_).col(i);
    constexpr double moderate = std::numeric_limits<Scalar>::max_exponent / 2;
    const bool is_near = std::abs(whole) < moderate;
    const Scalar scale =
        static_cast<Scalar>(gate) * (is_near ? normal_power_of_two<Scalar>(static_cast<int>(whole)) : 1);
    for_blocks(e_, [&](Index first, auto count) {
      auto part = y.segment(first, count);
      const auto put = [&](const auto& x) __attribute__((always_inline)) {
        if (normalized_)
          part = x / denominator(i);
        else
          part = x * scale;
      };
      if (last_ == Scalar(0))
        put(sums.segment(first, count));
      else
        put(sums.segment(first, count) + last_ * partial.segment(first, count));
    });
    if (degenerate)
      y.setZero();
    else if (!normalized_ && !is_near)
      y = times_power_of_two(y, whole);
    if (diagnostics_ == nullptr) return;
    const double sum = std::abs(static_cast<double>(denominator(i)));
    diagnostics_->col(token) << (sum == 0 ? no_weight : std::log(sum) + log + whole * std::numbers::ln2),
        absolute == 0 ? 0 : absolute / sum, degenerate ? 1 : 0;
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
