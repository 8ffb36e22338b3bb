// What is computed, apart from the arrays: power, sizes, heads, and how.
#pragma once

#include <cstdint>
#include <optional>

#include <sympow/core/choices.hpp>

#include "view.hpp"

namespace sympow::cuda {

using sympow::Form, sympow::Pairing;

/// How tensor cores multiply floats, by parts of 8 bits: what is left out of a product, in relation to it.
enum class Products {
  exact,  ///< 2^-24, as much as a product in float: six products of parts
  fast    ///< 2^-15: three of them
};

/// How states between chunks are kept for tensor cores: what is left out of an entry, in relation to it. What counts is
/// the largest rounding: the products of a query's monomials stay rounded once, so that P 1 gains the most.
enum class Precision {
  rounded,  ///< 2^-8 of bf16, 2^-11 of fp16: one number of that type
  split     ///< 2^-16 of bf16, 2^-22 of fp16: a sum of two, which takes twice the memory, and twice as long to be read
};

/// Which kernels compute a call.
enum class Kernels {
  automatic,  ///< those for the device's architecture where it has them, for the problems that they support
  general     ///< only those for every architecture: the same results within the same bounds, in other bits
};

/// A problem of B sequences. Query head h reads the keys and values of key head ⌊h Hk / Hq⌋.
///
///     y_i = Σ_{j ≤ i} b_ij (scale q_i·k_j)^P v_j / Σ_{j ≤ i} b_ij (scale q_i·k_j)^P       b_ij = γ_{j+1} ⋯ γ_i
///
/// without the denominator where rows are not normalised. With rates, queries and keys are those of rotary positions:
/// pair j of token i turns by the angle μ_ij = μ_{i-1,j} + β_i rates_j, β = 1 if not given (Inputs). One description
/// may be used by many threads and streams.
struct Problem {
  int power = 2;                    ///< P
  int d = 64;                       ///< channels of queries and keys
  int e = 64;                       ///< channels of values, a multiple of 8 up to 256
  std::int64_t batch = 1;           ///< B, below 2^31; of a decoding below 2^16
  std::int64_t tokens = 0;          ///< of the longest sequence, or more; at most 2^30
  std::int64_t query_heads = 1;     ///< Hq, below 2^16
  std::int64_t key_heads = 1;       ///< Hk, of keys and values; divides Hq
  std::int64_t gate_heads = 0;      ///< 0, or as many as key heads or as query heads; each has a state
  Element element = Element::bf16;  ///< of queries, keys, values and rows
  /// On the device, B + 1 numbers: packed sequences, of which b has the tokens offsets[b] … offsets[b + 1] - 1.
  const std::int64_t* offsets = nullptr;
  std::int64_t total_tokens = -1;  ///< of packed sequences, and only of these; no offset is larger
  /// On the device, B numbers up to `tokens`: padded sequences of these lengths. Null: all are as long.
  const std::int32_t* lengths = nullptr;
  /// On the device, d/2 numbers, aligned to 16 bytes: radians a token by which pairs turn. Null: nothing turns.
  const double* rates = nullptr;
  std::optional<Pairing> pairing;         ///< must be said where there are rates
  std::optional<bool> normalised;         ///< by default rows of even powers are
  float scale = 1;                        ///< of unnormalised rows
  bool carries_state = false;             ///< there is an initial state, or the final one is wanted
  Products products = Products::exact;    ///< of floats; 16-bit numbers are multiplied as they are
  Precision states = Precision::rounded;  ///< of 16 bits; those of floats are floats
  Form form = Form::automatic;            ///< any but recurrent, which is `decode`
  int chunk = 0;  ///< tokens of the chunked form, a multiple of 64 up to 2^20; 0: by the cost model
  Kernels kernels = Kernels::automatic;  ///< of sums of chunks, rows and gradients

  bool is_normalised() const noexcept { return normalised.value_or(power % 2 == 0); }
  /// Hs: gates that query heads have of their own give each of them a state.
  std::int64_t state_heads() const noexcept { return gate_heads == 0 ? key_heads : gate_heads; }
  friend bool operator==(const Problem&, const Problem&) = default;
};

}  // namespace sympow::cuda
