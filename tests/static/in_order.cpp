// Compiled by clang++ with leave to reorder sums: what rounds to a whole number must do so all the same.
#include <cmath>
#include <cstdio>

#include <sympow/rotation/turns.hpp>
#include <sympow/simd/exponential.hpp>
#include <sympow/simd/packed_exponential.hpp>

using namespace sympow;

int main() {
  constexpr double u = 0x1p-53;
  double of_angles = 0, of_powers = 0, of_packets = 0;
  double angles[detail::angle_block], cosines[detail::angle_block], sines[detail::angle_block];
  for (int i = 0; i < detail::angle_block; ++i) angles[i] = -3.1 + .4 * i;
  detail::set_cosines_and_sines(angles, cosines, sines);
  for (int i = 0; i < detail::angle_block; ++i)
    of_angles = std::fmax(
        of_angles, std::fmax(std::fabs(cosines[i] - std::cos(angles[i])), std::fabs(sines[i] - std::sin(angles[i]))));
  for (int i = 0; i < 64; ++i) {
    const auto parts = detail::reduced_exponent(-.37 * i);
    of_powers = std::fmax(
        of_powers, std::fabs(std::ldexp(std::exp(parts.rest), static_cast<int>(parts.whole)) / std::exp(-.37 * i) - 1));
    double x = -.37 * i, whole = 0, rest = 0;
    detail::PackedExponential<double>::set(&x, &whole, &rest, 1, 0, 0);
    of_packets = std::fmax(of_packets, std::fabs(x / std::exp(-.37 * i) - 1));
  }
  // A rounding of the exponent, up to 34 in log2, is worth 34 u; two packets of roundings beside it.
  std::printf("off by %.1e (angles), %.1e (powers), %.1e (packets)\n", of_angles, of_powers, of_packets);
  return of_angles <= 4 * u && of_powers <= 4 * u && of_packets <= 64 * u ? 0 : 1;
}
