// A thread block, as its kernels see it: the same names on a GPU and on a host that checks every instruction.
//
//   device/  for nvcc: Lanes<T> is T, a name is one PTX instruction
//   host/    for any C++20 compiler: Lanes<T> is 32 values, a warp is a fiber, a name is one instruction of a warp
//
// A kernel is written for a warp. What may differ between lanes is a Lanes<T>, what may not is a plain T. `if` and
// `for` take plain values only, so control flow is uniform in a warp, as mma, ldmatrix and shuffles demand. Lanes
// differ by predicates (`active`).
//
//   struct Kernel {
//     static constexpr int threads, shared_bytes, blocks_per_multiprocessor;
//     struct Args { Global<const bf16> x; Global<float> y; int n; };
//     SYMPOW_DEVICE static void run(const Args&);
//   };
//
//   lane()  warp()  block_index(axis)                         Lanes<int>, int, int; warp() costs a shuffle: ask once
//   barrier()  bar_sync(id, threads)  bar_arrive(id, threads) all warps; those of a named barrier, id 1 … 15
//   warp_barrier()                                            orders shared memory between lanes of a warp
//   Arena::take<T>(n)                                         Shared<T>, aligned to 128 bytes;  .as<U>()  .after(n)
//   load(r[N], memory, i, active)                             N entries from i_l on, N sizeof(T) = 2, 4, 8, 16 bytes,
//   store(memory, i, r[N], active)                            aligned to as many; 32 bytes are two instructions
//   load_one(memory, i)                                       the entry i_l of each lane
//   cp_async<4|8|16>(shared, i, global, j, count, active)     brings `count` bytes, the rest are 0
//   cp_async_commit()  cp_async_wait<N>()                     groups; waits until at most N are pending
//   ldmatrix<Transposed>(r[1|2|4], shared, i)                 8 × 8 matrices
//   mma<products>(c[4], a[4], b[2])                           C += A B, m16n8k16, float accumulators
//   group_mma<products>(sum[t][9][4], left[t][4],             sum += left × (16 rows of 64, of 8): of four warps,
//                       rows, i, octets, j)                   asynchronous: sums count once they are waited for;
//   group_mma<products, 64>(…)                                octets that are 64 entries apart: faster
//   group_commit<T>()  group_wait<T, N>()                     closes a group of products; waits for all but N groups
//   group_finish<T>(sums)                                     waits for all
//   products_overlap                                          whether warps of this chip go on meanwhile
//   publish<T>()                                              before the barrier after which group_mma reads
//   shuffle(x, from)  shuffle_xor(x, mask)                    of 4 or 8 bytes
//   shuffle_up(x, distance)  uniform(x)                       of the lane `distance` before; of lane 0, a plain value
//   pack<T>(lower, upper)  lower(p)  upper(p)  multiply(p, q) pairs
//   both_lower(p)  both_upper(p)  join(x, y)                  a half twice; a pair of two T
//   where(condition, yes, no)  convert<To>(x)  bit_cast<To>(x)
//   exp2(x)  log2(x)  sqrt(x)  floor(x)  absolute(x)          exp2 of float: 2 units in the last place on the device
//
// T is bf16, fp16 or float. Of floats a matrix is loaded by ordinary loads, 8 or 4 bytes a lane, and a product is six
// of bf16 parts, or three (number.hpp: Products, which 16 bits pass over). These are summed apart from the accumulator,
// which is added to in float, to nearest: so sums do not drift where tensor cores cut.
#pragma once

#include "fragment.hpp"
#include "number.hpp"

#if defined(__CUDACC__)
#include "device/float_instructions.hpp"
#include "device/group_instructions.hpp"
#else
#include "host/group_instructions.hpp"
#define SYMPOW_DEVICE inline
#define SYMPOW_UNROLL
#define SYMPOW_ROLL
#define SYMPOW_UNROLL_BY(count)
#endif
