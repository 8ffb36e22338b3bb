// The speed bars: a case beside its reference, in turns, in one process, scalar type and thread count.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sympow/core/concepts.hpp>

namespace sympow::bench {

// ---- the record ----

/// A line of the table: what was measured, what is asked for, and whether that holds; nothing where the machine cannot
/// tell.
struct Bar {
  std::string name, measured, asked;
  std::optional<bool> passes;
  std::string note;
  double ratio = 0,
         least = 0;  ///< the speed over that of the reference, and what is asked of it; 0 where there is no such
};

/// The bars that have run, in their order. A source beside these adds its own: every *_bench.cpp is a part of the
/// program.
inline std::vector<Bar>& bars() {
  static std::vector<Bar> all;
  return all;
}

/// Enters a bar; one of the same name is replaced.
inline void enter(Bar bar) {
  std::erase_if(bars(), [&](const Bar& other) { return other.name == bar.name; });
  bars().push_back(std::move(bar));
}

/// `printf` into a string.
template <class... Values>
std::string text(const char* format, Values... values) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

/// Whether `--calibrate` asks for this machine's own costs.
inline bool& calibrating() {
  static bool asked = false;
  return asked;
}

// ---- times ----

/// Where a time comes from.
using Clock = double (*)();

/// Seconds that this thread has worked: what others do on the machine does not count.
inline double thread_clock() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Seconds on the wall, for work of more than one thread.
inline double wall_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of a run, on average over some in a row.
template <class Run>
double seconds(Run&& run, int in_a_row = 1, Clock clock = thread_clock) {
  const double start = clock();
  for (int n = 0; n < in_a_row; ++n) run();
  return (clock() - start) / in_a_row;
}

inline constexpr double never = std::numeric_limits<double>::infinity();

/// Seconds of the fastest run of each, and of a million multiply-adds on all lanes of a register.
struct Times {
  double own = never, reference = never, peak = never;
};

/// A million fused multiply-adds of packets that never leave the registers: what a core can do at most.
class FmaPeak {
  using Packet = detail::packets::Packet<float>;
  static constexpr int chains = 12, steps = 1000000 / chains;

 public:
  static constexpr double operations = 2. * chains * steps * detail::packets::lanes<float>;

  void operator()() {
    using detail::packets::pmadd, detail::packets::pset1;
    const Packet a = pset1<Packet>(factor_), b = pset1<Packet>(1e-3f);
    Packet x[chains];
    for (Packet& chain : x) chain = b;
    for (int n = 0; n < steps; ++n) {
#pragma GCC unroll 12
      for (Packet& chain : x) chain = pmadd(chain, a, b);
    }
    for (Packet& chain : x) factor_ += 1e-9f * detail::packets::predux(chain);
    benchmark::DoNotOptimize(factor_);
  }

 private:
  float factor_ = .5f;
};

/// Reference, case, reference, case, …: the machine's speed drifts. In its turn each runs some times in a row, the
/// short ones in their own caches; what is shorter than the clock is good for counts on average. The benchmark shows
/// the case.
template <class Reference, class Case>
Times in_turns(benchmark::State& bench, Reference&& reference, Case&& own, int in_a_row = 1,
               Clock clock = thread_clock) {
  constexpr double shortest = 5e-5;
  const auto turn = [=](auto& run, int& runs) {
    if (runs == 0) runs = 1 + static_cast<int>(shortest / seconds(run, 1, clock));
    double best = never;
    for (int n = 0; n < in_a_row; ++n) best = std::min(best, seconds(run, runs, clock));
    return best;
  };
  Times best;
  int reference_runs = 0, own_runs = 0;
  FmaPeak peak;
  for (auto _ : bench) {
    best.peak = std::min(best.peak, seconds(peak));
    best.reference = std::min(best.reference, turn(reference, reference_runs));
    const double taken = turn(own, own_runs);
    best.own = std::min(best.own, taken);
    bench.SetIterationTime(taken);
  }
  return best;
}

// ---- references ----

/// Eigen's own product C += A B at 1024³.
class Product {
 public:
  static constexpr double operations = 2. * 1024 * 1024 * 1024;

  void operator()() {
    C_.noalias() += A_ * B_;
    benchmark::DoNotOptimize(C_.data());
  }

 private:
  Matrix<float> A_ = Matrix<float>::Random(1024, 1024), B_ = Matrix<float>::Random(1024, 1024),
                C_ = Matrix<float>::Zero(1024, 1024);
};

/// A copy of so many numbers from one page boundary to another: the speed of memcpy depends on where its operands
/// begin.
class Copy {
 public:
  explicit Copy(Index numbers) : bytes_(static_cast<std::size_t>(numbers) * sizeof(float)) {
    const std::size_t whole = (bytes_ + page - 1) / page * page;
    memory_.resize(2 * whole + page, 1);
    void* start = memory_.data();
    std::size_t space = memory_.size();
    source_ = static_cast<char*>(std::align(page, 2 * whole, start, space));
    target_ = source_ + whole;
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  void operator()() {
    std::memcpy(target_, source_, bytes_);
    benchmark::DoNotOptimize(target_);
  }

 private:
  static constexpr std::size_t page = 4096;
  std::size_t bytes_;
  std::vector<char> memory_;
  char *source_, *target_;
};

/// s = a s + b in place over so many numbers.
class ScaleAndAdd {
 public:
  explicit ScaleAndAdd(Index numbers) : numbers_(Vector<float>::Random(numbers)) {}
  void operator()() {
    numbers_.array() = .999f * numbers_.array() + 1e-3f;
    benchmark::DoNotOptimize(numbers_.data());
  }

 private:
  Vector<float> numbers_;
};

// ---- reports ----

/// Reference over case as a counter, and as a bar where `at_least` is not 0.
inline void report_ratio(benchmark::State& bench, const std::string& name, Times times, const char* of, double at_least,
                         const std::string& note) {
  const double ratio = times.reference / times.own;
  bench.counters["ratio"] = ratio;
  if (at_least > 0)
    enter({name, text("%.2f", ratio), text("at least %.2f of %s", at_least, of), ratio >= at_least, note, ratio,
           at_least});
}

/// Useful operations as a share of what the core's multiply-adds could do in the same time.
inline double share(Times times, double operations) {
  return operations / times.own * times.peak / FmaPeak::operations;
}
inline std::string share_of_peak(Times times, double operations) {
  return text("%.2f of the FMA peak", share(times, operations));
}

/// Useful operations a second, against those of the product.
inline void report_operations(benchmark::State& bench, const std::string& name, Times times, double operations,
                              double at_least, const std::string& note = "") {
  const double rate = operations / times.own / 1e9;
  bench.counters["useful GFLOP/s"] = rate;
  times.reference *= operations / Product::operations;
  report_ratio(bench, name, times, "the product rate", at_least,
               text("%.0f GFLOP/s, ", rate) + share_of_peak(times, operations) + (note.empty() ? "" : "; ") + note);
}

/// Useful operations as a share of the core's peak, which is the bar; beside it the rate of the product.
inline void report_share(benchmark::State& bench, const std::string& name, Times times, double operations,
                         double at_least, const std::string& note) {
  const double rate = operations / times.own, of_peak = share(times, operations);
  bench.counters["useful GFLOP/s"] = rate / 1e9;
  bench.counters["ratio"] = of_peak;
  enter({name, text("%.2f", of_peak), text("at least %.2f of the FMA peak", at_least), of_peak >= at_least,
         text("%.0f GFLOP/s, %.2f of the product rate; ", rate / 1e9, rate * times.reference / Product::operations) +
             note,
         of_peak, at_least});
}

/// Bytes written a second, against those of moving as many.
inline void report_bytes(benchmark::State& bench, const std::string& name, Times times, Index bytes, const char* of,
                         double at_least) {
  const double rate = static_cast<double>(bytes) / times.own / 1e9;
  bench.counters["GB/s"] = rate;
  report_ratio(bench, name, times, of, at_least, text("%.1f GB/s", rate));
}

}  // namespace sympow::bench
