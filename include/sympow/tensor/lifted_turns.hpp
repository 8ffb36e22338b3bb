// The infinitesimal turns of φ^P in planes of R^d, as sparse matrices.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/choices.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// What turns of R^d do to φ^P, L_u φ(x) = Dφ(x) J_u x where J_u turns plane u: with c_lo the count of one channel of
/// the plane in α, and β = α with one `lo` made the plane's other channel `up`,
///
///     (L_u)_{α,β} = ∓ √(c_lo (c_up + 1))          - where lo is the first channel of the plane, + for the second
///
/// at most two entries a row and plane, P a row in all. Skew. Source: derivative of φ(R x) by the angle at 0.
class LiftedTurns {
 public:
  struct Entry {
    Index plane, row, column;
    double value;
  };

  /// Anew, or as they were for the same power and planes.
  void set(Index d, int P, Index planes, Pairing pairing) {
    if (d_ == d && P_ == P && planes_ == planes && pairing_ == pairing) return;
    d_ = -1;  // memory may end on the way
    P_ = P, planes_ = planes, pairing_ = pairing;
    entries_.clear();
    const MultiIndices indices(planes == 0 ? 0 : d, P);
    Index row = 0;
    for (const auto& alpha : indices) {
      for (int l = 0; l < P; ++l)
        if (alpha[l] < 2 * planes && (l == 0 || alpha[l - 1] != alpha[l])) add_entry(indices, alpha, l, row);
      ++row;
    }
    d_ = d;
  }
  /// Those that are not 0, of all planes.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  void add_entry(const MultiIndices<>& indices, const MultiIndex<>& alpha, int l, Index row) {
    const Index lo = alpha[l];
    const bool is_interleaved = pairing_ == Pairing::interleaved,
               is_first = is_interleaved ? lo % 2 == 0 : lo < planes_;
    const Index plane = is_interleaved ? lo / 2 : lo % planes_, to_other = is_interleaved ? 1 : planes_;
    const auto count = [&](Index c) { return std::count(alpha.begin(), alpha.end(), c); };
    auto beta = alpha;
    beta[l] = is_first ? lo + to_other : lo - to_other;
    const double size = std::sqrt(static_cast<double>(count(lo) * (count(beta[l]) + 1)));
    entries_.push_back({plane, row, indices.rank(sorted(beta)), is_first ? -size : size});
  }

  std::vector<Entry> entries_;
  Index d_ = -1, planes_ = 0;
  int P_ = 0;
  Pairing pairing_ = Pairing::interleaved;
};

}  // namespace SYMPOW_NAMESPACE::detail
