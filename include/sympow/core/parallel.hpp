// A loop over independent jobs, on the threads of OpenMP where the program is compiled with it.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include <sympow/core/config.hpp>

// What runs on threads has a name of its own where there are some, see config.hpp.
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
/// Whether this process was forked off after a call: OpenMP's threads are not in it, and GNU's OpenMP would wait for
/// them for ever.
inline bool has_lost_threads() {
#if __has_include(<unistd.h>)
  static const auto first = getpid();
  return getpid() != first;
#else
  return false;
#endif
}
#endif

/// Threads that a call may use: those asked for, 0 being all that OpenMP gives; 1 without OpenMP, and in a process that
/// was forked off after a call.
inline int threads_of([[maybe_unused]] int asked) {
#ifdef _OPENMP
  if (has_lost_threads()) return 1;
  const int most = 4 * std::max(omp_get_max_threads(), omp_get_num_procs());  // more than there are cores gain nothing
  return asked > 0 ? std::min(asked, most) : omp_get_max_threads();
#else
  return 1;
#endif
}

/// job(n, scratch) for n = 0 … count - 1, begun in this order, each once and with the scratch memory of its thread. The
/// first exception is thrown again when all jobs are done; jobs that had not begun are left out.
template <class Scratch, class Job>
void parallel_for(Index count, int threads, std::vector<Scratch>& of_threads, const Job& job) {
  threads = static_cast<int>(std::clamp<Index>(count, 1, threads));
  if (of_threads.size() < static_cast<std::size_t>(threads)) of_threads.resize(static_cast<std::size_t>(threads));
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
        job(n, of_threads[static_cast<std::size_t>(omp_get_thread_num())]);
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
  for (Index n = 0; n < count; ++n) job(n, of_threads[0]);
}

}  // namespace SYMPOW_NAMESPACE::detail::inline SYMPOW_THREADS
