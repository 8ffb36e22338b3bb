// A call of a state form, in the terms of its engine.
#pragma once

#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/engine/memory.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Everything in it is checked.
template <class Scalar, FiniteFeatureMap F>
struct StateCall {
  const TransitionView<Scalar>& transition;
  RowKind rows;
  Options options;
  MatrixView<const Scalar> Q, K, V;
  State<Scalar, F>& state;
  MatrixView<Scalar> Y;
  EngineMemory<Scalar>& memory;
  bool reads = true;  ///< the tokens have queries
  Frame* standing =
      nullptr;  ///< where queries turn from while the state stands still; otherwise it takes the tokens' keys

  [[nodiscard]] bool takes() const { return standing == nullptr; }
  /// Tokens of a chunk where the call has so many tokens.
  [[nodiscard]] Index chunk(Index tokens) const {
    return chunk_of(options, {.T = tokens,
                              .d = Q.rows(),
                              .e = V.rows(),
                              .D = static_cast<double>(StateParts::sums(state).S.cols()),
                              .action = transition.key_action(),
                              .is_full = options.mask.is_full,
                              .keeps_state = true,
                              .from_nothing = state.tokens() == 0});
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
