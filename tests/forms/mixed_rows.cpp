// One head, as tests/CMakeLists.txt compiles it with several settings of the compiler for one program.
#include <sympow/attention/batch.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/transition/decay.hpp>

void SYMPOW_SETTING(const float* q, float* y) {
  const auto Q = sympow::Heads<const float>::bthd(q, 1, 50, 1, 8);
  sympow::Workspaces<float> workspaces;
  sympow::attend(sympow::Exponential{}, sympow::Stationary{},
                 {.Q = Q, .K = Q, .V = Q, .Y = sympow::Heads<float>::bthd(y, 1, 50, 1, 8), .workspaces = workspaces});
}
