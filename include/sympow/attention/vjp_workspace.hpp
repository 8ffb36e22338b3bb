// The scratch memory of gradients.
#pragma once

#include <sympow/attention/workspace.hpp>
#include <sympow/detail/backward.hpp>

namespace SYMPOW_NAMESPACE {

template <class Scalar>
class VjpWorkspace;

namespace detail {
template <class Scalar>
BackwardBuffers<Scalar>& backward_buffers_of(VjpWorkspace<Scalar>& workspace) {
  return workspace.memory_;
}
}  // namespace detail

/// Scratch of one call at a time, as `Workspace` is for forms, which it is as well.
template <class Scalar>
class VjpWorkspace : public Workspace<Scalar> {
  friend detail::BackwardBuffers<Scalar>& detail::backward_buffers_of<Scalar>(VjpWorkspace<Scalar>& workspace);

  detail::BackwardBuffers<Scalar> memory_;
};

/// One for every thread, grown by the calls that use it.
template <class Scalar>
using VjpWorkspaces = std::vector<VjpWorkspace<Scalar>>;

}  // namespace SYMPOW_NAMESPACE
