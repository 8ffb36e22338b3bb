// What attention costs in each form, as far as its shape can tell: which one is the fastest, and how long chunks are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <sympow/cuda/problem.hpp>

#include "costs.hpp"

namespace sympow::cuda::library {

/// What a call asks of a form.
struct Shape {
  double tokens;      ///< of the longest sequence
  double all_tokens;  ///< of the batch
  double query_heads, state_heads;
  double d, e, D;      ///< D monomials
  double rows = D;     ///< of a state between chunks (state_rows.hpp)
  double terms = 1;    ///< in which such a state is kept
  bool along = false;  ///< blocks go along their chunks with the state (LinearAttention)
};

namespace detail {

// Tiles of kernels: value channels, with those of the normaliser; queries of a block; monomials of a block.
inline double columns(const Shape& s) { return 72 * std::ceil(s.e / 64); }
inline constexpr double rows_of_block = 256, monomials_of_block = 640;

/// Seconds of a kernel: its operations on the whole machine, or those of its longest block on one multiprocessor.
inline double kernel(double all, double longest_block, double rate, const Costs& costs) {
  return costs.launch + std::max(all, longest_block * costs.multiprocessors) / rate;
}

inline double seconds_of_weights(const Shape& s, double chunk, const Costs& costs) {
  return std::ceil(std::min(chunk, s.tokens) / 256) * costs.pass + costs.launch;
}

/// Weights, and queries with the keys of their own chunk.
inline double seconds_of_pairs(const Shape& s, double chunk, const Costs& costs) {
  const double length = std::min(chunk, s.tokens), each = 2 * (s.d + columns(s));
  return seconds_of_weights(s, chunk, costs) +
         kernel(s.all_tokens * s.query_heads * (length + rows_of_block) / 2 * each,
                std::min(rows_of_block, length) * length * each, costs.pair, costs);
}

inline double blocks_along(const Shape& s) { return s.query_heads * std::ceil(s.e / 64); }  ///< of a chunk

/// Rows of LinearAttention: tiles of a chunk one after the other, those of a multiprocessor's blocks at once. Fewer
/// than 2 ½ blocks wait for themselves.
inline double seconds_along(const Shape& s, double chunk, const Costs& costs) {
  const double tiles = std::ceil(std::min(chunk, s.tokens) / 64), of_tile = costs.tile * (1 + s.d / 64) / 2;
  const double blocks = std::ceil(s.all_tokens / std::max(chunk, 1.)) * blocks_along(s);
  return costs.launch + tiles * of_tile * std::max(std::ceil(blocks / costs.multiprocessors), 2.5);
}

}  // namespace detail

/// Seconds of the chunked form: weights, what pairs take, and
///
///     update   2 T D e'                                 e' = 72 ⌈e / 64⌉, of every state head
///     scan     T/c (8 D (e + 1) + R (2 n e + 8)) bytes  written by update, read, written as prefixes of n terms
///     query    2 n T R e'                               of every query head
inline double seconds_of_chunks(const Shape& s, double chunk, const Costs& costs = {}) {
  const double length = std::min(chunk, s.tokens), width = 2 * detail::columns(s);
  const double chunks = std::ceil(s.all_tokens / std::max(chunk, 1.)) * s.state_heads;
  const double update = detail::kernel(s.all_tokens * s.state_heads * s.D * width,
                                       length * std::min(detail::monomials_of_block, s.D) * 144, costs.update, costs);
  const double query =
      detail::kernel(s.terms * s.all_tokens * s.query_heads * s.rows * width,
                     s.terms * std::min(detail::rows_of_block, length) * s.rows * 144, costs.query, costs) -
      costs.launch;
  const double bytes = 8 * s.D * (s.e + 1) + s.rows * (2 * s.terms * s.e + 8);
  const double scan = chunks * bytes / costs.memory + 2 * costs.launch;
  if (s.along)
    return detail::seconds_of_weights(s, chunk, costs) + update + scan + detail::seconds_along(s, chunk, costs);
  return detail::seconds_of_pairs(s, chunk, costs) + update + scan + query;
}

/// Seconds of the quadratic form: T²/2 2 (d + e') operations of every query head.
inline double seconds_of_quadratic(const Shape& s, const Costs& costs = {}) {
  return detail::seconds_of_pairs(s, s.tokens, costs);
}

/// The chunk of the chunked form: 2^6 … 2^14 tokens, no longer than a sequence needs. The optimum is flat: short chunks
/// cost memory for states, long ones pairs. Of long sequences: about √(10 D e / (d + e') · pair / memory). Where blocks
/// go along chunks there are as many as multiprocessors take at once.
inline int cheapest_chunk(const Shape& s, const Costs& costs = {}) {
  int best = 64;
  const auto consider = [&](int chunk) {
    if (chunk < 2 * s.tokens && seconds_of_chunks(s, chunk, costs) < seconds_of_chunks(s, best, costs)) best = chunk;
  };
  for (int chunk = 128; chunk <= 1 << 14; chunk *= 2) consider(chunk);
  for (int blocks = 1; blocks <= 6 && s.along; ++blocks) {  // so many of every multiprocessor
    const double all = s.all_tokens * detail::blocks_along(s) / (blocks * costs.multiprocessors);
    consider(64 * static_cast<int>(std::clamp(std::ceil(all / 64), 1., 256.)));
  }
  return best;
}

/// The form that takes less time for sequences that carry no state.
inline Form cheapest_form(const Shape& s, const Costs& costs = {}) {
  const double chunked = seconds_of_chunks(s, cheapest_chunk(s, costs), costs);
  return seconds_of_quadratic(s, costs) <= chunked ? Form::attention : Form::chunked;
}

}  // namespace sympow::cuda::library
