// Whether two arrays share memory: what is written stands apart from all else.
#pragma once

#include <sympow/c/arrays.hpp>

namespace SYMPOW_NAMESPACE::c {

/// Throws `InvalidArgument` where two entries of an output may be one: the stride of every dimension must reach beyond
/// all dimensions of smaller ones.
inline void check_entries_apart(const Array& array) {
  if (array.empty()) return;
  for (std::size_t n = 0; n < array.dimensions; ++n) {
    Index reach = 0;
    for (std::size_t m = 0; m < array.dimensions; ++m)
      if (array.strides[m] < array.strides[n] || (array.strides[m] == array.strides[n] && m < n))
        reach += (array.shape[m] - 1) * array.strides[m];
    if (array.shape[n] > 1 && array.strides[n] <= reach)
      detail::raise<InvalidArgument>(array.name, ": strides[", n, "] is ", array.strides[n],
                                     ", with which entries of an output share memory");
  }
}

/// An array as pieces of some bytes that are repeated every `period` bytes: the bytes of a piece, or -1 where its
/// strides do not fit.
inline Index piece_of(const Array& array, Index period) {
  Index last = 0;
  for (std::size_t n = 0; n < array.dimensions; ++n) {
    const Index stride = array.strides[n] * bytes_of(array.element);
    if (array.shape[n] == 1 || stride % period == 0) continue;
    if (stride > period) return -1;
    last += (array.shape[n] - 1) * stride;
  }
  return last + bytes_of(array.element) <= period ? last + bytes_of(array.element) : -1;
}

/// Whether two arrays share no byte: one ends before the other begins, or both consist of pieces, such as tokens, that
/// stand side by side in the period of a stride. What cannot be told so counts as shared.
inline bool are_apart(const Array& a, const Array& b) {
  if (a.empty() || b.empty() || a.data + a.span() <= b.data || b.data + b.span() <= a.data) return true;
  for (const Array* x : {&a, &b})
    for (std::size_t n = 0; n < x->dimensions; ++n) {
      const Index period = x->shape[n] > 1 ? x->strides[n] * bytes_of(x->element) : 0;
      if (period == 0) continue;
      const Index of_a = piece_of(a, period), of_b = piece_of(b, period);
      const Index from_a = ((b.data - a.data) % period + period) % period;
      if (of_a > 0 && of_b > 0 && from_a >= of_a && period - from_a >= of_b) return true;
    }
  return false;
}

/// Throws `InvalidArgument` unless each output is apart from all inputs and the other outputs, and its entries from
/// each other. Null: an array that is not there.
inline void check_outputs(std::initializer_list<const Array*> outputs, std::initializer_list<const Array*> inputs) {
  const auto check = [](const Array& a, const Array& b) {
    if (!are_apart(a, b)) detail::raise<InvalidArgument>(a.name, " and ", b.name, " share memory");
  };
  for (auto a = outputs.begin(); a != outputs.end(); ++a) {
    if (*a == nullptr) continue;
    check_entries_apart(**a);
    for (const Array* input : inputs)
      if (input != nullptr) check(**a, *input);
    for (auto b = outputs.begin(); b != a; ++b)
      if (*b != nullptr) check(**a, **b);
  }
}

}  // namespace SYMPOW_NAMESPACE::c
