// What the handles of sympow.h point to.
#pragma once

#include <utility>

#include <sympow/c/engine.hpp>

struct sympow_attention : sympow::c::Handle<sympow::c::Kind::attention> {
  explicit sympow_attention(const sympow::c::Recipe& of) : recipe(of) {}
  const sympow::c::Recipe recipe;
};
struct sympow_workspace : sympow::c::Handle<sympow::c::Kind::workspace> {
  sympow::c::Scratch scratch = {};
};
struct sympow_states : sympow::c::Handle<sympow::c::Kind::states> {
  explicit sympow_states(std::unique_ptr<sympow::c::States> of) : states(std::move(of)) {}
  const std::unique_ptr<sympow::c::States> states;
};
struct sympow_state_gradients : sympow::c::Handle<sympow::c::Kind::state_gradients> {
  explicit sympow_state_gradients(std::unique_ptr<sympow::c::StateGradients> of) : gradients(std::move(of)) {}
  const std::unique_ptr<sympow::c::StateGradients> gradients;
};

namespace SYMPOW_NAMESPACE::c {

/// A new handle in a place.
template <class H, class... Of>
void give(H** place, Of&&... of) {
  *place = new H(std::forward<Of>(of)...);
}

/// Ends a handle, unless it is null or not of its kind. The text of an error stays.
template <class H>
void destroy(H* handle) noexcept {
  if (handle != nullptr && kind_of(handle) == H::right) delete handle;
}

}  // namespace SYMPOW_NAMESPACE::c
