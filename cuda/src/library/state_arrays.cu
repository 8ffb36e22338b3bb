// States from arrays of a caller and back.
#include "../state_arrays/of_arrays.hpp"
#include "../state_arrays/to_arrays.hpp"
#include "arguments.hpp"
#include "checks.hpp"
#include "launch.hpp"

namespace sympow::cuda {

namespace library {
namespace {

Status check(const Problem& problem, const ConstState& state, const StateArrays& arrays, const char* name) noexcept {
  SYMPOW_CUDA_TRY(check_problem(problem));
  SYMPOW_CUDA_TRY(check_state(problem, state, name, true));
  SYMPOW_CUDA_TRY(check_state_arrays(problem, arrays));
  std::size_t bytes = 0;
  return state_bytes(problem, bytes);  // which is no more than memory can hold
}
ArraysOfStates arrays_of(const StateArrays& x) { return {{x.sums}, {x.normaliser}, {x.angles}}; }

}  // namespace
}  // namespace library

Status state_of_arrays(const Problem& p, const StateArrays& arrays, const State& state, bool is_gradient,
                       Stream stream) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check(p, state, arrays, is_gradient ? "gradient of a state" : "state"));
  const Heads heads = heads_of(p);
  const auto batch = static_cast<int>(p.batch);
  return launch<OfArrays>(OfArrays::blocks(batch, heads),
                          {arrays_of(arrays), states_of(state), {state.turns}, heads, p.power, p.d, p.e, is_gradient},
                          stream);
}

Status state_to_arrays(const Problem& p, const ConstState& state, const StateArrays& arrays, Stream stream) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check(p, state, arrays, "state"));
  const Heads heads = heads_of(p);
  const auto batch = static_cast<int>(p.batch);
  const Blocks blocks = ToArrays::blocks(batch, heads, static_cast<int>(monomials(p.power, p.d)), p.e);
  if (!blocks.fit())
    return refuse(Code::too_large, "%lld states are more blocks than a grid has", static_cast<long long>(p.batch));
  return launch<ToArrays>(blocks, {states_of(state), {state.turns}, arrays_of(arrays), heads, p.power, p.d, p.e},
                          stream);
}

}  // namespace sympow::cuda
