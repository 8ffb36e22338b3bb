// A loop over independent jobs, on OpenMP threads if the program is compiled with OpenMP.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include <sympow/core/config.hpp>

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
/// Whether this process was forked after a first call. OpenMP's threads do not survive a fork, and GNU's OpenMP would
/// wait for them forever.
inline bool is_forked() {
#if __has_include(<unistd.h>)
  static const auto first = getpid();
  return getpid() != first;
#else
  return false;
#endif
}
#endif

/// Number of threads to use: `requested`, or all that OpenMP offers for 0. 1 without OpenMP, or in a process forked
/// after a call.
inline int thread_count([[maybe_unused]] int requested) {
#ifdef _OPENMP
  if (is_forked()) return 1;
  const int limit = 4 * std::max(omp_get_max_threads(), omp_get_num_procs());  // no gain beyond
  return requested > 0 ? std::min(requested, limit) : omp_get_max_threads();
#else
  return 1;
#endif
}

/// job(n, scratch) for n = 0 … count - 1, started in this order, each once, with the scratch memory of its thread.
/// After all started jobs have finished, rethrows the first exception; jobs not yet started are skipped.
template <class Scratch, class Job>
void parallel_for(Index count, int threads, std::vector<Scratch>& scratch, const Job& job) {
  threads = static_cast<int>(std::clamp<Index>(count, 1, threads));
  if (scratch.size() < static_cast<std::size_t>(threads)) scratch.resize(static_cast<std::size_t>(threads));
#ifdef _OPENMP
  if (threads > 1 && count > 1) {
    std::exception_ptr failure;
    bool failed = false;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (Index n = 0; n < count; ++n) {
      bool stop = false;
#pragma omp atomic read
      stop = failed;
      if (stop) continue;
      try {
        job(n, scratch[static_cast<std::size_t>(omp_get_thread_num())]);
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
  for (Index n = 0; n < count; ++n) job(n, scratch[0]);
}

}  // namespace SYMPOW_NAMESPACE::detail::inline SYMPOW_THREADS
