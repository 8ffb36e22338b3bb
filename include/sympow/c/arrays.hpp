// Arrays of a caller, checked: their memory is there, its entries can be read, and those of outputs are apart.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <sympow/c/status.hpp>
#include <sympow/c/structs.hpp>
#include <sympow/core/heads.hpp>

namespace SYMPOW_NAMESPACE::c {

/// The types of entries.
enum class Element { float32, float64, int32, int64, float16, bfloat16, uint8 };

/// Their names, and how DLPack says them.
struct ElementType {
  const char* name;
  std::uint8_t code, bits;
};
inline constexpr std::array element_types = {
    ElementType{"float32", SYMPOW_FLOAT, 32}, ElementType{"float64", SYMPOW_FLOAT, 64},
    ElementType{"int32", SYMPOW_INT, 32},     ElementType{"int64", SYMPOW_INT, 64},
    ElementType{"float16", SYMPOW_FLOAT, 16}, ElementType{"bfloat16", SYMPOW_BFLOAT, 16},
    ElementType{"uint8", SYMPOW_UINT, 8}};
constexpr const ElementType& type_of(Element x) { return element_types[static_cast<std::size_t>(x)]; }
inline const char* name_of(Element x) { return type_of(x).name; }
constexpr Index bytes_of(Element x) { return type_of(x).bits / 8; }

/// An array: entry (i, j, …) lies i strides[0] + j strides[1] + … entries behind `data`.
struct Array {
  static constexpr std::size_t most = 4;  ///< dimensions

  std::string name = {};
  std::byte* data = nullptr;
  Element element = Element::float32;
  std::size_t dimensions = 0;
  std::array<Index, most> shape = {}, strides = {};

  [[nodiscard]] bool empty() const {
    return std::find(shape.begin(), shape.begin() + rank(), 0) != shape.begin() + rank();
  }
  /// Bytes from the first entry to behind the last one.
  [[nodiscard]] Index span() const {
    Index last = 0;
    for (std::size_t n = 0; n < dimensions; ++n) last += (shape[n] - 1) * strides[n];
    return empty() ? 0 : (last + 1) * bytes_of(element);
  }
  [[nodiscard]] std::byte* at(std::initializer_list<Index> position) const {
    Index entry = 0;
    std::size_t n = 0;
    for (const Index i : position) entry += i * strides[n++];
    return data + entry * bytes_of(element);
  }
  /// An entry of either floating type.
  [[nodiscard]] double number(std::initializer_list<Index> position) const {
    const std::byte* const x = at(position);
    return element == Element::float32 ? static_cast<double>(*reinterpret_cast<const float*>(x))
                                       : *reinterpret_cast<const double*>(x);
  }
  void set(std::initializer_list<Index> position, double x) const {
    if (element == Element::float32)
      *reinterpret_cast<float*>(at(position)) = static_cast<float>(x);
    else
      *reinterpret_cast<double*>(at(position)) = x;
  }

 private:
  [[nodiscard]] std::ptrdiff_t rank() const { return static_cast<std::ptrdiff_t>(dimensions); }
};

/// "float32 or float64".
inline std::string names_of(std::span<const Element> elements) {
  std::string names;
  for (const Element x : elements) names += (names.empty() ? "" : " or ") + std::string(name_of(x));
  return names;
}

/// Whether this library serves arrays on a GPU.
#ifdef SYMPOW_C_CUDA
inline constexpr bool has_cuda = true;
#else
inline constexpr bool has_cuda = false;
#endif

inline constexpr sympow_device cpu = {SYMPOW_CPU, 0};

/// Throws `InvalidArgument`, `NotBuilt` unless a device is the one of a call. A CPU has no number.
inline void check_device(const std::string& name, const sympow_device& device, const sympow_device& needed = cpu) {
  if (device.type != SYMPOW_CPU && device.type != SYMPOW_CUDA)
    detail::raise<InvalidArgument>(name, ": the device has the type ", device.type, ", must be ", int{SYMPOW_CPU},
                                   has_cuda ? ", a CPU, or 2, CUDA" : ", a CPU");
  if (device.type == SYMPOW_CUDA && !has_cuda)
    detail::raise<NotBuilt>(name, " is on a CUDA device, and this library is of a CPU");
  if (device.type == needed.type && (device.id == needed.id || needed.type == SYMPOW_CPU)) return;
  const auto text = [](const sympow_device& x) {
    return x.type == SYMPOW_CPU ? std::string("a CPU") : "CUDA device " + std::to_string(x.id);
  };
  detail::raise<InvalidArgument>(name, " is on ", text(device), ", must be on ", text(needed));
}

/// The type of entries, if it is one of these.
inline Element element_in(const std::string& name, const sympow_dtype& type, std::span<const Element> allowed) {
  for (const Element x : allowed)
    if (type.code == type_of(x).code && type.bits == type_of(x).bits && type.lanes == 1) return x;
  detail::raise<InvalidArgument>(name, ": the type has code ", int{type.code}, ", ", int{type.bits}, " bits and ",
                                 int{type.lanes}, " lanes, must be ", names_of(allowed));
}

inline constexpr std::array floating = {Element::float32, Element::float64};
inline constexpr std::array integral = {Element::int32, Element::int64};

/// Where the arrays of a call are, and the types that it reads there.
struct Place {
  sympow_device device = cpu;
  std::span<const Element> numbers = floating;  ///< of queries, keys, values and rows
  std::span<const Element> gates = floating;    ///< of log gates and β
  std::span<const Element> rates = floating;
  std::span<const Element> lengths = integral;
};

/// A tensor of so many dimensions, whose axes have these names: "B, T, H, d". Throws `InvalidArgument`, `NotBuilt`,
/// `ShapeMismatch`, `DimensionOverflow`.
inline Array array_of(const sympow_tensor* tensor, const std::string& name, std::size_t dimensions, const char* axes,
                      std::span<const Element> allowed = floating, const sympow_device& device = cpu) {
  check_pointer(tensor, name.c_str());
  check_device(name, tensor->device, device);
  Array array{name, nullptr, element_in(name, tensor->dtype, allowed), dimensions};
  if (tensor->ndim < 0 || static_cast<std::size_t>(tensor->ndim) != dimensions)
    detail::raise<ShapeMismatch>(name, ": ndim is ", tensor->ndim, ", must be ", dimensions, " of [", axes, "]");
  if (dimensions > 0) check_pointer(tensor->shape, (name + ": shape").c_str());
  if (tensor->strides != nullptr) check_pointer(tensor->strides, (name + ": strides").c_str());

  Index bytes = bytes_of(array.element);
  for (std::size_t n = dimensions; n-- > 0;) {
    const std::int64_t size = tensor->shape[n];
    if (size < 0) detail::raise<ShapeMismatch>(name, ": shape[", n, "] is ", size, ", must not be negative");
    array.shape[n] = static_cast<Index>(size);
    array.strides[n] = bytes / bytes_of(array.element);
    if (!std::in_range<Index>(size) || __builtin_mul_overflow(bytes, std::max<Index>(array.shape[n], 1), &bytes))
      detail::raise<DimensionOverflow>(name, ": shape makes more bytes than fit the index type");
  }
  if (array.empty()) return array;
  Index last = 0;
  for (std::size_t n = 0; n < dimensions; ++n) {
    if (tensor->strides != nullptr && array.shape[n] > 1) {
      const std::int64_t stride = tensor->strides[n];
      if (stride < 0) detail::raise<InvalidArgument>(name, ": strides[", n, "] is ", stride, ", must not be negative");
      array.strides[n] = static_cast<Index>(stride);
    }
    Index to_end = 0;
    if (__builtin_mul_overflow(array.shape[n] - 1, array.strides[n], &to_end) ||
        __builtin_add_overflow(last, to_end, &last) || __builtin_add_overflow(last, Index(1), &bytes) ||
        __builtin_mul_overflow(bytes, bytes_of(array.element), &bytes))
      detail::raise<DimensionOverflow>(name, ": strides[", n, "] is ", array.strides[n],
                                       ", which makes more bytes than fit the index type");
  }
  if (tensor->data == nullptr) detail::raise<InvalidArgument>(name, ": data is null");
  const auto base = reinterpret_cast<std::uintptr_t>(tensor->data);
  std::uintptr_t first = 0, end = 0;
  if (!std::in_range<std::uintptr_t>(tensor->byte_offset) ||
      __builtin_add_overflow(base, static_cast<std::uintptr_t>(tensor->byte_offset), &first) ||
      __builtin_add_overflow(first, static_cast<std::uintptr_t>(bytes), &end))
    detail::raise<DimensionOverflow>(name, ": byte_offset is ", tensor->byte_offset, ", which leaves the memory");
  if (first % static_cast<std::uintptr_t>(bytes_of(array.element)) != 0)
    detail::raise<InvalidArgument>(name, ": data are not aligned to ", bytes_of(array.element), " bytes");
  array.data = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  return array;
}

/// Throws `ShapeMismatch` unless an axis has the size that another array says.
inline void check_axis(const Array& array, std::size_t axis, Index size, const char* why) {
  detail::check_size(array.name + ": shape[" + std::to_string(axis) + "]", array.shape[axis], size, why);
}

/// Throws `InvalidArgument` unless the type is that of another array.
inline void check_element(const Array& array, Element element, const char* whose) {
  if (array.element != element)
    detail::raise<InvalidArgument>(array.name, " is of ", name_of(array.element), ", must be of ", name_of(element),
                                   " (that of ", whose, ")");
}

/// [B, T, H, D] whose tokens are contiguous and apart. Throws `InvalidArgument`.
inline Array heads_in(const sympow_tensor* tensor, const std::string& name, const char* axes, const Place& place) {
  Array array = array_of(tensor, name, 4, axes, place.numbers, place.device);
  if (array.empty()) return array;
  if (array.shape[3] > 1 && array.strides[3] != 1)
    detail::raise<InvalidArgument>(name, ": strides[3] is ", array.strides[3], ", must be 1");
  if (array.shape[1] > 1 && array.strides[1] < array.shape[3])
    detail::raise<InvalidArgument>(name, ": strides[1] is ", array.strides[1], ", must be at least ", array.shape[3],
                                   ", the numbers of a token");
  return array;
}

/// Its heads, of which T_b tokens of each sequence count.
template <class S>
Heads<S> heads_of(const Array& x, std::span<const Index> lengths) {
  return Heads<S>::strided(reinterpret_cast<S*>(x.data), x.shape[0], x.shape[1], x.shape[2], x.shape[3],
                           {x.strides[0], x.strides[1], x.strides[2]}, lengths);
}

/// f(x) for the e × D numbers x of sequence b and head h in [B, Hs, D, e], of the array's own type.
template <class S>
void with_matrix(const Array& array, Index b, Index h, const auto& f) {
  if (array.empty()) return;
  const auto view = [&](auto stride) {
    f(Eigen::Map<Matrix<S>, 0, decltype(stride)>(reinterpret_cast<S*>(array.at({b, h})), array.shape[3], array.shape[2],
                                                 stride));
  };
  if (array.strides[3] == 1)  // one column after the other, by packets
    view(Eigen::OuterStride<>(array.strides[2]));
  else
    view(Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(array.strides[2], array.strides[3]));
}

/// f(x) for the D numbers x of sequence b and head h in [B, Hs, D], of the array's own type.
template <class S>
void with_vector(const Array& array, Index b, Index h, const auto& f) {
  if (array.empty()) return;
  f(Eigen::Map<Vector<S>, 0, Eigen::InnerStride<>>(reinterpret_cast<S*>(array.at({b, h})), array.shape[2],
                                                   Eigen::InnerStride<>(array.strides[2])));
}

}  // namespace SYMPOW_NAMESPACE::c
