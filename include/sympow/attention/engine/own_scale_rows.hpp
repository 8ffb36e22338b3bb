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
  ValueMemory<Scalar> key_values;
  Panel<Scalar> values, scores, denominators, noises;
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
  static constexpr bool is_exponential = F::score == Score::exponential;

 public:
  OwnScaleRows(OwnScaleMemory<Scalar>& memory, RowKind kind, const RowReports& reports)
      : memory_(memory), ends_(memory.absolute, kind, reports) {}

  /// Memory for so many rows, and so many keys at a time.
  void reserve(Index value_rows, Index rows, Index keys) {
    memory_.read.reserve(value_rows, rows);
    memory_.factors.reserve(keys);
    memory_.key_values.reserve(value_rows, rows, keys);
    memory_.values(value_rows, rows);
    memory_.scores(keys, std::min(rows, row_group));
    for (auto* panel : {&memory_.denominators, &memory_.noises}) (*panel)(rows);
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
    if constexpr (is_exponential) set_factors(keys, keys.size(), {});
    for (Index i = 0; i < n_; ++i) {
      const Index seen = std::min(i + 1, keys.size());
      const LogDecay gate = gate_of(i, queries, {});
      if constexpr (!is_exponential) set_factors(keys, seen, gate);
      weigh(logits.col(i).head(seen), i, keys, queries, is_exponential ? gate : LogDecay{});
      logits.col(i).tail(logits.rows() - seen).setZero();
    }
    for_causal_products(
        keys, logits, memory_.key_values,
        [&](Index begin, Index count, const auto& V, const auto& W) {
          add_product(values().middleCols(begin, count), V, W);
        },
        [&](Index i, Index r, Scalar x) { values()(r, i) += x; });
    ends_.add_own(keys, queries);
  }

  void add_earlier(const SetLogits<Scalar>& set_logits, const Keys<Scalar>& keys, const Queries<Scalar>& queries,
                   const LogDecay& between) override {
    set_factors(keys, keys.size(), {});
    const auto V = row_panels<Scalar>(keys.values, n_, memory_.key_values.packed);
    for (Index first = 0; first < n_; first += row_group) {
      auto scores = memory_.scores(keys.size(), std::min(row_group, n_ - first));
      set_logits(first, scores);
      for (Index i = 0; i < scores.cols(); ++i)
        weigh(scores.col(i), first + i, keys, queries, gate_of(first + i, queries, between));
      add_product(values().middleCols(first, scores.cols()), V, scores);
    }
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
  void add_read(const ColumnsRead<Scalar>& S, ColumnView<const Scalar> Z, const Entries<Scalar>& features) override {
    memory_.read.add_read(S, Z, features);
    memory_.read.settle_panels(1);
  }

  void finish(const Queries<Scalar>&) override {
    if (!reads_) return;
    reads_ = false;
    memory_.read.finish(1);
    auto denominators = memory_.denominators(n_), noises = memory_.noises(n_);
    for (Index i = 0; i < n_; ++i) {
      const Scalar factor = rescale(i, 0);  // a state has taken its room itself
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

  void set_factors(const Keys<Scalar>& keys, Index seen, const LogDecay& since) {
    const auto& low = keys.log_b_low;  // empty where nobody has counted
    memory_.factors.template set<F>(keys.log_b.head(seen), low.head(std::min(seen, low.size())),
                                    keys.exponents.head(seen), since);
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

  // Logits of row i as weights at its scale, by the factors that are set, which decay by the gate.
  void weigh(ColumnView<Scalar> logits, Index i, const Keys<Scalar>& keys, const Queries<Scalar>& queries,
             const LogDecay& gate) {
    const double exponent = queries.exponents[i];
    const Scalar above =
        is_exponential ? memory_.factors.exponent_above(logits, exponent) : std::numeric_limits<Scalar>::quiet_NaN();
    FarFactor taken;
    if (std::isnan(above)) taken = memory_.factors.template weigh<F>(logits, exponent);
    taken.log.add(gate);
    set_scale(i, taken);
    Scalar& sum = memory_.denominators(n_)[i];
    if (std::isnan(above)) {
      logits *= rescale(i, room_);
      sum += sum_of<Scalar>(logits);
    } else {
      const double shift = memory_.shift(n_)[i];
      raise(i, static_cast<double>(above) + shift + room_);
      const Scalar some = memory_.factors.exponentiate(
          logits, static_cast<Scalar>(memory_.scales(n_)[i] - room_ - shift), static_cast<Scalar>(memory_.gate(n_)[i]));
      const auto factor = power_of_two<Scalar>(-room_);  // not in the exponents, whose digits it would take
      if (room_ != 0) logits *= factor;
      sum += some * factor;
    }
    if (ends_.kind() == RowKind::signed_means) memory_.noises(n_)[i] += logits.cwiseAbs().sum();
    if (is_exponential && ends_.diagnoses()) diagnose(logits, i, keys, queries);
  }
  void diagnose(ColumnView<const Scalar> weights, Index i, const Keys<Scalar>& keys, const Queries<Scalar>& queries) {
    double sum = 0;
    for (Index j = 0; j < weights.size(); ++j) {
      const auto length = static_cast<double>(queries.norms[i]) * static_cast<double>(keys.norms[j]);
      sum +=
          static_cast<double>(weights[j]) * (1 + times_power_of_two(length, queries.exponents[i] + keys.exponents[j]));
    }
    ends_.add(i, (sum > 0 ? std::log2(sum) : no_weight) + memory_.scales(n_)[i]);
  }

  // Raises the scale of row i to that of a contribution of 2^{shift + gate} and `room` above it; returns the factor of
  // the contribution, at most 2^-room.
  Scalar rescale(Index i, double room) {
    const double shift = memory_.shift(n_)[i], gate = memory_.gate(n_)[i], whole = std::ceil(shift + gate);
    raise(i, whole + room);
    if (whole == no_weight) return 0;
    return static_cast<Scalar>(times_power_of_two(std::exp2((shift - whole) + gate), whole - memory_.scales(n_)[i]));
  }
  void raise(Index i, double exponent) {
    double& scale = memory_.scales(n_)[i];
    if (!(exponent > scale)) return;
    const auto old = power_of_two<Scalar>(scale - exponent);
    scale = exponent;
    values().col(i) *= old;
    memory_.denominators(n_)[i] *= old;
    memory_.noises(n_)[i] *= old;
  }

  OwnScaleMemory<Scalar>& memory_;
  RowEnds<Scalar, F> ends_;
  Index e_ = 0, n_ = 0;
  double room_ = 0;
  bool reads_ = false;
};

}  // namespace SYMPOW_NAMESPACE::detail
