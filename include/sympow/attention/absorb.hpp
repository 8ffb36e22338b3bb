// Tokens into a state without rows.
#pragma once

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/state_form.hpp>

namespace SYMPOW_NAMESPACE {

/// Takes tokens into a state without reading it: `chunked` without queries, at less than half its cost.
///
///     S ← S A_1 … A_T + Σ_j b_Tj v_j φ(k̃_j)ᵀ
///
/// Shapes: K: d × T, V: e × T, one token a column. Cost: T 2 D (e + 1) operations and an embedding a token. Throws as
/// `chunked` does, before anything is touched.
template <FeatureMap F, Transition A, class DK, class DV, class S, class G>
void absorb(const F& feature, const A& transition, const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
            State<S, G>& state, std::type_identity_t<OptionalRef<Workspace<S>>> workspace = {},
            const Options& options = {}) {
  if constexpr (detail::check_state_type<typename DK::Scalar, F, S, G>())
    detail::run_state_form<Unnormalized>(feature, transition, K, K, V, state, {}, workspace, options,
                                         [&](const auto& call) { detail::StateForms<S, F>::chunked(feature, call); });
}

}  // namespace SYMPOW_NAMESPACE

#ifdef SYMPOW_COMPILED_FORMS
#endif
