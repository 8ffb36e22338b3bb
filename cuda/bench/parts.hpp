// The kernels of a call one by one: the call is captured as a graph, and events are put between its nodes.
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "timing.hpp"

namespace sympow::cuda::bench {

struct Part {
  std::string name;  ///< of the kernel, without namespaces
  double ms = 0;
};

using OwnedGraph = Owned<cudaGraph_t, cudaGraphDestroy>;
using OwnedGraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

/// What `call` puts on the stream, as a graph; null where the runtime cannot capture.
template <class Call>
OwnedGraph captured(cudaStream_t stream, const Call& call) {
  cudaGraph_t graph = nullptr;
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  try {
    call(0);
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, &graph));
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "a capture");
  return OwnedGraph(graph);
}

inline OwnedGraphExec executable(const OwnedGraph& graph) {
  cudaGraphExec_t exec;
  check(cudaGraphInstantiate(&exec, graph.get(), 0), "a graph");
  return OwnedGraphExec(exec);
}

/// Median milliseconds of a call as a graph, in a row of them; 0 where the runtime cannot capture.
template <class Call>
double time_graph(cudaStream_t stream, const Call& call) {
  const OwnedGraph graph = captured(stream, call);
  if (!graph) return 0;
  const OwnedGraphExec exec = executable(graph);
  return time_calls(stream, [&](int) { check(cudaGraphLaunch(exec.get(), stream), "a graph"); }, .1).median;
}

namespace detail {

/// What a node of a captured stream waits for: the node before it, or nothing.
inline cudaGraphNode_t node_before(cudaGraphNode_t node) {
  cudaGraphNode_t before[1] = {};
  std::size_t count = 1;
#if CUDART_VERSION >= 13000
  check(cudaGraphNodeGetDependencies(node, before, nullptr, &count), "a graph's edge");
#else
  check(cudaGraphNodeGetDependencies(node, before, &count), "a graph's edge");
#endif
  return count > 0 ? before[0] : nullptr;
}

inline std::vector<cudaGraphNode_t> nodes_in_order(const OwnedGraph& graph) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph.get(), nullptr, &count), "a graph's nodes");
  std::vector<cudaGraphNode_t> nodes(count), ordered;
  check(cudaGraphGetNodes(graph.get(), nodes.data(), &count), "a graph's nodes");
  for (cudaGraphNode_t last = nullptr; ordered.size() < nodes.size();) {
    const auto next = std::find_if(nodes.begin(), nodes.end(), [&](auto node) { return node_before(node) == last; });
    if (next == nodes.end()) throw std::runtime_error("a call is not one row of kernels");
    ordered.push_back(last = *next);
  }
  return ordered;
}

/// `void sympow::cuda::block::entry<sympow::cuda::Update<2, 64>>(…)` → `Update<2, 64>`
inline std::string kernel_name(const void* function) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, function) != cudaSuccess || !mangled) return "kernel";
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : mangled;
  std::free(demangled);
  if (const auto from = name.find("entry<"); from != std::string::npos) {
    std::size_t to = from + 6;
    for (int open = 1; to < name.size() && open > 0; ++to) open += (name[to] == '<') - (name[to] == '>');
    name = name.substr(from + 6, to - from - 7);
  }
  for (const char* space : {"sympow::cuda::", "block::", "library::", "(anonymous namespace)::"})
    for (auto at = name.find(space); at != std::string::npos; at = name.find(space)) name.erase(at, std::strlen(space));
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name;
}

}  // namespace detail

/// Median milliseconds of each kernel of a call, in their order. A part contains what lies between two kernels, about a
/// microsecond. Empty where the runtime cannot capture.
template <class Call>
std::vector<Part> time_parts(cudaStream_t stream, const Call& call, int turns = 21) {
  const OwnedGraph graph = captured(stream, call);
  if (!graph) return {};
  cudaGraph_t raw = nullptr;
  check(cudaGraphCreate(&raw, 0), "a graph");
  const OwnedGraph timed(raw);
  std::vector<Part> parts;
  std::vector<OwnedEvent> events;
  cudaGraphNode_t last = nullptr;
  const auto record = [&] {
    events.push_back(new_event());
    cudaGraphNode_t node;
    check(cudaGraphAddEventRecordNode(&node, raw, &last, last ? 1 : 0, events.back().get()), "an event's node");
    last = node;
  };
  record();
  for (const cudaGraphNode_t node : detail::nodes_in_order(graph)) {
    cudaKernelNodeParams kernel = {};
    if (cudaGraphKernelNodeGetParams(node, &kernel) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      throw std::runtime_error("a call holds more than kernels");
    }
    cudaGraphNode_t copy;
    check(cudaGraphAddKernelNode(&copy, raw, &last, 1, &kernel), "a kernel's node");
    last = copy;
    parts.push_back({detail::kernel_name(kernel.func), 0});
    record();
  }
  const OwnedGraphExec exec = executable(timed);
  std::vector<std::vector<double>> all(parts.size());
  for (int turn = -2; turn < turns; ++turn) {
    check(cudaGraphLaunch(exec.get(), stream), "a graph");
    check(cudaStreamSynchronize(stream), "a graph");
    for (std::size_t k = 0; turn >= 0 && k < parts.size(); ++k) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, events[k].get(), events[k + 1].get()), "a time");
      all[k].push_back(ms);
    }
  }
  for (std::size_t k = 0; k < parts.size(); ++k) {
    std::sort(all[k].begin(), all[k].end());
    parts[k].ms = all[k][all[k].size() / 2];
  }
  return parts;
}

}  // namespace sympow::cuda::bench
