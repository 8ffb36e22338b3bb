// What the forms run on, and the chunks that they use.
#pragma once

#include <sympow/core/random.hpp>
#include <sympow/sympow.hpp>

#include "bars.hpp"

namespace sympow::bench {

/// Tokens with gates near 1, nearer in long sequences, so that attention skips nothing: the last token still sees e^-4 of the first.
struct Tokens {
  Index d, e, T;
  Random random{1};
  Matrix<float> Q = random.matrix<float>(d, T), K = random.matrix<float>(d, T), V = random.matrix<float>(e, T), Y = V;
  double slowness = T < 8192 ? .01 : 5. / static_cast<double>(T);
  Eigen::VectorXd log_gamma = -slowness * random.vector(T).cwiseAbs();
  Workspace<float> workspace{};
};

/// The same with learned rotary.
struct ConformalTokens : Tokens {
  Eigen::VectorXd beta = 1 + random.vector(T).array().tanh(), theta = rotary_frequencies<double>(d, 4096);
  decltype(decay(log_gamma) * rotary(theta, beta)) transition = decay(log_gamma) * rotary(theta, beta);

  ConformalTokens(Index rows, Index tokens) : Tokens{.d = rows, .e = rows, .T = tokens} {}
};

/// The chunk that the library takes where the call does not say, of a long head with an embedding of D entries.
inline Index own_chunk(Index D, Index d, Index e) {
  constexpr Index many = 16384;
  return cheapest_chunk({.T = many, .d = d, .e = e, .D = static_cast<double>(D)});
}

/// Which chunk ran, and the fastest one if another is faster by more than 5 %: `form(chunk)` runs it.
template <class Form>
std::string chunk_note(Index own_size, Form&& form) {
  constexpr Index chunks[] = {0, 32, 64, 96, 128, 192, 256, 512};
  double best[std::size(chunks)];
  std::fill(std::begin(best), std::end(best), never);
  for (int round = 0; round < 3; ++round)
    for (std::size_t n = 0; n < std::size(chunks); ++n) best[n] = std::min(best[n], seconds([&] { form(chunks[n]); }));
  const auto fastest = std::min_element(std::begin(best), std::end(best));
  const std::string own = text("chunk %d", static_cast<int>(own_size));
  if (*fastest * 1.05 > best[0]) return own;
  return own + text("; %d is %.0f %% faster", static_cast<int>(chunks[fastest - std::begin(best)]),
                    100 * (best[0] / *fastest - 1));
}

/// Operations of T tokens in chunks: reading and folding an embedding of D entries, and the causal half of the chunk.
inline double chunked_operations(Index D, Index d, Index e, Index T) {
  return static_cast<double>(T) * static_cast<double>(4 * D * (e + 1) + own_chunk(D, d, e) * (d + e));
}

}  // namespace sympow::bench
