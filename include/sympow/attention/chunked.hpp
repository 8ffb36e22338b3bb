// The chunked form: attention inside chunks, the state between them, O(T).
#pragma once

#include <algorithm>
#include <cmath>

#include <sympow/attention/state_form.hpp>
#include <sympow/core/integer_power.hpp>

namespace sympow {
namespace detail {

/// Chunks of this many tokens unless the call says otherwise: from 64 on the panels of a chunk keep the products busy.
inline constexpr Index default_chunk = 64;

template <class Scalar, FiniteFeatureMap F>
void run_chunk(const F& feature, StateCall<Scalar, F>& call, Segment chunk) {
  StateAccess<State<Scalar, F>>& state = call.state;
  Workspace<Scalar>& work = call.workspace;
  const auto values = call.V.middleCols(chunk.begin, chunk.size);

  // Queries to the chunk's start, keys to its end, logits between.
  work.queries = call.Q.middleCols(chunk.begin, chunk.size) * Scalar(call.options.scale);
  work.keys = call.K.middleCols(chunk.begin, chunk.size);
  work.logits.resize(chunk.size, chunk.size);
  call.transition.transport(state.frame, chunk, work.queries, work.keys, work.logits);
  work.query_features.resize(state.S.cols(), chunk.size);
  work.key_features.resize(state.S.cols(), chunk.size);
  feature.embed(work.queries, work.query_features);
  feature.embed(work.keys, work.key_features);

  // From the state: y_i = b(start, i) S φ(q̃_i).
  work.values.noalias() = state.S * work.query_features;
  work.row.noalias() = state.Z.transpose() * work.query_features;
  work.gates.resize(chunk.size);
  double log_total = 0;
  for (Index i = 0; i < chunk.size; ++i) work.gates[i] = log_total += call.transition.log_decay(chunk.begin + i);
  work.factors = work.gates.array().exp().template cast<Scalar>();
  work.values.array().rowwise() *= work.factors.transpose().array();
  work.row.array() *= work.factors.transpose().array();

  // From inside the chunk: weights κ(s_ij) b_ij for j ≤ i; b_ij = γ_i b_{i-1,j} from column to column.
  if constexpr (F::score == Score::embedded)
    work.logits.noalias() = work.key_features.transpose() * work.query_features;
  else
    work.logits = work.logits.unaryExpr(RaiseTo{F::degree});
  for (Index i = 0; i < chunk.size; ++i) {
    work.gates.head(i) *= std::exp(call.transition.log_decay(chunk.begin + i));
    work.gates[i] = 1;
    work.logits.col(i).head(i + 1).array() *= work.gates.head(i + 1).array().template cast<Scalar>();
    work.logits.col(i).tail(chunk.size - i - 1).setZero();
  }
  work.values.noalias() += values * work.logits;
  work.row += work.logits.colwise().sum();
  for (Index i = 0; i < chunk.size; ++i) write_row(call.rows, work.values.col(i), work.row[i], call.Y.col(chunk.begin + i));

  // Into the state: S ← S A_total + Σ_j b(j, end) v_j φ(k̂_j)ᵀ; work.gates holds b(j, end) after the last column.
  state.decay(std::exp(log_total));
  if (call.transition.channel_totals(chunk, work.channels)) state.scale_channels(work.channels);
  work.factors = work.gates.template cast<Scalar>();
  work.values = values.array().rowwise() * work.factors.transpose().array();
  state.S.noalias() += work.values * work.key_features.transpose();
  state.Z.noalias() += work.key_features * work.factors;
  state.advance(chunk.size, log_total);
}

template <class Scalar, FiniteFeatureMap F>
void run_chunked(const F& feature, StateCall<Scalar, F> call) {
  const Index size = call.options.chunk > 0 ? call.options.chunk : default_chunk;
  for (Index begin = 0; begin < call.Q.cols(); begin += size)
    run_chunk<Scalar, F>(feature, call, {begin, std::min(size, call.Q.cols() - begin)});
}

}  // namespace detail

/// The chunked form, writing the outputs of T tokens and leaving the state ready for the next.
///
///     y_i = (b(start, i) S φ(q̃_i) + Σ_{j ≤ i in the chunk} s_ij v_j)  (/ the same with v = 1)
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column; the state carries what came before; `Options::chunk` sets the chunk c.
/// Equal to `attention` and `recurrent` by the row rule, whatever the chunk. Y may not overlap the inputs. Cost: T (4 D (e + 1) +
/// c (d + e)) operations and two embeddings a token; memory 2 c D. Throws `ShapeMismatch`, `FrameMismatch`, `InvalidArgument`
/// before anything is touched. Source: Symmetric Power Transformers, §1; Conformal Transformations, §3.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
void chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
             const Eigen::MatrixBase<DV>& V, State<typename DQ::Scalar, F>& state, Batch<typename DQ::Scalar> Y,
             Workspace<typename DQ::Scalar>& workspace, const Options& options = {}) {
  detail::run_state_form<Normalization, F>(transition, Q, K, V, state, Y, workspace, options, [&](const auto& call) {
    detail::run_chunked<typename DQ::Scalar, F>(feature, call);
  });
}

/// The same, returning Y.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                                  const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                                  State<typename DQ::Scalar, F>& state, const Options& options = {}) {
  return detail::returned(Q, V, [&](auto Y, auto& workspace) {
    chunked<Normalization>(feature, transition, Q, K, V, state, Y, workspace, options);
  });
}

/// The same from an empty state, which is dropped.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                                  const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                                  const Options& options = {}) {
  return detail::from_empty_state(feature, Q, V, [&](auto& state) {
    return chunked<Normalization>(feature, transition, Q, K, V, state, options);
  });
}

}  // namespace sympow
