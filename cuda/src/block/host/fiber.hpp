// A function with a stack of its own, which can be left in the middle and entered again.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>

#if defined(__SANITIZE_ADDRESS__)
#define SYMPOW_FIBERS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SYMPOW_FIBERS_SANITIZED 1
#endif
#endif
#if defined(SYMPOW_FIBERS_SANITIZED)
#include <sanitizer/common_interface_defs.h>
#endif

namespace sympow::cuda::block::host {

/// A fiber of one thread. `body` must not throw.
class Fiber {
  static constexpr std::size_t stack_bytes = std::size_t{1} << 19;

 public:
  using Body = void (*)(void*);
  Fiber(Body body, void* argument)
      : body_(body), argument_(argument), stack_(std::make_unique_for_overwrite<char[]>(stack_bytes)) {
    getcontext(&inside_);
    inside_.uc_stack.ss_sp = stack_.get();
    inside_.uc_stack.ss_size = stack_bytes;
    inside_.uc_link = nullptr;
    makecontext(&inside_, &Fiber::start, 0);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the body until it pauses or ends; to be called from outside.
  void resume() {
    starting() = this;
    announce(stack_.get(), stack_bytes, &outside_shadow_);
    swapcontext(&outside_, &inside_);
    arrive(outside_shadow_);
  }
  /// Leaves the body; to be called from inside.
  void pause() {
    announce(outside_stack_, outside_bytes_, &inside_shadow_);
    swapcontext(&inside_, &outside_);
    arrive(inside_shadow_, &outside_stack_, &outside_bytes_);
  }

 private:
  static Fiber*& starting() {
    static thread_local Fiber* fiber = nullptr;
    return fiber;
  }
  static void start() {
    Fiber& self = *starting();
    arrive(nullptr, &self.outside_stack_, &self.outside_bytes_);
    self.body_(self.argument_);
    announce(self.outside_stack_, self.outside_bytes_, nullptr);
    setcontext(&self.outside_);
  }

  // AddressSanitizer wants to be told of another stack before and after.
#if defined(SYMPOW_FIBERS_SANITIZED)
  static void announce(const void* stack, std::size_t bytes, void** shadow) {
    __sanitizer_start_switch_fiber(shadow, stack, bytes);
  }
  static void arrive(void* shadow, const void** stack = nullptr, std::size_t* bytes = nullptr) {
    __sanitizer_finish_switch_fiber(shadow, stack, bytes);
  }
#else
  static void announce(const void*, std::size_t, void**) {}
  static void arrive(void*, const void** = nullptr, std::size_t* = nullptr) {}
#endif

  Body body_;
  void* argument_;
  std::unique_ptr<char[]> stack_;
  ucontext_t inside_{}, outside_{};
  const void* outside_stack_ = nullptr;
  std::size_t outside_bytes_ = 0;
  void *inside_shadow_ = nullptr, *outside_shadow_ = nullptr;
};

}  // namespace sympow::cuda::block::host
