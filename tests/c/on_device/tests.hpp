// The parts of the test.
#pragma once

namespace sympow::test {

void test_refusals();
void test_calls();
void test_states();
void test_state_gradients();

}  // namespace sympow::test
