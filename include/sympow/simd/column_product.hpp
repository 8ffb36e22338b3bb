// Matrix-vector and dot products.
#pragma once

#include <algorithm>

#include <sympow/simd/packed_product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Columns of contiguous entries with stride `right`.
template <class Scalar>
struct DenseColumns {
  static constexpr bool is_padded = false;
  const Scalar* data;
  Index right;

  /// The part from row i and column k on.
  [[nodiscard]] DenseColumns at(Index i, Index k) const { return {data + i + k * right, right}; }
  /// Loads the first `packets` packets of the first column.
  template <int packets>
  [[gnu::always_inline]] void load(packets::Packet<Scalar>* x) const {
    constexpr int lanes = packets::lanes<Scalar>;
    unrolled<packets>([&](auto i) __attribute__((always_inline)) {
      x[i] = packets::ploadu<packets::Packet<Scalar>>(data + i * lanes);
    });
  }
};

/// A b and a · b by packets and short sums.
template <class Scalar>
class ColumnProduct {
  using Packet = packets::Packet<Scalar>;
  static constexpr int lanes = packets::lanes<Scalar>;

 public:
  /// Largest depths for which three levels of short sums suffice.
  static constexpr Index column_depth = short_sum * panel_depth, dot_depth = panel_depth * lanes;

  /// c ← A b, or c += A b in one addition, at any depth. A is `DenseColumns` or `HighColumns`.
  template <class Columns>
  [[gnu::noinline]] static void times_column(bool add, Index rows, Index depth, Columns A, const Scalar* b, Scalar* c) {
    if (depth > column_depth) return times_deep_column(add, rows, depth, A, b, c);
    Index i = 0;
    const auto times = [&]<int packets>(std::integral_constant<int, packets>) {
      rows_times_column<packets>(add, std::min<Index>(packets * lanes, rows - i), depth, A.at(i, 0), b, c + i);
      i += packets * lanes;
    };
    if constexpr (Columns::is_padded) {
      while (rows - i > 6 * lanes) times(std::integral_constant<int, 8>());
      while (rows - i > 2 * lanes) times(std::integral_constant<int, 4>());
      if (i < rows) times(std::integral_constant<int, 2>());
    } else {
      while (rows - i >= 8 * lanes) times(std::integral_constant<int, 8>());
      while (rows - i >= 4 * lanes) times(std::integral_constant<int, 4>());
      if (rows - i >= 3 * lanes)  // one strip
        times(std::integral_constant<int, 3>());
      else if (rows - i >= 2 * lanes)
        times(std::integral_constant<int, 2>());
      while (i < rows) times(std::integral_constant<int, 1>());
    }
  }

  /// a · b of at most `dot_depth` entries. Eight independent sums hide the latency of an addition.
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
    Packet tail = pset1<Packet>(Scalar(0));
    for (; k < packets; k += lanes) tail = times(k, tail);
    Scalar scalar_tail(0);
    for (; k < depth; ++k) scalar_tail = multiply_add(a[k], b[k], scalar_tail);
    return predux(padd(sum, tail)) + scalar_tail;
  }

  /// c ← A b, or c += A b in one addition, at any depth, for contiguous rows of A. The bits of a row do not depend on
  /// the number of rows.
  static void dot_rows(bool add, Index rows, Index depth, Strided<const Scalar*> A, const Scalar* b,
                       Strided<Scalar*> c) {
    Index i = 0;
    const auto add_rows = [&]<int count>(std::integral_constant<int, count>) {
      for (; i + count <= rows; i += count) {
        Scalar sums[size_of(count)];
        dot_row_block<count>(depth, A.at(i, 0), b, sums);
        store<Scalar>(add, count, 1, sums, count, c.at(i, 0));
      }
    };
    add_rows(std::integral_constant<int, lanes>());
    if constexpr (lanes > 2) add_rows(std::integral_constant<int, lanes / 2>());
    add_rows(std::integral_constant<int, 1>());
  }

 private:
  // sums_i ← a_i · b for `rows` rows, in short sums of packets.
  template <int rows>
  static void dot_row_block(Index depth, Strided<const Scalar*> A, const Scalar* b, Scalar* sums) {
    constexpr Index short_depth = lanes * short_sum;
    if (depth <= short_depth) return dot_rows_short<rows>(depth, A, b, sums);
    Index stride = short_depth, k = 0;
    while (stride * short_sum < depth) stride *= short_sum;
    std::fill_n(sums, rows, Scalar(0));
    if constexpr (rows == 1)  // several sums at a time, to hide the latency of an addition
      for (constexpr Index unroll = 4; stride == short_depth && k + unroll * short_depth <= depth;
           k += unroll * short_depth) {
        Scalar partial[size_of(unroll)];
        dot_rows_short<unroll, short_depth>(short_depth, {A.data + k, short_depth, 1}, b + k, partial);
        for (Index n = 0; n < unroll; ++n) sums[0] += partial[n];
      }
    for (; k < depth; k += stride) {
      Scalar partial[size_of(rows)];
      dot_row_block<rows>(std::min(stride, depth - k), A.at(0, k), b + k, partial);
      for (Index i = 0; i < rows; ++i) sums[i] += partial[i];
    }
  }
  // sums_i ← a_i · b for a depth that fits one short sum per lane. Row i reads b from i `next` on.
  template <int rows, Index next = 0>
  [[gnu::flatten]] static void dot_rows_short(Index depth, Strided<const Scalar*> A, const Scalar* b, Scalar* sums) {
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
    for (Index i = 0; i < rows; ++i) sums[i] = Scalar(0);
    for (Index k = whole; k < depth; ++k)  // the remainder below one packet has its own short sum
      for (Index i = 0; i < rows; ++i) sums[i] = multiply_add(A.data[i * A.down + k], b[i * next + k], sums[i]);
    unrolled<rows>([&](auto i) { sums[i] += predux(terms[i]); });
  }

  // Rows of A that fill `packets` packets, the last one possibly in part, times a column. Eight short sums at a time
  // hide the latency of an addition. Each sums adjacent entries, as a tile does, so a column has the same bits alone
  // and in B. Whole columns of A are read faster than pieces of them, and where several sums run at a time, each in a
  // panel far from the others: a few long streams come twice as fast from memory as pieces of a page.
  template <int packets, class Columns>
  static void rows_times_column(bool add, Index height, Index depth, Columns A, const Scalar* b, Scalar* c) {
    using namespace packets;
    constexpr int groups = 8 / packets;
    constexpr Index full = packets * lanes;
    Packet sums[size_of(packets)];
    alignas(64) Scalar padded[size_of(short_sum * lanes)];
    unrolled<packets>([&](auto i) { sums[i] = pset1<Packet>(Scalar(0)); });
    const bool is_whole = Columns::is_padded || height == full;
    Index streamed = 0;  // panels per stream
    if constexpr (packets % 2 == 0) {
      streamed = is_whole ? depth / (groups * panel_depth) : 0;
      Packet streams[size_of(column_depth / panel_depth * packets)];
      for (Index n = 0; n < streamed; ++n) {
        const Index first = n * panel_depth, stride = streamed * panel_depth;
        Packet parts[size_of(packets * groups)];
        unrolled<packets * groups>([&](auto j) { parts[j] = pset1<Packet>(Scalar(0)); });
        for (Index k = first; k < first + panel_depth; k += short_sum)
          add_short_sums<packets, groups>(parts, A.at(0, k), b + k, stride, short_sum);
        unrolled<packets * groups>(
            [&](auto j) { streams[(j / packets * streamed + n) * packets + j % packets] = parts[j]; });
      }
      for (Index n = 0; n < streamed * groups; ++n)
        unrolled<packets>([&](auto i) { sums[i] = padd(sums[i], streams[n * packets + i]); });
    }
    for (Index begin = streamed * groups * panel_depth; begin < depth; begin += panel_depth) {
      const Index end = std::min(begin + panel_depth, depth);
      Packet part[size_of(packets)];
      unrolled<packets>([&](auto i) { part[i] = pset1<Packet>(Scalar(0)); });
      Index k = begin;
      if constexpr (!Columns::is_padded)
        for (; is_whole && k + groups * short_sum <= end; k += groups * short_sum) {
          Packet terms[size_of(packets * groups)];
          unrolled<packets * groups>([&](auto j) { terms[j] = pset1<Packet>(Scalar(0)); });
          add_short_sums<packets, groups>(terms, A.at(0, k), b + k, short_sum, short_sum);
          unrolled<packets * groups>([&](auto j) { part[j % packets] = padd(part[j % packets], terms[j]); });
        }
      for (; k < end; k += short_sum) {
        const Index terms = std::min(short_sum, end - k);
        Columns columns = A.at(0, k);
        if constexpr (!Columns::is_padded && packets == 1)
          if (!is_whole) {
            PanelProduct<Scalar>::pack({columns.data, 1, columns.right}, height, full, terms, padded);
            columns = {padded, full};
          }
        add_short_sums<packets, 1>(part, columns, b + k, 0, terms);
      }
      unrolled<packets>([&](auto i) { sums[i] = padd(sums[i], part[i]); });
    }
    if (height == full) {
      unrolled<packets>([&](auto i) {
        Scalar* const target = c + i * lanes;
        pstoreu(target, add ? padd(ploadu<Packet>(target), sums[i]) : sums[i]);
      });
    } else {
      unrolled<packets>([&](auto i) { pstoreu(padded + i * lanes, sums[i]); });
      store<Scalar>(add, height, 1, padded, full, {c, 1, full});
    }
  }

  // sums_g += A b over `columns` columns from column g · `stride` on, for rows that fill `packets` packets.
  template <int packets, int groups, class Columns>
  [[gnu::always_inline]] static void add_short_sums(Packet* sums, Columns A, const Scalar* b, Index stride,
                                                    Index columns) {
    using namespace packets;
    Packet terms[size_of(packets * groups)];
    unrolled<packets * groups>([&](auto j) { terms[j] = pset1<Packet>(Scalar(0)); });
    for (Index k = 0; k < columns; ++k, A = A.at(0, 1))
      unrolled<groups>([&](auto g) __attribute__((always_inline)) {
        const Packet factor = pset1<Packet>(b[g * stride + k]);
        Packet rows[size_of(packets)];
        A.at(0, g * stride).template load<packets>(rows);
        unrolled<packets>([&](auto i) {
          Packet& term = terms[packets * g + i];
          term = pmadd(rows[i], factor, term);
        });
      });
    unrolled<packets * groups>([&](auto j) { sums[j] = padd(sums[j], terms[j]); });
  }

  // c ← A b, or c += A b, by sums of sums for blocks of rows, on the stack.
  template <class Columns>
  static void times_deep_column(bool add, Index rows, Index depth, Columns A, const Scalar* b, Scalar* c) {
    constexpr Index side = 64;
    Index stride = column_depth;
    while (stride * short_sum < depth) stride *= short_sum;
    for (Index i = 0; i < rows; i += side) {
      const Index height = std::min(side, rows - i);
      Scalar sums[side];
      for (Index k = 0; k < depth; k += stride)
        times_column(k > 0, height, std::min(stride, depth - k), A.at(i, k), b + k, sums);
      store<Scalar>(add, height, 1, sums, height, {c + i, 1, height});
    }
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
