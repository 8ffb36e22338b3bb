// Rows in units of a power of 2, as gradients multiply them.
#pragma once

#include <type_traits>

#include "../layout/exponents.hpp"
#include "../layout/sequences.hpp"

namespace sympow::cuda {

/// How a warp reads rows of up to 256 channels: octets, neighbouring lanes a row.
struct OctetLanes {
  int lanes, rows;  ///< lanes a row, a power of 2, and rows at once
  Lanes<int> row, octet;

  SYMPOW_DEVICE explicit OctetLanes(int channels) {
    const int octets = channels / 8, shift = octets <= 4 ? 2 : octets <= 8 ? 3 : octets <= 16 ? 4 : 5;
    lanes = 1 << shift;
    rows = 32 >> shift;
    row = block::lane() >> shift;
    octet = block::lane() & (lanes - 1);
  }
  /// f(a, b) of all lanes of a row.
  template <class X, class F>
  SYMPOW_DEVICE Lanes<X> reduce(Lanes<X> x, const F& f) const {
    for (int mask = 1; mask < lanes; mask *= 2) x = f(x, block::shuffle_xor(x, mask));
    return x;
  }
};

/// An octet of a row, as floats.
struct OctetOfRow {
  Lanes<float> entries[8];

  template <class U>
  SYMPOW_DEVICE OctetOfRow(Global<U> from, Lanes<std::int64_t> at, Lanes<bool> exists) {
    using namespace block;
    using T = std::remove_const_t<U>;
    Lanes<Pair<T>> pairs[4];
    SYMPOW_UNROLL
    for (int p = 0; p < 4; ++p) pairs[p] = Pair<T>{};
    load(pairs, from, at, exists);
    SYMPOW_UNROLL
    for (int p = 0; p < 4; ++p) {
      entries[2 * p] = lower(pairs[p]);
      entries[2 * p + 1] = upper(pairs[p]);
    }
  }
  SYMPOW_DEVICE Lanes<float> largest() const {
    Lanes<float> most = 0.f;
    SYMPOW_UNROLL
    for (int c = 0; c < 8; ++c) most = larger(most, block::absolute(entries[c]));
    return most;
  }
  /// 0 in its place, whatever it is.
  SYMPOW_DEVICE void drop(Lanes<bool> where_it_is) {
    SYMPOW_UNROLL
    for (int c = 0; c < 8; ++c) entries[c] = block::where(where_it_is, Lanes<float>(0.f), entries[c]);
  }
  /// Times a power of 2, rounded to T.
  template <class T>
  SYMPOW_DEVICE void scale(Lanes<float> by) {
    using namespace block;
    SYMPOW_UNROLL
    for (int p = 0; p < 4; ++p) {
      const Lanes<Pair<T>> two = pack<T>(entries[2 * p] * by, entries[2 * p + 1] * by);
      entries[2 * p] = lower(two);
      entries[2 * p + 1] = upper(two);
    }
  }
  /// Stores it times a power of 2.
  template <class T>
  SYMPOW_DEVICE void store_scaled(Global<T> to, Lanes<std::int64_t> at, Lanes<float> scale, Lanes<bool> exists) const {
    using namespace block;
    Lanes<Pair<T>> pairs[4];
    SYMPOW_UNROLL
    for (int p = 0; p < 4; ++p) pairs[p] = pack<T>(entries[2 * p] * scale, entries[2 * p + 1] * scale);
    store(to, at, pairs, exists);
  }
};

}  // namespace sympow::cuda
