// The parts of the test, one in each file.
#pragma once

namespace sympow::test {

void test_refusals();  // needs no GPU
void test_rows();
void test_states();
void test_decoding();
void test_slots();
void test_streams();
void test_gradients();
void test_losses_of_states();
void test_more_gradients();  // of the other instantiations
void test_rows_of_architectures();
void test_gradients_of_architectures();

}  // namespace sympow::test
