// States to arrays of a caller.
#pragma once

#include "of_arrays.hpp"

namespace sympow::cuda {

/// √c_m 2^⌈L⌉ S and √c_m 2^⌈L⌉ Z of states, each rounded once, and their angles in radians: see ArraysOfStates. Of
/// empty states nothing else is looked at.
///
/// e: a multiple of 4. A thread has four value channels of a monomial, or a number of Z, or an angle.
struct ToArrays {
  static constexpr int threads = 128, shared_bytes = 0, blocks_per_multiprocessor = 8;

  struct Args {
    States states;
    Global<const double> turns;  ///< [B, Hk, d/2]; null: nothing has turned
    ArraysOfStates arrays;
    Heads heads;
    int power, d, e;
  };

  static Blocks blocks(int batch, const Heads& heads, int D, int e) {
    return {std::int64_t{batch} * (of_sums(D, e) + of_normaliser(D) + 1), heads.state};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int D = monomial_count(x.power, x.d), sums = of_sums(D, x.e), all = sums + of_normaliser(D);
    const int b = block_index(0) / (all + 1), place = block_index(0) % (all + 1), h = block_index(1);
    const std::int64_t state = std::int64_t{b} * x.heads.state + h;
    const Lanes<int> thread = lane() + 32 * warp();
    if (place == all) return turn(x, thread, state, std::int64_t{b} * x.heads.key + x.heads.key_of_state(h));
    Lanes<double> level[1];
    load(level, x.states.level, Lanes<std::int64_t>(state));
    const Lanes<bool> is_empty = level[0] == -infinity;
    const Lanes<double> unit = wide_two_to(ceiling(level[0]));
    const auto write = [&](auto& entries, const Global<float>& from, const Global<float>& to, const Lanes<int>& at,
                           int width) {
      const Lanes<bool> active = at < D * width;
      const Lanes<std::int64_t> entry = at + state * (D * width);
      load(entries, from, entry, active);
      const Lanes<int> m = where(active, at / width, 0);
      const Lanes<double> factor = sqrt(convert<double>(multinomial(x.power, x.d, m))) * unit;
      for (auto& one : entries) one = where(is_empty, 0.f, convert<float>(convert<double>(one) * factor));
      store(to, entry, entries, active);
    };
    if (place < sums) {
      Lanes<float> four[4] = {0.f, 0.f, 0.f, 0.f};
      write(four, x.states.sums, x.arrays.sums, (thread + place * threads) * 4, x.e);
    } else {
      Lanes<float> one[1] = {0.f};
      write(one, x.states.normaliser, x.arrays.normaliser, thread + (place - sums) * threads, 1);
    }
  }

 private:
  SYMPOW_HOST_DEVICE static int of_sums(int D, int e) { return (D * e / 4 + threads - 1) / threads; }
  SYMPOW_HOST_DEVICE static int of_normaliser(int D) { return (D + threads - 1) / threads; }

  SYMPOW_DEVICE static void turn(const Args& x, const Lanes<int>& j, std::int64_t state, std::int64_t key) {
    constexpr double radians_of_turn = 6.283185307179586477;
    const Lanes<bool> active = j < x.d / 2;
    if (!x.arrays.angles.data) return;
    Lanes<double> turns[1] = {0.};
    if (x.turns.data) block::load(turns, x.turns, j + key * (x.d / 2), active);
    turns[0] = turns[0] * radians_of_turn;
    block::store(x.arrays.angles, j + state * (x.d / 2), turns, active);
  }
};

}  // namespace sympow::cuda
