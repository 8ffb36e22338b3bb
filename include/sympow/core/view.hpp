// Views of matrix parts as two types, whatever the matrix.
#pragma once

#include <type_traits>

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// `const To` if S is const, else `To`.
template <class S, class To>
using as_const_as = std::conditional_t<std::is_const_v<S>, const To, To>;

/// A column in memory. Its parts are columns again: a type of Eigen's for each part of a part would cost compile time,
/// and so would each expression of it.
template <class S>
class ColumnView : public Eigen::Map<as_const_as<S, Vector<std::remove_const_t<S>>>> {
  using Entry = std::remove_const_t<S>;
  using Base = Eigen::Map<as_const_as<S, Vector<Entry>>>;

 public:
  ColumnView(S* data, Index size) : Base(data, size) {}
  ColumnView(as_const_as<S, Vector<Entry>>& x) : Base(x.data(), x.size()) {}  // NOLINT(google-explicit-constructor)
  /// A read-only view.
  ColumnView(const ColumnView<Entry>& x)  // NOLINT(google-explicit-constructor)
    requires std::is_const_v<S>
      : Base(x.data(), x.size()) {}
  ColumnView(const ColumnView&) = default;
  ColumnView& operator=(const ColumnView& x) {
    Base::operator=(x);
    return *this;
  }
  using Base::operator=;

  [[nodiscard]] S* data() const { return const_cast<S*>(Base::data()); }  // NOLINT: a view of what is not const
  [[nodiscard]] ColumnView head(Index n) const { return {data(), n}; }
  [[nodiscard]] ColumnView tail(Index n) const { return {data() + this->size() - n, n}; }
  [[nodiscard]] ColumnView segment(Index first, Index n) const { return {data() + first, n}; }
  /// A segment of compile-time size, see `for_blocks`.
  template <class Count>
    requires requires { Count::value; }
  [[nodiscard]] auto segment(Index first, Count) const {
    return Eigen::Map<as_const_as<S, Eigen::Matrix<Entry, Count::value, 1>>>(data() + first);
  }
  [[nodiscard]] auto array() const {
    return Eigen::Map<as_const_as<S, Eigen::Array<Entry, Dynamic, 1>>>(data(), this->size());
  }
};

/// A matrix in memory with column stride `outerStride()`. Its parts are matrices and columns of the same two types.
template <class S>
class MatrixView : public Eigen::Map<as_const_as<S, Matrix<std::remove_const_t<S>>>, 0, Eigen::OuterStride<>> {
  using Entry = std::remove_const_t<S>;
  using Base = Eigen::Map<as_const_as<S, Matrix<Entry>>, 0, Eigen::OuterStride<>>;

 public:
  MatrixView(S* data, Index rows, Index cols, Index stride) : Base(data, rows, cols, Eigen::OuterStride<>(stride)) {}
  MatrixView(S* data, Index rows, Index cols) : MatrixView(data, rows, cols, rows) {}
  /// Views a matrix, a map, a block of columns or a `Ref`.
  template <class Derived>
    requires(!std::is_base_of_v<MatrixView, std::remove_const_t<Derived>>)
  MatrixView(Derived& x)  // NOLINT(google-explicit-constructor)
      : MatrixView(x.data(), x.rows(), x.cols(), x.outerStride()) {}
  /// A read-only view.
  MatrixView(const MatrixView<Entry>& x)  // NOLINT(google-explicit-constructor)
    requires std::is_const_v<S>
      : MatrixView(x.data(), x.rows(), x.cols(), x.outerStride()) {}
  MatrixView(const MatrixView&) = default;
  MatrixView& operator=(const MatrixView& x) {
    Base::operator=(x);
    return *this;
  }
  using Base::operator=;

  [[nodiscard]] S* data() const { return const_cast<S*>(Base::data()); }  // NOLINT: a view of what is not const
  [[nodiscard]] ColumnView<S> col(Index j) const { return {data() + j * this->outerStride(), this->rows()}; }
  [[nodiscard]] MatrixView block(Index i, Index j, Index rows, Index cols) const {
    return {data() + i + j * this->outerStride(), rows, cols, this->outerStride()};
  }
  [[nodiscard]] MatrixView middleCols(Index first, Index n) const { return block(0, first, this->rows(), n); }
  [[nodiscard]] MatrixView leftCols(Index n) const { return middleCols(0, n); }
  [[nodiscard]] MatrixView rightCols(Index n) const { return middleCols(this->cols() - n, n); }
  [[nodiscard]] MatrixView middleRows(Index first, Index n) const { return block(first, 0, n, this->cols()); }
  [[nodiscard]] MatrixView topRows(Index n) const { return middleRows(0, n); }
  [[nodiscard]] MatrixView bottomRows(Index n) const { return middleRows(this->rows() - n, n); }
};

/// Whether T is a `MatrixView`.
template <class T>
inline constexpr bool is_view = requires(const std::remove_cvref_t<T>& x) { []<class S>(const MatrixView<S>&) {}(x); };

}  // namespace SYMPOW_NAMESPACE::detail
