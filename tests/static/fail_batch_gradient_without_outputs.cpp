// expect: after dY of a batch, or after the gradients of its states, stand dQ, dK and dV
#include <sympow/attention/batch_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<const double> x, [[maybe_unused]] Heads<double> dx, VjpWorkspaces<double>& workspaces) {
#ifdef SYMPOW_CONTROL
  return static_cast<void>(attend_vjp(Linear{}, stationary(), x, x, x, x, dx, dx, dx, workspaces));
#else
  return attend_vjp(Linear{}, stationary(), x, x, x, x, dx, dx, workspaces);
#endif
}
