// clear: empty states.
#include <cuda_runtime.h>

#include "checks.hpp"
#include "runtime_status.hpp"
#include "states.hpp"

namespace sympow::cuda {

Status clear(const Problem& problem, const State& state, Stream stream) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check_problem(problem));
  SYMPOW_CUDA_TRY(check_state(problem, state, "state"));
  std::size_t bytes = 0;
  SYMPOW_CUDA_TRY(state_bytes(problem, bytes));  // which is no more than memory can hold
  if (problem.batch == 0) return {};
  const auto states = static_cast<std::size_t>(problem.batch * problem.state_heads());
  const std::size_t rows = states * static_cast<std::size_t>(monomials(problem.power, problem.d));
  const auto set_to_zero = [&](auto* data, std::size_t count) {
    return runtime_status(cudaMemsetAsync(data, 0, count * sizeof *data, stream), "an empty state");
  };
  SYMPOW_CUDA_TRY(set_to_zero(state.sums, rows * static_cast<std::size_t>(problem.e)));
  SYMPOW_CUDA_TRY(set_to_zero(state.normaliser, rows));
  if (problem.rates)
    SYMPOW_CUDA_TRY(
        set_to_zero(state.turns, static_cast<std::size_t>(problem.batch * problem.key_heads * (problem.d / 2))));
  const Problem empty = without_tokens(problem);
  const Sequences sequences = sequences_of(empty, {Form::chunked, 64, problem.batch, 0, 0});
  return launch<Levels>(Levels::blocks(sequences, heads_of(empty)),
                        {sequences, heads_of(empty), {}, {}, states_of(state)}, stream);
}

}  // namespace sympow::cuda
