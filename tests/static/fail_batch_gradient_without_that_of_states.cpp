// expect: between dY and dQ of a batch stand a container of its states
#include <sympow/attention/batch_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<const double> x, [[maybe_unused]] Heads<double> dx, VjpWorkspaces<double>& workspaces,
       const std::vector<State<double, Linear>>& states,
       [[maybe_unused]] std::vector<StateGradient<double, Linear>>& adjoints) {
#ifdef SYMPOW_CONTROL
  return static_cast<void>(attend_vjp(Linear{}, stationary(), x, x, x, x, states, adjoints, dx, dx, dx, workspaces));
#else
  return attend_vjp(Linear{}, stationary(), x, x, x, x, states, dx, dx, dx, workspaces);
#endif
}
