// What a forward pass leaves for its backward pass.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include <sympow/attention/diagnostics.hpp>
#include <sympow/attention/options.hpp>
#include <sympow/attention/state.hpp>

namespace SYMPOW_NAMESPACE {

template <class S, FiniteFeatureMap F>
class StateGradient;

namespace detail {
/// Of the attention form the rows and their sums, with what they were made by; of the chunked form the states.
template <class Scalar>
struct TapeContent {
  Form form = Form::automatic;

  std::vector<RowSum> sums;
  Matrix<Scalar> Y;
  RowKind kind = {};
  double scale = 1;
  Mask mask = {};

  std::vector<StateContent<Scalar>> states;
  Index tokens = 0, chunk = 0, between = 0;
  KeyAction action = KeyAction::none;
  Frame frame;  ///< behind the last token
};

template <class Scalar>
struct Adjoint;

/// The state of a head and its gradient; one that no call is given for a feature map without an embedding.
template <class Content>
struct NoState {
  Content content_;
  [[nodiscard]] static const void* feature_address() { return nullptr; }
};
template <class Scalar, class F>
struct StateOf {
  using type = NoState<StateContent<Scalar>>;
  using gradient = NoState<Adjoint<Scalar>>;
};
template <class Scalar, FiniteFeatureMap F>
struct StateOf<Scalar, F> {
  using type = State<Scalar, F>;
  using gradient = StateGradient<Scalar, F>;
};
}  // namespace detail

/// What a call leaves for its gradients, which need not compute the forward pass again. The call fills it that is given
/// `{Y, tape}`, and the same of the gradients takes it:
///
///     attention    rows y_i, and the sums Σ_j s_ij that they were divided by, 0 for rows without weight: e numbers and
///                  two of double a row
///     chunked      states before the first token and before every `Options::checkpoint` chunks, 0 being 1:
///                  (e + 1) D numbers each. Those between are recomputed, (k - 1)/k of a product of D (e + 1) a token
///
/// Gradients are the same bit for bit with and without a tape, and for every distance of states, except under channel
/// decay, where all are right, and of `chunked` where chunks are no longer than the state's tail. Queries, keys, values
/// and transition are not kept: they must be the same. Gradients refuse a tape of another form, feature map, size,
/// normalization, scale, mask or way to act on keys. A value, whose memory the next call uses again; empty if that
/// fails.
template <class Scalar, FeatureMap F>
class Tape {
 public:
  /// The form that has filled it; `automatic` if none has.
  [[nodiscard]] Form form() const { return content_.form; }
  [[nodiscard]] Index rows() const { return form() == Form::attention ? std::ssize(content_.sums) : 0; }    ///< rows
  [[nodiscard]] Index states() const { return form() == Form::chunked ? std::ssize(content_.states) : 0; }  ///< states
  [[nodiscard]] Index tokens_between() const { return content_.between; }  ///< tokens from one state to the next
  /// A copy of state n.
  [[nodiscard]] auto state(Index n) const {
    return detail::StateAccess::make<State<Scalar, F>>(*feature_, content_.states[static_cast<std::size_t>(n)]);
  }

 private:
  friend detail::StateAccess;

  [[nodiscard]] const void* feature_address() const { return feature_.get(); }
  void begin(const F& feature) {
    content_.form = Form::automatic;
    if constexpr (std::is_copy_constructible_v<F>)  // else maps are not compared
      if (!feature_ || !same_feature(*feature_, feature)) feature_ = std::make_shared<const F>(feature);
  }

  std::shared_ptr<const F> feature_;
  detail::TapeContent<Scalar> content_;
};

/// One for every query head of a batch. Heads that are cut into segments, and those of other forms or masks than
/// `attention` and `chunked` under causal(), leave an empty one.
template <class Scalar, FeatureMap F>
using Tapes = std::vector<Tape<Scalar, F>>;

}  // namespace SYMPOW_NAMESPACE
