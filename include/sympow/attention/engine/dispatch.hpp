// Which rows a segment gets: those of a common scale as far as it allows them, else rows of a scale each.
#pragma once

#include <algorithm>

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Tokens that are given rows of a scale each before a common one is tried again; fewer are not worth a segment of their own.
inline constexpr Index few_tokens = 16;

/// Takes the tokens of a segment through an engine, by as many segments as their numbers ask for. It has
///
///     Index run_common(Segment)     rows of a common scale, for as many of the first tokens as allow it; returns how many
///     Index run_own(Segment)        rows of a scale each; returns how many tokens it took
///
/// What cuts a segment is the first token that does not fit it: no row depends on tokens behind it.
template <class Engine>
void dispatch(Engine& engine, Segment segment) {
  while (segment.size > 0) {
    Index done = engine.run_common(segment);
    if (done == 0) done = engine.run_own(segment);
    segment = {segment.begin + done, segment.size - done};
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
