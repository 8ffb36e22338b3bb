// What a warp computes and how it meets others, on the host: barriers, ldmatrix, mma, shuffles, packed arithmetic.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <utility>

#include "../fragment.hpp"
#include "memory_instructions.hpp"

namespace sympow::cuda::block {

inline Lanes<int> lane() {
  Lanes<int> result;
  for (int l = 0; l < 32; ++l) result.set(l, l);
  return result;
}
inline int warp() { return host::Machine::current()->warp_index; }
inline int block_index(int axis) { return host::Machine::current()->block_index[static_cast<std::size_t>(axis)]; }

inline void bar_sync(int id, int threads, std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  if (machine.execute("bar_sync", here) != host::Change::skip) machine.come_to_barrier(here, id, threads, true);
}
inline void bar_arrive(int id, int threads, std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  if (machine.execute("bar_arrive", here) != host::Change::skip) machine.come_to_barrier(here, id, threads, false);
}
inline void barrier(std::source_location here = std::source_location::current()) {
  bar_sync(0, host::Machine::current()->threads, here);
}
inline void warp_barrier(std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  if (machine.execute("warp_barrier", here) == host::Change::skip) return;
  ++machine.warp().step;
  machine.yield();
}

/// N = 1, 2 or 4 matrices of 8 × 8 entries; lane 8 m + i names row i of matrix m by the index of its first entry.
template <bool Transposed, std::size_t N, class T>
void ldmatrix(Lanes<Pair<T>> (&r)[N], Shared<T> memory, const Lanes<int>& i,
              std::source_location here = std::source_location::current()) {
  static_assert(N == 1 || N == 2 || N == 4);
  constexpr int matrices = N;
  constexpr std::size_t row_bytes = 8 * sizeof(T);
  host::Machine& machine = *host::Machine::current();
  host::Site* site = nullptr;
  const host::Change change = machine.execute("ldmatrix", here, &site);
  if (change == host::Change::skip) return;
  Lanes<bool> named;  // lanes whose address counts
  for (int l = 0; l < 32; ++l) named.set(l, l < 8 * matrices);
  host::Site unmasked;  // for the predicate, which is no argument
  const host::Spans rows = detail::shared_spans(here, change, memory, i, row_bytes, named, unmasked);
  site->uneven = site->uneven || unmasked.uneven;
  for (int l = 0; l < 8 * matrices; ++l) {
    if (rows[static_cast<std::size_t>(l)].count == 0) return;
    machine.shared.read(machine.report, here, machine.accessor(host::every_lane),
                        rows[static_cast<std::size_t>(l)].first, row_bytes);
  }
  const auto address = [&](int m, int row, int column) {
    return rows[static_cast<std::size_t>(8 * m + row)].first + sizeof(T) * static_cast<std::size_t>(column);
  };
  if constexpr (sizeof(T) == 2) {
    site->shared.add(host::wavefronts(rows, row_bytes));
  } else {  // loads of floats: of two next to each other, or of one of two rows, half of the lanes of the other one
    for (int m = 0; m < matrices; ++m)
      for (int turn = 0; turn < 1 + Transposed; ++turn) {
        host::Spans loads{};
        for (int l = 0; l < 32; ++l) {
          const auto p = ldmatrix_position(l, Transposed);
          const int row = Transposed ? p.row + (l / 2 % 2 ^ turn) : p.row;
          loads[static_cast<std::size_t>(l)] = {address(m, row, p.column), Transposed ? 4u : 8u};
        }
        site->shared.add(host::wavefronts(loads, Transposed ? 4 : 8));
      }
  }
  for (int m = 0; m < matrices; ++m)
    for (int l = 0; l < 32; ++l) {
      const auto entry = [&](int row, int column) {
        T x;
        std::memcpy(&x, machine.shared.data(address(m, row, column)), sizeof(T));
        return x;
      };
      const auto p = ldmatrix_position(l, Transposed);
      r[m].set(l, pair_of(entry(p.row, p.column), entry(p.row + Transposed, p.column + !Transposed)));
    }
  if (change == host::Change::exchange_results) std::swap(r[0], r[N - 1]);
}

/// C += A B, 16 × 16 times 16 × 8; the registers lie as fragment.hpp says.
template <Products products = Products::exact, class T>
void mma(Lanes<float> (&c)[4], const Lanes<Pair<T>> (&a)[4], const Lanes<Pair<T>> (&b)[2],
         std::source_location here = std::source_location::current()) {
  using host::Change;
  host::Machine& machine = *host::Machine::current();
  const Change change = machine.execute("mma", here);
  if (change == Change::skip) return;
  host::Factor<T, 16, 16> A;
  host::Factor<T, 16, 8> B;
  for (int l = 0; l < 32; ++l) {
    bool set = true;
    for (const auto& x : a) set = set && detail::needs(here, x, l, "A");
    for (const auto& x : b) set = set && detail::needs(here, x, l, "B");
    for (const auto& x : c) set = set && detail::needs(here, x, l, "C");
    if (!set) return;
    for (int r = 0; r < 4; ++r) {
      const auto p = a_position(l, r);
      const Pair<T> x = a[change == Change::exchange_a && (r == 1 || r == 2) ? 3 - r : r][l];
      for (int h = 0; h < 2; ++h) A.set(p.row, p.column + h, half(x, h));
    }
    for (int r = 0; r < 2; ++r) {
      const auto p = b_position(l, r);
      const Pair<T> x = b[change == Change::exchange_b ? 1 - r : r][l];
      for (int h = 0; h < 2; ++h) B.set(p.row + h, p.column, half(x, h));
    }
  }
  for (int l = 0; l < 32; ++l)
    for (int r = 0; r < 4; ++r) {
      const auto p = c_position(l, r);
      c[r].set(l, host::mma_sum<products, T>(A, p.row, B, p.column, c[r][l], machine.options.mma));
    }
  if (change == Change::exchange_c) std::swap(c[1], c[2]);
}

/// Lane l gets what lane from_l mod 32 holds.
template <class T>
Lanes<T> shuffle(const Lanes<T>& x, const Lanes<int>& from,
                 std::source_location here = std::source_location::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);  // eight bytes are two instructions
  host::Machine::current()->execute("shuffle", here);
  Lanes<T> result;
  for (int l = 0; l < 32; ++l)
    if (from.is_set(l) && x.is_set(from[l] & 31)) result.set(l, x[from[l] & 31]);
  return result;
}
/// Lane l gets what lane l xor mask holds.
template <class T>
Lanes<T> shuffle_xor(const Lanes<T>& x, int mask, std::source_location here = std::source_location::current()) {
  return block::shuffle(x, lane() ^ mask, here);
}

/// Lane l gets what lane l - distance holds; the first lanes keep theirs.
template <class T>
Lanes<T> shuffle_up(const Lanes<T>& x, int distance, std::source_location here = std::source_location::current()) {
  return block::shuffle(x, where(lane() < distance, lane(), lane() - distance), here);
}
/// What lane 0 holds, as a plain value. A fault if it was never set.
template <class T>
T uniform(const Lanes<T>& x, std::source_location here = std::source_location::current()) {
  host::Machine::current()->execute("uniform", here);
  detail::needs(here, x, 0, "what is made uniform");
  return x[0];
}

/// To the type To, rounded to nearest; to integers toward zero.
template <class To, class T>
Lanes<To> convert(const Lanes<T>& x) {
  return detail::map([](T y) { return static_cast<To>(y); }, x);
}
/// The same bits as another type of the size.
template <class To, class T>
Lanes<To> bit_cast(const Lanes<T>& x) {
  return detail::map([](T y) { return std::bit_cast<To>(y); }, x);
}
#define SYMPOW_LANES_FUNCTION(name, function)                    \
  template <class T>                                             \
  Lanes<T> name(const Lanes<T>& x) {                             \
    return detail::map([](T y) { return std::function(y); }, x); \
  }
SYMPOW_LANES_FUNCTION(log2, log2)
SYMPOW_LANES_FUNCTION(sqrt, sqrt)
SYMPOW_LANES_FUNCTION(floor, floor)
SYMPOW_LANES_FUNCTION(absolute, abs)
#undef SYMPOW_LANES_FUNCTION
inline Lanes<float> exp2(const Lanes<float>& x) {
  return detail::map([](float y) { return std::exp2(y); }, x);
}

/// Both rounded to nearest.
template <class T>
Lanes<Pair<T>> pack(const Lanes<float>& lower, const Lanes<float>& upper,
                    std::source_location here = std::source_location::current()) {
  host::Machine::current()->execute("pack", here);
  return detail::map([](float x, float y) { return pair_of(round_to<T>(x), round_to<T>(y)); }, lower, upper);
}
template <class T>
Lanes<float> lower(const Lanes<Pair<T>>& p, std::source_location here = std::source_location::current()) {
  host::Machine::current()->execute("unpack", here);
  return detail::map([](Pair<T> x) { return to_float(half(x, 0)); }, p);
}
template <class T>
Lanes<float> upper(const Lanes<Pair<T>>& p, std::source_location here = std::source_location::current()) {
  host::Machine::current()->execute("unpack", here);
  return detail::map([](Pair<T> x) { return to_float(half(x, 1)); }, p);
}
/// Pairs of two equal halves.
template <class T>
Lanes<Pair<T>> both_lower(const Lanes<Pair<T>>& p) {
  return detail::map([](Pair<T> x) { return pair_of(half(x, 0), half(x, 0)); }, p);
}
template <class T>
Lanes<Pair<T>> both_upper(const Lanes<Pair<T>>& p) {
  return detail::map([](Pair<T> x) { return pair_of(half(x, 1), half(x, 1)); }, p);
}
template <class T>
Lanes<Pair<T>> join(const Lanes<T>& lower, const Lanes<T>& upper) {
  return detail::map([](T x, T y) { return pair_of(x, y); }, lower, upper);
}
/// Products of the halves, each rounded to nearest.
template <class T>
Lanes<Pair<T>> multiply(const Lanes<Pair<T>>& p, const Lanes<Pair<T>>& q,
                        std::source_location here = std::source_location::current()) {
  host::Machine::current()->execute("multiply", here);
  const auto product = [](T x, T y) { return round_to<T>(to_float(x) * to_float(y)); };
  return detail::map(
      [&](Pair<T> x, Pair<T> y) { return pair_of(product(half(x, 0), half(y, 0)), product(half(x, 1), half(y, 1))); },
      p, q);
}

}  // namespace sympow::cuda::block
