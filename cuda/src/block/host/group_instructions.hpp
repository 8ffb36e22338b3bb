// Products of four warps with rows in shared memory, on the host: carried out when they are issued, seen when they are
// waited for.
#pragma once

#include <cstddef>
#include <cstring>
#include <source_location>

#include "warp_instructions.hpp"

namespace sympow::cuda::block {

/// Warps go on while their group multiplies.
inline constexpr bool products_overlap = true;

/// What the warp wrote to shared memory so far, products of T may read after the next barrier.
template <class T>
void publish(std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  if (machine.execute("publish", here) != host::Change::skip) machine.shared.publish(machine.warp_index);
}

namespace detail {

/// An octet of row r of a right factor, from column c on: checked and remembered, 16 bytes at a time.
template <class T, class Factor>
void read_factor(const host::Place& place, std::size_t at, Factor& factor, int r, int c) {
  host::Machine& machine = *host::Machine::current();
  if (at + 8 * sizeof(T) > machine.shared.size()) {
    machine.fault(place, "out of bounds: byte ", at, " of shared memory");
    machine.abandon();
  }
  machine.shared.read(machine.report, place, machine.accessor(host::every_lane), at, 8 * sizeof(T));
  machine.shared.require_published(machine.report, place, at, 8 * sizeof(T));
  for (std::size_t from = at; from < at + 8 * sizeof(T); from += 16)
    machine.warp().products.remember(place, from, machine.shared.data(from));
  for (int n = 0; n < 8; ++n) {
    T x;
    std::memcpy(&x, machine.shared.data(at + static_cast<std::size_t>(n) * sizeof(T)), sizeof(T));
    factor.set(r, c + n, x);
  }
}

}  // namespace detail

/// sum_t += left_t × 16 rows of 64 + 8 columns. The rows from `row` on have 64 entries, begin at a multiple of eight of
/// them, and have their octets exchanged as octet_place does. The octets from `octet` on lie next to each other, or 64
/// entries apart: then they are the first of such rows, exchanged alike, and come after `rows` in memory; wgmma has all
/// 72 columns at once. A call of four neighbouring warps, all with the same rows. Sums hold nothing until they are
/// waited for.
template <Products products = Products::exact, int octets_apart = 8, std::size_t tiles, class T>
void group_mma(Lanes<float> (&sum)[tiles][9][4], const Lanes<Pair<T>> (&left)[tiles][4], Shared<T> rows, int row,
               Shared<T> octets, int octet, std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  const host::Change change = machine.execute("group_mma", here);
  if (change == host::Change::skip) return;
  host::Products& pending = machine.warp().products;
  constexpr std::size_t octet_bytes = 8 * sizeof(T);
  const std::size_t first = rows.begin + static_cast<std::size_t>(row) * 8 * octet_bytes;
  if (first % (64 * octet_bytes) != 0) machine.fault(here, "misaligned: the rows of a product begin at byte ", first);
  machine.require_same_in_group(here, first);
  static_assert(octets_apart == 8 || octets_apart == 64);
  const std::size_t more = octets.begin + static_cast<std::size_t>(octet) * octets_apart * sizeof(T);
  if (octets_apart == 64 && (more % (64 * octet_bytes) != 0 || more < first))
    machine.fault(here, "misaligned: the octets of a product begin at byte ", more, ", its rows at ", first);

  host::Factor<T, 16, 72> right;
  for (int r = 0; r < 16; ++r) {
    for (int o = 0; o < 8; ++o)
      detail::read_factor<T>(here, first + static_cast<std::size_t>(r * 8 + (o ^ r % 8)) * octet_bytes, right, r,
                             8 * o);
    const int at = octets_apart == 8 ? r : r * 8 + r % 8;
    detail::read_factor<T>(here, more + static_cast<std::size_t>(at) * octet_bytes, right, r, 64);
  }
  for (std::size_t t = 0; t < tiles; ++t) {
    host::Factor<T, 16, 16> factor;
    for (int l = 0; l < 32; ++l)
      for (int r = 0; r < 4; ++r) {
        if (!detail::needs(here, left[t][r], l, "the left factor")) return;
        const auto p = a_position(l, r);
        for (int h = 0; h < 2; ++h) factor.set(p.row, p.column + h, half(left[t][r][l], h));
      }
    for (int n = 0; n < 9; ++n)
      for (int r = 0; r < 4; ++r) {
        Lanes<float>& in_flight = pending.in_flight(sum[t][n][r]);
        for (int l = 0; l < 32; ++l) {
          if (!detail::needs(here, in_flight, l, "the sum")) return;
          const auto p = c_position(l, r);
          in_flight.set(
              l, host::mma_sum<products, T>(factor, p.row, right, 8 * n + p.column, in_flight[l], machine.options.mma));
        }
      }
  }
}

/// Closes a group of products of T; group_wait<T, N> waits until at most N groups are pending.
template <class T>
void group_commit(std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  if (machine.execute("group_commit", here) != host::Change::skip) machine.warp().products.commit();
}
template <class T, int N>
void group_wait(std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  const host::Change change = machine.execute("group_wait", here);
  if (change == host::Change::skip) return;
  for (const auto& read : machine.warp().products.wait(change == host::Change::wait_less ? N + 1 : N)) {
    machine.shared.read(machine.report, read.place, machine.accessor(host::every_lane), read.at, 16);
    if (std::memcmp(read.bytes.data(), machine.shared.data(read.at), 16) != 0)
      machine.fault(read.place, "what a product reads changes before it is waited for");
  }
}
/// Waits for all groups; then the sums may be used.
template <class T>
void group_finish(const auto&, std::source_location here = std::source_location::current()) {
  group_wait<T, 0>(here);
}

}  // namespace sympow::cuda::block
