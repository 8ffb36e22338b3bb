// Every name of the block at least once, so that every one is compiled by nvcc and carried out by the host.
#pragma once

#include <cstdint>

#include "block/block.hpp"

namespace sympow::test {

using namespace sympow::cuda::block;

/// Two warps copy x, 512 entries, to shared memory by copies of all sizes; read it by loads of all widths and all kinds
/// of ldmatrix; compute; meet at a named barrier. Row n of each output holds what the 64 threads found.
template <class T>
struct EveryName {
  static constexpr int threads = 64, shared_bytes = 2048, blocks_per_multiprocessor = 1;
  static constexpr int pair_rows = 21, number_rows = 12;

  struct Args {
    Global<const T> x;         // 512
    Global<const float> w;     // 256
    Global<T> halves;          // 64 × 16
    Global<Pair<T>> pairs;     // pair_rows × 64
    Global<float> numbers;     // number_rows × 64
    Global<float> quadruples;  // 64 × 4
  };

  SYMPOW_DEVICE static void run(const Args& args) {
    Arena arena;
    const auto s = arena.take<T>(512);
    const auto f = arena.take<float>(256);
    const Lanes<int> thread = lane() + warp() * 32;
    int pair_row = block_index(0), number_row = block_index(1);
    const auto keep = [&](const Lanes<Pair<T>>& p) {
      const Lanes<Pair<T>> r[1] = {p};
      store(args.pairs, thread + 64 * pair_row++, r);
    };
    const auto keep_number = [&](const Lanes<float>& z) {
      const Lanes<float> r[1] = {z};
      store(args.numbers, thread + 64 * number_row++, r);
    };

    cp_async<16>(s, thread * 8, args.x, thread * 8, 16, thread < 16);
    cp_async<8>(s, thread * 4 + 128, args.x, thread * 4 + 128, 8);
    cp_async_commit();
    cp_async<4>(s, thread * 2 + 384, args.x, thread * 2 + 384, where(thread < 40, 4, 2));
    cp_async_commit();
    cp_async_wait<1>();
    cp_async_wait<0>();
    barrier();

    const Lanes<int> row = lane() * 8 + warp() * 256;
    Lanes<Pair<T>> one[1], two[2], four[4], one_t[1], two_t[2], four_t[4];
    ldmatrix<false>(one, s, row);
    ldmatrix<false>(two, s, row);
    ldmatrix<false>(four, s, row);
    ldmatrix<true>(one_t, s, row);
    ldmatrix<true>(two_t, s, row);
    ldmatrix<true>(four_t, s, row);
    keep(one[0]);
    keep(one_t[0]);
    SYMPOW_UNROLL
    for (int n = 0; n < 2; ++n) keep(two[n]), keep(two_t[n]);
    SYMPOW_UNROLL
    for (int n = 0; n < 4; ++n) keep(four[n]), keep(four_t[n]);

    Lanes<float> c[4] = {1.f, 0.f, 0.f, 0.f};
    mma(c, four, two_t);
    SYMPOW_UNROLL
    for (int r = 0; r < 4; ++r) keep_number(c[r]);
    const Lanes<Pair<T>> packed = pack<T>(c[0], c[1]), product = multiply(packed, four[0]);
    keep(packed);
    keep(product);
    keep(shuffle(product, lane() * 3 + 1));
    keep(shuffle_xor(product, 5));
    keep_number(lower(product));
    keep_number(upper(product));
    keep_number(where(lane() % 3 < 1, c[2], c[3]));

    const Lanes<T> entry[1] = {load_one(s, thread * 3)};  // 2 bytes
    Lanes<T> entries[8];                                  // 16 bytes
    load(entries, s, thread * 8);
    keep(join(entry[0], entries[7]));
    store(args.halves, thread * 8, entries);
    store(args.halves, thread + 512, entry);
    const Lanes<T> from_far[1] = {load_one(args.x, thread * 7)};
    store(args.halves, thread + 576, from_far);

    Lanes<float> quadruple[4], couple[2];  // 16 and 8 bytes
    load(quadruple, args.w, thread * 4);
    if (warp() == 1) {
      store(f, lane() * 4, quadruple);
      bar_arrive(1, 64);
    } else {
      bar_sync(1, 64);
      load(couple, f, lane() * 2);
      keep_number(couple[0] + couple[1]);
      Lanes<float> all[4];
      load(all, f, lane() * 4);
      store(args.quadruples, lane() * 4, all);
    }
    barrier();
    const Lanes<float> sum[2] = {quadruple[0] + quadruple[1], quadruple[2]};
    store(f, thread * 2, sum);
    warp_barrier();
    load(couple, f, (thread ^ 1) * 2);
    if (warp() == 1) {
      keep_number(couple[0]);
      store(args.quadruples, lane() * 4 + 128, quadruple);
    }
    store(f, thread * 2, couple, thread < 0);
  }
};

}  // namespace sympow::test
