// What tests of gradients ask of what they find.
#pragma once

#include <initializer_list>
#include <typeinfo>

#include "catch.hpp"
#include "problem.hpp"

namespace sympow::test {

/// The worst entry is within its bound.
inline void require_by_rule(const Residual& found) {
  INFO(found);
  CHECK(found.holds());
}

/// Both forms of a call by the rule, the one with a state for chunks of these sizes. Where a gradient is below all
/// numbers of the type, or added up of such, `excuse` is how far that may put it off.
template <class Normalization, class Scalar, class F, class A>
void check_forms(const F& feature, const A& transition, const Problem<Scalar>& x, const Kind& kind = {},
                 Options options = {}, Wide excuse = 0, std::initializer_list<Index> chunks = {1, 16}) {
  CAPTURE(typeid(F).name(), typeid(Normalization).name(), typeid(A).name(), sizeof(Scalar), kind.name, x.tokens());
  Definition definition = definition_of<Normalization>(feature, transition, x, kind, options);
  definition.excuse(excuse);
  const Matrix<Scalar> dY = definition.dY<Scalar>();
  const auto by_attention =
      attention_vjp<Normalization>(feature, transition, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = options});
  require_by_rule(definition.worst(found_in(by_attention), 0));
  constexpr bool has_way_back = F::score != Score::embedded || FeatureMapWithVjp<F>;
  if constexpr (has_state_forms<F, A> && has_way_back) {
    if (!options.mask.goes_with_states()) return;
    for (const Index chunk : chunks) {
      CAPTURE(chunk);
      options.chunk = chunk;
      const auto by_chunks =
          chunked_vjp<Normalization>(feature, transition, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = options});
      require_by_rule(definition.worst(found_in(by_chunks), kind.steps == Steps::mixing ? 1 : chunk));
    }
  }
}

}  // namespace sympow::test
