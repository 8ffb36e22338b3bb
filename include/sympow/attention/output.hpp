// Where a call writes its rows.
#pragma once

#include <concepts>

#include <sympow/core/concepts.hpp>
#include <sympow/core/optional_ref.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {
/// Of calls that keep nothing for their gradients.
struct NoTape {};
}  // namespace detail

/// What a call writes: a matrix Y or, if its gradients are wanted later, `{Y, tape}`, where the tape keeps of the
/// forward pass what the backward pass would have to compute again. Y is column-major with one token a column; it may
/// be a block or a map.
template <class Scalar, class Tape = detail::NoTape>
class Output {
 public:
  /// Y, and a tape if it is given.
  template <MatrixExpression X>
    requires(!std::same_as<std::remove_cvref_t<X>, Output>)
  Output(X&& Y, OptionalRef<Tape> tape = {})  // NOLINT(google-explicit-constructor): a matrix is an output
      : rows_(writable(Y)), tape_(tape) {}

  [[nodiscard]] Batch<Scalar> rows() const { return rows_; }      ///< Y
  [[nodiscard]] OptionalRef<Tape> tape() const { return tape_; }  ///< what keeps the forward pass, if it is kept

 private:
  template <class X>
  static Batch<Scalar> writable(X& Y) {
    constexpr bool can_be_written = std::is_convertible_v<X&, Batch<Scalar>>;
    static_assert(can_be_written,
                  "an output is written in place: it is column-major, one token a column, and has the scalar type of "
                  "queries, keys and values; of a row-major T x e matrix give the transpose");
    if constexpr (can_be_written)
      return Y;
    else
      return Eigen::Map<Matrix<Scalar>>(nullptr, 0, 0);
  }

  Batch<Scalar> rows_;
  OptionalRef<Tape> tape_;
};

}  // namespace SYMPOW_NAMESPACE
