// The vocabulary of sizes, shared by every room of the house. Needs no Eigen.
#pragma once

#include <cstddef>

/// Attention whose scores are powers of inner products, and the algebra that makes it a recurrence.
namespace sympow {

/// The version of the library.
inline constexpr const char* library_version = "0.1.0";

/// Signed size and position, the type that Eigen uses by default.
using Index = std::ptrdiff_t;

/// A size that is known at run time only; equal to Eigen::Dynamic.
inline constexpr int Dynamic = -1;

/// The largest power p that the library embeds: C(d + 7, 8) leaves every memory long before the index type ends.
inline constexpr int max_power = 8;

}  // namespace sympow
