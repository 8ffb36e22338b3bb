// The checks that gradients make beside those of their form.
#pragma once

#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/gradients.hpp>
#include <sympow/transition/transport_vjp.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Whether a call has gradients; false after a sentence that names what is missing.
template <class F, class A, class Scalar>
constexpr bool check_vjp() {
  static_assert(HasVjp<A, Scalar>,
                "gradients need a transition with a way back: Gradient, zero_gradient, add_decay_flows, transport_vjp "
                "and pull_vjp, see transition/transport_vjp.hpp");
  constexpr bool embeds = F::score != Score::embedded || FeatureMapWithVjp<F>;
  static_assert(embeds, "gradients need embed_vjp(x, y, dy, dx) of a feature map with an embedded score");
  return HasVjp<A, Scalar> && embeds;
}

/// Gradients of the right sizes, all 0. What was there is kept where memory ends.
template <class Scalar, class A, class Q, class K, class V>
void begin_gradients(Gradients<Scalar, A>& gradients, const A& transition, const Q& queries, const K& keys,
                     const V& values, Index tokens) {
  typename A::Gradient of_transition = transition.zero_gradient(tokens);
  resize_anew(gradients.Q, queries.rows(), queries.cols());
  resize_anew(gradients.K, keys.rows(), keys.cols());
  resize_anew(gradients.V, values.rows(), values.cols());
  gradients.transition = std::move(of_transition);
  for (auto* x : {&gradients.Q, &gradients.K, &gradients.V}) x->setZero();
  gradients.scale = 0;
}

template <class DY, class Q, class V>
void check_d_rows(const DY& d_rows, const Q& queries, const V& values) {
  check_size("rows of dY", d_rows.rows(), values.rows(), "rows of V");
  check_size("columns of dY", d_rows.cols(), queries.cols(), "columns of Q, one a token");
}

}  // namespace SYMPOW_NAMESPACE::detail
