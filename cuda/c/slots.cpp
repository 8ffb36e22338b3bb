// Tokens that leave tails, and states that go to other slots.
#include "slots.hpp"

#include <sympow/c/handles.hpp>

namespace SYMPOW_NAMESPACE::c {

namespace {

StatesOnDevice& on_device(const sympow_states& states) { return static_cast<StatesOnDevice&>(*states.on_device); }

Index size_of(const sympow_tensor* tensor, const char* name) {
  check_pointer(tensor, name);
  constexpr std::array integers = {Element::int32};
  return array_of(tensor, name, 1, "B", integers, tensor->device).shape[0];
}

}  // namespace

void drop_tokens(const sympow_states& given, const sympow_tensor* given_tokens, const sympow_slots* given_slots,
                 void* given_stream) {
  StatesOnDevice& states = on_device(given);
  states.check_whole();
  const DeviceShape& shape = states.shape();
  const Index batch = size_of(given_tokens, "tokens");
  const auto tokens = DeviceSlots::integers_in(given_tokens, "tokens", batch, shape.device);
  const DeviceSlots slots(given_slots, "slots", batch, shape);
  check_outputs({pointer_to(slots.faults), states.memory()}, {&*tokens, pointer_to(slots.indices)});
  const CurrentDevice current(shape.device.id);
  states.guarded([&] {
    const auto stream = static_cast<cuda::Stream>(given_stream);
    if (states.is_empty()) states.clear(stream);
    const cuda::Problem problem = states.sizes(batch);
    check(cuda::drop(problem, states.tail(problem), slots.slots, reinterpret_cast<const std::int32_t*>(tokens->data),
                     stream));
    states.uncount();
  });
}

void copy_slots(const sympow_states& given, const sympow_slots* given_slots, const sympow_states& given_from,
                const sympow_slots* given_from_slots, void* given_stream) {
  StatesOnDevice &states = on_device(given), &from = on_device(given_from);
  states.check_whole();
  from.check_whole();
  const DeviceShape& shape = states.shape();
  DeviceShape other = from.shape();
  other.batch = shape.batch;  // that may differ
  if (!(other == shape) || other.capacity != shape.capacity)
    detail::raise<ShapeMismatch>("from has other sizes, type, power, tail or device than states");
  const sympow_tensor* const indices = read_struct(given_slots, "slots", sympow_slots SYMPOW_SLOTS_INIT).indices;
  check_pointer(indices, "slots->indices");
  check_pointer(read_struct(given_from_slots, "from_slots", sympow_slots SYMPOW_SLOTS_INIT).indices,
                "from_slots->indices");
  const Index batch = size_of(indices, "slots->indices");
  const DeviceSlots slots(given_slots, "slots", batch, shape), from_slots(given_from_slots, "from_slots", batch, shape);
  check_outputs({pointer_to(slots.faults), states.memory()}, {pointer_to(slots.indices), pointer_to(from_slots.indices),
                                                              &from == &states ? nullptr : from.memory()});
  const CurrentDevice current(shape.device.id);
  const auto stream = static_cast<cuda::Stream>(given_stream);
  states.guarded([&] {
    if (states.is_empty()) states.clear(stream);
    if (from.is_empty()) from.clear(stream);
    cuda::Slots of_from = from_slots.slots;
    of_from.count = from.shape().batch;
    states.copy(slots.slots, from, of_from, batch, stream);
  });
}

}  // namespace SYMPOW_NAMESPACE::c
