#include "requests.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<bool> counting = false;
std::atomic<long> requests = 0, failing_one = -1;

void count() {
  if (counting && requests++ == failing_one) throw std::bad_alloc();
}

void* allocate(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) {
  count();
  void* memory = std::aligned_alloc(alignment, (size / alignment + 1) * alignment);
  return memory != nullptr ? memory : throw std::bad_alloc();
}

[[gnu::noinline]] void release(void* memory) { std::free(memory); }

}  // namespace

void assertion_failed(const char* condition) {
  if (std::strstr(condition, "is_malloc_allowed") == nullptr) std::abort();
  count();
}

namespace sympow::test {

void count_requests(long failing) {
  requests = 0;
  failing_one = failing;
  Eigen::internal::set_is_malloc_allowed(false);
  counting = true;
}

long requests_counted() {
  counting = false;
  Eigen::internal::set_is_malloc_allowed(true);
  return requests;
}

}  // namespace sympow::test

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return allocate(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t size, const std::nothrow_t& nothrow) noexcept { return operator new(size, nothrow); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
