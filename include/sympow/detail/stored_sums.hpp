// How a state stores S: dense, or split into high and low halves of its bits.
#pragma once

#include <algorithm>

#include <sympow/core/panel.hpp>
#include <sympow/core/split_matrix.hpp>

namespace SYMPOW_NAMESPACE::detail {

inline constexpr Index split_columns = 24;  // split columns that are made dense at a time, to fit the first cache

/// S, e × D.
template <class Scalar>
struct StoredSums {
  Matrix<Scalar> S;                ///< 0 × D where S is split
  SplitMatrix<Scalar> split = {};  ///< S where it is split, else empty

  StoredSums(Index e, Index dimension) { S.setZero(e, dimension); }

  /// e.
  [[nodiscard]] Index value_rows() const { return is_split() ? split.rows() : S.rows(); }
  /// Numbers that S takes the memory of.
  [[nodiscard]] Index size() const { return is_split() ? split.size() : S.size(); }
  /// Whether queries read the high halves of S alone.
  [[nodiscard]] bool is_split() const { return !split.empty(); }
  /// Split S, or make it dense. Exact; S is unchanged after `bad_alloc`.
  void split_up() {
    if (is_split() || S.cols() == 0) return;
    SplitMatrix<Scalar> made(S.rows(), S.cols());
    made.set(0, S);
    split = std::move(made);
    S = Matrix<Scalar>(0, S.cols());
  }
  void make_dense() {
    if (!is_split()) return;
    Matrix<Scalar> made(split.rows(), split.cols());
    split.get(0, made);
    S.swap(made);
    split = {};
  }
  /// f(begin, columns) of S, which f may change: all at once, or up to `at_once` where S is split.
  template <class F>
  void change_columns(Index first, Index size, Index at_once, Panel<Scalar>& memory, const F& f) {
    if (!is_split()) return f(first, MatrixView<Scalar>(S).middleCols(first, size));
    for (Index begin = first, n = 0; begin < first + size; begin += n) {
      n = std::min(at_once, first + size - begin);
      const auto columns = memory(split.rows(), n);
      split.get(begin, columns);
      f(begin, columns);
      split.set(begin, columns);
    }
  }
  /// Columns of S, up to `split_columns` of them unless S is dense.
  [[nodiscard]] MatrixView<const Scalar> columns(Index first, Index size, Panel<Scalar>& memory) const {
    if (!is_split()) return MatrixView<const Scalar>(S).middleCols(first, size);
    const auto columns = memory(split.rows(), size);
    split.get(first, columns);
    return columns;
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
