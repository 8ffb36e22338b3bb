// Deciding all propositions in one scalar type.
#pragma once

#include <sympow/verify/proposition.hpp>

#include <cstdint>
#include <vector>

/// All propositions on random inputs of this seed; reports its progress on standard error once it has taken a second.
template <class Scalar>
std::vector<sympow::verify::Proposition> decide(std::uint64_t seed);
