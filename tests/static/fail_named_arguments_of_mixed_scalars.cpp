// expect: no matching function for call to
#include <sympow/sympow.hpp>

using namespace sympow;

auto f(const Eigen::MatrixXf& Q, [[maybe_unused]] const Eigen::MatrixXd& dY) {
#ifdef SYMPOW_CONTROL
  return attention_vjp(Linear{}, stationary(), {.Q = Q, .K = Q, .V = Q, .dY = dY.cast<float>()});
#else
  return attention_vjp(Linear{}, stationary(), {.Q = Q, .K = Q, .V = Q, .dY = dY});
#endif
}
