// expect: after the outputs of a batch stands a variable of type Workspaces<Scalar>
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<float> Q, std::vector<State<float, Linear>>& states, Workspaces<float>& workspaces) {
#ifdef SYMPOW_CONTROL
  attend(Linear{}, stationary(), Q, Q, Q, states, Q, workspaces);
#else
  attend(Linear{}, stationary(), Q, Q, Q, Q, states, workspaces);
#endif
}
