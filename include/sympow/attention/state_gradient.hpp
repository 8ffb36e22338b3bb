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
    auto& sums = content_.sums;
    detail::check_size("columns of dS", values.cols(), sums.S.cols(), "the dimension of the feature map");
    detail::check_size("entries of dZ", normalizer.size(), sums.Z.size(), "the dimension of the feature map");
    if (frame.size() > d / 2)
      detail::raise<ShapeMismatch>("angles of dmu are ", frame.size(), ", must be ", d / 2, " at most, one per plane");
    for (Index u = 0; u < frame.size(); ++u) check_finite("dmu", u, frame[u]);
    sums.S = values;
    sums.Z = normalizer.reshaped();
    content_.frame = frame;
    content_.has_gauge = false;
    scale();
  }

  [[nodiscard]] Index key_dimension() const { return content_.sums.log_channels.size(); }  ///< d
  [[nodiscard]] Index value_dimension() const { return content_.sums.S.rows(); }           ///< e

  /// dS, e × D, infinite where the type cannot hold it.
  [[nodiscard]] Matrix<S> values() const { return unscaled(content_.sums.S); }
  /// dZ, D, likewise.
  [[nodiscard]] Vector<S> normalizer() const { return unscaled(content_.sums.Z); }
  /// dμ; empty where nothing turns.
  [[nodiscard]] const Eigen::VectorXd& frame() const { return content_.frame; }

 private:
  friend detail::StateGradientAccess;

  template <class Part>
  [[nodiscard]] Part unscaled(Part x) const {
    for (Index n = 0; n < x.size() && !content_.sums.empty(); ++n)
      x.data()[n] = detail::times_power_of_two(x.data()[n], content_.sums.exponent());
    return x;
  }

  static void check_finite(const char* name, Index n, double x) {
    if (!std::isfinite(x))
      detail::raise<NotFinite>("StateGradient: entry ", n, " of ", name, " is ", x, ", must be finite");
  }

  // Moderate numbers and their exponent.
  void scale() {
    auto& sums = content_.sums;
    S largest(0);
    for (const auto* x : {sums.S.data(), sums.Z.data()})
      for (Index n = 0; n < (x == sums.S.data() ? sums.S.size() : sums.Z.size()); ++n) {
        check_finite(x == sums.S.data() ? "dS" : "dZ", n, static_cast<double>(x[n]));
        largest = std::max(largest, std::abs(x[n]));
      }
    if (largest == S(0)) return;
    int exponent = 0;
    std::frexp(largest, &exponent);
    for (Index n = 0; n < sums.S.size(); ++n) sums.S.data()[n] = std::ldexp(sums.S.data()[n], -exponent);
    for (Index n = 0; n < sums.Z.size(); ++n) sums.Z.data()[n] = std::ldexp(sums.Z.data()[n], -exponent);
    sums.L = exponent;
  }

  detail::Adjoint<S> content_;
};

namespace detail {
struct StateGradientAccess {
  static auto& content(auto& gradient) { return gradient.content_; }
};
}  // namespace detail

}  // namespace SYMPOW_NAMESPACE
