// All functions of sympow::cuda on a GPU:  device_test [--only TEXT] [part ...]
//
// Rows are compared with the definition in double, by a bound that follows from the roundings that kernels make.
#include "parts.hpp"
#include "tests.hpp"

using namespace sympow::test;

int main(int count, char** names) {
  return run_parts({{"refusals", test_refusals, false},
                    {"rows", test_rows},
                    {"states", test_states},
                    {"decoding", test_decoding},
                    {"slots", test_slots},
                    {"streams", test_streams},
                    {"gradients", test_gradients},
                    {"losses_of_states", test_losses_of_states},
                    {"rows_of_architectures", test_rows_of_architectures},
                    {"architectures", test_gradients_of_architectures},
                    {"more_gradients", test_more_gradients}},
                   count, names);
}
