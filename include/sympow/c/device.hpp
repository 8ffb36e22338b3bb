// Calls with arrays on a GPU. They are compiled where sympow::cuda is, in cuda/c.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>

#include <sympow/c/inputs.hpp>

struct sympow_workspace;
struct sympow_states;
struct sympow_state_gradients;

namespace SYMPOW_NAMESPACE::c {

/// The types of queries, keys and values there.
inline constexpr std::array device_numbers = {Element::float16, Element::bfloat16, Element::float32};

/// Memory of the caller on a device.
struct DeviceMemory {
  Array bytes;
  sympow_device device;
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(bytes.span()); }
};

/// A tensor as memory: contiguous, aligned to 256 bytes. Throws `InvalidArgument`.
inline DeviceMemory device_memory_in(const sympow_tensor* tensor, const char* name) {
  constexpr std::array all = {Element::uint8, Element::float32, Element::float64, Element::int32,
                              Element::int64, Element::float16, Element::bfloat16};
  check_pointer(tensor, name);
  const Array array = array_of(tensor, name, 1, "entries", all, tensor->device);
  if (array.shape[0] > 1 && array.strides[0] != 1)
    detail::raise<InvalidArgument>(name, ": strides[0] is ", array.strides[0], ", must be 1");
  if (reinterpret_cast<std::uintptr_t>(array.data) % 256 != 0)
    detail::raise<InvalidArgument>(name, ": data are not aligned to 256 bytes");
  return {array, tensor->device};
}

/// Whether the arrays of a call, which may have no queries, are for a GPU that this library serves.
inline bool are_on_device(const sympow_inputs* inputs) {
  if (!has_cuda) return false;
  const sympow_inputs given = read_struct(inputs, "inputs", sympow_inputs SYMPOW_INPUTS_INIT);
  const sympow_tensor* const some = given.queries != nullptr ? given.queries : given.keys;
  return some != nullptr && some->device.type == SYMPOW_CUDA;
}

/// The sizes of states on a device.
struct DeviceShape {
  sympow_device device;
  Element element;
  int power;
  Index batch, heads, key_heads, d, e;
  int capacity;  ///< of tails
  friend bool operator==(const DeviceShape& a, const DeviceShape& b) {
    const auto sizes = [](const DeviceShape& x) {
      return std::tuple(x.device.id, x.element, x.power, x.batch, x.heads, x.key_heads, x.d, x.e);
    };
    return sizes(a) == sizes(b);
  }
};

/// Tokens that tails have room for.
inline int capacity_of(const Settings& settings) {
  constexpr Index most = 128;
  if (settings.tail > most)
    detail::raise<InvalidArgument>("options->tail is ", settings.tail, ", must be at most ", most, " on a device");
  return settings.tail > most / 2 ? 128 : 64;
}

/// Gradients in states on a device: arrays of the caller, those of S, Z and, if wanted, of μ.
struct DeviceStateGradients {
  DeviceShape shape;
  Array sums, normaliser;
  std::optional<Array> angles;
};

/// States on a device: see cuda/c/states.hpp.
class DeviceStates {
 public:
  explicit DeviceStates(const DeviceShape& shape) : shape_(shape) {}
  virtual ~DeviceStates() = default;
  [[nodiscard]] const DeviceShape& shape() const { return shape_; }
  /// Nothing is on a stream before the next call.
  virtual void clear() noexcept = 0;
  [[nodiscard]] virtual Index tokens(Index sequence) const = 0;

 private:
  DeviceShape shape_;
};

// What the functions of sympow.h do there, arguments read and checked.
std::size_t device_workspace_bytes(const Settings& settings, const sympow_inputs* inputs, std::int32_t call);
void attend_on_device(const Settings& settings, const sympow_inputs* inputs, const sympow_states* states,
                      const sympow_tensor* rows, const sympow_workspace* workspace, void* stream);
/// `slots` null: sequences have the states in order.
void decode_on_device(const Settings& settings, const sympow_inputs* inputs, const sympow_states* states,
                      const sympow_slots* slots, const sympow_tensor* rows, const sympow_workspace* workspace,
                      void* stream);
void drop_tokens(const sympow_states& states, const sympow_tensor* tokens, const sympow_slots* slots, void* stream);
void copy_slots(const sympow_states& states, const sympow_slots* slots, const sympow_states& from,
                const sympow_slots* from_slots, void* stream);
void attend_vjp_on_device(const Settings& settings, const sympow_inputs* inputs, const sympow_tensor* d_rows,
                          const sympow_states* states, const sympow_state_gradients* state_gradients,
                          const sympow_gradients* gradients, const sympow_workspace* workspace, void* stream);
std::size_t device_state_bytes(const DeviceShape& shape);
std::unique_ptr<DeviceStates> states_on_device(const DeviceShape& shape, const sympow_tensor* memory);
std::unique_ptr<DeviceStateGradients> state_gradients_on_device(const DeviceStates& like, const sympow_tensor* sums,
                                                                const sympow_tensor* normaliser,
                                                                const sympow_tensor* angles);
void states_of_arrays(const sympow_states& states, const sympow_tensor* sums, const sympow_tensor* normaliser,
                      const sympow_tensor* angles, void* stream);
void states_to_arrays(const sympow_states& states, const sympow_tensor* sums, const sympow_tensor* normaliser,
                      const sympow_tensor* angles, const sympow_workspace* workspace, void* stream);
void move_states(const sympow_states& from, const sympow_states& to, const std::optional<Array>& tokens,
                 const sympow_workspace* workspace, void* stream);

}  // namespace SYMPOW_NAMESPACE::c
