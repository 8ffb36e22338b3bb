// What a turn of a whole sequence changes, of a gradient in states, and back to a gradient in their angles.
#pragma once

#include "of_arrays.hpp"

namespace sympow::cuda {

/// Of a gradient in the states of a key head, for a turn of pair u of all their keys and of μ_u by the same angle,
///
///     gauge_u = Σ (∂loss/∂μ_u + ⟨∂loss/∂S, L_u S⟩)                 Z as one more channel
///     ⟨∂loss/∂S, L_u S⟩ = P Σ_r c_r (H_{rb}·S_{ra} - H_{ra}·S_{rb})
///
/// over these states and the monomials r of degree P - 1, a, b the channels of the pair, c_r the multinomial
/// coefficient of r, H the gradient as it is kept. It is the same before and behind every token, and 0 of a loss that
/// sees rows alone. Or the other way: ∂loss/∂μ_u of it, all of it in the first state of the key head, 0 in the others.
///
/// A block has a pair, a key head and a sequence. Cost: 16 D' (e + 1) bytes of a state and pair, D' the number of
/// monomials r. Products and sums are in double.
struct Gauges {
  static constexpr int warps = 8, threads = 32 * warps, shared_bytes = 8 * 32, blocks_per_multiprocessor = 2;

  struct Args {
    States states, gradients;  ///< sums null: they are 0
    Global<double> gauge;      ///< [B, Hk, d/2]; null where it is read: 0
    Global<double> angles;     ///< [B, Hs, d/2]: ∂loss/∂μ; null where it is read: 0
    Heads heads;
    int power, d, e;
    bool halves;  ///< a pair is the channels j and j + d/2, else 2 j and 2 j + 1
    bool to_angles;
  };

  static Blocks blocks(int batch, const Heads& heads, int d) { return {std::int64_t{batch} * (d / 2), heads.key}; }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int pairs = x.d / 2, b = block_index(0) / pairs, u = block_index(0) % pairs, w = warp();
    const std::int64_t key = std::int64_t{b} * x.heads.key + block_index(1);
    const int shared = x.heads.state / x.heads.key;
    Arena arena;
    const auto of_warps = arena.take<double>(32);

    Lanes<double> sum = 0.;
    for (int n = 0; n < shared && x.states.sums.data && x.gradients.sums.data; ++n)
      sum += turned(x, key * shared + n, u);
    SYMPOW_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
    const Lanes<double> own[1] = {sum};
    store(of_warps, lane() + w, own, lane() == 0);
    barrier();
    if (w > 0) return;
    Lanes<double> all = 0.;
    for (int v = 0; v < warps; ++v) all += load_one(of_warps, Lanes<int>(v));

    const Lanes<bool> first = lane() == 0;
    const auto angle_at = [&](int n) { return lane() + ((key * shared + n) * pairs + u); };
    const Lanes<std::int64_t> gauge_at = lane() + (key * pairs + u);
    Lanes<double> one[1] = {0.};
    if (x.to_angles) {
      if (x.gauge.data) load(one, x.gauge, gauge_at, first);
      one[0] = one[0] - all;
      for (int n = 0; n < shared; ++n) {
        store(x.angles, angle_at(n), one, first);
        one[0] = 0.;
      }
      return;
    }
    for (int n = 0; n < shared; ++n) {
      if (x.angles.data) load(one, x.angles, angle_at(n), first);
      all += one[0];
    }
    one[0] = all;
    store(x.gauge, gauge_at, one, first);
  }

 private:
  /// A lane's part of ⟨∂loss/∂S, L_u S⟩ of one state.
  SYMPOW_DEVICE static Lanes<double> turned(const Args& x, std::int64_t state, int u) {
    using namespace block;
    const Lanes<std::int64_t> at(state);
    const Lanes<double> level = load_one(x.states.level, at), gradient_level = load_one(x.gradients.level, at);
    if (uniform(level) == -infinity || uniform(gradient_level) == -infinity) return 0.;
    const Lanes<double> sum = turned<4>(x, x.states.sums, x.gradients.sums, x.e, state, u) +
                              turned<1>(x, x.states.normaliser, x.gradients.normaliser, 1, state, u);
    const Lanes<double> unit = wide_two_to(ceiling(level) + ceiling(gradient_level)) * x.power;
    return where(sum == 0., Lanes<double>(0.), sum * unit);  // whatever the unit is
  }
  /// Of S or Z, with so many channels, N of them at a time, in units of both.
  template <int N>
  SYMPOW_DEVICE static Lanes<double> turned(const Args& x, const Global<float>& states, const Global<float>& gradients,
                                            int channels, std::int64_t state, int u) {
    using namespace block;
    const int first = x.halves ? u : 2 * u, second = x.halves ? u + x.d / 2 : 2 * u + 1;
    const int count = x.power == 1 ? 1 : monomial_count(x.power - 1, x.d), parts = channels / N;
    const std::int64_t row = state * monomial_count(x.power, x.d);
    Lanes<double> sum = 0.;
    for (int from = 0; from < count * parts; from += threads) {
      const Lanes<int> n = lane() + (32 * warp() + from), r = n / parts, channel = n % parts * N;
      const Lanes<bool> active = r < count;
      const auto entry_with = [&](int c) { return (place_with(x.power, x.d, r, c) + row) * channels + channel; };
      const Lanes<std::int64_t> a = entry_with(first), b = entry_with(second);
      Lanes<float> S_a[std::size_t{N}], S_b[std::size_t{N}], H_a[std::size_t{N}], H_b[std::size_t{N}];
      SYMPOW_UNROLL
      for (int i = 0; i < N; ++i) S_a[i] = S_b[i] = H_a[i] = H_b[i] = 0.f;
      load(S_a, states, a, active);
      load(S_b, states, b, active);
      load(H_a, gradients, a, active);
      load(H_b, gradients, b, active);
      Lanes<double> part = 0.;
      SYMPOW_UNROLL
      for (int i = 0; i < N; ++i)
        part += convert<double>(H_b[i]) * convert<double>(S_a[i]) - convert<double>(H_a[i]) * convert<double>(S_b[i]);
      const Lanes<float> coefficient = multinomial(x.power - 1, x.d, r);
      sum += where(active, part * convert<double>(coefficient), Lanes<double>(0.));
    }
    return sum;
  }
};

}  // namespace sympow::cuda
