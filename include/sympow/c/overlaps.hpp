// Whether two arrays share memory: what is written stands apart from all else.
#pragma once

#include <sympow/c/arrays.hpp>
#include <sympow/core/memory_layout.hpp>

namespace SYMPOW_NAMESPACE::c {

/// Where the entries of an array lie.
inline detail::MemoryLayout layout_of(const Array& x) {
  const Index bytes = bytes_of(x.element);
  detail::MemoryLayout layout{x.data, bytes, x.dimensions, x.shape};
  for (std::size_t n = 0; n < x.dimensions; ++n) layout.strides[n] = x.strides[n] * bytes;
  return layout;
}

/// Throws `InvalidArgument` unless each output is apart from all inputs and the other outputs, and its entries from
/// each other. Null: an array that is not there.
inline void check_outputs(std::initializer_list<const Array*> outputs, std::initializer_list<const Array*> inputs) {
  const auto named = [](std::initializer_list<const Array*> arrays) {
    std::vector<detail::NamedLayout> layouts;
    for (const Array* x : arrays)
      if (x != nullptr) layouts.push_back({x->name, layout_of(*x)});
    return layouts;
  };
  detail::check_outputs(named(outputs), named(inputs));
}

}  // namespace SYMPOW_NAMESPACE::c
