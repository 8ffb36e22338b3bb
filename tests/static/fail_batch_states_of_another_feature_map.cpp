// expect: states and their gradients are a container of State<Scalar, Feature>
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<const float> Q, Heads<float> Y, std::vector<State<float, SymmetricPower<2>>>& states) {
#ifdef SYMPOW_CONTROL
  attend(SymmetricPower<2>{}, stationary(), {.Q = Q, .K = Q, .V = Q, .states = states, .Y = Y});
#else
  attend(SymmetricPower<3>{}, stationary(), {.Q = Q, .K = Q, .V = Q, .states = states, .Y = Y});
#endif
}
