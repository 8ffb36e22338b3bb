// Values times the scores of rows that see the keys up to their own.
#pragma once

#include <sympow/attention/keys.hpp>
#include <sympow/core/compensated_sums.hpp>
#include <sympow/core/row_panels.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// x with 0 for what is not finite.
template <class Scalar>
MatrixView<const Scalar> finite_part(MatrixView<const Scalar> x, Panel<Scalar>& copy) {
  auto finite = copy(x.rows(), x.cols());
  for (Index j = 0; j < x.cols(); ++j)
    for (Index r = 0; r < x.rows(); ++r) finite(r, j) = std::isfinite(x(r, j)) ? x(r, j) : Scalar(0);
  return finite;
}

/// Rows whose scores with a block of keys stay in the first cache, from logits to products; under a causal mask they
/// see the same number of keys, as far as products go.
inline constexpr Index row_group = 24;

/// Of the keys of a segment, how many row i takes part in products with: up to the last that a row of its group sees.
inline Index causal_end(Index i, Index rows, Index keys) {
  return std::min({(i / row_group + 1) * row_group, rows, keys});
}

/// Memory of key values: with zeros for what is not finite, and by panels.
template <class Scalar>
struct ValueMemory {
  Panel<Scalar> finite, packed;

  void reserve(Index value_rows, Index rows, Index keys) {
    if (rows >= columns_worth_packing) packed(value_rows * keys);
  }
};

/// Calls add(begin, count, V, W), for some rows at a time, with the values and the scores of all the keys that one of
/// them sees. Row i sees min(i + 1, keys) of the keys; its scores up to `causal_end` are 0 behind them.
///
/// A value that is not finite must not touch a row that does not see it, and 0 · NaN would: such entries stand as 0 in
/// a copy, and add_entry(i, r, x) adds each of them to the rows that see it.
template <class Scalar, class Add, class AddEntry>
void for_causal_products(const Keys<Scalar>& own, MatrixView<Scalar> scores, ValueMemory<Scalar>& memory,
                         const Add& add, const AddEntry& add_entry) {
  const Index keys = scores.rows(), rows = scores.cols();
  const auto& values = own.values;
  const auto finite =
      row_panels<Scalar>(own.extent.all_finite ? values : finite_part(values, memory.finite), rows, memory.packed);
  for (Index begin = 0; begin < rows; begin += row_group) {
    const Index seen = causal_end(begin, rows, keys), count = std::min(row_group, rows - begin);
    add(begin, count, finite, scores.block(0, begin, seen, count));
  }
  if (own.extent.all_finite) return;
  for (Index j = 0; j < keys; ++j)
    for (Index r = 0; r < values.rows(); ++r)
      for (Index i = j; i < rows && !std::isfinite(values(r, j)); ++i) add_entry(i, r, scores(j, i) * values(r, j));
}

}  // namespace SYMPOW_NAMESPACE::detail
