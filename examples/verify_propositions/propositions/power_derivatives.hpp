// The derivative of φ^P as gradients use it: by one walk over the prefixes, and along a turn of a plane.
#pragma once

#include <cmath>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/exact_scalar.hpp>
#include "propositions/dense.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// dx += Dφ^P(x)ᵀ dφ by one walk over the prefixes, whose values it works out on the way down:
///
///     node = prefix · x_i/√r:   d prefix += d node · x_i/√r,   dx_i += d node · prefix/√r
///
/// Leaves are not worked out: 2 multiply-adds a node, 2 (C(d+P, P) - 1) in all. An exact scalar has no roots: the
/// factors are squared, and dx += Dm(x)ᵀ W dφ for monomials m and weights W.
template <class S, class V = DenseVector<S>>
class PrefixWalk {
 public:
  PrefixWalk(int P, const V& x, const V& d_phi, V& dx) : P_(P), x_(x), d_phi_(d_phi), dx_(dx) {
    extend(0, S(1), -1, 0);
  }
  [[nodiscard]] Index multiply_adds() const { return multiply_adds_; }

 private:
  S extend(int level, S value, Index last, int run) {
    if (level == P_) return d_phi_[position_++];
    S adjoint(0);
    for (Index i = std::max<Index>(last, 0); i < x_.size(); ++i) {
      const int r = i == last ? run + 1 : 1;
      const S factor = factor_at(level, r);
      const S d_node = extend(level + 1, level + 1 < P_ ? value * (x_[i] * factor) : S(0), i, r);
      adjoint += d_node * (x_[i] * factor);
      dx_[i] += d_node * (value * factor);
      multiply_adds_ += 2;
    }
    return adjoint;
  }

  [[nodiscard]] S factor_at(int level, int r) const {
    if constexpr (is_exact_scalar<S>)
      return level == 0 ? S(factorial(P_)) : S(1) / S(r);
    else
      return static_cast<S>(level == 0 ? std::sqrt(static_cast<double>(factorial(P_))) : 1 / std::sqrt(r));
  }

  int P_;
  const V& x_;
  const V& d_phi_;
  V& dx_;
  Index position_ = 0, multiply_adds_ = 0;
};

/// Dφ^P(x)ᵀ dφ of every column.
template <class S>
[[nodiscard]] Dense<S> power_vjp(int P, const Dense<S>& x, const Dense<S>& d_phi) {
  Dense<S> dx = Dense<S>::zero(x.rows(), x.cols());
  for (Index t = 0; t < x.cols(); ++t) {
    DenseVector<S> of_column = DenseVector<S>::zero(x.rows());
    PrefixWalk<S>(P, x.column(t), d_phi.column(t), of_column);
    for (Index c = 0; c < x.rows(); ++c) dx(c, t) = of_column[c];
  }
  return dx;
}

/// An entry of L_u, the generator of turns of the plane of coordinates 2u and 2u + 1 on φ^P.
struct PlaneEntry {
  Index plane, row, column;
  double value;
};

/// L_u φ(x) = Dφ(x) J_u x, J(x_0, x_1) = (-x_1, x_0): (L_u)_{α, α-lo+up} = ∓√(n_lo (n_up + 1)), n the counts of α; two
/// entries a row and plane at most, skew.
[[nodiscard]] inline std::vector<PlaneEntry> plane_entries(Index d, int P) {
  const MultiIndices indices(d, P);
  std::vector<PlaneEntry> entries;
  for (Index row = 0; row < indices.size(); ++row) {
    const auto n = counts(indices[row], d);
    for (Index u = 0; u < d / 2; ++u)
      for (const bool second : {false, true}) {
        const Index lo = 2 * u + (second ? 1 : 0), up = 2 * u + (second ? 0 : 1);
        if (n[static_cast<std::size_t>(lo)] == 0) continue;
        auto alpha = indices[row];
        *std::ranges::find(alpha, lo) = up;
        const double size =
            std::sqrt(static_cast<double>(n[static_cast<std::size_t>(lo)] * (n[static_cast<std::size_t>(up)] + 1)));
        entries.push_back({u, row, indices.rank(sorted(alpha)), second ? size : -size});
      }
  }
  return entries;
}

/// ⟨H, L_u S⟩ of every plane, S Lᵀ_u being what a turn does to a state: Σ_{cα} H_{cα} Σ_β (L_u)_{αβ} S_{cβ}.
template <class S>
[[nodiscard]] DenseVector<double> through_planes(const Dense<S>& H, const Dense<S>& state, Index d, int P) {
  DenseVector<double> through = DenseVector<double>::zero(d / 2);
  for (const auto& [plane, row, column, value] : plane_entries(d, P))
    for (Index c = 0; c < H.rows(); ++c)
      through[plane] += value * static_cast<double>(H(c, row)) * static_cast<double>(state(c, column));
  return through;
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
