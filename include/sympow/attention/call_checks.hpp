// What can be wrong with a call, whichever way it goes: one check for forms and gradients, made before anything is
// touched.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include <sympow/attention/diagnostics.hpp>
#include <sympow/attention/options.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/core/view.hpp>
#include <sympow/detail/forward.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The run-time value of a choice of normalisation, or a sentence why there is none.
template <class Normalization, FeatureMap F>
constexpr RowKind row_kind() {
  constexpr bool is_default = std::is_same_v<Normalization, DefaultNormalization>,
                 means = std::is_same_v<Normalization, Normalized> || (is_default && F::nonnegative),
                 signed_means = std::is_same_v<Normalization, SignedNormalized>,
                 sums = std::is_same_v<Normalization, Unnormalized> || (is_default && !F::nonnegative);
  static_assert(signed_means || sums || (means && F::nonnegative),
                "the first template argument of a form is Unnormalized, SignedNormalized or, for a feature map without "
                "negative scores, Normalized; scores of an odd power or of Linear can be negative");
  return means ? RowKind::weighted_means : signed_means ? RowKind::signed_means : RowKind::sums;
}

/// Throws `NotFinite` with the position of the first entry that is not finite.
template <class X>
void check_finite(const char* name, const X& x) {
  for (Index t = 0; t < x.cols(); ++t)
    for (Index i = 0; i < x.rows(); ++i)
      if (!std::isfinite(x.coeff(i, t)))
        raise<NotFinite>(name, "(", i, ", ", t, ") is ", static_cast<double>(x.coeff(i, t)), ", must be finite");
}

/// A mask in a message.
inline std::string in_words(const Mask& mask) {
  std::string words = mask.is_full ? "a full mask" : "a causal mask";
  if (mask.has_window()) words += " with a window of " + std::to_string(mask.window);
  return mask.offset == 0 ? words : words + " with the offset " + std::to_string(mask.offset);
}

/// Throws `InvalidGate` for a log gate that is positive or not a number. Exponential scores, which no state sums, may
/// grow: there any number below infinity is allowed.
template <Score score, class Scalar>
void check_gates(const TransitionView<Scalar>& transition, Index tokens) {
  constexpr bool may_grow = score == Score::exponential;
  for (Index i = 0; i < tokens; ++i)
    if (const double log_gamma = transition.log_decay(i); !(log_gamma <= 0) && !(may_grow && std::isfinite(log_gamma)))
      raise<InvalidGate>("the transition's log gate of token ", i, " is ", log_gamma,
                         may_grow ? ", must be a number below infinity" : log_gate_rule);
  if (transition.checks_channels()) return;
  Eigen::VectorXd log_a;
  for (Index i = 0; i < tokens; ++i) {
    transition.log_channel_totals({i, 1}, log_a);
    for (Index c = 0; c < log_a.size(); ++c)
      if (!(log_a[c] <= 0))
        raise<InvalidGate>("the transition's log gate of channel ", c, " at token ", i, " is ", log_a[c],
                           log_gate_rule);
  }
}

/// Throws `ShapeMismatch`, `InvalidArgument`, `InvalidGate` or `NotFinite` unless the arguments of a call fit each
/// other.
template <Score score, class Scalar>
void check_call(const ForwardCall<Scalar>& call) {
  const TransitionView<Scalar>& transition = *call.transition;
  const MatrixView<const Scalar>&queries = call.Q, &keys = call.K, &values = call.V;
  const Options& options = call.options;
  const Mask& mask = options.mask;
  // Queries stand where tokens can be, and not so far behind the last key that a transition of any length would be gone
  // through for nothing.
  constexpr Index farthest = std::numeric_limits<Index>::max() / 4, gap = Index{1} << 24;
  if (mask.offset < -farthest || mask.offset > farthest)
    raise<InvalidArgument>("options: the offset of the mask is ", mask.offset, ", must lie between ", -farthest,
                           " and ", farthest);
  if (transition.length() == Dynamic && mask.offset - keys.cols() > gap)
    raise<InvalidArgument>("options: the offset of the mask is ", mask.offset, ", which leaves more than ", gap,
                           " tokens behind the ", keys.cols(), " columns of K");
  check_size("rows of K", keys.rows(), queries.rows(), "rows of Q");
  if (mask.window < 1)
    raise<InvalidArgument>("options: the window of the mask is ", mask.window, " tokens, must be at least 1");
  if (mask.is_aligned())
    check_size("columns of K", keys.cols(), queries.cols(),
               "columns of Q, one a token, unless options.mask says otherwise");
  check_size("columns of V", values.cols(), keys.cols(), "columns of K, one a token");
  const Index tokens = call.tokens();
  if (transition.length() != Dynamic)
    check_size("length of the transition", transition.length(), tokens,
               mask.is_aligned() ? "columns of Q, one a token; of a T x d matrix give the transpose"
                                 : "tokens of keys and queries under the mask");
  if (transition.key_dimension() != Dynamic)
    check_size("key dimension of the transition", transition.key_dimension(), queries.rows(),
               "rows of Q, whose tokens are columns; of a T x d matrix give the transpose");
  check_gates<score>(transition, tokens);
  if (mask.has_window() && score != Score::exponential && transition.key_action() == KeyAction::scale)
    raise<InvalidArgument>("options: a sliding window does not go with channel decay of powers");
  if (mask.is_full) {
    if (mask.has_window())
      raise<InvalidArgument>("options: the mask is full and has a window of ", mask.window, ", must be one of them");
    if (mask.offset < 0)
      raise<InvalidArgument>("options: the offset of a full mask is ", mask.offset, ", must not be negative");
    if (transition.key_action() != KeyAction::none && transition.key_action() != KeyAction::turn)
      raise<InvalidArgument>("options: a full mask needs a transition that leaves keys alone or turns them");
    for (Index i = 0; i < tokens; ++i)
      if (transition.log_decay(i) != 0)
        raise<InvalidArgument>("options: a full mask needs a transition without decay; log gamma of token ", i, " is ",
                               transition.log_decay(i));
  }
  if (!std::isfinite(options.scale)) raise<InvalidArgument>("options: scale is ", options.scale, ", must be finite");
  if (options.check_finite) {
    check_finite("K", keys);
    check_finite("V", values);
    check_finite("Q", queries);  // a call without queries has its keys here
  }
  const Costs& costs = options.costs;
  for (const double cost : {costs.score, costs.segment})
    if (!(cost >= 0 && std::isfinite(cost)))
      raise<InvalidArgument>("options: the costs are ", costs.score, " and ", costs.segment,
                             ", must be finite and not negative");
  if (options.chunk < 0) raise<InvalidArgument>("options: chunk is ", options.chunk, ", must not be negative");
  if (options.checkpoint < 0)
    raise<InvalidArgument>("options: checkpoint is ", options.checkpoint, ", must not be negative");
}

/// Throws `ShapeMismatch` unless Y or dY has a column for every query and a row for every row of V.
template <class Rows, class Q, class V>
void check_rows(const char* name, const Rows& rows, const Q& queries, const V& values) {
  check_size(std::string("rows of ") + name, rows.rows(), values.rows(), "rows of V");
  check_size(std::string("columns of ") + name, rows.cols(), queries.cols(), "columns of Q, one a token");
}

/// Whether these types go together; false after a sentence at compile time, so that no other error follows it.
template <FeatureMap F, Transition A, class Q, class K, class V>
constexpr bool check_types() {
  using Scalar = typename Q::Scalar;
  constexpr bool one_scalar = std::is_same_v<Scalar, typename K::Scalar> &&
                              std::is_same_v<Scalar, typename V::Scalar> &&
                              (std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>);
  static_assert(one_scalar,
                "queries, keys and values have one scalar type, float or double; use .cast<>(). For an exact scalar "
                "there are exact::definition, exact::recurrent and exact::chunked");
  constexpr bool embeds_views = requires(const F& f, MatrixView<Scalar> x, MatrixView<Scalar> y) { f.embed(x, y); },
                 can_embed = !one_scalar || F::score != Score::embedded || (FiniteFeatureMap<F> && embeds_views),
                 has_exponents = ScaledFeatureMap<F> && requires(const F& f, double s) { f.kappa(s); },
                 is_lifted = A::key_action == KeyAction::scale || A::key_action == KeyAction::mix,
                 can_score = F::score != Score::embedded || (can_embed && !has_exponents && !is_lifted);
  static_assert(
      can_score,
      "an embedded score needs Index dimension(Index d) const and an embed that takes whatever tokens stand in, "
      "template <class X, class Y> void embed(const X& x, Y&& y) const; it has no kappa if that embedding has "
      "exponents; "
      "and channel decay and Householder chains do not go with it");
  return one_scalar && can_score;
}

}  // namespace SYMPOW_NAMESPACE::detail
