#include "requests.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting = false;
std::atomic<long> requests = 0, failing_one = -1;

// Counts a request; whether it fails.
bool fails() { return counting && requests++ == failing_one; }

void* allocate(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) {
  void* memory = fails() ? nullptr : std::aligned_alloc(alignment, (size / alignment + 1) * alignment);
  return memory != nullptr ? memory : throw std::bad_alloc();
}

[[gnu::noinline]] void release(void* memory) { std::free(memory); }

}  // namespace

namespace sympow::test {

void count_requests(long failing) {
  requests = 0;
  failing_one = failing;
  counting = true;
}

long requests_counted() {
  counting = false;
  return requests;
}

}  // namespace sympow::test

// The linker has the program's own files, and the libraries in it, call these instead.
extern "C" {
void* __real_malloc(std::size_t size);
void* __real_realloc(void* memory, std::size_t size);
void* __wrap_malloc(std::size_t size) { return fails() ? nullptr : __real_malloc(size); }
void* __wrap_realloc(void* memory, std::size_t size) { return fails() ? nullptr : __real_realloc(memory, size); }
}

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
