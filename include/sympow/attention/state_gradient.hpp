// The gradient of a state: what a loss on later tokens, or on the state itself, says to the tokens before it.
#pragma once

#include <sympow/attention/state.hpp>
#include <sympow/detail/state_backward.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {
struct StateGradientAccess;
}  // namespace detail

/// The gradient of a loss in S, Z and the frame of a state: a value.
///
///     dS: e × D,   dZ: D,   dμ: an angle a plane under a rotation, empty otherwise
///
/// Of the sums as the formula of `State` says, whatever power of two they are kept with: this too is 2^M times moderate
/// numbers, so that it is right where values() leave the type. `chunked_vjp` takes that of the state behind its last
/// token and leaves that of the state before its first: hand it on to the call before, and the two give what one call
/// over all tokens does. Source: reverse mode of S ← b S A + v φ(k)ᵀ.
///
/// Under a rotation the keys of a state stand in coordinates that its sequence has turned to, so a state's frame is an
/// output of it as S is. A turn of the whole sequence by δ in plane u changes a loss by gauge_u δ, where gauge_u = dμ_u
/// + ⟨[dS; dZ], L_u [S; Z]⟩ is the same before and behind every token and 0 for a loss that sees rows alone.
template <class S, FiniteFeatureMap F>
class StateGradient {
 public:
  /// Of a loss that does not see the state.
  StateGradient(const F& feature, Index d, Index e) : content_{{d, e, feature.dimension(d), 0}} {
    content_.has_gauge = true;
  }
  /// The same for a feature map without parameters.
  StateGradient(Index d, Index e) : StateGradient(F{}, d, e) {}
  /// Of a loss in S, e × D, and Z, D, and where these turn in μ, up to d/2 angles or none. Throws `ShapeMismatch`,
  /// `NotFinite`; a call under which nothing turns refuses dμ with `FrameMismatch`.
  template <class DS, class DZ>
  StateGradient(const F& feature, Index d, const Eigen::MatrixBase<DS>& values, const Eigen::MatrixBase<DZ>& normalizer,
                const Eigen::VectorXd& frame = {})
      : StateGradient(feature, d, values.rows()) {
    if (frame.size() > d / 2)
      detail::raise<ShapeMismatch>("angles of dmu are ", frame.size(), ", must be ", d / 2, " at most, one per plane");
    for (Index u = 0; u < frame.size(); ++u)
      if (!std::isfinite(frame[u]))
        detail::raise<NotFinite>("StateGradient: entry ", u, " of dmu is ", frame[u], ", must be finite");
    detail::set_sums({"StateGradient", "dS", "dZ"}, content_.sums, values, normalizer);
    content_.frame = frame;
    content_.has_gauge = false;
  }

  [[nodiscard]] Index key_dimension() const { return content_.sums.log_channels.size(); }  ///< d
  [[nodiscard]] Index value_dimension() const { return content_.sums.S.rows(); }           ///< e

  /// dS, e × D, infinite or 0 where the type cannot hold it.
  [[nodiscard]] Matrix<S> values() const { return detail::unscaled(settled(), &detail::StateSums<S>::S); }
  /// dZ, D, likewise.
  [[nodiscard]] Vector<S> normalizer() const { return detail::unscaled(settled(), &detail::StateSums<S>::Z); }
  /// dμ; empty where nothing turns.
  [[nodiscard]] const Eigen::VectorXd& frame() const { return content_.frame; }

 private:
  friend detail::StateGradientAccess;

  [[nodiscard]] detail::StateSums<S> settled() const {
    detail::StateSums<S> copy = content_.sums;
    copy.settle();
    return copy;
  }

  detail::Adjoint<S> content_;
};

namespace detail {
struct StateGradientAccess {
  static auto& content(auto& gradient) { return gradient.content_; }
  /// Its sums, that all decay is in. Costs a copy.
  static auto sums(const auto& gradient) { return gradient.settled(); }
};
}  // namespace detail

}  // namespace SYMPOW_NAMESPACE
