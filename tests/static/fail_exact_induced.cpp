// expect: the entries of induced<P>(A) have square roots, which are rounded
#include <sympow/tensor/induced.hpp>

#ifdef SYMPOW_CONTROL
using Number = double;
#else
using Number = long double;  // said to be exact
template <>
inline constexpr bool sympow::is_exact_scalar<long double> = true;
#endif

int main() {
  const sympow::Matrix<Number> A = sympow::Matrix<Number>::Identity(3, 3);
  return sympow::induced<2>(A).rows() == 6 ? 0 : 1;
}
