// Weights of keys of length 0 raise no flag of the processor, however a compiler vectorizes the loop: with -O3.
#include <cfenv>
#include <cstdio>
#include <vector>

#include <sympow/detail/segment.hpp>

using namespace sympow;

namespace {

template <class Scalar>
int check(const std::vector<double>& exponents) {
  const std::vector<Scalar> fractions(exponents.size(), 1);
  std::vector<Scalar> weights(exponents.size());
  std::feclearexcept(FE_ALL_EXCEPT);
  detail::set_weights_at(weights.data(), exponents.data(), fractions.data(), static_cast<Index>(exponents.size()), 2,
                         Scalar(3), -50);
  const int flags = std::fetestexcept(FE_INVALID | FE_OVERFLOW);
  for (std::size_t j = 0; j < weights.size(); ++j)
    if (weights[j] != (exponents[j] == -1 ? Scalar(6) : Scalar(0))) {
      std::fprintf(stderr, "weight %zu is %g\n", j, static_cast<double>(weights[j]));
      return 1;
    }
  if (flags != 0) std::fprintf(stderr, "floating-point flags %d\n", flags);
  return flags != 0;
}

}  // namespace

int main(int count, char**) {
  std::vector<double> exponents(static_cast<std::size_t>(36 + count), -1);
  exponents[0] = exponents[9] = exponents[36] = detail::log2_zero;
  exponents[5] = -1e300, exponents[20] = -5000, exponents[12] = -53;
  return check<float>(exponents) | check<double>(exponents);
}
