// expect: For an exact scalar there are exact::definition
#include <sympow/sympow.hpp>
#include "exact_number.hpp"

int main() {
  const sympow::Matrix<Number> X = sympow::Matrix<Number>::Ones(2, 3);
  return sympow::attention(sympow::SymmetricPower<2>{}, sympow::stationary(), X, X, X).cols() == 3 ? 0 : 1;
}
