// Rows of one common scale: sums of scores where nothing is near the ends of the scalar type.
#pragma once

#include <sympow/attention/engine/causal_product.hpp>
#include <sympow/attention/engine/row_ends.hpp>
#include <sympow/attention/engine/rows.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// log2 of the smallest weight beside a common scale: of the largest weight that a row sees. What leaves the type
/// beside it is lost beside 2^-86.
inline constexpr double least_weight = -40;

/// The smallest decay between two tokens of a segment that has a common scale, as a natural logarithm.
inline constexpr double least_log_decay = -27;

/// The exponent M of a common scale, from the weights that rows see.
template <int degree>
class CommonScale {
 public:
  /// A weight that all rows see, by its log2.
  void add(double log2_weight) { seen_ = std::max(seen_, log2_weight); }
  /// The keys of the rows' own segment, of which row i sees those up to i. Returns how many rows, from the first on,
  /// have a weight of 2^-40 or more of the largest that one of them sees, or none at all.
  Index add_own(ColumnView<const double> log_b, ColumnView<const double> exponents) {
    double seen = seen_;  // by row i
    Index rows = 0;
    double least = std::numeric_limits<double>::infinity();  // of what rows see
    for (; rows < log_b.size(); ++rows) {
      seen = std::max(seen, degree * exponents[rows] + std::numbers::log2e * log_b[rows]);
      if (seen == no_weight) continue;
      least = std::min(least, seen);
      if (!(least - std::ceil(seen) >= least_weight)) break;
      seen_ = seen;
    }
    return rows;
  }
  [[nodiscard]] double exponent() const { return std::ceil(seen_); }

 private:
  double seen_ = no_weight;
};

/// How many of some keys, from the first on, have values that ask for no room, see `room_for`.
template <class Scalar>
Index tokens_without_room(const Keys<Scalar>& keys) {
  if (room_for(keys.extent.largest) == 0) return keys.size();
  Index n = 0;
  while (n < keys.size() && room_for(extent_of(keys.values.middleCols(n, 1)).largest) == 0) ++n;
  return n;
}

/// Memory of rows of a common scale.
template <class Scalar>
struct CommonScaleMemory {
  CompensatedSums<Scalar> sums;
  ValueMemory<Scalar> values;
  Panel<Scalar> weights, scores;
  Panel<double> gates, noise, absolute;
};

/// For rows i = 0 … n - 1, with b_0i the decay from the segment's first token to token i and m_i the exponent of its
/// query,
///
///     Σ_j s_ij v_j = 2^{M + P m_i} b_0i · numerators_i        (and the same with v = 1)
///
/// so that every key has one weight for all rows.
template <class Scalar, FeatureMap F>
class CommonScaleRows final : public Rows<Scalar> {
  static constexpr int degree = degree_of<F>;

 public:
  CommonScaleRows(CommonScaleMemory<Scalar>& memory, RowKind kind, const RowReports& reports)
      : memory_(memory), sums_(memory.sums), ends_(memory.absolute, kind, reports) {}

  /// Memory for so many rows, and so many keys at a time.
  void reserve(Index value_rows, Index rows, Index keys) {
    sums_.reserve(value_rows, rows);
    memory_.values.reserve(value_rows, rows, keys);
    memory_.weights(keys), memory_.scores(keys, std::min(rows, row_group));
    for (auto* panel : {&memory_.gates, &memory_.noise, &memory_.absolute}) (*panel)(rows);
  }

  /// Rows without any contribution.
  void reset(Index value_rows, const Queries<Scalar>& queries, double M) {
    M_ = M;
    factor_ = 1;
    has_noise_ = false;
    sums_.reset(value_rows, queries.size(), ends_.kind() == RowKind::weighted_means || ends_.diagnoses());
    ends_.reset(queries);
  }

  [[nodiscard]] bool sees(double M, const LogDecay& between) const override {
    return factor_of(M, between) > static_cast<double>(std::numeric_limits<Scalar>::min());
  }

  void add_own(MatrixView<Scalar> logits, const Keys<Scalar>& keys, const Queries<Scalar>& queries) override {
    const auto weights = scaled_weights(keys, power_of_two<double>(keys.M - M_));
    for (Index i = 0; i < logits.cols(); ++i) {
      const Index own = std::min(i + 1, keys.size()), seen = causal_end(i, logits.cols(), keys.size());
      Scalar* const scores = logits.col(i).data();
      std::fill(scores + own, scores + seen, Scalar(0));
      const Index of_whole_blocks = (own + 15) / 16 * 16;  // which are quicker
      const Scalar sum = weigh_scores<degree>(scores, weights.data(), of_whole_blocks <= seen ? of_whole_blocks : own);
      if (sums_.divides()) sums_.add_denominator(i, sum);
    }
    for_causal_products(
        keys, logits, memory_.values,
        [&](Index begin, Index count, const auto& V, const auto& W) { sums_.add_columns(begin, count, V, W); },
        [&](Index i, Index r, Scalar x) { sums_.add_entry(i, r, x); });
    sums_.end_contribution();
    ends_.add_own(keys, queries);
  }

  void add_earlier(const SetLogits<Scalar>& set_logits, const Keys<Scalar>& keys, const Queries<Scalar>& queries,
                   const LogDecay& between) override {
    const auto weights = scaled_weights(keys, factor_of(keys.M, between));
    const auto values = row_panels<Scalar>(keys.values, queries.size(), memory_.values.packed);
    for (Index first = 0; first < queries.size(); first += row_group) {
      auto scores = memory_.scores(keys.size(), std::min(row_group, queries.size() - first));
      set_logits(first, scores);
      for (Index i = 0; i < scores.cols(); ++i) {
        const Scalar sum = weigh_scores<degree>(&scores(0, i), weights.data(), keys.size());
        if (sums_.divides()) sums_.add_denominator(first + i, sum);
      }
      sums_.add_columns(first, scores.cols(), values, scores);
    }
    sums_.end_contribution();
    sums_.settle_some(factor_);
    ends_.add_earlier(keys, queries, between);
  }

  void begin_read(double exponent, double A, ColumnView<const double> noise, const Queries<Scalar>& queries,
                  const LogDecay& between) override {
    sums_.settle(1);
    const double factor = between.weight(exponent - M_);
    factor_ = static_cast<Scalar>(factor);
    for (Index i = 0; i < noise.size(); ++i) memory_.noise(noise.size())[i] = noise[i] * factor;
    has_noise_ = true;
    ends_.add_read(A, exponent, queries, between);
  }
  void begin_strip(Index first, Index count) override { sums_.begin_strip(first, count); }
  void add_read(const ColumnsRead<Scalar>& S, ColumnView<const Scalar> Z, const Entries<Scalar>& features) override {
    sums_.add_read(S, Z, features);
    sums_.settle_panels(factor_);
  }

  void finish(const Queries<Scalar>& queries) override {
    sums_.finish(factor_);
    if (ends_.kind() == RowKind::weighted_means) return;
    auto gates = memory_.gates(queries.size());
    for (Index i = 0; i < queries.size(); ++i) gates[i] = queries.from_first[i];
    set_exponential(gates, gates);
  }

  /// The first of the rows that is too small beside the common scale; their number if there is none. A row that was
  /// read from a state is judged by its noise instead.
  [[nodiscard]] Index first_too_small(const Queries<Scalar>& queries) {
    Index i = 0;
    if (has_noise_ || ends_.kind() != RowKind::weighted_means) return queries.size();
    while (i < queries.size() && (queries.exponents[i] == no_weight || small_enough(i))) ++i;
    return i;
  }

  void write(Index i, Index query, const Queries<Scalar>& queries, ColumnView<Scalar> y) override {
    const bool divides = ends_.kind() == RowKind::weighted_means;
    const double whole = degree * queries.exponents[i] + M_;
    const Scalar sum = sums_.divides() ? sums_.denominator(i) : Scalar(0);
    const double noise = has_noise_ ? memory_.noise(queries.size())[i] : 0;
    const bool degenerate =
        ends_.end(i, query, static_cast<double>(sum), noise, whole, {queries.from_first[i], queries.from_first_low[i]});
    constexpr double moderate = std::numeric_limits<Scalar>::max_exponent / 2;
    const bool is_near = std::abs(whole) < moderate;
    Scalar scale(0);  // of what means nothing; what is not finite shows
    if (!degenerate && !divides) {
      scale = static_cast<Scalar>(memory_.gates(queries.size())[i] * (1 + queries.from_first_low[i]));
      if (is_near) scale *= normal_power_of_two<Scalar>(static_cast<int>(whole));
    }
    const bool is_mean = divides && !degenerate;
    sums_.visit_numerators(i, [&]<class Some>(Index r, const Some& some) {
      const Some out = is_mean ? Some(some / sum) : Some(some * scale);
      if constexpr (std::is_same_v<Some, Scalar>)
        y[r] = out;
      else
        Some::Map(y.data() + r) = out;
    });
    if (!divides && !is_near) set_times_power_of_two<Scalar>(y, y, whole);
  }

 private:
  [[nodiscard]] double factor_of(double M, const LogDecay& between) const {
    return M == no_weight ? 0 : between.weight(M - M_);
  }
  ColumnView<const Scalar> scaled_weights(const Keys<Scalar>& keys, double factor) {
    auto weights = memory_.weights(keys.size());
    set_scaled(weights.data(), keys.weights.data(), static_cast<Scalar>(factor), keys.size());
    return weights;
  }
  [[nodiscard]] bool small_enough(Index i) { return sums_.denominator(i) >= std::exp2(2 * least_weight); }

  CommonScaleMemory<Scalar>& memory_;
  CompensatedSums<Scalar>& sums_;
  RowEnds<Scalar, F> ends_;
  double M_ = 0;
  Scalar factor_ = 1;  // of contributions that are pending
  bool has_noise_ = false;
};

}  // namespace SYMPOW_NAMESPACE::detail
