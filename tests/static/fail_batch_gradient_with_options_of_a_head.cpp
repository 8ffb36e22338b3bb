// expect: the options of a batch are BatchOptions; Options of its heads are in them, .head
#include <sympow/attention/batch_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<const double> x, [[maybe_unused]] Heads<double> dx, VjpWorkspaces<double>& workspaces,
       const Options& options) {
#ifdef SYMPOW_CONTROL
  return static_cast<void>(attend_vjp(Linear{}, stationary(), x, x, x, x, dx, dx, dx, workspaces, {.head = options}));
#else
  return attend_vjp(Linear{}, stationary(), x, x, x, x, dx, dx, dx, workspaces, options);
#endif
}
