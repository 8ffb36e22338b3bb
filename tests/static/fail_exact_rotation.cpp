// expect: the angles of BlockRotation are double: for an exact scalar there is exact::rotation
#include <sympow/rotation/block_rotation.hpp>
#include "exact_number.hpp"

int main() {
  const Eigen::VectorXd angles = Eigen::VectorXd::Ones(2);
  return sympow::BlockRotation<Number>(angles).rows() == 4 ? 0 : 1;
}
