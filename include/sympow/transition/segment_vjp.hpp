// Backward pass of a transition: from gradients of the results of `to_segment_frame` and `apply_to_queries` to those
// of queries, keys and parameters. dX is ∂loss/∂X.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <sympow/core/visitor.hpp>
#include <sympow/rotation/turns.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE {

/// Data of a segment of n tokens in the backward pass: inputs and results of `to_segment_frame`, and gradients of the
/// results, all in one common unit. Bind all members at construction; `=` on a `Batch` copies elements. Columns of
/// queries and keys may be scaled by powers of 2 if all members use the same ones; these cancel in gradients of
/// parameters.
template <class S>
struct SegmentVjp {
  /// d × n, after to_segment_frame. Unspecified on return.
  Batch<S> moved_queries,
      moved_keys;  ///< see `moved_queries`
  /// d × n. On entry: gradients of the transported queries and keys from the state, other segments or embedded scores,
  /// without the segment's own pairs. On return: gradients of queries and keys, own pairs included.
  Batch<S> d_queries,
      d_keys;  ///< see `d_queries`
  /// n × n, (j, i) as in `to_segment_frame`; entries j > i are ignored and set to 0. Empty: no logits.
  Batch<S> d_logits = no_logits<S>();
  /// d × n, before to_segment_frame, read-only. Only KeyAction::scale and mix read them.
  Batch<S> queries = no_logits<S>(),
           keys = no_logits<S>();  ///< see `queries`
  /// KeyAction::mix: b S⁺ before the segment and H after it, e' × d each, b its total scalar decay. Empty: no state.
  Batch<S> state = no_logits<S>(),
           adjoint = no_logits<S>();  ///< H, see `state`
  /// The flow through the whole segment, in the unit: couplings of earlier keys with later rows, added to every F_t.
  /// For scale: d entries, one per channel. For turn: one per plane of `planes()`, including the derivative of the loss
  /// by a common rotation of the sequence (0 for a loss of rows). Null: none.
  double* through = nullptr;
  /// True gradients are `unit` times those here; gradients of parameters are true.
  double unit = 1;
  /// KeyAction::turn with embedded scores or a full mask: queries and keys depend on absolute angles. There are no
  /// pairs and d_logits is empty. With q̃_i, k̂_i transported and dq̃_i, dk̂_i their gradients on entry
  ///
  ///     F_t = through + Σ_{i≥t} (⟨dq̃_i, J q̃_i⟩ + ⟨dk̂_i, J k̂_i⟩)
  ///
  /// over the tokens i of this segment; `through` then becomes that of the previous segment, by adding the sum over all
  /// of them. J rotates a plane by a right angle.
  bool is_absolute = false;
};

/// The planes whose angles accumulate over tokens: coordinates first(u) and second(u) of plane u. Empty if nothing
/// flows through a segment: without rotations, or with absolute positions.
struct Planes {
  Index count = 0;                         ///< number of planes
  Pairing pairing = Pairing::interleaved;  ///< which coordinates form a plane

  /// First coordinate of plane u.
  [[nodiscard]] Index first(Index u) const { return pairing == Pairing::interleaved ? 2 * u : u; }
  /// Second coordinate of plane u.
  [[nodiscard]] Index second(Index u) const { return pairing == Pairing::interleaved ? 2 * u + 1 : u + count; }
};

namespace detail {

/// A transition with gradients. A parameter at token t (log γ_t, log a_t or an angle) affects exactly the pairs j < t ≤
/// i. Its gradient is their flow F_t = Σ_{j<t≤i} f_ij of couplings f_ij, summed without subtractions. A model provides
///
///     struct Gradient;                                   a value type
///     Gradient zero_gradient(Index tokens) const;        zeros for T tokens
///     void add_decay_flows(Segment s, const double* flows, Gradient&) const;
///                                                        scalar decay: d log γ_t += flows[t - s.begin]
///     void to_segment_frame_vjp(Frame& frame, Segment s, SegmentVjp<S>& x, Gradient&) const;
///                                                        `frame` as in `to_segment_frame`
///     void apply_to_queries_vjp(Segment s, Batch<S> X, Batch<S> dX, double unit, Gradient&) const;
///                                                        X before `apply_to_queries`; dX: in of the result, out of X
///     Planes planes() const;                             only for angles that accumulate
///
/// for every scalar type S that it supports. All add to the gradients of parameters.
template <class A, class S = double>
concept HasVjp = requires(const A& a, typename A::Gradient& g, Frame& frame, Segment s, SegmentVjp<S>& x, Batch<S> X,
                          const double* flows, double unit) {
  { a.zero_gradient(Index()) } -> std::same_as<typename A::Gradient>;
  a.add_decay_flows(s, flows, g);
  a.template to_segment_frame_vjp<S>(frame, s, x, g);
  a.template apply_to_queries_vjp<S>(s, X, X, unit, g);
};

/// The gradient type of a transition; empty if it has none.
template <class A>
struct GradientOf {
  struct type {};
};
template <class A>
  requires requires { typename A::Gradient; }
struct GradientOf<A> {
  using type = typename A::Gradient;
};

/// A transition whose backward pass can run on several threads:
///
///     A part(Segment s) const;                            the transition of a segment
///     void join(const Gradient& part, Segment s, Gradient& whole) const;
///                                                         adds the gradient of that part
template <class A>
concept HasParts = requires(const A& a, typename A::Gradient& g, Segment s) {
  { a.part(s) } -> std::same_as<A>;
  a.join(g, s, g);
};

/// dQ += K dX and dK += Q dXᵀ for pairs j ≤ i of n tokens; sets dX to 0 for j > i.
template <class S>
void add_causal_pairs(Batch<S> Q, Batch<S> K, Batch<S> dX, Batch<S> dQ, Batch<S> dK) {
  constexpr Index group = 24;  // multiple of the tile size
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
void KeepsKeys::to_segment_frame_vjp(Frame&, Segment, SegmentVjp<S>& x, Gradient&) const {
  detail::add_causal_pairs<S>(x.moved_queries, x.moved_keys, x.d_logits, x.d_queries, x.d_keys);
}

/// Type-erased backward pass of a transition, with its `TransitionView`. Refers to the transition and to the gradient
/// that it adds to.
template <class Scalar>
class VjpView {
 public:
  VjpView() = default;
  VjpView(const VjpView&) = delete;
  VjpView& operator=(const VjpView&) = delete;
  virtual ~VjpView() = default;

  [[nodiscard]] virtual const TransitionView<Scalar>& transition() const = 0;
  virtual void add_decay_flows(Segment segment, const double* flows) = 0;
  virtual void to_segment_frame_vjp(Frame& frame, Segment segment, SegmentVjp<Scalar>& x) = 0;
  virtual void apply_to_queries_vjp(Segment segment, Batch<Scalar> X, Batch<Scalar> dX, double unit) = 0;
  [[nodiscard]] virtual Planes planes() const = 0;
  /// That of `TransitionView::factor_out_max_gate`, which adds to the same gradient: the flow through a channel is that
  /// through all of a_t. Null for other transitions.
  [[nodiscard]] virtual std::unique_ptr<VjpView> factor_out_max_gate(int degree) = 0;

  /// For a transition of `HasParts`: segments of so many tokens, each with a gradient of its own.
  virtual void begin_parts(Index tokens, Index tokens_of_part) = 0;
  /// visit(the view of segment n).
  virtual void with_part(Index n, const detail::Visitor<VjpView&>& visit) = 0;
  virtual void join_parts() = 0;  ///< adds their gradients to that of the whole
};

namespace detail {

template <class Scalar, Transition A>
class VjpViewOf final : public VjpView<Scalar> {
  using Gradient = typename A::Gradient;

 public:
  VjpViewOf(const A& transition, Gradient& gradient) : transition_(transition), gradient_(gradient) {}
  /// Of a transition without its largest gates, which it owns, with these as scalar ones.
  VjpViewOf(Eigen::VectorXd log_gates, A transition, Gradient& gradient)
      : gated_(std::in_place, std::move(log_gates), std::move(transition)),
        transition_(gated_->transition()),
        gradient_(gradient) {}

  [[nodiscard]] const TransitionView<Scalar>& transition() const override { return gated_ ? *gated_ : view_; }
  void add_decay_flows(Segment segment, const double* flows) override {
    transition_.add_decay_flows(segment, flows, gradient_);
  }
  void to_segment_frame_vjp(Frame& frame, Segment segment, SegmentVjp<Scalar>& x) override;
  void apply_to_queries_vjp(Segment segment, Batch<Scalar> X, Batch<Scalar> dX, double unit) override;
  [[nodiscard]] Planes planes() const override {
    if constexpr (requires { transition_.planes(); })
      return transition_.planes();
    else
      return {};
  }
  [[nodiscard]] std::unique_ptr<VjpView<Scalar>> factor_out_max_gate(int degree) override {
    if constexpr (HasMaxGates<A>) {
      if (transition_.total_max_log_gate() == 0) return nullptr;
      Eigen::VectorXd slowest;
      A rest = transition_.factor_out_max_gate(slowest);
      return std::make_unique<VjpViewOf>(degree * slowest, std::move(rest), gradient_);
    } else {
      return nullptr;
    }
  }

  void begin_parts(Index tokens, Index tokens_of_part) override {
    if constexpr (HasParts<A>)
      for (Index begin = 0; begin < tokens; begin += tokens_of_part) {
        const Index size = std::min(tokens_of_part, tokens - begin);
        parts_.emplace_back(transition_.zero_gradient(size), Segment{begin, size});
      }
  }
  void with_part(Index n, const Visitor<VjpView<Scalar>&>& visit) override {
    if constexpr (HasParts<A>) {
      auto& [gradient, segment] = parts_[static_cast<std::size_t>(n)];
      const A part = transition_.part(segment);
      VjpViewOf of_part(part, gradient);
      visit(of_part);
    }
  }
  void join_parts() override {
    if constexpr (HasParts<A>)
      for (const auto& [gradient, segment] : parts_) transition_.join(gradient, segment, gradient_);
  }

 private:
  std::optional<GatedView<Scalar, A>> gated_;
  const A& transition_;
  Gradient& gradient_;
  ViewOf<Scalar, A> view_{transition_};
  std::vector<std::pair<Gradient, Segment>> parts_;
};

template <class Scalar, Transition A>
void VjpViewOf<Scalar, A>::to_segment_frame_vjp(Frame& frame, Segment segment, SegmentVjp<Scalar>& x) {
  transition_.template to_segment_frame_vjp<Scalar>(frame, segment, x, gradient_);
}
template <class Scalar, Transition A>
void VjpViewOf<Scalar, A>::apply_to_queries_vjp(Segment segment, Batch<Scalar> X, Batch<Scalar> dX, double unit) {
  transition_.template apply_to_queries_vjp<Scalar>(segment, X, dX, unit, gradient_);
}

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
