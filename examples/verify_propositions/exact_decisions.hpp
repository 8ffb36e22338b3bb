// What is decided over the rational numbers, in a file that is compiled by itself.
#pragma once

#include <sympow/verify/program.hpp>

/// A decision for each id; none where GMP was not found.
std::vector<sympow::verify::ExactDecision> exact_decisions();
