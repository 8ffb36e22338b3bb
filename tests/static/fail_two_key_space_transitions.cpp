// expect: a product of transitions has at most one factor that acts in key space (channel decay, rotary, Householder)
#include <sympow/sympow.hpp>

using namespace sympow;

auto f(const Eigen::VectorXd& theta, const Eigen::MatrixXd& log_a) {
#ifdef SYMPOW_CONTROL
  return rotary(theta, Pairing::interleaved) * constant_decay(log_a(0, 0));
#else
  return rotary(theta, Pairing::interleaved) * channel_decay(log_a);
#endif
}
