// What flows through a segment between a state before it and an adjoint state behind it.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/detail/state_sums.hpp>
#include <sympow/simd/blocks.hpp>
#include <sympow/simd/product.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// ⟨column i of [H; Z_H], column j of [S; Z]⟩, without their exponents.
template <class Scalar>
double column_product(const StateSums<Scalar>& H, Index i, const StateSums<Scalar>& S, Index j) {
  const Index e = S.S.rows();
  return static_cast<double>(dot_product(H.S.data() + i * e, S.S.data() + j * e, e)) +
         static_cast<double>(H.Z[i]) * static_cast<double>(S.Z[j]);
}

/// ⟨[H; Z_H], [S; Z]⟩ without their exponents.
template <class Scalar>
double inner_product(const StateSums<Scalar>& H, const StateSums<Scalar>& S) {
  return static_cast<double>(dot_product(H.S.data(), S.S.data(), S.S.size())) +
         static_cast<double>(dot_product(H.Z.data(), S.Z.data(), S.Z.size()));
}

/// flows_c += Σ_α n_αc x_α for numbers x of the monomials α of d channels, n_αc the count of c in α.
inline void add_channel_counts(Index d, int P, ColumnView<const double> x, ColumnView<double> flows) {
  Index row = 0;
  for (const auto& alpha : MultiIndices(d, P)) {
    for (const Index c : alpha) flows[c] += x[row];
    ++row;
  }
}

/// The infinitesimal turns of φ^P in the planes of R^d, L_u φ(x) = Dφ(x) J_u x: with c_lo the count of one channel of
/// the plane in α, and β = α with one `lo` made an `up`,
///
///     (L_u)_{α,β} = ∓ √(c_lo (c_up + 1))          - where lo is the first channel of the plane, + for the second
///
/// at most two entries a row and plane, P a row in all. Skew. Source: derivative of φ(R x) by the angle at 0.
class LiftedTurns {
 public:
  /// Anew, or as they were for the same power and planes.
  void set(Index d, int P, const Planes& planes) {
    if (d_ == d && P_ == P && count_ == planes.count && pairing_ == planes.pairing) return;
    d_ = -1;  // memory may end on the way
    P_ = P, count_ = planes.count, pairing_ = planes.pairing;
    set_entries(d, P, planes);
    d_ = d;
  }

  /// flows_u += factor ⟨H⁺, L_u S⁺⟩, by short sums of a plane's entries.
  template <class Scalar>
  void add(const StateSums<Scalar>& H, const StateSums<Scalar>& S, double factor, double* flows) const {
    for (auto first = entries_.begin(), end = first; first != entries_.end(); first = end) {
      double sum = 0;
      for (; end != entries_.end() && end - first < short_sum && end->plane == first->plane; ++end)
        sum += end->value * static_cast<double>(H.Z[end->row]) * static_cast<double>(S.Z[end->column]);
      for_blocks<64>(S.S.rows(), [&](Index begin, auto count) {
        using Some = Eigen::Array<Scalar, block_size<decltype(count)>, 1, 0, 64, 1>;
        const auto some = [&](const StateSums<Scalar>& of, Index column) {
          return Eigen::Map<const Some>(of.S.data() + column * of.S.rows() + begin, count);
        };
        Some terms = Some::Zero(count);
        for (auto x = first; x != end; ++x)
          terms += static_cast<Scalar>(x->value) * (some(H, x->row) * some(S, x->column));
        sum += static_cast<double>(terms.sum());
      });
      flows[first->plane] += factor * sum;
    }
  }

 private:
  static Index count(const MultiIndex<>& alpha, Index c) { return std::count(alpha.begin(), alpha.end(), c); }

  void set_entries(Index d, int P, const Planes& planes) {
    entries_.clear();
    if (planes.count == 0) return;  // positions turn everything, and nothing flows
    const MultiIndices indices(d, P);
    Index row = 0;
    for (const auto& alpha : indices) {
      for (int l = 0; l < P; ++l) {
        const Index lo = alpha[l];
        if (lo >= 2 * planes.count || (l > 0 && alpha[l - 1] == lo))
          continue;  // a channel that does not turn, or again
        const bool is_first = planes.pairing == Pairing::interleaved ? lo % 2 == 0 : lo < planes.count;
        const Index u = planes.pairing == Pairing::interleaved ? lo / 2 : lo % planes.count,
                    up = is_first ? planes.second(u) : planes.first(u);
        auto beta = alpha;
        beta[l] = up;
        const double size = std::sqrt(static_cast<double>(count(alpha, lo) * (count(alpha, up) + 1)));
        entries_.push_back({u, row, indices.rank(sorted(beta)), is_first ? -size : size});
      }
      ++row;
    }
    std::ranges::sort(entries_, {}, [](const Entry& x) { return std::tuple(x.plane, x.row, x.column); });
  }

  struct Entry {
    Index plane, row, column;
    double value;
  };
  std::vector<Entry> entries_;
  Index d_ = -1, count_ = 0;
  int P_ = 0;
  Pairing pairing_ = Pairing::interleaved;
};

}  // namespace SYMPOW_NAMESPACE::detail
