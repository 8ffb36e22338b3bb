// Shared memory of one block, with who wrote and who read each two bytes of it, and when.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "clock.hpp"
#include "report.hpp"

namespace sympow::cuda::block::host {

/// Who accesses memory: a lane of a warp, at the warp's time, between two barriers of the warp.
struct Accessor {
  int warp = 0, lane = 0;  ///< `every_lane`: the warp as one, as ldmatrix reads
  const VectorClock* clock = nullptr;
  std::uint32_t step = 0;  ///< warp barriers so far: lanes are in order across them only
};
inline constexpr int every_lane = 32;

/// Bytes and their shadow. Accesses must have been found inside of it. The checks are exact: an access is a race with
/// an earlier one if no chain of barriers lies between, even if this schedule happened to put them in a good order.
class SharedMemory {
 public:
  SharedMemory(std::size_t bytes, int warps)
      : warps_(static_cast<std::size_t>(warps)),
        bytes_(bytes),
        cells_((bytes + 1) / 2),
        reads_(cells_.size() * warps_) {}

  /// As it was at first.
  void clear() {
    std::fill(bytes_.begin(), bytes_.end(), static_cast<unsigned char>(0));
    std::fill(cells_.begin(), cells_.end(), Cell{});
    std::fill(reads_.begin(), reads_.end(), Read{});
  }

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  unsigned char* data(std::size_t at) { return bytes_.data() + at; }

  /// A lane reads `count` bytes.
  void read(Report& report, const Place& place, const Accessor& by, std::size_t first, std::size_t count) {
    for (std::size_t i = first / 2; i < (first + count + 1) / 2; ++i) {
      const Cell& cell = cells_[i];
      if (cell.state == State::unset) report.fault(place, "reads shared memory that nobody wrote");
      if (cell.state == State::in_flight)
        report.fault(place, "reads what the copy at line ", cell.line, " brings, without waiting for it");
      if (cell.state == State::set) against_write(report, place, by, cell, "reads");
      Read& read = reads_[i * warps_ + static_cast<std::size_t>(by.warp)];
      const bool alone = read.line == 0 || read.lane == by.lane || read.step != by.step;
      read = {(*by.clock)[by.warp], by.step, place.line, alone ? by.lane : every_lane};
    }
  }

  /// A lane writes `count` bytes; `in_flight` if they come later.
  void write(Report& report, const Place& place, const Accessor& by, std::size_t first, std::size_t count,
             bool in_flight = false) {
    for (std::size_t i = first / 2; i < (first + count + 1) / 2; ++i) {
      Cell& cell = cells_[i];
      if (cell.state == State::in_flight)
        report.fault(place, "writes where the copy at line ", cell.line, " is still writing");
      if (cell.state == State::set) against_write(report, place, by, cell, "writes");
      for (int w = 0; w < static_cast<int>(warps_); ++w) {
        const Read& read = reads_[i * warps_ + static_cast<std::size_t>(w)];
        if (read.line == 0) continue;
        if (w != by.warp && read.time > (*by.clock)[w])
          report.fault(place, "race: writes what another warp reads at line ", read.line, ", no barrier between");
        if (w == by.warp && read.step == by.step && read.lane != by.lane)
          report.fault(place, "race: writes what another lane of the warp reads at line ", read.line,
                       ", no warp barrier between");
      }
      stamp(cell, place.line, by, in_flight ? State::in_flight : State::set);
    }
  }

  /// What a warp wrote so far, products of groups may read after a barrier.
  void publish(int warp) {
    for (Cell& cell : cells_)
      if (cell.warp == warp) cell.published = true;
  }
  void require_published(Report& report, const Place& place, std::size_t first, std::size_t count) const {
    for (std::size_t i = first / 2; i < (first + count + 1) / 2; ++i)
      if (!cells_[i].published) report.fault(place, "reads what was not published, written at line ", cells_[i].line);
  }

  /// What a copy brought has come, and is seen by the lane that waited.
  void land(const Place& copy, const Accessor& by, std::size_t first, const unsigned char* from, std::size_t count) {
    std::memcpy(data(first), from, count);
    for (std::size_t i = first / 2; i < (first + count) / 2; ++i) stamp(cells_[i], copy.line, by, State::set);
  }

 private:
  enum class State : std::uint8_t { unset, set, in_flight };
  struct Cell {
    std::uint32_t time = 0, step = 0;
    unsigned line = 0;
    std::int8_t warp = 0, lane = 0;
    State state = State::unset;
    bool published = false;
  };
  struct Read {  // the last one of a warp
    std::uint32_t time = 0, step = 0;
    unsigned line = 0;
    int lane = 0;
  };

  static void against_write(Report& report, const Place& place, const Accessor& by, const Cell& cell,
                            const char* does) {
    if (cell.warp != by.warp && cell.time > (*by.clock)[cell.warp])
      report.fault(place, "race: ", does, " what another warp wrote at line ", cell.line, ", no barrier between");
    if (cell.warp == by.warp && cell.step == by.step && cell.lane != by.lane)
      report.fault(place, "race: ", does, " what another lane of the warp wrote at line ", cell.line,
                   ", no warp barrier between");
  }
  static void stamp(Cell& cell, unsigned line, const Accessor& by, State state) {
    cell = {(*by.clock)[by.warp],
            by.step,
            line,
            static_cast<std::int8_t>(by.warp),
            static_cast<std::int8_t>(by.lane),
            state,
            false};
  }

  std::size_t warps_;
  std::vector<unsigned char> bytes_;
  std::vector<Cell> cells_;  // of two bytes each
  std::vector<Read> reads_;  // cell by cell, one for each warp
};

}  // namespace sympow::cuda::block::host
