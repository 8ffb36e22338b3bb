// expect: cayley goes through double: for an exact scalar there is exact::cayley
#include <sympow/structured/cayley.hpp>
#include "exact_number.hpp"

int main() {
  const sympow::Matrix<Number> S = sympow::Matrix<Number>::Zero(3, 3);
  return sympow::cayley(S).rows() == 3 ? 0 : 1;
}
