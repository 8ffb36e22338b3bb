// A call of a state form, in the terms of its engine.
#pragma once

#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/engine/memory.hpp>
#include <sympow/core/visitor.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Query heads that read the same keys, and with them one state: numbers from the queries and outputs of one to those
/// of the next.
struct HeadGroup {
  Index size = 1, to_next_Q = 0, to_next_Y = 0;
};

/// Everything in it is checked. Q and Y are those of the first head of the group.
template <class Scalar>
struct StateCall {
  const TransitionView<Scalar>& transition;
  RowKind rows;
  Options options;
  MatrixView<const Scalar> Q, K, V;
  StateContent<Scalar>& state;
  MatrixView<Scalar> Y;
  EngineMemory<Scalar>& memory;
  RowSum* sums = nullptr;  ///< of the rows, where they are asked for
  bool reads = true;       ///< the tokens have queries
  Frame* standing =
      nullptr;  ///< where queries turn from while the state stands still; otherwise it takes the tokens' keys

  HeadGroup group = {};
  const Visitor<Index>* visit_chunk = nullptr;  ///< told the first token of every chunk before it is taken

  [[nodiscard]] bool takes() const { return standing == nullptr; }
  [[nodiscard]] Index heads() const { return reads ? group.size : 1; }
  [[nodiscard]] MatrixView<const Scalar> queries_of(Index head) const {
    return {Q.data() + head * group.to_next_Q, Q.rows(), Q.cols(), Q.outerStride()};
  }
  [[nodiscard]] MatrixView<Scalar> outputs_of(Index head) const {
    return {Y.data() + head * group.to_next_Y, Y.rows(), Y.cols(), Y.outerStride()};
  }
  /// Tokens of a chunk where the call has so many tokens.
  [[nodiscard]] Index chunk(Index tokens) const {
    return chunk_of(options, {.T = tokens,
                              .d = Q.rows(),
                              .e = V.rows(),
                              .D = static_cast<double>(state.sums.S.cols()),
                              .action = transition.key_action(),
                              .is_full = options.mask.is_full,
                              .keeps_state = true,
                              .from_nothing = state.frames.tokens == 0});
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
