// The rows of a segment under exponential scores: Σ_j e^{s_ij} v_j and Σ_j e^{s_ij} beside the running maximum.
#pragma once

#include <sympow/detail/power_rows.hpp>
#include <sympow/simd/packed_exponential.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The level of a row follows its largest score: what is there is rescaled when a larger one comes. It counts from the
/// key of a block with the largest gate, so that no gate rounds a logit.
template <class Scalar, FeatureMap F>
class SoftmaxRows {
  using Exponentials = PackedExponential<Scalar>;

 public:
  SoftmaxRows(RowBuffers<Scalar>& memory, RowKind kind, const RowReports& reports, const Mask& mask, Index e,
              Index rows, Index keys)
      : memory_(memory), kind_(kind), reports_(reports), mask_(mask), e_(e) {
    memory.sums(e, rows), memory.denominators(rows);
    memory.levels(rows), memory.absolute(rows);
    memory.scores(std::max(keys, rows), rows_at_once), memory.weights(std::max(keys, rows));
    if (rows >= columns_worth_packing) memory.values(e * std::max(keys, rows));
  }

  /// Rows of a segment without any contribution.
  template <class Past>
  void reset(const LoadedSegment<Scalar, F>& segment, const Past& past) {
    n_ = segment.size(), begin_ = segment.first_row(), end_ = begin_ + segment.rows(), token_ = segment.range().begin;
    memory_.sums(e_, n_).setZero();
    headroom_ = headroom_for(std::max(past.level(token_).largest_value, segment.keys().extent.largest));
    const Scalar* const norms = segment.queries().given_norms;
    for (Index i = 0; i < n_; ++i) memory_.denominators(n_)[i] = norms[i] * Scalar(0);  // no number for a query of none
    memory_.absolute(n_).setZero();
    memory_.levels(n_).setConstant(log2_zero);
  }
  /// No key is too light to be seen: logits can be as large as gates are small.
  [[nodiscard]] double horizon() const { return log2_zero; }

  /// The segment's own keys; its logits are used up.
  void add_own(const LoadedSegment<Scalar, F>& segment) {
    add(segment.keys(), {}, segment.queries(), segment.logits());
  }
  /// Keys from before the segment, which decay by e^between on their way to its time 0.
  void add_keys(const F&, const WeightedKeys<Scalar>& keys, const LogGate& between,
                const ScaledQueries<Scalar>& queries) {
    add(keys, between, queries, {nullptr, 0, 0});
  }

  /// Y ← the rows that have queries, rows `query`, … of the call: means, or sums with all their powers of two.
  void write(const LoadedSegment<Scalar, F>& segment, MatrixView<Scalar> Y, Index query) {
    for (Index i = begin_; i < end_; ++i) {
      const Scalar* const sums = memory_.sums(e_, n_).col(i).data();
      const Scalar den = memory_.denominators(n_)[i], gate = segment.gate_fractions()[i];
      const double level = memory_.levels(n_)[i],
                   whole = segment.gate_exponents()[i] + (level == log2_zero ? 0 : level + headroom_);
      const bool is_degenerate = kind_ != RowKind::sums && den == Scalar(0);
      auto y = Y.col(i - begin_);
      if (kind_ == RowKind::sums) {
        set_scaled(y.data(), sums, gate, e_);
        set_times_power_of_two<Scalar>(y, y, whole);
      } else if (is_degenerate) {
        set_scaled(y.data(), sums, Scalar(0), e_);  // what is not finite shows
      } else {
        write_mean(y, sums, den, headroom_ > 0);
      }
      reports_.report(query + i - begin_, static_cast<double>(den) * static_cast<double>(gate),
                      memory_.absolute(n_)[i] * gate, whole, is_degenerate);
    }
  }

 private:
  // Each row sees what the mask says of these keys. Their scores with it are made of logits, which may be given.
  void add(const WeightedKeys<Scalar>& keys, const LogGate& between, const ScaledQueries<Scalar>& queries,
           MatrixView<Scalar> own) {
    if (keys.size == 0) return;
    const SeenKeys<Scalar> all(mask_, keys, token_ + begin_, token_ + end_ - 1);
    const RowPanels<Scalar> values = all.values(memory_);
    const MatrixView<Scalar> sums = memory_.sums(e_, n_);
    begin_keys(keys, between);
    for (Index begin = begin_; begin < end_; begin += rows_at_once) {
      const Index count = std::min(rows_at_once, end_ - begin), depth = all.at(token_ + begin + count - 1).end();
      const auto scores = own.cols() > 0 ? own.block(0, begin, depth, count) : memory_.scores(keys.size, count);
      if (own.cols() == 0) set_logits(scores, keys, queries, begin);
      for (Index i = begin; i < begin + count; ++i) {
        const Segment seen = all.at(token_ + i);
        Scalar* const column = scores.col(i - begin).data();
        exponentiate(column, seen, i, keys, queries);
        std::fill(column, column + seen.begin, Scalar(0));
        std::fill(column + seen.end(), column + depth, Scalar(0));
      }
      add_product(sums.middleCols(begin, count), values, scores.topRows(depth));
      for (Index i = begin; i < begin + count && all.adds_infinite(); ++i)
        all.add_infinite_values(scores.col(i - begin).data(), token_ + i, sums.col(i).data());
    }
  }

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
      memory_.denominators(n_)[i] += factor * Exponentials::set(first, whole, keys.fractions + seen.begin, seen.size,
                                                                static_cast<Scalar>(shift), common_);
      if (headroom_ != 0) set_scaled(first, first, factor, seen.size);
    }
    if (reports_.diagnostics != nullptr) add_absolute(x, seen, i, keys, queries);
  }
  // The same for logits beyond the digits of packets, one by one in double, beside the key m of the largest score: what
  // all keys that matter have in common rounds nothing.
  void exponentiate_far(Scalar* x, Segment seen, Index i, const WeightedKeys<Scalar>& keys) {
    const auto log2_of = [&](Index j) {
      return static_cast<double>(x[j]) * std::numbers::log2e + (keys.exponents[j] - top_);
    };
    Index m = seen.begin;
    for (Index j = seen.begin + 1; j < seen.end(); ++j)
      if (log2_of(j) > log2_of(m) || std::isnan(log2_of(m))) m = j;
    const auto logit = static_cast<double>(x[m]);
    const ReducedExponent largest = reduced_exponent(std::isfinite(logit) ? logit : 0);
    const double above = largest.whole + (keys.exponents[m] - top_),
                 rest = largest.rest * std::numbers::log2e + static_cast<double>(common_);
    raise(i, reference_ + above + 2);
    const double lower = std::clamp(memory_.levels(n_)[i] - (reference_ + above), -1000.0, 5000.0);
    for (Index j = seen.begin; j < seen.end(); ++j) {
      const double beside = (static_cast<double>(x[j]) - logit) * std::numbers::log2e +
                            (keys.exponents[j] - keys.exponents[m]) + static_cast<double>(keys.fractions[j]);
      x[j] = static_cast<Scalar>(std::exp2(beside + rest - lower - headroom_));  // NaN stays one
      memory_.denominators(n_)[i] += x[j];
    }
  }
  void add_absolute(const Scalar* weights, Segment seen, Index i, const WeightedKeys<Scalar>& keys,
                    const ScaledQueries<Scalar>& queries) {
    for (Index j = seen.begin; j < seen.end(); ++j) {
      const double length = static_cast<double>(queries.given_norms[i]) * static_cast<double>(keys.given_norms[j]);
      memory_.absolute(n_)[i] +=
          static_cast<double>(weights[j]) * (1 + times_power_of_two(length, queries.lengths[i] + keys.lengths[j]));
    }
  }
  void raise(Index i, double level) {
    double& old = memory_.levels(n_)[i];
    if (!(level > old)) return;
    const Scalar factor = nearest_power_of_two<Scalar>(old - level);
    old = level;
    Scalar* const sums = memory_.sums(e_, n_).col(i).data();
    set_scaled(sums, sums, factor, e_);
    memory_.denominators(n_)[i] *= factor;
    memory_.absolute(n_)[i] *= static_cast<double>(factor);
  }

  RowBuffers<Scalar>& memory_;
  RowKind kind_;
  RowReports reports_;
  Mask mask_;
  Index e_, n_ = 0, begin_ = 0, end_ = 0, token_ = 0;
  double reference_ = 0, top_ = 0, headroom_ = 0;
  Scalar common_ = 0;
  bool is_far_ = false;  // lengths are not all in the numbers
};

template <class Scalar, FeatureMap F>
using RowsOf = std::conditional_t<F::score == Score::exponential, SoftmaxRows<Scalar, F>, PowerRows<Scalar, F>>;

}  // namespace SYMPOW_NAMESPACE::detail
