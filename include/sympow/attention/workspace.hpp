// The scratch memory of the forms.
#pragma once

#include <vector>

#include <sympow/detail/forward.hpp>

namespace SYMPOW_NAMESPACE {

template <class Scalar>
class Workspace;

namespace detail {
/// The buffers behind `Workspace`; only the passes know them.
template <class Scalar>
ForwardBuffers<Scalar>& memory_of(Workspace<Scalar>& workspace) {
  return workspace.memory_;
}
}  // namespace detail

/// Scratch of one call at a time; keep it to reuse its memory. It holds nothing that outlives a call: any form, feature
/// map and shape may use the same one in turn. Once it has seen the largest call, calls allocate nothing.
template <class Scalar>
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = default;
  Workspace(Workspace&&) = default;
  Workspace& operator=(Workspace&&) = default;
  /// As big as another one, or as it was where memory ends.
  Workspace& operator=(const Workspace& other) { return *this = Workspace(other); }
  ~Workspace() = default;

 private:
  friend detail::ForwardBuffers<Scalar>& detail::memory_of<Scalar>(Workspace<Scalar>& workspace);

  detail::ForwardBuffers<Scalar> memory_;
};

/// One workspace for every thread, grown by the calls that use it; keep it to reuse its memory.
template <class Scalar>
using Workspaces = std::vector<Workspace<Scalar>>;

}  // namespace SYMPOW_NAMESPACE
