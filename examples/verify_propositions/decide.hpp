// Deciding all propositions in one scalar type. Each type is compiled in a file of its own, for they take a while.
#pragma once

#include <sympow/verify/proposition.hpp>

#include <cstdint>
#include <vector>

/// All propositions on random inputs of this seed; reports its progress on standard error once it has taken a second.
template <class Scalar>
std::vector<sympow::verify::Proposition> decide(std::uint64_t seed);

extern template std::vector<sympow::verify::Proposition> decide<double>(std::uint64_t);
extern template std::vector<sympow::verify::Proposition> decide<float>(std::uint64_t);
