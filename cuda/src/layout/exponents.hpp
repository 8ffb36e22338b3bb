// Weights are powers of 2 whose exponents are real numbers in double: these leave it once, as a float.
#pragma once

#include <cstdint>
#include <limits>

#include "../block/block.hpp"

namespace sympow::cuda {

using block::Lanes;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
inline constexpr float largest_float = std::numeric_limits<float>::max();

/// max(a, b); NaN if either is.
SYMPOW_DEVICE Lanes<double> larger(Lanes<double> a, Lanes<double> b) {
  return block::where(a > b, a, block::where(b >= a, b, a + b));
}
SYMPOW_DEVICE Lanes<float> larger(Lanes<float> a, Lanes<float> b) {
  return block::where(a > b, a, block::where(b >= a, b, a + b));
}
SYMPOW_DEVICE Lanes<int> larger(Lanes<int> a, Lanes<int> b) { return block::where(a > b, a, b); }
SYMPOW_DEVICE Lanes<double> smaller(Lanes<double> a, Lanes<double> b) { return block::where(a < b, a, b); }
SYMPOW_DEVICE Lanes<int> smaller(Lanes<int> a, Lanes<int> b) { return block::where(a < b, a, b); }

/// ⌈x⌉
SYMPOW_DEVICE Lanes<double> ceiling(Lanes<double> x) { return -block::floor(-x); }

/// ⌈log2 x⌉ of a normal number x > 0.
SYMPOW_DEVICE Lanes<int> ceiling_log2(Lanes<float> x) {
  return block::convert<int>((block::bit_cast<std::uint32_t>(x) + 0x7fffffu) >> 23) - 127;
}

/// ⌈log2 max(A, 1)⌉ + 3 of a mass A, at most 123, by which states are kept smaller (ChunkArrays::shift); 3 where it is
/// NaN.
SYMPOW_DEVICE Lanes<int> prefix_shift(Lanes<float> mass) {
  using block::where;
  return ceiling_log2(where(mass > 1.f, where(mass < 0x1p120f, mass, Lanes<float>(0x1p120f)), Lanes<float>(1.f))) + 3;
}

/// n with 2^{n - 1} ≤ x < 2^n, within ±126 so that 2^-n is a normal number; 0 of 0.
SYMPOW_DEVICE Lanes<int> exponent_above(Lanes<float> x) {
  using namespace block;
  const Lanes<int> bits = convert<int>(bit_cast<std::uint32_t>(absolute(x)) >> 23) - 126;
  return where(x == 0.f, 0, smaller(larger(bits, Lanes<int>(-126)), Lanes<int>(126)));
}

/// 2^n, -126 ≤ n ≤ 127: exact.
SYMPOW_DEVICE Lanes<float> two_to(Lanes<int> n) { return block::bit_cast<float>((n + 127) << 23); }

/// 2^x, x < 128: 0 where x is -∞ or 2^x below all floats, NaN where x is. As exact as exp2 of a fraction: the integer
/// part goes to the exponent.
SYMPOW_DEVICE Lanes<float> two_to(Lanes<double> x) {
  const Lanes<double> floor = block::floor(x), whole = block::where(floor > -126., floor, -126.);
  return block::exp2(block::convert<float>(x - whole)) * two_to(block::convert<int>(whole));
}

/// 2^x in double, 0 of -∞: as exact as exp2 of float. Beyond the range of double it is its end.
SYMPOW_DEVICE Lanes<double> wide_two_to(Lanes<double> x) {
  const Lanes<double> floor = block::floor(x), low = block::where(floor > -1022., floor, -1022.),
                      whole = block::where(low < 1023., low, 1023.);
  const Lanes<std::int64_t> bits = block::convert<std::int64_t>(whole + 1023.) << 52;
  const Lanes<float> fraction = block::exp2(block::convert<float>(x - floor));
  return block::where(x == -infinity, Lanes<double>(0.),
                      block::convert<double>(fraction) * block::bit_cast<double>(bits));
}

}  // namespace sympow::cuda
