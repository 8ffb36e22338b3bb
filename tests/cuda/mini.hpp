// Kernels of a few lines, each wrong in one way or right, and what the host says of them.
#pragma once

#include <initializer_list>
#include <string>

#include "block/block.hpp"
#include "catch.hpp"

namespace sympow::test {

using namespace sympow::cuda::block;
namespace host = sympow::cuda::block::host;

struct MiniArgs {
  Global<float> x;       // 64 entries: those from 0 on hold their index, those from 32 on nobody wrote
  Global<const bf16> y;  // 64 entries, all 1
};

/// A kernel whose body is a function of its arguments and of 1024 bytes of shared memory, `Shared<float>`.
template <int Warps, auto body>
struct Mini {
  using Args = MiniArgs;
  static constexpr int threads = 32 * Warps, shared_bytes = 1024, blocks_per_multiprocessor = 1;
  static void run(const Args& args) {
    Arena arena;
    body(args, arena.take<float>(256));
  }
};

/// Its report in a given schedule.
template <int Warps, auto body>
host::Report run(host::Schedule schedule = host::Schedule::forward, int blocks = 1, unsigned seed = 1) {
  host::Buffer<float> x(64);
  host::Buffer<bf16> y(64);
  for (std::size_t i = 0; i < 64; ++i) y.set(i, round_to<bf16>(1));
  for (std::size_t i = 0; i < 32; ++i) x.set(i, static_cast<float>(i));
  return host::launch<Mini<Warps, body>>({blocks, 1, 1}, {x, y}, {schedule, seed, host::MmaSum::hopper, {}});
}

/// Every fault in any of the schedules, a line each.
template <int Warps, auto body>
std::string faults(int blocks = 1) {
  std::string text;
  for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random})
    for (const auto& [what, times] : run<Warps, body>(schedule, blocks).faults)
      if (text.find(what) == std::string::npos) text += what + "\n";
  return text;
}

/// Whether each schedule, and eight random ones, reports a fault with one of these words.
template <int Warps, auto body>
bool always(std::initializer_list<const char*> words, int blocks = 1) {
  const auto reported = [&](const host::Report& report) {
    for (const auto& [what, times] : report.faults)
      for (const char* const word : words)
        if (what.find(word) != std::string::npos) return true;
    return false;
  };
  bool all = reported(run<Warps, body>(host::Schedule::forward, blocks)) &&
             reported(run<Warps, body>(host::Schedule::reverse, blocks));
  for (unsigned seed = 0; seed < 8; ++seed)
    all = all && reported(run<Warps, body>(host::Schedule::random, blocks, seed));
  return all;
}

/// One number for all lanes, and one for each.
inline constexpr auto put = [](auto memory, const auto& i, float value) {
  const Lanes<float> r[1] = {value};
  store(memory, i, r);
};
inline constexpr auto get = [](auto memory, const auto& i) {
  Lanes<float> r[1];
  load(r, memory, i);
  return r[0];
};

}  // namespace sympow::test
