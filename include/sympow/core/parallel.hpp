// A loop over independent jobs, on OpenMP threads if the program is compiled with OpenMP.
#pragma once

#include <algorithm>
#include <cfenv>
#include <exception>
#include <vector>

#include <sympow/core/concepts.hpp>
#include <sympow/core/visitor.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// While it lives, its thread rounds to the nearest, whatever the program has chosen.
class RoundsToNearest {
 public:
  RoundsToNearest() {
    if (mode_ != FE_TONEAREST) std::fesetround(FE_TONEAREST);
  }
  RoundsToNearest(const RoundsToNearest&) = delete;
  RoundsToNearest& operator=(const RoundsToNearest&) = delete;
  ~RoundsToNearest() {
    if (mode_ != FE_TONEAREST) std::fesetround(mode_);
  }

 private:
  int mode_ = std::fegetround();
};

}  // namespace SYMPOW_NAMESPACE::detail

// Code with threads has its own namespace, see config.hpp.
#ifdef _OPENMP
#include <omp.h>
#if __has_include(<unistd.h>)
#include <unistd.h>
#endif
#define SYMPOW_THREADS openmp
#else
#define SYMPOW_THREADS one_thread
#endif

namespace SYMPOW_NAMESPACE::detail::inline SYMPOW_THREADS {

#ifdef _OPENMP
#if __has_include(<unistd.h>)
inline const auto process_at_load = getpid();
#endif
/// Whether this process was forked after the program or library was loaded. OpenMP's threads do not survive a fork.
/// If the parent had started them, GNU's OpenMP waits for them forever.
inline bool is_forked() {
#if __has_include(<unistd.h>)
  return getpid() != process_at_load;
#else
  return false;
#endif
}
#endif

/// Number of threads to use: `requested`, or all that OpenMP offers for 0. 1 without OpenMP, or in a forked process.
inline int thread_count([[maybe_unused]] int requested) {
#ifdef _OPENMP
  if (is_forked()) return 1;
  const int limit = 4 * std::max(omp_get_max_threads(), omp_get_num_procs());  // no gain beyond
  return requested > 0 ? std::min(requested, limit) : omp_get_max_threads();
#else
  return 1;
#endif
}

/// job(n, thread) for n = 0 … count - 1, started in this order, each once, and rounding to the nearest. After all
/// started jobs have finished, rethrows the first exception; jobs not yet started are skipped.
inline void run_jobs(Index count, [[maybe_unused]] int threads, const Visitor<Index, int>& job) {
#ifdef _OPENMP
  if (threads > 1 && count > 1) {
    std::exception_ptr failure;
    bool failed = false;
    const Index at_once = std::max<Index>(1, count / (Index{32} * threads));  // or threads contend for the next job
#pragma omp parallel for schedule(dynamic, at_once) num_threads(threads)
    for (Index n = 0; n < count; ++n) {
      bool stop = false;
#pragma omp atomic read
      stop = failed;
      if (stop) continue;
      try {
        const RoundsToNearest rounding;
        job(n, omp_get_thread_num());
      } catch (...) {
#pragma omp critical(sympow_failure)
        if (!failure) failure = std::current_exception();
#pragma omp atomic write
        failed = true;
      }
    }
    if (failure) std::rethrow_exception(failure);
    return;
  }
#endif
  const RoundsToNearest rounding;
  for (Index n = 0; n < count; ++n) job(n, 0);
}

}  // namespace SYMPOW_NAMESPACE::detail::inline SYMPOW_THREADS

namespace SYMPOW_NAMESPACE::detail {

/// The threads of a program, for code that is compiled once for programs with threads and without.
struct Threads {
  int count = 1;
  void (*run)(Index count, int threads, const Visitor<Index, int>& job);
};

inline namespace SYMPOW_THREADS {

/// Those of this program, see `thread_count`.
[[nodiscard]] inline Threads threads_of_program(int requested) { return {thread_count(requested), &run_jobs}; }

}  // namespace SYMPOW_THREADS

/// job(n, scratch) as `run_jobs`, with the scratch memory of the job's thread.
template <class Scratch, class Job>
void parallel_for(Index count, const Threads& threads, std::vector<Scratch>& scratch, const Job& job) {
  const int n = static_cast<int>(std::clamp<Index>(count, 1, threads.count));
  if (scratch.size() < static_cast<std::size_t>(n)) scratch.resize(static_cast<std::size_t>(n));
  threads.run(count, n, [&](Index i, int thread) { job(i, scratch[static_cast<std::size_t>(thread)]); });
}

}  // namespace SYMPOW_NAMESPACE::detail
