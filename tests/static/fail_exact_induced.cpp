// expect: the entries of induced<P>(A) have square roots, which are rounded
#include <sympow/tensor/induced.hpp>
#include "exact_number.hpp"

int main() {
  const sympow::Matrix<Number> A = sympow::Matrix<Number>::Identity(3, 3);
  return sympow::induced<2>(A).rows() == 6 ? 0 : 1;
}
