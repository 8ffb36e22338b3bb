// Monomials in lexicographic order.
#pragma once

#include <array>
#include <cmath>
#include <vector>

namespace sympow::test {

/// A monomial of P of d channels, with its multinomial coefficient.
template <int P, int d>
struct MonomialOf {
  std::array<int, std::size_t{P}> channel;
  double coefficient;

  [[nodiscard]] double of(const std::array<double, std::size_t{d}>& x) const {
    double product = coefficient;
    for (const int i : channel) product *= x[static_cast<std::size_t>(i)];
    return product;
  }
  static std::vector<MonomialOf> all() {
    std::vector<MonomialOf> all;
    std::array<int, std::size_t{P}> channel{};
    const auto extend = [&](const auto& self, std::size_t level, int from) -> void {
      if (level == P) {
        double orders = 1, run = 1;
        for (std::size_t l = 1; l < P; ++l) {
          run = channel[l] == channel[l - 1] ? run + 1 : 1;
          orders *= static_cast<double>(l + 1) / run;
        }
        all.push_back({channel, std::round(orders)});
        return;
      }
      for (channel[level] = from; channel[level] < d; ++channel[level]) self(self, level + 1, channel[level]);
    };
    extend(extend, 0, 0);
    return all;
  }
};

}  // namespace sympow::test
