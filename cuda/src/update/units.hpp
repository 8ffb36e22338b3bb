// Which monomials a warp of Update has, and the rows of heads and tails that make them.
#pragma once

#include "../layout/exponents.hpp"
#include "token_rows.hpp"

namespace sympow::cuda {

/// A unit is 16 `fragments` monomials:
///   P 2    2 `fragments` heads times an octet of tails, which all fragments share: a fragment is two heads. Monomials
///          whose tail comes before the head do not exist
///   else   neighbours in lexicographic order
/// So P 2 takes 192, 640, 2304, 8704 places for 136, 528, 2080, 8256 monomials.
template <class TokenRows, int P, int d, int fragments>
struct Units {
  static constexpr bool shares_tails = P == 2;
  static constexpr int D = monomial_count(P, d), size = 16 * fragments;
  static constexpr int heads = 2 * fragments, of_octet = 8 / heads;  // P 2: units of an octet of heads and one of tails
  static_assert(!shares_tails || 8 % heads == 0);
  static constexpr int count = shares_tails ? of_octet * monomial_count(2, d / 8) : (D + size - 1) / size;

  int first, octet = 0;  // P 2: its first head, and its octet of tails; else its first monomial

  SYMPOW_DEVICE explicit Units(int unit) : first(unit * size) {
    if constexpr (shares_tails) {
      while (unit >= of_octet * (octet + 1) && octet < d / 8 - 1) unit -= of_octet * ++octet;
      first = unit * heads;
    }
  }

  /// Rows of head and tail of the unit's monomial n; of one beyond the last, any.
  SYMPOW_DEVICE typename TokenRows::Places places(Lanes<int> n) const {
    if constexpr (shares_tails) {
      const Lanes<int> head = smaller((n >> 3) + first, Lanes<int>(d - 1));
      return {head, (n & 7) + (8 * octet + TokenRows::head_rows)};
    } else {
      return TokenRows::places(n + first);
    }
  }
  /// Its place in lexicographic order; -1 of one that does not exist.
  SYMPOW_DEVICE Lanes<int> monomial(Lanes<int> n) const {
    if constexpr (shares_tails) {
      const Lanes<int> i = (n >> 3) + first, j = (n & 7) + 8 * octet;
      return block::where(i <= j, pair_place(d, i, j), Lanes<int>(-1));
    } else {
      return block::where(n + first < D, n + first, Lanes<int>(-1));
    }
  }
};

}  // namespace sympow::cuda
