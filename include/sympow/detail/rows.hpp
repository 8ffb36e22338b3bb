// The rows of a segment: Σ_j s_ij v_j and Σ_j s_ij. Of powers beside a power of two that is known before any score
// is, of exponential scores beside the running maximum.
#pragma once

#include <cmath>

#include <sympow/attention/diagnostics.hpp>
#include <sympow/attention/options.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/detail/segment.hpp>
#include <sympow/simd/integer_power.hpp>
#include <sympow/simd/packed_exponential.hpp>
#include <sympow/simd/row_panels.hpp>
#include <sympow/simd/split_matrix.hpp>

namespace SYMPOW_NAMESPACE::detail {

// ---- Scores that are powers

/// logits_j ← logits_j^P w_j, the scores of n pairs; returns their sum, which zeros at the end do not change by a bit.
template <class Scalar, class Power>
Scalar weigh_logits(const Power& power, Scalar* logits, const Scalar* weights, Index n) {
  auto sums = Lanes<Scalar>::all(0);
  Index j = 0;
  for (; j + 16 <= n; j += 16) {
    const auto scores = power(Lanes<Scalar>::load(logits + j)) * Lanes<Scalar>::load(weights + j);
    scores.store(logits + j);
    sums = sums + scores;
  }
  if (j == n) return sums.sum();
  Scalar rest[16] = {};
  for (Index r = 0; j < n; ++j, ++r) rest[r] = logits[j] = power(logits[j]) * weights[j];
  return (sums + Lanes<Scalar>::load(rest)).sum();
}

inline constexpr Index rows_at_once = 24;  ///< their scores with a block of keys stay in the first cache

/// Sums of rows are those of e values, and then that of scores.
template <class Scalar>
struct RowBuffers {
  Panel<Scalar> sums, residues, partial, weights, scores, finite_values, values;
  Panel<Scalar> read_scores;                        ///< sums of scores through φ
  Panel<double> levels, noise, absolute, heaviest;  ///< heaviest: log2 of the largest weight of a row, or less
};

/// What rows of both kinds of scores have: which tokens of the segment have queries, and the sums of these rows.
template <class Scalar, FeatureMap F>
class SegmentRows {
 public:
  /// Of e values, for segments of so many rows, and so many keys at a time.
  SegmentRows(RowBuffers<Scalar>& memory, RowKind kind, const RowReports& reports, const Mask& mask, Index e,
              Index rows, Index keys)
      : memory_(memory), kind_(kind), reports_(reports), mask_(mask), e_(e) {
    for (auto* panel : {&memory.sums, &memory.residues, &memory.partial}) (*panel)(e + 1, rows);
    for (auto* panel : {&memory.levels, &memory.heaviest, &memory.noise, &memory.absolute}) (*panel)(rows);
    memory.read_scores(rows);
    memory.weights(std::max(keys, rows)), memory.scores(std::max(keys, rows), rows_at_once);
    if (rows >= columns_worth_packing) memory.values(e * std::max(keys, rows));
  }
  [[nodiscard]] bool divides() const { return kind_ != RowKind::sums; }
  [[nodiscard]] bool diagnoses() const { return reports_.diagnostics != nullptr; }

 protected:
  // Sums of all rows.
  [[nodiscard]] MatrixView<Scalar> of(Panel<Scalar>& sums) const { return sums(e_ + 1, n_); }

  void begin_segment(const LoadedSegment<Scalar, F>& segment) {
    n_ = segment.size(), begin_ = segment.first_row(), end_ = begin_ + segment.rows(), token_ = segment.range().begin;
    memory_.absolute(n_).setZero();
  }

  /// sums_i ← [sums_i +] Σ_j s_ij v_j over the keys that the mask lets row i see. weigh(logits, seen, depth, i) makes
  /// scores of a row's logits, of which those behind the first `depth` are not needed; `own` logits may be given.
  template <class Weigh>
  void add_values(const F& feature, const WeightedKeys<Scalar>& keys, const ScaledQueries<Scalar>& queries,
                  MatrixView<Scalar> own, Panel<Scalar>& to, bool adds, const Weigh& weigh) {
    const MatrixView<Scalar> sums = of(to).topRows(e_);
    const auto seen_at = [&](Index i) { return seen_keys(mask_, token_ + i, {keys.first_token, keys.size}); };
    const bool sees_all = seen_at(begin_).end() == keys.size && seen_at(end_ - 1).begin == 0,
               adds_infinite = !sees_all && !keys.extent.all_finite;
    const RowPanels<Scalar> values =
        !adds_infinite && keys.packed_values != nullptr
            ? RowPanels<Scalar>(keys.packed_values, e_, keys.size)
            : row_panels<Scalar>(adds_infinite ? finite_values(keys) : keys.values, end_ - begin_, memory_.values);
    for (Index begin = begin_; begin < end_; begin += rows_at_once) {
      const Index count = std::min(rows_at_once, end_ - begin), depth = seen_at(begin + count - 1).end();
      const auto scores = own.cols() > 0 ? own.block(0, begin, depth, count) : memory_.scores(keys.size, count);
      if (own.cols() == 0) {
        const auto some = queries.direct.middleCols(begin, count);
        if (keys.is_packed)
          set_product(scores, RowPanels<Scalar>(keys.vectors.data, keys.size, some.rows()), some);
        else
          product<Scalar>(false, keys.size, count, some.rows(), keys.vectors, strided(some), strided(scores));
        LoadedSegment<Scalar, F>::set_scores(feature, scores, keys.lengths, queries.lengths + begin, false);
      }
      for (Index i = begin; i < begin + count; ++i) {
        const Segment seen = seen_at(i);
        Scalar* const column = scores.col(i - begin).data();
        std::fill(column, column + seen.begin, Scalar(0));
        std::fill(column + seen.end(), column + depth, Scalar(0));
        weigh(column, seen, depth, i);
      }
      const auto sums_of_rows = sums.middleCols(begin, count);
      const auto seen_by_any = scores.topRows(depth);
      adds ? add_product(sums_of_rows, values, seen_by_any) : set_product(sums_of_rows, values, seen_by_any);
      for (Index i = begin; i < begin + count && adds_infinite; ++i)
        add_infinite_values(keys, seen_at(i), scores.col(i - begin).data(), sums.col(i).data());
    }
  }

  /// Y ← row i of the segment, which is row `query` of the call: its mean, or 2^exponent times its sums and gate. A
  /// mean of values near the largest number can be rounded beyond it.
  [[gnu::always_inline]] void write_row(const LoadedSegment<Scalar, F>& segment, Index i, ColumnView<Scalar> y,
                                        Index query, double exponent, bool is_degenerate, bool is_large) const {
    const Scalar *const sums = of(memory_.sums).col(i).data(), den = sums[e_], gate = segment.gate_fractions()[i];
    const double whole = exponent + segment.gate_exponents()[i];
    if (!divides()) {
      const bool is_near = std::abs(whole) < std::numeric_limits<Scalar>::max_exponent / 2;
      set_scaled(y.data(), sums, is_near ? gate * normal_power_of_two<Scalar>(static_cast<int>(whole)) : gate, e_);
      if (!is_near) set_times_power_of_two<Scalar>(y, y, whole);
    } else if (is_degenerate) {
      set_scaled(y.data(), sums, Scalar(0), e_);  // what is not finite shows
    } else {
      set_quotients(y.data(), sums, den, e_);
      for (Index r = 0; r < e_ && is_large; ++r)
        if (std::isinf(y[r]) && std::isfinite(sums[r])) y[r] = std::copysign(std::numeric_limits<Scalar>::max(), y[r]);
    }
    reports_.report(query, static_cast<double>(den) * static_cast<double>(gate), memory_.absolute(n_)[i] * gate, whole,
                    is_degenerate);
  }

  // The values of some keys with 0 for what is not finite: 0 · NaN must not reach a row that does not see it.
  MatrixView<const Scalar> finite_values(const WeightedKeys<Scalar>& keys) const {
    auto finite = memory_.finite_values(e_, keys.size);
    for (Index j = 0; j < keys.size; ++j)
      for (Index r = 0; r < e_; ++r) finite(r, j) = std::isfinite(keys.values(r, j)) ? keys.values(r, j) : Scalar(0);
    return finite;
  }
  // Y_i += Σ_j s_ij v_j of what is not finite in the values of those seen.
  void add_infinite_values(const WeightedKeys<Scalar>& keys, Segment seen, const Scalar* scores, Scalar* y) const {
    for (Index j = seen.begin; j < seen.end(); ++j)
      for (Index r = 0; r < e_; ++r)
        if (!std::isfinite(keys.values(r, j))) y[r] += scores[j] * keys.values(r, j);
  }
  static double finite(double level) { return level == log2_zero ? 0 : level; }

  RowBuffers<Scalar>& memory_;
  RowKind kind_;
  RowReports reports_;
  Mask mask_;
  Index e_, n_ = 0, begin_ = 0, end_ = 0;  // of the segment's n tokens those from `begin_` to `end_` have queries
  Index token_ = 0;                        // the first of them
};

/// Some entries of φ of a state: columns of S, dense or their high halves, and entries of Z.
template <class Scalar>
struct StatePanel {
  Strided<const Scalar*> S;
  const SplitMatrix<Scalar>* split;  ///< null where S is dense
  const Scalar* Z;
};

/// With r_i = max(level of the past, max_j exponents_j) over the keys j that row i sees, key j weighs
/// 2^{exponents_j - r_i} ≤ 1 in it, and the state 2^{M - r_i} ≤ 1. Rows that are close, and whose levels are, share the
/// largest. Contributions are summed some at a time, and these partial sums with what their rounding loses.
template <class Scalar, FeatureMap F>
class PowerRows : public SegmentRows<Scalar, F> {
  using Base = SegmentRows<Scalar, F>;
  using Base::memory_, Base::kind_, Base::reports_, Base::mask_, Base::e_, Base::n_, Base::begin_, Base::end_,
      Base::token_, Base::finite, Base::of;
  static constexpr int blocks_at_once = 4, panels_at_once = 16;
  static constexpr double unit_of_levels = std::numeric_limits<Scalar>::max_exponent / 16;

 public:
  using Base::Base, Base::divides, Base::diagnoses;

  /// Whether denominators are wanted.
  [[nodiscard]] bool has_denominators() const { return divides() || reports_.wanted(); }

  /// Rows of a segment without any contribution.
  template <class Past>
  void reset(const LoadedSegment<Scalar, F>& segment, Past& past) {
    this->begin_segment(segment);
    P_ = degree_in(segment.feature()), negligible_ = negligible_weight<Scalar>(segment.feature());
    pending_ = panels_ = flushes_ = 0;
    memory_.noise(n_).setZero();
    const WeightedKeys<Scalar> keys = segment.keys();
    const double room = headroom_for(keys.extent.largest);
    const auto weight_of = [&](Index j) { return keys.exponents[j]; };
    const auto level_of = [&](Index j) {
      return keys.exponents[j] + (room > 0 ? headroom_for(measure_extent(keys.values.middleCols(j, 1)).largest) : room);
    };
    RunningLargest weights, own_levels;
    double *const levels = memory_.levels(n_).data(), *const heaviest = memory_.heaviest(n_).data();
    const bool levels_differ = mask_.has_window();  // of what rows see of the past
    PastLevel<Scalar> before = past.level(token_ + begin_);
    is_large_ = headroom_for(std::max(before.largest_value, keys.extent.largest)) > 0;
    for (Index i = begin_; i < end_; ++i) {
      const Segment own = seen_keys(mask_, token_ + i, {token_, keys.size});
      if (levels_differ) before = past.level(token_ + i);
      levels[i] = std::ceil(std::max(before.level, own_levels.over(own, level_of)) / unit_of_levels) * unit_of_levels;
      // A row has not forgotten the key of its own token.
      const double largest = std::max(before.weight, weights.over(own, weight_of)) - before.slack;
      heaviest[i] = levels_differ ? log2_zero : own.end() == i + 1 ? std::max(largest, weight_of(i)) : largest;
    }
    // Of later rows too, as rows are asked from the first on.
    for (Index i = end_ - 1; i-- > begin_;) heaviest[i] = std::min(heaviest[i], heaviest[i + 1]);
  }

  /// Log2 of weights that no row sees any more, which the first row decides: without a window the others see as much.
  [[nodiscard]] double horizon() const { return memory_.heaviest(n_)[begin_] + negligible_; }

  /// Keys at the segment's time 0 when they have decayed by e^between. Their logits may be given, and are used up then.
  void add(const F& feature, const WeightedKeys<Scalar>& keys, const LogGate& between,
           const ScaledQueries<Scalar>& queries, MatrixView<Scalar> own = {nullptr, 0, 0}) {
    if (keys.size == 0) return;
    const Weight decay(between);
    Scalar* const weights = memory_.weights(keys.size).data();
    auto partial = of(memory_.partial);
    const double* const levels = memory_.levels(n_).data();
    Index known = 0;   // weights, at the level of the row before
    double least = 0;  // what does not matter to the first row of this level
    const auto weigh = [&](Scalar* column, Segment seen, Index depth, Index i) {
      if (i > begin_ && levels[i] != levels[i - 1]) known = 0;
      if (known == 0) least = memory_.heaviest(n_)[i] + negligible_ - finite(levels[i]);
      set_weights_at(weights + known, keys.exponents + known, keys.fractions + known, depth - known,
                     decay.exponent - finite(levels[i]), static_cast<Scalar>(decay.fraction), least);
      known = depth;
      const Scalar sum = with_power<F>(P_, [&](const auto& power) {
        return weigh_logits(power, column, weights, std::min(depth, (seen.end() + 15) / 16 * 16));
      });
      partial(e_, i) = pending_ > 0 ? partial(e_, i) + sum : sum;
      if (kind_ == RowKind::signed_means)
        for (Index j = seen.begin; j < seen.end(); ++j)
          memory_.noise(n_)[i] += static_cast<double>(std::abs(column[j]));
      if (diagnoses()) memory_.absolute(n_)[i] += absolute_weight(keys, weights, seen) * of_query(queries, i);
    };
    this->add_values(feature, keys, queries, own, memory_.partial, pending_ > 0, weigh);
    if (++pending_ >= blocks_at_once) flush();
  }

  /// Begins to read the sums of a state, which weigh `weight` beside their numbers and absolutely A; returns how many
  /// rows, from the first on, see them. noise_of(i) is the largest denominator of row i that can be rounding.
  template <class Noise>
  Index begin_read(const Weight& weight, double A, const ScaledQueries<Scalar>& queries, const Noise& noise_of) {
    flush();
    Index end = begin_;
    constexpr double room = std::numeric_limits<Scalar>::max_exponent / 2;  // that the sums may have been given
    while (end < end_ && weight.exponent + room - memory_.heaviest(n_)[end] > negligible_) ++end;
    for (Index i = begin_; i < end; ++i) {
      const double factor = weight.fraction * nearest_power_of_two<double>(weight.exponent - memory_.levels(n_)[i]);
      if (divides()) memory_.noise(n_)[i] += noise_of(i) * factor;
      if (diagnoses()) memory_.absolute(n_)[i] += A * factor * of_query(queries, i);
    }
    read_exponent_ = weight.exponent, read_fraction_ = static_cast<Scalar>(weight.fraction);
    return end - begin_;
  }
  /// For `count` rows from the first on: S φ and Z φ of some entries of φ, (row, entry).
  void add_panel(Index first, Index count, const StatePanel<Scalar>& state, Strided<const Scalar*> phi, Index depth) {
    auto partial = of(memory_.partial);
    if (state.split == nullptr)
      product<Scalar>(panels_ > 0, e_, count, depth, state.S, phi.transposed(), {partial.col(first).data(), 1, e_ + 1});
    else
      for (Index i = 0; i < count; ++i)
        ColumnProduct<Scalar>::times_column(panels_ > 0, e_, depth, state.split->high(), phi.at(i, 0).data,
                                            partial.col(first + i).data());
    if (has_denominators())
      product<Scalar>(panels_ > 0, count, 1, depth, phi, {state.Z, 1, depth},
                      {memory_.read_scores(n_).data() + first, 1, n_});
    if (++panels_ == panels_at_once) end_panels(first, count);
  }
  /// Takes what these rows have read into their sums.
  void end_panels(Index first, Index count) {
    for (Index i = first; i < first + count && panels_ > 0; ++i) {
      of(memory_.partial)(e_, i) = memory_.read_scores(n_)[i];
      add_partial(i, read_fraction_ * nearest_power_of_two<Scalar>(read_exponent_ - memory_.levels(n_)[i]));
    }
    panels_ = 0, count_flush();
  }

  /// Y ← the rows that have queries, rows `query`, … of the call: means, or sums with all their powers of two.
  void write(const LoadedSegment<Scalar, F>& segment, MatrixView<Scalar> Y, Index query) {
    constexpr double tolerance = 8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    flush();
    for (Index i = begin_; i < end_; ++i) {
      prefetch_column<true>(Y, i - begin_ + 8);
      const auto den = static_cast<double>(of(memory_.sums)(e_, i));
      const double size = kind_ == RowKind::signed_means ? std::abs(den) : den, noise = memory_.noise(n_)[i];
      this->write_row(segment, i, Y.col(i - begin_), query + i - begin_,
                      P_ * segment.queries().lengths[i] + finite(memory_.levels(n_)[i]),
                      divides() && size <= tolerance * noise && std::isfinite(noise), is_large_);
    }
  }

 private:
  double of_query(const ScaledQueries<Scalar>& queries, Index i) const {
    return integer_power(static_cast<double>(queries.norms[i]), P_);
  }
  // Σ_j w_j ‖k̂_j‖^P of those seen.
  double absolute_weight(const WeightedKeys<Scalar>& keys, const Scalar* weights, Segment seen) const {
    double sum = 0;
    for (Index j = seen.begin; j < seen.end(); ++j)
      sum += static_cast<double>(weights[j]) *
             integer_power(static_cast<double>(keys.norms != nullptr ? keys.norms[j] : norm_of(keys, j)), P_);
    return sum;
  }

  // Takes pending contributions into the rows.
  void flush() {
    if (flushes_ == 0) {
      if (pending_ == 0) of(memory_.partial).setZero();
      std::swap(memory_.sums, memory_.partial);
    } else if (pending_ > 0) {
      for (Index i = begin_; i < end_; ++i) add_partial(i, Scalar(1));
    }
    pending_ = 0, count_flush();
  }
  void count_flush() {  // before the fifth nothing is kept of what rounding loses
    if (++flushes_ == 5) memory_.residues((e_ + 1) * n_).setZero();
  }
  // One row's; from the fifth on with what rounding has lost before.
  void add_partial(Index i, Scalar factor) {
    Scalar *const sums = of(memory_.sums).col(i).data(), *const residues = of(memory_.residues).col(i).data();
    const Scalar* const x = of(memory_.partial).col(i).data();
    const Index count = has_denominators() ? e_ + 1 : e_;
    if (flushes_ < 5) return add_scaled(sums, x, factor, count);
    for_lanes<Scalar>(count, [&](Index r, auto tag) {
      using X = typename decltype(tag)::type;
      const X before = load_as<X>(sums + r), added = load_as<X>(x + r) * factor - load_as<X>(residues + r),
              after = before + added;
      store_at(residues + r, (after - before) - added);
      store_at(sums + r, after);
    });
  }

  int P_ = 1, pending_ = 0, panels_ = 0, flushes_ = 0;
  double negligible_ = 0;  // log2 of weights that do not matter beside a row's largest
  bool is_large_ = false;  // values may be near the largest number
  double read_exponent_ = 0;
  Scalar read_fraction_ = 1;
};

// ---- Exponential scores

/// The level of a row follows its largest score: what is there is rescaled when a larger one comes. It counts from the
/// key of a block with the largest gate, so that no gate rounds a logit.
template <class Scalar, FeatureMap F>
class SoftmaxRows : public SegmentRows<Scalar, F> {
  using Base = SegmentRows<Scalar, F>;
  using Base::memory_, Base::e_, Base::n_, Base::begin_, Base::end_, Base::token_, Base::of;
  using Exponentials = PackedExponential<Scalar>;

 public:
  using Base::Base;

  /// Rows of a segment without any contribution.
  template <class Past>
  void reset(const LoadedSegment<Scalar, F>& segment, Past& past) {
    this->begin_segment(segment);
    memory_.sums((e_ + 1) * n_).setZero();
    headroom_ = headroom_for(std::max(past.level(token_).largest_value, segment.keys().extent.largest));
    const Scalar* const norms = segment.queries().norms;
    for (Index i = 0; i < n_; ++i) of(memory_.sums)(e_, i) = norms[i] * Scalar(0);  // no number for a query of none
    memory_.levels(n_).setConstant(log2_zero);
  }
  /// No key is too light to be seen: logits can be as large as gates are small.
  [[nodiscard]] double horizon() const { return log2_zero; }

  /// Keys at the segment's time 0 when they have decayed by e^between. Their logits may be given, and are used up then.
  void add(const F& feature, const WeightedKeys<Scalar>& keys, const LogGate& between,
           const ScaledQueries<Scalar>& queries, MatrixView<Scalar> own = {nullptr, 0, 0}) {
    if (keys.size == 0) return;
    begin_keys(keys, between);
    this->add_values(
        feature, keys, queries, own, memory_.sums, true,
        [&](Scalar* column, Segment seen, Index, Index i) { exponentiate(column, seen, i, keys, queries); });
  }

  /// Y ← the rows that have queries, rows `query`, … of the call: means, or sums with all their powers of two.
  void write(const LoadedSegment<Scalar, F>& segment, MatrixView<Scalar> Y, Index query) {
    for (Index i = begin_; i < end_; ++i) {
      const double level = memory_.levels(n_)[i];
      this->write_row(segment, i, Y.col(i - begin_), query + i - begin_, level == log2_zero ? 0 : level + headroom_,
                      this->divides() && of(memory_.sums)(e_, i) == Scalar(0), headroom_ > 0);
    }
  }

 private:
  // Exponents of the keys beside that of the largest, which with `between` is the reference.
  void begin_keys(const WeightedKeys<Scalar>& keys, const LogGate& between) {
    const Weight decay(between);
    top_ = keys.heaviest;
    reference_ = decay.exponent + top_;
    common_ = static_cast<Scalar>(std::log2(decay.fraction));
    Scalar* const whole = memory_.weights(keys.size).data();
    is_far_ = std::any_of(keys.lengths, keys.lengths + keys.size, [](double length) { return length != 0; });
    for (Index j = 0; j < keys.size; ++j)
      whole[j] = static_cast<Scalar>(std::max(keys.exponents[j] - top_, -Exponentials::largest_whole));
  }
  // Logits of row i with the keys that it sees as weights at its level, which is raised where it must be.
  void exponentiate(Scalar* x, Segment seen, Index i, const WeightedKeys<Scalar>& keys,
                    const ScaledQueries<Scalar>& queries) {
    if (seen.size == 0) return;
    constexpr double end = std::numeric_limits<Scalar>::max() / 4;  // beyond it a logit leaves no digits to its row
    const double of_query = queries.lengths[i];
    for (Index j = seen.begin; j < seen.end() && (is_far_ || of_query != 0); ++j)
      if (const double far = keys.lengths[j] + of_query; far != 0)
        x[j] = static_cast<Scalar>(std::clamp(times_power_of_two(static_cast<double>(x[j]), far), -end, end));
    const Scalar* const whole = memory_.weights(keys.size).data() + seen.begin;
    Scalar* const first = x + seen.begin;
    const Scalar largest = Exponentials::largest(first, whole, seen.size);
    if (!(std::abs(largest) < Exponentials::limit)) {
      exponentiate_far(x, seen, i, keys);
    } else {
      const double top = std::ceil(largest) + 1;
      raise(i, reference_ + top);
      const double shift = std::min(memory_.levels(n_)[i] - reference_, top + 4096);
      const auto factor = normal_power_of_two<Scalar>(static_cast<int>(-headroom_));  // in no exponent, for its digits
      of(memory_.sums)(e_, i) += factor * Exponentials::set(first, whole, keys.fractions + seen.begin, seen.size,
                                                            static_cast<Scalar>(shift), common_);
      if (headroom_ != 0) set_scaled(first, first, factor, seen.size);
    }
    if (this->diagnoses()) add_absolute(x, seen, i, keys, queries);
  }
  // The same for logits beyond the digits of packets, one by one in double, beside the key m of the largest score: what
  // all keys that matter have in common rounds nothing.
  void exponentiate_far(Scalar* x, Segment seen, Index i, const WeightedKeys<Scalar>& keys) {
    Index m = seen.begin;
    auto logit = static_cast<double>(x[m]);
    const auto beside = [&](Index j) {  // differences first: a sum with such a logit loses the gate
      return (static_cast<double>(x[j]) - logit) * std::numbers::log2e + (keys.exponents[j] - keys.exponents[m]);
    };
    for (Index j = seen.begin + 1; j < seen.end(); ++j)
      if (beside(j) > 0 || std::isnan(logit)) m = j, logit = static_cast<double>(x[j]);
    const ReducedExponent largest = reduced_exponent(std::isfinite(logit) ? logit : 0);
    const double above = largest.whole + (keys.exponents[m] - top_),
                 rest = largest.rest * std::numbers::log2e + static_cast<double>(common_);
    raise(i, reference_ + above + 2);
    const double lower = std::clamp(memory_.levels(n_)[i] - (reference_ + above), -1000.0, 5000.0);
    for (Index j = seen.begin; j < seen.end(); ++j) {
      const double own = beside(j) + static_cast<double>(keys.fractions[j]);
      x[j] = static_cast<Scalar>(std::exp2(own + rest - lower - headroom_));  // NaN stays one
      of(memory_.sums)(e_, i) += x[j];
    }
  }
  void add_absolute(const Scalar* weights, Segment seen, Index i, const WeightedKeys<Scalar>& keys,
                    const ScaledQueries<Scalar>& queries) {
    for (Index j = seen.begin; j < seen.end(); ++j) {
      const double length = static_cast<double>(queries.norms[i]) * static_cast<double>(keys.norms[j]);
      memory_.absolute(n_)[i] +=
          static_cast<double>(weights[j]) * (1 + times_power_of_two(length, queries.lengths[i] + keys.lengths[j]));
    }
  }
  void raise(Index i, double level) {
    double& old = memory_.levels(n_)[i];
    if (!(level > old)) return;
    const Scalar factor = nearest_power_of_two<Scalar>(old - level);
    old = level;
    Scalar* const sums = of(memory_.sums).col(i).data();
    set_scaled(sums, sums, factor, e_ + 1);
    memory_.absolute(n_)[i] *= static_cast<double>(factor);
  }

  double reference_ = 0, top_ = 0, headroom_ = 0;
  Scalar common_ = 0;
  bool is_far_ = false;  // lengths are not all in the numbers
};

template <class Scalar, FeatureMap F>
using RowsOf = std::conditional_t<F::score == Score::exponential, SoftmaxRows<Scalar, F>, PowerRows<Scalar, F>>;

}  // namespace SYMPOW_NAMESPACE::detail
