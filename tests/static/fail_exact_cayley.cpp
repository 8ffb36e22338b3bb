// expect: cayley goes through double: for an exact scalar there is exact::cayley
#include <sympow/structured/cayley.hpp>

#ifdef SYMPOW_CONTROL
using Number = double;
#else
using Number = long double;  // said to be exact
template <>
inline constexpr bool sympow::is_exact_scalar<long double> = true;
#endif

int main() {
  const sympow::Matrix<Number> S = sympow::Matrix<Number>::Zero(3, 3);
  return sympow::cayley(S).rows() == 3 ? 0 : 1;
}
