// What is said of a row when it is done: whether it means anything, and its diagnostics.
#pragma once

#include <sympow/attention/diagnostics.hpp>
#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/engine/segment.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// log2 (2^a + 2^b).
inline double log2_sum(double a, double b) {
  const double more = std::max(a, b), less = std::min(a, b);
  return less == no_weight || std::isnan(less) ? more : more + std::log1p(std::exp2(less - more)) * std::numbers::log2e;
}

/// Σ_j s_ij = 2^exponent sum of a row, with a whole exponent; a sum of 0 where there is nothing to divide by.
struct RowSum {
  double sum = 0, exponent = 0;
};

/// What is said of the rows of a call beside them, each null where it is not asked for.
struct RowReports {
  Diagnostics* diagnostics = nullptr;
  RowSum* sums = nullptr;  ///< one a row; of powers that are not divided they mean nothing
};

/// The ends of rows: degeneracy, and what is reported; for diagnostics the absolute weight of all that a row sees is
/// kept as a logarithm.
template <class Scalar, FeatureMap F>
class RowEnds {
  static constexpr int degree = degree_of<F>;

 public:
  RowEnds(Panel<double>& memory, RowKind kind, const RowReports& reports)
      : memory_(memory), kind_(kind), reports_(reports) {}

  [[nodiscard]] RowKind kind() const { return kind_; }
  [[nodiscard]] bool diagnoses() const { return reports_.diagnostics != nullptr; }

  void reset(const Queries<Scalar>& queries) {
    if (!diagnoses()) return;
    n_ = queries.size();
    memory_(n_).setConstant(no_weight);
  }

  /// The segment's own keys j ≤ i. (An exponential score has no such sums: its weights are added one by one.)
  void add_own(const Keys<Scalar>& keys, const Queries<Scalar>& queries) {
    if (!diagnoses() || F::score == Score::exponential) return;
    double sum = no_weight;
    for (Index i = 0; i < n_; ++i) {
      sum += queries.gates[i] * std::numbers::log2e;
      if (i < keys.size()) sum = log2_sum(sum, degree * (log2_of(keys.norms[i]) + keys.exponents[i]));
      add(i, sum + of_query(queries, i));
    }
  }
  /// All of some keys, which decay by e^between on their way to the segment's first token.
  void add_earlier(const Keys<Scalar>& keys, const Queries<Scalar>& queries, const LogDecay& between) {
    if (!diagnoses() || F::score == Score::exponential) return;
    add_read(absolute_weight<degree>(keys.weights, keys.norms), keys.M, queries, between);
  }
  /// The weight 2^exponent A of a state.
  void add_read(double A, double exponent, const Queries<Scalar>& queries, const LogDecay& between) {
    if (!diagnoses()) return;
    for (Index i = 0; i < n_; ++i)
      add(i,
          log2_of(A) + exponent + (between.high + queries.from_first[i]) * std::numbers::log2e + of_query(queries, i));
  }
  /// A weight of row i, by its log2.
  void add(Index i, double log2_weight) {
    double& sum = memory_(n_)[i];
    sum = log2_sum(sum, log2_weight);
  }

  /// Whether row i, whose scores sum to 2^exponent e^gate `sum`, has nothing to divide by: a sum not above 16 u of the
  /// noise in it, both with that factor. Noise that is not finite hides nothing. Reports of query `query` of the call.
  bool end(Index i, Index query, double sum, double noise, double exponent, const LogDecay& gate) {
    constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    const double size = std::abs(sum), compared = kind_ == RowKind::signed_means ? size : sum;
    const bool degenerate = kind_ != RowKind::sums && compared <= tolerance * noise && std::isfinite(noise);
    if (reports_.sums != nullptr) reports_.sums[query] = {degenerate ? 0 : sum * gate.weight(0), exponent};
    if (!diagnoses()) return degenerate;
    exponent += gate.high * std::numbers::log2e;
    const double log2_size = size == 0 ? no_weight : std::log2(size) + exponent, absolute = memory_(n_)[i];
    double* const said = &(*reports_.diagnostics)(0, query);
    said[0] = log2_size * std::numbers::ln2;
    said[1] = absolute == no_weight ? 0 : std::exp2(absolute - log2_size);
    said[2] = degenerate ? 1 : 0;
    return degenerate;
  }

 private:
  static double log2_of(double x) { return x > 0 ? std::log2(x) : no_weight; }
  static double of_query(const Queries<Scalar>& queries, Index i) {
    return degree * (log2_of(queries.norms[i]) + queries.exponents[i]);
  }

  Panel<double>& memory_;
  RowKind kind_;
  RowReports reports_;
  Index n_ = 0;
};

}  // namespace SYMPOW_NAMESPACE::detail
