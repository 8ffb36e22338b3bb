// The weights of all that a decoded row sees.
#pragma once

#include <limits>

#include "channels.hpp"

namespace sympow::cuda {

/// The tokens of a row in shared memory, by age. A score is q̂·k̂_j = 2^{s_j} p, 1 ≤ |p| < 2.
struct RowTokens {
  static constexpr int most = 128, arrays = 6;  ///< four a lane of one warp

  block::Shared<float> gates;    ///< log γ_j; 0 beyond the oldest
  block::Shared<float> powers;   ///< p^P; 0 of scores of 0
  block::Shared<int> exponents;  ///< P x_j
  block::Shared<int> shifts;     ///< P s_j
  block::Shared<float> lengths;  ///< log2 (‖q̂‖ ‖k̂_j‖)^P, for the condition
  block::Shared<float> weights;  ///< w_j

  SYMPOW_DEVICE explicit RowTokens(block::Arena& arena)
      : gates(arena.take<float>(most)),
        powers(arena.take<float>(most)),
        exponents(arena.take<int>(most)),
        shifts(arena.take<int>(most)),
        lengths(arena.take<float>(most)),
        weights(arena.take<float>(most)) {}
};

/// What a row has of its state, all lanes alike.
struct RowState {
  block::Lanes<double> level;            ///< L
  block::Lanes<float> mass, normaliser;  ///< ‖q̂‖^P times the mass; Σ_m c_m φ_m(q̂) Z_m
};

/// All lanes alike, weights in units of 2^r.
struct RowWeights {
  block::Lanes<double> r;                           ///< 0 where nothing has weight
  block::Lanes<float> state, sum, noise, absolute;  ///< f; den; A; Σ_j b_ij (‖q̂‖ ‖k_j‖)^P
  block::Lanes<int> sees_state, tokens;             ///< whether it sees the state; how many of the youngest tokens
};

/// The logarithm of a weight of 0.
inline constexpr double log2_zero = -std::numeric_limits<double>::infinity();

/// x^P, P ≤ 4.
SYMPOW_DEVICE block::Lanes<float> power(block::Lanes<float> x, int P) {
  const block::Lanes<float> square = x * x;
  return P == 1 ? x : P == 2 ? square : square * (P == 3 ? x : square);
}

/// For one warp, four tokens a lane. Writes the weights of tokens.
SYMPOW_DEVICE RowWeights row_weights(const RowTokens& of, int tokens, bool with_signs, bool with_absolute,
                                     const RowState& state) {
  using namespace block;
  constexpr double log2_e = 1.4426950408889634;
  const Lanes<int> first = lane() * 4;
  Lanes<float> gate[4], power[4] = {0.f, 0.f, 0.f, 0.f};
  Lanes<int> exponent[4] = {0, 0, 0, 0}, shift[4] = {0, 0, 0, 0};
  load(gate, of.gates, first);
  load(power, of.powers, first, first < tokens);
  load(exponent, of.exponents, first, first < tokens);
  load(shift, of.shifts, first, first < tokens);

  // Γ_j in natural logarithms: gates of younger tokens of the lane, then those of younger lanes.
  Lanes<double> newer[4], through = 0.;
  SYMPOW_UNROLL
  for (int n = 0; n < 4; ++n) {
    newer[n] = through;
    through += convert<double>(gate[n]);
  }
  SYMPOW_UNROLL
  for (int distance = 1; distance < 32; distance *= 2) {
    const Lanes<double> before = shuffle_up(through, distance);
    through = where(lane() < distance, through, through + before);
  }
  const Lanes<double> before = where(lane() < 1, 0., shuffle_up(through, 1));
  const Lanes<double> state_weight = shuffle(through, 31) * log2_e - floor(-state.level);

  Lanes<double> weight[4], term[4], r = state_weight;  // log2: of a key, with its score
  SYMPOW_UNROLL
  for (int n = 0; n < 4; ++n) {
    weight[n] = where(first + n < tokens, (newer[n] + before) * log2_e + exponent[n], Lanes<double>(log2_zero));
    term[n] = where(power[n] == 0.f, log2_zero, weight[n] + shift[n]);
    r = where(r < term[n], term[n], r);
  }
  r = largest_over(r, 32);
  r = where(r == log2_zero, 0., r);

  RowWeights row{r, exp2(convert<float>(state_weight - r)), 0.f, 0.f, 0.f, where(state_weight == log2_zero, 0, 1), 0};
  Lanes<float> w[4], sizes = 0.f;
  SYMPOW_UNROLL
  for (int n = 0; n < 4; ++n) {
    w[n] = where(term[n] == log2_zero, 0.f, exp2(convert<float>(term[n] - r)) * power[n]);
    row.sum += w[n];
    sizes += absolute(w[n]);
    row.tokens += where(weight[n] == log2_zero, 0, 1);
  }
  store(of.weights, first, w);
  if (with_absolute) {
    Lanes<float> length[4] = {0.f, 0.f, 0.f, 0.f};
    load(length, of.lengths, first, first < tokens);
    SYMPOW_UNROLL
    for (int n = 0; n < 4; ++n)
      row.absolute += where(weight[n] == log2_zero, 0.f, exp2(convert<float>(weight[n] - r) + length[n]));
    row.absolute = sum_over(row.absolute, 32);
  }

  const Lanes<bool> sees = row.sees_state == 1;
  const Lanes<float> mass = where(sees, row.state * state.mass, 0.f);
  row.sum = sum_over(row.sum, 32) + where(sees, row.state * state.normaliser, 0.f);
  row.absolute += mass;
  row.noise = with_signs ? mass + sum_over(sizes, 32) : mass;
  row.tokens = sum_over(row.tokens, 32);
  return row;
}

}  // namespace sympow::cuda
