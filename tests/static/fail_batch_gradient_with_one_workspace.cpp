// expect: after dV of a batch stands a variable of type VjpWorkspaces<Scalar>
#include <sympow/attention/batch_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;

void f([[maybe_unused]] Heads<const double> x, [[maybe_unused]] Heads<double> dx, VjpWorkspaces<double>& workspaces,
       [[maybe_unused]] VjpWorkspace<double>& one) {
#ifdef SYMPOW_CONTROL
  return static_cast<void>(attend_vjp(Linear{}, stationary(), x, x, x, x, dx, dx, dx, workspaces));
#else
  return attend_vjp(Linear{}, stationary(), x, x, x, x, dx, dx, dx, one);
#endif
}
