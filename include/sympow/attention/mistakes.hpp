// Calls that no form takes: one sentence from the compiler in the place of a list of candidates.
#pragma once

#include <tuple>

#include <sympow/attention/state.hpp>

namespace SYMPOW_NAMESPACE::detail {

template <class T>
concept ArrayExpression = requires(const std::remove_cvref_t<T>& x) { []<class D>(const Eigen::ArrayBase<D>&) {}(x); };

/// Whether T is a state, but not one of this scalar type and feature map.
template <class Scalar, class F, class T>
inline constexpr bool is_other_state = false;
template <class Scalar, class F, class S, class G>
inline constexpr bool is_other_state<Scalar, F, State<S, G>> = !std::is_same_v<S, Scalar> || !std::is_same_v<G, F>;

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
  static constexpr bool state = !arrays && (is_other_state<Scalar, F, std::remove_cvref_t<More>> || ...);
  static constexpr bool place = [] {
    if constexpr (arrays || state || std::is_void_v<Scalar> || sizeof...(More) <= output)
      return false;
    else
      return !std::is_convertible_v<std::tuple_element_t<output, std::tuple<X, More...>>, Batch<Scalar>>;
  }();

  /// The sentence.
  static Matrix<double> explain() {
    static_assert(!arrays, "queries, keys, values and outputs are matrices: give x.matrix() of an array expression x");
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
                   (Mistakes<F, output, Arguments...>::arrays || Mistakes<F, output, Arguments...>::state ||
                    Mistakes<F, output, Arguments...>::place);

}  // namespace SYMPOW_NAMESPACE::detail
