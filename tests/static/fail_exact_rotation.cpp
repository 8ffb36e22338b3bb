// expect: the angles of BlockRotation are double: for an exact scalar there is exact::rotation
#include <sympow/rotation/block_rotation.hpp>

#ifdef SYMPOW_CONTROL
using Number = double;
#else
using Number = long double;  // said to be exact
template <>
inline constexpr bool sympow::is_exact_scalar<long double> = true;
#endif

int main() {
  const Eigen::VectorXd angles = Eigen::VectorXd::Ones(2);
  return sympow::BlockRotation<Number>(angles).rows() == 4 ? 0 : 1;
}
