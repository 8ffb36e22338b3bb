// States on a GPU and gradients in them as arrays of the caller.
#include <sympow/c/handles.hpp>

#include "call.hpp"
#include "states.hpp"

namespace SYMPOW_NAMESPACE::c {

namespace {

/// [B, Hs, …] of one type, dense and aligned to 16 bytes.
Array dense_in(const sympow_tensor* tensor, const char* name, const char* axes, std::initializer_list<Index> sizes,
               Element element, const sympow_device& device) {
  Array array = array_of(tensor, name, sizes.size(), axes, std::span(&element, 1), device);
  std::size_t n = 0;
  for (const Index size : sizes) check_axis(array, n++, size, "that of the states");
  Index stride = 1;
  for (n = sizes.size(); n-- > 0; stride *= array.shape[n])
    if (!array.empty() && array.shape[n] > 1 && array.strides[n] != stride)
      detail::raise<InvalidArgument>(name, ": strides[", n, "] is ", array.strides[n], ", must be ", stride,
                                     " on a device");
  if (reinterpret_cast<std::uintptr_t>(array.data) % 16 != 0)
    detail::raise<InvalidArgument>(name, ": data are not aligned to 16 bytes");
  return array;
}

struct Arrays {
  Array sums, normaliser;
  std::optional<Array> angles;

  Arrays(const DeviceShape& x, const sympow_tensor* given_sums, const sympow_tensor* given_normaliser,
         const sympow_tensor* given_angles)
      : sums(dense_in(given_sums, "sums", "B, Hs, D, e", {x.batch, x.heads, dimension(x), x.e}, Element::float32,
                      x.device)),
        normaliser(dense_in(given_normaliser, "normaliser", "B, Hs, D", {x.batch, x.heads, dimension(x)},
                            Element::float32, x.device)) {
    if (given_angles != nullptr)
      angles = dense_in(given_angles, "angles", "B, Hs, d/2", {x.batch, x.heads, x.d / 2}, Element::float64, x.device);
  }
  static Index dimension(const DeviceShape& x) { return cuda::monomials(x.power, size_of_cuda(x.d)); }
  [[nodiscard]] cuda::StateArrays data() const { return data_of(sums, normaliser, pointer_to(angles)); }
};

StatesOnDevice& on_device(const sympow_states& states) { return static_cast<StatesOnDevice&>(*states.on_device); }

}  // namespace

std::unique_ptr<DeviceStateGradients> state_gradients_on_device(const DeviceStates& like, const sympow_tensor* sums,
                                                                const sympow_tensor* normaliser,
                                                                const sympow_tensor* angles) {
  const Arrays arrays(like.shape(), sums, normaliser, angles);
  check_outputs({&arrays.sums, &arrays.normaliser, pointer_to(arrays.angles)}, {});
  return std::make_unique<DeviceStateGradients>(like.shape(), arrays.sums, arrays.normaliser, arrays.angles);
}

void states_of_arrays(const sympow_states& given, const sympow_tensor* sums, const sympow_tensor* normaliser,
                      const sympow_tensor* angles, void* stream) {
  StatesOnDevice& states = on_device(given);
  const Arrays arrays(states.shape(), sums, normaliser, angles);
  check_outputs({states.memory()}, {&arrays.sums, &arrays.normaliser, pointer_to(arrays.angles)});
  const CurrentDevice current(states.shape().device.id);
  states.guarded([&] { states.set(arrays.data(), static_cast<cuda::Stream>(stream)); });
}

void states_to_arrays(const sympow_states& given, const sympow_tensor* sums, const sympow_tensor* normaliser,
                      const sympow_tensor* angles, const sympow_workspace* workspace, void* given_stream) {
  StatesOnDevice& states = on_device(given);
  const auto stream = static_cast<cuda::Stream>(given_stream);
  states.check_whole();
  const Arrays arrays(states.shape(), sums, normaliser, angles);
  const DeviceMemory* const memory =
      states.has_tail() ? &workspace_in(workspace, states.fold_bytes(), states.shape().device) : nullptr;
  check_outputs({&arrays.sums, &arrays.normaliser, pointer_to(arrays.angles)},
                {states.memory(), memory == nullptr ? nullptr : &memory->bytes});
  const CurrentDevice current(states.shape().device.id);
  states.guarded([&] {
    if (states.is_empty()) states.clear(stream);
    if (memory != nullptr) states.fold(*memory, stream);
    states.get(arrays.data(), stream);
  });
}

}  // namespace SYMPOW_NAMESPACE::c
