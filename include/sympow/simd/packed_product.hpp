// The inner loop of every product: a tile of C in registers, summed by sixteens.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <sympow/simd/strided.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Terms that are added one after the other. Where n terms are alike every addition rounds the same way, and their sum
/// is off by up to n u / 3; short sums of short sums are off by 5 u a level.
inline constexpr Index short_sum = 16;

/// The depth of a product of two levels of short sums.
inline constexpr Index panel_depth = short_sum * short_sum;

/// The size of an array.
constexpr std::size_t size_of(Index n) { return static_cast<std::size_t>(n); }

/// The vector registers of the processor, as Eigen knows them, for all inner loops.
namespace packets {
template <class Scalar>
using Packet = typename Eigen::internal::packet_traits<Scalar>::type;
template <class Scalar>
inline constexpr int lanes = Eigen::internal::unpacket_traits<Packet<Scalar>>::size;
using Eigen::internal::PacketBlock, Eigen::internal::ptranspose;
using Eigen::internal::padd, Eigen::internal::psub, Eigen::internal::pmul, Eigen::internal::pdiv,
    Eigen::internal::pmadd;
using Eigen::internal::ploadu, Eigen::internal::pstoreu, Eigen::internal::pset1;
using Eigen::internal::pmax, Eigen::internal::predux, Eigen::internal::predux_max;
/// a b + c, rounded as often as in packets; of numbers alone a compiler may choose, here and there differently.
template <class Scalar>
[[gnu::always_inline]] inline Scalar multiply_add(Scalar a, Scalar b, Scalar c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  if constexpr (std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>) return std::fma(a, b, c);
#endif
  return a * b + c;
}
/// The larger of two, a where b is no number: as Eigen's own on x86, not on ARM, which takes the one that is none.
template <class Packet>
[[gnu::always_inline]] inline Packet larger(const Packet& a, const Packet& b) {
  return a < b ? b : a;
}
/// Keeps x in a register: where these are few, g++ would read it from memory again for every use.
template <class Packet>
[[gnu::always_inline]] inline void keep_in_register([[maybe_unused]] Packet& x) {
#if EIGEN_ARCH_i386_OR_x86_64
  if constexpr (EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS < 32 && Eigen::internal::unpacket_traits<Packet>::size > 1)
    asm("" : "+x"(x));
#endif
}
}  // namespace packets

/// Products of blocks, by packets.
template <class Scalar>
class PanelProduct {
  using Packet = packets::Packet<Scalar>;
  static constexpr int lanes = packets::lanes<Scalar>;
  // The sums of a tile: with rows and a factor they fill 16 registers, and their sums those of 32.
  static constexpr int packets_of_tile = 12;

 public:
  /// C ← A B or C += A B for 1 … `panel_depth` columns of A. C has its columns or its rows side by side.
  [[gnu::noinline]] static void run(bool add, Index rows, Index cols, Index depth, Strided<const Scalar*> A,
                                    Strided<const Scalar*> B, Strided<Scalar*> C) {
    if (C.down != 1 && C.right == 1) {
      std::swap(A, B);
      A = A.transposed(), B = B.transposed(), C = C.transposed();
      std::swap(rows, cols);
    }
    for (Index i = 0; i < rows;) {
      const Index left = rows - i, height = std::min<Index>(left, (left > lanes ? 2 : 1) * lanes);
      if (height > lanes)
        rows_times<2>(add, height, cols, depth, A.at(i, 0), B, C.at(i, 0));
      else
        rows_times<1>(add, height, cols, depth, A.at(i, 0), B, C.at(i, 0));
      i += height;
    }
  }

  /// C ← A, by packets of columns, or by square blocks where rows of A become columns of C.
  [[gnu::noinline]] static void copy(Index rows, Index cols, Strided<const Scalar*> A, Strided<Scalar*> C) {
    const bool by_blocks = A.right == 1 && C.down == 1;
    const Index whole_rows = by_blocks ? rows / lanes * lanes : 0, whole_cols = by_blocks ? cols / lanes * lanes : 0;
    for (Index k = 0; k < whole_cols; k += lanes)
      for (Index i = 0; i < whole_rows; i += lanes) transpose_block(A.at(i, k).data, A.down, C.at(i, k).data, C.right);
    for (Index k = 0; k < cols; ++k) {
      Index i = k < whole_cols ? whole_rows : 0;
      if (A.down == 1 && C.down == 1)
        for (; i + lanes <= rows; i += lanes)
          packets::pstoreu(C.at(i, k).data, packets::ploadu<Packet>(A.at(i, k).data));
      for (; i < rows; ++i) *C.at(i, k).data = *A.at(i, k).data;
    }
  }

  /// target[k * full + i] = A(i, k), 0 below the last row.
  static void pack(Strided<const Scalar*> A, Index height, Index full, Index depth, Scalar* target) {
    copy(height, depth, A, {target, 1, full});
    for (Index k = 0; k < depth; ++k)
      for (Index i = height; i < full; ++i) target[k * full + i] = Scalar(0);
  }

 private:
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"  // of a packet as a template argument
  [[gnu::flatten]] static void transpose_block(const Scalar* source, Index source_stride, Scalar* target,
                                               Index target_stride) {
    packets::PacketBlock<Packet, lanes> block;
    unrolled<lanes>([&](auto i) { block.packet[i] = packets::ploadu<Packet>(source + i * source_stride); });
    packets::ptranspose(block);
    unrolled<lanes>([&](auto i) { packets::pstoreu(target + i * target_stride, block.packet[i]); });
  }

#pragma GCC diagnostic pop

  // Rows of A that fill so many packets, times B.
  template <int packets>
  static void rows_times(bool add, Index height, Index cols, Index depth, Strided<const Scalar*> A,
                         Strided<const Scalar*> B, Strided<Scalar*> C) {
    constexpr Index full = packets * lanes;
    if (A.down == 1 && height == full) {
      panel_times<packets>(add, height, cols, depth, A.data, A.right, B, C);
    } else {
      alignas(64) Scalar packed[size_of(panel_depth * full)];
      pack(A, height, full, depth, packed);
      panel_times<packets>(add, height, cols, depth, packed, full, B, C);
    }
  }

  // A panel of A, its columns `a_right` apart, times B: by tiles as wide as fit, then by those of half the width.
  template <int packets, int columns = packets_of_tile / packets>
  static void panel_times(bool add, Index height, Index cols, Index depth, const Scalar* a, Index a_right,
                          Strided<const Scalar*> B, Strided<Scalar*> C) {
    const bool in_place = height == packets * lanes && C.down == 1;
    for (; cols >= columns; cols -= columns, B = B.at(0, columns), C = C.at(0, columns)) {
      if (in_place)
        tile_product<packets, columns>(add, depth, a, a_right, B.data, B.down, B.right, C.data, C.right);
      else
        partial_tile<packets, columns>(add, height, depth, a, a_right, B, C);
    }
    if constexpr (columns > 1)
      if (cols > 0) panel_times<packets, (columns + 1) / 2>(add, height, cols, depth, a, a_right, B, C);
  }

  // A tile of C with fewer rows than its registers, or with its rows side by side.
  template <int packets, int columns>
  static void partial_tile(bool add, Index height, Index depth, const Scalar* a, Index a_right,
                           Strided<const Scalar*> B, Strided<Scalar*> C) {
    constexpr Index full = packets * lanes;
    Scalar partial[size_of(full * columns)];
    tile_product<packets, columns>(false, depth, a, a_right, B.data, B.down, B.right, partial, full);
    store<Scalar>(add, height, columns, partial, full, C);
  }

  // C ← A B or C += A B, all of C held in registers. Factors come as numbers: what is put together for every tile is
  // stored in parts and read as a whole, for which a processor waits.
  template <int packets, int columns>
  static void tile_product(bool add, Index depth, const Scalar* a, Index a_right, const Scalar* b, Index down,
                           Index right, Scalar* c, Index c_right) {
    using namespace packets;
    Packet sums[size_of(packets * columns)], terms[size_of(packets * columns)];
    unrolled<packets * columns>([&](auto j) { sums[j] = pset1<Packet>(Scalar(0)); });
    const auto add_terms = [&](auto is_first) __attribute__((always_inline)) {
      Packet rows[size_of(packets)];
      unrolled<packets>([&](auto i) __attribute__((always_inline)) {
        rows[i] = ploadu<Packet>(a + i * lanes);
        keep_in_register(rows[i]);
      });
      constexpr int each = 4, groups = (columns + each - 1) / each;
      const Scalar* bases[size_of(groups)];  // eleven multiples of a distance do not fit the registers for addresses
      unrolled<groups>([&](auto g) __attribute__((always_inline)) {
        bases[g] = b + g * each * right;
        if constexpr (columns > 6) asm("" : "+r"(bases[g]));  // or g++ goes back to the multiples
      });
      unrolled<columns>([&](auto j) __attribute__((always_inline)) {
        const Packet factor = pset1<Packet>(bases[j / each][j % each * right]);
        unrolled<packets>([&](auto i) __attribute__((always_inline)) {
          Packet& term = terms[packets * j + i];
          term = is_first ? pmul(rows[i], factor) : pmadd(rows[i], factor, term);
        });
      });
      a += a_right;
      b += down;
    };
    for (;; depth -= short_sum) {
      add_terms(std::true_type());  // not added to 0: there are as many zeros as sums
      for (Index n = std::min(short_sum, depth) - 1; n > 0; --n) add_terms(std::false_type());
      if (depth <= short_sum) break;
      unrolled<packets * columns>([&](auto j) { sums[j] = padd(sums[j], terms[j]); });
    }
    unrolled<columns>([&](auto j) {
      unrolled<packets>([&](auto i) {
        Scalar* const target = c + j * c_right + i * lanes;
        const Packet sum = padd(sums[packets * j + i], terms[packets * j + i]);
        pstoreu(target, add ? padd(ploadu<Packet>(target), sum) : sum);
      });
    });
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
