// States from arrays of a caller.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/chunks.hpp"
#include "../layout/exponents.hpp"
#include "../layout/monomials.hpp"
#include "../layout/turns.hpp"

namespace sympow::cuda {

/// Arrays of B sequences and H heads: √c_m S and √c_m Z in units of 1, c_m the multinomial coefficient of monomial m,
/// and the angles μ in radians.
struct ArraysOfStates {
  Global<float> sums;        ///< [B, H, D, e]
  Global<float> normaliser;  ///< [B, H, D]
  Global<double> angles;     ///< [B, H, d/2]; null: 0, or not wanted
};

/// S, Z, L and A of states, and their turns: L is the exponent of the largest entry, -∞ where all are 0. Of a state A
/// is
///
///     Σ_j w_j ‖k_j‖^2n = Σ_β (n! / Π β_i!) Z_{2β}      of P = 2n, at least 0
///
/// and 0 of an odd P, where Z does not say it; of a gradient the largest entry. Entries are rounded once. The angles
/// are those of the first state head of a key head.
///
/// e: a multiple of 4. A block has a sequence and head, and reads its arrays twice.
struct OfArrays {
  static constexpr int warps = 16, threads = 32 * warps, shared_bytes = 4 * 32, blocks_per_multiprocessor = 2;

  struct Args {
    ArraysOfStates arrays;
    States states;
    Global<double> turns;  ///< [B, Hk, d/2]; null: nothing turns
    Heads heads;
    int power, d, e;
    bool is_gradient;
  };

  static Blocks blocks(int batch, const Heads& heads) { return {batch, heads.state}; }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int w = warp(), h = block_index(1), D = monomial_count(x.power, x.d), count = D * x.e;
    const std::int64_t state = std::int64_t{block_index(0)} * x.heads.state + h;
    const Lanes<int> thread = lane() + 32 * w;
    Arena arena;
    const auto largest_of_warps = arena.take<float>(32);

    Lanes<float> largest = 0.f;
    each<4>(x.arrays.sums, state * count, count, thread, [&](const Lanes<int>&, const Lanes<bool>&, auto& four) {
      SYMPOW_UNROLL
      for (int i = 0; i < 4; ++i) largest = larger(largest, absolute(four[i]));
    });
    each<1>(x.arrays.normaliser, state * D, D, thread,
            [&](const Lanes<int>&, const Lanes<bool>&, auto& one) { largest = larger(largest, absolute(one[0])); });
    const Lanes<float> own[1] = {of_warp(largest)};
    store(largest_of_warps, lane() + w, own, lane() == 0);
    barrier();
    largest = of_warp(load_one(largest_of_warps, lane() % warps));
    const Lanes<int> exponent = exponent_above(largest);

    const auto scaled = [&](const Lanes<float>& entry, const Lanes<int>& m) {
      const Lanes<double> root = sqrt(convert<double>(multinomial(x.power, x.d, m)));
      return convert<float>(convert<double>(entry) / root * convert<double>(two_to(-exponent)));
    };
    each<4>(x.arrays.sums, state * count, count, thread,
            [&](const Lanes<int>& at, const Lanes<bool>& active, auto& four) {
              SYMPOW_UNROLL
              for (int i = 0; i < 4; ++i) four[i] = scaled(four[i], at / x.e);
              store(x.states.sums, at + state * count, four, active);
            });
    each<1>(x.arrays.normaliser, state * D, D, thread, [&](const Lanes<int>& at, const Lanes<bool>& active, auto& one) {
      one[0] = scaled(one[0], at);
      store(x.states.normaliser, at + state * D, one, active);
    });
    if (w > 0) return;
    const Lanes<float> mass = x.is_gradient ? largest * two_to(-exponent) : mass_of(x, state * D, exponent);
    const Lanes<float> masses[1] = {mass};
    const Lanes<double> levels[1] = {where(largest == 0.f, -infinity, convert<double>(exponent))};
    store(x.states.mass, lane() + state, masses, lane() == 0);
    store(x.states.level, lane() + state, levels, lane() == 0);
    const int shared = x.heads.state / x.heads.key;
    if (x.turns.data && h % shared == 0) turn(x, state, std::int64_t{block_index(0)} * x.heads.key + h / shared);
  }

 private:
  /// f(first entry, active, N entries of a lane) of all, which may change them.
  template <int N, class F>
  SYMPOW_DEVICE static void each(Global<float> array, std::int64_t first, int count, const Lanes<int>& thread,
                                 const F& f) {
    for (int from = 0; from < count; from += threads * N) {
      const Lanes<int> at = thread * N + from;
      Lanes<float> entries[std::size_t{N}];
      SYMPOW_UNROLL
      for (int i = 0; i < N; ++i) entries[i] = 0.f;
      block::load(entries, array, at + first, at < count);
      f(at, at < count, entries);
    }
  }
  SYMPOW_DEVICE static Lanes<float> of_warp(Lanes<float> x) {
    SYMPOW_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) x = larger(x, block::shuffle_xor(x, mask));
    return x;
  }
  /// A in units of 2^exponent, by one warp.
  SYMPOW_DEVICE static Lanes<float> mass_of(const Args& x, std::int64_t first, const Lanes<int>& exponent) {
    using namespace block;
    if (x.power % 2 == 1) return 0.f;
    const int count = monomial_count(x.power / 2, x.d);
    Lanes<double> sum = 0.;
    for (int from = 0; from < count; from += 32) {
      const Lanes<int> n = lane() + from;
      Lanes<int> m;
      Lanes<double> factor = 1.;  // n! / Π β_i! by the root of the coefficient of 2β
      if (x.power == 2) {
        m = pair_place(x.d, n, n);
      } else {
        const auto half = Monomial<2>::at<most_channels>(x.d, n);
        const Lanes<int> i = half.channel[0], j = half.channel[1];
        m = Monomial<4>{{i, i, j, j}}.place(x.d);
        factor = where(i == j, Lanes<double>(1.), 2. / sqrt(Lanes<double>(6.)));
      }
      Lanes<float> one[1] = {0.f};
      load(one, x.arrays.normaliser, m + first, n < count);
      sum += convert<double>(one[0]) * factor;
    }
    SYMPOW_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
    const Lanes<float> mass = convert<float>(sum * convert<double>(two_to(-exponent)));
    return where(mass < 0.f, 0.f, mass);
  }
  SYMPOW_DEVICE static void turn(const Args& x, std::int64_t state, std::int64_t key) {
    using namespace block;
    for (int from = 0; from < x.d / 2; from += 32) {
      const Lanes<int> j = lane() + from;
      Lanes<double> angle[1] = {0.};
      if (x.arrays.angles.data) load(angle, x.arrays.angles, j + state * (x.d / 2), j < x.d / 2);
      const Lanes<double> turns[1] = {turns_after(0., 1., angle[0])};
      store(x.turns, j + key * (x.d / 2), turns, j < x.d / 2);
    }
  }
};

}  // namespace sympow::cuda
