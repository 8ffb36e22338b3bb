// expect: after the gradient of a state stand options, or what a call writes to
#include <sympow/attention/chunked_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

auto f(const MatrixXd& Q, State<double, Linear>& state, StateGradient<double, Linear>& adjoint,
       [[maybe_unused]] Workspace<double>& workspace) {
#ifdef SYMPOW_CONTROL
  return chunked_vjp(Linear{}, stationary(), Q, Q, Q, Q, state, adjoint);
#else
  return chunked_vjp(Linear{}, stationary(), Q, Q, Q, Q, state, adjoint, workspace);
#endif
}
