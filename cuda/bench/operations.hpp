// How many operations and bytes a problem needs: what rates are counted from. Padding of tiles is not counted.
#pragma once

#include <algorithm>

#include <sympow/cuda/attention.hpp>

#include "fill.hpp"

namespace sympow::cuda::bench {

/// Of sequences that are all as long, T tokens, D monomials, e' = e + 1 value channels with the normaliser:
///
///     quadratic   T (T + 1) (d + e') of every query head: half of the square, 2 operations a product and sum
///     chunked     2 T D e' of every state head (update) and query head (queries), and T (c + 1) (d + e') of pairs
inline double operations(const Problem& p, Form form, int chunk) {
  const double T = static_cast<double>(p.tokens), D = static_cast<double>(monomials(p.power, p.d));
  const double e = p.e + (p.is_normalised() ? 1 : 0), query = static_cast<double>(p.batch * p.query_heads);
  const double length = form == Form::attention ? T : std::min<double>(T, chunk);
  const double pairs = query * T * (length + 1) * (p.d + e);
  if (form == Form::attention) return pairs;
  return pairs + 2 * T * D * e * (query + static_cast<double>(p.batch * p.state_heads()));
}

/// As flash-linear-attention's kernels work, and as their rates are given, whatever the chunk here: states of d × e
/// read and updated, and pairs in chunks of 64, of which mlstm_kernels counts the whole square:
///
///     T h (4 d e + 2 · 64 (d + e)), or with half of the square T h (4 d e + 64 (d + e))
///
/// The half is what is taken here, so that nothing is counted that need not be done.
inline double linear_operations(const Problem& p) {
  return static_cast<double>(p.batch * p.tokens * p.query_heads) * (4. * p.d * p.e + 64. * (p.d + p.e));
}

/// Queries, keys, values and gates read, rows written, once.
inline double bytes_of_arrays(const Problem& p) {
  const double channels = static_cast<double>(p.query_heads * (p.d + p.e) + p.key_heads * (p.d + p.e));
  return static_cast<double>(p.batch * p.tokens) *
         (channels * static_cast<double>(bytes_of(p.element)) + 4. * static_cast<double>(p.gate_heads));
}

/// S and Z of all sequences and heads.
inline double bytes_of_states(const Problem& p) {
  return 4. * static_cast<double>(p.batch * p.state_heads() * monomials(p.power, p.d)) * (p.e + 1);
}

}  // namespace sympow::cuda::bench
