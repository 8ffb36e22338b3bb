// Scores of a block of queries with blocks of keys, weighed and summed: the direct half of every form.
#pragma once

#include <utility>

#include <sympow/attention/workspace.hpp>
#include <sympow/transition/transition.hpp>

namespace sympow::detail {

/// Log decays of a segment: from its start through each token, and from each token to its end. Returns the whole.
template <class Scalar>
double accumulate_gates(const TransitionView<Scalar>& transition, Segment segment, ColumnView<double> from_start,
                        ColumnView<double> to_end) {
  transition.log_decays(segment, to_end.data());
  double sum = 0, back = 0;
  for (Index i = 0; i < segment.size; ++i) from_start[i] = sum += to_end[i];
  for (Index j = segment.size - 1; j >= 0; --j) back += std::exchange(to_end[j], back);
  return sum;
}

/// Adds contributions to `work.rows`, and for diagnostics their absolute weights to `work.absolute`. The exponents and norms of the
/// queries, and of the segment's own keys, are those in the workspace.
template <class Scalar, FeatureMap F>
class ScoreSums {
  static constexpr int degree = degree_of<F>;

 public:
  ScoreSums(Workspace<Scalar>& work, Rows rows, Diagnostics* diagnostics)
      : work_(work), rows_(rows), diagnostics_(diagnostics) {}

  /// Memory for so many rows of so many keys at a time.
  void reserve(Index value_rows, Index queries, Index keys) {
    work_.gates(keys);
    work_.shift(queries);
    work_.absolute_shift(queries);
    work_.gate(queries);
    work_.factors.reserve(keys);
    work_.rows.reserve(value_rows, queries);
    if (diagnostics_ == nullptr) return;
    work_.absolute_logits(keys, queries);
    work_.absolute.reserve(0, queries);
  }

  /// Rows without any contribution, for queries whose exponents and norms are set; `room` is that for the values, see `room_for`.
  void reset(Index value_rows, Index queries, double room) {
    n_ = queries;
    work_.rows.reset(value_rows, n_, room);
    if (diagnostics_ != nullptr) work_.absolute.reset(0, n_, room);
  }

  /// Keys of the queries' own segment, j ≤ i as far as there are any; logits, keys × n, become weights.
  void add_causal(const TransitionView<Scalar>& transition, Segment segment, MatrixView<Scalar> logits,
                  MatrixView<const Scalar> values) {
    const Index keys = logits.rows();
    auto gates = work_.gates(n_);
    const auto exponents = work_.key_exponents(n_);
    const auto seen = [&](Index i) { return std::min(i + 1, keys); };
    add(
        logits, values, work_.key_norms(n_), seen,
        [&](Index i) -> KeyFactors<Scalar>& {
          const double log_gamma = transition.log_decay(segment.begin + i);
          for (Index j = 0; j < i; ++j) gates[j] += log_gamma;
          gates[i] = 0;
          work_.factors.template set<F>(gates.head(seen(i)), exponents.head(seen(i)));
          return work_.factors;
        },
        [](Index) { return 0.0; });
  }

  /// All keys of an earlier block; their decay to its end is in the factors, log_gate(i) is that from there to query i.
  template <class LogGate>
  void add_earlier(KeyFactors<Scalar>& factors, ColumnView<const Scalar> norms, MatrixView<Scalar> logits,
                   MatrixView<const Scalar> values, const LogGate& log_gate) {
    add(
        logits, values, norms, [&](Index) { return logits.rows(); },
        [&](Index) -> KeyFactors<Scalar>& { return factors; }, log_gate);
  }

  /// 2^exponent times sums that were read through φ, decayed by log_gate(i); `noise` is the weight that their rounding has, `absolute`
  /// that of the row condition number, for diagnostics.
  template <class LogGate>
  void add_read(MatrixView<const Scalar> numerators, ColumnView<const Scalar> denominators,
                ColumnView<const Scalar> noise, ColumnView<const Scalar> absolute, double exponent,
                const LogGate& log_gate) {
    auto shift = work_.shift(n_), gate = work_.gate(n_);
    for (Index i = 0; i < n_; ++i) {
      shift[i] = exponent + of_query(i);
      gate[i] = log_gate(i) * std::numbers::log2e;
    }
    work_.rows.add_read(numerators, denominators, noise, shift, gate);
    if (diagnostics_ != nullptr) work_.absolute.add_read(numerators.topRows(0), absolute, absolute, shift, gate);
  }

  /// Writes the rows from `first` on into the columns of Y, the first of which is query `query` of the call.
  void write(Index first, Index query, MatrixView<Scalar> Y) const {
    work_.rows.write(rows_, first, Y);
    if (diagnostics_ == nullptr) return;
    for (Index t = 0; t < Y.cols(); ++t) {
      const Index i = first + t;
      const double log2_sum = work_.rows.log2_denominator(i), log2_weight = work_.absolute.log2_denominator(i);
      const double condition = log2_weight == no_weight ? 0 : std::exp2(log2_weight - log2_sum);
      double* const said = &(*diagnostics_)(0, query + t);
      said[0] = log2_sum * std::numbers::ln2;
      said[1] = condition;
      said[2] = work_.rows.degenerate(i, rows_) ? 1 : 0;
    }
  }

 private:
  // The exponent of query i in its weights.
  double of_query(Index i) { return degree * work_.query_exponents(n_)[i]; }

  // Query i sees the first `seen(i)` keys, weighed by `factors(i)`.
  template <class Seen, class Factors, class LogGate>
  void add(MatrixView<Scalar> logits, MatrixView<const Scalar> values, ColumnView<const Scalar> norms, const Seen& seen,
           const Factors& factors, const LogGate& log_gate) {
    const bool diagnose = diagnostics_ != nullptr;
    auto shift = work_.shift(n_), absolute_shift = work_.absolute_shift(n_), gate = work_.gate(n_);
    auto absolute = work_.absolute_logits(diagnose ? logits.rows() : 0, diagnose ? n_ : 0);
    for (Index i = 0; i < n_; ++i) {
      const Index m = seen(i);
      auto column = logits.col(i).head(m);
      KeyFactors<Scalar>& own = factors(i);
      if (diagnose) absolute.col(i).head(m) = norms.head(m) * work_.query_norms(n_)[i];
      shift[i] = weigh<F>(column, own) + of_query(i);
      gate[i] = log_gate(i) * std::numbers::log2e;
      logits.col(i).tail(logits.rows() - m).setZero();
      if (!diagnose) continue;
      if constexpr (F::score == Score::exponential) {
        for (Index j = 0; j < m; ++j) absolute(j, i) = (absolute(j, i) + 1) * column[j];
        absolute_shift[i] = shift[i];
      } else {
        absolute_shift[i] = weigh<F>(absolute.col(i).head(m), own) + of_query(i);
      }
      absolute.col(i).tail(logits.rows() - m).setZero();
    }
    if (diagnose) work_.absolute.add(values.topRows(0), absolute, absolute_shift, gate, false);
    work_.rows.add(values, logits, shift, gate, rows_ == Rows::signed_means);
  }

  Workspace<Scalar>& work_;
  Rows rows_;
  Diagnostics* diagnostics_;
  Index n_ = 0;
};

}  // namespace sympow::detail
