// What the state forms carry from token to token.
#pragma once

#include <sympow/attention/workspace.hpp>
#include <sympow/core/checks.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/transition/transition.hpp>

namespace sympow {

namespace detail {
template <class State>
struct StateAccess;
template <class Scalar, FeatureMap F, int alignment = EIGEN_MAX_ALIGN_BYTES>
struct StateForms;
}  // namespace detail

/// The state of a recurrence: a value. Copy it to branch, keep it to resume.
///
///     S = Σ_j b_Tj v_j φ(k̂_j)ᵀ  (e × D),   Z = Σ_j b_Tj φ(k̂_j)ᵀ  (1 × D)
///
/// over the T tokens seen so far, with keys k̂ in the coordinates of `frame()`. It is kept as 2^M times sums over keys of length at
/// most 1, with a running exponent L (M = ⌈L⌉), so that it never overflows; and the last tokens are kept as they are, in a tail of up
/// to `tail` tokens that is folded into the sums when it is full: scores of recent tokens are exact to rounding, and a token costs one
/// read of S. With tail 0 the recurrence is the papers' literal one. A fresh state is empty: its first token forgets nothing,
/// whatever its gate. Size: (e + 1) D scalars and tail (d + e) more. Source: Conformal Transformations, §2 and eq. (2).
template <class S, FiniteFeatureMap F>
class State {
 public:
  using Scalar = S;
  using Feature = F;

  /// Tokens of a tail unless the caller says otherwise. Among features that are never negative nothing cancels, and to embed a tail for every
  /// token would cost more than it saves.
  static constexpr Index default_tail = has_nonnegative_entries<F> ? 0 : 32;

  /// The empty state for keys in R^d and values in R^e. `frame` is where it starts: that of another state whose sequence it continues,
  /// see `merge`. Throws `DimensionOverflow` if (e + 1) D does not fit, `ShapeMismatch` for a negative size, `std::bad_alloc` where memory ends.
  State(Index d, Index e, Index tail = default_tail, Frame frame = {}) : State(F{}, d, e, tail, std::move(frame)) {}
  /// The same for a feature map that has parameters.
  State(F feature, Index d, Index e, Index tail = default_tail, Frame frame = {})
      : feature_(std::move(feature)), d_(d), start_(frame), frame_(std::move(frame)) {
    if (d < 0 || e < 0 || tail < 0)
      detail::raise<ShapeMismatch>("State: d = ", d, ", e = ", e, " and tail = ", tail, " must not be negative");
    const Index dimension = feature_.dimension(d);
    Index entries = 0;
    if (__builtin_mul_overflow(dimension, e + 1, &entries))
      detail::raise<DimensionOverflow>("State: d = ", d, " and e = ", e, " make (e + 1) D = ", e + 1, " x ", dimension,
                                       " entries, which do not fit the index type");
    S_.setZero(e, dimension);
    Z_.setZero(dimension);
    tail_keys_.setZero(d, tail);
    tail_values_.setZero(e, tail);
    tail_exponents_.setZero(tail);
    tail_log_b_.setZero(tail);
    log_channels_.setZero(d);
    tail_log_channels_.setZero(d);
  }

  [[nodiscard]] const F& feature() const { return feature_; }        ///< the feature map
  [[nodiscard]] Index key_dimension() const { return d_; }           ///< d
  [[nodiscard]] Index value_dimension() const { return S_.rows(); }  ///< e
  [[nodiscard]] Index tokens() const { return tokens_; }             ///< T, the tokens seen so far
  [[nodiscard]] Index tail() const { return tail_keys_.cols(); }     ///< tokens that the tail can hold
  [[nodiscard]] Index tail_size() const { return tail_size_; }       ///< tokens that it holds

  [[nodiscard]] const Frame& start_frame() const { return start_; }  ///< the coordinates at its first token
  [[nodiscard]] const Frame& frame() const { return frame_; }        ///< the coordinates of its keys, at its last token

  /// Σ log γ_i over the tokens seen, the first gate included.
  [[nodiscard]] double log_decay() const { return log_decay_; }
  /// Σ log a_i over the tokens seen, by channel; zeros without channel decay.
  [[nodiscard]] const Eigen::VectorXd& log_channels() const { return log_channels_; }

  /// A_1 … A_T of a transition that mixes channels, d × d; empty before the first.
  [[nodiscard]] const Matrix<S>& key_product() const { return key_product_; }

  /// S, e × D, as the formula says, the tail folded in. Costs a copy; infinite where the type cannot hold it.
  [[nodiscard]] Matrix<S> values() const {
    return read([](const auto& parts) { return parts.unscaled(parts.S); });
  }
  /// Zᵀ, D, likewise.
  [[nodiscard]] Vector<S> normalizer() const {
    return read([](const auto& parts) { return parts.unscaled(parts.Z); });
  }

  /// Bytes of S, Z and the tail.
  [[nodiscard]] Index bytes() const {
    return (S_.size() + Z_.size() + tail_keys_.size() + tail_values_.size()) * static_cast<Index>(sizeof(S)) +
           2 * tail() * static_cast<Index>(sizeof(double));
  }

 private:
  friend detail::StateAccess<State>;

  template <class Part>
  auto read(const Part& part) const {
    State copy = *this;
    detail::StateForms<S, F>::fold(copy);
    return part(detail::StateAccess<State>{copy});
  }

  F feature_;
  Index d_;
  // Folded tokens: 2^M S_, 2^M Z_ and the absolute weight 2^M A_ at the time of a fold, M = ⌈L_⌉.
  Matrix<S> S_;
  Vector<S> Z_;
  double A_ = 0, L_ = detail::no_weight;
  // Tokens since then: key j is 2^exponent times its column, in the coordinates of frame_, and has decayed by log_b.
  Matrix<S> tail_keys_, tail_values_;
  Eigen::VectorXd tail_exponents_, tail_log_b_;
  Index tail_size_ = 0;
  double tail_log_decay_ = 0;          // of everything folded, since that time
  Eigen::VectorXd tail_log_channels_;  // likewise by channel
  Frame start_, frame_;
  double log_decay_ = 0;
  Eigen::VectorXd log_channels_;
  Matrix<S> key_product_;
  Index tokens_ = 0;
};
template <FiniteFeatureMap F, class... Sizes>
State(F, Index, Index, Sizes...) -> State<double, F>;

}  // namespace sympow

#include <sympow/attention/engine/state_forms.hpp>  // how the forms get at it
