// What a head costs in each form, as far as its shape can tell: which form is the fastest, and how long its chunks are.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <sympow/core/choices.hpp>
#include <sympow/core/config.hpp>
#include <sympow/transition/key_action.hpp>

namespace sympow {

/// What forms cost beside the operations that they are made of, each in operations of a large product: what a core does
/// in the same time. Those given are of float on Zen 5 with AVX-512; `./dev bench --calibrate` measures a machine's
/// own.
struct Costs {
  double score = 15;  ///< a query with a key that it sees: the power of the logit, and the gate
  double segment =
      2500;  ///< a chunk, for every entry of φ: the state on its way through the registers, and panels half full
};

/// What one call asks of a form.
struct ProblemShape {
  /// The dimension of an embedding that there is not.
  static constexpr double no_embedding = std::numeric_limits<double>::infinity();

  Index T;                             ///< tokens
  Index d;                             ///< numbers a key
  Index e;                             ///< numbers a value
  double D = no_embedding;             ///< numbers an embedding, more than there can be if the call has none
  KeyAction action = KeyAction::none;  ///< of the transition
  bool is_full = false;                ///< every query sees every key
  bool keeps_state = false;            ///< the call has a state to leave behind: attention is no choice
  bool from_nothing = true;            ///< no tokens came before
};

}  // namespace sympow

namespace SYMPOW_NAMESPACE {
namespace detail {

// What a chunk costs however small φ is, and a call of attention, as entries of φ.
inline double segment_overhead(Index d) { return 30 + .6 * static_cast<double>(d); }
inline constexpr double least_attention = 27;

// Tokens that a state holds as they are before it embeds any: its tail by default.
inline constexpr Index usual_tail_tokens = 32;

/// Operations of n queries with the keys up to their own, or with all n.
inline double cost_of_pairs(const ProblemShape& shape, double n, const Costs& costs) {
  const auto d = static_cast<double>(shape.d), e = static_cast<double>(shape.e);
  const double pulls = shape.action == KeyAction::mix ? 2 * d : 0;
  return n * (shape.is_full ? n : (n + 1) / 2) * (2 * (d + e) + costs.score + pulls);
}

/// Operations of the chunked form with chunks of this size.
inline double cost_of_chunks(const ProblemShape& shape, double size, const Costs& costs) {
  const auto T = static_cast<double>(shape.T), d = static_cast<double>(shape.d), e = static_cast<double>(shape.e);
  const double chunk = std::max(std::min(size, T), 1.0), chunks = std::ceil(T / chunk);
  const double pairs = shape.is_full ? 0 : T / chunk * cost_of_pairs(shape, chunk, costs);
  const bool skips_first = shape.from_nothing && !shape.is_full;
  if (skips_first && shape.T <= usual_tail_tokens)  // no token needs φ
    return chunks * costs.segment * segment_overhead(shape.d) + pairs;
  const double read = skips_first ? T - chunk : T, chain = shape.action == KeyAction::mix ? 4 * d * (d + e) : 0;
  return (read + T) * 2 * shape.D * (e + 1) + T * chain +
         chunks * costs.segment * (shape.D + segment_overhead(shape.d)) + pairs;
}

/// Tokens of a segment of a scan, whole chunks: a merge moves 3 (e + 1) D numbers through memory, which with the
/// states' other ways is as long as 60 (e + 1) D operations, and tokens that are read directly cost d + e operations
/// for every one of the segment; √(32 D) of them cost the same.
inline Index scanned_segment(Index D, Index chunk) {
  const auto balanced = static_cast<Index>(std::sqrt(32 * static_cast<double>(D)));
  return (std::clamp(balanced, chunk, std::max<Index>(chunk, 512)) + chunk / 2) / chunk * chunk;
}

}  // namespace detail

/// The chunk of the chunked form that takes the fewest operations: a multiple of 48 tokens, 96 for a Householder chain,
/// to 240, or all tokens of a call of at most 256, or of 512 if it begins with an empty state, which need not be read.
/// About
///
///     c ≈ √(2 D a / (2 (d + e) + s))                     s = Costs::score, a = Costs::segment
///
/// The optimum is flat. Cost: O(1).
[[nodiscard]] inline Index cheapest_chunk(const ProblemShape& shape, const Costs& costs = {}) {
  constexpr Index most = 240;                                   // products of more than 256 terms are made in two steps
  const Index step = shape.action == KeyAction::mix ? 96 : 48;  // a chain keeps products of 96 tokens
  const Index at_once = shape.from_nothing ? 512 : 256;
  Index best = step;
  const auto cost = [&](Index chunk) { return detail::cost_of_chunks(shape, static_cast<double>(chunk), costs); };
  for (Index chunk = 2 * step; chunk <= most && chunk < shape.T + step; chunk += step)
    if (cost(chunk) < cost(best)) best = chunk;
  if (step < shape.T && shape.T <= at_once && cost(shape.T) < cost(best)) best = shape.T;
  return std::clamp<Index>(shape.T, 1, best);
}

/// The form that takes the fewest operations for T tokens of one head:
///
///     attention   T²/2 (2 (d + e) + s) + 27 a
///     chunked     4 T D (e + 1) + T/c (a (D + 30 + .6 d) + c²/2 (2 (d + e) + s))
///                 less 2 c D (e + 1) from an empty state
///
/// with the costs s of a score and a of a segment; a Householder chain adds its pulls and its products, and up to 32
/// tokens from an empty state need no φ. So for large D a state pays from T ≈ 2 D on, and not for one token less. The
/// recurrent form is never the cheapest: its steps are chunks of one token. Shapes alone decide: gates that vanish,
/// whose keys attention skips, are not foreseen. A call that has a state never gets attention; one without an embedding
/// gets nothing else. Cost: O(1). Source: Symmetric Power Transformers, §2.
[[nodiscard]] inline Form cheapest_form(const ProblemShape& shape, const Costs& costs = {}) {
  const double chunked = detail::cost_of_chunks(shape, static_cast<double>(cheapest_chunk(shape, costs)), costs);
  const double attention =
      detail::cost_of_pairs(shape, static_cast<double>(shape.T), costs) + costs.segment * detail::least_attention;
  const double new_state = 4 * shape.D * static_cast<double>(shape.e + 1);  // set to zero
  return !shape.keeps_state && !(attention > chunked + new_state) ? Form::attention : Form::chunked;
}

}  // namespace SYMPOW_NAMESPACE
