// Requests for heap memory, which can be counted and can be made to fail: every operator new, and every malloc of
// Eigen's. The program links with requests.cpp and has the linker wrap malloc.
#pragma once

#include <new>

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
