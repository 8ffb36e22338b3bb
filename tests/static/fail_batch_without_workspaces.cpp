// expect: after the outputs of a batch stands a variable of type Workspaces<Scalar>
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Heads<float> Q, [[maybe_unused]] Workspaces<float>& workspaces) {
#ifdef SYMPOW_CONTROL
  attend(Linear{}, stationary(), Q, Q, Q, Q, workspaces, {.form = Form::chunked});
#else
  attend(Linear{}, stationary(), Q, Q, Q, Q, {.form = Form::chunked});
#endif
}
