// How rows are normalized, and how many tokens a chunk and a call have.
#pragma once

#include <algorithm>
#include <type_traits>

#include <sympow/attention/options.hpp>
#include <sympow/core/view.hpp>
#include <sympow/detail/row_reports.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Tokens of a chunk.
inline Index chunk_of(const Options& options, const ProblemShape& shape) {
  return options.chunk > 0 ? std::clamp<Index>(shape.T, 1, options.chunk) : cheapest_chunk(shape, options.costs);
}

/// The run-time value of a choice of normalisation, or a sentence why there is none.
template <class Normalization, FeatureMap F>
constexpr RowKind row_kind() {
  if constexpr (std::is_same_v<Normalization, DefaultNormalization>) {
    return F::nonnegative ? RowKind::weighted_means : RowKind::sums;
  } else if constexpr (std::is_same_v<Normalization, Normalized>) {
    static_assert(F::nonnegative,
                  "this feature map has negative scores (an odd power, Linear) and gives no distribution: "
                  "use Unnormalized, or SignedNormalized if signed weights are meant");
    return RowKind::weighted_means;
  } else if constexpr (std::is_same_v<Normalization, SignedNormalized>) {
    return RowKind::signed_means;
  } else {
    static_assert(std::is_same_v<Normalization, Unnormalized>,
                  "the first template argument of a form is Normalized, Unnormalized or SignedNormalized");
    return RowKind::sums;
  }
}

/// Tokens that a call goes over: those of its keys and those at which its queries stand.
template <class Q, class K>
Index tokens_of(const Q& queries, const K& keys, const Mask& mask) {
  return std::max(keys.cols(), queries.cols() + mask.offset);
}

}  // namespace SYMPOW_NAMESPACE::detail
