// What a run on the host says of a kernel: faults, and counts by place in its source.
#pragma once

#include <algorithm>
#include <compare>
#include <cstring>
#include <map>
#include <source_location>
#include <sstream>
#include <string>
#include <string_view>

namespace sympow::cuda::block::host {

/// Where an instruction stands in the source of a kernel.
struct Place {
  const char* file = "";
  unsigned line = 0, column = 0;

  Place() = default;
  Place(const std::source_location& here) : file(here.file_name()), line(here.line()), column(here.column()) {}
  friend bool operator<(const Place& a, const Place& b) {
    if (a.line != b.line) return a.line < b.line;
    if (a.column != b.column) return a.column < b.column;
    return a.file != b.file && std::strcmp(a.file, b.file) < 0;
  }
  friend bool operator==(const Place& a, const Place& b) { return !(a < b) && !(b < a); }
  /// "gemm.hpp:52"
  [[nodiscard]] std::string text() const {
    const std::string_view path(file);
    return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line);
  }
};

/// Transactions of a memory: wavefronts of 128 bytes in shared memory, sectors of 32 bytes in global memory.
struct Traffic {
  long transactions = 0;
  long ideal = 0;  ///< the fewest that hold the bytes which the lanes ask for

  void add(const Traffic& other) {
    transactions += other.transactions;
    ideal += other.ideal;
  }
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// One instruction of the source.
struct Site {
  const char* instruction = "";
  long executed = 0;  ///< by a warp
  Traffic shared, global;
  bool masked = false;   ///< some lane was inactive once
  bool uneven = false;   ///< neighbouring lanes had different addresses once
  bool partial = false;  ///< some copy brought fewer bytes than it wrote
};

/// The outcome of a launch.
struct Report {
  std::map<Place, Site> sites;
  std::map<std::string, long> faults;  ///< "file:line: what", and how often
  long blocks = 0;

  [[nodiscard]] bool clean() const { return faults.empty(); }
  /// How often warps executed an instruction; the names are those of block.hpp.
  [[nodiscard]] long executed(std::string_view instruction) const {
    long sum = 0;
    for (const auto& [place, site] : sites)
      if (site.instruction == instruction) sum += site.executed;
    return sum;
  }
  [[nodiscard]] Traffic shared() const { return total(&Site::shared); }  ///< over all sites
  [[nodiscard]] Traffic global() const { return total(&Site::global); }  ///< over all sites

  template <class... Words>
  void fault(const Place& place, const Words&... words) {
    std::ostringstream message;
    message << place.text() << ": ";
    (message << ... << words);
    ++faults[message.str()];
  }
  void fault(const std::string& message) { ++faults[message]; }

  /// All of it, a fault or a site a line.
  [[nodiscard]] std::string text() const {
    std::ostringstream out;
    for (const auto& [what, times] : faults) out << "fault: " << what << " (" << times << " times)\n";
    for (const auto& [place, site] : sites) {
      out << place.text() << " " << site.instruction << ": " << site.executed << " executed";
      if (site.shared.ideal > 0) out << ", " << site.shared.transactions << " wavefronts for " << site.shared.ideal;
      if (site.global.ideal > 0) out << ", " << site.global.transactions << " sectors for " << site.global.ideal;
      out << "\n";
    }
    return out.str();
  }

 private:
  [[nodiscard]] Traffic total(Traffic Site::* memory) const {
    Traffic sum;
    for (const auto& [place, site] : sites) sum.add(site.*memory);
    return sum;
  }
};

}  // namespace sympow::cuda::block::host
