// The sums over tokens that a state has folded: S, Z, their absolute weight, and the exponent that they have in common.
#pragma once

#include <sympow/attention/feature_panels.hpp>
#include <sympow/attention/forgetting.hpp>
#include <sympow/attention/keys.hpp>
#include <sympow/attention/stored_sums.hpp>
#include <sympow/attention/tail.hpp>
#include <sympow/core/row_panels.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Memory for folds.
template <class Scalar>
struct FoldMemory {
  PanelMemory<Scalar> panels;
  Panel<double> channels, monomials;
  Panel<Scalar> weights, weighted, packed;  ///< values times weights, also by `RowPanels`
  Panel<Scalar> columns, columns_before;    ///< of S, where its numbers lie in halves

  /// Memory for so many keys, and D entries of φ.
  template <class F>
  void reserve(Index rows, Index value_rows, Index dimension, Index keys, bool channels_decay) {
    panels.template reserve<F>(rows, keys);
    panels.features(dimension, std::min(few_columns, keys));
    weights(keys), weighted(value_rows, keys), packed(value_rows * keys);
    if (channels_decay) channels(rows, 2), monomials(dimension, 2);
  }
};

/// Over the tokens j that were folded, with keys of length at most 1 and M = ⌈L⌉,
///
///     S = Σ_j b_j v_j φ(k̂_j)ᵀ = 2^M S_  (e × D),   Z = Σ_j b_j φ(k̂_j) = 2^M Z_,   A = Σ_j b_j ‖k̂_j‖^P = 2^M A_
///
/// at the time of the last fold. Since then they have decayed by `log_decay` and `log_channels`, which the next fold
/// puts into them. Source of the running exponent L ← max(L + log2 γ, log2 (b_j ‖φ(k_j)‖)): L = -∞ is empty, and never
/// comes from -∞ - (-∞).
template <class Scalar>
struct FoldedSums : StoredSums<Scalar> {
  using StoredSums<Scalar>::S, StoredSums<Scalar>::halves, StoredSums<Scalar>::is_halved,
      StoredSums<Scalar>::value_rows, StoredSums<Scalar>::make_whole, StoredSums<Scalar>::change_columns,
      StoredSums<Scalar>::columns;

  Vector<Scalar> Z;
  double A = 0, L = no_weight;
  Eigen::VectorXd channel_weights;  ///< A_c = Σ_j b_j |k̂_cj|^P by channel, empty before channels decayed by themselves
  double log_decay = 0;
  Eigen::VectorXd log_channels;
  bool channels_decay = false;  ///< whether any of these is not 0

  FoldedSums(Index e, Index dimension, Index d) : StoredSums<Scalar>(e, dimension) {
    Z.setZero(dimension);
    log_channels.setZero(d);
  }

  /// M.
  [[nodiscard]] double exponent() const { return std::ceil(L); }
  [[nodiscard]] bool empty() const { return L == no_weight; }
  /// Nothing; what is in memory is overwritten, not multiplied: it may be no number.
  void clear() {
    S.setZero();
    halves.set_zero();
    Z.setZero();
    A = 0;
    L = no_weight;
    resize_anew(channel_weights, 0);
    settle();
  }
  /// Whether no decay since the last fold is owed.
  [[nodiscard]] bool is_settled() const { return log_decay == 0 && !channels_decay; }
  /// The decay since the last fold is in the sums.
  void settle() {
    log_decay = 0;
    if (channels_decay) log_channels.setZero();
    channels_decay = false;
  }
  /// They decay further.
  void forget(double log_gamma, const Eigen::VectorXd* log_a) {
    log_decay += log_gamma;
    if (log_a == nullptr) return;
    log_channels += *log_a;
    channels_decay = true;
  }

  /// Σ log γ since the last fold, of the slowest channel.
  template <int degree>
  [[nodiscard]] double slowest_decay() const {
    return channels_decay ? log_decay + degree * largest_of(log_channels) : log_decay;
  }
  /// Whether channels have decayed by themselves since then.
  [[nodiscard]] bool channels_differ() const { return channels_decay && !all_equal(log_channels); }

  /// x ← at the time of the last fold, but for the decay of the slowest channel, for queries.
  void pull_to_last_fold(MatrixView<Scalar> x, Panel<double>& scratch) const {
    if (!channels_differ()) return;
    const auto decays = scratch(x.rows());
    set_beside_slowest(decays, log_channels, 1);
    for (Index i = 0; i < x.cols(); ++i) multiply_entries(&x(0, i), decays.data(), x.rows());
  }

  /// S ← factor S Sym(diag(e^{channels - slowest})): a diagonal is lifted to the monomials of its entries, φ(a) / φ(1).
  template <class F>
  [[nodiscard]] static Forgetting forgetting(const F& feature, Index dimension, FoldMemory<Scalar>& memory,
                                             double factor, const Eigen::VectorXd& log_a) {
    if (factor == 0 || F::score != Score::power || all_equal(log_a)) return {factor, {nullptr, 0}};
    auto channels = memory.channels(log_a.size(), 2), monomials = memory.monomials(dimension, 2);
    set_beside_slowest(channels.col(0), log_a, 1);
    channels.col(1).setConstant(1);
    if constexpr (F::score == Score::power) feature.embed(channels, monomials);
    for (Index n = 0; n < monomials.rows(); ++n) monomials(n, 0) *= factor / monomials(n, 1);
    return {factor, {monomials.data(), monomials.rows()}};
  }

  /// What is owed goes into the sums, and then keys do: those of a tail, which decay by e^since_tail on their way, and
  /// a segment's own.
  ///
  ///     L ← max(L + log2 γ, log2 (b_j ‖φ(k_j)‖)),   S ← 2^{(M - M') + log2 γ} S + Σ_j 2^{log2 b_j - M'} v_j φ(k_j)ᵀ
  template <class F>
  void absorb(const F& feature, FoldMemory<Scalar>& memory, const Keys<Scalar>& tail, const LogDecay& since_tail,
              const Keys<Scalar>& own, const LogDecay& since_own) {
    constexpr int degree = degree_of<F>;
    const Index m = tail.size(), n = own.size();
    const double owed = slowest_decay<degree>();
    const double next = std::max(
        {L + owed * std::numbers::log2e, log2_weight<degree>(tail, since_tail), log2_weight<degree>(own, since_own)});
    if (next == no_weight) return empty() ? settle() : clear();  // channels may have closed one after the other
    const double next_exponent = std::ceil(next);
    auto weights = memory.weights(m + n);
    set_scaled_weights(weights.head(m), tail, since_tail.weight(tail.M - next_exponent));
    set_scaled_weights(weights.tail(n), own, since_own.weight(own.M - next_exponent));
    auto weighted = memory.weighted(value_rows(), m + n);
    scale_columns<Scalar>(tail.values, weights.head(m), weighted.leftCols(m));
    scale_columns<Scalar>(own.values, weights.tail(n), weighted.rightCols(n));
    const auto values = row_panels<Scalar>(weighted, m + n <= few_columns ? 0 : S.cols(), memory.packed);
    const Forgetting decay =
        forgetting(feature, S.cols(), memory, empty() ? 0 : weight_of(owed, exponent() - next_exponent), log_channels);
    for_feature_panels(feature, memory.panels, m + n <= few_columns ? 0 : fold_width(m + n), tail.vectors, own.vectors,
                       [&](Index first, const Entries<Scalar>& features) {
                         auto normaliser = ColumnView<Scalar>(Z).segment(first, features.cols());
                         change_columns(first, features.cols(), halved_columns, memory.columns,
                                        [&](Index begin, MatrixView<Scalar> some) {
                                          decay.multiply<Scalar>(begin, some,
                                                                 normaliser.segment(begin - first, some.cols()));
                                          if (features.rows() == 0) return;  // what is empty has no memory
                                          add_product(some, values, features.middleCols(begin - first, some.cols()));
                                        });
                         add_product(normaliser, features.transpose(), weights);
                       });
    absorb_weights<degree>(decay.factor, tail, own, weights, memory.channels);
    L = next;
    settle();
  }

  /// The largest denominator of each query that can be rounding, 16 u of which is the noise of its row: ‖φ(q)‖ A, or
  /// where channels have decayed by themselves (Σ_c |q_c| A_c^{1/P})^P if that is less, by Minkowski's inequality.
  template <int degree>
  void set_noise(MatrixView<const Scalar> queries, ColumnView<const Scalar> lengths, ColumnView<double> noise,
                 Panel<double>& scratch) const {
    for (Index i = 0; i < noise.size(); ++i) noise[i] = power<degree>(static_cast<double>(lengths[i])) * A;
    if (channel_weights.size() == 0) return;
    auto roots = scratch(channel_weights.size());
    for (Index c = 0; c < roots.size(); ++c) roots[c] = std::pow(channel_weights[c], 1.0 / degree);
    for (Index i = 0; i < noise.size(); ++i) {
      double sum = 0;
      for (Index c = 0; c < roots.size(); ++c) sum += std::abs(static_cast<double>(queries(c, i))) * roots[c];
      noise[i] = std::min(noise[i], power<degree>(sum));
    }
  }

  /// Adds sums of earlier tokens, which decay by these logarithms on their way to here; nothing is owed on either side.
  template <class F>
  void add(const F& feature, FoldMemory<Scalar>& memory, const FoldedSums& before, double log_gamma,
           const Eigen::VectorXd& log_a) {
    constexpr int degree = degree_of<F>;
    const double decay = log_gamma + degree * largest_of(log_a), of_before = before.L + decay * std::numbers::log2e;
    if (of_before == no_weight) return;
    const double next = std::max(L, of_before), next_exponent = std::ceil(next);
    const double own = empty() ? 0 : std::exp2(exponent() - next_exponent);
    const Forgetting forgotten =
        forgetting(feature, S.cols(), memory, weight_of(decay, before.exponent() - next_exponent), log_a);
    const auto own_factor = static_cast<Scalar>(own);
    for_some(is_halved() || before.is_halved() ? halved_columns : S.cols(), [&](Index some, Index count) {
      const MatrixView<const Scalar> theirs = before.columns(some, count, memory.columns_before);
      change_columns(some, count, count, memory.columns, [&](Index, MatrixView<Scalar> ours) {
        forgotten.for_factors<Scalar>(some, count, [&](const TwoPartFactor<Scalar>& factor, Index begin, Index n) {
          const Index at = (begin - some) * ours.rows();
          factor.add(ours.data() + at, own_factor, theirs.data() + at, n * ours.rows());
          factor.add(Z.data() + begin, own_factor, before.Z.data() + begin, n);
        });
      });
    });
    merge_channel_weights<degree>(before, own, forgotten.factor, log_a);
    A = A * own + before.A * forgotten.factor;
    L = next;
  }

  /// 2^M times S or Z.
  template <class Part, class Class>
  [[nodiscard]] Part unscaled(Part Class::* part) {
    make_whole();
    Part& x = this->*part;
    for (Index n = 0; n < x.size(); ++n) x.data()[n] = times_power_of_two(x.data()[n], empty() ? 0 : exponent());
    return std::move(x);
  }

  /// visit(part, name) of every part, for files, in which numbers are whole.
  template <class Visit>
  void visit(Visit&& visit) {
    make_whole();
    visit(L, "exponent");
    visit(A, "absolute weight");
    visit(channel_weights, "absolute weights of channels");
    visit(S, "S");
    visit(Z, "Z");
    visit(log_decay, "decay since the last fold");
    visit(log_channels, "decay of channels since the last fold");
    channels_decay = !log_channels.isZero(0);
  }

 private:
  // f(first, count) for all columns of S, so many at a time.
  template <class Function>
  void for_some(Index at_once, const Function& f) const {
    for (Index first = 0; first < S.cols(); first += at_once) f(first, std::min(at_once, S.cols() - first));
  }
  // Those of both where one of them counts by channel; the other's are A at most.
  template <int degree>
  void merge_channel_weights(const FoldedSums& before, double own, double factor, const Eigen::VectorXd& log_a) {
    const bool decays = !all_equal(log_a);
    if (!decays && channel_weights.size() == 0 && before.channel_weights.size() == 0) return;
    if (channel_weights.size() == 0) {
      resize_anew(channel_weights, log_a.size());
      channel_weights.setConstant(A);
    }
    const double slowest = largest_of(log_a);
    for (Index c = 0; c < channel_weights.size(); ++c)
      channel_weights[c] =
          channel_weights[c] * own + (before.channel_weights.size() == 0 ? before.A : before.channel_weights[c]) *
                                         factor * std::exp(degree * (log_a[c] - slowest));
  }

  // decays_c ← (a_c / a of the slowest channel)^degree.
  static void set_beside_slowest(ColumnView<double> decays, const Eigen::VectorXd& log_a, int degree) {
    const double slowest = largest_of(log_a);
    for (Index c = 0; c < decays.size(); ++c)
      decays[c] = log_a[c] == no_weight ? no_weight : degree * (log_a[c] - slowest);
    set_exponential(decays, decays);
  }
  // log2 of the largest weight of some keys, and the room that their values need.
  template <int degree>
  static double log2_weight(const Keys<Scalar>& keys, const LogDecay& since) {
    return largest_log2_weight<degree>(keys.log_b, keys.exponents) + since.high * std::numbers::log2e +
           room_for(keys.extent.largest);
  }
  static void set_scaled_weights(ColumnView<Scalar> weights, const Keys<Scalar>& keys, double factor) {
    if (keys.M == no_weight) return weights.setZero(), void();
    set_scaled(weights.data(), keys.weights.data(), static_cast<Scalar>(factor), weights.size());
  }
  // A and those of the channels, once these decay by themselves.
  template <int degree>
  void absorb_weights(double factor, const Keys<Scalar>& tail, const Keys<Scalar>& own,
                      ColumnView<const Scalar> weights, Panel<double>& scratch) {
    const auto of_tail = weights.head(tail.size()), of_own = weights.tail(own.size());
    if (channel_weights.size() == 0 && channels_differ()) {
      resize_anew(channel_weights, log_channels.size());
      channel_weights.setConstant(A);  // at most: nobody has counted
    }
    if (channel_weights.size() > 0) {
      const auto decays = scratch(channel_weights.size());
      set_beside_slowest(decays, log_channels, degree);
      for (Index c = 0; c < channel_weights.size(); ++c) channel_weights[c] *= factor * decays[c];
      add_channel_weights<degree>(tail.vectors, of_tail);
      add_channel_weights<degree>(own.vectors, of_own);
    }
    A = A * factor + absolute_weight<degree, Scalar>(of_tail, tail.lengths) +
        absolute_weight<degree, Scalar>(of_own, own.lengths);
  }
  // A_c ← A_c + Σ_j w_j |k_cj|^P.
  template <int degree>
  void add_channel_weights(MatrixView<const Scalar> keys, ColumnView<const Scalar> weights) {
    constexpr Index block = 16;
    double* const sums = channel_weights.data();
    for (Index j = 0; j < weights.size(); ++j) {
      const auto weight = static_cast<double>(weights[j]);
      const Scalar* const key = keys.col(j).data();
      Index c = 0;
      for (; c + block <= keys.rows(); c += block)
        Eigen::Array<double, block, 1>::Map(sums + c) +=
            weight * power<degree>(Eigen::Array<Scalar, block, 1>::Map(key + c).abs().template cast<double>().eval());
      for (; c < keys.rows(); ++c) sums[c] += weight * power<degree>(std::abs(static_cast<double>(key[c])));
    }
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
