// Requests for heap memory, which can be counted and can be made to fail: every operator new, and every one of Eigen's.
// Include it before any header of Eigen's, and link with requests.cpp.
#pragma once

/// Ends the program, unless it is Eigen's assertion that memory may be asked for: that is counted as a request.
void assertion_failed(const char* condition);

#define eigen_assert(condition) ((condition) ? void() : assertion_failed(#condition))
#ifndef EIGEN_RUNTIME_NO_MALLOC
#define EIGEN_RUNTIME_NO_MALLOC
#endif

#include <Eigen/Core>

namespace sympow::test {

/// Begins to count requests; the one of this number, from 0 on, throws `std::bad_alloc`, and -1 is none.
void count_requests(long failing);
/// Ends it; returns how many there were.
long requests_counted();

/// How often f asks for memory.
template <class F>
long requests_of(F&& f) {
  count_requests(-1);
  f();
  return requests_counted();
}

/// Whether f comes to its end where request n fails.
template <class F>
bool ends_without(long n, F&& f) {
  count_requests(n);
  try {
    f();
  } catch (const std::bad_alloc&) {
    return requests_counted(), false;
  } catch (...) {
    requests_counted();
    throw;
  }
  return requests_counted() <= n;
}

}  // namespace sympow::test
