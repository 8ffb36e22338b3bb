// The groups of propositions that the program decides, compiled in files of their own.
#pragma once

#include <sympow/verify/proposition.hpp>

#include <vector>

namespace sympow::verify {

template <class Scalar>
std::vector<PropositionGroup> proposition_groups();

extern template std::vector<PropositionGroup> proposition_groups<double>();
extern template std::vector<PropositionGroup> proposition_groups<float>();

}  // namespace sympow::verify
