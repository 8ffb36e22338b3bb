// Instructions of compute capability 9.0a that the kernels for Hopper use, a function each: barriers in shared memory
// (mbarrier), products of four warps with swizzled tiles (wgmma), and registers moved between warps.
#pragma once

#include <concepts>

#include "../block/block.hpp"
#include "../layout/swizzle.hpp"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace sympow::cuda::hopper {

using block::Pair, block::Shared;

/// A tile: 64 rows of 64 numbers of 16 bits in octet_place<64>, which is the 128-byte swizzle of wgmma. Its address is
/// a multiple of 1024.
inline constexpr int tile_rows = 64, tile_entries = 64 * 64, tile_bytes = 2 * tile_entries;

/// Where an octet begins of a row of d channels, whose 64s are in tiles next to each other.
template <int d>
struct TilePlaces {
  SYMPOW_DEVICE static int at(int row, int octet) {
    if constexpr (d <= 64)
      return octet_place<64>(row, octet);
    else
      return octet / 8 * tile_entries + octet_place<64>(row, octet % 8);
  }
};

// ---- barriers: a phase ends when as many threads have arrived as `init` says ----

SYMPOW_DEVICE void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Before the barrier of the block after which other threads use what `barrier_init` made.
SYMPOW_DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
template <int count = 1>
SYMPOW_DEVICE void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(count) : "memory");
}
/// Whether the phase of this parity has ended.
SYMPOW_DEVICE int barrier_has_ended(std::uint32_t barrier, int parity) {
  int has_ended;
  asm volatile("{\n.reg .pred P1;\nmbarrier.test_wait.parity.shared::cta.b64 P1, [%1], %2;\nselp.s32 %0, 1, 0, P1;\n}"
               : "=r"(has_ended)
               : "r"(barrier), "r"(parity)
               : "memory");
  return has_ended;
}
/// Arrives when all copies that this thread has asked for so far have come.
SYMPOW_DEVICE void barrier_arrive_with_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/// Waits until the phase of this parity has ended: 0 of the first phase, then 1, 0, …
SYMPOW_DEVICE void barrier_wait(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred P1;\nWAIT_%=:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE_%=;\n"
      "bra WAIT_%=;\nDONE_%=:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// Copies 16 bytes, or makes them 0 for `bytes` 0, when nothing is read; asynchronous, as cp_async of a block.
SYMPOW_DEVICE void copy_octet(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
/// Makes what this thread has written to shared memory visible to wgmma.
SYMPOW_DEVICE void publish_tiles() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// The block's registers are shared out anew: all four warps of a group give some away, or take some.
template <int registers>
SYMPOW_DEVICE void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
SYMPOW_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/// Stores what block::ldmatrix<true> loads from this place.
template <class T>
SYMPOW_DEVICE void stmatrix(Shared<T> rows, int place, const Pair<T> (&four)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(rows.address + 2 * place),
               "r"(four[0].bits), "r"(four[1].bits), "r"(four[2].bits), "r"(four[3].bits)
               : "memory");
}

/// Within 2^-23 of it.
SYMPOW_DEVICE float square_root(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

// ---- products of a group of four warps ----

/// 64 rows and columns: row 16 w + 8 g + lane / 4 of warp w, column 8 o + lane % 4 · 2 + h is [o][2 g + h].
using Accumulator = float[8][4];
SYMPOW_DEVICE void clear(Accumulator& c) {
#pragma unroll
  for (auto& octet : c)
#pragma unroll
    for (float& sum : octet) sum = 0.f;
}
/// Left factors of a warp's 16 rows, 16 columns a step: rows lane / 4 + 8 (r % 2), octet 2 s + r / 2 is [s][r].
template <class T>
using LeftFactors = Pair<T>[4][4];

template <class T>
SYMPOW_DEVICE void clear(LeftFactors<T>& left) {
#pragma unroll
  for (auto& step : left)
#pragma unroll
    for (auto& pair : step) pair.bits = 0;
}

/// Keeps the compiler from moving what is done to a register across this line.
SYMPOW_DEVICE void pin(float& x) { asm volatile("" : "+f"(x)::"memory"); }
SYMPOW_DEVICE void pin(int& x) { asm volatile("" : "+r"(x)::"memory"); }
SYMPOW_DEVICE void pin(std::int64_t& x) { asm volatile("" : "+l"(x)::"memory"); }
SYMPOW_DEVICE void pin(std::uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }
template <class T>
SYMPOW_DEVICE void pin(Pair<T>& x) {
  asm volatile("" : "+r"(x.bits)::"memory");
}
template <class X, std::size_t N>
SYMPOW_DEVICE void pin(X (&x)[N]) {
#pragma unroll
  for (std::size_t i = 0; i < N; ++i) pin(x[i]);
}
/// Before products whose registers other instructions have written.
SYMPOW_DEVICE void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SYMPOW_DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits for all but the last N committed groups of products.
template <int N>
SYMPOW_DEVICE void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/// The lower half of a tile's descriptor (PTX ISA, "Matrix descriptor"), the upper one is the same for all: eight rows
/// are 1024 bytes, swizzled by 128. 16 columns further are + 2, 16 rows + 128.
SYMPOW_DEVICE std::uint32_t descriptor_of(std::uint32_t tile) { return (tile & 0x3ffffu) >> 4 | 64u << 16; }
inline constexpr std::uint32_t tile_step = tile_bytes / 16;  ///< to the next tile
SYMPOW_DEVICE std::uint64_t whole_descriptor(std::uint32_t lower) {
  std::uint64_t all;
  asm("mov.b64 %0, {%1, %2};" : "=l"(all) : "r"(lower), "n"(64u | 1u << 30));
  return all;
}

#define SYMPOW_ACCUMULATOR                                                                                     \
  "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),     \
      "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]), \
      "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), \
      "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), \
      "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])

#define SYMPOW_SUMS                                                                                       \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// c = a b (+ c if `adds`) of 16 columns of a, which is in registers or in a tile, and 16 of b: b transposed for 0, its
// rows for 1.
#define SYMPOW_WGMMA(T, type)                                                                                       \
  template <int by_rows>                                                                                            \
  SYMPOW_DEVICE void wgmma(Accumulator& c, const Pair<T>(&a)[4], std::uint64_t b, bool adds) {                      \
    asm volatile(                                                                                                   \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                                \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " SYMPOW_SUMS                                 \
        ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"                                                             \
        : SYMPOW_ACCUMULATOR                                                                                        \
        : "r"(a[0].bits), "r"(a[1].bits), "r"(a[2].bits), "r"(a[3].bits), "l"(b), "r"(static_cast<int>(adds)),      \
          "n"(by_rows));                                                                                            \
  }                                                                                                                 \
  template <std::same_as<T> Element>                                                                                \
  SYMPOW_DEVICE void wgmma(Accumulator& c, std::uint64_t a, std::uint64_t b, bool adds) {                           \
    asm volatile(                                                                                                   \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                                \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " SYMPOW_SUMS ", %32, %33, p, 1, 1, 0, 0;\n}" \
        : SYMPOW_ACCUMULATOR                                                                                        \
        : "l"(a), "l"(b), "r"(static_cast<int>(adds)));                                                             \
  }
SYMPOW_WGMMA(block::bf16, "bf16")
SYMPOW_WGMMA(block::fp16, "f16")
#undef SYMPOW_WGMMA
#undef SYMPOW_SUMS
#undef SYMPOW_ACCUMULATOR

/// c = left × tileᵀ (+ c): the tile's rows are columns of c. 16 columns of both a step; tiles by their descriptors.
template <int steps = 4, class T>
SYMPOW_DEVICE void multiply_transposed(Accumulator& c, const LeftFactors<T>& left, std::uint32_t tile, bool adds) {
#pragma unroll
  for (int s = 0; s < steps; ++s) wgmma<0>(c, left[s], whole_descriptor(tile + 2 * s), adds || s > 0);
}
/// c = left × tileᵀ (+ c) of two tiles.
template <class T, int steps = 4>
SYMPOW_DEVICE void multiply_transposed(Accumulator& c, std::uint32_t left, std::uint32_t tile, bool adds = false) {
#pragma unroll
  for (int s = 0; s < steps; ++s)
    wgmma<T>(c, whole_descriptor(left + 2 * s), whole_descriptor(tile + 2 * s), adds || s > 0);
}
/// c += left × tile, summed over the tile's rows.
template <class T>
SYMPOW_DEVICE void add_product(Accumulator& c, const LeftFactors<T>& left, std::uint32_t tile) {
#pragma unroll
  for (int s = 0; s < 4; ++s) wgmma<1>(c, left[s], whole_descriptor(tile + 128 * s), true);
}

/// The left factors of a warp's rows of a tile, from row `first` on.
template <class T>
SYMPOW_DEVICE void load_left(LeftFactors<T>& left, Shared<T> tile, int first) {
#pragma unroll
  for (int s = 0; s < 4; ++s)
    block::ldmatrix<false>(left[s], tile, octet_place<64>(first + block::lane() % 16, block::lane() / 16 + 2 * s));
}

}  // namespace sympow::cuda::hopper

#endif
