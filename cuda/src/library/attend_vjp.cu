// attend_vjp: weights again, rows and keys in units, then gradients.
#include <cmath>

#include "../gradient/flows.hpp"
#include "../gradient/key_gradients.hpp"
#include "../gradient/key_units.hpp"
#include "../gradient/peaks.hpp"
#include "../gradient/query_gradients.hpp"
#include "../gradient/row_units.hpp"
#include "checks.hpp"
#include "dispatch.hpp"
#include "states.hpp"

namespace sympow::cuda {

namespace library {
namespace {

/// The arrays of a workspace beside those of the forward pass: see RowArrays, FlowArrays, KeyUnits, RowUnits.
struct VjpMemory {
  AttentionMemory forward;
  std::byte *query_units, *row_units, *key_units;
  double *exponent, *peak;
  float *factor, *offset;
  std::int32_t *query, *unit, *values_exponent;
  double *row, *key, *inside, *through;

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
    pieces.take(query, rows);
    pieces.take(unit, slots);
    pieces.take(values_exponent, product(p.key_heads, plan.slots, blocks));
    const bool has_flows = p.gate_heads > 0;
    pieces.take(row, has_flows ? rows : 0);
    pieces.take(key, has_flows ? rows : 0);
    pieces.take(inside, has_flows ? rows : 0);
    pieces.take(through, has_flows ? product(slots, blocks, blocks) : 0);
  }
  [[nodiscard]] RowArrays of_rows() const { return {{exponent}, {peak}, {factor}, {offset}, {query}, {unit}}; }
  [[nodiscard]] FlowArrays flows() const { return {{row}, {key}, {inside}, {through}}; }
};

Status plan_vjp(const Problem& problem, Plan& plan) noexcept {
  SYMPOW_CUDA_TRY(check_vjp(problem));
  return plan_attention(problem, plan);
}

template <class T, int P, int d>
Status attend_vjp(const Problem& problem, const Plan& plan, const Inputs& inputs, const RowGradients& rows,
                  const Gradients& gradients, const VjpMemory& memory, Stream stream) {
  const Tokens<T> x{sequences_of(problem, plan),
                    heads_of(problem),
                    rows_of<const T>(inputs.keys, problem),
                    rows_of<const T>(inputs.values, problem),
                    rows_of<const float>(inputs.log_gates, problem),
                    {},
                    {}};
  const int e = problem.e;
  const bool normalised = problem.is_normalised();
  const auto queries = rows_of_workspace(problem, reinterpret_cast<T*>(memory.query_units), problem.query_heads, d);
  const auto d_rows = rows_of_workspace(problem, reinterpret_cast<T*>(memory.row_units), problem.query_heads, e);
  const auto keys = rows_of_workspace(problem, reinterpret_cast<T*>(memory.key_units), problem.key_heads, d);
  const TokenArrays tokens = tokens_of(memory.forward);
  const RowArrays of_rows = memory.of_rows();
  const FlowArrays flows = gradients.log_gates.data ? memory.flows() : FlowArrays{};
  const double scale = normalised ? 1. : double{problem.scale}, size = std::abs(scale);
  const double scale_exponent = size == 0 ? 0 : P * std::log2(size);
  const float scale_sign = size == 0 ? 0.f : scale < 0 && P % 2 == 1 ? -1.f : 1.f;
  using OfQueries = QueryGradients<T, P, d>;
  using OfKeys = KeyGradients<T, P, d>;
  SYMPOW_CUDA_TRY(allow<OfQueries>());
  SYMPOW_CUDA_TRY(allow<OfKeys>());

  SYMPOW_CUDA_TRY(launch_weights(problem, Weights<T>::blocks(x.sequences, x.heads), x, memory.forward, stream));
  SYMPOW_CUDA_TRY(launch<KeyUnits<T>>(
      KeyUnits<T>::blocks(x.sequences, x.heads),
      {x.keys, x.values, tokens, keys, {memory.values_exponent}, x.sequences, x.heads, d, e}, stream));
  SYMPOW_CUDA_TRY(
      launch<RowUnits<T>>(RowUnits<T>::blocks(x.sequences, x.heads),
                          {rows_of<const T>(inputs.queries, problem), rows_of<const T>(rows.rows, problem),
                           rows_of<const T>(rows.d_rows, problem), rows_of<const float>(rows.factors, problem), tokens,
                           queries, d_rows, of_rows, x.sequences, x.heads, d, e, P, normalised},
                          stream));
  SYMPOW_CUDA_TRY(launch<Peaks>(Peaks::blocks(x.sequences, x.heads),
                                {tokens, of_rows, {memory.values_exponent}, x.sequences, x.heads}, stream));
  SYMPOW_CUDA_TRY(launch<OfQueries>(
      OfQueries::blocks(x.sequences, x.heads),
      {read_only(queries), read_only(d_rows), read_only(keys), x.values, rows_of<T>(gradients.queries, problem), tokens,
       of_rows, flows, x.sequences, x.heads, e, scale_exponent, scale_sign},
      stream));
  SYMPOW_CUDA_TRY(launch<OfKeys>(OfKeys::blocks(x.sequences, x.heads, e),
                                 {read_only(queries), read_only(d_rows), read_only(keys), x.values,
                                  rows_of<T>(gradients.keys, problem), rows_of<T>(gradients.values, problem), tokens,
                                  of_rows, flows, x.sequences, x.heads, e, scale_exponent, scale_sign},
                                 stream));
  if (!gradients.log_gates.data) return {};
  return launch<Flows>(Flows::blocks(x.sequences, x.heads),
                       {flows, rows_of<float>(gradients.log_gates, problem), x.sequences, x.heads, std::pow(scale, P)},
                       stream);
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
