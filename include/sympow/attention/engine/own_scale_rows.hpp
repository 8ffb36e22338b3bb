// Rows that each have a scale of their own: for whatever numbers, and for exponential scores.
#pragma once

#include <sympow/attention/engine/causal_product.hpp>
#include <sympow/attention/engine/row_ends.hpp>
#include <sympow/attention/engine/rows.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Memory of rows with a scale each.
template <class Scalar>
struct OwnScaleMemory {
  CompensatedSums<Scalar> read;
  KeyFactors<Scalar> factors;
  Panel<Scalar> values, denominators, noises, new_factors, finite_values;
  Panel<double> scales, shift, gate, noise, absolute;
};

/// For rows i = 0 … n - 1
///
///     Σ_j s_ij v_j = 2^scale_i values_i,   Σ_j s_ij = 2^scale_i denominators_i
///
/// with whole scale_i that follow the largest contribution, `room` above it.
template <class Scalar, FeatureMap F>
class OwnScaleRows final : public Rows<Scalar> {
  static constexpr int degree = degree_of<F>;

 public:
  OwnScaleRows(OwnScaleMemory<Scalar>& memory, RowKind kind, const RowReports& reports)
      : memory_(memory), ends_(memory.absolute, kind, reports) {}

  /// Memory for so many rows, and so many keys at a time.
  void reserve(Index value_rows, Index rows, Index keys) {
    memory_.read.reserve(value_rows, rows);
    memory_.factors.reserve(keys);
    memory_.values(value_rows, rows);
    for (auto* panel : {&memory_.denominators, &memory_.noises, &memory_.new_factors}) (*panel)(rows);
    for (auto* panel : {&memory_.scales, &memory_.shift, &memory_.gate, &memory_.noise, &memory_.absolute})
      (*panel)(rows);
  }

  /// Rows without any contribution; `room` is that of the values which they meet, see `room_for`.
  void reset(Index value_rows, const Queries<Scalar>& queries, double room) {
    e_ = value_rows;
    n_ = queries.size();
    room_ = room;
    values().setZero();
    memory_.denominators(n_) = queries.norms * Scalar(0);  // no numbers for a query that is none, whatever it sees
    memory_.noises(n_).setZero();
    memory_.scales(n_).setConstant(no_weight);
    ends_.reset(queries);
  }

  [[nodiscard]] bool sees(double, const LogDecay& between) const override { return between.high > no_weight; }

  void add_own(MatrixView<Scalar> logits, const Keys<Scalar>& keys, const Queries<Scalar>& queries) override {
    for (Index i = 0; i < n_; ++i) {
      const Index seen = std::min(i + 1, keys.size());
      memory_.factors.template set<F>(keys.log_b.head(seen), keys.log_b_low.head(seen), keys.exponents.head(seen),
                                      gate_of(i, queries, {}));
      weigh(logits.col(i).head(seen), i, keys, queries, {});
      logits.col(i).tail(logits.rows() - seen).setZero();
    }
    begin_add(logits, [&](Index i) { return std::min(i + 1, keys.size()); });
    for_causal_products(
        keys, logits, memory_.finite_values,
        [&](Index begin, Index count, const auto& V, const auto& W) {
          add_product(values().middleCols(begin, count), V, W);
        },
        [&](Index i, Index r, Scalar x) { values()(r, i) += x; });
    ends_.add_own(keys, queries);
  }

  void add_earlier(MatrixView<Scalar> logits, const Keys<Scalar>& keys, const Queries<Scalar>& queries,
                   const LogDecay& between) override {
    memory_.factors.template set<F>(keys.log_b, keys.log_b_low, keys.exponents, {});
    for (Index i = 0; i < n_; ++i) weigh(logits.col(i), i, keys, queries, gate_of(i, queries, between));
    begin_add(logits, [&](Index) { return keys.size(); });
    add_product(values(), keys.values, logits);
    ends_.add_earlier(keys, queries, between);
  }

  void begin_read(double exponent, double A, ColumnView<const double> noise, const Queries<Scalar>& queries,
                  const LogDecay& between) override {
    for (Index i = 0; i < n_; ++i) {
      set_scale(i, {exponent + degree * queries.exponents[i], gate_of(i, queries, between)});
      memory_.noise(n_)[i] = noise[i];
    }
    memory_.read.reset(e_, n_, true);
    reads_ = true;
    ends_.add_read(A, exponent, queries, between);
  }
  void begin_strip(Index first, Index count) override { memory_.read.begin_strip(first, count); }
  void add_read(MatrixView<const Scalar> S, ColumnView<const Scalar> Z, const Entries<Scalar>& features) override {
    memory_.read.add_read(S, Z, features);
    memory_.read.settle_panels(1);
  }

  void finish(const Queries<Scalar>&) override {
    if (!reads_) return;
    reads_ = false;
    memory_.read.finish(1);
    rescale(0);  // a state has taken its room itself
    auto denominators = memory_.denominators(n_), noises = memory_.noises(n_), factors = memory_.new_factors(n_);
    for (Index i = 0; i < n_; ++i) {
      const Scalar factor = factors[i];
      auto own = values().col(i);
      memory_.read.visit_numerators(i, [&]<class Some>(Index r, const Some& some) {
        if constexpr (std::is_same_v<Some, Scalar>)
          own[r] += some * factor;
        else
          Some::Map(own.data() + r) += some * factor;
      });
      denominators[i] += memory_.read.denominator(i) * factor;
      noises[i] += static_cast<Scalar>(memory_.noise(n_)[i]) * factor;
    }
  }

  void write(Index i, Index query, const Queries<Scalar>&, ColumnView<Scalar> y) override {
    constexpr Scalar largest = std::numeric_limits<Scalar>::max();
    const Scalar sum = memory_.denominators(n_)[i];
    const double scale = memory_.scales(n_)[i];
    const bool is_sum = ends_.kind() == RowKind::sums;
    const auto row = values().col(i);
    if (ends_.end(i, query, static_cast<double>(sum), static_cast<double>(memory_.noises(n_)[i]), scale, {}) ||
        scale == no_weight)
      for (Index r = 0; r < e_; ++r) y[r] = (row[r] + sum) * Scalar(0) + Scalar(0);  // what is not finite shows
    else if (is_sum)
      set_times_power_of_two<Scalar>(y, row, scale);
    else
      y = row / sum;
    if (!is_sum && room_ > 0)  // a mean of values near the largest number can be rounded beyond it
      for (Index r = 0; r < e_; ++r)
        if (std::isinf(y[r])) y[r] = std::copysign(largest, y[r]);
  }

 private:
  MatrixView<Scalar> values() { return memory_.values(e_, n_); }

  // The decay up to query i of what decays by e^between on its way to the segment's first token.
  static LogDecay gate_of(Index i, const Queries<Scalar>& queries, LogDecay between) {
    between.add(LogDecay{queries.from_first[i], queries.from_first_low[i]});
    return between;
  }

  // The next contribution to row i is 2^{shift + gate} times what it will be, a whole number and a fraction: no digit
  // is lost to their size.
  void set_scale(Index i, const FarFactor& factor) {
    constexpr double farthest = 0x1p52;  // below it a double can take a whole exponent more
    const ReducedExponent log = reduced_exponent(factor.log.high);
    memory_.shift(n_)[i] =
        log.whole == no_weight ? no_weight : factor.whole + std::clamp(log.whole, -farthest, farthest);
    memory_.gate(n_)[i] = (log.rest + factor.log.low) * std::numbers::log2e;
  }

  // Logits of row i as weights, by the factors that are set, which decay by the gate.
  void weigh(ColumnView<Scalar> logits, Index i, const Keys<Scalar>& keys, const Queries<Scalar>& queries,
             const LogDecay& gate) {
    FarFactor taken = memory_.factors.template weigh<F>(logits, queries.exponents[i]);
    taken.log.add(gate);
    set_scale(i, taken);
    if (F::score != Score::exponential || !ends_.diagnoses()) return;
    double sum = 0;
    for (Index j = 0; j < logits.size(); ++j) {
      const auto length = static_cast<double>(queries.norms[i]) * static_cast<double>(keys.norms[j]);
      sum +=
          static_cast<double>(logits[j]) * (1 + times_power_of_two(length, queries.exponents[i] + keys.exponents[j]));
    }
    ends_.add(i, (sum > 0 ? std::log2(sum) : no_weight) + memory_.shift(n_)[i] + memory_.gate(n_)[i]);
  }

  // Scales the rows, and weights of a contribution of 2^{shift + gate}, to what they have in common. Row i sees
  // `seen(i)` of the keys.
  template <class Seen>
  void begin_add(MatrixView<Scalar> weights, const Seen& seen) {
    rescale(room_);
    auto denominators = memory_.denominators(n_), noises = memory_.noises(n_), factors = memory_.new_factors(n_);
    for (Index i = 0; i < n_; ++i) {
      ColumnView<Scalar> own = weights.col(i).head(seen(i));
      own *= factors[i];
      denominators[i] += sum_of<Scalar>(own);
      if (ends_.kind() == RowKind::signed_means) noises[i] += own.cwiseAbs().sum();
    }
  }

  // Raises the scales to those of a contribution and `room` above; old factors are at most 1, new ones 2^-room.
  void rescale(double room) {
    auto denominators = memory_.denominators(n_), noises = memory_.noises(n_), factors = memory_.new_factors(n_);
    const auto shift = memory_.shift(n_), gate = memory_.gate(n_);
    auto scales = memory_.scales(n_);
    for (Index i = 0; i < n_; ++i) {
      const double whole = std::ceil(shift[i] + gate[i]), raised = std::max(scales[i], whole + room);
      const Scalar old = raised == no_weight ? Scalar(0) : power_of_two<Scalar>(scales[i] - raised);
      factors[i] =
          whole == no_weight
              ? Scalar(0)
              : static_cast<Scalar>(times_power_of_two(std::exp2((shift[i] - whole) + gate[i]), whole - raised));
      scales[i] = raised;
      if (old == Scalar(1)) continue;
      values().col(i) *= old;
      denominators[i] *= old;
      noises[i] *= old;
    }
  }

  OwnScaleMemory<Scalar>& memory_;
  RowEnds<Scalar, F> ends_;
  Index e_ = 0, n_ = 0;
  double room_ = 0;
  bool reads_ = false;
};

}  // namespace SYMPOW_NAMESPACE::detail
