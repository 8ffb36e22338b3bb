// The scratch memory of gradients.
#pragma once

#include <sympow/attention/gradient/memory.hpp>
#include <sympow/attention/workspace.hpp>

namespace SYMPOW_NAMESPACE {

template <class Scalar>
class VjpWorkspace;

namespace detail {
template <class Scalar>
AdjointMemory<Scalar>& adjoint_memory_of(VjpWorkspace<Scalar>& workspace) {
  return workspace.memory_;
}
}  // namespace detail

/// Scratch of one call at a time, as `Workspace` is for forms, which it is as well.
template <class Scalar>
class VjpWorkspace : public Workspace<Scalar> {
  friend detail::AdjointMemory<Scalar>& detail::adjoint_memory_of<Scalar>(VjpWorkspace<Scalar>& workspace);

  detail::AdjointMemory<Scalar> memory_;
};

/// One for every thread, grown by the calls that use it.
template <class Scalar>
using VjpWorkspaces = std::vector<VjpWorkspace<Scalar>>;

}  // namespace SYMPOW_NAMESPACE
