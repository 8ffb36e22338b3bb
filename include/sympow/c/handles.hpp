// What the handles of sympow.h point to.
#pragma once

#include <utility>

#include <sympow/c/device.hpp>
#include <sympow/c/engine.hpp>

struct sympow_attention : sympow::c::Handle<sympow::c::Kind::attention> {
  explicit sympow_attention(const sympow::c::Settings& of) : settings(of) {}
  const sympow::c::Settings settings;
};
struct sympow_workspace : sympow::c::Handle<sympow::c::Kind::workspace> {
  explicit sympow_workspace(std::optional<sympow::c::DeviceMemory> of) : memory(std::move(of)) {}
  sympow::c::Scratch scratch = {};
  const std::optional<sympow::c::DeviceMemory> memory;  ///< on a device, which has no other scratch
};
struct sympow_states : sympow::c::Handle<sympow::c::Kind::states> {
  explicit sympow_states(std::unique_ptr<sympow::c::States> of) : states(std::move(of)) {}
  explicit sympow_states(std::unique_ptr<sympow::c::DeviceStates> of) : on_device(std::move(of)) {}
  const std::unique_ptr<sympow::c::States> states;  ///< null on a device
  const std::unique_ptr<sympow::c::DeviceStates> on_device;
};
struct sympow_state_gradients : sympow::c::Handle<sympow::c::Kind::state_gradients> {
  explicit sympow_state_gradients(std::unique_ptr<sympow::c::StateGradients> of) : gradients(std::move(of)) {}
  explicit sympow_state_gradients(std::unique_ptr<sympow::c::DeviceStateGradients> of) : on_device(std::move(of)) {}
  const std::unique_ptr<sympow::c::StateGradients> gradients;  ///< null on a device
  const std::unique_ptr<sympow::c::DeviceStateGradients> on_device;
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
