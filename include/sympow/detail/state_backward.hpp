// A state as the past of a segment on the way back, its adjoint behind it, and what flows between the two.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/detail/phi_panels.hpp>
#include <sympow/detail/segment_backward.hpp>
#include <sympow/detail/state_fold.hpp>
#include <sympow/simd/blocks.hpp>
#include <sympow/simd/product.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE::detail {

// ---- What flows through a segment between a state before it and an adjoint state behind it

/// ⟨column i of [H; Z_H], column j of [S; Z]⟩, without their exponents.
template <class Scalar>
double column_product(const StateSums<Scalar>& H, Index i, const StateSums<Scalar>& S, Index j) {
  const Index e = S.S.rows();
  return static_cast<double>(dot_product(H.S.data() + i * e, S.S.data() + j * e, e)) +
         static_cast<double>(H.Z[i]) * static_cast<double>(S.Z[j]);
}

/// ⟨[H; Z_H], [S; Z]⟩ without their exponents.
template <class Scalar>
double inner_product(const StateSums<Scalar>& H, const StateSums<Scalar>& S) {
  return static_cast<double>(dot_product(H.S.data(), S.S.data(), S.S.size())) +
         static_cast<double>(dot_product(H.Z.data(), S.Z.data(), S.Z.size()));
}

/// flows_c += Σ_α n_αc x_α for numbers x of the monomials α of d channels, n_αc the count of c in α.
inline void add_channel_counts(Index d, int P, ColumnView<const double> x, ColumnView<double> flows) {
  Index row = 0;
  for (const auto& alpha : MultiIndices(d, P)) {
    for (const Index c : alpha) flows[c] += x[row];
    ++row;
  }
}

/// The infinitesimal turns of φ^P in the planes of R^d, L_u φ(x) = Dφ(x) J_u x: with c_lo the count of one channel of
/// the plane in α, and β = α with one `lo` made an `up`,
///
///     (L_u)_{α,β} = ∓ √(c_lo (c_up + 1))          - where lo is the first channel of the plane, + for the second
///
/// at most two entries a row and plane, P a row in all. Skew. Source: derivative of φ(R x) by the angle at 0.
class LiftedTurns {
 public:
  /// Anew, or as they were for the same power and planes.
  void set(Index d, int P, const Planes& planes) {
    if (d_ == d && P_ == P && count_ == planes.count && pairing_ == planes.pairing) return;
    d_ = -1;  // memory may end on the way
    P_ = P, count_ = planes.count, pairing_ = planes.pairing;
    set_entries(d, P, planes);
    d_ = d;
  }

  /// flows_u += factor ⟨H⁺, L_u S⁺⟩, by short sums of a plane's entries.
  template <class Scalar>
  void add(const StateSums<Scalar>& H, const StateSums<Scalar>& S, double factor, double* flows) const {
    for (auto first = entries_.begin(), end = first; first != entries_.end(); first = end) {
      double sum = 0;
      for (; end != entries_.end() && end - first < short_sum && end->plane == first->plane; ++end)
        sum += end->value * static_cast<double>(H.Z[end->row]) * static_cast<double>(S.Z[end->column]);
      for_blocks<64>(S.S.rows(), [&](Index begin, auto count) {
        using Some = Eigen::Array<Scalar, block_size<decltype(count)>, 1, 0, 64, 1>;
        const auto some = [&](const StateSums<Scalar>& of, Index column) {
          return Eigen::Map<const Some>(of.S.data() + column * of.S.rows() + begin, count);
        };
        Some terms = Some::Zero(count);
        for (auto x = first; x != end; ++x)
          terms += static_cast<Scalar>(x->value) * (some(H, x->row) * some(S, x->column));
        sum += static_cast<double>(terms.sum());
      });
      flows[first->plane] += factor * sum;
    }
  }

 private:
  static Index count(const MultiIndex<>& alpha, Index c) { return std::count(alpha.begin(), alpha.end(), c); }

  void set_entries(Index d, int P, const Planes& planes) {
    entries_.clear();
    if (planes.count == 0) return;  // positions turn everything, and nothing flows
    const MultiIndices indices(d, P);
    Index row = 0;
    for (const auto& alpha : indices) {
      for (int l = 0; l < P; ++l) {
        const Index lo = alpha[l];
        if (lo >= 2 * planes.count || (l > 0 && alpha[l - 1] == lo))
          continue;  // a channel that does not turn, or again
        const bool is_first = planes.pairing == Pairing::interleaved ? lo % 2 == 0 : lo < planes.count;
        const Index u = planes.pairing == Pairing::interleaved ? lo / 2 : lo % planes.count,
                    up = is_first ? planes.second(u) : planes.first(u);
        auto beta = alpha;
        beta[l] = up;
        const double size = std::sqrt(static_cast<double>(count(alpha, lo) * (count(alpha, up) + 1)));
        entries_.push_back({u, row, indices.rank(sorted(beta)), is_first ? -size : size});
      }
      ++row;
    }
    std::ranges::sort(entries_, {}, [](const Entry& x) { return std::tuple(x.plane, x.row, x.column); });
  }

  struct Entry {
    Index plane, row, column;
    double value;
  };
  std::vector<Entry> entries_;
  Index d_ = -1, count_ = 0;
  int P_ = 0;
  Pairing pairing_ = Pairing::interleaved;
};

// ---- A state as the past of a segment on the way back, and its adjoint behind it

/// H = ∂loss/∂[S; Z], 2^M times its numbers as those of a state, and what a turn of all coordinates does to the loss.
template <class Scalar>
struct Adjoint {
  StateSums<Scalar> sums;
  Eigen::VectorXd gauge = {};
  Eigen::VectorXd frame = {};  ///< dμ
  bool has_gauge = false;      ///< or the gauge is yet to be made of dμ
};

/// What the rows of a segment have read of the state before it, brought back through φ: Sᵀ dŷ_i, Z, φ(q_i)·Sᵀ dŷ_i and
/// φ(q_i)·Z. It may be saved until the gradient behind them is known.
template <class Scalar>
struct StateReads {
  Matrix<Scalar> of_rows;  ///< rows × 2 n, or n where rows are sums
  Eigen::VectorXd products, sums, noise;

  [[nodiscard]] bool empty() const { return products.size() == 0; }
};

template <class Scalar>
struct StateBackwardBuffers {
  PhiVjpBuffers<Scalar> phi;
  FoldBuffers<Scalar> fold;
  LiftedTurns turns;
  StateReads<Scalar> reads;
  Panel<Scalar> rows_down, values_down;  ///< n × e, of dŷ and v
  Panel<Scalar> G, last;                 ///< of the rows, as H takes them
  Panel<Scalar> d_keys, d_keys_of_Z, d_values, mixed;
  Panel<Scalar> moved_keys, moved_queries;  ///< in the coordinates of time 0 of H
  Panel<double> monomials, exponents;
  Eigen::VectorXd log_channels;  ///< Σ log a from the beginning of the segment to time 0 of H
};

/// With [S; Z] before a segment and H behind it, b its decay and A what mixes or scales,
///
///     dφ(q̃_i) = b [S; Z]ᵀ g_i        dφ(k̂_j) = b Hᵀ [v_j; 1],   dv_j = b H φ(k̂_j)
///     H  ←  b H Aᵀ + Σ_i b g_i φ(q̃_i)ᵀ
///
/// and ⟨H, b [S; Z] A⟩ flows through it. Keys read H before the segment's rows are in it. Decays that are too slow for
/// the digits of H wait, as those of a state do: time 0 of H lies behind the segment then. Four products of D (e + 1) a
/// token.
template <class Scalar, FeatureMap F>
class StateBackward {
  static constexpr int P = degree_of<F>;
  static constexpr bool is_embedded = F::score == Score::embedded;
  using Segments = SegmentBackward<Scalar, F>;

 public:
  StateBackward(const F& feature, StateBackwardBuffers<Scalar>& buffers, Adjoint<Scalar>& adjoint)
      : m_(buffers), feature_(feature), H_(adjoint.sums), gauge_(adjoint.gauge) {}

  /// Memory for segments of n tokens.
  void reserve(Segments& s, Index n) {
    const Index d = s.segment.vector_rows(), e = s.call.V.rows();
    m_.phi.template reserve<F>(d, 2 * n, n);
    m_.fold.reserve(feature_, d, s.call.K.rows(), H_, 2 * n, s.action() == KeyAction::scale);
    m_.fold.channels(s.call.K.rows(), 2);
    for (auto* panel : {&m_.rows_down, &m_.values_down, &m_.G, &m_.d_values}) (*panel)(e, n);
    for (auto* panel : {&m_.d_keys, &m_.d_keys_of_Z}) (*panel)(d, n);
    m_.last(n), m_.exponents(n), m_.monomials(s.action() == KeyAction::scale ? H_.Z.size() : 0);
    if (s.action() == KeyAction::scale) m_.moved_keys(d, n), m_.moved_queries(d, n);
    if (s.action() == KeyAction::mix) m_.mixed(s.call.K.rows(), e + 1);
  }
  /// Goes on with the state before the loaded segment. `reads` is what its rows have read, if it is saved; without
  /// `goes_on` nobody asks for H before the segment.
  void begin(const Segments& s, StateSums<Scalar>& S, StateReads<Scalar>* reads, bool goes_on) {
    S_ = &S, reads_ = reads == nullptr ? &m_.reads : reads, is_saved_ = reads != nullptr && !reads->empty();
    goes_on_ = goes_on;
    if (s.segment.resets()) S.clear();
    m_.log_channels.setZero(s.call.K.rows());
    if (s.action() == KeyAction::scale) s.call.transition.log_channel_totals(s.segment.range(), m_.log_channels);
    m_.log_channels += H_.log_channels;
  }

  /// Sums of rows: what they read of the state and of their own keys.
  void read(Segments& s) {
    if (!s.segment.has_queries()) return;
    const Index n = s.size();
    double level = log2_zero;
    if (!S_->empty()) {
      if (!is_saved_) read_state(s);
      if (S_->A > 0) level = std::ceil(std::log2(S_->A)) + S_->exponent();
    }
    if (!s.rows.divides()) return;
    set_levels(s, level);
    add_own(s);
    if (S_->empty()) return;
    for (Index i = 0; i < n; ++i) {
      const double weight = nearest_power_of_two<double>(S_->exponent() - s.rows.levels()[i]);
      s.rows.add(i, {weight * reads_->sums[i], weight * reads_->products[i]});
      s.rows.noise()[i] = weight * reads_->noise[i];
    }
  }

  void go_back(Segments& s) {
    give_reads(s);
    if (s.action() == KeyAction::mix) keep_mixed(s);
    set_through(s);
    pass_adjoint(s, s.segment.keys().size);
  }
  /// Only has the rows go into H.
  void take_rows(Segments& s) { pass_adjoint(s, 0); }
  /// No decay of channels waits.
  void settle_channels() {
    if (H_.channels_decay()) fold<Scalar>(feature_, m_.fold, H_, {});
  }

 private:
  // φ(x)·z = x·Dφ(x)ᵀz / P, by Euler.
  static double product_with_phi(ColumnView<const Scalar> x, ColumnView<const Scalar> brought_back) {
    return static_cast<double>(dot_product(x.data(), brought_back.data(), x.size())) / P;
  }
  void read_state(Segments& s) {
    const Index n = s.size(), d = s.segment.vector_rows();
    const MatrixView<Scalar> queries = s.segment.queries().vectors;
    resize_safely(reads_->of_rows, d, s.rows.divides() ? 2 * n : n);
    for (auto* x : {&reads_->products, &reads_->sums, &reads_->noise}) resize_safely(*x, n);
    MatrixView<Scalar> of_rows(reads_->of_rows);
    auto dY = m_.rows_down(n, s.call.V.rows());
    set_copy(dY, s.rows.dY().transpose());
    for_phi_gradients(feature_, m_.phi, queries, of_rows.leftCols(n), [&](Index first, MatrixView<Scalar> gradients) {
      set_product(gradients, dY, MatrixView<Scalar>(S_->S).middleCols(first, gradients.cols()));
    });
    if (s.rows.divides())
      set_phi_gradients<F, Scalar>(feature_, m_.phi, queries, ColumnView<const Scalar>(S_->Z), of_rows.rightCols(n));
    for (Index i = 0; i < n; ++i) {
      reads_->products[i] = product_with_phi(queries.col(i), of_rows.col(i));
      reads_->sums[i] = s.rows.divides() ? product_with_phi(queries.col(i), of_rows.col(n + i)) : 0;
      reads_->noise[i] = s.rows.divides() ? noise_of(queries.col(i)) : 0;
    }
  }
  // The largest part of a denominator that can be rounding, see `StatePast`.
  double noise_of(ColumnView<const Scalar> q) const {
    if (entries_are_nonnegative(feature_)) return 0;
    const double noise = power<P>(std::sqrt(static_cast<double>(squared_norm(q.data(), q.size())))) * S_->A;
    const auto& weights = S_->channel_weights;
    double sum = 0;
    for (Index c = 0; c < weights.size(); ++c)
      sum += std::abs(static_cast<double>(q[c])) * std::pow(weights[c], 1. / P);
    return weights.size() > 0 ? std::min(noise, power<P>(sum)) : noise;
  }
  // The level of a row is that of the heaviest key that it sees, or of the state.
  void set_levels(Segments& s, double of_state) {
    for (Index i = 0; i < s.size(); ++i) {
      s.rows.levels()[i] = std::max(of_state, s.buffers.levels(s.size())[i]);
    }
  }
  // Rows whose levels are near each other count from the last one's.
  void add_own(Segments& s) {
    constexpr double near = KeyScales<Scalar>::most_apart;
    const WeightedKeys<Scalar> keys = s.segment.keys();
    auto levels = s.rows.levels();
    auto weights = m_.last(std::max(keys.size, s.size()));
    const MatrixView<Scalar> products = s.buffers.products(s.size(), s.size());
    double level = log2_zero;
    for (Index end = s.size(); end-- > 0;) {
      if (levels[end] == log2_zero) continue;
      if (level == log2_zero || level - levels[end] > near) {
        level = levels[end];
        set_weights_at(weights.data(), keys.exponents, keys.fractions, std::min(end + 1, keys.size), -level, Scalar(1),
                       negligible_weight<Scalar, F> - near);
      }
      levels[end] = level;
      s.rows.add(end, totals_of_scores<P>(s.segment.logits().col(end).data(), weights.data(),
                                          products.topRows(keys.size).col(end).data(), std::min(end + 1, keys.size)));
    }
  }

  // What rows get from the state.
  void give_reads(Segments& s) {
    if (S_->empty() || !s.segment.has_queries()) return;
    const Index n = s.size();
    const bool divides = s.rows.divides();
    s.N = S_->exponent();
    auto to = s.buffers.from_before(s.segment.vector_rows(), n);
    for (Index i = 0; i < n; ++i) {
      if (!s.rows.has_gradient(i)) {
        to.col(i).setZero();
        continue;
      }
      const auto of_dy = static_cast<double>(s.rows.factor(i)), of_ones = static_cast<double>(s.rows.last(i));
      set_scaled(to.col(i).data(), reads_->of_rows.col(i).data(), s.rows.factor(i), to.rows());
      if (divides) to.col(i) += s.rows.last(i) * reads_->of_rows.col(n + i);
      s.buffers.of_rows(n)[i] = times_power_of_two(
          of_dy * reads_->products[i] + (divides ? of_ones * reads_->sums[i] : 0), s.rows.exponent(i) + s.N);
    }
  }
  // The states on both sides of what mixes channels.
  void keep_mixed(Segments& s) {
    s.has_mixed = !S_->empty() && !H_.empty();
    if (!s.has_mixed) return;
    const Index e = s.call.V.rows(), d = s.call.K.rows();
    const Weight gate(decay_behind(s));
    auto state = s.buffers.state(e + 1, d), adjoint = s.buffers.adjoint(e + 1, d);
    state << S_->S, S_->Z.transpose();
    adjoint << H_.S, H_.Z.transpose();
    s.mixed_exponent = S_->exponent() + H_.exponent() + gate.exponent;
    state *= static_cast<Scalar>(gate.fraction);
  }
  // ⟨H, b S A⟩, and the same by channel or plane.
  void set_through(Segments& s) {
    const bool passes = !S_->empty() && !H_.empty() && slowest() != log2_zero;
    LogGate total;
    if (passes) total = decay_behind(s), total.add(slowest());
    const Weight gate(total);
    const double exponent = passes ? S_->exponent() + H_.exponent() + gate.exponent : 0;
    const auto scaled = [&](double x) { return times_power_of_two(x * gate.fraction, exponent); };
    if (s.action() == KeyAction::turn && !s.is_absolute()) {
      auto through = s.through();
      if constexpr (!is_embedded)
        if (passes) {
          m_.turns.set(s.call.K.rows(), P, s.call.vjp.planes());
          m_.turns.add(H_, *S_, -1, through.data());
          for (double& x : through) x = scaled(x);
        }
      through += gauge_;
    }
    if (!passes || s.call.options.mask.is_full) return;
    if (s.action() == KeyAction::scale && !is_embedded) return set_through_channels(s, scaled);
    if (s.action() == KeyAction::mix) {
      auto moved = m_.mixed(s.call.V.rows() + 1, s.call.K.rows());
      const auto state = s.buffers.state(moved.rows(), moved.cols()),
                 adjoint = s.buffers.adjoint(moved.rows(), moved.cols());
      moved = state;  // with the gate's fraction
      s.call.transition.apply_to_state(s.segment.range(), Batch<Scalar>(moved));
      s.gate_through =
          times_power_of_two(static_cast<double>(dot_product(moved.data(), adjoint.data(), moved.size())), exponent);
    } else {
      s.gate_through = scaled(inner_product(H_, *S_));
    }
  }
  template <class Scaled>
  void set_through_channels(Segments& s, const Scaled& scaled) {
    const Index D = H_.Z.size();
    const DecayFactors decay = DecayFactors::of(feature_, m_.fold, 1, m_.log_channels);
    auto monomials = m_.monomials(D);
    for (Index a = 0; a < D; ++a) {
      const double factor = decay.of_entries == nullptr ? decay.factor : decay.of_entries[a];
      s.gate_through += monomials[a] = scaled(factor * column_product(H_, a, *S_, a));
    }
    if constexpr (!is_embedded) add_channel_counts(s.call.K.rows(), P, monomials, s.through());
  }
  [[nodiscard]] double slowest() const { return P * largest_gate(m_.log_channels); }
  // The scalar decay from the beginning of a segment to time 0 of H.
  [[nodiscard]] LogGate decay_behind(const Segments& s) const {
    LogGate total = H_.elapsed;
    total.add(s.segment.total());
    return total;
  }
  // Vectors in the coordinates of time 0 of H, or of the segment that ends where H has decayed by `log_channels`.
  MatrixView<Scalar> moved(MatrixView<Scalar> vectors, Panel<Scalar>& memory, const Eigen::VectorXd& log_channels,
                           double sign) {
    if (vectors.cols() == 0 || log_channels.isZero(0)) return vectors;
    auto copy = memory(vectors.rows(), vectors.cols());
    copy = vectors;
    multiply_channels<Scalar>(m_.fold, log_channels, sign, copy);
    return copy;
  }

  // What H gives to the first keys, and H before the segment.
  void pass_adjoint(Segments& s, Index count) {
    const Index n = s.size(), e = s.call.V.rows(), d = s.segment.vector_rows();
    const WeightedKeys<Scalar> own = s.segment.keys();
    const bool was_empty = H_.empty(), ends = s.segment.resets(),
               waits = F::score == Score::power && !was_empty && channels_wait<P>(m_.log_channels);
    const MatrixView<Scalar> given = MatrixView<Scalar>(const_cast<Scalar*>(own.vectors.data), d, count),
                             keys = moved(given, m_.moved_keys, H_.log_channels, 1),
                             rows = s.segment.queries().vectors.leftCols(goes_on_ && s.segment.has_queries() ? n : 0),
                             queries = waits ? moved(rows, m_.moved_queries, m_.log_channels, -1) : rows;
    LogGate rest;
    if (!was_empty && !ends) rest = decay_behind(s);
    const double passed = rest.take_power_of_two(), slow = waits ? 0 : slowest(),
                 kept = was_empty || ends ? log2_zero : H_.L + passed + slow * std::numbers::log2e,
                 level = ends ? log2_zero : std::max(kept, level_of_rows(s) - rest.log2()), M = std::ceil(level);
    const Weight growth(LogGate{-rest.high, -rest.low});
    auto values = m_.d_values(e, count), V = m_.values_down(count, e), G = m_.G(e, queries.cols());
    values.setZero();
    set_copy(V, own.values.leftCols(count).transpose());
    auto last = m_.last(std::max(queries.cols(), n)).head(queries.cols());
    for (Index i = 0; i < queries.cols(); ++i) {
      const double exponent = s.rows.exponent_outside(i);
      const auto weight =
          exponent == log2_zero || level == log2_zero
              ? Scalar(0)
              : static_cast<Scalar>(growth.fraction) * nearest_power_of_two<Scalar>(growth.exponent + exponent - M);
      s.rows.set_gradient(G.col(i), i, weight);
      last[i] = weight == Scalar(0) ? Scalar(0) : weight * s.rows.last(i);
    }
    const double factor = kept == log2_zero ? 0 : Weight(LogGate{slow}).number(H_.exponent() + passed - M);
    const DecayFactors decay =
        waits ? DecayFactors{factor, nullptr} : DecayFactors::of(feature_, m_.fold, factor, m_.log_channels);
    auto d_keys = m_.d_keys(d, count), d_keys_of_Z = m_.d_keys_of_Z(d, count);
    constexpr bool is_apart = has_form<F, Scalar>;  // what Z gives to keys
    if (is_apart && !was_empty)
      set_phi_gradients<F, Scalar>(feature_, m_.phi, keys, ColumnView<const Scalar>(H_.Z), d_keys_of_Z);
    for_phi_panels_vjp<F, Scalar>(
        feature_, m_.phi, keys, queries, d_keys,
        [&](Index first, Strided<const Scalar*> of_keys, Strided<const Scalar*> of_rows, MatrixView<Scalar> gradients) {
          const Index width = gradients.cols();
          Scalar *const S = H_.S.data() + first * e, *const Z = H_.Z.data() + first;
          for (Index c = 0; c < width && (was_empty || !is_apart); ++c) gradients.col(c).setConstant(Z[c]);
          if (!was_empty) {
            product<Scalar>(!is_apart, count, width, e, {V.data(), 1, count}, {S, 1, e},
                            {gradients.data(), 1, gradients.outerStride()});
            product<Scalar>(true, e, count, width, {S, 1, e}, of_keys.transposed(), {values.data(), 1, e});
          }
          if (s.action() == KeyAction::mix) pull_adjoint(s);
          decay.multiply(S, first, width, e), decay.multiply(Z, first, width, 1);
          product<Scalar>(true, e, width, queries.cols(), {G.data(), 1, e}, of_rows, {S, 1, e});
          product<Scalar>(true, width, 1, queries.cols(), of_rows.transposed(), {last.data(), 1, queries.cols()},
                          {Z, 1, width});
        });
    if (is_apart && !was_empty) d_keys += d_keys_of_Z;
    if (keys.data() != given.data()) multiply_channels<Scalar>(m_.fold, H_.log_channels, 1, d_keys);
    if (!was_empty && count > 0) give_keys(s, given, d_keys, values);
    H_.L = level, H_.elapsed = rest;
    if (waits)
      H_.log_channels = m_.log_channels;
    else
      H_.log_channels.setZero();
    if (level == log2_zero) H_.clear();
  }
  // H ← H (A_a … A_b)ᵀ.
  void pull_adjoint(Segments& s) {
    auto transposed = m_.mixed(s.call.K.rows(), H_.S.rows());
    set_copy(transposed, H_.S.transpose());
    s.call.transition.apply_to_queries(s.segment.range(), Batch<Scalar>(transposed));
    set_copy(H_.S, transposed.transpose());
    s.call.transition.apply_to_queries(s.segment.range(), Batch<Scalar>(H_.Z));
  }
  // That of what the rows of a segment add to H.
  [[nodiscard]] double level_of_rows(Segments& s) {
    double level = log2_zero;
    for (Index i = 0; i < s.size(); ++i) level = std::max(level, s.rows.exponent_outside(i));
    return level;
  }
  void give_keys(Segments& s, MatrixView<Scalar> keys, MatrixView<Scalar> d_keys, MatrixView<Scalar> values) {
    const Index n = s.size(), count = keys.cols();
    const Weight gate(decay_behind(s));
    s.U = H_.exponent() + gate.exponent + s.scales.M;
    auto to = s.buffers.from_behind(keys.rows(), n), to_values = s.buffers.from_behind_values(values.rows(), n);
    for (Index j = 0; j < count; ++j) {
      const double exact = static_cast<double>(s.scales.weights[j]) * gate.fraction;
      const auto weight = static_cast<Scalar>(exact);
      set_scaled(to.col(j).data(), d_keys.col(j).data(), weight, keys.rows());
      set_scaled(to_values.col(j).data(), values.col(j).data(), weight, values.rows());
      s.buffers.of_keys(n)[j] =
          times_power_of_two(exact * product_with_phi(keys.col(j), d_keys.col(j)), s.U + s.scales.shifts[j]);
    }
  }

  StateBackwardBuffers<Scalar>& m_;
  const F& feature_;
  StateSums<Scalar>& H_;
  Eigen::VectorXd& gauge_;
  StateSums<Scalar>* S_ = nullptr;
  StateReads<Scalar>* reads_ = nullptr;
  bool is_saved_ = false, goes_on_ = true;
};

}  // namespace SYMPOW_NAMESPACE::detail
