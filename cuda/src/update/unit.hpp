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

  /// Makes φ of 16 tokens, those of a slab, and hands it to use(f, φ), fragment by fragment.
  template <class Use>
  SYMPOW_DEVICE void each_fragment(block::Shared<T> rows, int slab, const Use& use) const {
    using namespace block;
    Lanes<Two> phi[std::size_t{fragments}][1][4];
    if constexpr (P == 2) {
      Lanes<Two> tail[2];
      ldmatrix<false>(tail, rows, tail_at_[0] ^ (slab * 16));
      SYMPOW_UNROLL
      for (int f = 0; f < fragments; ++f) {
        SYMPOW_UNROLL
        for (int half = 0; half < 2; ++half) {
          Lanes<Two> head[2];
          load(head, rows.template as<Two>(), Rows::broadcast_place(8 * a_ + 2 * f + half, slab) / 2 + lane() % 4 * 2);
          phi[f][0][half] = multiply(head[0], tail[0]);
          phi[f][0][half + 2] = multiply(head[1], tail[1]);
        }
        use(f, phi[f]);
      }
    } else {
      Lanes<Two> head[2][4], tail[2][4];  // those of the next fragment come early
      const auto load_rows = [&](int f) {
        ldmatrix<false>(head[f % 2], rows, head_at_[f] ^ (slab * 16));
        if constexpr (P > 1) ldmatrix<false>(tail[f % 2], rows, tail_at_[f] ^ (slab * 16));
      };
      load_rows(0);
      SYMPOW_UNROLL
      for (int f = 0; f < fragments; ++f) {
        if (f + 1 < fragments) load_rows(f + 1);
        SYMPOW_UNROLL
        for (int r = 0; r < 4; ++r) {
          if constexpr (P > 1)
            phi[f][0][r] = multiply(head[f % 2][r], tail[f % 2][r]);
          else
            phi[f][0][r] = head[f % 2][r];
        }
        use(f, phi[f]);
      }
    }
  }

 private:
  static constexpr std::size_t places_ = P == 2 ? 1 : fragments;
  int first_, a_ = 0, b_ = 0;
  bool is_there_ = true;
  Lanes<int> head_at_[places_], tail_at_[places_];  // the lane's 16 bytes of tokens 0 … 15
};

}  // namespace sympow::cuda
