// attend_vjp: weights and states again unless attend has left them, rows and keys in units, adjoint states, gradients.
#include <cmath>

#include "../gradient/adjoint_weights.hpp"
#include "../gradient/flows.hpp"
#include "../gradient/key_angles.hpp"
#include "../gradient/key_gradients.hpp"
#include "../gradient/key_units.hpp"
#include "../gradient/passing.hpp"
#include "../gradient/passing_angles.hpp"
#include "../gradient/peaks.hpp"
#include "../gradient/query_gradients.hpp"
#include "../gradient/rates.hpp"
#include "../gradient/row_units.hpp"
#include "../gradient/scale_products.hpp"
#include "../hopper/key_gradients.hpp"
#include "../hopper/query_gradients.hpp"
#include "checks.hpp"
#include "dispatch.hpp"
#include "launch.hpp"
#include "states.hpp"
#include "vjp_memory.hpp"

namespace sympow::cuda {

namespace library {
namespace {

/// What the rows of each chunk add to the adjoint of the state before it, and the adjoints between chunks.
template <class T, int P, int d, block::Products products>
Status launch_adjoints(const Problem& problem, const Tokens<T>& x, const RowGradients& rows, const Gradients& gradients,
                       const VjpMemory& memory, Stream stream) {
  const int e = problem.e;
  const ChunkArrays chunks = memory.adjoint_chunks();
  const ChunkSums own = sums_of(memory.forward);  // those of the states are in the prefixes
  const States after = states_of(rows.final_state), before = states_of(gradients.initial_state);
  const Heads heads{x.heads.query, x.heads.state, x.heads.query};
  TokenArrays tokens = {};
  tokens.to_end = {memory.weights};
  SYMPOW_CUDA_TRY(launch<AdjointWeights>(AdjointWeights::blocks(x.sequences, x.heads),
                                         {tokens_of(memory.forward),
                                          memory.of_rows(true),
                                          {memory.weights},
                                          {memory.ends},
                                          {memory.exponents},
                                          {memory.begin},
                                          {memory.own_mass},
                                          x.sequences,
                                          x.heads},
                                         stream));
  SYMPOW_CUDA_TRY(launch<Levels>(Levels::blocks(x.sequences, x.heads),
                                 {x.sequences, x.heads, chunks, after, before, true}, stream));
  SYMPOW_CUDA_TRY((launch_update<T, P, d, products>(
      problem,
      {read_only(rows_of_workspace(problem, reinterpret_cast<T*>(memory.query_units), problem.query_heads, d)),
       read_only(rows_of_workspace(problem, reinterpret_cast<T*>(memory.row_units), problem.query_heads, e)),
       tokens,
       x.sequences,
       heads,
       own,
       e,
       {{memory.offset}, {memory.ends}, {memory.exponents}}},
      stream)));
  return launch<Scan<T>>(
      Scan<T>::blocks(x.sequences, x.heads, P, d, e),
      {own, chunks, memory.adjoints<T>().prefixes, after, before, x.sequences, x.heads, P, d, e, true}, stream);
}

/// What comes back to β and rates.
template <class T, int P, int d>
Status launch_angles(const Problem& problem, const Tokens<T>& x, const Gradients& gradients, Global<const double> total,
                     Global<const double> gauge, const Rows<const T>& keys, const RowArrays& of_rows,
                     const StatesOfChunks<T>& states, const StatesOfChunks<T>& adjoints, const AngleArrays& angles,
                     Stream stream) {
  using OfKeys = KeyAngles<T, d>;
  using OfStates = PassingAngles<T, P, d>;
  SYMPOW_CUDA_TRY(
      launch<OfKeys>(OfKeys::blocks(x.sequences, x.heads), {keys, of_rows, angles, x.sequences, x.heads}, stream));
  if (states.prefixes.sums.data)
    SYMPOW_CUDA_TRY(launch<OfStates>(OfStates::blocks(x.sequences, x.heads),
                                     {states, adjoints, total, gauge, angles, x.sequences, x.heads, problem.e},
                                     stream));
  const Heads by_keys{x.heads.query, x.heads.key, x.heads.key};
  if (gradients.beta.data)
    SYMPOW_CUDA_TRY(launch<Flows>(Flows::blocks(x.sequences, by_keys),
                                  {angles.flows, rows_of<float>(gradients.beta, problem), x.sequences, by_keys, true},
                                  stream));
  if (!gradients.rates) return {};
  return launch<Rates>(Rates::blocks(), {angles, {gradients.rates}, x.sequences, x.heads, d / 2}, stream);
}

template <class T, int P, int d, block::Products products>
Status attend_vjp(const Problem& problem, const Plan& plan, const Inputs& inputs, const RowGradients& rows,
                  const Gradients& gradients, const VjpMemory& memory, Stream stream) {
  Tokens<T> x = tokens_of_call<T>(problem, plan, inputs);
  const int e = problem.e;
  const bool normalised = problem.is_normalised(), has_flows = gradients.log_gates.data;
  const bool has_angles = gradients.beta.data || gradients.rates;
  const bool has_states = library::has_states(problem, plan), is_left = rows.forward != nullptr;
  const auto queries = rows_of_workspace(problem, reinterpret_cast<T*>(memory.query_units), problem.query_heads, d);
  const auto d_rows = rows_of_workspace(problem, reinterpret_cast<T*>(memory.row_units), problem.query_heads, e);
  const auto keys = rows_of_workspace(problem, reinterpret_cast<T*>(memory.key_units), problem.key_heads, d);
  const TokenArrays tokens = tokens_of(memory.forward);
  const RowArrays of_rows = memory.of_rows(has_states);
  const FlowArrays flows = has_flows ? memory.flows(has_states) : FlowArrays{};
  const StatesOfChunks<T> none = {}, states = has_states ? memory.states<T>() : none,
                          adjoints = has_states ? memory.adjoints<T>() : none;
  const double scale = normalised ? 1. : double{problem.scale}, size = std::abs(scale);
  const double scale_exponent = size == 0 ? 0 : P * std::log2(size);
  const float scale_sign = size == 0 ? 0.f : scale < 0 && P % 2 == 1 ? -1.f : 1.f;
  const auto with_angles = [&](const auto& call) -> Status {  // call.operator()<whether angles have gradients>()
    if (has_angles) return call.template operator()<true>();
    return call.template operator()<false>();
  };
  const Status allowed = with_angles([&]<bool wanted>() -> Status {
    SYMPOW_CUDA_TRY((allow<QueryGradients<T, P, d, wanted, products>>()));
    return allow<KeyGradients<T, P, d, wanted, products>>();
  });
  SYMPOW_CUDA_TRY(allowed);
  int multiprocessors = 0;  // of a device that has kernels for this call of its own
  if constexpr (has_hopper<T, P, d>) {
    using Queries = hopper::QueryGradients<T, d, hopper::channel_tiles<d>>;
    if (problem.state_heads() == problem.key_heads && !splits(problem) && !has_angles)
      SYMPOW_CUDA_TRY(
          hopper_multiprocessors<Queries>(problem, hopper::count_items(x.sequences, x.heads.query), multiprocessors));
    if (multiprocessors > 0) SYMPOW_CUDA_TRY(allow<Queries>());
    if constexpr (has_hopper_keys<T, P, d>)
      if (multiprocessors > 0) SYMPOW_CUDA_TRY((allow<hopper::KeyGradients<T, d>>()));
  }
  if (has_states) SYMPOW_CUDA_TRY((allow_update<T, P, d, products>(problem, x)));

  if (problem.rates) {
    x.rotary = rotary_of(problem, paths_of(problem, memory.forward), memory.forward.begin);
    if (!is_left)
      SYMPOW_CUDA_TRY(launch_paths(problem, x.sequences, {}, inputs.beta, paths_of(problem, memory.forward),
                                   inputs.initial_state.turns, memory.forward.begin, nullptr, stream));
  }
  const AngleArrays angles = memory.angles(x.rotary, has_angles, has_states);
  if (!is_left)
    SYMPOW_CUDA_TRY(launch_weights(problem, Weights<T>::blocks(x.sequences, x.heads), x, memory.forward, stream));
  if (problem.rates) x.keys = read_only(turned_of<T>(problem, memory.forward));
  if (has_states && !is_left)
    SYMPOW_CUDA_TRY(
        (launch_states<T, P, d, products>(problem, grids_of<T, P, d, products>(x.sequences, x.heads, e, plan.form), x,
                                          memory.forward, states.prefixes, stream)));
  SYMPOW_CUDA_TRY(launch<KeyUnits<T>>(
      KeyUnits<T>::blocks(x.sequences, x.heads),
      {x.keys, x.values, tokens, keys, {memory.values_exponent}, x.sequences, x.heads, d, e}, stream));
  SYMPOW_CUDA_TRY(launch<RowUnits<T>>(RowUnits<T>::blocks(x.sequences, x.heads),
                                      {rows_of<const T>(inputs.queries, problem),
                                       rows_of<const T>(rows.rows, problem),
                                       rows_of<const T>(rows.d_rows, problem),
                                       rows_of<const float>(rows.factors, problem),
                                       tokens,
                                       {states.chunks.enter.data},
                                       queries,
                                       d_rows,
                                       of_rows,
                                       x.sequences,
                                       x.heads,
                                       d,
                                       e,
                                       P,
                                       normalised,
                                       scale_exponent,
                                       scale_sign,
                                       x.rotary},
                                      stream));
  SYMPOW_CUDA_TRY(launch<Peaks>(Peaks::blocks(x.sequences, x.heads),
                                {tokens, of_rows, {memory.values_exponent}, x.sequences, x.heads}, stream));
  if (has_states) SYMPOW_CUDA_TRY((launch_adjoints<T, P, d, products>(problem, x, rows, gradients, memory, stream)));
  const Status pairs = with_angles([&]<bool wanted>() -> Status {
    using OfQueries = QueryGradients<T, P, d, wanted, products>;
    using OfKeys = KeyGradients<T, P, d, wanted, products>;
    const typename OfQueries::Args of_queries{read_only(queries),
                                              read_only(d_rows),
                                              read_only(keys),
                                              x.values,
                                              rows_of<T>(gradients.queries, problem),
                                              tokens,
                                              of_rows,
                                              flows,
                                              x.sequences,
                                              x.heads,
                                              e,
                                              states,
                                              angles};
    const typename OfKeys::Args of_keys{read_only(queries),
                                        read_only(d_rows),
                                        read_only(keys),
                                        x.values,
                                        rows_of<T>(gradients.keys, problem),
                                        rows_of<T>(gradients.values, problem),
                                        tokens,
                                        of_rows,
                                        flows,
                                        x.sequences,
                                        x.heads,
                                        e,
                                        adjoints,
                                        angles};
    const bool is_general = wanted || multiprocessors == 0;
    if constexpr (has_hopper<T, P, d> && !wanted) {
      using Queries = hopper::QueryGradients<T, d, hopper::channel_tiles<d>>;
      if (!is_general)
        SYMPOW_CUDA_TRY(launch<Queries>(Queries::blocks(x.sequences, x.heads, multiprocessors), of_queries, stream));
    }
    if (is_general) SYMPOW_CUDA_TRY(launch<OfQueries>(OfQueries::blocks(x.sequences, x.heads), of_queries, stream));
    if constexpr (has_hopper_keys<T, P, d> && !wanted) {
      using Keys = hopper::KeyGradients<T, d>;
      if (!is_general) return launch<Keys>(Keys::blocks(x.sequences, x.heads, multiprocessors), of_keys, stream);
    }
    return launch<OfKeys>(OfKeys::blocks(x.sequences, x.heads, e), of_keys, stream);
  });
  SYMPOW_CUDA_TRY(pairs);
  if (gradients.scale) {
    const double factor = normalised || scale == 0 ? 0. : P / scale;
    SYMPOW_CUDA_TRY(launch<ScaleProducts<T>>(ScaleProducts<T>::blocks(x.sequences, x.heads),
                                             {rows_of<const T>(rows.rows, problem),
                                              rows_of<const T>(rows.d_rows, problem),
                                              {memory.scale_products},
                                              x.sequences,
                                              e,
                                              factor},
                                             stream));
    AngleArrays parts = {};
    parts.rows = {memory.scale_products};
    SYMPOW_CUDA_TRY(launch<Rates>(Rates::blocks(), {parts, {gradients.scale}, x.sequences, x.heads, 1}, stream));
  }
  if (has_flows && has_states)
    SYMPOW_CUDA_TRY(launch<Passing<T>>(
        Passing<T>::blocks(x.sequences, x.heads),
        {states, adjoints, {memory.forward.total}, flows.passing, x.sequences, x.heads, P, d, e}, stream));
  if (has_flows)
    SYMPOW_CUDA_TRY(launch<Flows>(Flows::blocks(x.sequences, x.heads),
                                  {flows, rows_of<float>(gradients.log_gates, problem), x.sequences, x.heads}, stream));
  if (!has_angles) return {};
  return launch_angles<T, P, d>(problem, x, gradients, {memory.forward.total}, {rows.final_state.turns},
                                read_only(keys), of_rows, states, adjoints, angles, stream);
}

/// Whether it is what attend has left for this call, as far as the host can tell.
Status check_forward(const Forward& forward, const Problem& problem, const Inputs& inputs, const void* workspace) {
  if (!forward.workspace)
    return refuse(Code::bad_argument, "forward: an attend that was put on its stream has left nothing in it");
  if (forward.workspace != workspace)
    return refuse(Code::bad_argument, "forward: it was left in the workspace at %p, and this one is at %p",
                  forward.workspace, workspace);
  if (!(forward.problem == problem)) return refuse(Code::bad_argument, "forward: it was left by another problem");
  if (!(forward.inputs == inputs)) return refuse(Code::bad_argument, "forward: it was left by other inputs");
  return {};
}

/// Whether every grid fits; those of other kernels are no larger.
bool fit(const Problem& problem, const Plan& plan) {
  const Sequences sequences = sequences_of(problem, plan);
  const Heads heads = heads_of(problem);
  const int channels = problem.element == Element::f32 ? tile_channels<float> : tile_channels<block::bf16>;
  const auto tiles = (problem.e + channels - 1) / channels;
  return Blocks{TokenBlock::count(sequences) * tiles, heads.query}.fit();
}

}  // namespace
}  // namespace library

Status attention_vjp_workspace(const Problem& problem, std::size_t& bytes) noexcept {
  library::Plan plan;
  SYMPOW_CUDA_TRY(library::plan_attention(problem, plan, true));
  library::Pieces pieces;
  const library::VjpMemory counted_only(problem, plan, pieces);
  return library::counted(pieces, "workspace", bytes);
}

Status attend_vjp(const Problem& problem, const Inputs& inputs, const RowGradients& rows, const Gradients& gradients,
                  void* workspace, std::size_t bytes, Stream stream) noexcept {
  using namespace library;
  Plan plan;
  std::size_t needed = 0;
  SYMPOW_CUDA_TRY(plan_attention(problem, plan, true));
  if (!fit(problem, plan))
    return refuse(Code::too_large, "%lld sequences of %lld tokens are more blocks than a grid has",
                  static_cast<long long>(problem.batch), static_cast<long long>(problem.tokens));
  if (gradients.scale && !problem.is_normalised() && problem.scale == 0 && problem.power == 1)
    return refuse(Code::bad_argument, "gradient of the scale: of P 1 the scale must not be 0");
  SYMPOW_CUDA_TRY(check_vjp_arrays(problem, inputs, rows, gradients));
  SYMPOW_CUDA_TRY(attention_vjp_workspace(problem, needed));
  SYMPOW_CUDA_TRY(check_memory(workspace, bytes, needed, "workspace"));
  if (problem.batch == 0) {
    SYMPOW_CUDA_TRY(copy(nullptr, gradients.rates, problem.d / 2, "gradients of rates", stream));
    return copy(nullptr, gradients.scale, 1, "gradient of the scale", stream);
  }
  if (rows.forward) SYMPOW_CUDA_TRY(check_forward(*rows.forward, problem, inputs, workspace));
  Pieces pieces(workspace);
  const VjpMemory memory(problem, plan, pieces);
  SYMPOW_CUDA_TRY(dispatch(problem, [&]<class T, int P, int d, block::Products products>() -> Status {
    return library::attend_vjp<T, P, d, products>(problem, plan, inputs, rows, gradients, memory, stream);
  }));
  return copy(rows.final_state.turns, gradients.initial_state.turns, problem.batch * problem.key_heads * problem.d / 2,
              "turns of the gradient of the initial state", stream);
}

}  // namespace sympow::cuda
