// The transitions of a batch, in each of the ways in which they may be given.
#pragma once

#include <concepts>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <sympow/core/checks.hpp>
#include <sympow/core/parallel.hpp>

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail::inline SYMPOW_THREADS {

/// Calls f; an error of one head's arguments says of which sequence and head, and stays of its type. Heads that share a
/// state are named by their key head.
template <class F>
void with_head_context(Index sequence, Index head, Index group, const F& f) {
  try {
    f();
  } catch (...) {
    rethrow_with_prefix(Errors{}, "sequence ", sequence, group > 1 ? ", key head " : ", head ", head / group, ": ");
  }
}

/// The transition of group n of `group` query heads, those of a sequence one after the other: from one for all, a
/// container of as many, or a callable on the sequence and the group's number in it.
template <class Transitions>
auto transitions_of(const Transitions& given, Index sequences, Index groups, Index group) {
  if constexpr (Transition<Transitions>) {
    return [&given](Index) -> const Transitions& { return given; };
  } else if constexpr (std::invocable<const Transitions&, Index, Index>) {
    using A = std::remove_cvref_t<std::invoke_result_t<const Transitions&, Index, Index>>;
    static_assert(Transition<A>, "a callable that gives transitions takes (sequence, head) and returns one");
    std::vector<A> built;
    built.reserve(static_cast<std::size_t>(sequences * groups));
    for (Index n = 0; n < sequences * groups; ++n)
      with_head_context(n / groups, n % groups * group, group, [&] { built.push_back(given(n / groups, n % groups)); });
    return [built = std::move(built)](Index n) -> const A& { return built[static_cast<std::size_t>(n)]; };
  } else {
    static_assert(std::ranges::random_access_range<const Transitions>,
                  "the transitions of a batch are one Transition for all heads, a container of one for each head of "
                  "each sequence, or a callable on (sequence, head)");
    static_assert(std::is_lvalue_reference_v<std::ranges::range_reference_t<const Transitions>>,
                  "a container of transitions must hold them; give a callable to make them");
    check_size("number of transitions", std::ranges::ssize(given), sequences * groups,
               group == 1 ? "one a sequence and head" : "one a sequence and key head, as there are states");
    return [&given](Index n) -> const auto& { return std::ranges::begin(given)[n]; };
  }
}

}  // namespace detail::inline SYMPOW_THREADS
}  // namespace SYMPOW_NAMESPACE
