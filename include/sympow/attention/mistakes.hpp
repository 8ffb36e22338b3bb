// Calls that no form takes: one sentence from the compiler in the place of a list of candidates.
#pragma once

#include <concepts>
#include <ranges>
#include <tuple>

#include <sympow/attention/heads.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/attention/workspace.hpp>

namespace SYMPOW_NAMESPACE {
struct BatchOptions;
template <class S, FeatureMap F>
class ForwardPass;

namespace detail {

template <class T>
concept ArrayExpression = requires(const std::remove_cvref_t<T>& x) { []<class D>(const Eigen::ArrayBase<D>&) {}(x); };

/// Whether T is a state, but not one of this scalar type and feature map.
template <class Scalar, class F, class T>
inline constexpr bool is_other_state = false;
template <class Scalar, class F, class S, class G>
inline constexpr bool is_other_state<Scalar, F, State<S, G>> = !std::is_same_v<S, Scalar> || !std::is_same_v<G, F>;

/// Whether T is memory without a shape: a pointer to numbers, or a container of them that is not one of Eigen's.
template <class T>
inline constexpr bool is_plain_memory = false;
template <class Number>
inline constexpr bool is_plain_memory<Number*> = std::is_arithmetic_v<Number>;
template <class T>
  requires(!MatrixExpression<T> && !ArrayExpression<T> && std::ranges::contiguous_range<T>)
inline constexpr bool is_plain_memory<T> = std::is_arithmetic_v<std::ranges::range_value_t<T>>;

/// The scalar type of a matrix.
template <class X>
struct ScalarOf : std::type_identity<void> {};
template <MatrixExpression X>
struct ScalarOf<X> : std::type_identity<scalar_t<X>> {};

/// The position of an output that a form does not have.
inline constexpr std::size_t no_output = 99;

/// What is wrong with the arguments of a form that come after its feature map and transition, if it is one of these.
/// The one at position `output` is Y, where another follows it.
template <class F, std::size_t output, class X, class... More>
struct Mistakes {
  using Scalar = typename ScalarOf<X>::type;

  static constexpr bool arrays = (ArrayExpression<X> || ... || ArrayExpression<More>);
  static constexpr bool memory =
      !arrays && (is_plain_memory<std::decay_t<X>> || ... || is_plain_memory<std::decay_t<More>>);
  static constexpr bool state = !arrays && !memory && (is_other_state<Scalar, F, std::remove_cvref_t<More>> || ...);
  static constexpr bool place = [] {
    if constexpr (arrays || memory || state || std::is_void_v<Scalar> || sizeof...(More) <= output)
      return false;
    else
      return !std::is_convertible_v<std::tuple_element_t<output, std::tuple<X, More...>>, Batch<Scalar>>;
  }();

  /// The sentence.
  static Matrix<double> explain() {
    static_assert(!arrays, "queries, keys, values and outputs are matrices: give x.matrix() of an array expression x");
    static_assert(!memory,
                  "queries, keys, values and outputs are matrices with one token a column: of T x d numbers in memory "
                  "give Eigen::Map<const Eigen::MatrixXf>(data, d, T), or MatrixXd");
    static_assert(!state,
                  "the state is one of another feature map or scalar type than the call: State<Scalar, Feature>, with "
                  "the scalar type of the keys and the type of the feature map");
    static_assert(!place,
                  "an output is written in place: it is column-major, one token a column, and has the scalar type of "
                  "queries, keys and values; of a row-major T x e matrix give the transpose");
    return {};
  }
};

template <class F, std::size_t output, class... Arguments>
concept Mistaken = sizeof...(Arguments) > 0 &&
                   (Mistakes<F, output, Arguments...>::arrays || Mistakes<F, output, Arguments...>::memory ||
                    Mistakes<F, output, Arguments...>::state || Mistakes<F, output, Arguments...>::place);

/// What gives the states of a batch, or other values of a type.
template <class R, class X>
concept RangeOf = std::ranges::random_access_range<R> && std::convertible_to<std::ranges::range_reference_t<R&>, X&>;
template <class R, class Scalar, class F>
concept StatesOf = RangeOf<R, State<Scalar, F>>;

/// The scalar type of heads, const where they are read only; void of all else.
template <class S>
std::type_identity<S> scalar_of_heads(const Heads<S>&);
std::type_identity<void> scalar_of_heads(...);
template <class X>
using heads_scalar_t = typename decltype(scalar_of_heads(std::declval<X>()))::type;

/// What is wrong with the arguments of a batch after its transitions, if it is one of these. A to D follow the values:
/// states, outputs and a forward pass, of which only outputs must be there; one that is not given is BatchOptions.
template <class F, class Q, class K, class V, class A, class B, class C, class D>
struct BatchMistakes {
  static constexpr bool has_states = std::is_void_v<heads_scalar_t<A>>;
  using Y = std::conditional_t<has_states, B, A>;
  using S = heads_scalar_t<Y>;
  using Scalar = std::conditional_t<std::is_void_v<S>, double, std::remove_const_t<S>>;
  static constexpr bool has_one_more = has_states || std::is_same_v<std::remove_reference_t<B>, ForwardPass<Scalar, F>>;
  using W = std::conditional_t<has_one_more, C, B>;
  using O = std::conditional_t<has_one_more, D, C>;
  template <class X>
  static constexpr bool is_input = std::is_convertible_v<X, Heads<const Scalar>>;

  template <class X>
  static constexpr bool is_heads = !std::is_void_v<heads_scalar_t<X>>;

  static constexpr bool outputs = is_heads<Q> && is_heads<K> && is_heads<V> && std::is_void_v<S>;
  static constexpr bool heads =
      !outputs && (!std::is_same_v<S, Scalar> || !is_input<Q> || !is_input<K> || !is_input<V>);
  static constexpr bool states = !outputs && !heads && has_states && !StatesOf<A, Scalar, F>;
  static constexpr bool workspaces = !outputs && !heads && !states && !std::is_convertible_v<W, Workspaces<Scalar>&>;
  static constexpr bool options =
      !outputs && !heads && !states && !workspaces && !std::is_convertible_v<O, const BatchOptions&>;
  static constexpr bool any = outputs || heads || states || workspaces || options;

  /// The sentence.
  static void explain() {
    static_assert(!outputs,
                  "after the values of a batch, or after its states, stand its outputs, which are Heads as well, and "
                  "then a variable of type Workspaces<Scalar>");
    static_assert(!heads,
                  "queries, keys, values and outputs of a batch are Heads of one scalar type, outputs not of a const "
                  "one: Heads<float>::bthd(data, B, T, H, d), or its bhtd or packed");
    static_assert(!states,
                  "before the outputs of a batch stands a container of its states, State<Scalar, Feature>, with the "
                  "scalar type of the heads and the type of the feature map, or nothing; a view of states gives "
                  "references to them, not const ones, nor values or pointers");
    static_assert(!workspaces,
                  "after the outputs of a batch stands a variable of type Workspaces<Scalar>, with the scalar type of "
                  "the heads, or before it a ForwardPass<Scalar, Feature>; states stand before the outputs");
    static_assert(!options, "the options of a batch are BatchOptions; Options of its heads are in them, .head");
  }
};

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
