// The slots of a call on a device.
#pragma once

#include <sympow/cuda/decode.hpp>

#include "call.hpp"
#include "states.hpp"

namespace SYMPOW_NAMESPACE::c {

/// Slots that were read.
struct DeviceSlots {
  std::optional<Array> indices, faults;
  cuda::Slots slots;

  /// `name`, null where none are given, for so many sequences of these states. Throws `InvalidArgument`,
  /// `ShapeMismatch`.
  DeviceSlots(const sympow_slots* given, const char* name, Index batch, const DeviceShape& shape)
      : slots{shape.batch, nullptr, nullptr} {
    const sympow_slots x =
        given == nullptr ? sympow_slots SYMPOW_SLOTS_INIT : read_struct(given, name, sympow_slots SYMPOW_SLOTS_INIT);
    indices = integers_in(x.indices, std::string(name) + "->indices", batch, shape.device);
    faults = integers_in(x.faults, std::string(name) + "->faults", batch, shape.device);
    if (!indices && batch != shape.batch)
      detail::raise<ShapeMismatch>("sequences of states: ", shape.batch, ", must be ", batch,
                                   " (sequences of the call), or ", name, "->indices must say which they are");
    if (batch > shape.batch)
      detail::raise<ShapeMismatch>("sequences of states: ", shape.batch, ", must be at least ", batch,
                                   " (sequences of the call)");
    if (indices) slots.indices = reinterpret_cast<const std::int32_t*>(indices->data);
    if (faults) slots.faults = reinterpret_cast<cuda::SlotFault*>(faults->data);
  }

  /// [B] of int32, contiguous; null: none.
  static std::optional<Array> integers_in(const sympow_tensor* tensor, const std::string& name, Index batch,
                                          const sympow_device& device) {
    if (tensor == nullptr) return std::nullopt;
    constexpr std::array integers = {Element::int32};
    Array array = array_of(tensor, name, 1, "B", integers, device);
    check_axis(array, 0, batch, "sequences of the call");
    check_dense(array);
    return array;
  }
};

}  // namespace SYMPOW_NAMESPACE::c
