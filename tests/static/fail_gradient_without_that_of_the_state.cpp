// expect: after dY stand the state before the first token, or Checkpoints, and the gradient of the state
#include <sympow/attention/chunked_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

auto f(const MatrixXd& Q, State<double, Linear>& state, [[maybe_unused]] StateGradient<double, Linear>& adjoint) {
#ifdef SYMPOW_CONTROL
  return chunked_vjp(Linear{}, stationary(), Q, Q, Q, Q, state, adjoint);
#else
  return chunked_vjp(Linear{}, stationary(), Q, Q, Q, Q, state);
#endif
}
