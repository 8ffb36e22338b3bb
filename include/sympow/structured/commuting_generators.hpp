// Rotations exp(Σ r_k L_k) of commuting skew generators: one angle per plane, linear in the position r.
#pragma once

#include <memory>
#include <vector>

#include <sympow/structured/generator_planes.hpp>
#include <sympow/structured/skew.hpp>
#include <sympow/structured/structured_rotation.hpp>

namespace SYMPOW_NAMESPACE {

/// Commuting skew generators L_1 … L_{d_c} of R^d in their joint planes.
///
///     L_k = U [(λ_k1 J ⊕ … ⊕ λ_km J) ⊕ 0] Uᵀ,   J = [0 -1; 1 0],   U orthogonal, max_k |λ_ku| > 0 for every plane u
///     R(r) = exp(Σ_k r_k L_k) = U [R_2(θ_1) ⊕ … ⊕ R_2(θ_m) ⊕ I] Uᵀ,   θ_u = Σ_k λ_ku r_k,   R(r)ᵀ R(s) = R(s - r)
///
/// All computations are in double; U is stored as Scalar unless it is the identity. Copies share U. Cost: O((d_c + 10)
/// d³) for U, O(d_c m) per rotation. Source: Equivariant Structured Positional Rotations, Lemmas 1 and 2 (whose (3)
/// needs the condition on λ to fix m).
template <class S>
class CommutingGenerators {
  static constexpr double unit = static_cast<double>(std::numeric_limits<S>::epsilon()) / 2;

 public:
  using Scalar = S;

  /// From matrices, d × d each. A plane is inactive if |λ_ku| ≤ 8 d u ‖L_k‖ for every k. Equal seeds give equal U.
  /// Throws `ShapeMismatch`, `NotFinite`, `NotSkew`; in exact mode also `NotCommuting` with the pair and its
  /// commutator, and `AmbiguousRank` for a plane within a factor of 2 above that limit. Float rounding hides the
  /// slowest planes of RoPE with base 10⁴ from d = 128 on: pass such generators in double, or use `from_frequencies`.
  explicit CommutingGenerators(const std::vector<Matrix<S>>& generators, Commutation mode = Commutation::exact,
                               std::uint64_t seed = 1);

  /// Planes of consecutive coordinates 2u and 2u + 1 with frequencies Λ (d_c × m), and `null` further fixed
  /// coordinates; U is the identity. Planes with Λ = 0 are allowed. Throws `NotFinite`, `ShapeMismatch`.
  [[nodiscard]] static CommutingGenerators from_frequencies(Eigen::MatrixXd lambda, Index null = 0);

  /// This family in another basis U, d × d and orthogonal. Throws `ShapeMismatch`, and `InvalidArgument` with ‖UᵀU -
  /// I‖.
  [[nodiscard]] CommutingGenerators in_basis(const Matrix<S>& U) const;

  /// This family with U = I, for projections of queries and keys that include Uᵀ.
  [[nodiscard]] CommutingGenerators in_block_basis() const {
    CommutingGenerators family = *this;
    family.basis_ = nullptr;
    return family;
  }

  [[nodiscard]] Index dimension() const { return planes_.dimension; }    ///< d
  [[nodiscard]] Index size() const { return planes_.lambda.rows(); }     ///< d_c, the length of a position
  [[nodiscard]] Index planes() const { return planes_.lambda.cols(); }   ///< m
  [[nodiscard]] Index active_dimension() const { return 2 * planes(); }  ///< 2m
  [[nodiscard]] Index null_dimension() const { return dimension() - active_dimension(); }  ///< d - 2m

  /// Λ, d_c × m: radians of plane u per unit of coordinate k.
  [[nodiscard]] const Eigen::MatrixXd& frequencies() const { return planes_.lambda; }
  /// U: two columns per active plane, then the null space.
  [[nodiscard]] Matrix<S> basis() const { return basis_ ? *basis_ : identity(dimension()); }
  /// Whether U is stored, that is, not the identity.
  [[nodiscard]] bool has_basis() const { return basis_ != nullptr; }

  /// ‖L_k - L̂_k‖ / ‖L_k‖ (Frobenius), with L̂_k the family's approximation of L_k.
  [[nodiscard]] const Eigen::VectorXd& residuals() const { return planes_.residuals; }
  /// ‖[L_a, L_b]‖ (Frobenius), d_c × d_c, of the given generators.
  [[nodiscard]] const Eigen::MatrixXd& commutators() const { return planes_.commutators; }

  /// Smallest distance of two planes: min over u ≠ v and both orientations of max_k |λ_ku ∓ λ_kv| / ‖L_k‖; infinite for
  /// m < 2. Planes closer than rounding are not unique; R(r) is.
  [[nodiscard]] double gap() const { return planes_.gap(); }

  /// L̂_k, dense d × d.
  [[nodiscard]] Matrix<S> generator(Index k) const;

  /// θ = Λᵀ r, radians. Throws `ShapeMismatch` unless r has d_c entries.
  template <VectorExpression Position>
  [[nodiscard]] Eigen::VectorXd angles(const Position& r) const {
    return planes_.angles(r.template cast<double>());
  }

  /// R(r). Throws `ShapeMismatch` unless r has d_c entries.
  template <VectorExpression Position>
  [[nodiscard]] StructuredRotation<S> at(const Position& r) const {
    return {BlockRotation<S>(angles(r)), dimension(), basis_};
  }

  /// Bound on the effect of replacing L_k by L̂_k: ‖exp(Σ r_k L_k) - R(r)‖ ≤ Σ_k |r_k| ‖L_k‖ residual_k, up to
  /// rounding.
  template <VectorExpression Position>
  [[nodiscard]] double deviation_bound(const Position& r) const {
    return planes_.deviation_bound(r.template cast<double>());
  }

  /// Π_act X, the part in the active planes.
  template <MatrixExpression X>
  [[nodiscard]] Matrix<S> project_active(const X& x) const {
    return project(ConstBatch<S>(x), 0, active_dimension());
  }
  /// Π_null X = X - Π_act X, the fixed part.
  template <MatrixExpression X>
  [[nodiscard]] Matrix<S> project_null(const X& x) const {
    return project(ConstBatch<S>(x), active_dimension(), null_dimension());
  }

  /// Throws `RankDeficient` unless Λ has rank d_c, so that only r = 0 gives R(r) = I near 0.
  void require_full_rank() const { planes_.require_full_rank(unit); }
  /// Throws `EmptyActiveSpace` if m = 0.
  void require_active() const {
    if (planes() == 0)
      detail::raise<EmptyActiveSpace>("the family of dimension ", dimension(),
                                      " has no plane that turns, must have one");
  }

 private:
  CommutingGenerators() = default;

  static Matrix<S> identity(Index n);
  [[nodiscard]] Matrix<S> project(const ConstBatch<S>& x, Index first, Index count) const;

  detail::GeneratorPlanes<double> planes_;
  std::shared_ptr<const Matrix<S>> basis_;
};

// ---- implementation ----

template <class S>
CommutingGenerators<S>::CommutingGenerators(const std::vector<Matrix<S>>& generators, Commutation mode,
                                            std::uint64_t seed) {
  if (generators.empty()) detail::raise<InvalidArgument>("generators: there are 0, must be at least 1");
  const Index d = generators.front().rows();
  std::vector<Eigen::MatrixXd> skew;
  for (const Matrix<S>& given : generators) {
    const std::size_t k = skew.size();
    if (given.rows() != d || given.cols() != d)
      detail::raise<ShapeMismatch>("generator ", k, " is ", given.rows(), " x ", given.cols(), ", must be ", d, " x ",
                                   d);
    skew.push_back(detail::checked_skew("generator " + std::to_string(k), given));
  }
  const Eigen::MatrixXd U = planes_.find(std::move(skew), mode, seed, unit);
  basis_ = std::make_shared<const Matrix<S>>(U.template cast<S>());
}

template <class S>
CommutingGenerators<S> CommutingGenerators<S>::from_frequencies(Eigen::MatrixXd lambda, Index null) {
  CommutingGenerators family;
  family.planes_.set(std::move(lambda), null);
  return family;
}

template <class S>
CommutingGenerators<S> CommutingGenerators<S>::in_basis(const Matrix<S>& U) const {
  const Index d = dimension();
  detail::check_size("rows of the basis", U.rows(), d, "dimension of the family");
  detail::check_size("columns of the basis", U.cols(), d, "dimension of the family");
  Matrix<S> deviation = identity(d);  // I - UᵀU
  detail::add_product(deviation, U.transpose(), Matrix<S>(-U));
  const auto error = static_cast<double>(detail::stable_norm<S>(deviation.data(), deviation.size()));
  const double allowed = 16 * static_cast<double>(d) * unit;
  if (!(error <= allowed))
    detail::raise<InvalidArgument>("basis: |U^T U - I| is ", error, ", must be at most ", allowed);
  CommutingGenerators family = *this;
  family.basis_ = std::make_shared<const Matrix<S>>(basis_ ? detail::times(U, *basis_) : U);
  return family;
}

template <class S>
Matrix<S> CommutingGenerators<S>::generator(Index k) const {
  Matrix<S> blocks = Matrix<S>::Zero(dimension(), dimension());
  for (Index u = 0; u < planes(); ++u) {
    blocks(2 * u + 1, 2 * u) = static_cast<S>(planes_.lambda(k, u));
    blocks(2 * u, 2 * u + 1) = static_cast<S>(-planes_.lambda(k, u));
  }
  return basis_ ? detail::times(detail::times(*basis_, blocks), basis_->transpose()) : blocks;
}

template <class S>
Matrix<S> CommutingGenerators<S>::identity(Index n) {
  return Matrix<S>::Identity(n, n);
}

template <class S>
Matrix<S> CommutingGenerators<S>::project(const ConstBatch<S>& x, Index first, Index count) const {
  detail::check_size("rows of the batch", x.rows(), dimension(), "dimension of the family");
  if (basis_) {
    const auto columns = detail::MatrixView<const S>(*basis_).middleCols(first, count);
    return detail::times(columns, detail::times(columns.transpose(), x));
  }
  Matrix<S> y = Matrix<S>::Zero(dimension(), x.cols());
  detail::MatrixView<S>(y).middleRows(first, count) = detail::MatrixView<const S>(x).middleRows(first, count);
  return y;
}

}  // namespace SYMPOW_NAMESPACE

/// Explicit instantiations for one scalar type; LINKAGE is `extern` where another file compiles them.
#define SYMPOW_COMMUTING_GENERATORS(LINKAGE, S) LINKAGE template class sympow::CommutingGenerators<S>;

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_COMMUTING_GENERATORS(extern, float)
SYMPOW_COMMUTING_GENERATORS(extern, double)
#endif
