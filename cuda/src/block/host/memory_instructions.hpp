// Loads, stores and asynchronous copies of a warp on the host: carried out, checked and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

#include "lanes.hpp"
#include "machine.hpp"
#include "traffic.hpp"

namespace sympow::cuda::block {

/// An array in shared memory.
template <class T>
struct Shared {
  std::size_t begin = 0, end = 0;  // bytes

  template <class U>
  [[nodiscard]] Shared<U> as() const {
    return {begin, end};
  }
  /// All but the first `count` entries.
  [[nodiscard]] Shared after(int count) const { return {begin + static_cast<std::size_t>(count) * sizeof(T), end}; }
};

/// Hands out the shared memory of a block, in pieces aligned to 128 bytes.
struct Arena {
  std::size_t used = 0;

  template <class T>
  Shared<T> take(unsigned count, std::source_location here = std::source_location::current()) {
    host::Machine& machine = *host::Machine::current();
    const std::size_t begin = used, end = begin + count * sizeof(T);
    used = (end + 127) / 128 * 128;
    if (end > machine.shared.size()) {
      machine.fault(here, "takes ", end, " bytes of shared memory, the kernel has ", machine.shared.size());
      machine.abandon();
    }
    return {begin, end};
  }
};

namespace detail {

/// Of N entries: the instructions that load or store them, and the width of one.
template <class T, std::size_t N>
struct Accesses {
  static constexpr std::size_t bytes = N * sizeof(T), count = bytes == 32 ? 2 : 1, entries = N / count;
  static_assert(bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16 || bytes == 32);
  static constexpr unsigned width = bytes / count;
  /// Entry `n` of T in memory of U.
  template <class U>
  static constexpr std::int64_t after(std::size_t n) {
    return static_cast<std::int64_t>(n * sizeof(T) / sizeof(U));
  }
};

/// A value that an instruction needs in an active lane: a fault if it was never set.
template <class T>
bool needs(const host::Place& place, const Lanes<T>& x, int lane, const char* what) {
  if (x.is_set(lane)) return true;
  host::Machine::current()->fault(place, "needs a register that was never set: ", what);
  return false;
}

/// The addresses of the lanes 2 l and 2 l + 1, exchanged where the change says so.
template <class I>
void exchange(Lanes<I>& x, host::Change change, host::Site& site) {
  Lanes<I> result;
  for (int l = 0; l < 32; ++l) {
    if (x.is_set(l ^ 1)) result.set(l, x[l ^ 1]);
    site.uneven = site.uneven || x[l] != x[l ^ 1];
  }
  if (change == host::Change::exchange_lanes) x = result;
}

/// The bytes of active lanes in shared memory. What is outside or misaligned is a fault and switched off.
template <class T>
host::Spans shared_spans(const host::Place& place, host::Change change, Shared<T> memory, Lanes<int> i, unsigned bytes,
                         const Lanes<bool>& active, host::Site& site) {
  host::Machine& machine = *host::Machine::current();
  exchange(i, change, site);
  host::Spans spans{};
  for (int l = 0; l < 32; ++l) {
    if (!needs(place, active, l, "the predicate") || !active[l]) {
      site.masked = true;
      if (change != host::Change::unmask) continue;
    }
    if (!needs(place, i, l, "the index")) continue;
    const std::int64_t first = std::int64_t{i[l]} * static_cast<std::int64_t>(sizeof(T));
    const auto size = static_cast<std::int64_t>(memory.end - memory.begin);
    if (first < 0 || first + bytes > size) {
      machine.fault(place, "out of bounds: entry ", i[l], " of an array of ", size / std::int64_t{sizeof(T)},
                    " in shared memory");
    } else if (first % bytes != 0) {
      machine.fault(place, "misaligned: ", bytes, " bytes from byte ", first, " in shared memory");
    } else {
      spans[static_cast<std::size_t>(l)] = {memory.begin + static_cast<std::size_t>(first), bytes};
    }
  }
  return spans;
}

/// The same in global memory; lane l accesses count(l) bytes, aligned to `alignment`.
template <class T, class Count>
host::Spans global_spans(const host::Place& place, host::Change change, Global<T> memory, Lanes<std::int64_t> i,
                         unsigned alignment, const Lanes<bool>& active, host::Site& site, const Count& count) {
  host::Machine& machine = *host::Machine::current();
  exchange(i, change, site);
  host::Spans spans{};
  for (int l = 0; l < 32; ++l) {
    if (!needs(place, active, l, "the predicate") || !active[l]) {
      site.masked = true;
      if (change != host::Change::unmask) continue;
    }
    const unsigned bytes = count(l);
    if (bytes == 0 || !needs(place, i, l, "the index")) continue;
    const std::uintptr_t first =
        reinterpret_cast<std::uintptr_t>(memory.data) + static_cast<std::uintptr_t>(i[l]) * sizeof(T);
    if (memory.shadow == nullptr || !memory.shadow->contains(first, bytes)) {
      machine.fault(place, "out of bounds: entry ", i[l], " in global memory");
    } else if (first % alignment != 0) {
      machine.fault(place, "misaligned: ", alignment, " bytes at entry ", i[l], " in global memory");
    } else {
      spans[static_cast<std::size_t>(l)] = {first, bytes};
    }
  }
  return spans;
}

// Carries out an access of Bytes bytes a lane: visit(machine, lane, first byte, count) for each lane that takes part.
template <unsigned Bytes, class T, class Visit>
void access(const char* instruction, const host::Place& here, Shared<T> memory, const Lanes<int>& i,
            const Lanes<bool>& active, const Visit& visit) {
  host::Machine& machine = *host::Machine::current();
  host::Site* site = nullptr;
  const host::Change change = machine.execute(instruction, here, &site);
  if (change == host::Change::skip) return;
  const host::Spans spans = shared_spans(here, change, memory, i, Bytes, active, *site);
  site->shared.add(host::wavefronts(spans, Bytes));
  for (int l = 0; l < 32; ++l)
    if (const auto [first, count] = spans[static_cast<std::size_t>(l)]; count != 0) visit(machine, l, first, count);
}
template <unsigned Bytes, class T, class Visit>
void access(const char* instruction, const host::Place& here, Global<T> memory, const Lanes<std::int64_t>& i,
            const Lanes<bool>& active, const Visit& visit) {
  host::Machine& machine = *host::Machine::current();
  host::Site* site = nullptr;
  const host::Change change = machine.execute(instruction, here, &site);
  if (change == host::Change::skip) return;
  const host::Spans spans = global_spans(here, change, memory, i, Bytes, active, *site, [](int) { return Bytes; });
  site->global.add(host::sectors(spans));
  for (int l = 0; l < 32; ++l)
    if (const auto [first, count] = spans[static_cast<std::size_t>(l)]; count != 0) visit(machine, l, first, count);
}

}  // namespace detail

/// Each active lane l loads the entries i_l, …, i_l + N - 1.
template <std::size_t N, class T>
void load(Lanes<T> (&r)[N], Shared<T> memory, const Lanes<int>& i, const Lanes<bool>& active = true,
          std::source_location here = std::source_location::current()) {
  using How = detail::Accesses<T, N>;
  for (std::size_t from = 0; from < N; from += How::entries) {
    const auto visit = [&](host::Machine& machine, int l, auto first, auto count) {
      machine.shared.read(machine.report, here, machine.accessor(l), first, count);
      for (std::size_t n = 0; n < How::entries; ++n) {
        T x;
        std::memcpy(&x, machine.shared.data(first + n * sizeof(T)), sizeof(T));
        r[from + n].set(l, x);
      }
    };
    detail::access<How::width>("load.shared", here, memory, i + static_cast<int>(from), active, visit);
  }
}
template <std::size_t N, class T, class U>
void load(Lanes<T> (&r)[N], Global<U> memory, const Lanes<std::int64_t>& i, const Lanes<bool>& active = true,
          std::source_location here = std::source_location::current()) {
  using How = detail::Accesses<T, N>;
  for (std::size_t from = 0; from < N; from += How::entries) {
    const auto visit = [&](host::Machine& machine, int l, auto first, auto count) {
      memory.shadow->read(machine.report, here, machine.accessor(l), machine.launch, machine.block(), first, count);
      for (std::size_t n = 0; n < How::entries; ++n) r[from + n].set(l, reinterpret_cast<const T*>(first)[n]);
    };
    detail::access<How::width>("load.global", here, memory, i + How::template after<U>(from), active, visit);
  }
}

/// The entry i_l of each lane.
template <class T>
Lanes<T> load_one(Shared<T> memory, const Lanes<int>& i, std::source_location here = std::source_location::current()) {
  Lanes<T> r[1];
  load(r, memory, i, true, here);
  return r[0];
}
template <class U>
Lanes<std::remove_const_t<U>> load_one(Global<U> memory, const Lanes<std::int64_t>& i,
                                       std::source_location here = std::source_location::current()) {
  Lanes<std::remove_const_t<U>> r[1];
  load(r, memory, i, true, here);
  return r[0];
}

/// Each active lane l stores the entries i_l, …, i_l + N - 1.
template <std::size_t N, class T>
void store(Shared<T> memory, const Lanes<int>& i, const Lanes<T> (&r)[N], const Lanes<bool>& active = true,
           std::source_location here = std::source_location::current()) {
  using How = detail::Accesses<T, N>;
  for (std::size_t from = 0; from < N; from += How::entries) {
    const auto visit = [&](host::Machine& machine, int l, auto first, auto count) {
      machine.shared.write(machine.report, here, machine.accessor(l), first, count);
      for (std::size_t n = 0; n < How::entries; ++n)
        if (detail::needs(here, r[from + n], l, "the value"))
          std::memcpy(machine.shared.data(first + n * sizeof(T)), &r[from + n][l], sizeof(T));
    };
    detail::access<How::width>("store.shared", here, memory, i + static_cast<int>(from), active, visit);
  }
}
template <std::size_t N, class T, class U>
void store(Global<U> memory, const Lanes<std::int64_t>& i, const Lanes<T> (&r)[N], const Lanes<bool>& active = true,
           std::source_location here = std::source_location::current()) {
  using How = detail::Accesses<T, N>;
  for (std::size_t from = 0; from < N; from += How::entries) {
    const auto visit = [&](host::Machine& machine, int l, auto first, auto count) {
      memory.shadow->write(machine.report, here, machine.accessor(l), machine.launch, machine.block(), first, count);
      for (std::size_t n = 0; n < How::entries; ++n)
        if (detail::needs(here, r[from + n], l, "the value")) reinterpret_cast<T*>(first)[n] = r[from + n][l];
    };
    detail::access<How::width>("store.global", here, memory, i + How::template after<U>(from), active, visit);
  }
}

/// Each active lane l starts a copy of Bytes = 4, 8 or 16 bytes to entry i_l from entry j_l; it reads the first `count`
/// of them, the rest become 0.
template <int Bytes, class T, class U>
void cp_async(Shared<T> to, const Lanes<int>& i, Global<U> from, const Lanes<std::int64_t>& j, const Lanes<int>& count,
              const Lanes<bool>& active = true, std::source_location here = std::source_location::current()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  host::Machine& machine = *host::Machine::current();
  host::Site* site = nullptr;
  const host::Change change = machine.execute("cp_async", here, &site);
  if (change == host::Change::skip) return;
  const auto bytes = [&](int l) -> unsigned {
    if (!detail::needs(here, count, l, "the bytes to copy")) return 0;
    if (count[l] < 0 || count[l] > Bytes) machine.fault(here, "a copy of ", count[l], " of ", Bytes, " bytes");
    site->partial = site->partial || count[l] != Bytes;
    if (change == host::Change::whole_copy) return Bytes;
    return static_cast<unsigned>(count[l] < 0 ? 0 : count[l] > Bytes ? Bytes : count[l]);
  };
  const host::Spans targets = detail::shared_spans(here, change, to, i, Bytes, active, *site);
  const host::Change unexchanged = change == host::Change::exchange_lanes ? host::Change::none : change;
  const host::Spans sources = detail::global_spans(here, unexchanged, from, j, Bytes, active, *site, bytes);
  site->shared.add(host::wavefronts(targets, Bytes));
  site->global.add(host::sectors(sources));
  for (int l = 0; l < 32; ++l) {
    const host::Span target = targets[static_cast<std::size_t>(l)], source = sources[static_cast<std::size_t>(l)];
    if (target.count == 0) continue;
    const host::Accessor by = machine.accessor(l);
    if (source.count > 0)
      from.shadow->read(machine.report, here, by, machine.launch, machine.block(), source.first, source.count);
    machine.shared.write(machine.report, here, by, target.first, Bytes, true);
    host::PendingCopy copy{here, l, target.first, Bytes, source.first, source.count, {}};
    if (source.count > 0) std::memcpy(copy.at_issue.data(), reinterpret_cast<const void*>(source.first), source.count);
    machine.warp().copies.back().push_back(copy);
  }
}

/// Closes the group of the copies that were started since the last group.
inline void cp_async_commit(std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  if (machine.execute("cp_async_commit", here) != host::Change::skip) machine.warp().copies.emplace_back();
}

/// Waits until at most N groups are pending. The lane that started a copy sees it then; others after a barrier.
template <int N>
void cp_async_wait(std::source_location here = std::source_location::current()) {
  host::Machine& machine = *host::Machine::current();
  const host::Change change = machine.execute("cp_async_wait", here);
  if (change == host::Change::skip) return;
  auto& groups = machine.warp().copies;
  const std::size_t pending = static_cast<std::size_t>(N) + (change == host::Change::wait_less ? 1 : 0);
  for (; groups.size() > pending + 1; groups.pop_front())
    for (const host::PendingCopy& copy : groups.front()) {
      std::array<unsigned char, 16> bytes{};
      if (copy.source_count > 0)
        std::memcpy(bytes.data(), reinterpret_cast<const void*>(copy.source), copy.source_count);
      if (bytes != copy.at_issue) machine.fault(copy.place, "the source of this copy changes before it is waited for");
      machine.shared.land(copy.place, machine.accessor(copy.lane), copy.to, bytes.data(), copy.count);
    }
  machine.yield();
}

}  // namespace sympow::cuda::block
