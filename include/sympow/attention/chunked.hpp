// The chunked form: attention inside chunks, the state between them, O(T).
#pragma once

#include <algorithm>

#include <sympow/attention/ordinary_engine.hpp>
#include <sympow/attention/state_form.hpp>

namespace sympow {
namespace detail {

/// Chunks of this many tokens unless the call says otherwise: from 64 on the panels of a chunk keep the products busy.
inline constexpr Index default_chunk = 64;

template <class Scalar, FiniteFeatureMap F>
void run_chunked(const F& feature, StateCall<Scalar, F> call) {
  OrdinaryEngine<Scalar, F> engine(feature, call);
  const Index size = call.options.chunk > 0 ? call.options.chunk : default_chunk;
  for (Index begin = 0; begin < call.Q.cols(); begin += size)
    engine.run({begin, std::min(size, call.Q.cols() - begin)});
}

}  // namespace detail

/// The chunked form, writing the outputs of T tokens and leaving the state ready for the next.
///
///     y_i = (b(start, i) S φ(q̃_i) + Σ_{j ≤ i in the chunk} s_ij v_j)  (/ the same with v = 1)
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column; the state carries what came before; `Options::chunk` sets the chunk c.
/// Equal to `attention` and `recurrent` by the row rule, whatever the chunk. Y may not overlap the inputs. Cost: T (4 D (e + 1) +
/// c (d + e)) operations and two embeddings a token; memory 2 c D. Throws `ShapeMismatch`, `FeatureMismatch`, `FrameMismatch`, `InvalidArgument`
/// before anything is touched. Source: Symmetric Power Transformers, §1; Conformal Transformations, §3.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
void chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
             const Eigen::MatrixBase<DV>& V, State<typename DQ::Scalar, F>& state, Batch<typename DQ::Scalar> Y,
             Workspace<typename DQ::Scalar>& workspace, const Options& options = {}) {
  detail::run_state_form<Normalization, F>(
      feature, transition, Q, K, V, state, Y, workspace, options,
      [&](const auto& call) { detail::run_chunked<typename DQ::Scalar, F>(feature, call); });
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
  return detail::from_empty_state(
      feature, Q, V, [&](auto& state) { return chunked<Normalization>(feature, transition, Q, K, V, state, options); });
}

}  // namespace sympow
