// expect: gradients of the states behind them, StateGradient<Scalar, Feature>, or a ForwardPass<Scalar, Feature>
#include <sympow/attention/batch_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<const double> x, Heads<double> dx, VjpWorkspaces<double>& workspaces,
       [[maybe_unused]] const ForwardPass<double, Linear>& pass,
       [[maybe_unused]] const ForwardPass<float, Linear>& other) {
#ifdef SYMPOW_CONTROL
  static_cast<void>(attend_vjp(Linear{}, stationary(), x, x, x, x, pass, dx, dx, dx, workspaces));
#else
  attend_vjp(Linear{}, stationary(), x, x, x, x, other, dx, dx, dx, workspaces);
#endif
}
