// Memory and barriers on the device: every name is one PTX instruction, for sm_80 and up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../number.hpp"

#define SYMPOW_DEVICE __device__ __forceinline__
#define SYMPOW_UNROLL _Pragma("unroll")
#define SYMPOW_ROLL _Pragma("unroll 1")
#define SYMPOW_PRAGMA(text) _Pragma(#text)
#define SYMPOW_UNROLL_BY(count) SYMPOW_PRAGMA(unroll(count))

namespace sympow::cuda::block {

template <class T>
using Lanes = T;

template <class T>
struct Global {
  T* data;
};

template <class T>
struct Shared {
  std::uint32_t address;  // in the shared window
  template <class U>
  SYMPOW_DEVICE Shared<U> as() const {
    return {address};
  }
  SYMPOW_DEVICE Shared after(int count) const {
    return {address + static_cast<std::uint32_t>(count) * static_cast<std::uint32_t>(sizeof(T))};
  }
};

extern __shared__ __align__(128) unsigned char arena_storage[];

struct Arena {
  std::uint32_t next;
  SYMPOW_DEVICE Arena() {  // once: left to the compiler, it is computed at every use
    asm volatile("{.reg .u64 shared; cvta.to.shared.u64 shared, %1; cvt.u32.u64 %0, shared;}"
                 : "=r"(next)
                 : "l"(arena_storage));
  }
  template <class T>
  SYMPOW_DEVICE Shared<T> take(unsigned count) {
    const std::uint32_t begin = next;
    next += (count * static_cast<std::uint32_t>(sizeof(T)) + 127) / 128 * 128;
    return {begin};
  }
};

SYMPOW_DEVICE int lane() { return static_cast<int>(threadIdx.x % 32); }
/// The same for all lanes, which the compiler learns from the shuffle.
SYMPOW_DEVICE int warp() { return __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0); }
SYMPOW_DEVICE int block_index(int axis) {
  return static_cast<int>(axis == 0 ? blockIdx.x : axis == 1 ? blockIdx.y : blockIdx.z);
}

SYMPOW_DEVICE void barrier() { asm volatile("bar.sync 0;" ::: "memory"); }
SYMPOW_DEVICE void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
SYMPOW_DEVICE void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
SYMPOW_DEVICE void warp_barrier() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

template <class T>
SYMPOW_DEVICE T where(bool condition, std::type_identity_t<T> yes, T no) {
  return condition ? yes : no;
}

namespace detail {

/// N entries as the words of one access.
template <int Bytes>
struct Words {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16 || Bytes == 32);
  std::uint32_t word[Bytes / 4];
};
template <>
struct Words<2> {
  std::uint16_t word[1];
};
// N entries as they come from a caller; std::bit_cast is no function of the device.
template <class T, std::size_t N>
struct Entries {
  T entry[N];
};
using Halves = Entries<Words<16>, 2>;  // of 32 bytes

template <int Bytes>
SYMPOW_DEVICE void load_words(Words<Bytes>& w, std::uint32_t shared) {
  if constexpr (Bytes == 2)
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(w.word[0]) : "r"(shared) : "memory");
  else if constexpr (Bytes == 4)
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w.word[0]) : "r"(shared) : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(w.word[0]), "=r"(w.word[1]) : "r"(shared) : "memory");
  else if constexpr (Bytes == 16)
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3])
                 : "r"(shared)
                 : "memory");
  else {
    Halves halves;
    load_words(halves.entry[0], shared);
    load_words(halves.entry[1], shared + 16);
    w = __builtin_bit_cast(Words<32>, halves);
  }
}
template <int Bytes>
SYMPOW_DEVICE void load_words(Words<Bytes>& w, const void* global) {
  if constexpr (Bytes == 2)
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(w.word[0]) : "l"(global) : "memory");
  else if constexpr (Bytes == 4)
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(w.word[0]) : "l"(global) : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(w.word[0]), "=r"(w.word[1]) : "l"(global) : "memory");
  else if constexpr (Bytes == 16)
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3])
                 : "l"(global)
                 : "memory");
  else {
    Halves halves;
    load_words(halves.entry[0], global);
    load_words(halves.entry[1], static_cast<const char*>(global) + 16);
    w = __builtin_bit_cast(Words<32>, halves);
  }
}
template <int Bytes>
SYMPOW_DEVICE void store_words(const Words<Bytes>& w, std::uint32_t shared) {
  if constexpr (Bytes == 2)
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared), "h"(w.word[0]) : "memory");
  else if constexpr (Bytes == 4)
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(w.word[0]) : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(shared), "r"(w.word[0]), "r"(w.word[1]) : "memory");
  else if constexpr (Bytes == 16)
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(w.word[0]), "r"(w.word[1]),
                 "r"(w.word[2]), "r"(w.word[3])
                 : "memory");
  else {
    const auto halves = __builtin_bit_cast(Halves, w);
    store_words(halves.entry[0], shared);
    store_words(halves.entry[1], shared + 16);
  }
}
template <int Bytes>
SYMPOW_DEVICE void store_words(const Words<Bytes>& w, void* global) {
  if constexpr (Bytes == 2)
    asm volatile("st.global.u16 [%0], %1;" ::"l"(global), "h"(w.word[0]) : "memory");
  else if constexpr (Bytes == 4)
    asm volatile("st.global.b32 [%0], %1;" ::"l"(global), "r"(w.word[0]) : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(global), "r"(w.word[0]), "r"(w.word[1]) : "memory");
  else if constexpr (Bytes == 16)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(w.word[0]), "r"(w.word[1]),
                 "r"(w.word[2]), "r"(w.word[3])
                 : "memory");
  else {
    const auto halves = __builtin_bit_cast(Halves, w);
    store_words(halves.entry[0], global);
    store_words(halves.entry[1], static_cast<char*>(global) + 16);
  }
}

template <class T>
SYMPOW_DEVICE std::uint32_t place(Shared<T> memory, int i) {
  return memory.address + static_cast<std::uint32_t>(i) * static_cast<std::uint32_t>(sizeof(T));
}

}  // namespace detail

template <std::size_t N, class T>
SYMPOW_DEVICE void load(T (&r)[N], Shared<T> memory, int i, bool active = true) {
  if (!active) return;
  detail::Words<N * sizeof(T)> words;
  detail::load_words(words, detail::place(memory, i));
  using Entries = detail::Entries<T, N>;
  const auto entries = __builtin_bit_cast(Entries, words);
#pragma unroll
  for (std::size_t n = 0; n < N; ++n) r[n] = entries.entry[n];
}
template <std::size_t N, class T, class U>
SYMPOW_DEVICE void load(T (&r)[N], Global<U> memory, std::int64_t i, bool active = true) {
  if (!active) return;
  detail::Words<N * sizeof(T)> words;
  detail::load_words(words, memory.data + i);
  using Entries = detail::Entries<T, N>;
  const auto entries = __builtin_bit_cast(Entries, words);
#pragma unroll
  for (std::size_t n = 0; n < N; ++n) r[n] = entries.entry[n];
}
template <class T>
SYMPOW_DEVICE T load_one(Shared<T> memory, int i) {
  T r[1];
  load(r, memory, i);
  return r[0];
}
template <class U>
SYMPOW_DEVICE std::remove_const_t<U> load_one(Global<U> memory, std::int64_t i) {
  std::remove_const_t<U> r[1];
  load(r, memory, i);
  return r[0];
}
template <std::size_t N, class T>
SYMPOW_DEVICE void store(Shared<T> memory, int i, const T (&r)[N], bool active = true) {
  using Words = detail::Words<N * sizeof(T)>;
  detail::Entries<T, N> entries;
#pragma unroll
  for (std::size_t n = 0; n < N; ++n) entries.entry[n] = r[n];
  if (active) detail::store_words(__builtin_bit_cast(Words, entries), detail::place(memory, i));
}
template <std::size_t N, class T, class U>
SYMPOW_DEVICE void store(Global<U> memory, std::int64_t i, const T (&r)[N], bool active = true) {
  using Words = detail::Words<N * sizeof(T)>;
  detail::Entries<T, N> entries;
#pragma unroll
  for (std::size_t n = 0; n < N; ++n) entries.entry[n] = r[n];
  if (active) detail::store_words(__builtin_bit_cast(Words, entries), memory.data + i);
}

template <int Bytes, class T, class U>
SYMPOW_DEVICE void cp_async(Shared<T> to, int i, Global<U> from, std::int64_t j, int count, bool active = true) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  if (!active) return;
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(detail::place(to, i)), "l"(from.data + j),
                 "r"(count)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(detail::place(to, i)), "l"(from.data + j),
                 "n"(Bytes), "r"(count)
                 : "memory");
}
SYMPOW_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
SYMPOW_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace sympow::cuda::block
