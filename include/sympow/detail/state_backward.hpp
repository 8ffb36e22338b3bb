// A state as the past of a segment on the way back, its adjoint behind it, and what flows between the two.
#pragma once

#include <algorithm>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/detail/segment_backward.hpp>
#include <sympow/detail/state_fold.hpp>
#include <sympow/feature/phi_panels.hpp>
#include <sympow/simd/blocks.hpp>
#include <sympow/simd/product.hpp>
#include <sympow/tensor/lifted_turns.hpp>
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
/// flows_u ← ⟨[H; Z_H], [S; Z] L_uᵀ⟩ for every plane u, when H has decayed by `decay`.
template <class Scalar>
void set_flows_of_turns(LiftedTurns& turns, int P, const Planes& planes, const StateSums<Scalar>& H,
                        const StateSums<Scalar>& S, const Weight& decay, ColumnView<double> flows) {
  turns.set(H.log_channels.size(), P, planes.count, planes.pairing);
  flows.setZero();
  for (const auto& x : turns.entries()) flows[x.plane] += x.value * column_product(H, x.row, S, x.column);
  for (double& x : flows) x = times_power_of_two(x * decay.fraction, S.exponent() + H.exponent() + decay.exponent);
}

// ---- A state as the past of a segment on the way back, and its adjoint behind it

/// H = ∂loss/∂[S; Z], 2^M times its numbers as those of a state, and what a turn of all coordinates does to the loss.
template <class Scalar>
struct Adjoint {
  StateSums<Scalar> sums;
  Eigen::VectorXd gauge = {};
  Eigen::VectorXd frame = {};  ///< dμ
  bool has_gauge = false;      ///< or the gauge is yet to be made of dμ
};

/// What the rows of a segment have read of the state before it, brought back through φ: Sᵀ dŷ_i and, where rows are
/// means, Z. It may be saved until the gradient behind them is known.
template <class Scalar>
using StateReads = Matrix<Scalar>;

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
  Eigen::VectorXd log_channels;             ///< Σ log a from the beginning of the segment to time 0 of H
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
  static constexpr bool is_embedded = F::score == Score::embedded;
  using Segments = SegmentBackward<Scalar, F>;

 public:
  StateBackward(const F& feature, StateBackwardBuffers<Scalar>& buffers, Adjoint<Scalar>& adjoint)
      : m_(buffers), feature_(feature), P_(degree_in(feature)), H_(adjoint.sums), gauge_(adjoint.gauge) {}

  /// Goes on with the state before the loaded segment. `reads` is what its rows have read, if it is saved; without
  /// `goes_on` nobody asks for H before the segment.
  void begin(const Segments& s, StateSums<Scalar>& S, StateReads<Scalar>* reads, bool goes_on) {
    S_ = &S, reads_ = reads == nullptr ? &m_.reads : reads, is_saved_ = reads != nullptr && reads->size() > 0;
    goes_on_ = goes_on;
    if (s.segment.resets()) S.clear();
    resize_safely(m_.log_channels, s.call.K.rows());
    m_.log_channels.setZero();
    if (s.action() == KeyAction::scale) s.call.transition->log_channel_totals(s.segment.range(), m_.log_channels);
    m_.log_channels += H_.log_channels;
  }

  /// Sums of rows: what they read of the state and of their own keys.
  void read(Segments& s) {
    if (!s.segment.has_queries()) return;
    const bool is_empty = S_->empty(), divides = s.rows.divides();
    if (!is_empty && !is_saved_) read_state(s);
    if (!divides) return;
    add_own(s, !is_empty && S_->A > 0 ? std::ceil(std::log2(S_->A)) + S_->exponent() : log2_zero);
    const auto roots = roots_of_weights(P_, m_.fold, *S_);
    for (Index i = 0; i < s.size() && !is_empty; ++i) {
      const double weight = nearest_power_of_two<double>(S_->exponent() - s.rows[i].level);
      s.rows[i].add(weight * read_product(s, i, s.size() + i), weight * read_product(s, i, i));
      s.rows[i].noise = weight * noise_of<Scalar>(feature_, *S_, s.segment.queries().vectors.col(i), roots);
    }
  }

  void go_back(Segments& s) {
    if (!S_->empty()) s.N = S_->exponent();
    if (!H_.empty()) s.U = H_.exponent() + Weight(decay_behind(s)).exponent + s.scales.M;
    give_reads(s);
    set_through(s);
    pass_adjoint(s, s.segment.keys().size);
  }
  /// Only has the rows go into H.
  void take_rows(Segments& s) {
    s.find_rows(*this);
    pass_adjoint(s, 0);
  }

 private:
  // φ(x)·z = x·Dφ(x)ᵀz / P, by Euler.
  double product_with_phi(ColumnView<const Scalar> x, ColumnView<const Scalar> brought_back) const {
    return static_cast<double>(dot_product(x.data(), brought_back.data(), x.size())) / P_;
  }
  void read_state(Segments& s) {
    const Index n = s.size(), d = s.segment.vector_rows();
    const MatrixView<Scalar> queries = s.segment.queries().vectors;
    resize_safely(*reads_, d, s.rows.divides() ? 2 * n : n);
    MatrixView<Scalar> of_rows(*reads_);
    auto dY = m_.rows_down(n, s.call.V.rows());
    set_copy(dY, s.rows.dY().transpose());
    for_phi_gradients<F, Scalar>(feature_, m_.phi, queries, of_rows.leftCols(n),
                                 [&](Index first, MatrixView<Scalar> gradients) {
                                   const auto S = MatrixView<Scalar>(S_->S).middleCols(first, gradients.cols());
                                   set_product(gradients, dY, S);
                                 });
    if (s.rows.divides())
      set_phi_gradients<F, Scalar>(feature_, m_.phi, queries, ColumnView<const Scalar>(S_->Z), of_rows.rightCols(n));
  }
  // φ(q_i)·Sᵀ dŷ_i from column i of what was read, φ(q_i)·Z from column n + i.
  double read_product(Segments& s, Index i, Index column) {
    return product_with_phi(s.segment.queries().vectors.col(i), MatrixView<Scalar>(*reads_).col(column));
  }
  // Own keys. The level of a row is that of the heaviest that it sees, or of the state; rows whose levels are near each
  // other count from the last one's.
  void add_own(Segments& s, double of_state) {
    constexpr double near = KeyScales<Scalar>::most_apart;
    const WeightedKeys<Scalar> keys = s.segment.keys();
    auto weights = m_.last(std::max(keys.size, s.size()));
    const MatrixView<Scalar> products = s.buffers.products(s.size(), s.size()).topRows(keys.size);
    double level = log2_zero;
    for (Index end = s.size(); end-- > 0;) {
      RowGradient<Scalar>& row = s.rows[end];
      row.level = std::max(of_state, s.buffers.levels(s.size())[end]);
      if (row.level == log2_zero) continue;
      const Index seen = std::min(end + 1, keys.size);
      if (level == log2_zero || level - row.level > near) {
        level = row.level;
        set_weights_at(weights.data(), keys.exponents, keys.fractions, seen, -level, Scalar(1),
                       negligible_weight<Scalar>(feature_) - near);
      }
      row.level = level;
      const Scalar *const logits = s.segment.logits().col(end).data(), *const e = products.col(end).data();
      with_power<F>(P_, [&](const auto& power) {
        for_lanes<Scalar>(seen, [&](Index j, auto tag) {
          using X = typename decltype(tag)::type;
          const X scores = power(load_as<X>(logits + j)) * load_as<X>(weights.data() + j);
          row.add(static_cast<double>(sum_of(scores)), static_cast<double>(sum_of(scores * load_as<X>(e + j))));
        });
      });
    }
  }

  // What rows get from the state.
  void give_reads(Segments& s) {
    if (S_->empty() || !s.segment.has_queries()) return;
    const Index n = s.size();
    const bool divides = s.rows.divides();
    auto to = s.buffers.from_before(s.segment.vector_rows(), n);
    for (Index i = 0; i < n; ++i) {
      if (!s.rows[i].has_gradient()) {
        to.col(i).setZero();
        continue;
      }
      const auto of_dy = static_cast<double>(s.rows[i].factor), of_ones = static_cast<double>(s.rows[i].last);
      set_scaled(to.col(i).data(), reads_->col(i).data(), s.rows[i].factor, to.rows());
      if (divides) to.col(i) += s.rows[i].last * reads_->col(n + i);
      s.buffers.of_rows(n)[i] =
          times_power_of_two(of_dy * read_product(s, i, i) + (divides ? of_ones * read_product(s, i, n + i) : 0),
                             s.rows[i].exponent + s.N);
    }
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
      if (passes && !is_embedded) set_flows_of_turns(m_.turns, P_, s.call.vjp->planes(), H_, *S_, gate, through);
      through = gauge_ - through;
    }
    if (!passes || s.call.options.mask.is_full) return;
    if constexpr (!is_embedded)
      if (s.action() == KeyAction::scale) {
        const DecayFactors decay = DecayFactors::of(feature_, m_.fold, 1, m_.log_channels);
        Index a = 0;
        for (const auto& alpha : MultiIndices(s.call.K.rows(), P_)) {
          const double factor = decay.of_entries == nullptr ? decay.factor : decay.of_entries[a],
                       x = scaled(factor * column_product(H_, a, *S_, a));
          s.gate_through += x;
          for (const Index c : alpha) s.through()[c] += x;  // a channel as often as the monomial has it
          ++a;
        }
        return;
      }
    if (s.action() == KeyAction::mix) {  // the segment takes the states on both sides
      s.has_mixed = true;
      const Index e = s.call.V.rows(), d = s.call.K.rows();
      auto state = s.buffers.state(e + 1, d), adjoint = s.buffers.adjoint(e + 1, d), moved = m_.mixed(e + 1, d);
      state << S_->S, S_->Z.transpose();
      adjoint << H_.S, H_.Z.transpose();
      state *= static_cast<Scalar>(gate.fraction);
      moved = state;
      s.call.transition->apply_to_state(s.segment.range(), Batch<Scalar>(moved));
      s.gate_through =
          times_power_of_two(static_cast<double>(dot_product(moved.data(), adjoint.data(), moved.size())), exponent);
    } else {
      s.gate_through = scaled(static_cast<double>(dot_product(H_.S.data(), S_->S.data(), S_->S.size())) +
                              static_cast<double>(dot_product(H_.Z.data(), S_->Z.data(), S_->Z.size())));
    }
  }
  [[nodiscard]] double slowest() const { return P_ * largest_gate(m_.log_channels); }
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
               waits = F::score == Score::power && !was_empty && channels_wait(P_, m_.log_channels);
    const MatrixView<Scalar> given = MatrixView<Scalar>(const_cast<Scalar*>(own.vectors.data), d, count),
                             keys = moved(given, m_.moved_keys, H_.log_channels, 1),
                             rows = s.segment.queries().vectors.leftCols(goes_on_ && s.segment.has_queries() ? n : 0),
                             queries = waits ? moved(rows, m_.moved_queries, m_.log_channels, -1) : rows;
    LogGate rest;
    if (!was_empty && !ends) rest = decay_behind(s);
    // Of what row i adds to H; a query of length 0 adds nothing, whatever its row is.
    const auto exponent_of_row = [&](Index i) {
      return s.segment.queries().lengths[i] == log2_zero ? log2_zero : s.rows[i].exponent;
    };
    double largest = log2_zero;
    for (Index i = 0; i < n; ++i) largest = std::max(largest, exponent_of_row(i));
    const double passed = rest.take_power_of_two(), slow = waits ? 0 : slowest(),
                 kept = was_empty || ends ? log2_zero : H_.L + passed + slow * std::numbers::log2e,
                 level = ends ? log2_zero : std::max(kept, largest - rest.log2()), M = std::ceil(level);
    const Weight growth(LogGate{-rest.high, -rest.low});
    auto values = m_.d_values(e, count), V = m_.values_down(count, e), G = m_.G(e, queries.cols());
    values.setZero();
    set_copy(V, own.values.leftCols(count).transpose());
    auto last = m_.last(std::max(queries.cols(), n)).head(queries.cols());
    for (Index i = 0; i < queries.cols(); ++i) {
      const double exponent = exponent_of_row(i);
      const bool matters =
          exponent > log2_zero && level > log2_zero && exponent >= largest + negligible_weight<Scalar>(feature_);
      const auto weight =
          matters ? static_cast<Scalar>(growth.fraction) * nearest_power_of_two<Scalar>(growth.exponent + exponent - M)
                  : Scalar(0);
      s.rows.set_gradient(G.col(i), i, weight);
      last[i] = weight == Scalar(0) ? Scalar(0) : weight * s.rows[i].last;
    }
    const double factor = kept == log2_zero ? 0 : Weight(LogGate{slow}).number(H_.exponent() + passed - M);
    const DecayFactors decay =
        waits ? DecayFactors{factor, nullptr} : DecayFactors::of(feature_, m_.fold, factor, m_.log_channels);
    auto d_keys = m_.d_keys(d, count), d_keys_of_Z = m_.d_keys_of_Z(d, count);
    const bool is_apart = has_form(feature_);  // what Z gives to keys
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
    s.call.transition->apply_to_queries(s.segment.range(), Batch<Scalar>(transposed));
    set_copy(H_.S, transposed.transpose());
    s.call.transition->apply_to_queries(s.segment.range(), Batch<Scalar>(H_.Z));
  }
  void give_keys(Segments& s, MatrixView<Scalar> keys, MatrixView<Scalar> d_keys, MatrixView<Scalar> values) {
    const Index n = s.size(), count = keys.cols();
    const Weight gate(decay_behind(s));
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
  int P_;
  StateSums<Scalar>& H_;
  Eigen::VectorXd& gauge_;
  StateSums<Scalar>* S_ = nullptr;
  StateReads<Scalar>* reads_ = nullptr;
  bool is_saved_ = false, goes_on_ = true;
};

}  // namespace SYMPOW_NAMESPACE::detail
