// expect: before the outputs of a batch stands a container of its states, State<Scalar, Feature>
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<float> Q, State<float, Linear>& state, Workspaces<float>& workspaces) {
#ifdef SYMPOW_CONTROL
  attend(Linear{}, stationary(), Q, Q, Q, std::span(&state, 1), Q, workspaces);
#else
  attend(Linear{}, stationary(), Q, Q, Q, state, Q, workspaces);
#endif
}
