// One attention of the C interface on many threads at once, each with its own workspace, states and text.
#include <thread>

#include "../c/tensors.hpp"
#include "catch.hpp"

using namespace sympow::test;

TEST_CASE("threads share an attention and states that are read", "[threads]") {
  Attention attention;
  sympow_options options = turning_options();
  options.threads = 1;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  const auto make = [] { return CBatch<float>(2, 40, 4, 2, 2); };
  const Given all{.gates = true, .theta = true, .beta = true};
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = 2, shape.heads = 2, shape.d = 4, shape.e = 3;
  CStates initial;
  REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &initial)) == well);
  CBatch<float> first = make();
  sympow_inputs in = first.inputs(all);
  REQUIRE(said(sympow_attend(attention, &in, initial, first.Y.view(), nullptr, nullptr)) == well);

  // The rows and gradients of a thread; its texts name it.
  const auto run = [&](CBatch<float>& batch, std::int64_t number, std::string& outcome) {
    CWorkspace workspace;
    CStates states;
    outcome = said(sympow_workspace_create(nullptr, &workspace));
    for (int n = 0; n < 5 && outcome == well; ++n) {
      const sympow_inputs inputs = batch.inputs(all);
      const sympow_gradients to = batch.gradients(all);
      std::int64_t tokens = 0;
      if (sympow_states_tokens(initial, number, 0, &tokens) != SYMPOW_INVALID_ARGUMENT ||
          std::string(sympow_error()).find("sequence is " + std::to_string(number)) == std::string::npos)
        outcome = sympow_error();
      for (const sympow_status status :
           {sympow_states_copy(initial, &states),
            sympow_attend(attention, &inputs, states, batch.Y.view(), workspace, nullptr),
            sympow_attend_vjp(attention, &inputs, batch.dY.view(), initial, nullptr, &to, workspace, nullptr)})
        if (status != SYMPOW_OK) outcome = said(status);
    }
  };
  constexpr std::size_t count = 4;
  std::vector<CBatch<float>> batches(count + 1, make());
  std::vector<std::string> outcomes(count + 1);
  run(batches[count], 99, outcomes[count]);
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < count; ++n)
    threads.emplace_back([&, n] { run(batches[n], 100 + static_cast<std::int64_t>(n), outcomes[n]); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t n = 0; n <= count; ++n) {
    REQUIRE(outcomes[n] == well);
    REQUIRE(batches[n].Y == batches[count].Y);
    REQUIRE(batches[n].dK == batches[count].dK);
    REQUIRE(batches[n].d_theta == batches[count].d_theta);
  }
}
