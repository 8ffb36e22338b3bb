// Products of four warps with rows in shared memory, on the host: carried out when they are issued, seen when they are
// waited for.
#pragma once

#include <cstddef>
#include <cstring>
#include <source_location>

#include "warp_instructions.hpp"

namespace sympow::cuda::block {

/// What the warp wrote to shared memory so far, products may read after the next barrier.
inline void publish(std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  if (machine.execute("publish", here) != host::Change::skip) machine.shared.publish(machine.warp_index);
}

namespace detail {

/// 16 bytes of a right factor: checked and remembered.
template <class T>
void read_factor(const host::Place& place, std::size_t at, host::Decoded* row) {
  host::Machine& machine = *host::Machine::current();
  if (at + 16 > machine.shared.size()) {
    machine.fault(place, "out of bounds: byte ", at, " of shared memory");
    machine.abandon();
  }
  machine.shared.read(machine.report, place, machine.accessor(host::every_lane), at, 16);
  machine.shared.require_published(machine.report, place, at, 16);
  machine.warp().products.remember(place, at, machine.shared.data(at));
  for (std::size_t c = 0; c < 8; ++c) {
    T x;
    std::memcpy(&x, machine.shared.data(at + 2 * c), 2);
    row[c] = host::decode(x);
  }
}

}  // namespace detail

/// sum_t += left_t × 16 rows of 64 + 8 columns. The rows from `row` on have 128 bytes, begin at a multiple of 1024, and
/// have their octets exchanged as octet_place does; the octets from `octet` on have 16 bytes. A call of four
/// neighbouring warps, all with the same rows. Sums hold nothing until they are waited for.
template <std::size_t tiles, class T>
void group_mma(Lanes<float> (&sum)[tiles][9][4], const Lanes<Pair<T>> (&left)[tiles][4], Shared<T> rows, int row,
               Shared<T> octets, int octet, std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  const host::Change change = machine.execute("group_mma", here);
  if (change == host::Change::skip) return;
  host::Products& products = machine.warp().products;
  const std::size_t first = rows.begin + static_cast<std::size_t>(row) * 128;
  if (first % 1024 != 0) machine.fault(here, "misaligned: the rows of a product begin at byte ", first);
  machine.require_same_in_group(here, first);

  host::Decoded right[16][72];
  for (std::size_t r = 0; r < 16; ++r) {
    for (std::size_t o = 0; o < 8; ++o)
      detail::read_factor<T>(here, first + r * 128 + (o ^ r % 8) * 16, &right[r][8 * o]);
    detail::read_factor<T>(here, octets.begin + (static_cast<std::size_t>(octet) + r) * 16, &right[r][64]);
  }
  for (std::size_t t = 0; t < tiles; ++t) {
    host::Decoded factor[16][16];
    for (int l = 0; l < 32; ++l)
      for (int r = 0; r < 4; ++r) {
        if (!detail::needs(here, left[t][r], l, "the left factor")) return;
        const auto p = a_position(l, r);
        for (int h = 0; h < 2; ++h) factor[p.row][p.column + h] = host::decode(half(left[t][r][l], h));
      }
    for (int n = 0; n < 9; ++n)
      for (int r = 0; r < 4; ++r) {
        Lanes<float>& in_flight = products.in_flight(sum[t][n][r]);
        for (int l = 0; l < 32; ++l) {
          if (!detail::needs(here, in_flight, l, "the sum")) return;
          const auto p = c_position(l, r);
          in_flight.set(l, host::mma_sum(factor[p.row], &right[0][8 * n + p.column], 72, in_flight[l], fraction_bits<T>,
                                         machine.options.mma));
        }
      }
  }
}

/// Closes a group of products; group_wait<N> waits until at most N groups are pending.
inline void group_commit(std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  if (machine.execute("group_commit", here) != host::Change::skip) machine.warp().products.commit();
}
template <int N>
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
void group_finish(const auto&, std::source_location here = std::source_location::current()) { group_wait<0>(here); }

}  // namespace sympow::cuda::block
