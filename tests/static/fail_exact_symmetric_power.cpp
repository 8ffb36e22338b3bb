// expect: the weights of symmetric_power are square roots, which are rounded
#include <sympow/tensor/symmetric_power.hpp>

#ifdef SYMPOW_CONTROL
using Number = double;
#else
using Number = long double;  // said to be exact
template <>
inline constexpr bool sympow::is_exact_scalar<long double> = true;
#endif

int main() {
  const sympow::Vector<Number> x = sympow::Vector<Number>::Ones(3), phi = sympow::symmetric_power<2>(x);
  return phi.size() == 6 ? 0 : 1;
}
