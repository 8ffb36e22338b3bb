// expect: before the outputs of a batch stands a container of its states, State<Scalar, Feature>
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<float> Q, std::vector<State<float, SymmetricPower<2>>>& states, Workspaces<float>& workspaces) {
#ifdef SYMPOW_CONTROL
  attend(SymmetricPower<2>{}, stationary(), Q, Q, Q, states, Q, workspaces);
#else
  attend(SymmetricPower<3>{}, stationary(), Q, Q, Q, states, Q, workspaces);
#endif
}
