// expect: the only pair is channel_decay(…) * householder(…), gates first
#include <sympow/sympow.hpp>

using namespace sympow;

auto f(const Eigen::MatrixXd& w, const Eigen::VectorXd& beta, const Eigen::MatrixXd& log_a) {
#ifdef SYMPOW_CONTROL
  return channel_decay(log_a) * householder(w, beta);
#else
  return householder(w, beta) * channel_decay(log_a);
#endif
}
