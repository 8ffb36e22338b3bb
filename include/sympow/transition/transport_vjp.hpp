// The way back through a transition: from the gradients of what `transport` and `pull` made to those of queries, keys
// and parameters. dX is ∂loss/∂X.
#pragma once

#include <sympow/rotation/turns.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE {

/// A segment of n tokens on the way back: what `transport` was given and what it made of it, and the gradients of the
/// latter, all multiples of one unit. Say at once what it refers to: a `Batch` is assigned entry by entry. Queries and
/// keys may be scaled by powers of 2, a column each, as long as all that
/// is here refers to the same ones: these powers cancel in the gradients of parameters.
template <class S>
struct TransportVjp {
  /// d × n, after transport. On return they hold anything.
  Batch<S> moved_queries,
      moved_keys;  ///< likewise
  /// d × n. On entry the gradients of the moved ones from all but the segment's own pairs: from the state and other
  /// segments, or of embedded scores. On return those of the loaded ones, own pairs included.
  Batch<S> d_queries,
      d_keys;  ///< likewise
  /// n × n, (j, i) as in `transport`; anything for j > i, which is set to 0. Empty: there are none.
  Batch<S> d_logits = no_logits<S>();
  /// d × n, as they were before transport, not written to. Only KeyAction::scale and mix read them.
  Batch<S> queries = no_logits<S>(),
           keys = no_logits<S>();  ///< likewise
  /// KeyAction::mix: b S⁺ before the segment and H after it, e' × d each, b the scalar decay of the whole segment.
  /// Empty: no state.
  Batch<S> state = no_logits<S>(),
           adjoint = no_logits<S>();  ///< H, see `state`
  /// What flows through the whole segment: the couplings of keys before it with rows behind it, in the unit, which
  /// every token of it acts on and which are added to every F_t. For scale d numbers, a channel each; for turn one a
  /// plane of `planes()`, with the gauge in it: what the loss grows by if the whole sequence turns, a radian, 0 for a
  /// loss of rows. Null: nothing flows through.
  double* through = nullptr;
  /// The true gradients are so many times those here. Those of parameters are true.
  double unit = 1;
  /// Turn with embedded scores or under a full mask: what is moved sees its own angle, and not the difference of two.
  /// No pairs then, d_logits are empty; with q̃_i, k̂_i the moved ones and dq̃_i, dk̂_i their gradients on entry
  ///
  ///     F_t = through + Σ_{i≥t} (⟨dq̃_i, J q̃_i⟩ + ⟨dk̂_i, J k̂_i⟩)
  ///
  /// over the tokens i of this segment, and `through` grows by the sum over all of them: it is then that of the segment
  /// before. J turns a plane by a right angle.
  bool is_absolute = false;
};

/// The planes in which angles add up from token to token, of what states see: coordinates first(u) and second(u) of
/// plane u. None where nothing flows through a whole segment: without turns, and for positions, which are absolute.
struct Planes {
  Index count = 0;                         ///< of planes
  Pairing pairing = Pairing::interleaved;  ///< which coordinates are a plane

  /// One coordinate of plane u.
  [[nodiscard]] Index first(Index u) const { return pairing == Pairing::interleaved ? 2 * u : u; }
  /// The other one.
  [[nodiscard]] Index second(Index u) const { return pairing == Pairing::interleaved ? 2 * u + 1 : u + count; }
};

namespace detail {

/// A transition with a way back. What acts at token t, log γ_t, log a_t or an angle, multiplies exactly the pairs
/// j < t ≤ i; its gradient is their flow F_t = Σ_{j<t≤i} f_ij, f_ij the pair's coupling, from sums that hold true terms
/// only and no difference. A model has
///
///     struct Gradient;                                   of its parameters, a value
///     Gradient zero_gradient(Index tokens) const;        zeros; tokens: T of the call
///     void add_decay_flows(Segment s, const double* flows, Gradient&) const;
///                                                        what multiplies scores: d log γ_t += flows[t - s.begin]
///     void transport_vjp(Frame& frame, Segment s, TransportVjp<S>& x, Gradient&) const;
///                                                        the frame goes on from the segment's start as in `transport`
///     void pull_vjp(Segment s, Batch<S> X, Batch<S> dX, double unit, Gradient&) const;
///                                                        X before `pull`; dX on entry of the pulled, on return of X
///     Planes planes() const;                             only where it turns by angles that add up
///
/// those of batches for every scalar type S that it serves. All add to the gradients of parameters.
template <class A, class S = double>
concept HasVjp = requires(const A& a, typename A::Gradient& g, Frame& frame, Segment s, TransportVjp<S>& x, Batch<S> X,
                          const double* flows, double unit) {
  { a.zero_gradient(Index()) } -> std::same_as<typename A::Gradient>;
  a.add_decay_flows(s, flows, g);
  a.template transport_vjp<S>(frame, s, x, g);
  a.template pull_vjp<S>(s, X, X, unit, g);
};

/// The gradient of a transition, empty where it has none.
template <class A>
struct GradientOf {
  struct type {};
};
template <class A>
  requires requires { typename A::Gradient; }
struct GradientOf<A> {
  using type = typename A::Gradient;
};

/// One whose tokens go back on several threads:
///
///     A part(Segment s) const;                            of some tokens
///     void join(const Gradient& part, Segment s, Gradient& whole) const;
///                                                         adds to a gradient that of the part of these tokens
template <class A>
concept HasParts = requires(const A& a, typename A::Gradient& g, Segment s) {
  { a.part(s) } -> std::same_as<A>;
  a.join(g, s, g);
};

/// dQ += K dX and dK += Q dXᵀ for logits of pairs j ≤ i of n tokens; sets dX to 0 for j > i.
template <class S>
void add_causal_pairs(Batch<S> Q, Batch<S> K, Batch<S> dX, Batch<S> dQ, Batch<S> dK) {
  constexpr Index group = 24;  // whole tiles of a product
  if (dX.size() == 0) return;
  dX.template triangularView<Eigen::StrictlyLower>().setZero();
  for (Index i = 0, n = dX.cols(), size; i < n; i += size) {
    size = std::min(group, n - i);
    add_product(dQ.middleCols(i, size), K.leftCols(i + size), dX.block(0, i, i + size, size));
    add_product(dK.middleCols(i, size), Q.rightCols(n - i), dX.block(i, i, size, n - i).transpose());
  }
}

}  // namespace detail

template <class S, class Gradient>
void LeavesKeys::transport_vjp(Frame&, Segment, TransportVjp<S>& x, Gradient&) const {
  detail::add_causal_pairs<S>(x.moved_queries, x.moved_keys, x.d_logits, x.d_queries, x.d_keys);
}

/// The way back through a transition of any type behind one interface, beside its `TransitionView`. It refers to the
/// transition and to the gradient that it adds to.
template <class Scalar>
class VjpView {
 public:
  VjpView() = default;
  VjpView(const VjpView&) = delete;
  VjpView& operator=(const VjpView&) = delete;
  virtual ~VjpView() = default;

  virtual void add_decay_flows(Segment segment, const double* flows) = 0;
  virtual void transport_vjp(Frame& frame, Segment segment, TransportVjp<Scalar>& x) = 0;
  virtual void pull_vjp(Segment segment, Batch<Scalar> X, Batch<Scalar> dX, double unit) = 0;
  [[nodiscard]] virtual Planes planes() const = 0;
};

namespace detail {

/// Those of a transition, none where it has no such function.
template <Transition A>
[[nodiscard]] Planes planes_of(const A& transition) {
  if constexpr (requires { transition.planes(); })
    return transition.planes();
  else
    return {};
}

template <class Scalar, Transition A>
class VjpViewOf final : public VjpView<Scalar> {
 public:
  VjpViewOf(const A& transition, typename A::Gradient& gradient) : transition_(transition), gradient_(gradient) {}

  void add_decay_flows(Segment segment, const double* flows) override {
    transition_.add_decay_flows(segment, flows, gradient_);
  }
  void transport_vjp(Frame& frame, Segment segment, TransportVjp<Scalar>& x) override {
    transition_.template transport_vjp<Scalar>(frame, segment, x, gradient_);
  }
  void pull_vjp(Segment segment, Batch<Scalar> X, Batch<Scalar> dX, double unit) override {
    transition_.template pull_vjp<Scalar>(segment, X, dX, unit, gradient_);
  }
  [[nodiscard]] Planes planes() const override { return planes_of(transition_); }

 private:
  const A& transition_;
  typename A::Gradient& gradient_;
};

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
