// Families of rotations exp(Σ r_k L_k) from commuting skew generators: one angle a plane, linear in the position r.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include <sympow/core/checks.hpp>
#include <sympow/core/singular_values.hpp>
#include <sympow/rotation/joint_planes.hpp>
#include <sympow/rotation/skew.hpp>
#include <sympow/rotation/structured_rotation.hpp>

namespace sympow {

/// What to do with generators that commute only nearly.
enum class Commutation {
  exact,   ///< refuse them
  nearest  ///< take the nearest planes; `deviation_bound` says what that costs
};

/// Commuting skew generators L_1 … L_{d_c} of R^d in their joint planes.
///
///     L_k = U [(λ_k1 J ⊕ … ⊕ λ_km J) ⊕ 0] Uᵀ,   J = [0 -1; 1 0],   U orthogonal, max_k |λ_ku| > 0 for every plane u
///     R(r) = exp(Σ_k r_k L_k) = U [R_2(θ_1) ⊕ … ⊕ R_2(θ_m) ⊕ I] Uᵀ,   θ_u = Σ_k λ_ku r_k,   R(r)ᵀ R(s) = R(s - r)
///
/// Everything is computed in double; U is kept as Scalar, or not at all where it is the identity. Copies share U. Cost of finding U:
/// O((d_c + 10) d³), of a rotation O(d_c m). Source: Equivariant Structured Positional Rotations, Lemmas 1 and 2 (whose (3) needs
/// the condition on λ to fix m).
template <class S>
class CommutingGenerators {
  static constexpr double unit = static_cast<double>(std::numeric_limits<S>::epsilon()) / 2;

 public:
  using Scalar = S;

  /// From the matrices themselves, d × d each. A plane counts as turned by nothing if |λ_ku| ≤ 8 d u ‖L_k‖ for every k. The same seed gives the
  /// same U. Throws `ShapeMismatch`, `NotFinite`, `NotSkew`, `NotCommuting` with the pair and its commutator, and `AmbiguousRank` for a plane
  /// beyond that limit by less than a factor of 2; the last two in exact mode only. A float cannot tell the slowest planes of RoPE with base 10⁴ from d = 128
  /// on from rounding: give such generators as double, or by `from_frequencies`.
  explicit CommutingGenerators(const std::vector<Matrix<S>>& generators, Commutation mode = Commutation::exact,
                               std::uint64_t seed = 1);

  /// Planes of consecutive coordinates, 2u and 2u + 1, with frequencies Λ (d_c × m), and `null` further coordinates that nothing
  /// turns: U is the identity. Planes with Λ = 0 are allowed here. Throws `NotFinite`, `ShapeMismatch`.
  [[nodiscard]] static CommutingGenerators from_frequencies(Eigen::MatrixXd lambda, Index null = 0);

  /// The same in another basis: U is d × d and orthogonal. Throws `ShapeMismatch`, `InvalidArgument` with ‖UᵀU - I‖.
  [[nodiscard]] CommutingGenerators in_basis(const Matrix<S>& U) const;

  /// The same with U = I: for queries and keys whose projections have taken Uᵀ in already.
  [[nodiscard]] CommutingGenerators in_block_basis() const {
    CommutingGenerators family = *this;
    family.basis_ = nullptr;
    return family;
  }

  [[nodiscard]] Index dimension() const { return d_; }                            ///< d
  [[nodiscard]] Index size() const { return lambda_.rows(); }                     ///< d_c, the entries of a position
  [[nodiscard]] Index planes() const { return lambda_.cols(); }                   ///< m
  [[nodiscard]] Index active_dimension() const { return 2 * planes(); }           ///< 2m
  [[nodiscard]] Index null_dimension() const { return d_ - active_dimension(); }  ///< d - 2m

  /// Λ, d_c × m: radians of plane u per unit of coordinate k.
  [[nodiscard]] const Eigen::MatrixXd& frequencies() const { return lambda_; }
  /// U: planes first, two columns each, then what nothing turns.
  [[nodiscard]] Matrix<S> basis() const { return basis_ ? *basis_ : Matrix<S>::Identity(d_, d_); }
  /// Whether U is kept, and not the identity.
  [[nodiscard]] bool has_basis() const { return basis_ != nullptr; }

  /// ‖L_k - L̂_k‖ / ‖L_k‖, Frobenius, L̂_k being the member of the family that stands for L_k.
  [[nodiscard]] const Eigen::VectorXd& residuals() const { return residual_; }
  /// ‖[L_a, L_b]‖, Frobenius, d_c × d_c, of the generators that were given.
  [[nodiscard]] const Eigen::MatrixXd& commutators() const { return commutators_; }

  /// The smallest distance of two planes, min over u ≠ v and both orientations of max_k |λ_ku ∓ λ_kv| / ‖L_k‖; infinite for fewer than two.
  /// Planes that are closer than rounding are a matter of choice; R(r) is not.
  [[nodiscard]] double gap() const;

  /// L̂_k, dense.
  [[nodiscard]] Matrix<S> generator(Index k) const;

  /// θ = Λᵀ r, radians. Throws `ShapeMismatch` unless r has d_c entries.
  template <VectorExpression Position>
  [[nodiscard]] Eigen::VectorXd angles(const Position& r) const {
    return angles_at(r.template cast<double>());
  }

  /// R(r). Throws `ShapeMismatch` unless r has d_c entries.
  template <VectorExpression Position>
  [[nodiscard]] StructuredRotation<S> at(const Position& r) const {
    return {BlockRotation<S>(angles(r)), d_, basis_};
  }

  /// What taking L̂_k for L_k can cost: ‖exp(Σ r_k L_k) - R(r)‖ ≤ Σ_k |r_k| ‖L_k‖ residual_k, up to rounding.
  template <VectorExpression Position>
  [[nodiscard]] double deviation_bound(const Position& r) const {
    return deviation_bound_at(r.template cast<double>());
  }

  /// Π_act X: the part that turns.
  template <MatrixExpression X>
  [[nodiscard]] Matrix<S> project_active(const X& x) const {
    return projected(ConstBatch<S>(x), 0, active_dimension());
  }
  /// Π_null X = X - Π_act X: the part that nothing turns.
  template <MatrixExpression X>
  [[nodiscard]] Matrix<S> project_null(const X& x) const {
    return projected(ConstBatch<S>(x), active_dimension(), null_dimension());
  }

  /// Throws `RankDeficient` unless Λ has rank d_c, that is unless only r = 0 turns nothing.
  void require_full_rank() const {
    const Eigen::VectorXd s = detail::singular_values(lambda_);
    const double limit = s.size() > 0 ? 8 * static_cast<double>(d_) * unit * s[0] : 0;
    const Index rank = std::count_if(s.data(), s.data() + s.size(), [=](double value) { return value > limit; });
    if (rank >= size()) return;
    detail::raise<RankDeficient>("frequencies: rank is ", rank, ", must be ", size(), ", or some r turn nothing");
  }
  /// Throws `EmptyActiveSpace` if no plane turns.
  void require_active() const {
    if (planes() == 0)
      detail::raise<EmptyActiveSpace>("the family of dimension ", d_, " has no plane that turns, must have one");
  }

 private:
  CommutingGenerators() = default;

  // Sets d and the norms; returns L_k / ‖L_k‖.
  std::vector<Eigen::MatrixXd> checked(const std::vector<Matrix<S>>& generators);
  // Active planes first.
  void take(const detail::PlaneBlocks<double>& blocks, const Eigen::MatrixXd& U, Commutation mode, double tolerance);

  // What takes any expression above does its work here.
  [[nodiscard]] Eigen::VectorXd angles_at(const Eigen::VectorXd& r) const;
  [[nodiscard]] double deviation_bound_at(const Eigen::VectorXd& r) const;
  [[nodiscard]] Matrix<S> projected(const ConstBatch<S>& x, Index first, Index count) const;

  Index d_ = 0;
  Eigen::MatrixXd lambda_, commutators_;
  Eigen::VectorXd norms_, residual_;  // Frobenius norms of the generators
  std::shared_ptr<const Matrix<S>> basis_;
};

// ---- how it is done ----

template <class S>
CommutingGenerators<S>::CommutingGenerators(const std::vector<Matrix<S>>& generators, Commutation mode,
                                            std::uint64_t seed) {
  const std::vector<Eigen::MatrixXd> scaled = checked(generators);
  const double tolerance = 8 * static_cast<double>(d_) * unit;
  commutators_ = Eigen::MatrixXd::Zero(norms_.size(), norms_.size());
  for (Index a = 0; a < norms_.size(); ++a)
    for (Index b = a + 1; b < norms_.size(); ++b) {
      const auto &x = scaled[static_cast<std::size_t>(a)], &y = scaled[static_cast<std::size_t>(b)];
      const Eigen::MatrixXd xy = x * y;
      const double size = (xy - xy.transpose()).norm();  // (x y)ᵀ = y x
      commutators_(a, b) = commutators_(b, a) = size * norms_[a] * norms_[b];
      if (mode == Commutation::exact && size > tolerance)
        detail::raise<NotCommuting>("generators ", a, " and ", b, ": |[L_a, L_b]| is ", size,
                                    " |L_a| |L_b|, must be at most ", tolerance, "; see Commutation::nearest");
    }
  const Eigen::MatrixXd U = detail::polished_planes(scaled, detail::joint_planes(scaled, d_, seed));
  take(detail::PlaneBlocks(scaled, U), U, mode, tolerance);
}

template <class S>
CommutingGenerators<S> CommutingGenerators<S>::from_frequencies(Eigen::MatrixXd lambda, Index null) {
  if (null < 0) detail::raise<ShapeMismatch>("frequencies: the null dimension is ", null, ", must not be negative");
  for (Index u = 0; u < lambda.cols(); ++u)
    for (Index k = 0; k < lambda.rows(); ++k)
      if (!std::isfinite(lambda(k, u)))
        detail::raise<NotFinite>("frequencies: (", k, ", ", u, ") is ", lambda(k, u), ", must be finite");
  CommutingGenerators family;
  family.d_ = 2 * lambda.cols() + null;
  family.norms_ = std::sqrt(2.) * lambda.rowwise().norm();
  family.residual_ = Eigen::VectorXd::Zero(lambda.rows());
  family.commutators_ = Eigen::MatrixXd::Zero(lambda.rows(), lambda.rows());
  family.lambda_ = std::move(lambda);
  return family;
}

template <class S>
CommutingGenerators<S> CommutingGenerators<S>::in_basis(const Matrix<S>& U) const {
  detail::check_size("rows of the basis", U.rows(), d_, "dimension of the family");
  detail::check_size("columns of the basis", U.cols(), d_, "dimension of the family");
  const double error = (U.transpose() * U - Matrix<S>::Identity(d_, d_)).norm();
  const double allowed = 16 * static_cast<double>(d_) * unit;
  if (!(error <= allowed))
    detail::raise<InvalidArgument>("basis: |U^T U - I| is ", error, ", must be at most ", allowed);
  CommutingGenerators family = *this;
  family.basis_ = std::make_shared<const Matrix<S>>(basis_ ? Matrix<S>(U * *basis_) : U);
  return family;
}

template <class S>
double CommutingGenerators<S>::gap() const {
  double least = std::numeric_limits<double>::infinity();
  for (Index u = 0; u < planes(); ++u)
    for (Index v = u + 1; v < planes(); ++v)
      for (const double sign : {1., -1.}) {
        double distance = 0;
        for (Index k = 0; k < size(); ++k)
          if (norms_[k] > 0) distance = std::max(distance, std::abs(lambda_(k, u) - sign * lambda_(k, v)) / norms_[k]);
        least = std::min(least, distance);
      }
  return least;
}

template <class S>
Matrix<S> CommutingGenerators<S>::generator(Index k) const {
  Matrix<S> blocks = Matrix<S>::Zero(d_, d_);
  for (Index u = 0; u < planes(); ++u) {
    blocks(2 * u + 1, 2 * u) = static_cast<S>(lambda_(k, u));
    blocks(2 * u, 2 * u + 1) = static_cast<S>(-lambda_(k, u));
  }
  return basis_ ? Matrix<S>(*basis_ * blocks * basis_->transpose()) : blocks;
}

template <class S>
Eigen::VectorXd CommutingGenerators<S>::angles_at(const Eigen::VectorXd& r) const {
  detail::check_size("entries of the position", r.size(), size(), "generators of the family");
  return lambda_.transpose() * r;
}

template <class S>
double CommutingGenerators<S>::deviation_bound_at(const Eigen::VectorXd& r) const {
  detail::check_size("entries of the position", r.size(), size(), "generators of the family");
  return (r.cwiseAbs().array() * norms_.array() * residual_.array()).sum();
}

template <class S>
std::vector<Eigen::MatrixXd> CommutingGenerators<S>::checked(const std::vector<Matrix<S>>& generators) {
  if (generators.empty()) detail::raise<InvalidArgument>("generators: there are 0, must be at least 1");
  d_ = generators.front().rows();
  norms_.resize(static_cast<Index>(generators.size()));
  std::vector<Eigen::MatrixXd> scaled;
  for (std::size_t n = 0; n < generators.size(); ++n) {
    const Matrix<S>& given = generators[n];
    const auto k = static_cast<Index>(n);
    if (given.rows() != d_ || given.cols() != d_)
      detail::raise<ShapeMismatch>("generator ", k, " is ", given.rows(), " x ", given.cols(), ", must be ", d_, " x ",
                                   d_);
    const Eigen::MatrixXd L = detail::checked_skew("generator " + std::to_string(k), given);
    norms_[k] = L.stableNorm();
    scaled.push_back(norms_[k] > 0 ? Eigen::MatrixXd(L / norms_[k]) : L);
  }
  return scaled;
}

template <class S>
void CommutingGenerators<S>::take(const detail::PlaneBlocks<double>& blocks, const Eigen::MatrixXd& U, Commutation mode,
                                  double tolerance) {
  std::vector<Index> active, null;
  residual_ = blocks.residual.cwiseAbs2();
  const double worst = blocks.worst();
  if (mode == Commutation::exact && worst > 2 * tolerance)
    detail::raise<NotCommuting>("generators: the residual of their joint planes is ", worst, ", must be at most ",
                                2 * tolerance);
  for (Index u = 0; u < blocks.lambda.cols(); ++u) {
    const double size = blocks.lambda.col(u).cwiseAbs().maxCoeff();
    if (size <= tolerance) {
      null.push_back(u);
      residual_ += 2 * blocks.lambda.col(u).cwiseAbs2();
    } else {
      active.push_back(u);
      if (mode == Commutation::exact && size <= 2 * tolerance)
        detail::raise<AmbiguousRank>("plane ", u, ": its frequencies are at most ", size,
                                     " of their generators, and rounding leaves ", tolerance, " to ", 2 * tolerance,
                                     " open");
    }
  }
  residual_ = residual_.cwiseSqrt();
  lambda_.resize(norms_.size(), static_cast<Index>(active.size()));
  Eigen::MatrixXd ordered = U;
  Index column = 0;
  for (const auto* planes : {&active, &null})
    for (const Index u : *planes) {
      if (planes == &active) lambda_.col(column / 2) = blocks.lambda.col(u).cwiseProduct(norms_);
      ordered.middleCols(column, 2) = U.middleCols(2 * u, 2);
      column += 2;
    }
  basis_ = std::make_shared<const Matrix<S>>(ordered.template cast<S>());
}

template <class S>
Matrix<S> CommutingGenerators<S>::projected(const ConstBatch<S>& x, Index first, Index count) const {
  detail::check_size("rows of the batch", x.rows(), d_, "dimension of the family");
  if (basis_) return basis_->middleCols(first, count) * (basis_->middleCols(first, count).transpose() * x);
  Matrix<S> y = Matrix<S>::Zero(d_, x.cols());
  y.middleRows(first, count) = x.middleRows(first, count);
  return y;
}

}  // namespace sympow

#ifdef SYMPOW_COMPILED_FORMS
extern template class sympow::CommutingGenerators<float>;
extern template class sympow::CommutingGenerators<double>;
#endif
