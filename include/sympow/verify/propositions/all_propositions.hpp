// Every checked statement of the source papers.
#pragma once

#include <sympow/verify/propositions/text_d.hpp>
#include <sympow/verify/propositions/text_e.hpp>
#include <sympow/verify/propositions/texts_a_to_c.hpp>

namespace sympow::verify {

/// All groups of propositions, to be decided in arithmetic of the given scalar type.
template <class Scalar>
[[nodiscard]] std::vector<PropositionGroup> proposition_groups() {
  std::vector<PropositionGroup> groups = texts_a_to_c<Scalar>();
  for (const PropositionGroup& group : text_d<Scalar>()) groups.push_back(group);
  for (const PropositionGroup& group : text_e<Scalar>()) groups.push_back(group);
  return groups;
}

}  // namespace sympow::verify
