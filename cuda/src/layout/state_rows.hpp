// The rows of a state between chunks, in the order in which queries read them.
#pragma once

#include "monomials.hpp"

namespace sympow::cuda {

/// A monomial is a factor, the product of its first P - 1 channels, times its last channel. A stage is 64 rows, eight
/// factors times one octet b of last channels:
///   P 1: eight octets (no factor)    P 2: channels 8 a … 8 a + 7    P 3, 4: monomials 8 a … 8 a + 7, in lexicographic
///   order, of degree P - 1 in the channels 0 … 8 b + 7
/// with a in the inner loop. For P 2 rows are a factor's eight last channels after each other, for P 3 and 4 a last
/// channel's eight factors. Rows whose last channel comes before one of the factor, or whose factor is beyond the last,
/// are no monomials; they hold 0. So a state has more rows than D:
///   P, d      1, 64   2, 16   2, 32   2, 64   2, 128   3, 16   3, 32   4, 16    4, 32
///   D            64     136     528    2080     8256     816    5984    3876    52360
///   rows         64     192     640    2304     8704    1408    8064    7488    76160
inline constexpr int stage_rows = 64;

/// Stages of octet b of last channels.
SYMPOW_HOST_DEVICE constexpr int stages_of_octet(int P, int b) {
  return P == 1 ? (b % 8 == 0 ? 1 : 0) : (monomial_count(P - 1, 8 * b + 8) + 7) / 8;
}
SYMPOW_HOST_DEVICE constexpr int state_stages(int P, int d) {
  int count = 0;
  for (int b = 0; b < d / 8; ++b) count += stages_of_octet(P, b);
  return count;
}
SYMPOW_HOST_DEVICE constexpr int state_rows(int P, int d) { return stage_rows * state_stages(P, d); }

/// The monomial in a row, in lexicographic order; -1 of a row that holds none, as those beyond the last.
SYMPOW_DEVICE block::Lanes<int> monomial_of_row(int P, int d, block::Lanes<int> row) {
  using block::Lanes, block::where;
  if (P == 1) return where(row < d, row, Lanes<int>(-1));
  const Lanes<int> stage = row / stage_rows, within = row % stage_rows;
  Lanes<int> octet = 0, a = stage;
  int before = 0;
  for (int b = 0; b < d / 8; ++b) {
    octet = where(stage >= before, Lanes<int>(b), octet);
    a = where(stage >= before, stage - before, a);
    before += stages_of_octet(P, b);
  }
  if (P == 2) {
    const Lanes<int> i = within / 8 + a * 8, j = within % 8 + octet * 8;
    return where(i <= j, pair_place(d, i, j), Lanes<int>(-1));
  }
  const Lanes<int> factor = within % 8 + a * 8, last = within / 8 + octet * 8, channels = octet * 8 + 8;
  Lanes<int> m = factor, place = 0, from = 0;
  SYMPOW_UNROLL
  for (int left = largest_power - 1; left > 0; --left) {  // channels of the factor
    if (left > P - 1) continue;
    const Lanes<int> channel = first_channel<most_channels>(left, channels, m, from);
    m = m - count_before(left, channels, from, channel);
    place = place + count_before(left + 1, d, from, channel);
    from = channel;
  }
  return where(factor < monomial_count(P - 1, channels) && from <= last, place + (last - from), Lanes<int>(-1));
}

}  // namespace sympow::cuda
