// expect: the weights of symmetric_power are square roots, which are rounded
#include <sympow/tensor/symmetric_power.hpp>
#include "exact_number.hpp"

int main() {
  const sympow::Vector<Number> x = sympow::Vector<Number>::Ones(3), phi = sympow::symmetric_power<2>(x);
  return phi.size() == 6 ? 0 : 1;
}
