// The linear map that A induces on symmetric tensors, Sym^P(A) φ(x) = φ(A x), as a lazy operator.
#pragma once

#include <Eigen/LU>
#include <bit>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/linear_operator.hpp>
#include <sympow/tensor/symmetric_power.hpp>

namespace SYMPOW_NAMESPACE {

/// Permanent of a square matrix of at most 20 rows.
///
///     per(A) = Σ_σ Π_i a_{i, σ(i)}
///
/// Cost: n 2^n, by dynamic programming over column sets. No subtractions, so no cancellation beyond that of the matrix
/// itself. Throws `ShapeMismatch`.
template <MatrixExpression A>
[[nodiscard]] scalar_t<A> permanent(const A& a) {
  detail::check_size("columns of the matrix", a.cols(), a.rows(), "as many as rows");
  const auto n = static_cast<unsigned>(a.rows());
  if (n > 20) detail::raise<ShapeMismatch>("permanent: ", a.rows(), " rows, must be at most 20");
  const auto& entries = a.eval();
  std::vector<scalar_t<A>> partial(std::size_t(1) << n,
                                   scalar_t<A>(0));  // per(first |set| rows, columns in the set)
  partial[0] = scalar_t<A>(1);
  for (unsigned set = 1; set < partial.size(); ++set)
    for (unsigned j = 0; j < n; ++j)
      if (set >> j & 1u)
        partial[set] += entries(std::popcount(set) - 1, static_cast<Index>(j)) * partial[set ^ (1u << j)];
  return partial.back();
}

template <int P, class A>
class Induced;

namespace detail {

template <class A>
concept InducedArgument = MatrixExpression<A> || StructuredOperator<A>;

// Stores an operator or an expression; A and B are forwarding types, as in `owning_product`.
template <class A>
struct induced_operand {
  using type = held_operator_t<A>;
};
template <MatrixExpression A>
struct induced_operand<A> {
  using type = operand_t<A>;
};

template <class A>
auto transpose_of(const auto& a) {
  if constexpr (StructuredOperator<A>)
    return a.transpose();
  else
    return owning_transpose<A>(a);
}

template <class A, class B>
auto compose(const auto& a, const auto& b) {
  if constexpr (StructuredOperator<A> && StructuredOperator<B>)
    return a * b;
  else if constexpr (StructuredOperator<A>)
    return apply_operator<A, B>(a, b);
  else if constexpr (StructuredOperator<B>)
    return apply_from_right<A>(a, b);
  else {
    check_size("rows of the right factor", b.rows(), a.cols(), "columns of the left factor");
    return owning_product<A, B>(a, b);
  }
}

}  // namespace detail

/// The map that A induces on symmetric tensors.
///
///     Sym^P(A) φ^P(x) = φ^P(A x),   Sym^P(A)_{αβ} = per(A[α|β]) / √(Π c_i(α)! Π c_i(β)!)
///
/// Shapes: A is an m × n matrix expression or an operator such as `BlockRotation`; maps C(n + P - 1, P) entries to C(m
/// + P - 1, P). Lazy: `induced<P>(A) * symmetric_power<P>(x)` is `symmetric_power<P>(A * x)`. The lift of a rotation is
/// a rotation. Source: Conformal Transformations, Proposition 2 (docs/errata.md corrects the determinant in its proof).
template <int P, detail::InducedArgument A>
[[nodiscard]] auto induced(A&& a) {
  static_assert(!ExactScalar<typename std::remove_cvref_t<A>::Scalar>,
                "the entries of induced<P>(A) have square roots, which are rounded: for an exact scalar there is "
                "exact::lift");
  return Induced<P, A>(a);
}

/// See `induced`.
template <int P, class A>
class Induced {
  static_assert(1 <= P && P <= max_power, "the power must lie in 1 … 8");

 public:
  using Scalar = typename std::remove_cvref_t<A>::Scalar;

  /// See `induced`.
  explicit Induced(const std::remove_cvref_t<A>& a) : a_(a) {}

  [[nodiscard]] Index rows() const { return symmetric_dimension(a_.rows(), P); }
  [[nodiscard]] Index cols() const { return symmetric_dimension(a_.cols(), P); }
  /// A.
  [[nodiscard]] const auto& argument() const { return a_; }

  /// Sym(A) φ(x) = φ(A x).
  template <class X>
  [[nodiscard]] auto operator*(
      const LazyExpression<detail::Embedded<detail::SymmetricPowerEmbedding, P, X>>& phi) const {
    return symmetric_power<P>(detail::compose<A, X>(a_, phi.op().x));
  }

  /// Sym(A) Sym(B) = Sym(A B).
  template <int Q, class B>
  [[nodiscard]] auto operator*(const Induced<Q, B>& other) const {
    static_assert(P == Q, "induced<P>(A) * induced<Q>(B) is defined for equal powers only: their dimensions differ");
    return induced<P>(detail::compose<A, B>(a_, other.argument()));
  }

  /// Rejects other right factors, which would need a D × D matrix, at compile time.
  template <MatrixExpression Y>
  void operator*(const Y&) const {
    static_assert(is_symmetric_power<Y> && !is_symmetric_power<Y>,
                  "induced<P>(A) multiplies symmetric_power<P>(x) of the same P only; for any other vector ask for "
                  "induced<P>(A).toDenseMatrix(), which is D x D");
  }

  /// Sym(A)ᵀ = Sym(Aᵀ).
  [[nodiscard]] auto transpose() const { return induced<P>(detail::transpose_of<A>(a_)); }

  /// det Sym^P(A) = det(A)^C(d + P - 1, d). Cost: that of det A. Throws `ShapeMismatch` unless A is square.
  [[nodiscard]] Scalar determinant() const {
    detail::check_size("columns of the matrix", a_.cols(), a_.rows(), "as many as rows");
    const Index exponent = binomial(a_.rows() + P - 1, a_.rows());
    if constexpr (StructuredOperator<A>)
      return integer_power(Scalar(a_.determinant()), exponent);
    else
      return integer_power(Scalar(a_.eval().determinant()), exponent);
  }

  /// The dense D_m × D_n matrix by permanents, for tests and small cases. Cost: P 2^P per entry.
  [[nodiscard]] Matrix<Scalar> toDenseMatrix() const {
    const MultiIndices<P> targets(a_.rows()), sources(a_.cols());
    const Matrix<Scalar> a = dense();
    Matrix<Scalar> lifted(targets.size(), sources.size()), minor(P, P);
    Index row = 0, column = 0;
    for (const auto& alpha : targets) {
      column = 0;
      for (const auto& beta : sources) {
        for (int l = 0; l < P; ++l)
          for (int m = 0; m < P; ++m) minor(l, m) = a(alpha[l], beta[m]);
        const auto weight = static_cast<double>(stabilizer_order(alpha) * stabilizer_order(beta));
        lifted(row, column++) = permanent(minor) / Scalar(std::sqrt(weight));
      }
      ++row;
    }
    return lifted;
  }

 private:
  [[nodiscard]] Matrix<Scalar> dense() const {
    if constexpr (StructuredOperator<A>)
      return a_.toDenseMatrix();
    else
      return a_;
  }

  typename detail::induced_operand<A>::type a_;
};

}  // namespace SYMPOW_NAMESPACE
