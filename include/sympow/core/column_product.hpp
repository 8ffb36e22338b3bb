// Products with one column, and of one column with another.
#pragma once

#include <algorithm>

#include <sympow/core/packed_product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A b and a · b by packets, and by short sums.
template <class Scalar>
class ColumnProduct {
  using Packet = packets::Packet<Scalar>;
  static constexpr int lanes = packets::lanes<Scalar>;

 public:
  /// The depths that sums of sums of sums are enough for.
  static constexpr Index column_depth = short_sum * panel_depth, dot_depth = panel_depth * lanes;

  /// c ← A b or c += A b for up to `column_depth` columns of A, entries side by side, `right` between columns.
  static void times_column(bool add, Index rows, Index depth, const Scalar* a, Index right, const Scalar* b,
                           Scalar* c) {
    Index i = 0;
    for (; rows - i >= 4 * lanes; i += 4 * lanes) rows_times_column<4>(add, 4 * lanes, depth, a + i, right, b, c + i);
    if (rows - i >= 3 * lanes) {  // a strip
      rows_times_column<3>(add, 3 * lanes, depth, a + i, right, b, c + i);
      i += 3 * lanes;
    } else if (rows - i >= 2 * lanes) {
      rows_times_column<2>(add, 2 * lanes, depth, a + i, right, b, c + i);
      i += 2 * lanes;
    }
    for (; i < rows; i += lanes)
      rows_times_column<1>(add, std::min<Index>(lanes, rows - i), depth, a + i, right, b, c + i);
  }

  /// a · b of at most `dot_depth` entries; eight sums at a time hide how long one takes.
  static Scalar dot(Index depth, const Scalar* a, const Scalar* b) {
    using namespace packets;
    constexpr int chains = 8;
    constexpr Index step = chains * lanes;
    const Index whole = depth / step * step, packets = depth / lanes * lanes;
    const auto times = [&](Index k, const Packet& sum) __attribute__((always_inline)) {
      return pmadd(ploadu<Packet>(a + k), ploadu<Packet>(b + k), sum);
    };
    Packet sum = pset1<Packet>(Scalar(0));
    Index k = 0;
    if (whole > 0) {
      Packet sums[chains];
      unrolled<chains>([&](auto n) { sums[n] = sum; });
      while (k < whole) {
        Packet terms[chains];
        unrolled<chains>([&](auto n) { terms[n] = pset1<Packet>(Scalar(0)); });
        for (const Index end = std::min(whole, k + short_sum * step); k < end; k += step)
          unrolled<chains>([&](auto n) { terms[n] = times(k + n * lanes, terms[n]); });
        unrolled<chains>([&](auto n) { sums[n] = padd(sums[n], terms[n]); });
      }
      unrolled<chains>([&](auto n) { sum = padd(sum, sums[n]); });
    }
    Packet few = pset1<Packet>(Scalar(0));
    for (; k < packets; k += lanes) few = times(k, few);
    Scalar rest(0);
    for (; k < depth; ++k) rest += a[k] * b[k];
    return predux(padd(sum, few)) + rest;
  }

  /// c ← A b or c += A b in one addition, however deep, for rows of A with their entries side by side. The bits of a
  /// row do not depend on how many others there are.
  static void dots(bool add, Index rows, Index depth, Strided<const Scalar*> A, const Scalar* b, Strided<Scalar*> c) {
    Index i = 0;
    const auto some = [&]<int count>(std::integral_constant<int, count>) {
      for (; i + count <= rows; i += count) {
        Scalar sums[size_of(count)];
        dots_of<count>(depth, A.at(i, 0), b, sums);
        store<Scalar>(add, count, 1, sums, count, c.at(i, 0));
      }
    };
    some(std::integral_constant<int, lanes>());
    if constexpr (lanes > 2) some(std::integral_constant<int, lanes / 2>());
    some(std::integral_constant<int, 1>());
  }

 private:
  // sums_i ← a_i · b of so many rows, in short sums of packets.
  template <int rows>
  static void dots_of(Index depth, Strided<const Scalar*> A, const Scalar* b, Scalar* sums) {
    constexpr Index most = lanes * short_sum;
    if (depth <= most) return short_dots<rows>(depth, A, b, sums);
    Index stride = most, k = 0;
    while (stride * short_sum < depth) stride *= short_sum;
    std::fill_n(sums, rows, Scalar(0));
    if constexpr (rows == 1)  // some at a time, for one sum alone waits for itself
      for (constexpr Index together = 4; stride == most && k + together * most <= depth; k += together * most) {
        Scalar some[size_of(together)];
        short_dots<together, most>(most, {A.data + k, most, 1}, b + k, some);
        for (Index n = 0; n < together; ++n) sums[0] += some[n];
      }
    for (; k < depth; k += stride) {
      Scalar some[size_of(rows)];
      dots_of<rows>(std::min(stride, depth - k), A.at(0, k), b + k, some);
      for (Index i = 0; i < rows; ++i) sums[i] += some[i];
    }
  }
  // The same of a depth that one sum takes, by packets of each row, which are added up at the end; row i takes b from
  // `next` i on.
  template <int rows, Index next = 0>
  [[gnu::flatten]] static void short_dots(Index depth, Strided<const Scalar*> A, const Scalar* b, Scalar* sums) {
    using namespace packets;
    Packet terms[size_of(rows)];
    unrolled<rows>([&](auto i) { terms[i] = pset1<Packet>(Scalar(0)); });
    const Index whole = depth / lanes * lanes;
    for (Index k = 0; k < whole; k += lanes) {
      Packet factors = ploadu<Packet>(b + k);
      unrolled<rows>([&](auto i) {
        if constexpr (next > 0 && i > 0) factors = ploadu<Packet>(b + i * next + k);
        terms[i] = pmadd(ploadu<Packet>(A.data + i * A.down + k), factors, terms[i]);
      });
    }
    unrolled<rows>([&](auto i) { sums[i] = predux(terms[i]); });
    for (Index k = whole; k < depth; ++k)
      for (Index i = 0; i < rows; ++i) sums[i] += A.data[i * A.down + k] * b[i * next + k];
  }

  // Rows of A that fill so many packets, the last of them perhaps not whole, times a column. Eight short sums at a time
  // hide how long one takes; each is of neighbours, as in a tile, so that a column has the same bits alone and in B.
  template <int packets>
  static void rows_times_column(bool add, Index height, Index depth, const Scalar* a, Index right, const Scalar* b,
                                Scalar* c) {
    using namespace packets;
    constexpr int groups = 8 / packets;
    constexpr Index full = packets * lanes;
    Packet sums[size_of(packets)];
    alignas(64) Scalar padded[size_of(short_sum * lanes)];
    unrolled<packets>([&](auto i) { sums[i] = pset1<Packet>(Scalar(0)); });
    for (Index begin = 0; begin < depth; begin += panel_depth) {
      const Index size = std::min(panel_depth, depth - begin);
      Packet part[size_of(packets)];
      unrolled<packets>([&](auto i) { part[i] = pset1<Packet>(Scalar(0)); });
      const auto add_terms = [&]<int some>(std::integral_constant<int, some>, const Scalar* rows, Index distance,
                                           Index terms_each) __attribute__((always_inline)) {
        Packet terms[size_of(packets * some)];
        unrolled<packets * some>([&](auto j) { terms[j] = pset1<Packet>(Scalar(0)); });
        for (Index k = 0; k < terms_each; ++k) {
          unrolled<some>([&](auto g) {
            const Packet factor = pset1<Packet>(b[g * short_sum + k]);
            unrolled<packets>([&](auto i) {
              Packet& term = terms[packets * g + i];
              term = pmadd(ploadu<Packet>(rows + g * short_sum * distance + i * lanes), factor, term);
            });
          });
          rows += distance;
        }
        b += some * terms_each;
        unrolled<packets * some>([&](auto j) { part[j % packets] = padd(part[j % packets], terms[j]); });
        a += some * terms_each * right;
      };
      Index k = 0;
      if (height == full)
        for (; k + groups * short_sum <= size; k += groups * short_sum)
          add_terms(std::integral_constant<int, groups>(), a, right, short_sum);
      for (; k < size; k += short_sum) {
        const Index terms = std::min(short_sum, size - k);
        if (height < full) PanelProduct<Scalar>::pack({a, 1, right}, height, full, terms, padded);
        add_terms(std::integral_constant<int, 1>(), height < full ? padded : a, height < full ? full : right, terms);
      }
      unrolled<packets>([&](auto i) { sums[i] = padd(sums[i], part[i]); });
    }
    if (height == full) {
      unrolled<packets>([&](auto i) {
        Scalar* const target = c + i * lanes;
        pstoreu(target, add ? padd(ploadu<Packet>(target), sums[i]) : sums[i]);
      });
    } else {
      pstoreu(padded, sums[0]);
      store<Scalar>(add, height, 1, padded, full, {c, 1, full});
    }
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
