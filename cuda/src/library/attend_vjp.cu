// attend_vjp: weights and states again, rows and keys in units, adjoint states, then gradients.
#include <cmath>

#include "../gradient/adjoint_weights.hpp"
#include "../gradient/flows.hpp"
#include "../gradient/key_gradients.hpp"
#include "../gradient/key_units.hpp"
#include "../gradient/passing.hpp"
#include "../gradient/peaks.hpp"
#include "../gradient/query_gradients.hpp"
#include "../gradient/row_units.hpp"
#include "checks.hpp"
#include "dispatch.hpp"
#include "states.hpp"

namespace sympow::cuda {

namespace library {
namespace {

/// The arrays of a workspace beside those of the forward pass: see RowArrays, FlowArrays, KeyUnits, RowUnits; and of
/// the chunked form AdjointWeights, ChunkArrays and Prefixes of adjoints.
struct VjpMemory {
  AttentionMemory forward;
  std::byte *query_units, *row_units, *key_units;
  double *exponent, *peak;
  float *factor, *offset, *inverse;
  std::int32_t *unit, *values_exponent;
  double *row, *key, *inside, *through;
  float *row_mass, *weights;
  std::int32_t *ends, *exponents;
  double* begin;
  float* own_mass;
  double* enter;
  float *mass, *keep, *add;
  std::int32_t* shift;
  std::byte* adjoint_sums;
  float* adjoint_normaliser;
  double *later, *passing;

  VjpMemory(const Problem& p, const Plan& plan, Pieces& pieces) noexcept : forward(p, plan, pieces) {
    const std::uint64_t slots = product(p.query_heads, plan.slots), rows = product(slots, plan.chunk);
    const std::uint64_t blocks = static_cast<std::uint64_t>(plan.chunk / block_tokens), all = all_tokens(p);
    pieces.take(query_units, product(all, p.query_heads, p.d, bytes_of(p.element)));
    pieces.take(row_units, product(all, p.query_heads, p.e, bytes_of(p.element)));
    pieces.take(key_units, product(all, p.key_heads, p.d, bytes_of(p.element)));
    pieces.take(exponent, rows);
    pieces.take(peak, rows);
    pieces.take(factor, rows);
    pieces.take(offset, rows);
    pieces.take(inverse, rows);
    pieces.take(unit, slots);
    pieces.take(values_exponent, product(p.key_heads, plan.slots, blocks));
    const bool has_flows = p.gate_heads > 0;
    pieces.take(row, has_flows ? rows : 0);
    pieces.take(key, has_flows ? rows : 0);
    pieces.take(inside, has_flows ? rows : 0);
    pieces.take(through, has_flows ? product(slots, blocks, blocks) : 0);

    const bool states = plan.form == Form::chunked;
    const std::uint64_t of_states = states ? product(p.state_heads(), plan.slots) : 0;
    const std::uint64_t padded = product(of_states, state_rows(p.power, p.d));
    pieces.take(row_mass, states ? rows : 0);
    pieces.take(weights, states ? rows : 0);
    pieces.take(ends, of_states);
    pieces.take(exponents, of_states);
    pieces.take(begin, of_states);
    pieces.take(own_mass, of_states);
    pieces.take(enter, of_states);
    pieces.take(mass, of_states);
    pieces.take(keep, of_states);
    pieces.take(add, of_states);
    pieces.take(shift, of_states);
    pieces.take(adjoint_sums, product(padded, p.e, bytes_of(p.element)));
    pieces.take(adjoint_normaliser, padded);
    pieces.take(later, has_flows ? product(of_states, plan.chunk) : 0);
    pieces.take(passing, has_flows ? of_states : 0);
  }
  /// With what only the chunked form has.
  [[nodiscard]] RowArrays of_rows(bool states) const {
    return {{exponent}, {peak}, {factor}, {offset}, {inverse}, {states ? row_mass : nullptr}, {unit}};
  }
  [[nodiscard]] FlowArrays flows(bool states) const {
    return {{row}, {key}, {inside}, {through}, {states ? later : nullptr}, {states ? passing : nullptr}};
  }
  [[nodiscard]] ChunkArrays adjoint_chunks() const {
    return {{forward.total}, {begin}, {own_mass}, {enter}, {mass}, {keep}, {add}, {shift}};
  }
  /// States before chunks, in the place of those that rows are made of.
  template <class T>
  [[nodiscard]] StatesOfChunks<T> states() const {
    Prefixes<T> prefixes;
    prefixes.sums = {reinterpret_cast<T*>(forward.prefix_sums)};
    prefixes.whole = {reinterpret_cast<float*>(forward.prefix_normaliser)};
    return {prefixes, chunks_of(forward)};
  }
  template <class T>
  [[nodiscard]] StatesOfChunks<T> adjoints() const {
    Prefixes<T> prefixes;
    prefixes.sums = {reinterpret_cast<T*>(adjoint_sums)};
    prefixes.whole = {adjoint_normaliser};
    return {prefixes, adjoint_chunks()};
  }
};

Status plan_vjp(const Problem& problem, Plan& plan) noexcept {
  SYMPOW_CUDA_TRY(check_vjp(problem));
  SYMPOW_CUDA_TRY(plan_attention(problem, plan));
  if (plan.form == Form::chunked && problem.states == Precision::split)
    return refuse(Code::not_compiled, "there are no gradients of split states; those of rounded ones there are");
  return {};
}

/// What the rows of each chunk add to the adjoint of the state before it, and the adjoints between chunks.
template <class T, int P, int d>
Status launch_adjoints(const Problem& problem, const Tokens<T>& x, const Inputs& inputs, const RowGradients& rows,
                       const Gradients& gradients, const VjpMemory& memory, Stream stream) {
  using Kernel = Update<T, P, d>;
  const int e = problem.e;
  const ChunkArrays chunks = memory.adjoint_chunks();
  const ChunkSums own = sums_of(memory.forward);  // those of the states are in the prefixes
  const States after = states_of(rows.final_state), before = states_of(gradients.initial_state);
  const Heads heads{x.heads.query, x.heads.state, x.heads.query};
  TokenArrays tokens = {};
  tokens.inverse = {memory.inverse};
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
  SYMPOW_CUDA_TRY(launch<Kernel>(
      Kernel::blocks(x.sequences, heads, e),
      {rows_of<const T>(inputs.queries, problem),
       read_only(rows_of_workspace(problem, reinterpret_cast<T*>(memory.row_units), problem.query_heads, e)),
       tokens,
       x.sequences,
       heads,
       own,
       e,
       {{memory.offset}, {memory.ends}, {memory.exponents}}},
      stream));
  return launch<Scan<T>>(
      Scan<T>::blocks(x.sequences, x.heads, P, d, e),
      {own, chunks, memory.adjoints<T>().prefixes, after, before, x.sequences, x.heads, P, d, e, true}, stream);
}

template <class T, int P, int d>
Status attend_vjp(const Problem& problem, const Plan& plan, const Inputs& inputs, const RowGradients& rows,
                  const Gradients& gradients, const VjpMemory& memory, Stream stream) {
  const Tokens<T> x{sequences_of(problem, plan),
                    heads_of(problem),
                    rows_of<const T>(inputs.keys, problem),
                    rows_of<const T>(inputs.values, problem),
                    rows_of<const float>(inputs.log_gates, problem),
                    states_of(inputs.initial_state),
                    {}};
  const int e = problem.e;
  const bool normalised = problem.is_normalised(), has_flows = gradients.log_gates.data;
  const bool has_states = plan.form == Form::chunked && (plan.chunks > 1 || problem.carries_state);
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
  using OfQueries = QueryGradients<T, P, d>;
  using OfKeys = KeyGradients<T, P, d>;
  SYMPOW_CUDA_TRY(allow<OfQueries>());
  SYMPOW_CUDA_TRY(allow<OfKeys>());
  if (has_states) SYMPOW_CUDA_TRY((allow<Update<T, P, d>>()));

  SYMPOW_CUDA_TRY(launch_weights(problem, Weights<T>::blocks(x.sequences, x.heads), x, memory.forward, stream));
  if (has_states)
    SYMPOW_CUDA_TRY((launch_states<T, P, d, block::Products::exact>(
        problem, grids_of<T, P, d, block::Products::exact>(x.sequences, x.heads, e), x, memory.forward, states.prefixes,
        stream)));
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
                                       scale_sign},
                                      stream));
  SYMPOW_CUDA_TRY(launch<Peaks>(Peaks::blocks(x.sequences, x.heads),
                                {tokens, of_rows, {memory.values_exponent}, x.sequences, x.heads}, stream));
  if (has_states) SYMPOW_CUDA_TRY((launch_adjoints<T, P, d>(problem, x, inputs, rows, gradients, memory, stream)));
  SYMPOW_CUDA_TRY(launch<OfQueries>(
      OfQueries::blocks(x.sequences, x.heads),
      {read_only(queries), read_only(d_rows), read_only(keys), x.values, rows_of<T>(gradients.queries, problem), tokens,
       of_rows, flows, x.sequences, x.heads, e, states},
      stream));
  SYMPOW_CUDA_TRY(launch<OfKeys>(
      OfKeys::blocks(x.sequences, x.heads, e),
      {read_only(queries), read_only(d_rows), read_only(keys), x.values, rows_of<T>(gradients.keys, problem),
       rows_of<T>(gradients.values, problem), tokens, of_rows, flows, x.sequences, x.heads, e, adjoints},
      stream));
  if (!has_flows) return {};
  if (has_states)
    SYMPOW_CUDA_TRY(launch<Passing<T>>(
        Passing<T>::blocks(x.sequences, x.heads),
        {states, adjoints, {memory.forward.total}, flows.passing, x.sequences, x.heads, P, d, e}, stream));
  return launch<Flows>(Flows::blocks(x.sequences, x.heads),
                       {flows, rows_of<float>(gradients.log_gates, problem), x.sequences, x.heads}, stream);
}

/// Whether every grid fits; those of other kernels are no larger.
bool fit(const Problem& problem, const Plan& plan) {
  const Sequences sequences = sequences_of(problem, plan);
  const Heads heads = heads_of(problem);
  const auto tiles = (problem.e + 63) / 64;
  return Blocks{TokenBlock::count(sequences) * tiles, heads.query}.fit();
}

}  // namespace
}  // namespace library

Status attention_vjp_workspace(const Problem& problem, std::size_t& bytes) noexcept {
  library::Plan plan;
  SYMPOW_CUDA_TRY(library::plan_vjp(problem, plan));
  library::Pieces pieces;
  const library::VjpMemory counted_only(problem, plan, pieces);
  return library::counted(pieces, "workspace", bytes);
}

Status attend_vjp(const Problem& problem, const Inputs& inputs, const RowGradients& rows, const Gradients& gradients,
                  void* workspace, std::size_t bytes, Stream stream) noexcept {
  using namespace library;
  Plan plan;
  std::size_t needed = 0;
  SYMPOW_CUDA_TRY(plan_vjp(problem, plan));
  if (!fit(problem, plan))
    return refuse(Code::too_large, "%lld sequences of %lld tokens are more blocks than a grid has",
                  static_cast<long long>(problem.batch), static_cast<long long>(problem.tokens));
  SYMPOW_CUDA_TRY(check_vjp_arrays(problem, inputs, rows, gradients));
  SYMPOW_CUDA_TRY(attention_vjp_workspace(problem, needed));
  SYMPOW_CUDA_TRY(check_memory(workspace, bytes, needed, "workspace"));
  if (problem.batch == 0) return {};
  Pieces pieces(workspace);
  const VjpMemory memory(problem, plan, pieces);
  return dispatch(problem, [&]<class T, int P, int d, block::Products>() -> Status {
    if constexpr (sizeof(T) == 2)
      return library::attend_vjp<T, P, d>(problem, plan, inputs, rows, gradients, memory, stream);
    else
      return {};  // refused before
  });
}

}  // namespace sympow::cuda
