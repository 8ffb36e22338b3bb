// attend: weights, states between chunks, and rows.
#include <cmath>

#include "../hopper/attention.hpp"
#include "checks.hpp"
#include "dispatch.hpp"
#include "states.hpp"
#include "vjp_memory.hpp"

namespace sympow::cuda {

namespace library {
namespace {

// τ of degenerate rows: 16 u of float, times 4 for long sums. Decoding has the same.
constexpr float noise = 16 * 4 * 0x1p-24f;

/// call.operator()<the kernel of rows>(its grid).
template <class T, int P, int d, block::Products products, class Call>
Status with_attention(const Problem& problem, const Plan& plan, const Tokens<T>& x, const Blocks& general,
                      const Call& call) {
  if constexpr (has_hopper<T, P, d>) {
    using Kernel = hopper::Attention<T, d>;
    int count = 0;
    if (!splits(problem))
      SYMPOW_CUDA_TRY(hopper_multiprocessors<Kernel>(problem, Kernel::items(x.sequences, x.heads, problem.e), count));
    if (count > 0) return call.template operator()<Kernel>(Kernel::blocks(x.sequences, x.heads, problem.e, count));
  }
  return with_rows<T, P, d, products>(plan.form,
                                      [&]<class Kernel>() { return call.template operator()<Kernel>(general); });
}

template <class T, int P, int d, block::Products products>
Status attend(const Problem& problem, const Plan& plan, const Inputs& inputs, const Outputs& outputs,
              const AttentionMemory& memory, float* whole, Stream stream) {
  Tokens<T> tokens = tokens_of_call<T>(problem, plan, inputs, outputs.final_state);
  const bool reads_state = plan.form == Form::chunked && (plan.chunks > 1 || inputs.initial_state.sums);
  const bool leaves_state = whole && has_states(problem, plan);
  const bool makes_states = reads_state || leaves_state || outputs.final_state.sums;
  const Grids grids = grids_of<T, P, d, products>(tokens.sequences, tokens.heads, problem.e, plan.form);
  SYMPOW_CUDA_TRY((with_attention<T, P, d, products>(problem, plan, tokens, grids.attention,
                                                     [&]<class Kernel>(const Blocks&) { return allow<Kernel>(); })));
  if (makes_states) SYMPOW_CUDA_TRY((allow_update<T, P, d, products>(problem, tokens)));
  if (problem.rates) {
    tokens.rotary = rotary_of(problem, paths_of(problem, memory), memory.begin);
    SYMPOW_CUDA_TRY(launch_paths(problem, tokens.sequences, {}, inputs.beta, paths_of(problem, memory),
                                 inputs.initial_state.turns, memory.begin, outputs.final_state.turns, stream));
  }
  SYMPOW_CUDA_TRY(launch_weights(problem, grids.weights, tokens, memory, stream));
  if (problem.rates) tokens.keys = read_only(turned_of<T>(problem, memory));
  Prefixes<T> prefixes = prefixes_of<T>(memory);
  if (leaves_state) prefixes.whole = {whole};
  if (makes_states)
    SYMPOW_CUDA_TRY((launch_states<T, P, d, products>(problem, grids, tokens, memory, prefixes, stream)));
  const double scale = std::abs(double{problem.scale});
  const typename Attention<T, P, d, products>::Args args{rows_of<const T>(inputs.queries, problem),
                                                         tokens.keys,
                                                         tokens.values,
                                                         rows_of<T>(outputs.rows, problem),
                                                         rows_of<float>(outputs.condition, problem),
                                                         tokens_of(memory),
                                                         chunks_of(memory),
                                                         prefixes,
                                                         tokens.sequences,
                                                         tokens.heads,
                                                         problem.e,
                                                         reads_state,
                                                         problem.is_normalised(),
                                                         scale == 0 ? 0 : P * std::log2(scale),
                                                         scale == 0                        ? 0.f
                                                         : problem.scale < 0 && P % 2 == 1 ? -1.f
                                                                                           : 1.f,
                                                         noise,
                                                         tokens.rotary,
                                                         rows_of<float>(outputs.factors, problem)};
  return with_attention<T, P, d, products>(
      problem, plan, tokens, grids.attention,
      [&]<class Kernel>(const Blocks& blocks) { return launch<Kernel>(blocks, args, stream); });
}

}  // namespace
}  // namespace library

Status attend(const Problem& problem, const Inputs& inputs, const Outputs& outputs, void* workspace, std::size_t bytes,
              Stream stream) noexcept {
  using namespace library;
  Plan plan;
  std::size_t needed = 0;
  SYMPOW_CUDA_TRY(plan_attention(problem, plan, outputs.forward != nullptr));
  SYMPOW_CUDA_TRY(check_arrays(problem, inputs, outputs));
  SYMPOW_CUDA_TRY(outputs.forward ? attention_vjp_workspace(problem, needed) : attention_workspace(problem, needed));
  SYMPOW_CUDA_TRY(check_memory(workspace, bytes, needed, "workspace"));
  if (outputs.forward) *outputs.forward = {};  // until all is on the stream
  if (problem.batch == 0) return {};
  Pieces pieces(workspace);
  const VjpMemory memory(problem, plan, pieces);
  SYMPOW_CUDA_TRY(dispatch(problem, [&]<class T, int P, int d, block::Products products>() {
    return library::attend<T, P, d, products>(problem, plan, inputs, outputs, memory.forward,
                                              outputs.forward ? memory.whole : nullptr, stream);
  }));
  if (outputs.forward) *outputs.forward = {problem, inputs, workspace};
  return {};
}

}  // namespace sympow::cuda
