// expect: queries, keys, values and outputs of a batch are Heads of one scalar type, outputs not of a const one
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<const float> Q, Heads<const double> K, Heads<float> Y, Workspaces<float>& workspaces) {
#ifdef SYMPOW_CONTROL
  attend(Linear{}, stationary(), Q, Q, Q, Y, workspaces);
#else
  attend(Linear{}, stationary(), Q, K, Q, Y, workspaces);
#endif
}
