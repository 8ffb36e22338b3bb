// States from arrays of a caller and back.
#include <sympow/cuda/gradient.hpp>

#include "../state_arrays/gauges.hpp"
#include "../state_arrays/of_arrays.hpp"
#include "../state_arrays/to_arrays.hpp"
#include "arguments.hpp"
#include "checks.hpp"
#include "launch.hpp"

namespace sympow::cuda {

namespace library {
namespace {

/// Turns may be missing.
Status check(const Problem& problem, const ConstState& state, const StateArrays& arrays, const char* name) noexcept {
  SYMPOW_CUDA_TRY(check_problem(problem));
  SYMPOW_CUDA_TRY(check_state(problem, state, name, true));
  SYMPOW_CUDA_TRY(check_state_arrays(problem, arrays));
  std::size_t bytes = 0;
  return state_bytes(problem, bytes);  // which is no more than memory can hold
}
ArraysOfStates arrays_of(const StateArrays& x) { return {{x.sums}, {x.normaliser}, {x.angles}}; }

Status launch_of_arrays(const Problem& p, const StateArrays& arrays, const State& state, bool is_gradient,
                        Stream stream) {
  const Heads heads = heads_of(p);
  return launch<OfArrays>(OfArrays::blocks(static_cast<int>(p.batch), heads),
                          {arrays_of(arrays),
                           states_of(state),
                           {is_gradient ? nullptr : state.turns},
                           heads,
                           p.power,
                           p.d,
                           p.e,
                           is_gradient},
                          stream);
}

Status launch_to_arrays(const Problem& p, const ConstState& state, const StateArrays& arrays, Stream stream) {
  const Heads heads = heads_of(p);
  const Blocks blocks =
      ToArrays::blocks(static_cast<int>(p.batch), heads, static_cast<int>(monomials(p.power, p.d)), p.e);
  if (!blocks.fit())
    return refuse(Code::too_large, "%lld states are more blocks than a grid has", static_cast<long long>(p.batch));
  return launch<ToArrays>(blocks, {states_of(state), {state.turns}, arrays_of(arrays), heads, p.power, p.d, p.e},
                          stream);
}

/// Between the turns of a gradient and the angles of arrays.
Status launch_gauges(const Problem& p, const ConstState& state, const ConstState& gradient, const StateArrays& arrays,
                     bool to_angles, Stream stream) {
  const Heads heads = heads_of(p);
  return launch<Gauges>(Gauges::blocks(static_cast<int>(p.batch), heads, p.d),
                        {states_of(state),
                         states_of(gradient),
                         {const_cast<double*>(gradient.turns)},  // which are written to those of a caller's State
                         {arrays.angles},
                         heads,
                         p.power,
                         p.d,
                         p.e,
                         p.pairing == Pairing::half_split,
                         to_angles},
                        stream);
}

Status check_gradient(const Problem& problem, const ConstState& gradient, const ConstState& state,
                      const StateArrays& arrays) noexcept {
  SYMPOW_CUDA_TRY(check(problem, gradient, arrays, "gradient of a state"));
  return is_there(state) ? check_state(problem, state, "state", true) : Status();
}

}  // namespace
}  // namespace library

Status state_of_arrays(const Problem& p, const StateArrays& arrays, const State& state, Stream stream) noexcept {
  SYMPOW_CUDA_TRY(library::check(p, state, arrays, "state"));
  return library::launch_of_arrays(p, arrays, state, false, stream);
}

Status state_to_arrays(const Problem& p, const ConstState& state, const StateArrays& arrays, Stream stream) noexcept {
  SYMPOW_CUDA_TRY(library::check(p, state, arrays, "state"));
  return library::launch_to_arrays(p, state, arrays, stream);
}

Status gradient_of_arrays(const Problem& p, const StateArrays& arrays, const ConstState& state, const State& gradient,
                          Stream stream) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check_gradient(p, gradient, state, arrays));
  if (gradient.turns && !is_there(state))
    return refuse(Code::bad_argument, "state: its arrays are null pointers, but the gradient has turns, made of them");
  if (arrays.angles && !gradient.turns)
    return refuse(Code::bad_argument, "angles of the arrays of states: they are there, but the gradient has no turns");
  SYMPOW_CUDA_TRY(launch_of_arrays(p, arrays, gradient, true, stream));
  return gradient.turns ? launch_gauges(p, state, gradient, arrays, false, stream) : Status();
}

Status gradient_to_arrays(const Problem& p, const ConstState& gradient, const ConstState& state,
                          const StateArrays& arrays, Stream stream) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check_gradient(p, gradient, state, arrays));
  SYMPOW_CUDA_TRY(launch_to_arrays(p, gradient, {arrays.sums, arrays.normaliser}, stream));
  return arrays.angles ? launch_gauges(p, state, gradient, arrays, true, stream) : Status();
}

}  // namespace sympow::cuda
