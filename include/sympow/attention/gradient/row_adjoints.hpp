// Rows of a segment on the way back: what the loss asks of their sums.
#pragma once

#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/engine/row_ends.hpp>
#include <sympow/attention/gradient/pair_adjoints.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Rows begin, …, end - 1 of a segment with one reference E of their sums and one unit 2^R of their gradients; or one
/// faint row, see `FaintPairs`, whose logits have theirs in the unit 2^(R + slope).
struct RowRun {
  static constexpr double bits_above_1 = 16;  ///< what is at most so much larger than 1 has the unit 1

  Index begin, end;
  double E, R;
  bool is_faint = false;
  double slope = 0;
};

/// The sums and the outputs, e × T, of a forward pass; null where nobody has kept them.
template <class Scalar>
struct KnownRows {
  const RowSum* sums = nullptr;
  const Scalar* Y = nullptr;
};

/// Keys whose pairs go back together, in units that are so many powers of two lower: short ones, whose gradients are
/// numbers of the type where their weights are not, as they are divided by a length. Usually all keys are of level 0.
template <class Scalar>
struct KeyLevel {
  static constexpr double bits = -std::numeric_limits<Scalar>::min_exponent / 2;

  double number = 0;
  bool is_only = true;

  [[nodiscard]] double below() const { return number * bits; }
  /// That of a key of length 2^n with the weight 2^w, for gradients 2^R of a score.
  [[nodiscard]] static double of(double w, double n, double R) {
    constexpr double least = std::numeric_limits<Scalar>::min_exponent - std::numeric_limits<Scalar>::digits;
    if (w >= -bits || n == no_weight || std::max(R, R - n) <= 0 || w + std::max(R, R - n) < least) return 0;
    return std::floor(-w / bits);
  }
};

/// Memory of rows.
template <class Scalar>
struct RowAdjointMemory {
  Panel<Scalar> dY, factors, last;
  Panel<double> of_dY, references, gates, sums, products, sum_exponents, noise, exponents, slopes;
  std::vector<RowRun> runs;

  void reserve(Index value_rows, Index n) {
    dY(value_rows, n);
    for (auto* panel : {&factors, &last}) (*panel)(n);
    for (auto* panel : {&of_dY, &references, &gates, &sums, &products, &sum_exponents, &noise, &exponents, &slopes})
      (*panel)(n);
  }
};

/// For rows i of queries 2^{n_i} q̂_i whose weights are counted from 2^{P n_i + E_i} f_i on, f_i the decay from the
/// segment's first token to row i, or 1 for exponential scores, which have it themselves,
///
///     den_i = Σ_j ŝ_ij        num_i = Σ_j ŝ_ij v_j·dŷ_i        dy_i = 2^{y_i} dŷ_i
///     means   g_i = 2^{ρ_i} (inv_i dŷ_i, last_i),   last_i = -inv_i num_i / den_i,   inv_i = 2^{y_i - ρ_i} / den_i
///     sums    g_i = 2^{ρ_i} (inv_i dŷ_i, 0),        inv_i = 2^{y_i - ρ_i + P n_i + E_i} f_i
///
/// so that ŝ_ij v⁺_j·g_i is what the loss gains by log s_ij. A row without anything to divide by has g_i = 0. Source:
/// gradients of a weighted mean; the row's length and gates cancel in it.
template <class Scalar, FeatureMap F>
class RowAdjoints {
  static constexpr int degree = degree_of<F>;
  static constexpr double bits_of_run = 48;  // rows whose gradients differ by more have a unit of their own

 public:
  RowAdjoints(RowAdjointMemory<Scalar>& memory, RowKind kind) : memory_(memory), kind_(kind) {}

  [[nodiscard]] bool divides() const { return kind_ != RowKind::sums; }
  [[nodiscard]] Index size() const { return n_; }
  [[nodiscard]] MatrixView<Scalar> dY() { return memory_.dY(e_, n_); }
  /// E_i, ρ_i; inv_i and last_i.
  [[nodiscard]] ColumnView<double> references() { return memory_.references(n_); }
  [[nodiscard]] ColumnView<double> exponents() { return memory_.exponents(n_); }
  [[nodiscard]] ColumnView<Scalar> factors() { return memory_.factors(n_); }
  [[nodiscard]] ColumnView<Scalar> last() { return memory_.last(n_); }
  /// The largest den_i that can be rounding, 0 at first.
  [[nodiscard]] ColumnView<double> noise() { return memory_.noise(n_); }

  /// n rows without any score; those from `first` on have the columns of dY.
  void begin(Index n, Index first, MatrixView<const Scalar> dY) {
    e_ = dY.rows();
    n_ = n;
    auto scaled = this->dY();
    auto of_dY = memory_.of_dY(n_);
    of_dY.setConstant(no_weight);
    if (dY.cols() < n) scaled.setZero();
    Scalar norm;
    for (Index i = 0; i < dY.cols(); ++i)
      of_dY[first + i] = take_exponent<Scalar>(dY.col(i), scaled.col(first + i), Scalar(1), norm);
    memory_.sums(n_).setZero();
    memory_.products(n_).setZero();
    memory_.sum_exponents(n_).setZero();
    noise().setZero();
    memory_.slopes(n_).setConstant(no_weight);
  }
  /// Adds to den_i and num_i.
  void add(Index i, const ScoreSums& some) {
    memory_.sums(n_)[i] += some.sum;
    memory_.products(n_)[i] += some.product;
  }
  /// Whether the loss asks for row i at all.
  [[nodiscard]] bool is_asked(Index i) const { return memory_.of_dY(n_)[i] != no_weight; }
  /// Row i is faint: nothing is added to it yet, and it has a reference and a slope of its own.
  void begin_faint(Index i, double E, double slope) {
    memory_.sums(n_)[i] = memory_.products(n_)[i] = 0;
    references()[i] = E;
    memory_.slopes(n_)[i] = slope;
  }
  /// den_i, as far as it is added.
  [[nodiscard]] double sum(Index i) const { return memory_.sums(n_)[i]; }
  /// Sets both, but for a power of two, from what the forward pass knows of row i.
  void know(Index i, const RowSum& known, ColumnView<const Scalar> y, const Queries<Scalar>& queries) {
    constexpr bool is_power = F::score != Score::exponential;
    const double length = is_power ? degree * queries.exponents[i] : 0;
    if (known.sum == 0 || references()[i] == no_weight || length == no_weight) return;
    const LogDecay gate{-queries.from_first[i], -queries.from_first_low[i]};
    const double mean = static_cast<double>(dot_product(y.data(), dY().col(i).data(), y.size()));
    memory_.sums(n_)[i] = is_power ? known.sum * gate.weight() : known.sum;
    memory_.products(n_)[i] = mean * memory_.sums(n_)[i];
    memory_.sum_exponents(n_)[i] = known.exponent - references()[i] - length;
  }

  /// All is added: what becomes of the rows, and the runs of them that go back together.
  const std::vector<RowRun>& finish(const Queries<Scalar>& queries) {
    for (Index i = 0; i < n_; ++i) {
      const double dy = memory_.of_dY(n_)[i];
      exponents()[i] = no_weight;
      factors()[i] = last()[i] = 0;
      if (dy == no_weight || references()[i] == no_weight) continue;
      if (divides())
        end_mean(i, dy);
      else
        end_sum(i, dy + degree * (queries.exponents[i] == no_weight ? 0 : queries.exponents[i]), queries);
    }
    return cut();
  }

 private:
  void end_mean(Index i, double dy) {
    constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    const double sum = memory_.sums(n_)[i], noise = this->noise()[i], size = std::abs(sum);
    if ((kind_ == RowKind::signed_means ? size : sum) <= tolerance * noise && std::isfinite(noise)) return;
    int taken = 0, exponent = 0;
    const double inverse = 1 / std::frexp(sum, &taken),
                 of_sum = -std::ldexp(memory_.products(n_)[i], -taken) * inverse * inverse;
    std::frexp(std::max(std::abs(inverse), std::abs(of_sum)), &exponent);
    factors()[i] = static_cast<Scalar>(std::ldexp(inverse, -exponent));
    last()[i] = static_cast<Scalar>(std::ldexp(of_sum, -exponent));
    exponents()[i] = dy + exponent - taken - memory_.sum_exponents(n_)[i];
  }
  void end_sum(Index i, double exponent, const Queries<Scalar>& queries) {
    LogDecay gate{queries.from_first[i], queries.from_first_low[i]};
    if constexpr (F::score == Score::exponential) gate = {};  // it is in the scores
    const double log2 = references()[i] + gate.high * std::numbers::log2e, whole = std::ceil(log2);
    factors()[i] = static_cast<Scalar>(gate.weight(references()[i] - whole));
    exponents()[i] = exponent + whole;
  }

  // Each faint row, and consecutive other ones with one reference, whose ρ lie within some powers of two. A row without
  // gradient may begin a run of another reference, for it sees less, but not end it: keys that it alone sees may be too
  // heavy. The unit is the largest of them, or 1 where that holds them as well: what is added then need not be scaled.
  const std::vector<RowRun>& cut() {
    auto& runs = memory_.runs;
    runs.clear();
    double most = no_weight, least = -no_weight;
    for (Index i = 0; i < n_; ++i) {
      const double rho = exponents()[i], E = references()[i], slope = memory_.slopes(n_)[i];
      const bool is_faint = slope != no_weight;
      const auto fits = [&](const RowRun& run) {
        if (is_faint || run.is_faint) return false;
        return run.R == no_weight || ((F::score == Score::exponential || run.E == E) &&
                                      (rho == no_weight || std::max(most, rho) - std::min(least, rho) <= bits_of_run));
      };
      if (runs.empty() || !fits(runs.back())) {
        runs.push_back({i, i, E, no_weight, is_faint, is_faint ? slope : 0});
        most = no_weight, least = -no_weight;
      }
      RowRun& run = runs.back();
      run.end = i + 1;
      if (rho == no_weight) continue;
      most = std::max(most, rho), least = std::min(least, rho);
      run.E = E;
      run.R = 0 <= most && most <= RowRun::bits_above_1 ? 0 : most;
    }
    return runs;
  }

  RowAdjointMemory<Scalar>& memory_;
  RowKind kind_;
  Index e_ = 0, n_ = 0;
};

}  // namespace SYMPOW_NAMESPACE::detail
