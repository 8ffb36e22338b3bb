// Steps over many items by windows of these, on several threads.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include <sympow/core/parallel.hpp>
#include <sympow/core/visitor.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// How a step takes the items of a window: `any`, a job per item; else one job for all of them, in rising or falling
/// order.
enum class StepOrder { any, rising, falling };
template <class Scratch>
struct WindowStep {
  StepOrder order;
  Visitor<Index, Scratch&> run;
};

/// Items go through the steps by windows, from the first or from the last. In a round each step takes the window that
/// the step before has finished, so jobs of a round are independent, and few items are in use at a time. Results do not
/// depend on the number of threads.
template <class Scratch>
void run_by_windows(Index items, Index window, bool from_last, std::initializer_list<WindowStep<Scratch>> steps,
                    const Threads& threads, std::vector<Scratch>& scratch) {
  struct Job {
    const WindowStep<Scratch>* step;
    Index begin, end;
  };
  const Index windows = (items + window - 1) / window, count = std::ssize(steps);
  std::vector<Job> jobs;
  for (Index round = 0; round < windows + count - 1; ++round) {
    jobs.clear();
    for (const bool is_chain : {true, false})  // the longest first
      for (Index k = count; k-- > 0;) {
        const WindowStep<Scratch>* const step = steps.begin() + k;
        const Index nth = round - k, begin = (from_last ? windows - 1 - nth : nth) * window,
                    end = std::min(begin + window, items);
        if (nth < 0 || nth >= windows || (step->order != StepOrder::any) != is_chain) continue;
        if (is_chain) jobs.push_back({step, begin, end});
        for (Index i = begin; !is_chain && i < end; ++i) jobs.push_back({step, i, i + 1});
      }
    parallel_for(std::ssize(jobs), threads, scratch, [&](Index n, Scratch& work) {
      const auto& [step, begin, end] = jobs[static_cast<std::size_t>(n)];
      for (Index i = begin; i < end; ++i) step->run(step->order == StepOrder::falling ? begin + end - 1 - i : i, work);
    });
  }
}

/// As many of a list's items as are in use at a time.
template <class T>
struct Ring {
  std::vector<T> items;

  Ring() = default;
  explicit Ring(Index count, const T& x = {}) : items(static_cast<std::size_t>(count), x) {}
  T& operator[](Index n) { return items[static_cast<std::size_t>(n) % items.size()]; }
};

}  // namespace SYMPOW_NAMESPACE::detail
