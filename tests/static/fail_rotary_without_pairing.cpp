// expect: no matching function for call to
#include <sympow/sympow.hpp>

using namespace sympow;

Rotary f(const Eigen::VectorXd& theta) {
#ifdef SYMPOW_CONTROL
  return rotary(theta, Pairing::half_split);
#else
  return rotary(theta);
#endif
}
