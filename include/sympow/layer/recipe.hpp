// How a head makes its transition of its tokens, by weights that are learned.
#pragma once

#include <concepts>
#include <utility>

#include <sympow/core/heads.hpp>
#include <sympow/transition/product.hpp>

namespace SYMPOW_NAMESPACE {

/// Some parameters in place.
template <class S>
using Parameters = Eigen::Map<std::conditional_t<std::is_const_v<S>, const Vector<std::remove_const_t<S>>, Vector<S>>>;

/// A key head of a sequence, as a recipe sees it: what the layer has projected its T tokens to.
template <class Scalar>
struct HeadTokens {
  typename Heads<const Scalar>::Head logits;  ///< n_z × T, for the recipe
  typename Heads<const Scalar>::Head keys;    ///< d × T
  typename Heads<const Scalar>::Head values;  ///< e × T
  Parameters<const Scalar> parameters;        ///< n_p, of this head, the same for all sequences
  Index head = 0;                             ///< its number among the key heads
};

/// Gradients of the same.
template <class Scalar>
struct HeadTokensGradient {
  typename Heads<Scalar>::Head logits;  ///< is written
  typename Heads<Scalar>::Head keys;    ///< that of what went into the state becomes that of what was projected
  typename Heads<Scalar>::Head values;  ///< likewise
  Parameters<Scalar> parameters;        ///< is added to
};

/// An immutable rule by which a key head makes the transition of its tokens:
///
///     Index logits(Index d) const;          n_z: numbers of a token that the layer projects for it
///     Index parameters(Index d) const;      n_p: numbers of a head that are learned as they are
///     void initialize(Index head, Index heads, Index d, Parameters<S> p) const;       what they begin with
///     A transition(const HeadTokens<S>& x) const;                                     of T tokens
///     void transition_vjp(const HeadTokens<S>& x, const A::Gradient& g, HeadTokensGradient<S>& dx) const;
///     static constexpr bool writes;         whether other keys and values go into the state than those projected:
///     void write(const HeadTokens<S>& x, Heads<S>::Head keys, Heads<S>::Head values) const;    then it makes them
///
/// `transition_vjp` is the way back of `transition` and of `write`. Query heads of a group share the transition of
/// their key head, and its state. A product of recipes makes the product of their transitions.
template <class R>
concept Recipe = requires(const R& r, Index n, const HeadTokens<float>& x, Parameters<float> p) {
  { r.logits(n) } -> std::convertible_to<Index>;
  { r.parameters(n) } -> std::convertible_to<Index>;
  { R::writes } -> std::convertible_to<bool>;
  r.initialize(n, n, n, p);
  { r.transition(x) } -> Transition;
};

/// One of the logits of all tokens, in double.
template <class Scalar>
[[nodiscard]] Eigen::VectorXd logit_of(const HeadTokens<Scalar>& x, Index row = 0) {
  return x.logits.row(row).transpose().template cast<double>();
}

/// The transition that a recipe makes.
template <Recipe R, class Scalar>
using TransitionOf = decltype(std::declval<const R&>().transition(std::declval<const HeadTokens<Scalar>&>()));

/// What most recipes are alike in.
struct WritesAsProjected {
  static constexpr bool writes = false;
  [[nodiscard]] Index parameters(Index) const { return 0; }
  void initialize(Index, Index, Index, auto) const {}
};

/// Both of two recipes. At most one of them writes.
template <Recipe Left, Recipe Right>
class RecipeProduct {
  static_assert(!(Left::writes && Right::writes), "two recipes of one head both say what goes into its state");

 public:
  using LeftRecipe = Left;  ///< the type of the first
  static constexpr bool writes = Left::writes || Right::writes;

  /// Logits and parameters of the left one come first.
  RecipeProduct(Left left, Right right) : left_(std::move(left)), right_(std::move(right)) {}

  [[nodiscard]] Index logits(Index d) const { return left_.logits(d) + right_.logits(d); }
  [[nodiscard]] Index parameters(Index d) const { return left_.parameters(d) + right_.parameters(d); }
  template <class P>
  void initialize(Index head, Index heads, Index d, P p) const {
    left_.initialize(head, heads, d, first<typename P::Scalar>(p, d));
    right_.initialize(head, heads, d, second<typename P::Scalar>(p, d));
  }
  template <class Scalar>
  [[nodiscard]] auto transition(const HeadTokens<Scalar>& x) const {
    return left_.transition(first(x)) * right_.transition(second(x));
  }
  template <class Scalar>
  void write(const HeadTokens<Scalar>& x, typename Heads<Scalar>::Head keys,
             typename Heads<Scalar>::Head values) const {
    if constexpr (Left::writes)
      left_.write(first(x), keys, values);
    else
      right_.write(second(x), keys, values);
  }
  template <class Scalar, class Gradient>
  void transition_vjp(const HeadTokens<Scalar>& x, const Gradient& g, HeadTokensGradient<Scalar>& dx) const {
    const Index d = x.keys.rows(), n = left_.logits(d);
    HeadTokensGradient<Scalar> of_left{rows(dx.logits, 0, n), dx.keys, dx.values, first<Scalar>(dx.parameters, d)},
        of_right{rows(dx.logits, n, dx.logits.rows() - n), dx.keys, dx.values, second<Scalar>(dx.parameters, d)};
    // The one that writes is the last: it turns gradients of what was written into those of keys and values.
    if constexpr (Left::writes) {
      right_.transition_vjp(second(x), part_of<Right, Scalar>(g), of_right);
      left_.transition_vjp(first(x), part_of<Left, Scalar>(g), of_left);
    } else {
      left_.transition_vjp(first(x), part_of<Left, Scalar>(g), of_left);
      right_.transition_vjp(second(x), part_of<Right, Scalar>(g), of_right);
    }
  }

 private:
  // A factor's part of the gradient of a product, whose factors need not stand as recipes do: channel gates and a chain
  // are one. A product of recipes takes its parts itself.
  template <class R, class Scalar, class Gradient>
  static const auto& part_of(const Gradient& g) {
    if constexpr (requires { typename R::LeftRecipe; })
      return g;
    else
      return g.template of<TransitionOf<R, Scalar>>();
  }
  template <class Head>
  static Head rows(Head x, Index first, Index count) {
    return Head(x.data() + first, count, x.cols(), Eigen::OuterStride<>(x.outerStride()));
  }
  template <class S, class P>
  Parameters<S> first(P p, Index d) const {
    return Parameters<S>(p.data(), left_.parameters(d));
  }
  template <class S, class P>
  Parameters<S> second(P p, Index d) const {
    return Parameters<S>(p.data() + left_.parameters(d), right_.parameters(d));
  }
  template <class S>
  HeadTokens<S> first(const HeadTokens<S>& x) const {
    const Index d = x.keys.rows();
    return {rows(x.logits, 0, left_.logits(d)), x.keys, x.values, first<const S>(x.parameters, d), x.head};
  }
  template <class S>
  HeadTokens<S> second(const HeadTokens<S>& x) const {
    const Index d = x.keys.rows();
    return {rows(x.logits, left_.logits(d), right_.logits(d)), x.keys, x.values, second<const S>(x.parameters, d),
            x.head};
  }

  Left left_;
  Right right_;
};

/// Both of two recipes: `ForgetGate{} * LearnedRotary(theta)` is that of conformal-sympow.
template <Recipe Left, Recipe Right>
[[nodiscard]] RecipeProduct<Left, Right> operator*(Left left, Right right) {
  return {std::move(left), std::move(right)};
}

/// A transition that is not learned: the same for all heads, or one for each key head. It fits every number of tokens.
///
///     Fixed(stationary())    no positions;    Fixed(rotary(theta))    rotary positions
///     Fixed(std::vector{constant_decay(.9), constant_decay(.99)})    RetNet and ALiBi, of two heads
template <Transition A>
class Fixed : public WritesAsProjected {
 public:
  /// Throws `ShapeMismatch` for a transition that is made for a number of tokens.
  explicit Fixed(A transition) : Fixed(std::vector{std::move(transition)}) {}
  /// Throws likewise, or for none.
  explicit Fixed(std::vector<A> of_heads) : of_heads_(std::move(of_heads)) {
    if (of_heads_.empty()) detail::raise<ShapeMismatch>("fixed: there is no transition, must be at least one");
    for (const A& x : of_heads_)
      if (x.length() != Dynamic)
        detail::raise<ShapeMismatch>("fixed: a transition is made for ", x.length(),
                                     " tokens, must fit every number of them");
  }

  [[nodiscard]] Index logits(Index) const { return 0; }
  template <class Scalar>
  [[nodiscard]] A transition(const HeadTokens<Scalar>& x) const {
    const auto n = static_cast<std::size_t>(x.head);
    if (of_heads_.size() == 1) return of_heads_[0];
    if (n >= of_heads_.size())
      detail::raise<ShapeMismatch>("fixed: there are ", of_heads_.size(), " transitions, none for key head ", n);
    return of_heads_[n];
  }
  template <class Scalar, class Gradient>
  void transition_vjp(const HeadTokens<Scalar>&, const Gradient&, HeadTokensGradient<Scalar>&) const {}

 private:
  std::vector<A> of_heads_;
};

}  // namespace SYMPOW_NAMESPACE
