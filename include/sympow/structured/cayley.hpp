// Cayley transforms of skew matrices: rotations by a linear solve.
#pragma once

#include <memory>

#include <sympow/core/linear_operator.hpp>
#include <sympow/structured/commuting_generators.hpp>

namespace SYMPOW_NAMESPACE {

template <class Scalar>
class Cayley;
template <class S>
struct operator_traits<Cayley<S>> {
  using Scalar = S;
};

/// P = (I - S)(I + S)⁻¹ for a skew S, d × d, dense or S = A Bᵀ of rank r.
///
///     P x = 2 (I + S)⁻¹ x - x = x - 2 A (I + Bᵀ A)⁻¹ Bᵀ x
///     Pᵀ = P(-S),   det P = 1,   P = exp(-2 artanh S): angles -2 arctan μ for eigenvalues ±iμ of S
///
/// Construct with `cayley(…)`; copies and transposes share the LU factors. Cost per column: 2 d² operations (dense) or
/// 4 d r + 2 r² (rank r). P(S) P(T) ≠ P(S + T). Source: Equivariant Structured Positional Rotations, Lemma 3 (whose
/// lines (16) and (17) are P² and P).
template <class S>
class Cayley : public LinearOperator<Cayley<S>> {
  static_assert(!ExactScalar<S>, "cayley goes through double: for an exact scalar there is exact::cayley");

 public:
  static constexpr bool is_orthogonal = true;  ///< norms and inner products of images are not evaluated

  [[nodiscard]] Index rows() const { return factors_->d; }
  [[nodiscard]] Index cols() const { return rows(); }
  [[nodiscard]] Index rank() const { return factors_->system.size(); }  ///< size of the linear system

  [[nodiscard]] Cayley transpose() const {
    Cayley result = *this;
    result.transposed_ = !transposed_;
    return result;
  }
  [[nodiscard]] Cayley inverse() const { return transpose(); }
  [[nodiscard]] S determinant() const { return S(1); }

  /// Whether both share S and the transposition.
  [[nodiscard]] friend bool operator==(const Cayley& a, const Cayley& b) {
    return a.factors_ == b.factors_ && a.transposed_ == b.transposed_;
  }

  /// Y = P X, as `LinearOperator` requires.
  template <class X, class Y>
  void apply(const X& x, Y&& y) const {
    if constexpr (std::convertible_to<Y&, Batch<S>>) {
      rotate(x, y);
    } else {
      Matrix<S> image(rows(), x.cols());
      rotate(x, image);
      y = image;
    }
  }

 private:
  struct Factors {
    Index d;
    Matrix<S> A, B;              // empty for a dense S and for S = 0
    detail::Factored<S> system;  // I + S or I + Bᵀ A
  };

  explicit Cayley(Factors factors) : factors_(std::make_shared<const Factors>(std::move(factors))) {}

  static Cayley dense(const Eigen::MatrixXd& skew);
  static Cayley from_product(Matrix<S> A, Matrix<S> B);
  static Cayley from_columns(const Matrix<S>& G, const Matrix<S>& H);
  static Cayley from_null_space(const CommutingGenerators<S>& family, const Eigen::MatrixXd& skew);

  void rotate(const ConstBatch<S>& x, Batch<S> y) const;
  Matrix<S> solve(const Matrix<S>& x) const;

  template <MatrixExpression X>
  friend Cayley<scalar_t<X>> cayley(const X& S_);
  template <MatrixExpression X, MatrixExpression Y>
  friend Cayley<scalar_t<X>> cayley(const X& G, const Y& H);
  template <class Scalar, MatrixExpression X>
  friend Cayley<Scalar> cayley(const CommutingGenerators<Scalar>& family, const X& S_);

  std::shared_ptr<const Factors> factors_;
  bool transposed_ = false;
};

template <class S>
Cayley<S> Cayley<S>::dense(const Eigen::MatrixXd& skew) {
  const Index d = skew.rows();
  Matrix<S> system(d, d);
  for (Index j = 0; j < d; ++j)
    for (Index i = 0; i < d; ++i) system(i, j) = static_cast<S>(skew(i, j)) + S(i == j ? 1 : 0);
  return Cayley(Factors{d, {}, {}, detail::Factored<S>(system)});
}

template <class S>
Cayley<S> Cayley<S>::from_product(Matrix<S> A, Matrix<S> B) {
  if (A.cols() == 0) return dense(Eigen::MatrixXd::Zero(A.rows(), A.rows()));
  Matrix<S> system = Matrix<S>::Identity(A.cols(), A.cols());
  detail::add_product(system, B.transpose(), A);
  return Cayley(Factors{A.rows(), std::move(A), std::move(B), detail::Factored<S>(system)});
}

template <class S>
Cayley<S> Cayley<S>::from_columns(const Matrix<S>& G, const Matrix<S>& H) {
  detail::check_size("rows of H", H.rows(), G.rows(), "rows of G");
  detail::check_size("columns of H", H.cols(), G.cols(), "columns of G");
  const Index d = G.rows(), r = G.cols();
  Matrix<S> A(d, 2 * r), B(d, 2 * r);
  for (Index j = 0; j < r; ++j)
    for (Index i = 0; i < d; ++i) {
      A(i, j) = G(i, j), A(i, r + j) = H(i, j);
      B(i, j) = H(i, j), B(i, r + j) = -G(i, j);
    }
  return from_product(std::move(A), std::move(B));
}

template <class S>
Cayley<S> Cayley<S>::from_null_space(const CommutingGenerators<S>& family, const Eigen::MatrixXd& skew) {
  const Matrix<S> N = family.basis().rightCols(family.null_dimension());
  return from_product(detail::times(N, Matrix<S>(skew.template cast<S>())), N);
}

template <class S>
void Cayley<S>::rotate(const ConstBatch<S>& x, Batch<S> y) const {
  const Factors& p = *factors_;
  if (p.A.size() == 0) {
    const Matrix<S> z = solve(x);
    for (Index t = 0; t < x.cols(); ++t)
      for (Index i = 0; i < x.rows(); ++i) y(i, t) = 2 * z(i, t) - x(i, t);
    return;
  }
  const Matrix<S>&left = transposed_ ? p.B : p.A, &right = transposed_ ? p.A : p.B;
  Matrix<S> z = solve(detail::times(right.transpose(), x));  // if transposed: I - 2 B (I + Aᵀ B)⁻¹ Aᵀ
  z *= S(-2);
  y = x;
  detail::add_product(y, left, z);
}

template <class S>
Matrix<S> Cayley<S>::solve(const Matrix<S>& x) const {
  if (x.rows() == 0) return x;
  return transposed_ ? factors_->system.solve_transposed(x) : factors_->system.solve(x);
}

/// The Cayley transform of a dense skew S, d × d. Cost: 2/3 d³ once. Throws `ShapeMismatch`, `NotFinite`, and `NotSkew`
/// with ‖S + Sᵀ‖.
template <MatrixExpression X>
[[nodiscard]] Cayley<scalar_t<X>> cayley(const X& S) {
  return Cayley<scalar_t<X>>::dense(detail::checked_skew("cayley: S", S));
}

/// The Cayley transform of S = G Hᵀ - H Gᵀ, G and H d × r, by the Woodbury identity. Cost: 16 d r² operations and the
/// LU of a 2r × 2r system, once. Throws `ShapeMismatch`.
template <MatrixExpression X, MatrixExpression Y>
[[nodiscard]] Cayley<scalar_t<X>> cayley(const X& G, const Y& H) {
  return Cayley<scalar_t<X>>::from_columns(G, H);
}

/// A member of the family 𝒜 that fixes every plane of a family of generators: P = U [I ⊕ cayley(S)] Uᵀ for a skew S on
/// the null space, d_null × d_null. Cost: that of rank d_null. Throws `ShapeMismatch`, `NotSkew`, `NotFinite`.
template <class Scalar, MatrixExpression X>
[[nodiscard]] Cayley<Scalar> cayley(const CommutingGenerators<Scalar>& family, const X& S) {
  detail::check_size("rows of S", S.rows(), family.null_dimension(), "null dimension of the family");
  detail::check_size("columns of S", S.cols(), family.null_dimension(), "null dimension of the family");
  return Cayley<Scalar>::from_null_space(family, detail::checked_skew("cayley: S", S));
}

namespace detail {

/// ‖A - B‖ in the spectral norm, in double.
template <class Scalar>
[[nodiscard]] double spectral_distance(const Matrix<Scalar>& A, const Matrix<Scalar>& B) {
  Matrix<double> difference(A.rows(), A.cols());
  for (Index n = 0; n < A.size(); ++n)
    difference.data()[n] = static_cast<double>(A.data()[n]) - static_cast<double>(B.data()[n]);
  return singular_values(difference)[0];
}

}  // namespace detail

/// Distance of P from 𝒜, the maps that fix every active plane: ‖(P - I) Π_act‖ in the spectral norm, 0 for members. For
/// P = cayley(S) it is at most 2 ‖S Π_act‖. Cost: P on 2m columns and an SVD. Throws `ShapeMismatch` unless P is d × d.
template <class Scalar, class Map>
[[nodiscard]] double distance_to_block_identity(const CommutingGenerators<Scalar>& family, const Map& P) {
  if (family.planes() == 0) return 0;
  detail::check_size("columns of P", P.cols(), family.dimension(), "dimension of the family");
  detail::check_size("rows of P", P.rows(), family.dimension(), "dimension of the family");
  const Matrix<Scalar> active = family.basis().leftCols(family.active_dimension());
  return detail::spectral_distance<Scalar>(P * active, active);
}

}  // namespace SYMPOW_NAMESPACE

/// Explicit instantiations for one scalar type; LINKAGE is `extern` where another file compiles them.
#define SYMPOW_CAYLEY(LINKAGE, S)                                                        \
  namespace sympow {                                                                     \
  LINKAGE template class Cayley<S>;                                                      \
  LINKAGE template class LinearOperator<Cayley<S>>;                                      \
  LINKAGE template double detail::spectral_distance(const Matrix<S>&, const Matrix<S>&); \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_CAYLEY(extern, float)
SYMPOW_CAYLEY(extern, double)
#endif
