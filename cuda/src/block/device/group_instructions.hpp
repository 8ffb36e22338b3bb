// Products of four warps with rows in shared memory: wgmma where the chip has it (sm_90a), else ldmatrix and mma.
#pragma once

#include "warp_instructions.hpp"

namespace sympow::cuda::block {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace detail {

/// Where wgmma finds a right factor whose rows lie one after the other: 1024 bytes for eight rows of 128, exchanged as
/// octet_place has it (swizzle 1); 128 bytes for eight rows of 16 (swizzle 0). Columns from 64 on lie `beyond` bytes
/// further, exchanged alike. PTX ISA, "Matrix descriptor".
template <int row_bytes>
SYMPOW_DEVICE std::uint64_t descriptor(std::uint32_t address, std::uint32_t beyond = 8 * row_bytes) {
  static_assert(row_bytes == 128 || row_bytes == 16);
  constexpr std::uint64_t eight_rows = 8 * row_bytes / 16, swizzle = row_bytes == 128 ? 1 : 0;
  return (address & 0x3ffffu) >> 4 | std::uint64_t{(beyond & 0x3ffffu) >> 4} << 16 | eight_rows << 32 | swizzle << 62;
}

/// Keeps the compiler from moving what is done to sums across this line.
SYMPOW_DEVICE void pin(float& x) { asm volatile("" : "+f"(x)::"memory"); }
template <class X, std::size_t N>
SYMPOW_DEVICE void pin(X (&x)[N]) {
#pragma unroll
  for (std::size_t i = 0; i < N; ++i) pin(x[i]);
}

// Products of 64 rows with 64, 8 and 72 columns of T, which PTX calls `type`.
#define SYMPOW_WGMMA(T, type)                                                                                         \
  template <std::size_t N>                                                                                            \
  SYMPOW_DEVICE void wgmma_64(float(&c)[N][4], const Pair<T>(&a)[4], std::uint64_t b) {                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                          \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "  \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"     \
                 : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]),          \
                   "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),          \
                   "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]),          \
                   "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),          \
                   "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]),          \
                   "+f"(c[7][2]), "+f"(c[7][3])                                                                       \
                 : "r"(a[0].bits), "r"(a[1].bits), "r"(a[2].bits), "r"(a[3].bits), "l"(b));                           \
  }                                                                                                                   \
  SYMPOW_DEVICE void wgmma_8(float(&c)[4], const Pair<T>(&a)[4], std::uint64_t b) {                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type                                           \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 1;"                                               \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                     \
                 : "r"(a[0].bits), "r"(a[1].bits), "r"(a[2].bits), "r"(a[3].bits), "l"(b));                           \
  }                                                                                                                   \
  template <std::size_t N>                                                                                            \
  SYMPOW_DEVICE void wgmma_72(float(&c)[N][4], const Pair<T>(&a)[4], std::uint64_t b) {                               \
    asm volatile(                                                                                                     \
        "wgmma.mma_async.sync.aligned.m64n72k16.f32." type "." type                                                   \
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
        "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35}, {%36, %37, %38, %39}, %40, 1, 1, 1, 1;"    \
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),    \
          "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]),    \
          "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]),    \
          "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),    \
          "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3]), "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]),    \
          "+f"(c[8][3])                                                                                               \
        : "r"(a[0].bits), "r"(a[1].bits), "r"(a[2].bits), "r"(a[3].bits), "l"(b));                                    \
  }
SYMPOW_WGMMA(bf16, "bf16")
SYMPOW_WGMMA(fp16, "f16")
#undef SYMPOW_WGMMA

}  // namespace detail

inline constexpr bool products_overlap = true;

/// Products of floats are no instructions of the group: they are done when they are issued, and need no fence.
template <class T>
inline constexpr bool is_asynchronous = sizeof(T) == 2;

template <class T>
SYMPOW_DEVICE void publish() {
  if constexpr (is_asynchronous<T>) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
template <Products products = Products::exact, int octets_apart = 8, std::size_t tiles, class T>
SYMPOW_DEVICE void group_mma(float (&sum)[tiles][9][4], const Pair<T> (&left)[tiles][4], Shared<T> rows, int row,
                             Shared<T> octets, int octet) {
  const std::uint32_t first = detail::place(rows, row * 64), more = detail::place(octets, octet * octets_apart);
  Pair<T> factor[tiles][4];
#pragma unroll
  for (std::size_t t = 0; t < tiles; ++t)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      factor[t][r] = left[t][r];
      asm volatile("" : "+r"(factor[t][r].bits)::"memory");  // it is computed before the fence
    }
  detail::pin(sum);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (std::size_t t = 0; t < tiles; ++t) {
    if constexpr (octets_apart == 64) {
      detail::wgmma_72(sum[t], factor[t], detail::descriptor<128>(first, more - first));
    } else {
      detail::wgmma_64(sum[t], factor[t], detail::descriptor<128>(first));
      detail::wgmma_8(sum[t][8], factor[t], detail::descriptor<16>(more));
    }
  }
}
template <class T>
SYMPOW_DEVICE void group_commit() {
  if constexpr (is_asynchronous<T>) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <class T, int N>
SYMPOW_DEVICE void group_wait() {
  if constexpr (is_asynchronous<T>) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <class T, class Sums>
SYMPOW_DEVICE void group_finish(Sums& sums) {
  group_wait<T, 0>();
  if constexpr (is_asynchronous<T>) detail::pin(sums);
}

#else

inline constexpr bool products_overlap = false;

template <class T>
SYMPOW_DEVICE void publish() {}
template <Products products = Products::exact, int octets_apart = 8, std::size_t tiles, class T>
SYMPOW_DEVICE void group_mma(float (&sum)[tiles][9][4], const Pair<T> (&left)[tiles][4], Shared<T> rows, int row,
                             Shared<T> octets, int octet) {
  Pair<T> right[4][4], more[2];
  const int r = row + lane() % 16;
#pragma unroll
  for (int n = 0; n < 4; ++n) ldmatrix<true>(right[n], rows, r * 64 + ((lane() / 16 + 2 * n) ^ (r & 7)) * 8);
  ldmatrix<true>(more, octets, (octet + lane() % 16) * octets_apart + (octets_apart == 64 ? lane() % 8 * 8 : 0));
#pragma unroll
  for (std::size_t t = 0; t < tiles; ++t) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const Pair<T> even[2] = {right[n][0], right[n][1]}, odd[2] = {right[n][2], right[n][3]};
      mma(sum[t][2 * n], left[t], even);
      mma(sum[t][2 * n + 1], left[t], odd);
    }
    mma(sum[t][8], left[t], more);
  }
}
template <class T>
SYMPOW_DEVICE void group_commit() {}
template <class T, int N>
SYMPOW_DEVICE void group_wait() {}
template <class T, class Sums>
SYMPOW_DEVICE void group_finish(Sums&) {}

#endif

}  // namespace sympow::cuda::block
