// expect: queries, keys, values and outputs of a batch are Heads of one scalar type, outputs not of a const one
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<float> Q, Heads<const float> Y, Workspaces<float>& workspaces) {
#ifdef SYMPOW_CONTROL
  attend(Linear{}, stationary(), Y, Y, Y, Q, workspaces);
#else
  attend(Linear{}, stationary(), Q, Q, Q, Y, workspaces);
#endif
}
