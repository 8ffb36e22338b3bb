// Calls of gradients: what they are given and give, and what they check beside their form.
#pragma once

#include <array>
#include <functional>
#include <span>

#include <sympow/attention/gradient/segment_adjoint.hpp>
#include <sympow/attention/gradient/vjp_views.hpp>
#include <sympow/attention/gradients.hpp>
#include <sympow/attention/vjp_workspace.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Whether a call has gradients; false after a sentence that names what is missing. Scores that are direct need no φ.
template <class F, class A, class Scalar, bool is_direct = false>
constexpr bool check_vjp() {
  static_assert(HasVjp<A, Scalar>,
                "gradients need a transition with a way back: Gradient, zero_gradient, add_decay_flows, transport_vjp "
                "and pull_vjp, see transition/transport_vjp.hpp");
  constexpr bool embeds = F::score != Score::embedded || FeatureMapWithVjp<F> || (is_direct && KernelWithSlope<F>);
  static_assert(embeds,
                "gradients need embed_vjp(x, y, dy, dx) of a feature map with an embedded score; those of attention "
                "kappa_slope(s), if it has kappa(s)");
  return HasVjp<A, Scalar> && embeds;
}

/// Whether dY goes with a call of this scalar type; false after a sentence.
template <class Scalar, class DY>
constexpr bool check_d_rows() {
  constexpr bool one_scalar = std::is_same_v<Scalar, typename DY::Scalar>;
  static_assert(one_scalar, "dY must have the scalar type of queries, keys and values; use .cast<>()");
  return one_scalar;
}

/// What is given.
template <class Scalar>
struct VjpArguments {
  MatrixView<const Scalar> Q, K, V, dY;
};

/// Throws `InvalidArgument` if what is written lies in the memory of what is read, or of other gradients.
template <class Scalar>
void check_apart(const char* name, std::span<const Scalar> written, const char* other_name,
                 std::span<const Scalar> other) {
  const std::less<const Scalar*> before;
  if (written.empty() || other.empty() || !before(written.data(), other.data() + other.size()) ||
      !before(other.data(), written.data() + written.size()))
    return;
  raise<InvalidArgument>(name, " lies in the memory of ", other_name, ", must have memory of its own");
}
/// The same for all gradients of a call, {dQ, dK, dV}, and all that it is given, {Q, K, V, dY}.
template <class Scalar>
void check_apart(const std::array<std::span<const Scalar>, 3>& written,
                 const std::array<std::span<const Scalar>, 4>& read) {
  constexpr std::array names{"dQ", "dK", "dV"};
  constexpr std::array read_names{"Q", "K", "V", "dY"};
  for (std::size_t n = 0; n < written.size(); ++n) {
    for (std::size_t m = 0; m < read.size(); ++m) check_apart(names[n], written[n], read_names[m], read[m]);
    for (std::size_t m = 0; m < n; ++m) check_apart(names[n], written[n], names[m], written[m]);
  }
}

/// Where gradients are added or, if nothing is there and it does not `add`, written.
template <class Scalar, class A>
struct VjpResults {
  MatrixView<Scalar> dQ, dK, dV;
  typename A::Gradient& transition;
  double& scale;
  bool adds = true;
};

/// Gradients of the right sizes, 0 if they are added to. Throws `InvalidArgument` if one of them has been given as an
/// argument.
template <class Scalar, class A>
VjpResults<Scalar, A> begin_gradients(Gradients<Scalar, A>& gradients, const A& transition,
                                      const VjpArguments<Scalar>& of, const Options& options, bool adds) {
  const auto span = [](const auto& x) {
    const Index size = x.cols() == 0 ? 0 : (x.cols() - 1) * x.outerStride() + x.rows();
    return std::span<const Scalar>(x.data(), static_cast<std::size_t>(size));
  };
  check_apart<Scalar>({span(gradients.Q), span(gradients.K), span(gradients.V)},
                      {span(of.Q), span(of.K), span(of.V), span(of.dY)});
  gradients.transition = transition.zero_gradient(tokens_of(of.Q, of.K, options.mask));
  resize_anew(gradients.Q, of.Q.rows(), of.Q.cols());
  resize_anew(gradients.K, of.K.rows(), of.K.cols());
  resize_anew(gradients.V, of.V.rows(), of.V.cols());
  for (auto* x : {&gradients.Q, &gradients.K, &gradients.V})
    if (adds) x->setZero();
  gradients.scale = 0;
  return {gradients.Q, gradients.K, gradients.V, gradients.transition, gradients.scale, adds};
}

/// Throws as a form does, `ShapeMismatch` unless dY has the shape of the rows, and `InvalidArgument` for diagnostics.
template <class A, class Scalar>
void check_vjp_call(const A& transition, const VjpArguments<Scalar>& x, const Options& options) {
  check_call(transition, x.Q, x.K, x.V, options);
  check_size("rows of dY", x.dY.rows(), x.V.rows(), "rows of V");
  check_size("columns of dY", x.dY.cols(), x.Q.cols(), "columns of Q, one a token");
  if (options.diagnostics != nullptr)
    raise<InvalidArgument>("options: diagnostics are of rows, ask the form for them; gradients have none");
  if (options.check_finite) check_finite("dY", x.dY);
}

/// The call in the terms of its engine.
template <class Normalization, class F, class Scalar, class A>
VjpCall<Scalar> vjp_call(VjpViews<Scalar, F, A>& views, const VjpArguments<Scalar>& x, const VjpResults<Scalar, A>& to,
                         VjpWorkspace<Scalar>& workspace, const Options& options) {
  return {views.there(),
          views.back(),
          row_kind<Normalization, F>(),
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
          adjoint_memory_of(workspace)};
}

}  // namespace SYMPOW_NAMESPACE::detail
