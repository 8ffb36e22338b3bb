// What a warp computes on the device: ldmatrix, mma, shuffles, packed arithmetic.
#pragma once

#include <type_traits>

#include "memory_instructions.hpp"

namespace sympow::cuda::block {

template <bool Transposed, std::size_t N, class T>
SYMPOW_DEVICE void ldmatrix(Pair<T> (&r)[N], Shared<T> memory, int i) {
  static_assert((N == 1 || N == 2 || N == 4) && sizeof(T) == 2);
  const std::uint32_t row = detail::place(memory, i);
  if constexpr (N == 1 && !Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0].bits) : "r"(row) : "memory");
  else if constexpr (N == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0].bits) : "r"(row) : "memory");
  else if constexpr (N == 2 && !Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0].bits), "=r"(r[1].bits)
                 : "r"(row)
                 : "memory");
  else if constexpr (N == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0].bits), "=r"(r[1].bits)
                 : "r"(row)
                 : "memory");
  else if constexpr (!Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0].bits), "=r"(r[1].bits), "=r"(r[2].bits), "=r"(r[3].bits)
                 : "r"(row)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0].bits), "=r"(r[1].bits), "=r"(r[2].bits), "=r"(r[3].bits)
                 : "r"(row)
                 : "memory");
}

SYMPOW_DEVICE void mma(float (&c)[4], const Pair<bf16> (&a)[4], const Pair<bf16> (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0].bits), "r"(a[1].bits), "r"(a[2].bits), "r"(a[3].bits), "r"(b[0].bits), "r"(b[1].bits));
}
SYMPOW_DEVICE void mma(float (&c)[4], const Pair<fp16> (&a)[4], const Pair<fp16> (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0].bits), "r"(a[1].bits), "r"(a[2].bits), "r"(a[3].bits), "r"(b[0].bits), "r"(b[1].bits));
}
template <Products, class T>
SYMPOW_DEVICE void mma(float (&c)[4], const Pair<T> (&a)[4], const Pair<T> (&b)[2]) {
  mma(c, a, b);
}

namespace detail {
template <std::size_t Bytes>
using Bits = std::conditional_t<Bytes == 8, unsigned long long, unsigned>;
}

template <class T>
SYMPOW_DEVICE T shuffle(T x, int from) {
  return __builtin_bit_cast(T, __shfl_sync(~0u, __builtin_bit_cast(detail::Bits<sizeof(T)>, x), from));
}
template <class T>
SYMPOW_DEVICE T shuffle_xor(T x, int mask) {
  return __builtin_bit_cast(T, __shfl_xor_sync(~0u, __builtin_bit_cast(detail::Bits<sizeof(T)>, x), mask));
}

template <class T>
SYMPOW_DEVICE T shuffle_up(T x, int distance) {
  return __builtin_bit_cast(T, __shfl_up_sync(~0u, __builtin_bit_cast(detail::Bits<sizeof(T)>, x), distance));
}
template <class T>
SYMPOW_DEVICE T uniform(T x) {
  return shuffle(x, 0);
}

template <class To, class From>
SYMPOW_DEVICE To convert(From x) {
  if constexpr (std::is_same_v<To, float> && std::is_same_v<From, double>)
    return __double2float_rn(x);
  else
    return static_cast<To>(x);
}
template <class To, class From>
SYMPOW_DEVICE To bit_cast(From x) {
  return __builtin_bit_cast(To, x);
}
SYMPOW_DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <class T>
SYMPOW_DEVICE T log2(T x) {
  return ::log2(x);
}
template <class T>
SYMPOW_DEVICE T sqrt(T x) {
  return ::sqrt(x);
}
template <class T>
SYMPOW_DEVICE T floor(T x) {
  return ::floor(x);
}
template <class T>
SYMPOW_DEVICE T absolute(T x) {
  return ::fabs(x);
}

template <class T>
SYMPOW_DEVICE Pair<T> pack(float lower, float upper) {
  Pair<T> p;
  if constexpr (std::is_same_v<T, float>)
    p = {lower, upper};
  else if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p.bits) : "f"(upper), "f"(lower));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(p.bits) : "f"(upper), "f"(lower));
  return p;
}
SYMPOW_DEVICE float lower(Pair<bf16> p) { return __uint_as_float(p.bits << 16); }
SYMPOW_DEVICE float upper(Pair<bf16> p) { return __uint_as_float(p.bits & 0xffff0000u); }
SYMPOW_DEVICE float lower(Pair<fp16> p) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<std::uint16_t>(p.bits & 0xffffu)));
  return x;
}
SYMPOW_DEVICE float upper(Pair<fp16> p) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<std::uint16_t>(p.bits >> 16)));
  return x;
}
SYMPOW_DEVICE float lower(Pair<float> p) { return p.lower; }
SYMPOW_DEVICE float upper(Pair<float> p) { return p.upper; }

SYMPOW_DEVICE Pair<float> both_lower(Pair<float> p) { return {p.lower, p.lower}; }
SYMPOW_DEVICE Pair<float> both_upper(Pair<float> p) { return {p.upper, p.upper}; }
SYMPOW_DEVICE Pair<float> join(float lower, float upper) { return {lower, upper}; }
// As moves of halves, ptxas makes them part of the product that takes them.
template <class T>
SYMPOW_DEVICE Pair<T> both_lower(Pair<T> p) {
  Pair<T> r;
  asm("{\n.reg .b16 l, u;\nmov.b32 {l, u}, %1;\nmov.b32 %0, {l, l};\n}" : "=r"(r.bits) : "r"(p.bits));
  return r;
}
template <class T>
SYMPOW_DEVICE Pair<T> both_upper(Pair<T> p) {
  Pair<T> r;
  asm("{\n.reg .b16 l, u;\nmov.b32 {l, u}, %1;\nmov.b32 %0, {u, u};\n}" : "=r"(r.bits) : "r"(p.bits));
  return r;
}
template <class T>
SYMPOW_DEVICE Pair<T> join(T lower, T upper) {
  return {__byte_perm(lower.bits, upper.bits, 0x5410u)};
}
SYMPOW_DEVICE Pair<bf16> multiply(Pair<bf16> p, Pair<bf16> q) {
  Pair<bf16> r;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r.bits) : "r"(p.bits), "r"(q.bits));
#else  // p q + (-0), which rounds once, too
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r.bits) : "r"(p.bits), "r"(q.bits), "r"(0x80008000u));
#endif
  return r;
}
SYMPOW_DEVICE Pair<fp16> multiply(Pair<fp16> p, Pair<fp16> q) {
  Pair<fp16> r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r.bits) : "r"(p.bits), "r"(q.bits));
  return r;
}
SYMPOW_DEVICE Pair<float> multiply(Pair<float> p, Pair<float> q) {
  return {__fmul_rn(p.lower, q.lower), __fmul_rn(p.upper, q.upper)};
}

/// The kernel of a class as block.hpp describes it.
template <class Kernel>
__global__ __launch_bounds__(Kernel::threads,
                             Kernel::blocks_per_multiprocessor) void entry(const __grid_constant__
                                                                           typename Kernel::Args args) {
  Kernel::run(args);
}

}  // namespace sympow::cuda::block
