// Calls of gradients: what they are given and give, and what they check beside their form.
#pragma once

#include <array>
#include <functional>
#include <span>

#include <sympow/attention/call_checks.hpp>
#include <sympow/attention/workspace.hpp>
#include <sympow/detail/backward.hpp>
#include <sympow/detail/factored_transition.hpp>
#include <sympow/transition/product.hpp>

namespace SYMPOW_NAMESPACE {

template <class Scalar>
class VjpWorkspace;

namespace detail {
template <class Scalar>
BackwardBuffers<Scalar>& backward_buffers_of(VjpWorkspace<Scalar>& workspace) {
  return workspace.memory_;
}
}  // namespace detail

/// Scratch of one call at a time, as `Workspace` is for forms, which it is as well.
template <class Scalar>
class VjpWorkspace : public Workspace<Scalar> {
  friend detail::BackwardBuffers<Scalar>& detail::backward_buffers_of<Scalar>(VjpWorkspace<Scalar>& workspace);

  detail::BackwardBuffers<Scalar> memory_;
};

/// One for every thread, grown by the calls that use it.
template <class Scalar>
using VjpWorkspaces = std::vector<VjpWorkspace<Scalar>>;

/// Gradients of a loss in everything that a call was made of, from dY = ∂loss/∂Y: what `attention_vjp` and
/// `chunked_vjp` return.
template <class Scalar, class A>
struct Gradients {
  Matrix<Scalar> Q = {},                                 ///< dQ, d × T
      K = {},                                            ///< dK, d × T
      V = {};                                            ///< dV, e × T
  typename detail::GradientOf<A>::type transition = {};  ///< in the transition's parameters, see there
  double scale = 0;                                      ///< in `Options::scale`

  /// In the parameters of a factor of the transition, or of the transition itself: `of<Decay>().log_gamma`.
  template <class Factor>
  [[nodiscard]] const auto& of() const {
    return detail::gradient_of<Factor, A>(transition);
  }
};

}  // namespace SYMPOW_NAMESPACE

namespace SYMPOW_NAMESPACE::detail {

/// A transition as the engines of gradients see it: on the way there, with the gates of slowest channels as scalar
/// ones, see `factor_out_max_gate`, and on the way back, which adds to a gradient: the flow through a channel is that
/// through all of a_t.
template <class Scalar, class F, Transition A>
class VjpViews {
  static constexpr bool has_slowest = has_slowest_channel<F, A>;
  using Seen = std::conditional_t<has_slowest, TransitionProduct<Decay, A>, const A&>;

 public:
  VjpViews(const A& transition, typename A::Gradient& gradient)
      : seen_(see(transition)), there_(seen_), back_(rest(), gradient) {}

  [[nodiscard]] const TransitionView<Scalar>& there() const { return there_; }
  [[nodiscard]] VjpViewOf<Scalar, A>& back() { return back_; }

 private:
  static Seen see(const A& transition) {
    if constexpr (has_slowest)
      return factor_out_max_gate<F>(transition);
    else
      return transition;
  }
  [[nodiscard]] const A& rest() const {
    if constexpr (has_slowest)
      return seen_.right();
    else
      return seen_;
  }

  Seen seen_;
  ViewOf<Scalar, std::remove_cvref_t<Seen>> there_;
  VjpViewOf<Scalar, A> back_;
};

/// Whether a call has gradients; false after a sentence that names what is missing. Scores that are direct need no φ.
template <class F, class A, class Scalar, bool is_direct = false>
constexpr bool check_vjp() {
  static_assert(
      HasVjp<A, Scalar>,
      "gradients need a transition with a way back: Gradient, zero_gradient, add_decay_flows, to_segment_frame_vjp "
      "and apply_to_queries_vjp, see transition/segment_vjp.hpp");
  constexpr bool embeds = F::score != Score::embedded || FeatureMapWithVjp<F> || (is_direct && KernelWithSlope<F>);
  static_assert(embeds,
                "gradients need embed_vjp(x, y, dy, dx) of a feature map with an embedded score; those of attention "
                "kappa_slope(s), if it has kappa(s)");
  return HasVjp<A, Scalar> && embeds;
}

/// The inputs of a gradient call.
template <class Scalar>
struct VjpArguments {
  MatrixView<const Scalar> Q, K, V, dY;
};

/// Where gradients are added or, if nothing is there and it does not `add`, written.
template <class Scalar, class A>
struct VjpResults {
  MatrixView<Scalar> dQ, dK, dV;
  typename A::Gradient& transition;
  double& scale;
  bool adds = true;
};

/// Gradients in the memory of others, which are then empty; or new ones. Throws `InvalidArgument`, before anything is
/// touched, if that memory is an argument's.
template <class Scalar, class A>
Gradients<Scalar, A> take_memory(OptionalRef<Gradients<Scalar, A>> reuse, const VjpArguments<Scalar>& of) {
  if (!reuse) return {};
  check_outputs({{"dQ", layout_of(reuse->Q)}, {"dK", layout_of(reuse->K)}, {"dV", layout_of(reuse->V)}},
                {{"Q", layout_of(of.Q)}, {"K", layout_of(of.K)}, {"V", layout_of(of.V)}, {"dY", layout_of(of.dY)}});
  return std::move(*reuse);
}

/// Gives gradients their sizes, 0 if they are added to.
template <class Scalar, class A>
VjpResults<Scalar, A> begin_gradients(Gradients<Scalar, A>& gradients, const A& transition,
                                      const VjpArguments<Scalar>& of, const Options& options, bool adds) {
  gradients.transition = transition.zero_gradient(tokens_of(of.Q, of.K, options.mask));
  resize_safely(gradients.Q, of.Q.rows(), of.Q.cols());
  resize_safely(gradients.K, of.K.rows(), of.K.cols());
  resize_safely(gradients.V, of.V.rows(), of.V.cols());
  for (auto* x : {&gradients.Q, &gradients.K, &gradients.V})
    if (adds) x->setZero();
  gradients.scale = 0;
  return {gradients.Q, gradients.K, gradients.V, gradients.transition, gradients.scale, adds};
}

/// Throws as a form does, `ShapeMismatch` unless dY has the shape of the rows, and `InvalidArgument` for diagnostics.
template <class A, class Scalar>
void check_vjp_call(const A& transition, const VjpArguments<Scalar>& x, const Options& options) {
  check_call(transition, x.Q, x.K, x.V, options);
  check_rows("dY", x.dY, x.Q, x.V);
  if (options.diagnostics != nullptr)
    raise<InvalidArgument>("options: diagnostics are of rows, ask the form for them; gradients have none");
  if (options.check_finite) check_finite("dY", x.dY);
}

/// The call in the terms of its engine.
template <class F, class Scalar, class A>
BackwardCall<Scalar> backward_call(RowKind kind, VjpViews<Scalar, F, A>& views, const VjpArguments<Scalar>& x,
                                   const VjpResults<Scalar, A>& to, VjpWorkspace<Scalar>& workspace,
                                   const Options& options) {
  return {views.there(),
          views.back(),
          kind,
          options,
          x.Q,
          x.K,
          x.V,
          x.dY,
          to.dQ,
          to.dK,
          to.dV,
          to.scale,
          to.adds,
          memory_of(workspace),
          backward_buffers_of(workspace)};
}

}  // namespace SYMPOW_NAMESPACE::detail
