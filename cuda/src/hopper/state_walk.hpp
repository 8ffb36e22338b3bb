// A walk through a state of P 2, tile by tile: what both kernels of gradients have in common.
#pragma once

#include "../gradient/angle_rows.hpp"
#include "../layout/state_rows.hpp"
#include "tile_ring.hpp"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace sympow::cuda::hopper {

/// The group that copies brings a state: its normaliser in two terms, a tile of both for each 64 of its columns and of
/// its rows, from floats or from three terms, then the tiles of octets (a, b), a ≤ b, in order: tiles of 64 value
/// channels from `channel` on.
template <class T, int d, bool from_floats = true, int column_tiles = 1>
struct StateTiles {
  static constexpr int octets = d / 8, stages = state_stages(2, d), parts = channel_tiles<d>,
                       normaliser_tiles = 2 * parts * parts, count = column_tiles * stages + normaliser_tiles;
  using Producer = hopper::Producer<T, own_buffers<d>>;

  SYMPOW_DEVICE static void bring(Producer& producer, const Prefixes<T>& state, std::int64_t slot, int e,
                                  int channel = 0) {
    const std::int64_t first = slot * state_rows(2, d);
#pragma unroll 1
    for (int n = 0; n < parts * parts; ++n)
      producer.next_tiles([&](Shared<T> high, Shared<T> low) {
        write_normaliser(high, low, state, first, n / parts * 64, n % parts * 64);
      });
#pragma unroll 1
    for (int a = 0; a < octets; ++a)
#pragma unroll 1
      for (int b = a; b < octets; ++b)
#pragma unroll
        for (int c = 0; c < 64 * column_tiles; c += 64)
          producer.next_tile([&](Shared<T> tile, int) {
            producer.bring(tile, state.sums, (first + stage_of(a, b) * stage_rows) * e + channel + c, e, 0, stage_rows,
                           e - channel - c);
          });
  }

 private:
  SYMPOW_DEVICE static int stage_of(int a, int b) { return b * (b + 1) / 2 + a; }

  /// Z as a symmetric matrix whose diagonal is doubled, ∂/∂x of Σ_m Z_m x_m being Z x: in two terms of T. A thread
  /// writes halves of octets of both. Rows and columns of the tiles from these on.
  SYMPOW_DEVICE static void write_normaliser(Shared<T> high, Shared<T> low, const Prefixes<T>& state,
                                             std::int64_t first, int first_row, int first_column) {
    int four = static_cast<int>(threadIdx.x) % 16 * 4, row = static_cast<int>(threadIdx.x) / 16;
    pin(four), pin(row);
#pragma unroll 1
    for (; row < tile_rows; row += group_threads / 16) {
      float entries[4] = {};
      if (row < d && four < d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int own = first_row + row, other = first_column + four + i;
          const int lower = own < other ? own : other, upper = own < other ? other : own;
          const int at = stage_of(lower / 8, upper / 8) * stage_rows + lower % 8 * 8 + upper % 8;
          entries[i] = normaliser_of(state, first + at) * (lower == upper ? 2.f : 1.f);
        }
      }
      Pair<T> terms[2][2];
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        terms[0][p] = block::pack<T>(entries[2 * p], entries[2 * p + 1]);
        terms[1][p] =
            block::pack<T>(entries[2 * p] - block::lower(terms[0][p]), entries[2 * p + 1] - block::upper(terms[0][p]));
      }
      const int place = (octet_place<64>(row, four / 8) + four % 8) / 2;
      store(high.template as<Pair<T>>(), place, terms[0]);
      store(low.template as<Pair<T>>(), place, terms[1]);
    }
  }
  SYMPOW_DEVICE static float normaliser_of(const Prefixes<T>& state, std::int64_t row) {
    if constexpr (from_floats) {
      return load_one(state.whole, row);
    } else {
      Pair<T> terms[2];
      load(terms, state.normaliser, row * 4);
      return (block::lower(terms[0]) + block::upper(terms[0])) + block::lower(terms[1]);
    }
  }
};

/// The lane's two channels of an octet of a row.
template <int d, class T>
SYMPOW_DEVICE Pair<T> pair_of(Shared<T> rows, int row, int octet) {
  return load_one(rows.template as<Pair<T>>(), TilePlaces<d>::at(row, octet) / 2 + block::lane() % 4);
}

/// The channels of octet a in rows 8 g + lane / 4.
template <class T, int d = 64>
struct Octet {
  Pair<T> pairs[2][4];

  SYMPOW_DEVICE Octet(Shared<T> rows, int row, int a) {
#pragma unroll
    for (int g = 0; g < 2; ++g) load(pairs[g], rows.template as<Pair<T>>(), TilePlaces<d>::at(row + 8 * g, a) / 2);
  }
  /// φ of tile (a, b), rounded to T. `two`: the lane's channels of octet b.
  SYMPOW_DEVICE void monomials(LeftFactors<T>& phi, const Pair<T> (&two)[2]) const {
#pragma unroll
    for (int s = 0; s < 4; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const Pair<T> pair = pairs[r % 2][s];
        phi[s][r] = block::multiply(r / 2 == 0 ? block::both_lower(pair) : block::both_upper(pair), two[r % 2]);
      }
  }
};

/// These channels as floats, too, and their sums over the tiles (a, b).
template <class T, int d>
struct OuterOctet : Octet<T, d> {
  using Octet<T, d>::pairs;
  float entries[2][8], sums[2][8];

  SYMPOW_DEVICE OuterOctet(Shared<T> rows, int row, int a) : Octet<T, d>(rows, row, a) {
#pragma unroll
    for (int g = 0; g < 2; ++g) {
#pragma unroll
      for (int o = 0; o < 8; ++o) {
        entries[g][o] = o % 2 == 0 ? block::lower(pairs[g][o / 2]) : block::upper(pairs[g][o / 2]);
        pin(entries[g][o]);  // kept in a register, not made again at each tile
        sums[g][o] = 0.f;
      }
    }
  }

  /// Adds what W of tile (a, b) gives to the channels of a, and to those of b: `column`, as in OctetSums. `two`: the
  /// lane's channels of octet b.
  SYMPOW_DEVICE void contract(float (&column)[4], const Accumulator& w, const Pair<T> (&two)[2]) {
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      const float of_columns[2] = {block::lower(two[g]), block::upper(two[g])};
#pragma unroll
      for (int o = 0; o < 8; ++o) {
        sums[g][o] += w[o][2 * g] * of_columns[0];
        sums[g][o] += w[o][2 * g + 1] * of_columns[1];
        column[2 * g] += w[o][2 * g] * entries[g][o];
        column[2 * g + 1] += w[o][2 * g + 1] * entries[g][o];
      }
    }
  }
  /// Adds the sums of a over the four lanes of a row, who share the channels out: lane q gets 2 q and 2 q + 1.
  SYMPOW_DEVICE void add_to(const OctetSums<d>& all, int a) const {
    const bool is_upper = block::lane() & 2, is_odd = block::lane() & 1;
    float four[4];
    all.take(four, a);
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      float half[4];
#pragma unroll
      for (int o = 0; o < 4; ++o)
        half[o] = block::where(is_upper, sums[g][o + 4], sums[g][o]) +
                  block::shuffle_xor(block::where(is_upper, sums[g][o], sums[g][o + 4]), 2);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        four[2 * g + h] += block::where(is_odd, half[h + 2], half[h]) +
                           block::shuffle_xor(block::where(is_odd, half[h], half[h + 2]), 1);
    }
    all.put(a, four);
  }
};

/// A group that computes: 64 rows x̂ of d channels, with vectors u of 64 `column_tiles`, both in tiles of its own.
template <class T, int d, int column_tiles = 1>
struct ComputingGroup {
  static constexpr int parts = channel_tiles<d>;
  Consumer<T, own_buffers<d>> consumer;
  int own;  ///< which block of an item

  SYMPOW_DEVICE static int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
  SYMPOW_DEVICE static int row() { return 16 * warp() + block::lane() / 4; }
  SYMPOW_DEVICE Shared<T> rows() const { return consumer.memory.own_tile(consumer.buffer.slot(), own * parts); }
  SYMPOW_DEVICE Shared<T> vectors() const {
    return consumer.memory.own_tile(consumer.buffer.slot(), 2 * parts + own * column_tiles);
  }
  SYMPOW_DEVICE OctetSums<d> sums() const { return {sums_of(warp()), 0}; }
  SYMPOW_DEVICE Shared<float> sums_of(int warp) const { return consumer.memory.sums((4 * own + warp) * parts); }
  /// The lane's two channels of an octet of row `n`.
  SYMPOW_DEVICE Pair<T> row_pair(int n, int octet) const { return pair_of<d>(rows(), n, octet); }

  /// Dφ(x̂)ᵀ S [u; o] of a state S to `sums`, and with `has_product` φ(x̂) S to `product`; o of rows 8 g + lane / 4.
  template <bool has_product>
  SYMPOW_DEVICE void walk(Accumulator& product, const float (&offset)[2]) {
    static_assert(!has_product || column_tiles == 1);
    begin_sums(offset);
    LeftFactors<T> vector[column_tiles], phi;
#pragma unroll
    for (int c = 0; c < column_tiles; ++c) load_left(vector[c], vectors().after(c * tile_entries), 16 * warp());
    pin(vector);
    Accumulator w;
    if constexpr (has_product) {
      clear(product);
      clear(phi);
    }
    int held = -1;  // the slot of the tile that products with φ still read
#pragma unroll 1
    for (int a = 0; a < d / 8; ++a) {
      OuterOctet<T, d> outer(rows(), row(), a);
#pragma unroll 1
      for (int b = a; b < d / 8; ++b, consumer.at.advance()) {
        const std::uint32_t tile = consumer.descriptor();
        consumer.wait();
        if constexpr (column_tiles > 1) {  // the next slot
          consumer.at.advance();
          consumer.wait();
        }
        products_fence();
#pragma unroll
        for (int c = 0; c < column_tiles; ++c)
          multiply_transposed(w, vector[c], tile + static_cast<std::uint32_t>(c) * tile_step, c > 0);
        products_commit();
        Pair<T> two[2];
#pragma unroll
        for (int g = 0; g < 2; ++g) two[g] = row_pair(row() + 8 * g, b);
        float column[4];
        sums().take(column, b);
        if constexpr (has_product) {
          products_wait<1>();  // φ of the tile before
          if (held >= 0) consumer.release(held);
          held = consumer.at.slot();
          pin(phi);
          outer.monomials(phi, two);
          pin(phi);
          products_fence();
          add_product(product, phi, tile);
          products_commit();
          products_wait<1>();  // W
        } else {
          products_wait<0>();
          if constexpr (column_tiles > 1) consumer.release(consumer.at.slot() - 1);
          consumer.release(consumer.at.slot());
        }
        pin(w);
        outer.contract(column, w, two);
        sums().put(b, column);
      }
      outer.add_to(sums(), a);
    }
    if constexpr (has_product) {
      products_wait<0>();
      consumer.release(held);
      pin(product);
    }
  }

  SYMPOW_DEVICE void take_sums(Accumulator (&to)[parts]) const {
#pragma unroll
    for (auto& part : to) clear(part);
#pragma unroll
    for (int o = 0; o < d / 8; ++o) sums().take(to[o / 8][o % 8], o);
  }
  /// ⟨x̂, sum⟩ / 2 of the lane's rows: Σ_m φ_m W_m by Euler's theorem, φ being of degree 2.
  SYMPOW_DEVICE void couple(float (&total)[2], const Accumulator (&all)[parts]) const {
    int first = row();
    pin(first);
    total[0] = total[1] = 0.f;
#pragma unroll
    for (int o = 0; o < d / 8; ++o)
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const Pair<T> pair = row_pair(first + 8 * g, o);
        const auto& sum = all[o / 8][o % 8];
        total[g] += sum[2 * g] * block::lower(pair) + sum[2 * g + 1] * block::upper(pair);
      }
#pragma unroll
    for (int g = 0; g < 2; ++g) total[g] = .5f * sum_of_row(total[g]);
  }

  /// Turns sums of d channels back where they are of rotary, and stores them times 2^exponent factor, of 16 rows from
  /// token `first` of the block's chunk on.
  SYMPOW_DEVICE void store_turned(const Rows<T>& to, const Accumulator (&all)[parts], const float (&factor)[2],
                                  const double (&exponent)[2], const Rotary& rotary, const TokenBlock& of, int head,
                                  int key_head, int first) const {
    float sum[std::size_t{d / 8}][4];
#pragma unroll
    for (int o = 0; o < d / 8; ++o)
#pragma unroll
      for (int r = 0; r < 4; ++r) sum[o][r] = all[o / 8][o % 8][r];
    if (rotary.rates.data) {
      block::warp_barrier();
      sums().put(sum);
      turn_back(sums(), rotary, of, key_head, first);
      sums().take(sum);
    }
    store_sums<d>(to, to.at(of.b, of.begin + first, head), sum, factor, exponent, sums().memory.template as<T>(), 0,
                  of.length - first, d);
    block::warp_barrier();
  }

 private:
  /// `sums` begin with o x̂ Z, both tiles of Z being next in the ring.
  SYMPOW_DEVICE void begin_sums(const float (&offset)[2]) {
    LeftFactors<T> left[parts];
#pragma unroll
    for (int p = 0; p < parts; ++p) load_left(left[p], rows().after(p * tile_entries), 16 * warp());
    pin(left);
#pragma unroll
    for (int part = 0; part < parts; ++part) {  // of the columns of Z
      Accumulator sum;
#pragma unroll
      for (int n = 0; n < 2 * parts; ++n, consumer.at.advance()) {
        consumer.wait();
        products_fence();
        multiply_transposed<channels_of_tile<d> / 16>(sum, left[n / 2], consumer.descriptor(), n > 0);
        products_commit();
        products_wait<0>();
        consumer.release(consumer.at.slot());
      }
      pin(sum);
#pragma unroll
      for (int o = 0; o < channels_of_tile<d> / 8; ++o) {
#pragma unroll
        for (int r = 0; r < 4; ++r) sum[o][r] *= offset[r / 2];
        sums().put(8 * part + o, sum[o]);
      }
    }
  }
};

}  // namespace sympow::cuda::hopper

#endif
