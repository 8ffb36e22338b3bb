// The linear systems and their softmax duals as a table.
#pragma once

#include <cstdint>
#include <string>

/// Prints it in arithmetic of this type, "float" or "double", on random tokens of this seed; whether every residual is
/// within 1.
bool print_dualities(const std::string& scalar, std::uint64_t seed);
