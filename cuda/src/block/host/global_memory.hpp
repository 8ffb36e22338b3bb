// Global memory of a launch: arrays with who stored and who loaded each two bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "report.hpp"
#include "shared_memory.hpp"

namespace sympow::cuda::block::host {

/// The shadow of one array. Of its readers only the last is kept.
class GlobalShadow {
 public:
  GlobalShadow(std::uintptr_t data, std::size_t bytes) : data_(data), bytes_(bytes), cells_((bytes + 1) / 2) {}
  [[nodiscard]] bool contains(std::uintptr_t first, std::size_t count) const {
    const auto at = offset(first);
    return at <= bytes_ && count <= bytes_ - at;  // an address below it wraps around
  }
  [[nodiscard]] bool is_set(std::uintptr_t first, std::size_t count) const {
    for (std::size_t i = offset(first) / 2; i < (offset(first) + count + 1) / 2; ++i)
      if (!cells_[i].set) return false;
    return true;
  }
  void set(std::uintptr_t first, std::size_t count) {
    for (std::size_t i = offset(first) / 2; i < (offset(first) + count + 1) / 2; ++i) cells_[i] = {{}, {}, true};
  }

  /// `launch` and `block` count from 1.
  void read(Report& report, const Place& place, const Accessor& by, long launch, long block, std::uintptr_t first,
            std::size_t count) {
    for (std::size_t i = offset(first) / 2; i < (offset(first) + count + 1) / 2; ++i) {
      Cell& cell = cells_[i];
      if (!cell.set) report.fault(place, "loads global memory that nobody wrote");
      if (cell.stored.races(by, launch, block))
        report.fault(place, "race: loads what ", cell.stored.other(block), " stores at line ", cell.stored.line);
      cell.loaded = {launch, block, (*by.clock)[by.warp], place.line, by.warp};
    }
  }
  void write(Report& report, const Place& place, const Accessor& by, long launch, long block, std::uintptr_t first,
             std::size_t count) {
    for (std::size_t i = offset(first) / 2; i < (offset(first) + count + 1) / 2; ++i) {
      Cell& cell = cells_[i];
      if (cell.stored.launch == launch)
        report.fault(place,
                     cell.stored.block == block ? "stores an entry twice, first at line "
                                                : "stores an entry that another block stored at line ",
                     cell.stored.line);
      if (cell.loaded.races(by, launch, block))
        report.fault(place, "race: stores what ", cell.loaded.other(block), " loads at line ", cell.loaded.line);
      cell.stored = {launch, block, (*by.clock)[by.warp], place.line, by.warp};
      cell.set = true;
    }
  }

 private:
  struct Access {
    long launch = 0, block = 0;
    std::uint32_t time = 0;
    unsigned line = 0;
    int warp = 0;
    [[nodiscard]] bool races(const Accessor& by, long in_launch, long in_block) const {
      return launch == in_launch && (block != in_block || (warp != by.warp && time > (*by.clock)[warp]));
    }
    [[nodiscard]] const char* other(long in_block) const {
      return block != in_block ? "another block" : "another warp";
    }
  };
  struct Cell {
    Access stored, loaded;
    bool set = false;
  };
  [[nodiscard]] std::size_t offset(std::uintptr_t address) const { return address - data_; }

  std::uintptr_t data_;
  std::size_t bytes_;
  std::vector<Cell> cells_;
};

/// Arrays that kernels get by plain pointers, as through a library, and the shadow of each.
class Allocations {
 public:
  static void add(const void* data, std::size_t bytes) {
    const std::lock_guard lock(all().mutex);
    all().shadows.try_emplace(address(data), address(data), bytes);
  }
  static void remove(const void* data) {
    const std::lock_guard lock(all().mutex);
    all().shadows.erase(address(data));
  }
  static void set(const void* first, std::size_t count) {
    if (GlobalShadow* shadow = find(first)) shadow->set(address(first), count);
  }
  /// That of the array that an address lies in; null: of none.
  static GlobalShadow* find(const void* first) {
    if (!first) return nullptr;
    const std::lock_guard lock(all().mutex);
    const auto after = all().shadows.upper_bound(address(first));
    if (after == all().shadows.begin()) return nullptr;
    GlobalShadow& shadow = std::prev(after)->second;
    return shadow.contains(address(first), 0) ? &shadow : nullptr;
  }

 private:
  struct All {
    std::mutex mutex;
    std::map<std::uintptr_t, GlobalShadow> shadows;
  };
  static All& all() {
    static All one;
    return one;
  }
  static std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }
};

}  // namespace sympow::cuda::block::host

namespace sympow::cuda::block {

/// An array in global memory, as a kernel takes it: `Global<const T>` to load from, `Global<T>` to store to as well.
template <class T>
struct Global {
  T* data = nullptr;
  host::GlobalShadow* shadow = host::Allocations::find(data);  // that of a Buffer is given
  operator Global<const T>() const { return {data, shadow}; }
};

namespace host {

/// Device memory: `count` entries from an address as cudaMalloc aligns it; none counts as written before it is set.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count)
      : count_(count), storage_(count * sizeof(T) + 256), shadow_(address(0), count * sizeof(T)) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::size_t size() const { return count_; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  void set(std::size_t i, T x) {
    data()[i] = x;
    shadow_.set(address(i), sizeof(T));
  }
  [[nodiscard]] bool is_set(std::size_t i) const { return shadow_.is_set(address(i), sizeof(T)); }
  operator Global<T>() { return {data(), &shadow_}; }
  operator Global<const T>() { return {data(), &shadow_}; }

  /// A fault unless every entry that `expected(i)` names was set, and no other.
  template <class Expected>
  void check_stored(Report& report, const std::string& name, const Expected& expected) const {
    std::size_t missing = 0, first = 0;
    for (std::size_t i = count_; i-- > 0;) {
      if (expected(i) && !is_set(i)) ++missing, first = i;
      if (!expected(i) && is_set(i)) report.fault(name + "[" + std::to_string(i) + "] was stored, must not be");
    }
    if (missing > 0)
      report.fault(name + ": " + std::to_string(missing) + " entries were never stored, the first is " +
                   std::to_string(first));
  }

 private:
  [[nodiscard]] T* data() const {
    const auto begin = reinterpret_cast<std::uintptr_t>(storage_.data());
    return reinterpret_cast<T*>(const_cast<unsigned char*>(storage_.data()) + (256 - begin % 256) % 256);
  }
  [[nodiscard]] std::uintptr_t address(std::size_t i) const { return reinterpret_cast<std::uintptr_t>(data() + i); }

  std::size_t count_;
  std::vector<unsigned char> storage_;
  GlobalShadow shadow_;
};

}  // namespace host

}  // namespace sympow::cuda::block
