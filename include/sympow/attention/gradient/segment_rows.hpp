// Rows of a segment on the way back: what they see, and what the loss asks of them.
#pragma once

#include <sympow/attention/gradient/faint_pairs.hpp>
#include <sympow/attention/gradient/pair_adjoints.hpp>
#include <sympow/attention/gradient/segment_vectors.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The rows of a segment, which see its own keys and something before it. The walks differ in what that is.
template <class Scalar, FeatureMap F>
class SegmentRows : protected SegmentVectors<Scalar, F> {
  using Base = SegmentVectors<Scalar, F>;

 protected:
  using Base::call_, Base::degree, Base::is_exponential, Base::loader_, Base::log2_of, Base::memory_, Base::own_,
      Base::size;
  using Level = KeyLevel<Scalar>;

  /// Sums of rows are added up here if they are neither known nor of no use.
  SegmentRows(const F& feature, const VjpCall<Scalar>& call, bool by_slopes, bool adds_sums)
      : Base(feature, call, by_slopes), rows_(call.adjoint_memory.rows, call.rows), adds_sums_(adds_sums) {}
  ~SegmentRows() = default;

  /// Finds what the loss asks of the rows of the loaded segment; returns the runs of them that go back together.
  const std::vector<RowRun>& find_rows() {
    const Segment s = loader_.segment();
    rows_.begin(s.size, Base::first_row(), Base::queries_of(call_.dY));
    for (auto* flows : {&own_.flows, &own_.of_rows, &own_.of_keys}) (*flows)(s.size).setZero();
    Base::keep_vectors();
    hide_unasked();
    look_before();
    add_own_products();
    set_references();
    know_rows();
    return rows_.finish(loader_.queries());
  }

  /// G_i ← factor dŷ_i, and 0 where the row has no gradient, whatever dy is.
  void set_gradient(ColumnView<Scalar> G, Index i, Scalar factor) {
    if (rows_.exponents()[i] == no_weight) return G.setZero(), void();
    set_scaled(G.data(), rows_.dY().col(i).data(), factor, G.size());
  }

  /// What the rows see before the segment is looked at.
  virtual void look_before() = 0;
  /// log2 of the largest weight in it, for the segment's first token.
  [[nodiscard]] virtual double log2_before() = 0;
  /// Adds to the peak what row i sees in it.
  virtual void add_peak_before(Index i, Peak<degree>& peak) = 0;
  /// Adds it to the sums of rows begin … end - 1, which are counted from 2^E on.
  virtual void add_before(Index, Index, double) {}

  /// Weights of the first keys, 0 of other levels, beside 2^M, which is returned.
  double set_weights_of(const Level& level, const Keys<Scalar>& keys, ColumnView<Scalar> weights) {
    const Index n = weights.size();
    auto exponents = own_.level_exponents(n);
    exponents = keys.exponents.head(n);
    for (Index j = 0; j < n && !level.is_only; ++j)
      if (own_.levels(n)[j] != level.number) exponents[j] = no_weight;
    return set_weights<degree>(weights, keys.log_b.head(n), keys.log_b_low.head(n), exponents, own_.scratch(2 * n));
  }
  /// Weights of the first keys beside 2^E, of those of a level.
  ColumnView<const Scalar> weights_of(Index count, double E, const Level& level = {}) {
    const Keys<Scalar> keys = loader_.keys();
    auto weights = own_.weights(count);
    double M = keys.M;
    if (count == keys.size() && level.is_only)
      weights = keys.weights;
    else
      M = set_weights_of(level, keys, weights);
    if (M != no_weight) set_scaled(weights.data(), weights.data(), power_of_two<Scalar>(M - E + level.below()), count);
    return weights;
  }
  /// The keys of the segment that row i sees.
  [[nodiscard]] Index seen_by(Index i) const { return std::min(i + 1, Base::key_tokens_.size); }
  /// Of a faint row with so many keys.
  FaintPairs<degree, Scalar> faint_pairs(Index keys) { return {own_.level_exponents(keys), own_.faint_weights(keys)}; }
  /// Logits of the segment.
  [[nodiscard]] MatrixView<Scalar> logits() { return memory_.segment.logits(size(), size()); }

  RowAdjoints<Scalar, F> rows_;

 private:
  // Queries of which nothing is asked are 0 if they are not finite: they would show in products with them.
  void hide_unasked() {
    const Index n = size(), d = call_.K.rows();
    const auto hide = [](ColumnView<Scalar> x) { x.setZero(); };
    for (Index i = 0; i < n; ++i) {
      if (rows_.is_asked(i) || std::isfinite(loader_.queries().norms[i])) continue;
      hide(loader_.queries().vectors.col(i)), hide(memory_.segment.queries(d, n).col(i));
      hide(own_.queries(d, n).col(i)), hide(logits().col(i));
    }
  }
  // v_j·dŷ_i of the segment, and its slopes.
  void add_own_products() {
    const Index n = size();
    const Keys<Scalar> keys = loader_.keys();
    auto products = own_.products(n, n);
    if (keys.size() > 0) set_causal_product(products.topRows(keys.size()), keys.values, rows_.dY());
    if (Base::by_slopes_ && keys.size() > 0) {
      auto slopes = own_.slopes(n, n).topRows(keys.size());
      set_causal_product(slopes, keys.vectors, loader_.queries().vectors);
      Base::set_slopes(slopes, keys, true);
    }
  }
  // References of the rows, by groups of them that one serves; sums, if they are added up.
  void set_references() {
    if constexpr (is_exponential) return set_exponentials();
    const Index n = size();
    const Keys<Scalar> keys = loader_.keys();
    const double before = log2_before();
    double seen = before;
    for (Index begin = 0, end = 0; begin < n; begin = end) {
      double least = no_weight;
      for (; end < n; ++end) {
        const double next =
            end < keys.size() ? std::max(seen, degree * keys.exponents[end] + log2_of(keys.log_b[end])) : seen;
        if (least != no_weight && next - least > -least_weight) break;
        seen = next;
        if (least == no_weight) least = seen;
      }
      const double E = std::ceil(seen);
      rows_.references().segment(begin, end - begin).setConstant(E);
      if (E == no_weight || !adds_sums_ || !rows_.divides()) continue;
      const auto weights = weights_of(std::min(end, keys.size()), E);
      const bool may_be_faint = before < E - Level::bits;
      for (Index i = begin; i < end; ++i) {
        rows_.add(i, sums_of_scores<degree>(logits().col(i).data(), weights.data(), own_.products(n, n).col(i).data(),
                                            seen_by(i)));
        if (!may_be_faint) continue;
        if (std::abs(rows_.sum(i)) < power_of_two<double>(-Level::bits) && take_if_faint(i)) add_faint(i);
        add_before(i, i + 1, rows_.references()[i]);
      }
      if (!may_be_faint) add_before(begin, end, E);
    }
    if (F::score != Score::power || !rows_.divides()) return;
    for_known([&](Index i, const RowSum& known, ColumnView<const Scalar>) {
      const double length = degree * loader_.queries().exponents[i];
      if (known.sum != 0 && std::log2(std::abs(known.sum)) + known.exponent - length - log2_of(Base::until(i).high) <
                                rows_.references()[i] - Level::bits)
        take_if_faint(i);
    });
  }
  // Gives row i a reference and a slope of its own if it is faint, and says whether it is.
  bool take_if_faint(Index i) {
    if constexpr (F::score != Score::power) return false;
    Peak<degree> peak;
    peak.add(ColumnView<const Scalar>(logits().col(i).head(seen_by(i))), loader_.keys(), {});
    add_peak_before(i, peak);
    const double E = std::ceil(peak.score);
    if (E == no_weight || !(E < rows_.references()[i] - Level::bits)) return false;
    rows_.begin_faint(i, E, std::ceil(peak.slope) - E);
    return true;
  }
  void add_faint(Index i) {
    const Index seen = seen_by(i);
    auto x = own_.faint_logits(seen);
    x = logits().col(i).head(seen);
    const auto weights = faint_pairs(seen).bring_near(x, loader_.keys(), {}, rows_.references()[i]);
    rows_.add(i, sums_of_scores<degree>(x.data(), weights.data(), own_.products(size(), size()).col(i).data(), seen));
  }
  // The same for e^x, each row with its sum as a reference. Logits become scores.
  void set_exponentials() {
    rows_.references().setConstant(no_weight);
    for_known([&](Index i, const RowSum& known, ColumnView<const Scalar>) {
      if (known.sum == 0 || !rows_.is_asked(i)) return;
      const double E = rows_.references()[i] = std::ceil(std::log2(known.sum) + known.exponent);
      const Keys<Scalar> keys = loader_.keys();
      weigh_exponentials(logits().col(i).data(), seen_by(i), keys.exponents, loader_.queries().exponents[i], keys.log_b,
                         keys.log_b_low, Base::until(i), Eigen::VectorXd::Constant(seen_by(i), E));
    });
  }
  void know_rows() {
    if (rows_.divides())
      for_known([&](Index i, const RowSum& known, ColumnView<const Scalar> y) {
        rows_.know(i, known, y, loader_.queries());
      });
  }
  // visit(row, its sum, y) for the rows that the forward pass has left.
  template <class Visit>
  void for_known(const Visit& visit) {
    if (call_.known.sums == nullptr || Base::query_tokens_.size == 0) return;
    const auto Y = Base::queries_of(MatrixView<const Scalar>(call_.known.Y, call_.V.rows(), call_.Q.cols()));
    const RowSum* const sums = call_.known.sums + Base::query_tokens_.begin - call_.options.mask.offset;
    for (Index i = 0; i < Y.cols(); ++i) visit(Base::first_row() + i, sums[i], Y.col(i));
  }

  bool adds_sums_;
};

}  // namespace SYMPOW_NAMESPACE::detail
