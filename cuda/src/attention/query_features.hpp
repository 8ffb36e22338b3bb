// φ(q̂) of the rows of a warp as left factors of tensor cores, made in registers.
#pragma once

#include "../layout/exponents.hpp"
#include "../layout/state_rows.hpp"
#include "../layout/swizzle.hpp"

namespace sympow::cuda {

/// In the order of state_rows.hpp; what a row of the state holds no monomial for is there, too, times its 0.
///
/// Columns of the product come in groups of eight: for P 2 a factor times its eight last channels, for P 3 and 4 a last
/// channel times eight factors. So a lane, who has two columns of every group, needs only two of the factors. Each
/// product of two entries is rounded to T, from the first channel on.
template <class T, int P, int d, int row_tiles>
struct QueryFeatures {
  using Two = block::Pair<T>;
  static constexpr std::size_t groups = 2 * row_tiles;
  static constexpr int octets = d / 8;
  static constexpr std::size_t kept = sizeof(T) == 2 ? 4 : 1;  // of a row's octet in registers; else a pair at a time

  block::Shared<T> queries;                     // q̂, in octet_place<d>
  int first;                                    // row of the warp
  Lanes<Two> two[groups], eight[groups][kept];  // of rows 8 g + lane / 4: what the lane's columns of a group take, and
      // what a group takes: P 2: channels of octets b and a; else factors, octet b

  /// The stages one after the other, and again from the first on: b in the outer loop. For P 1 a counts the stages.
  struct Walk {
    int a = 0, b = 0;
    SYMPOW_HOST_DEVICE constexpr void advance() {
      ++a;
      if (a == (P == 1 ? stages : stages_of_octet(P, b))) {
        a = 0;
        b = b + 1 < octets ? b + 1 : 0;
      }
    }
  };

  static constexpr int stages = state_stages(P, d);

  /// To be called before the fragments of a stage are asked for, of all stages in order.
  SYMPOW_DEVICE void enter(const Walk& stage) {
    using namespace block;
    if constexpr (P == 2) {
      load_octets(stage.a);
      if constexpr (row_tiles == 2) {
        ldmatrix<false>(two, queries, octet_place<d>(lane() + first, stage.b));
      } else {
        ldmatrix<false>(two, queries, octet_place<d>(lane() % 16 + first, stage.b));
      }
    } else if constexpr (P > 2) {
      if (stage.a == 0) load_octets(stage.b);
      load_factors(stage);
    }
  }

  /// Rows 16 tile … 16 tile + 15, monomials 16 step … 16 step + 15 of the stage.
  SYMPOW_DEVICE void fragment(Lanes<Two> (&phi)[4], const Walk& stage, int step, int tile) {
    using namespace block;
    if constexpr (P == 1) {
      ldmatrix<false>(phi, queries,
                      octet_place<d>(lane() % 16 + (first + 16 * tile), lane() / 16 + (8 * stage.a + 2 * step)));
    } else {
      SYMPOW_UNROLL
      for (int r = 0; r < 4; ++r) {
        const int g = 2 * tile + r % 2;
        if (kept == 1 && r < 2) load_octet(g, P == 2 ? stage.a : stage.b, step);
        const Lanes<Two>& one = eight[g][kept == 1 ? 0 : step];
        phi[r] = multiply(r / 2 == 0 ? both_lower(one) : both_upper(one), two[g]);
      }
    }
  }

  /// Pair n of what the groups of the stage take of row g. Not of P 1.
  SYMPOW_DEVICE Lanes<Two> pair(const Walk& stage, int g, int n) {
    if constexpr (kept == 1) load_octet(g, P == 2 ? stage.a : stage.b, n);
    return eight[g][kept == 1 ? 0 : n];
  }

 private:
  SYMPOW_DEVICE void load_octets(int octet) {
    if constexpr (kept > 1) {
      SYMPOW_UNROLL
      for (int g = 0; g < 2 * row_tiles; ++g) load_octet(g, octet, 0);
    }
  }
  /// What is kept of an octet, from its pair `from` on.
  SYMPOW_DEVICE void load_octet(int g, int octet, int from) {
    using namespace block;
    load(eight[g], queries.template as<Two>(), octet_place<d>(lane() / 4 + (first + 8 * g), octet) / 2 + from);
  }

  /// The two factors of the lane's columns. A lane finds the channels of one of the eight, its neighbours ask for them.
  SYMPOW_DEVICE void load_factors(const Walk& stage) {
    using namespace block;
    const auto own = Monomial<P - 1>::template at<d>(8 * stage.b + 8, lane() % 8 + 8 * stage.a);
    SYMPOW_UNROLL
    for (int p = 0; p < P - 1; ++p) {
      Lanes<int> at[2];
      SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Lanes<int> channel = shuffle(own.channel[p], lane() % 4 * 2 + h);
        at[h] = octet_place<d>(lane() / 4 + first, channel / 8) + channel % 8;
      }
      SYMPOW_UNROLL
      for (int g = 0; g < 2 * row_tiles; ++g) {
        Lanes<T> entry[2][1];
        SYMPOW_UNROLL
        for (int h = 0; h < 2; ++h) load(entry[h], queries, at[h] + 8 * g * d);
        const Lanes<Two> entries = join(entry[0][0], entry[1][0]);
        if (p == 0)
          two[g] = entries;
        else
          two[g] = multiply(two[g], entries);
      }
    }
  }
};

}  // namespace sympow::cuda
