// How the numbers of S lie in a state: whole, or in halves.
#pragma once

#include <algorithm>

#include <sympow/core/halved_matrix.hpp>
#include <sympow/core/panel.hpp>

namespace SYMPOW_NAMESPACE::detail {

inline constexpr Index halved_columns = 24;  // of numbers in halves that are made whole at a time, in the first cache

/// S, e × D.
template <class Scalar>
struct StoredSums {
  Matrix<Scalar> S;                  ///< 0 × D where its numbers lie in halves
  HalvedMatrix<Scalar> halves = {};  ///< then these, else empty

  StoredSums(Index e, Index dimension) { S.setZero(e, dimension); }

  /// e.
  [[nodiscard]] Index value_rows() const { return is_halved() ? halves.rows() : S.rows(); }
  /// Numbers that S takes the memory of.
  [[nodiscard]] Index size() const { return is_halved() ? halves.size() : S.size(); }
  /// Whether queries read S by its upper halves.
  [[nodiscard]] bool is_halved() const { return !halves.empty(); }
  /// Lays the numbers of S into halves, or makes them whole; the same numbers, which stay where memory ends.
  void halve() {
    if (is_halved() || S.cols() == 0) return;
    HalvedMatrix<Scalar> made(S.rows(), S.cols());
    made.set(0, S);
    halves = std::move(made);
    S = Matrix<Scalar>(0, S.cols());
  }
  void make_whole() {
    if (!is_halved()) return;
    Matrix<Scalar> made(halves.rows(), halves.cols());
    halves.get(0, made);
    S.swap(made);
    halves = {};
  }
  /// f(begin, columns) of S, which f may change: all of them at once, or up to so many where they lie in halves.
  template <class F>
  void change_columns(Index first, Index size, Index at_once, Panel<Scalar>& memory, const F& f) {
    if (!is_halved()) return f(first, MatrixView<Scalar>(S).middleCols(first, size));
    for (Index begin = first, n = 0; begin < first + size; begin += n) {
      n = std::min(at_once, first + size - begin);
      const auto columns = memory(halves.rows(), n);
      halves.get(begin, columns);
      f(begin, columns);
      halves.set(begin, columns);
    }
  }
  /// Some columns of S, up to `halved_columns` of them unless it is whole.
  [[nodiscard]] MatrixView<const Scalar> columns(Index first, Index size, Panel<Scalar>& memory) const {
    if (!is_halved()) return MatrixView<const Scalar>(S).middleCols(first, size);
    const auto columns = memory(halves.rows(), size);
    halves.get(first, columns);
    return columns;
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
