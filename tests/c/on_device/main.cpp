// The C interface with arrays on a GPU:  c_on_device [part ...]
#include "cuda/device_test/parts.hpp"
#include "tests.hpp"

using namespace sympow::test;

int main(int count, char** names) {
  return run_parts({{"refusals", test_refusals, false},
                    {"calls", test_calls},
                    {"states", test_states},
                    {"state_gradients", test_state_gradients}},
                   count, names);
}
