// expect: the heads, or before it a ForwardPass<Scalar, Feature>; states stand before the outputs
#include <sympow/attention/forward_pass.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<float> Q, Workspaces<float>& workspaces, [[maybe_unused]] ForwardPass<float, Linear>& pass,
       [[maybe_unused]] ForwardPass<float, SymmetricPower<2>>& other) {
#ifdef SYMPOW_CONTROL
  attend(Linear{}, stationary(), Q, Q, Q, Q, pass, workspaces);
#else
  attend(Linear{}, stationary(), Q, Q, Q, Q, other, workspaces);
#endif
}
