// A block that runs: its warps as fibers, their clocks and barriers, and the launch of a grid.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "fiber.hpp"
#include "global_memory.hpp"
#include "mma.hpp"
#include "mutation.hpp"
#include "products.hpp"
#include "report.hpp"
#include "shared_memory.hpp"

namespace sympow::cuda::block::host {

/// The order in which blocks, and warps that can go on, do so.
enum class Schedule { forward, reverse, random };

/// How a launch runs.
struct Options {
  Schedule schedule = Schedule::forward;
  unsigned seed = 0;  ///< of the random schedule
  MmaSum mma = MmaSum::hopper;
  Mutation mutation{};
};

/// Blocks of a grid.
struct Grid {
  int x = 1, y = 1, z = 1;
};

/// 16, 8 or 4 bytes that cp.async is to write.
struct PendingCopy {
  Place place;
  int lane = 0;
  std::size_t to = 0;
  unsigned count = 0;
  std::uintptr_t source = 0;
  unsigned source_count = 0;
  std::array<unsigned char, 16> at_issue{};
};

/// A warp that cannot go on, as its fiber ends.
struct Abandoned {};

struct Warp {
  enum class State { ready, waiting, done };
  using Groups = std::deque<std::vector<PendingCopy>>;

  State state = State::ready;
  VectorClock clock;
  std::uint32_t step = 1;     ///< warp barriers so far, and one
  int barrier = 0;            ///< that it waits at
  Place place;                ///< where it does
  Groups copies = Groups(1);  ///< of cp.async, the oldest first; the last is open
  Products products;
  std::vector<std::size_t> factors;  ///< where the rows of its products began, one after the other
  std::unique_ptr<Fiber> fiber;
};

/// A launch while it runs: one block after the other, one warp at a time. What kernels call finds it by `current`.
class Machine {
 public:
  using Body = void (*)(const void*);
  Machine(const Options& how, Body body, const void* args, int block_threads, int shared_bytes, Grid blocks)
      : options(how),
        random(how.seed),
        grid(blocks),
        threads(block_threads),
        shared(static_cast<std::size_t>(shared_bytes), block_threads / 32),
        body_(body),
        args_(args) {}

  /// That of the calling kernel.
  static Machine*& current() {
    static thread_local Machine* machine = nullptr;
    return machine;
  }

  Warp& warp() { return warps_[static_cast<std::size_t>(warp_index)]; }
  /// The number of the block that runs, from 1.
  [[nodiscard]] long block() const {
    return 1 + block_index[0] + long{grid.x} * (block_index[1] + long{grid.y} * block_index[2]);
  }
  [[nodiscard]] Accessor accessor(int lane) { return {warp_index, lane, &warp().clock, warp().step}; }
  template <class... Words>
  void fault(const Place& place, const Words&... words) {
    report.fault(place, words...);
  }
  /// Counts an instruction; tells what is to be broken about it.
  Change execute(const char* instruction, const Place& place, Site** counted = nullptr) {
    Site& site = report.sites[place];
    site.instruction = instruction;
    ++site.executed;
    if (counted) *counted = &site;
    return options.mutation.place == place ? options.mutation.change : Change::none;
  }
  /// The n-th product of each of four neighbouring warps has the same rows.
  void require_same_in_group(const Place& place, std::size_t first) {
    std::vector<std::size_t>& own = warp().factors;
    own.push_back(first);
    for (int w = warp_index / 4 * 4; w < warp_index / 4 * 4 + 4; ++w) {
      if (w >= static_cast<int>(warps_.size())) {
        fault(place, "a product of fewer than four warps");
        return;
      }
      const std::vector<std::size_t>& other = warps_[static_cast<std::size_t>(w)].factors;
      if (other.size() >= own.size() && other[own.size() - 1] != first)
        fault(place, "warps of a group multiply by different rows");
    }
  }
  /// Ends the calling warp.
  [[noreturn]] void abandon() { throw Abandoned{}; }

  /// Lets another warp go on where the schedule is random.
  void yield() {
    if (options.schedule == Schedule::random && random() % 2 == 0) warp().fiber->pause();
  }
  /// The calling warp comes to a barrier of so many threads, and waits there or not.
  void come_to_barrier(const Place& place, int id, int count, bool waits) {
    if (id < 0 || id > 15 || count <= 0 || count % 32 != 0 || count > threads) {
      fault(place, "barrier ", id, " of ", count, " threads in a block of ", threads);
      abandon();
    }
    Barrier& barrier = barriers_[static_cast<std::size_t>(id)];
    if (barrier.arrived() > 0 && barrier.expected() != count)
      fault(place, "barrier ", id, " is of ", count, " threads here, of ", barrier.expected(), " elsewhere");
    if (barrier.has_come(warp_index))
      fault(place, "comes to barrier ", id, " a second time before the others have come once");
    Warp& self = warp();
    self.state = waits ? Warp::State::waiting : Warp::State::ready;
    self.barrier = id;
    self.place = place;
    const std::uint32_t woken = barrier.come(warp_index, waits, count, self.clock);
    if (barrier.full()) {
      for (std::size_t w = 0; w < warps_.size(); ++w)
        if (woken >> w & 1u) {
          warps_[w].clock.join(barrier.clock());
          ++warps_[w].step;
          warps_[w].state = Warp::State::ready;
        }
      barrier.reset();
    }
    if (self.state == Warp::State::waiting) {
      self.fiber->pause();
      if (abandoned_) abandon();
    } else {
      yield();
    }
  }

  /// All blocks of the grid.
  void run() {
    static std::atomic<long> launches = 0;
    launch = ++launches;
    std::vector<std::array<int, 3>> blocks;
    for (int z = 0; z < grid.z; ++z)
      for (int y = 0; y < grid.y; ++y)
        for (int x = 0; x < grid.x; ++x) blocks.push_back({x, y, z});
    if (options.schedule == Schedule::reverse) std::reverse(blocks.begin(), blocks.end());
    if (options.schedule == Schedule::random) std::shuffle(blocks.begin(), blocks.end(), random);
    for (const auto& index : blocks) {
      block_index = index;
      ++report.blocks;
      run_block();
      if (error_) std::rethrow_exception(error_);
    }
  }

  Options options;
  Report report;
  std::mt19937 random;
  Grid grid;
  int threads;
  long launch = 0;
  int warp_index = 0;
  std::array<int, 3> block_index{};
  SharedMemory shared;

 private:
  void run_block() {
    const int count = threads / 32;
    shared.clear();
    barriers_ = {};
    abandoned_ = false;
    warps_.clear();
    warps_.resize(static_cast<std::size_t>(count));
    for (int w = 0; w < count; ++w) {
      warps_[static_cast<std::size_t>(w)].clock.advance(w);  // later than what others know of it
      warps_[static_cast<std::size_t>(w)].fiber =
          std::make_unique<Fiber>([](void* machine) { static_cast<Machine*>(machine)->run_warp(); }, this);
    }
    while (resume_ready(count)) {
    }
    bool stuck = false;
    for (const Warp& w : warps_) stuck = stuck || w.state == Warp::State::waiting;
    if (stuck) end_deadlock(count);
    for (const Warp& w : warps_) {
      if (w.products.pending()) fault(w.place, "products are never waited for");
      if (w.factors.size() != warps_[static_cast<std::size_t>(&w - warps_.data()) / 4 * 4].factors.size())
        fault(w.place, "warps of a group have different numbers of products");
    }
    for (const Warp& w : warps_)
      for (const auto& group : w.copies)
        for (const PendingCopy& copy : group) fault(copy.place, "this copy is never waited for");
  }
  bool resume_ready(int count) {
    bool any = false;
    std::vector<int> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    if (options.schedule == Schedule::reverse) std::reverse(order.begin(), order.end());
    if (options.schedule == Schedule::random) std::shuffle(order.begin(), order.end(), random);
    for (const int w : order) {
      if (warps_[static_cast<std::size_t>(w)].state != Warp::State::ready) continue;
      any = true;
      warp_index = w;
      warp().fiber->resume();
    }
    return any;
  }
  void run_warp() {
    try {
      body_(args_);
    } catch (const Abandoned&) {
    } catch (...) {
      error_ = std::current_exception();
    }
    warp().state = Warp::State::done;
  }
  void end_deadlock(int count) {
    std::ostringstream left;
    for (int w = 0; w < count; ++w)
      if (warps_[static_cast<std::size_t>(w)].state == Warp::State::done) left << " " << w;
    for (int w = 0; w < count; ++w) {
      const Warp& stuck = warps_[static_cast<std::size_t>(w)];
      if (stuck.state != Warp::State::waiting) continue;
      const Barrier& barrier = barriers_[static_cast<std::size_t>(stuck.barrier)];
      fault(stuck.place, "deadlock: barrier ", stuck.barrier, " has ", barrier.arrived(), " of ", barrier.expected(),
            " threads", left.str().empty() ? "" : "; ended without it: warps", left.str());
    }
    abandoned_ = true;
    for (warp_index = 0; warp_index < count; ++warp_index)
      if (warp().state == Warp::State::waiting) warp().fiber->resume();
  }

  Body body_;
  const void* args_;
  std::vector<Warp> warps_;
  std::array<Barrier, 16> barriers_;
  bool abandoned_ = false;
  std::exception_ptr error_;  // that a kernel threw
};

/// Runs all blocks of a grid. `Kernel` is as block.hpp says.
template <class Kernel>
Report launch(Grid grid, const typename Kernel::Args& args, const Options& options = {}) {
  Machine machine(
      options, [](const void* a) { Kernel::run(*static_cast<const typename Kernel::Args*>(a)); }, &args,
      Kernel::threads, Kernel::shared_bytes, grid);
  const struct Current {
    Machine* outer;
    ~Current() { Machine::current() = outer; }
  } current{std::exchange(Machine::current(), &machine)};
  machine.run();
  return std::move(machine.report);
}

}  // namespace sympow::cuda::block::host
