// What a call of any form can choose, and the checks that every form makes before it touches anything.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <sympow/attention/cost_model.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/transition/transition.hpp>

namespace sympow {

/// Rows divided by their sum: y_i = Σ_j s_ij v_j / Σ_j s_ij. For feature maps without negative scores.
struct Normalized {};

/// Rows as they are: y_i = Σ_j s_ij v_j.
struct Unnormalized {};

/// Rows of scores of either sign divided by their sum; weights can be negative and the sum can vanish. Name it to get it.
struct SignedNormalized {};

/// `Normalized` where no score is negative, else `Unnormalized`.
struct DefaultNormalization {};

/// What a call can say about its rows, one column a token:
///
///     log |Σ_j s_ij|;   the row condition number K_i = Σ_j b_ij (|scale| ‖q_i‖ ‖k_j‖)^P / |Σ_j s_ij|;   1 if degenerate, else 0
///
/// For an exponential score the weight of a pair in K_i is e^s (1 + |scale| ‖q‖ ‖k‖). Under channel decay K_i is an upper bound.
using Diagnostics = Eigen::Matrix<double, 3, Dynamic>;

/// Which keys a query sees. Query i stands at token i + offset, key j at token j; the transition goes on to the last of them.
struct Mask {
  Index offset = 0;      ///< tokens from the first key to the first query
  bool is_full = false;  ///< every query sees every key, earlier and later ones
  [[nodiscard]] friend bool operator==(const Mask&, const Mask&) = default;
};
/// Query i sees the keys j ≤ i + offset, those up to its own token. An offset of T_k - T_q lets the last query see all keys; before
/// token 0 a query sees nothing, and its row is 0. `causal(0)` is what a call does that says nothing, for as many queries as keys.
[[nodiscard]] constexpr Mask causal(Index offset = 0) { return {offset, false}; }
/// Every query sees every key, from `offset` tokens after the first of them on. For transitions without decay that leave keys alone or turn them: what a gate forgets has a direction.
[[nodiscard]] constexpr Mask full(Index offset = 0) { return {offset, true}; }

/// Run-time choices of a call.
struct Options {
  double scale = 1;                    ///< multiplies the logits: s = scale · qᵀ M k, inside the power
  Index chunk = 0;                     ///< tokens of a chunk in the chunked form; 0 is `cheapest_chunk`
  Diagnostics* diagnostics = nullptr;  ///< resized to 3 × T and filled, if given; the outputs do not depend on it
  Mask mask = causal();                ///< how queries and keys are aligned
  bool check_finite = false;           ///< throw `NotFinite` if Q, K or V holds a number that is not finite
  Costs costs = {};                    ///< by which chunks are chosen, and forms where the call leaves them open
};

namespace detail {

/// Tokens of a chunk.
inline Index chunk_of(const Options& options, const HeadShape& shape) {
  return options.chunk > 0 ? options.chunk : cheapest_chunk(shape, options.costs);
}

enum class Rows { sums, weighted_means, signed_means };

/// The run-time value of a choice of normalisation, or a sentence why there is none.
template <class Normalization, FeatureMap F>
constexpr Rows rows_of() {
  if constexpr (std::is_same_v<Normalization, DefaultNormalization>) {
    return F::nonnegative ? Rows::weighted_means : Rows::sums;
  } else if constexpr (std::is_same_v<Normalization, Normalized>) {
    static_assert(F::nonnegative,
                  "this feature map has negative scores (an odd power, Linear) and gives no distribution: "
                  "use Unnormalized, or SignedNormalized if signed weights are meant");
    return Rows::weighted_means;
  } else if constexpr (std::is_same_v<Normalization, SignedNormalized>) {
    return Rows::signed_means;
  } else {
    static_assert(std::is_same_v<Normalization, Unnormalized>,
                  "the first template argument of a form is Normalized, Unnormalized or SignedNormalized");
    return Rows::sums;
  }
}

/// Throws `NotFinite` with the position of the first entry that is not finite.
template <class X>
void check_finite(const char* name, const X& x) {
  for (Index t = 0; t < x.cols(); ++t)
    for (Index i = 0; i < x.rows(); ++i)
      if (!std::isfinite(x.coeff(i, t)))
        raise<NotFinite>(name, "(", i, ", ", t, ") is ", static_cast<double>(x.coeff(i, t)), ", must be finite");
}

/// Tokens that a call goes over: those of its keys and those at which its queries stand.
template <class Q, class K>
Index tokens_of(const Q& queries, const K& keys, const Mask& mask) {
  return std::max(keys.cols(), queries.cols() + mask.offset);
}

/// Throws `ShapeMismatch`, `InvalidArgument` or `NotFinite` unless the arguments of a call fit each other.
template <class A, class Q, class K, class V>
void check_call(const A& transition, const Q& queries, const K& keys, const V& values, const Options& options) {
  const Mask& mask = options.mask;
  check_size("rows of K", keys.rows(), queries.rows(), "rows of Q");
  if (mask == causal())
    check_size("columns of K", keys.cols(), queries.cols(),
               "columns of Q, one a token, unless options.mask says otherwise");
  check_size("columns of V", values.cols(), keys.cols(), "columns of K, one a token");
  const Index tokens = tokens_of(queries, keys, mask);
  if (transition.length() != Dynamic)
    check_size("length of the transition", transition.length(), tokens,
               mask == causal() ? "columns of Q, one a token" : "tokens of keys and queries under the mask");
  if (transition.key_dimension() != Dynamic)
    check_size("key dimension of the transition", transition.key_dimension(), queries.rows(), "rows of Q");
  if (mask.is_full) {
    if (mask.offset < 0)
      raise<InvalidArgument>("options: the offset of a full mask is ", mask.offset, ", must not be negative");
    if (A::key_action != KeyAction::none && A::key_action != KeyAction::turn)
      raise<InvalidArgument>("options: a full mask needs a transition that leaves keys alone or turns them");
    for (Index i = 0; i < tokens; ++i)
      if (transition.log_decay(i) != 0)
        raise<InvalidArgument>("options: a full mask needs a transition without decay; log gamma of token ", i, " is ",
                               transition.log_decay(i));
  }
  if (!std::isfinite(options.scale)) raise<InvalidArgument>("options: scale is ", options.scale, ", must be finite");
  if (options.check_finite) {
    check_finite("Q", queries);
    check_finite("K", keys);
    check_finite("V", values);
  }
  const Costs& costs = options.costs;
  for (const double cost : {costs.score, costs.segment, costs.token})
    if (!(cost >= 0 && std::isfinite(cost)))
      raise<InvalidArgument>("options: the costs are ", costs.score, ", ", costs.segment, " and ", costs.token,
                             ", must be finite and not negative");
  if (options.chunk < 0) raise<InvalidArgument>("options: chunk is ", options.chunk, ", must not be negative");
}

template <class Y, class Q, class V>
void check_output(const Y& outputs, const Q& queries, const V& values) {
  check_size("rows of Y", outputs.rows(), values.rows(), "rows of V");
  check_size("columns of Y", outputs.cols(), queries.cols(), "columns of Q, one a token");
}

/// Whether these types go together; false after a sentence at compile time, so that the sentence stands alone.
template <FeatureMap F, Transition A, class Q, class K, class V>
constexpr bool check_types() {
  constexpr bool one_scalar =
      std::is_same_v<typename Q::Scalar, typename K::Scalar> && std::is_same_v<typename Q::Scalar, typename V::Scalar>;
  static_assert(one_scalar, "queries, keys and values must have the same scalar type; use .cast<>()");
  constexpr bool is_lifted = A::key_action == KeyAction::scale || A::key_action == KeyAction::mix;
  constexpr bool can_act = !(is_lifted && F::score == Score::embedded);
  static_assert(
      can_act,
      "channel decay and Householder chains are lifted to the embedding, which needs a feature map whose score "
      "is a power of the logit, or Exponential");
  return one_scalar && can_act;
}

}  // namespace detail
}  // namespace sympow
