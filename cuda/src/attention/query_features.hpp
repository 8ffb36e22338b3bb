// φ(q̂) of the rows of a warp as left factors of tensor cores, made in registers.
#pragma once

#include "../layout/monomials.hpp"
#include "../layout/swizzle.hpp"

namespace sympow::cuda {

/// Monomials that differ in their last channel only, which lies in one octet of channels, are a group: a factor, the
/// product of the first P - 1 channels, times the octet. A stage is eight groups, 64 monomials:
///   P 1: eight octets    P 2: channels 8 a … 8 a + 7 times octet b ≥ a
/// Where a = b half of the pairs (i, j) exist, those with i ≤ j; the rows of the others in the state count as 0. So d = 64
/// takes 2304 monomials in place of 2080.
template <class T, int P, int d, int row_tiles>
struct QueryFeatures {
  using Two = block::Pair<T>;
  static constexpr std::size_t groups = 2 * row_tiles;
  static constexpr int octets = d / 8, stages = P == 1 ? octets / 8 : octets * (octets + 1) / 2;

  block::Shared<T> queries;                      // q̂, in octet_place<d>
  int first;                                     // row of the warp
  Lanes<Two> octet[groups], factors[groups][4];  // of rows 8 g + lane / 4: octet b, all of octet a

  /// The stages one after the other: octets a ≤ b, b in the outer loop. For P 1 a counts the stages.
  struct Walk {
    int a = 0, b = 0;
    SYMPOW_DEVICE void advance() {
      ++a;
      if (P > 1 && a > b) {
        a = 0;
        ++b;
      }
    }
    /// The monomial of row r of the stage in the state, -1 where there is none.
    SYMPOW_DEVICE Lanes<int> monomial(Lanes<int> r) const {
      if constexpr (P == 1) {
        return r + a * 64;
      } else {
        const Lanes<int> i = (r >> 3) + 8 * a, j = (r & 7) + 8 * b;
        return block::where(i <= j, pair_place(d, i, j), Lanes<int>(-1));
      }
    }
  };

  /// To be called before the fragments of a stage are asked for.
  SYMPOW_DEVICE void enter(const Walk& stage) {
    using namespace block;
    if constexpr (P == 2) {
      SYMPOW_UNROLL
      for (int g = 0; g < 2 * row_tiles; ++g)
        load(factors[g], queries.template as<Two>(), octet_place<d>(lane() / 4 + (first + 8 * g), stage.a) / 2);
      if constexpr (row_tiles == 2) {
        ldmatrix<false>(octet, queries, octet_place<d>(lane() + first, stage.b));
      } else {
        ldmatrix<false>(octet, queries, octet_place<d>(lane() % 16 + first, stage.b));
      }
    }
  }

  /// Rows 16 tile … 16 tile + 15, monomials 16 step … 16 step + 15 of the stage.
  SYMPOW_DEVICE void fragment(Lanes<Two> (&phi)[4], const Walk& stage, int step, int tile) const {
    using namespace block;
    if constexpr (P == 1) {
      ldmatrix<false>(phi, queries,
                      octet_place<d>(lane() % 16 + (first + 16 * tile), lane() / 16 + (8 * stage.a + 2 * step)));
    } else {
      SYMPOW_UNROLL
      for (int r = 0; r < 4; ++r) {
        const int group = 2 * step + r / 2, g = 2 * tile + r % 2;
        phi[r] =
            multiply(group % 2 == 0 ? both_lower(factors[g][group / 2]) : both_upper(factors[g][group / 2]), octet[g]);
      }
    }
  }
};

}  // namespace sympow::cuda
