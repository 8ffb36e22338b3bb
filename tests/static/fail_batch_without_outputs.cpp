// expect: after the values of a batch, or after its states, stand its outputs, which are Heads as well
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<float> Q, [[maybe_unused]] Workspaces<float>& workspaces) {
#ifdef SYMPOW_CONTROL
  attend(Linear{}, stationary(), Q, Q, Q, Q, workspaces);
#else
  attend(Linear{}, stationary(), Q, Q, Q);
#endif
}
