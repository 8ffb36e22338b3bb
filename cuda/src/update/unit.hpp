// The monomials of a warp as left factors of tensor cores.
#pragma once

#include "token_rows.hpp"

namespace sympow::cuda {

/// A unit is 16 `fragments` monomials, as many as a warp has sums for.
///
/// P 2: a pair of octets a ≤ b of channels, 64 products w k̂_i · k̂_j. The rows of octet b stay in registers while those of
/// octet a come one by one, a number for all lanes of a row. Where a = b those with i > j are in vain: d = 64 takes 2304
/// products for 2080 monomials.
/// Else: neighbours in lexicographic order; both rows by ldmatrix, which reads any rows.
template <class T, int P, int d, int tokens>
class Unit {
  using Two = block::Pair<T>;
  using Rows = TokenRows<T, P, d, tokens>;
  static constexpr int D = monomial_count(P, d), octets = d / 8;

 public:
  static constexpr int fragments = P == 2 ? 4 : 5;
  static constexpr int count = P == 2 ? octets * (octets + 1) / 2 : (D + 16 * fragments - 1) / (16 * fragments);

  /// One beyond the last has no monomials.
  SYMPOW_DEVICE explicit Unit(int unit) : first_(unit * fragments * 16) {
    if constexpr (P == 2) {
      is_there_ = unit < count;
      a_ = is_there_ ? unit : 0;
      while (a_ > b_) a_ -= ++b_;
      tail_at_[0] = Rows::place((block::lane() & 7) + (8 * b_ + Rows::head_rows), (block::lane() >> 3) & 1);
    } else {
      SYMPOW_UNROLL
      for (int f = 0; f < fragments; ++f) {
        const auto p = Rows::places(block::lane() % 16 + (first_ + f * 16));
        head_at_[f] = Rows::place(p.head, block::lane() / 16);
        tail_at_[f] = Rows::place(p.tail, block::lane() / 16);
      }
    }
  }

  /// The monomial of row 16 f + 8 half + lane / 4 of the unit, -1 where there is none.
  SYMPOW_DEVICE Lanes<int> monomial(int f, int half) const {
    if constexpr (P == 2) {
      const int i = 8 * a_ + 2 * f + half;
      const Lanes<int> j = block::lane() / 4 + 8 * b_;
      return block::where(j >= i && is_there_, pair_place(d, i, j), Lanes<int>(-1));
    } else {
      const Lanes<int> m = block::lane() / 4 + (first_ + 16 * f + 8 * half);
      return block::where(m < D, m, Lanes<int>(-1));
    }
  }

  /// Loads what comes first of a slab, 16 tokens.
  SYMPOW_DEVICE void load_rows(block::Shared<T> rows, int slab) {
    using namespace block;
    if constexpr (P == 2) {
      ldmatrix<false>(tail_[0], rows, tail_at_[0] ^ (slab * 16));
      const auto words = rows.template as<Two>();
      SYMPOW_UNROLL
      for (int i = 0; i < 8; ++i)
        load(head_[i], words, (Rows::broadcast_place(i, slab) >> 1) + (a_ * 4 * tokens + lane() % 4 * 2));
    } else {
      load_fragment(rows, slab, 0);
    }
  }

  /// φ of a slab whose first rows are loaded, handed to use(f, φ) fragment by fragment; loads the first of the next slab.
  template <class Use>
  SYMPOW_DEVICE void each_fragment(block::Shared<T> rows, int slab, int next, bool has_next, const Use& use) {
    using namespace block;
    Lanes<Two> phi[std::size_t{fragments}][1][4];
    if constexpr (P == 2) {
      SYMPOW_UNROLL
      for (int f = 0; f < fragments; ++f) SYMPOW_UNROLL
      for (int r = 0; r < 4; ++r) phi[f][0][r] = multiply(head_[2 * f + r % 2][r / 2], tail_[0][r / 2]);
      if (has_next) load_rows(rows, next);
      SYMPOW_UNROLL
      for (int f = 0; f < fragments; ++f) use(f, phi[f]);
    } else {
      SYMPOW_UNROLL
      for (int f = 0; f < fragments; ++f) {
        if (f + 1 < fragments) load_fragment(rows, slab, f + 1);
        SYMPOW_UNROLL
        for (int r = 0; r < 4; ++r) {
          if constexpr (P > 1)
            phi[f][0][r] = multiply(head_[f % 2][r], tail_[f % 2][r]);
          else
            phi[f][0][r] = head_[f % 2][r];
        }
        use(f, phi[f]);
      }
      if (has_next) load_rows(rows, next);
    }
  }

 private:
  static constexpr std::size_t places_ = P == 2 ? 1 : fragments;
  int first_, a_ = 0, b_ = 0;
  bool is_there_ = true;
  Lanes<int> head_at_[places_], tail_at_[places_];  // the lane's 16 bytes of tokens 0 … 15
  Lanes<Two> head_[P == 2 ? 8 : 2][P == 2 ? 2 : 4], tail_[P == 2 ? 1 : 2][P == 2 ? 2 : 4];

  SYMPOW_DEVICE void load_fragment(block::Shared<T> rows, int slab, int f) {
    block::ldmatrix<false>(head_[f % 2], rows, head_at_[f] ^ (slab * 16));
    if constexpr (P > 1) block::ldmatrix<false>(tail_[f % 2], rows, tail_at_[f] ^ (slab * 16));
  }
};

}  // namespace sympow::cuda
