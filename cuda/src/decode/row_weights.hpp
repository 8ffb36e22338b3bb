// The weights of all that a decoded row sees.
#pragma once

#include <limits>

#include "channels.hpp"

namespace sympow::cuda {

/// Tokens of a row in shared memory, by age.
struct RowTokens {
  static constexpr int most = 128;  ///< four a lane of one warp

  block::Shared<float> gates;   ///< log γ
  block::Shared<float> scores;  ///< q̂·k̂_j
  block::Shared<float> lengths;  ///< ‖k̂_j‖²
  block::Shared<int> exponents;  ///< x_j
  block::Shared<float> weights;  ///< w_j

  SYMPOW_DEVICE explicit RowTokens(block::Arena& arena)
      : gates(arena.take<float>(most)),
        scores(arena.take<float>(most)),
        lengths(arena.take<float>(most)),
        exponents(arena.take<int>(most)),
        weights(arena.take<float>(most)) {}
};

/// One row: its query q = 2^y q̂, and the state. Plain values of a warp's lanes, all lanes alike.
struct RowState {
  block::Lanes<double> level;
  block::Lanes<float> mass, normaliser, query_length;  ///< A; Σ_m c_m φ_m(q̂) Z_m; ‖q̂‖²
};

/// The logarithm of a weight of 0.
inline constexpr double no_weight = -std::numeric_limits<double>::infinity();

struct RowWeights {
  block::Lanes<double> r;                     ///< log2 of the row's unit; 0 where nothing has weight
  block::Lanes<float> state, sum, noise, absolute;  ///< f; den; A; Σ_j b_ij (‖q̂‖ ‖k_j‖)^P
  block::Lanes<int> sees_state, tokens;             ///< whether it sees the state; how many of the youngest tokens
};

/// x^P by P - 1 products.
SYMPOW_DEVICE block::Lanes<float> power(block::Lanes<float> x, int P) {
  block::Lanes<float> result = x;
  for (int p = 1; p < P; ++p) result *= x;
  return result;
}

/// For one warp, four tokens a lane. Writes the weights of tokens.
SYMPOW_DEVICE RowWeights row_weights(const RowTokens& of, int tokens, int P, const RowState& state) {
  using namespace block;
  constexpr double log2_e = 1.4426950408889634;
  constexpr float half = .5f;
  const Lanes<int> first = lane() * 4;
  const Lanes<bool> some = first < tokens;
  Lanes<float> gate[4], score[4], length[4];
  Lanes<int> exponent_of[4];
  SYMPOW_UNROLL
  for (int n = 0; n < 4; ++n) {
    gate[n] = score[n] = length[n] = 0.f;
    exponent_of[n] = 0;
  }
  load(gate, of.gates, first, some);
  load(score, of.scores, first, some);
  load(length, of.lengths, first, some);
  load(exponent_of, of.exponents, first, some);

  // Γ_j in natural logarithms: gates of younger tokens, those of a lane first, then those of lanes before it.
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

  Lanes<double> weight[4], term[4], r = state_weight;  // log2 of a key's weight; of the term with its score
  SYMPOW_UNROLL
  for (int n = 0; n < 4; ++n) {
    weight[n] = where(first + n < tokens, (newer[n] + before) * log2_e + exponent_of[n] * P, Lanes<double>(no_weight));
    const Lanes<int> of_score = exponent(absolute(score[n]));
    term[n] = where(score[n] == 0.f, no_weight, weight[n] + of_score * P);
    score[n] = score[n] * power_of_two(0 - of_score);
    r = where(r < term[n], term[n], r);
  }
  r = largest_over(r, 32);
  r = where(r == no_weight, 0., r);

  RowWeights row{r, exp2(convert<float>(state_weight - r)), 0.f, 0.f, 0.f, where(state_weight == no_weight, 0, 1), 0};
  Lanes<float> w[4], sizes = 0.f;
  SYMPOW_UNROLL
  for (int n = 0; n < 4; ++n) {
    w[n] = where(term[n] == no_weight, 0.f, exp2(convert<float>(term[n] - r)) * power(score[n], P));
    row.sum += w[n];
    row.tokens += where(weight[n] == no_weight, 0, 1);
    sizes += absolute(w[n]);
    const Lanes<float> log_cosine = log2(length[n] * state.query_length) * (half * static_cast<float>(P));
    row.absolute += where(weight[n] == no_weight, 0.f, exp2(convert<float>(weight[n] - r) + log_cosine));
  }
  store(of.weights, first, w);

  const Lanes<bool> sees = row.sees_state == 1;
  const Lanes<float> of_query = exp2(log2(state.query_length) * (half * static_cast<float>(P)));
  const Lanes<float> mass = where(sees, row.state * state.mass * of_query, 0.f);
  row.sum = sum_over(row.sum, 32) + where(sees, row.state * state.normaliser, 0.f);
  row.absolute = sum_over(row.absolute, 32) + mass;
  row.tokens = sum_over(row.tokens, 32);
  row.noise = P % 2 == 0 ? mass : mass + sum_over(sizes, 32);
  return row;
}

}  // namespace sympow::cuda
