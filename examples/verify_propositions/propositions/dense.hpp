// Matrices whose operations are carried out at once: the arithmetic of the propositions, cheap to compile.
#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <utility>

#include <sympow/simd/linear_algebra.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A matrix of Eigen's, or a vector (Columns = 1), whose operations give matrices again and not expressions: `A * B -
/// C` is two functions that are compiled once, where an expression is some ten classes of its own. It can be given to
/// whatever takes an Eigen matrix, and made from whatever Eigen can assign to one.
template <class S, int Columns = Dynamic>
class Dense : public Eigen::Matrix<S, Dynamic, Columns> {
 public:
  using Base = Eigen::Matrix<S, Dynamic, Columns>;
  using Base::Base;
  Dense() = default;
  /// The same numbers, copied.
  Dense(const Base& x) : Base(x) {}  // NOLINT(google-explicit-constructor)
  /// The same numbers, moved.
  Dense(Base&& x) : Base(std::move(x)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] static Dense identity(Index n);                             ///< I, n × n
  [[nodiscard]] static Dense constant(Index rows, Index columns, S value);  ///< every entry the same
  /// Every entry 0, one column unless told otherwise.
  [[nodiscard]] static Dense zero(Index rows, Index columns = 1) { return constant(rows, columns, S(0)); }

  Dense& operator+=(const Dense& b);
  Dense& operator-=(const Dense& b);
  Dense& operator*=(S factor);
  Dense& operator/=(S divisor);

  [[nodiscard]] const Base& plain() const { return *this; }  ///< as Eigen has it
  [[nodiscard]] double norm() const;                         ///< √Σ a_ij²
  [[nodiscard]] double spectral_norm() const;                ///< the largest singular value, 0 for an empty matrix
  [[nodiscard]] Dense<double, 1> singular_values() const;    ///< the largest first
  [[nodiscard]] double largest() const;                   ///< max |a_ij|, 0 if there is none, NaN if one is not finite
  [[nodiscard]] double sum() const;                       ///< Σ a_ij
  [[nodiscard]] double dot(const Dense& b) const;         ///< Σ a_ij b_ij
  [[nodiscard]] double determinant() const;               ///< of a square matrix
  [[nodiscard]] Dense<S> transpose() const;               ///< Aᵀ
  [[nodiscard]] Dense<S> inverse() const;                 ///< A⁻¹, by LU
  [[nodiscard]] Dense<S> solve(const Dense<S>& B) const;  ///< A⁻¹ B, by LU
  [[nodiscard]] Dense normalized() const;                 ///< a / ‖a‖
  [[nodiscard]] Dense entrywise(const Dense& b) const;    ///< a ⊙ b
  [[nodiscard]] Dense<S> diagonal_matrix() const;         ///< diag(a) of a vector
  [[nodiscard]] Dense<S> part(Index row, Index column, Index rows, Index columns) const;  ///< a copy of a block
  void set_part(Index row, Index column, const Dense<S>& block);                          ///< writes a block
  [[nodiscard]] Dense<S, 1> column(Index j) const;                                        ///< a copy of column j
  [[nodiscard]] Dense<S, 1> row_vector(Index i) const;     ///< a copy of row i, transposed
  [[nodiscard]] Dense<double, Columns> in_double() const;  ///< the same numbers in double
  template <class T>
  [[nodiscard]] Dense<T, Columns> to() const;  ///< rounded to another type
};

/// A vector of the same kind.
template <class S>
using DenseVector = Dense<S, 1>;

template <class S, int C>
[[nodiscard]] Dense<S, C> operator*(const Dense<S>& A, const Dense<S, C>& B);
template <class S>
[[nodiscard]] Dense<S> operator*(const Dense<S, 1>& a, const Dense<S>& row);  ///< a bᵀ, for a row such as b.transpose()
template <class S, int C>
[[nodiscard]] Dense<S, C> operator+(const Dense<S, C>& a, const Dense<S, C>& b);
template <class S, int C>
[[nodiscard]] Dense<S, C> operator-(const Dense<S, C>& a, const Dense<S, C>& b);
template <class S, int C>
[[nodiscard]] Dense<S, C> operator-(const Dense<S, C>& a);

template <class T, class S, int C>
  requires std::is_arithmetic_v<T>
[[nodiscard]] Dense<S, C> operator*(T factor, Dense<S, C> a) {
  return a *= static_cast<S>(factor);
}
template <class T, class S, int C>
  requires std::is_arithmetic_v<T>
[[nodiscard]] Dense<S, C> operator*(Dense<S, C> a, T factor) {
  return a *= static_cast<S>(factor);
}
template <class T, class S, int C>
  requires std::is_arithmetic_v<T>
[[nodiscard]] Dense<S, C> operator/(Dense<S, C> a, T divisor) {
  return a /= static_cast<S>(divisor);
}

// ---- how it is done ----

template <class S, int C>
Dense<S, C> Dense<S, C>::identity(Index n) {
  Dense I = zero(n, n);
  for (Index i = 0; i < n; ++i) I(i, i) = S(1);
  return I;
}
template <class S, int C>
Dense<S, C> Dense<S, C>::constant(Index rows, Index columns, S value) {
  Dense a;
  a.resize(rows, columns);
  for (Index n = 0; n < a.size(); ++n) a.data()[n] = value;
  return a;
}
template <class S, int C>
Dense<S, C>& Dense<S, C>::operator+=(const Dense& b) {
  eigen_assert(this->rows() == b.rows() && this->cols() == b.cols());
  for (Index n = 0; n < this->size(); ++n) this->data()[n] += b.data()[n];
  return *this;
}
template <class S, int C>
Dense<S, C>& Dense<S, C>::operator-=(const Dense& b) {
  eigen_assert(this->rows() == b.rows() && this->cols() == b.cols());
  for (Index n = 0; n < this->size(); ++n) this->data()[n] -= b.data()[n];
  return *this;
}
template <class S, int C>
Dense<S, C>& Dense<S, C>::operator*=(S factor) {
  for (Index n = 0; n < this->size(); ++n) this->data()[n] *= factor;
  return *this;
}
template <class S, int C>
Dense<S, C>& Dense<S, C>::operator/=(S divisor) {
  for (Index n = 0; n < this->size(); ++n) this->data()[n] /= divisor;
  return *this;
}
template <class S, int C>
double Dense<S, C>::norm() const {
  return static_cast<double>(plain().norm());
}
template <class S, int C>
double Dense<S, C>::spectral_norm() const {
  return this->size() == 0 ? 0 : singular_values()[0];
}
template <class S, int C>
Dense<double, 1> Dense<S, C>::singular_values() const {
  return Vector<double>(sympow::detail::singular_values(Eigen::MatrixXd(in_double().plain())));
}
template <class S, int C>
double Dense<S, C>::largest() const {
  double most = 0;
  for (Index n = 0; n < this->size(); ++n) {
    const double entry = std::abs(static_cast<double>(this->data()[n]));
    if (!std::isfinite(entry)) return std::numeric_limits<double>::quiet_NaN();
    if (entry > most) most = entry;
  }
  return most;
}
template <class S, int C>
double Dense<S, C>::sum() const {
  S all = 0;
  for (Index n = 0; n < this->size(); ++n) all += this->data()[n];
  return static_cast<double>(all);
}
template <class S, int C>
double Dense<S, C>::dot(const Dense& b) const {
  eigen_assert(this->rows() == b.rows() && this->cols() == b.cols());
  S all = 0;
  for (Index n = 0; n < this->size(); ++n) all += this->data()[n] * b.data()[n];
  return static_cast<double>(all);
}
template <class S, int C>
double Dense<S, C>::determinant() const {
  return static_cast<double>(sympow::detail::Factored<S>(plain()).determinant());
}
template <class S, int C>
Dense<S> Dense<S, C>::transpose() const {
  Dense<S> turned(this->cols(), this->rows());
  for (Index j = 0; j < this->cols(); ++j)
    for (Index i = 0; i < this->rows(); ++i) turned(j, i) = (*this)(i, j);
  return turned;
}
template <class S, int C>
Dense<S> Dense<S, C>::inverse() const {
  return solve(Dense<S>::identity(this->rows()));
}
template <class S, int C>
Dense<S> Dense<S, C>::solve(const Dense<S>& B) const {
  return sympow::detail::Factored<S>(plain()).solve(B.plain());
}
template <class S, int C>
Dense<S, C> Dense<S, C>::normalized() const {
  Dense a = *this;
  return a /= static_cast<S>(norm());
}
template <class S, int C>
Dense<S, C> Dense<S, C>::entrywise(const Dense& b) const {
  eigen_assert(this->rows() == b.rows() && this->cols() == b.cols());
  Dense a = *this;
  for (Index n = 0; n < a.size(); ++n) a.data()[n] *= b.data()[n];
  return a;
}
template <class S, int C>
Dense<S> Dense<S, C>::diagonal_matrix() const {
  Dense<S> D = Dense<S>::zero(this->size(), this->size());
  for (Index n = 0; n < this->size(); ++n) D(n, n) = this->data()[n];
  return D;
}
template <class S, int C>
Dense<S> Dense<S, C>::part(Index row, Index column, Index rows, Index columns) const {
  eigen_assert(row >= 0 && column >= 0 && row + rows <= this->rows() && column + columns <= this->cols());
  Dense<S> block(rows, columns);
  for (Index j = 0; j < columns; ++j)
    for (Index i = 0; i < rows; ++i) block(i, j) = (*this)(row + i, column + j);
  return block;
}
template <class S, int C>
void Dense<S, C>::set_part(Index row, Index column, const Dense<S>& block) {
  eigen_assert(row >= 0 && column >= 0 && row + block.rows() <= this->rows() && column + block.cols() <= this->cols());
  for (Index j = 0; j < block.cols(); ++j)
    for (Index i = 0; i < block.rows(); ++i) (*this)(row + i, column + j) = block(i, j);
}
template <class S, int C>
Dense<S, 1> Dense<S, C>::column(Index j) const {
  Dense<S, 1> x(this->rows());
  for (Index i = 0; i < this->rows(); ++i) x[i] = (*this)(i, j);
  return x;
}
template <class S, int C>
Dense<S, 1> Dense<S, C>::row_vector(Index i) const {
  Dense<S, 1> x(this->cols());
  for (Index j = 0; j < this->cols(); ++j) x[j] = (*this)(i, j);
  return x;
}
template <class S, int C>
Dense<double, C> Dense<S, C>::in_double() const {
  return to<double>();
}
// Doxygen would list it a second time.
/// @cond
template <class S, int C>
template <class T>
Dense<T, C> Dense<S, C>::to() const {
  Dense<T, C> x;
  x.resize(this->rows(), this->cols());
  for (Index n = 0; n < this->size(); ++n) x.data()[n] = static_cast<T>(this->data()[n]);
  return x;
}
/// @endcond
template <class S, int C>
Dense<S, C> operator*(const Dense<S>& A, const Dense<S, C>& B) {
  return Dense<S, C>(typename Dense<S, C>::Base(A.plain() * B.plain()));
}
template <class S>
Dense<S> operator*(const Dense<S, 1>& a, const Dense<S>& row) {
  eigen_assert(row.rows() == 1);
  Dense<S> product(a.size(), row.cols());
  for (Index j = 0; j < row.cols(); ++j)
    for (Index i = 0; i < a.size(); ++i) product(i, j) = a[i] * row(0, j);
  return product;
}
template <class S, int C>
Dense<S, C> operator+(const Dense<S, C>& a, const Dense<S, C>& b) {
  Dense<S, C> sum = a;
  return sum += b;
}
template <class S, int C>
Dense<S, C> operator-(const Dense<S, C>& a, const Dense<S, C>& b) {
  Dense<S, C> difference = a;
  return difference -= b;
}
template <class S, int C>
Dense<S, C> operator-(const Dense<S, C>& a) {
  return S(-1) * a;
}

}  // namespace SYMPOW_NAMESPACE::verify

/// The operations for one scalar type: with `extern` they are compiled elsewhere, with nothing here.
#define SYMPOW_DENSE(LINKAGE, S)                                                  \
  namespace sympow::verify {                                                      \
  LINKAGE template class Dense<S>;                                                \
  LINKAGE template class Dense<S, 1>;                                             \
  LINKAGE template Dense<S> operator*(const Dense<S>&, const Dense<S>&);          \
  LINKAGE template Dense<S, 1> operator*(const Dense<S>&, const Dense<S, 1>&);    \
  LINKAGE template Dense<S> operator*(const Dense<S, 1>&, const Dense<S>&);       \
  LINKAGE template Dense<S> operator+(const Dense<S>&, const Dense<S>&);          \
  LINKAGE template Dense<S, 1> operator+(const Dense<S, 1>&, const Dense<S, 1>&); \
  LINKAGE template Dense<S> operator-(const Dense<S>&, const Dense<S>&);          \
  LINKAGE template Dense<S, 1> operator-(const Dense<S, 1>&, const Dense<S, 1>&); \
  LINKAGE template Dense<S> operator-(const Dense<S>&);                           \
  LINKAGE template Dense<S, 1> operator-(const Dense<S, 1>&);                     \
  LINKAGE template Dense<float> Dense<S>::to<float>() const;                      \
  LINKAGE template Dense<double> Dense<S>::to<double>() const;                    \
  LINKAGE template Dense<float, 1> Dense<S, 1>::to<float>() const;                \
  LINKAGE template Dense<double, 1> Dense<S, 1>::to<double>() const;              \
  }

#ifdef SYMPOW_COMPILED_PROPOSITIONS
SYMPOW_DENSE(extern, float)
SYMPOW_DENSE(extern, double)
#endif
