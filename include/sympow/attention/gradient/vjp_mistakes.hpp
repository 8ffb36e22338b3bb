// Calls of gradients that are none: one sentence from the compiler in the place of a list of candidates.
#pragma once

#include <sympow/attention/gradients.hpp>
#include <sympow/attention/mistakes.hpp>
#include <sympow/attention/vjp_workspace.hpp>

namespace SYMPOW_NAMESPACE {
template <class S, FiniteFeatureMap F>
class StateGradient;
template <class S, FiniteFeatureMap F>
class Checkpoints;

namespace detail {

/// Type number n of some, or `NoArgument` where there are fewer.
struct NoArgument {};
template <std::size_t n, class... T>
struct TypeAt : std::type_identity<NoArgument> {};
template <std::size_t n, class... T>
  requires(n < sizeof...(T))
struct TypeAt<n, T...> : std::tuple_element<n, std::tuple<T...>> {};

template <class T>
inline constexpr bool is_gradients = false;
template <class Scalar, class A>
inline constexpr bool is_gradients<Gradients<Scalar, A>> = true;

/// What is wrong with the arguments of `attention_vjp` that come after the transition, if it is one of these; of
/// another call where gradients and their workspace stand at `place`.
template <class F, class A, std::size_t place, class... Arguments>
struct VjpMistakes {
  template <std::size_t n>
  using At = typename TypeAt<n, Arguments...>::type;
  using Scalar = typename ScalarOf<At<0>>::type;
  using Plain = Mistakes<F, no_output, Arguments...>;

  template <std::size_t... n>
  static constexpr bool are_matrices = (MatrixExpression<At<n>> && ...);

  static constexpr bool plain = Plain::arrays || Plain::memory || Plain::state;
  static constexpr bool rows = !plain && are_matrices<0, 1, 2> && !are_matrices<3>;
  static constexpr bool gradients = !plain && are_matrices<0, 1, 2, 3> &&
                                    is_gradients<std::remove_cvref_t<At<place>>> &&
                                    !std::is_convertible_v<At<place>, Gradients<Scalar, A>&>;
  static constexpr bool workspace = !plain && !gradients && are_matrices<0, 1, 2, 3> &&
                                    is_gradients<std::remove_cvref_t<At<place>>> &&
                                    !std::is_convertible_v<At<place + 1>, VjpWorkspace<Scalar>&>;
  static constexpr bool any = plain || rows || gradients || workspace;

  /// The sentence.
  static Gradients<double, A> explain() {
    if constexpr (plain) static_cast<void>(Plain::explain());
    static_assert(!rows, "gradients are those of a loss in Y: after the values stands dY, a matrix of the shape of Y");
    static_assert(!gradients,
                  "gradients that are written in place are a variable of type Gradients<Scalar, A>, with the scalar "
                  "type of the keys and the type of the transition");
    static_assert(!workspace,
                  "after the gradients that a call writes to stands a variable of type VjpWorkspace<Scalar>, with the "
                  "scalar type of the keys");
    return {};
  }
};

/// The same of `chunked_vjp`, whose gradients may come after a state and its gradient.
template <class F, class A, class... Arguments>
struct ChunkedVjpMistakes : VjpMistakes<F, A, 6, Arguments...> {
  using Base = VjpMistakes<F, A, 6, Arguments...>;
  using Scalar = typename Base::Scalar;
  template <std::size_t n>
  using At = typename TypeAt<n, Arguments...>::type;

  static constexpr bool states = [] {
    if constexpr (Base::any || !FiniteFeatureMap<F> || sizeof...(Arguments) < 5 || std::is_void_v<Scalar>)
      return false;
    else if constexpr (std::is_convertible_v<At<4>, const Options&>)
      return false;
    else
      return !(std::is_convertible_v<At<4>, const State<Scalar, F>&> ||
               std::is_convertible_v<At<4>, const Checkpoints<Scalar, F>&>) ||
             !std::is_convertible_v<At<5>, StateGradient<Scalar, F>&>;
  }();
  static constexpr bool outputs = !Base::any && !states && sizeof...(Arguments) > 6 &&
                                  !is_gradients<std::remove_cvref_t<At<6>>> &&
                                  !std::is_convertible_v<At<6>, const Options&>;
  static constexpr bool any = Base::any || states || outputs;

  /// The sentence.
  static Gradients<double, A> explain() {
    static_assert(!outputs,
                  "after the gradient of a state stand options, or what a call writes to: variables of types "
                  "Gradients<Scalar, A> and VjpWorkspace<Scalar>, with the scalar type of the keys and the type of the "
                  "transition");
    static_assert(
        !states,
        "after dY stand the state before the first token, or Checkpoints, and the gradient of the state behind "
        "the last, a variable of type StateGradient<Scalar, Feature>, with the scalar type of the keys and "
        "the type of the feature map");
    return Base::explain();
  }
};

/// What is wrong with the arguments of `attend_vjp` after its transitions, if it is one of these.
template <class F, class... Arguments>
struct BatchVjpMistakes {
  template <std::size_t n>
  using At = typename TypeAt<n, Arguments...>::type;
  template <std::size_t n>
  using ScalarAt = heads_scalar_t<At<n>>;
  using Scalar = std::conditional_t<std::is_void_v<ScalarAt<0>>, double, std::remove_const_t<ScalarAt<0>>>;
  template <std::size_t n>
  static constexpr bool is_heads = !std::is_void_v<ScalarAt<n>>;
  template <std::size_t... n>
  static constexpr bool are_inputs = (std::is_same_v<std::remove_const_t<ScalarAt<n>>, Scalar> && ...);

  static constexpr bool has_pass = std::is_same_v<std::remove_cvref_t<At<4>>, ForwardPass<Scalar, F>>;
  static constexpr bool has_states = !has_pass && !is_heads<4> && (is_heads<5> || is_heads<6>);
  static constexpr std::size_t place = has_pass ? 5 : has_states ? 6 : 4;  // of dQ

  static constexpr bool heads = !are_inputs<0, 1, 2, 3>;
  static constexpr bool states = !heads && has_states && [] {
    if constexpr (has_states && FiniteFeatureMap<F>)
      return !RangeOf<const std::remove_cvref_t<At<4>>, const State<Scalar, F>> ||
             !RangeOf<std::remove_reference_t<At<5>>, StateGradient<Scalar, F>>;
    return true;
  }();
  static constexpr bool outputs =
      !heads && !states &&
      !(std::is_same_v<ScalarAt<place>, Scalar> && std::is_same_v<ScalarAt<place + 1>, Scalar> &&
        std::is_same_v<ScalarAt<place + 2>, Scalar>);
  static constexpr bool workspaces =
      !heads && !states && !outputs && !std::is_convertible_v<At<place + 3>, VjpWorkspaces<Scalar>&>;
  static constexpr bool options = !heads && !states && !outputs && !workspaces && sizeof...(Arguments) > place + 4 &&
                                  !std::is_convertible_v<At<place + 4>, const BatchOptions&>;
  static constexpr bool any = heads || states || outputs || workspaces || options;

  /// The sentence.
  static void explain() {
    static_assert(
        !heads,
        "queries, keys, values and dY of a batch are Heads of one scalar type: Heads<const float>::bthd(data, "
        "B, T, H, d), or its bhtd or packed");
    static_assert(
        !states,
        "between dY and dQ of a batch stand a container of its states, State<Scalar, Feature>, and one of the "
        "gradients of the states behind them, StateGradient<Scalar, Feature>, or a ForwardPass<Scalar, Feature>, or "
        "nothing");
    static_assert(!outputs,
                  "after dY of a batch, or after the gradients of its states, stand dQ, dK and dV, which are Heads of "
                  "the scalar type of queries, not of a const one");
    static_assert(!workspaces,
                  "after dV of a batch stands a variable of type VjpWorkspaces<Scalar>, with the scalar type of the "
                  "heads");
    static_assert(!options, "the options of a batch are BatchOptions; Options of its heads are in them, .head");
  }
};

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
