// The speed bars: a case beside its reference, in turns, in one process, scalar type and thread count.
#pragma once

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sympow/simd/packed_product.hpp>

namespace sympow::bench {

// ---- the record ----

/// A line of the table: what was measured, what is asked for, and whether that holds; nothing where nothing is asked or
/// the machine cannot tell. A measurement that cannot be true has failed, whatever it says.
struct Bar {
  std::string name{};
  double value = 0;  ///< as measured
  std::string measured{}, asked{};
  std::optional<bool> holds{};
  std::string note{};
  double speed = 0,
         least = 0;  ///< the speed over that of the reference, and what is asked of it; 0 where there is no such
  bool failed = false;
};

/// The bars that have run, in their order. A source beside these adds its own: every *_bench.cpp is a part of the
/// program.
inline std::vector<Bar>& bars() {
  static std::vector<Bar> all;
  return all;
}

/// Whether `--smoke` asks for each case once, with the smallest work, of which nothing is judged.
inline bool& smoke() {
  static bool asked = false;
  return asked;
}

/// A size of a case: under `--smoke` a small one, of some chunks, or operations are counted that a first chunk has not.
inline Index unless_smoke(Index size, Index small) { return smoke() ? std::min(size, small) : size; }

/// Enters a bar; one of the same name is replaced. What is infinite, no number, 0 or negative was not measured.
inline void enter(Bar bar) {
  if (!(bar.value > 0 && std::isfinite(bar.value))) bar.failed = true;
  if (bar.failed || smoke()) bar.holds.reset();
  std::erase_if(bars(), [&](const Bar& other) { return other.name == bar.name; });
  bars().push_back(std::move(bar));
}

/// Enters a bar that could not be measured, and ends its benchmark.
inline void give_up(benchmark::State& bench, const std::string& name, const char* why) {
  enter({.name = name, .measured = "nothing", .note = why});
  bench.SkipWithError(why);
}

/// The bar of each kind of code: for 16 vector registers, as of x86-64-v3, and for the 32 of AVX-512.
struct Asked {
  double avx2, avx512;
  [[nodiscard]] constexpr double here() const {
#ifdef __AVX512F__
    return avx512;
#else
    return avx2;
#endif
  }
};

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

inline constexpr double never = std::numeric_limits<double>::infinity();

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

/// How often this thread has left its core; -1 where the system does not tell.
inline long interruptions() {
#ifdef RUSAGE_THREAD
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw + used.ru_nivcsw;
#else
  return -1;
#endif
}

/// Seconds of a run, on average over some in a row. A virtual machine deducts what its host takes from a thread's
/// clock, now and then from a run that lost nothing, and the best of many finds that one. So a run that was not
/// interrupted counts by the wall, and a short one that was does not count; under `--smoke`, where each runs once, it
/// counts by the wall too.
template <class Run>
double seconds(Run&& run, int in_a_row = 1, Clock clock = thread_clock) {
  constexpr double shortest_of_interrupted = 3e-3;  // about a turn of the scheduler
  const long before = interruptions();
  const double start = clock(), wall = wall_clock();
  for (int n = 0; n < in_a_row; ++n) run();
  const double took = clock() - start, took_by_wall = wall_clock() - wall;
  if (clock != thread_clock || before < 0) return took / in_a_row;
  const bool is_short = took < shortest_of_interrupted;
  if (interruptions() == before || (is_short && smoke())) return took_by_wall / in_a_row;
  return is_short ? never : took / in_a_row;
}

/// Seconds of the fastest run of each, and of as many multiply-adds as `FmaPeak` makes.
struct Times {
  double own = never, reference = never, peak = never;
};

/// A million multiply-adds of packets that never leave the registers: what a core can do at most. Chains start at
/// different numbers, or a compiler takes them for one.
class FmaPeak {
  using Packet = detail::packets::Packet<float>;
  static constexpr int chains = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS >= 32 ? 24 : 12, steps = 1000000 / chains;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  static constexpr bool is_one_instruction = true;  // which writes over its summand
#else
  static constexpr bool is_one_instruction = false;  // a product that does not change would leave the loop
#endif

 public:
  static constexpr double operations = 2. * chains * steps * detail::packets::lanes<float>;

  void operator()() {
    using detail::packets::pmadd, detail::packets::pset1, detail::unrolled;
    const Packet a = pset1<Packet>(factor_), b = pset1<Packet>(1e-3f);
    Packet x[chains];  // indexed by constants, or it lies on the stack
    unrolled<chains>([&](auto i) { x[i] = pset1<Packet>(factor_ * static_cast<float>(1 + i)); });
    for (int n = 0; n < steps; ++n)
      unrolled<chains>([&](auto i) __attribute__((always_inline)) {
        x[i] = is_one_instruction ? pmadd(a, b, x[i]) : pmadd(x[i], a, b);
      });
    float sum = 0;
    unrolled<chains>([&](auto i) { sum += detail::packets::predux(x[i]); });
    benchmark::DoNotOptimize(sum);
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
    if (runs == 0) runs = smoke() ? 1 : 1 + static_cast<int>(shortest / seconds(run, 1, clock));
    double best = never;
    for (int n = 0; n < in_a_row; ++n) best = std::min(best, seconds(run, runs, clock));
    return best;
  };
  Times best;
  int reference_runs = 0, own_runs = 0;
  FmaPeak peak;
  for (auto _ : bench) {
    if (smoke() && best.own < never) {
      bench.SetIterationTime(best.own);
      continue;
    }
    for (Index n = unless_smoke(8, 1); n > 0; --n) best.peak = std::min(best.peak, seconds(peak));
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
  static Index size() { return unless_smoke(1024, 128); }
  static double operations() { return 2 * std::pow(static_cast<double>(size()), 3); }

  void operator()() {
    C_.noalias() += A_ * B_;
    benchmark::DoNotOptimize(C_.data());
  }

 private:
  Matrix<float> A_ = Matrix<float>::Random(size(), size()), B_ = A_.transpose(),
                C_ = Matrix<float>::Zero(size(), size());
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

/// A sum over so many numbers: what reads memory and does nothing else. As many chains as hide the time of an addition.
class Read {
 public:
  explicit Read(Index numbers) : numbers_(Vector<float>::Random((numbers + of_step - 1) / of_step * of_step)) {}
  void operator()() {
    using namespace detail::packets;
    Packet<float> sums[chains];
    detail::unrolled<chains>([&](auto i) { sums[i] = pset1<Packet<float>>(0); });
    for (Index n = 0; n < numbers_.size(); n += of_step)
      detail::unrolled<chains>([&](auto i) __attribute__((always_inline)) {
        sums[i] = padd(sums[i], ploadu<Packet<float>>(numbers_.data() + n + i * lanes<float>));
      });
    float sum = 0;
    detail::unrolled<chains>([&](auto i) { sum += predux(sums[i]); });
    benchmark::DoNotOptimize(sum);
  }

 private:
  static constexpr int chains = 8;
  static constexpr Index of_step = chains * detail::packets::lanes<float>;
  Vector<float> numbers_;
};

// ---- reports ----

/// Reference over case as a counter, and as a bar where it has a name; it is judged where `at_least` is not 0.
inline void report_ratio(benchmark::State& bench, const std::string& name, Times times, const char* of, double at_least,
                         const std::string& note, bool failed = false) {
  const double ratio = times.reference / times.own;
  bench.counters["ratio"] = ratio;
  if (name.empty()) return;
  Bar bar{name, ratio, text("%.2f", ratio), text("of %s", of), {}, note, ratio, at_least, failed};
  if (at_least > 0) bar.asked = text("at least %.2f ", at_least) + bar.asked, bar.holds = ratio >= at_least;
  enter(std::move(bar));
}

/// Useful operations as a share of what the core's multiply-adds could do in the same time.
inline double share(double taken, Times times, double operations) {
  return operations / taken * times.peak / FmaPeak::operations;
}
inline std::string share_of_peak(Times times, double operations) {
  return text("%.2f of the FMA peak", share(times.own, times, operations));
}

/// Whether a share exceeds the peak by more than clocks err: then the measurement or the count of operations is wrong.
inline bool is_impossible(double share_of_peak) { return !(share_of_peak <= 1.02); }
/// Whether a case, or the product that it ran beside, makes more than the peak.
inline bool is_impossible(Times times, double operations) {
  return is_impossible(share(times.own, times, operations)) ||
         is_impossible(share(times.reference, times, Product::operations()));
}

/// Useful operations a second, against those of the product.
inline void report_operations(benchmark::State& bench, const std::string& name, Times times, double operations,
                              double at_least, const std::string& note = "") {
  const double rate = operations / times.own / 1e9;
  const bool failed = is_impossible(times, operations);
  bench.counters["useful GFLOP/s"] = rate;
  times.reference *= operations / Product::operations();
  report_ratio(bench, name, times, "the product rate", at_least,
               text("%.1f GFLOP/s, ", rate) + share_of_peak(times, operations) + (note.empty() ? "" : "; ") + note,
               failed);
}

/// Useful operations as a share of the core's peak, which is the bar; beside it the rate of the product.
inline void report_share(benchmark::State& bench, const std::string& name, Times times, double operations,
                         double at_least, const std::string& note) {
  const double rate = operations / times.own;
  const bool failed = is_impossible(times, operations);
  bench.counters["useful GFLOP/s"] = rate / 1e9;
  const std::string of_product =
      text("%.1f GFLOP/s, %.2f of the product rate; ", rate / 1e9, rate * times.reference / Product::operations());
  times.reference = times.peak * operations / FmaPeak::operations;
  report_ratio(bench, name, times, "the FMA peak", at_least, of_product + note, failed);
}

/// Bytes written a second, against those of moving as many.
inline void report_bytes(benchmark::State& bench, const std::string& name, Times times, Index bytes, const char* of,
                         double at_least) {
  const double rate = static_cast<double>(bytes) / times.own / 1e9;
  bench.counters["GB/s"] = rate;
  report_ratio(bench, name, times, of, at_least, text("%.1f GB/s", rate));
}

}  // namespace sympow::bench
