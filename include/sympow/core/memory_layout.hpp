// Where the entries of an array lie in memory, and whether what a call writes is apart from all else.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include <sympow/core/checks.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Entry (i, j, …) begins i strides[0] + j strides[1] + … bytes behind `data`. Strides are not negative; that of a
/// dimension of size 1 does not matter.
struct MemoryLayout {
  static constexpr std::size_t max_dimensions = 4;

  const std::byte* data = nullptr;
  Index entry_bytes = 1;
  std::size_t dimensions = 0;
  std::array<Index, max_dimensions> shape = {}, strides = {};

  [[nodiscard]] bool empty() const { return std::find(shape.data(), shape.data() + dimensions, 0) != end_of_shape(); }
  /// Bytes from the first entry to behind the last one.
  [[nodiscard]] Index span() const {
    if (empty()) return 0;
    Index last = 0;
    for (std::size_t n = 0; n < dimensions; ++n) last += (shape[n] - 1) * strides[n];
    return last + entry_bytes;
  }

 private:
  [[nodiscard]] const Index* end_of_shape() const { return shape.data() + dimensions; }
};

/// The layout of a matrix of Eigen's in column order.
template <class X>
[[nodiscard]] MemoryLayout layout_of(const X& x) {
  constexpr Index bytes = sizeof(typename X::Scalar);
  return {
      reinterpret_cast<const std::byte*>(x.data()), bytes, 2, {x.rows(), x.cols()}, {bytes, x.outerStride() * bytes}};
}

/// An array as blocks of bytes that repeat every `period` bytes: the bytes of a block, or -1 if its strides do not fit.
inline Index block_bytes(const MemoryLayout& x, Index period) {
  Index bytes = x.entry_bytes;
  for (std::size_t n = 0; n < x.dimensions; ++n) {
    if (x.shape[n] == 1 || x.strides[n] % period == 0) continue;
    if (x.strides[n] > period) return -1;
    bytes += (x.shape[n] - 1) * x.strides[n];
  }
  return bytes <= period ? bytes : -1;
}

/// Whether two arrays share no byte: one ends before the other begins, or both consist of blocks, such as tokens, that
/// lie side by side in the period of a stride. Arrays of which this cannot be shown count as sharing.
[[nodiscard]] inline bool are_apart(const MemoryLayout& a, const MemoryLayout& b) {
  if (a.empty() || b.empty() || a.data + a.span() <= b.data || b.data + b.span() <= a.data) return true;
  for (const MemoryLayout* x : {&a, &b})
    for (std::size_t n = 0; n < x->dimensions; ++n) {
      const Index period = x->shape[n] > 1 ? x->strides[n] : 0;
      if (period == 0) continue;
      const Index of_a = block_bytes(a, period), of_b = block_bytes(b, period);
      const Index from_a = ((b.data - a.data) % period + period) % period;
      if (of_a > 0 && of_b > 0 && from_a >= of_a && period - from_a >= of_b) return true;
    }
  return false;
}

/// Throws `InvalidArgument` if two entries of an output may be one: the stride of every dimension must reach beyond all
/// dimensions of smaller strides.
inline void check_entries_apart(std::string_view name, const MemoryLayout& x) {
  if (x.empty()) return;
  for (std::size_t n = 0; n < x.dimensions; ++n) {
    Index reach = 0;
    for (std::size_t m = 0; m < x.dimensions; ++m)
      if (x.strides[m] < x.strides[n] || (x.strides[m] == x.strides[n] && m < n))
        reach += (x.shape[m] - 1) * x.strides[m];
    if (x.shape[n] > 1 && x.strides[n] <= reach)
      raise<InvalidArgument>(name, ": strides[", n, "] is ", x.strides[n] / x.entry_bytes,
                             ", with which entries of an output share memory");
  }
}

/// An array of a call by its name in messages.
struct NamedLayout {
  std::string_view name;
  MemoryLayout layout;
};

/// Throws `InvalidArgument` unless the entries of each output are apart from each other, from all inputs and from the
/// other outputs.
inline void check_outputs(std::span<const NamedLayout> outputs, std::span<const NamedLayout> inputs) {
  const auto check = [](const NamedLayout& a, const NamedLayout& b) {
    if (!are_apart(a.layout, b.layout)) raise<InvalidArgument>(a.name, " and ", b.name, " share memory");
  };
  for (auto a = outputs.begin(); a != outputs.end(); ++a) {
    check_entries_apart(a->name, a->layout);
    for (const NamedLayout& input : inputs) check(*a, input);
    for (auto b = outputs.begin(); b != a; ++b) check(*a, *b);
  }
}
inline void check_outputs(std::initializer_list<NamedLayout> outputs, std::initializer_list<NamedLayout> inputs) {
  check_outputs(std::span<const NamedLayout>(outputs.begin(), outputs.size()),
                std::span<const NamedLayout>(inputs.begin(), inputs.size()));
}

/// Throws `InvalidArgument` if one object of a range, which a call changes, stands in two places of it. The addresses
/// of a container's elements rise; those of other ranges are sorted.
template <class Range>
void check_distinct(const char* name, const Range& range) {
  const auto at = [&](Index n) -> const void* { return std::addressof(*range[n]); };
  const Index count = range.size();
  const std::less<const void*> before;
  Index rising = 1;
  while (rising < count && before(at(rising - 1), at(rising))) ++rising;
  if (rising >= count) return;
  std::vector<Index> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](Index i, Index j) { return before(at(i), at(j)) || (at(i) == at(j) && i < j); });
  const auto twice = std::adjacent_find(order.begin(), order.end(), [&](Index i, Index j) { return at(i) == at(j); });
  if (twice != order.end())
    raise<InvalidArgument>(name, ": number ", twice[1], " is the same object as number ", twice[0],
                           ", must be another one");
}

}  // namespace SYMPOW_NAMESPACE::detail
