// expect: the forms round, with exponents and tails: for an exact scalar there are exact::definition
#include <sympow/sympow.hpp>

#ifdef SYMPOW_CONTROL
using Number = double;
#else
using Number = long double;  // said to be exact
template <>
inline constexpr bool sympow::is_exact_scalar<long double> = true;
#endif

int main() {
  const sympow::Matrix<Number> X = sympow::Matrix<Number>::Ones(2, 3);
  return sympow::attention(sympow::SymmetricPower<2>{}, sympow::stationary(), X, X, X).cols() == 3 ? 0 : 1;
}
