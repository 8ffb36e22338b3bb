// One loop for every form: attention has a `KeyPast`, chunked a `StatePast`, recurrent the same by segments of one
// token.
#pragma once

#include <algorithm>

#include <sympow/attention/options.hpp>
#include <sympow/core/visitor.hpp>
#include <sympow/detail/past.hpp>
#include <sympow/detail/rows.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Query heads that read the same keys, and with them one state: numbers from the queries and outputs of one to those
/// of the next.
struct HeadGroup {
  Index size = 1, to_next_Q = 0, to_next_Y = 0;
};

/// The scratch memory of all forms.
template <class Scalar>
struct ForwardBuffers {
  SegmentBuffers<Scalar> segment;
  RowBuffers<Scalar> rows;
  KeyPastBuffers<Scalar> keys;
  StatePastBuffers<Scalar> state;
  Frame frame;  ///< before a segment, where several heads turn from it
};

/// What a pass is given, checked. Q and Y are those of the first head of the group.
template <class Scalar>
struct ForwardCall {
  RowKind rows;
  const TransitionView<Scalar>* transition;
  MatrixView<const Scalar> Q, K, V;
  Options options;
  MatrixView<Scalar> Y = {nullptr, 0, 0};
  bool has_queries = true;  ///< if not, Q and Y are not read
  HeadGroup group = {};
  RowSum* sums = nullptr;                       ///< of the rows, where they are asked for
  const Visitor<Index>* visit_chunk = nullptr;  ///< told the first token of every chunk before it is taken

  /// Tokens that the call goes over.
  [[nodiscard]] Index tokens() const { return std::max(K.cols(), Q.cols() + options.mask.offset); }
  [[nodiscard]] RowReports reports() const { return {options.diagnostics, sums}; }
  [[nodiscard]] MatrixView<const Scalar> queries_of(Index head, Index first, Index n) const {
    return {Q.data() + head * group.to_next_Q + (n == 0 ? 0 : first) * Q.outerStride(), Q.rows(), n, Q.outerStride()};
  }
  [[nodiscard]] MatrixView<Scalar> outputs_of(Index head, Index first, Index n) const {
    return {Y.data() + head * group.to_next_Y + (n == 0 ? 0 : first) * Y.outerStride(), Y.rows(), n, Y.outerStride()};
  }
};

/// Tokens of a chunk.
inline Index chunk_of(const Options& options, const ProblemShape& shape) {
  return options.chunk > 0 ? std::clamp<Index>(shape.T, 1, options.chunk) : cheapest_chunk(shape, options.costs);
}

/// Those of a call of so many tokens that goes on from a state.
template <class Scalar>
Index chunk_from(const StateContent<Scalar>& state, const TransitionView<Scalar>& transition, Index tokens,
                 const Options& options) {
  return chunk_of(options, {.T = tokens,
                            .d = state.sums.log_channels.size(),
                            .e = state.sums.value_rows(),
                            .D = static_cast<double>(state.sums.Z.size()),
                            .action = transition.key_action(),
                            .is_full = options.mask.is_full,
                            .keeps_state = true,
                            .from_nothing = state.frames.tokens == 0});
}

/// How a pass goes over the tokens of a call.
struct PassSteps {
  Index tokens, most;        ///< by segments of at most so many
  bool has_queries = true;   ///< computes rows
  bool updates_past = true;  ///< takes keys into the past,
  bool keeps_past = true;    ///< those of the last segment too
  bool is_literal = false;   ///< they do so before their own query reads it, by segments of one token
};

/// Y ← the rows of Q over the past and their own keys. `start` is where several heads turn from.
template <class Scalar, FeatureMap F, class Rows, class Past>
void forward(const ForwardCall<Scalar>& call, const PassSteps& steps, LoadedSegment<Scalar, F>& segment, Rows& rows,
             Past& past, Frame& start) {
  const auto columns = [](MatrixView<const Scalar> x, Segment s) {
    return x.middleCols(s.size == 0 ? 0 : s.begin, s.size);
  };
  const Index heads = steps.has_queries ? call.group.size : 1;
  for (Index t = 0; t < steps.tokens; t += segment.size()) {
    if (call.visit_chunk != nullptr && t % steps.most == 0) (*call.visit_chunk)(t);
    if (segment.load_gates({t, std::min(steps.most - t % steps.most, steps.tokens - t)})) past.reset();
    const bool is_literal = segment.end_before_forgetting(call.K, past) || steps.is_literal;
    past.prepare(segment.size());
    const Segment keys = steps.updates_past ? key_tokens(call, segment.range()) : Segment{t, 0},
                  queries = steps.has_queries ? query_tokens(call, segment.range()) : Segment{t, 0};
    const Index first = queries.begin - call.options.mask.offset;
    if (heads > 1) start = past.frame();
    for (Index head = 0; head < heads; ++head) {
      if (head > 0) past.frame() = start;
      const auto Q = call.queries_of(head, first, queries.size);
      segment.load(past.elapsed(), past.frame(), Q, queries.begin - t, columns(call.K, keys), columns(call.V, keys));
      const bool is_last = head + 1 == heads || !segment.has_queries();
      if (is_literal) {
        if (head == 0) past.take(segment), past.prepare(0);
        segment.move_query_to_end(Q, past.elapsed());
      }
      if (segment.has_queries()) {
        rows.reset(segment, past);
        rows.add(segment.feature(), segment.keys(), {}, segment.queries(), segment.logits());
        past.read(segment, rows);
        rows.write(segment, call.outputs_of(head, first, queries.size), head * call.Q.cols() + first);
      }
      const bool is_wanted = steps.keeps_past || segment.range().end() < steps.tokens;
      if (is_last && steps.updates_past && is_wanted && !is_literal) past.take(segment);
      if (is_last) break;
    }
  }
}

// ---- The three forms as passes over the tokens of a call, under names by which all of it is compiled once

/// The three forms, compiled once for a scalar type and a feature map as passes see it. Exponential scores have no
/// state.
template <class Scalar, FeatureMap F>
struct ForwardPasses {
  static void attention(const F& feature, const ForwardCall<Scalar>& call, ForwardBuffers<Scalar>& memory);
  static void from_state(Form form, const F& feature, const ForwardCall<Scalar>& call, StateContent<Scalar>& state,
                         ForwardBuffers<Scalar>& memory)
    requires has_embedding<F>;
};

template <class Scalar, FeatureMap F>
void ForwardPasses<Scalar, F>::attention(const F& feature, const ForwardCall<Scalar>& call,
                                         ForwardBuffers<Scalar>& memory) {
  constexpr Index most = 240;  // tokens of a segment: products of more than 256 terms are made in two steps
  const Index T = call.tokens(), n = std::clamp<Index>(T, 1, most);
  const Index before = std::clamp<Index>(-call.options.mask.offset, 0, call.Y.cols());  // queries before token 0
  call.Y.leftCols(before).setZero();
  for (Index i = 0; i < before; ++i) call.reports().report(i, 0, 0, 0, false);
  LoadedSegment<Scalar, F> segment(memory.segment, feature, *call.transition, call.options.scale, call.K.rows(), n,
                                   scores_need_features(feature));
  RowsOf<Scalar, F> rows(memory.rows, call.rows, call.reports(), call.options.mask, call.V.rows(), n, n);
  KeyPast<Scalar, F> past(memory.keys, feature, call.transition->key_action(), call.options.mask, segment.vector_rows(),
                          call.V.rows(), call.K.cols(), n);
  const auto pass = [&](const PassSteps& steps) { forward(call, steps, segment, rows, past, memory.frame); };
  if (!call.options.mask.is_full) return pass({.tokens = T, .most = n, .keeps_past = false});
  pass({.tokens = T, .most = n, .has_queries = false});
  past.frame().clear();
  pass({.tokens = T, .most = n, .updates_past = false});
}

template <class Scalar, FeatureMap F>
void pass_through_state(const F& feature, const ForwardCall<Scalar>& call, StateContent<Scalar>& state,
                        ForwardBuffers<Scalar>& memory, PassSteps steps) {
  steps.most = std::clamp<Index>(steps.most, 1, std::max<Index>(steps.tokens, 1));
  LoadedSegment<Scalar, F> segment(memory.segment, feature, *call.transition, call.options.scale, call.K.rows(),
                                   steps.most, F::score == Score::embedded);
  PowerRows<Scalar, F> rows(memory.rows, call.rows, call.reports(), call.options.mask, call.V.rows(), steps.most,
                            std::max(steps.most, state.sums.recent.capacity()));
  StatePast<Scalar, F> past(memory.state, feature, *call.transition, state, steps.most);
  state.interrupted = true;  // until the call is done
  forward(call, steps, segment, rows, past, memory.frame);
}

template <class Scalar, FeatureMap F>
void ForwardPasses<Scalar, F>::from_state(Form form, const F& feature, const ForwardCall<Scalar>& call,
                                          StateContent<Scalar>& state, ForwardBuffers<Scalar>& memory)
  requires has_embedding<F>
{
  const auto pass = [&](const PassSteps& steps) { pass_through_state(feature, call, state, memory, steps); };
  const auto chunk = [&](Index tokens) { return chunk_from(state, *call.transition, tokens, call.options); };
  const Index keys = call.K.cols(), queries = call.Q.cols();
  const bool is_full = call.options.mask.is_full;
  if (form == Form::recurrent && !is_full)
    return pass(
        {.tokens = keys, .most = 1, .has_queries = call.has_queries, .is_literal = state.sums.recent.capacity() == 0});
  if (!call.has_queries || !is_full)
    return pass({.tokens = keys, .most = chunk(keys), .has_queries = call.has_queries});
  Frame other = state.frames.end;
  pass({.tokens = keys, .most = chunk(keys), .has_queries = false});
  std::swap(state.frames.end, other);  // all queries read the state of all keys, and turn from its start
  pass({.tokens = queries, .most = chunk(queries), .updates_past = false});
  std::swap(state.frames.end, other);
}

}  // namespace SYMPOW_NAMESPACE::detail
