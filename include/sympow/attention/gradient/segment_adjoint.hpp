// A segment of tokens on the way back: its pairs, and the units that they go back in.
#pragma once

#include <sympow/attention/gradient/segment_rows.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// What the backward walks share: a segment whose rows see its own keys and something before it, and whose keys are
/// seen by something behind it. The walks differ in what these are.
template <class Scalar, FeatureMap F>
class SegmentAdjoint : protected SegmentRows<Scalar, F> {
  using Base = SegmentRows<Scalar, F>;

 protected:
  using Base::call_, Base::degree, Base::is_exponential, Base::keys_of, Base::loader_, Base::log2_of, Base::logits,
      Base::memory_, Base::own_, Base::rows_, Base::seen_by, Base::size;
  using typename Base::Level;

  using Base::Base;
  ~SegmentAdjoint() = default;

  /// Takes the loaded segment back. `start` is where its queries and keys turn from.
  void take_back(const Frame& start) {
    const Segment s = loader_.segment();
    const std::vector<RowRun>& runs = Base::find_rows();
    const double through = look_behind();
    take_runs(runs, start);
    if (call_.options.mask.is_full) return;  // without gates
    add_outer_flows(own_.of_rows(s.size).data(), own_.of_keys(s.size).data(), through, own_.flows(s.size).data(),
                    s.size);
    call_.vjp.add_decay_flows(s, own_.flows(s.size).data());
  }

  /// Rows of a run have the gradients 2^R (G_i, last_i), in `own_.G`, `own_.last` and with G_i = inv_i dŷ_i
  /// `own_.factors`: what these are to their queries, and to what is before.
  virtual void read_back(const RowRun& run, double R, MatrixView<Scalar> d_queries) = 0;
  /// All rows are known, what sees the keys from behind is looked at. Returns what flows through the segment between
  /// both for its gates, and has it by channel or plane in `own_.through`.
  virtual double look_behind() = 0;
  /// The exponent of what the keys have from there, that of key j, and what it is to those of a level, in the unit 2^R.
  [[nodiscard]] virtual double exponent_behind() = 0;
  [[nodiscard]] virtual double log2_behind(Index j) = 0;
  virtual void add_behind(double R, const Level& level, MatrixView<Scalar> d_keys, MatrixView<Scalar> dV) = 0;

  /// Levels of the first keys whose weights are 2^{log2_weight(j)}, for gradients 2^R; returns the largest.
  template <class Log2Weight>
  double set_levels(const Keys<Scalar>& keys, Index count, double R, const Log2Weight& log2_weight) {
    double most = 0;
    [[maybe_unused]] const double largest = R == 0 ? RowRun::bits_above_1 : R;
    if constexpr (F::score == Score::power) {
      auto levels = own_.levels(count);
      for (Index j = 0; j < count; ++j)
        most = std::max(most, levels[j] = Level::of(log2_weight(j), keys.exponents[j], largest));
    }
    return most;
  }
  /// visit(level), the largest first.
  template <class Visit>
  void for_levels(double most, const Visit& visit) {
    for (double level = most; level >= 0; --level) visit(Level{level, most == 0});
  }
  /// What the pairs of a level may use up: itself where no other level comes, else a copy.
  MatrixView<Scalar> used_up(const Level& level, MatrixView<Scalar> x, Panel<Scalar>& copies) {
    if (level.number == 0) return x;
    auto copy = copies(x.rows(), x.cols());
    copy = x;
    return copy;
  }

 private:
  static constexpr double bits_of_unit = 40;
  static constexpr Index keys_at_once = 24;  // keys that products take as one, as far as rows see them: whole tiles
  // All gradients of the segment: in a unit for every run of rows and one for what comes from behind, and for every
  // level of keys; in one for all where that is no matter.
  void take_runs(const std::vector<RowRun>& runs, const Frame& start) {
    const double behind = exponent_behind();
    RowRun none{0, 0, 0, no_weight}, one = none;
    Index count = 0;
    for (const RowRun& run : runs)
      if (run.R != no_weight) one = run, ++count;
    const double apart = one.R == no_weight || behind == no_weight ? 0 : std::abs(one.R - behind),
                 R = one.R == 0 && behind <= RowRun::bits_above_1 ? 0 : std::max(one.R, behind);
    Base::adds_ = call_.adds;
    Base::is_last_ =
        count <= 1 && apart <= bits_of_unit && !one.is_faint && set_levels_of(one, R) == 0 && set_levels_behind(R) == 0;
    if (Base::is_last_) return take_run(one, {}, true, R, start);
    own_.moments(Base::flows_through()).setZero();
    for (const RowRun& run : runs)
      if (run.R != no_weight)
        for_levels(set_levels_of(run, run.R), [&](const Level& level) { take_run(run, level, false, run.R, start); });
    for_levels(set_levels_behind(behind), [&](const Level& level) { take_run(none, level, true, behind, start); });
    if (Base::is_absolute()) own_.through(Base::flows_through()) += own_.moments(Base::flows_through());
  }
  // Levels of the keys of the segment, as its rows see them.
  double set_levels_of(const RowRun& run, double R) {
    if (run.begin == run.end || run.is_faint) return 0;
    const Keys<Scalar> keys = loader_.keys();
    return set_levels(keys, seen_by(run.end - 1), R,
                      [&](Index j) { return degree * keys.exponents[j] + log2_of(keys.log_b[j]) - run.E; });
  }
  double set_levels_behind(double R) {
    if (R == no_weight) return 0;
    const Keys<Scalar> keys = loader_.keys();
    return set_levels(keys, keys.size(), R, [&](Index j) { return log2_behind(j) - R; });
  }

  // The gradients of some rows with the keys of a level, or if `with_behind` those of all keys from behind. What flows
  // through, and what rows have from before, go with level 0, which comes last. In the unit 2^R, or that of the level.
  void take_run(const RowRun& run, const Level& level, bool with_behind, double R, const Frame& start) {
    if (R == no_weight) R = 0;
    const Index n = size(), e = call_.V.rows(), keys = Base::key_tokens_.size;
    const double unit = R - level.below();
    auto d_logits = own_.d_logits(n, n), dV = own_.dV(e, keys);
    auto d_queries = own_.d_queries(loader_.vector_rows(), n), d_keys = own_.d_keys(loader_.vector_rows(), n);
    d_queries.setZero(), d_keys.setZero(), dV.setZero();
    for (Index i = 0; i < n; ++i)
      if (i < run.begin || run.end <= i) d_logits.col(i).head(i + 1).setZero();
    if (run.begin < run.end) {
      set_row_gradients(run, R);
      differentiate_own(run, level, unit, d_logits, dV);
      if (level.number == 0) read_back(run, R, d_queries);
    }
    if (with_behind) add_behind(unit, level, d_keys.leftCols(keys), dV);
    auto to_values = keys_of(call_.dV);
    for (Index j = 0; j < keys; ++j) Base::give(to_values.col(j), dV.col(j), unit);
    Base::go_back(with_behind && level.number == 0, unit + run.slope, start);
    Base::adds_ = true;
  }
  void set_row_gradients(const RowRun& run, double R) {
    const Index n = size(), e = call_.V.rows();
    auto factors = own_.factors(n), last = own_.last(n);
    for (Index i = run.begin; i < run.end; ++i) {
      const double rho = rows_.exponents()[i];
      const Scalar beside = rho == no_weight ? Scalar(0) : power_of_two<Scalar>(rho - R);
      factors[i] = rows_.factors()[i] * beside;
      last[i] = rows_.last()[i] * beside;
      Base::set_gradient(own_.G(e, n).col(i), i, factors[i]);
    }
  }
  // The pairs of the segment with keys of a level, in the unit 2^R.
  void differentiate_own(const RowRun& run, const Level& level, double R, MatrixView<Scalar> d_logits,
                         MatrixView<Scalar> dV) {
    const Index n = size(), count = run.end - run.begin, seen = seen_by(run.end - 1);
    for (Index i = run.begin; i < run.end; ++i) d_logits.col(i).segment(seen_by(i), i + 1 - seen_by(i)).setZero();
    if (seen == 0) return;
    auto products = used_up(level, own_.products(n, n), own_.other_products),
         scores = used_up(level, logits(), own_.other_logits);
    auto pairs = Base::faint_pairs(seen);
    const auto weights = run.is_faint ? pairs.bring_near(scores.col(run.begin).head(seen), loader_.keys(), {}, run.E)
                                      : Base::weights_of(seen, run.E, level);
    for (Index i = run.begin; i < run.end; ++i) {
      Scalar* const x = scores.col(i).data();
      if (rows_.exponents()[i] == no_weight) products.col(i).setZero();  // no gradient, whatever dy is
      differentiate_row<F>(x, products.col(i).data(), d_logits.col(i).data(), weights.data(), own_.factors(n)[i],
                           own_.last(n)[i], seen_by(i));
      if (run.is_faint) pairs.bring_back(d_logits.col(i).head(seen), run.slope);
      std::fill(x + seen_by(i), x + std::min(seen, (i / keys_at_once + 1) * keys_at_once), Scalar(0));
      if (Base::by_slopes_)
        d_logits.col(i).head(seen_by(i)).array() *= own_.slopes(n, n).col(i).head(seen_by(i)).array();
      if constexpr (is_exponential)
        Base::lengthen(d_logits.col(i).head(seen_by(i)), loader_.keys().exponents, loader_.queries().exponents[i]);
    }
    auto flows = own_.scratch(n);
    flows.setZero();
    add_pair_flows(products.topRows(seen).middleCols(run.begin, count), run.begin, flows.data());
    detail::add_times_power_of_two<double>(own_.flows(n), flows, R);
    for (Index j = 0, some; j < seen; j += some) {
      some = std::min(keys_at_once, seen - j);
      const Index first = std::max(run.begin, j), rows = run.end - first;
      set_product(dV.middleCols(j, some), own_.G(call_.V.rows(), n).middleCols(first, rows),
                  scores.block(j, first, some, rows).transpose());
    }
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
