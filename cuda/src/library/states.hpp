// Tokens into states: the kernels that `attend` and `fold` have in common.
#pragma once

#include "../hopper/update.hpp"
#include "../layout/chunks.hpp"
#include "../paths/paths.hpp"
#include "arguments.hpp"
#include "grids.hpp"
#include "launch.hpp"

namespace sympow::cuda::library {

/// Where tokens come from, and where their states go.
template <class T>
struct Tokens {
  Sequences sequences;
  Heads heads;
  Rows<const T> keys, values;
  Rows<const float> log_gates;  ///< data null: there are none
  States initial, final;        ///< null: none, not wanted
  Rotary rotary = {};
};

/// Those of a call, before anything has turned.
template <class T>
Tokens<T> tokens_of_call(const Problem& problem, const Plan& plan, const Inputs& inputs, const ConstState& final = {}) {
  return {sequences_of(problem, plan),
          heads_of(problem),
          rows_of<const T>(inputs.keys, problem),
          rows_of<const T>(inputs.values, problem),
          rows_of<const float>(inputs.log_gates, problem),
          states_of(inputs.initial_state),
          states_of(final)};
}

/// Before all else where there is rotary. Tokens after those of the tails in `slots`, whose paths are known.
inline Status launch_paths(const Problem& problem, const Sequences& sequences, const TailSlots& slots,
                           const ConstView& beta, const Rows<double>& paths, const double* before, double* begin,
                           double* after, Stream stream) {
  return launch<Paths>(Paths::blocks(sequences.batch, static_cast<int>(problem.key_heads)),
                       {rows_of<const float>(beta, problem),
                        paths,
                        sequences,
                        slots,
                        static_cast<int>(problem.key_heads),
                        problem.d / 2,
                        {problem.rates},
                        {before},
                        {begin},
                        {after}},
                       stream);
}

template <class T>
Status launch_weights(const Problem& problem, const Blocks& blocks, const Tokens<T>& x, const AttentionMemory& memory,
                      Stream stream) {
  return launch<Weights<T>>(blocks,
                            {x.keys, x.log_gates, x.sequences, x.heads, problem.d, problem.power, tokens_of(memory),
                             chunks_of(memory), x.rotary, turned_of<T>(problem, memory)},
                            stream);
}

/// Whether there are kernels for Hopper, and one of the gradients of keys.
template <class T, int P, int d>
inline constexpr bool has_hopper = P == 2 && sizeof(T) == 2;
template <class T, int P, int d>
inline constexpr bool has_hopper_keys = has_hopper<T, P, d> && d <= 64;

/// The multiprocessors of a device that has this kernel for Hopper; 0 where the problem, or so many items, ask for the
/// general one.
template <class Kernel>
Status hopper_multiprocessors(const Problem& problem, std::int64_t items, int& count) {
  count = 0;
  if (problem.kernels != Kernels::automatic || problem.e > Kernel::widest || items > 0x7fffffff) return {};
  return multiprocessors_of<Kernel>(count);
}

/// call.operator()<the kernel of the sums of chunks>(its grid), of tokens in these chunks and heads.
template <class T, int P, int d, block::Products products, class Call>
Status with_update(const Problem& problem, const Sequences& sequences, const Heads& heads, const Call& call) {
  if constexpr (has_hopper<T, P, d>) {
    int count = 0;
    const auto with_hopper = [&]<int column_tiles>() -> Status {
      using Kernel = hopper::Update<T, d, column_tiles>;
      SYMPOW_CUDA_TRY(hopper_multiprocessors<Kernel>(problem, Kernel::items(sequences, heads, problem.e), count));
      if (count == 0) return {};
      return call.template operator()<Kernel>(Kernel::blocks(sequences, heads, problem.e, count));
    };
    constexpr int most = d > 64 ? 2 : 1;
    const Status status =
        problem.e > 64 ? with_hopper.template operator()<most>() : with_hopper.template operator()<1>();
    if (count > 0 || !status.ok()) return status;
  }
  using Kernel = Update<T, P, d, products>;
  return call.template operator()<Kernel>(Kernel::blocks(sequences, heads, problem.e));
}
/// Before a call launches anything.
template <class T, int P, int d, block::Products products>
Status allow_update(const Problem& problem, const Tokens<T>& x) {
  return with_update<T, P, d, products>(problem, x.sequences, x.heads,
                                        [&]<class Kernel>(const Blocks&) { return allow<Kernel>(); });
}
template <class T, int P, int d, block::Products products>
Status launch_update(const Problem& problem, const typename Update<T, P, d, products>::Args& x, Stream stream) {
  return with_update<T, P, d, products>(problem, x.sequences, x.heads, [&]<class Kernel>(const Blocks& blocks) {
    return launch<Kernel>(blocks, x, stream);
  });
}

/// After the weights: levels, what each chunk adds, and the states between chunks, to `prefixes`.
template <class T, int P, int d, block::Products products>
Status launch_states(const Problem& problem, const Grids& grids, const Tokens<T>& x, const AttentionMemory& memory,
                     const Prefixes<T>& prefixes, Stream stream) {
  SYMPOW_CUDA_TRY(launch<Levels>(grids.levels, {x.sequences, x.heads, chunks_of(memory), x.initial, x.final}, stream));
  SYMPOW_CUDA_TRY((launch_update<T, P, d, products>(
      problem, {x.keys, x.values, tokens_of(memory), x.sequences, x.heads, sums_of(memory), problem.e}, stream)));
  return launch<Scan<T>>(
      grids.scan,
      {sums_of(memory), chunks_of(memory), prefixes, x.initial, x.final, x.sequences, x.heads, P, d, problem.e},
      stream);
}

}  // namespace sympow::cuda::library
