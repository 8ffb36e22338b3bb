// expect: the options of a batch are BatchOptions; Options of its heads are in them, .head
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<float> Q, std::vector<State<float, Linear>>& states, Workspaces<float>& workspaces) {
  const Options options{.scale = 2};
#ifdef SYMPOW_CONTROL
  attend(Linear{}, stationary(), Q, Q, Q, states, Q, workspaces, {.head = options});
#else
  attend(Linear{}, stationary(), Q, Q, Q, states, Q, workspaces, options);
#endif
}
