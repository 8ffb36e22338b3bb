// The state of every sequence and state head: all that later tokens need of earlier ones.
#pragma once

#include <cstddef>

#include "problem.hpp"
#include "status.hpp"

namespace sympow::cuda {

/// Pointers alone: sizes are those of the problem, and nobody checks that memory has them. Of every sequence and state
/// head, on the device, in units of 2^⌈L⌉:
///
///     S = Σ_j w_j φ(k_j) v_jᵀ      Z = Σ_j w_j φ(k_j)      w_j the product of the gates since token j
///
/// φ is the D = C(d + P - 1, P) monomials k_{i1} ⋯ k_{iP}, i1 ≤ … ≤ iP, in lexicographic order, without coefficients.
/// (In the CPU's states each row has the root of its multinomial coefficient.) Pointers are aligned to 16 bytes.
struct State {
  float* sums = nullptr;        ///< [B, Hs, D, e]: S
  float* normaliser = nullptr;  ///< [B, Hs, D]: Z
  double* level = nullptr;      ///< [B, Hs]: L, log2 of the largest w_j 2^(P x_j), 2^x_j ≥ ‖k_j‖; -∞ of an empty state
  float* mass = nullptr;        ///< [B, Hs]: Σ_j w_j ‖k_j‖^P
  /// [B, Hk, d/2], of rotary: μ / 2π of the last token, reduced to [-½, ½]. Of a gradient: see attend_vjp
  double* turns = nullptr;
};

/// The same, to be read.
struct ConstState {
  const float* sums = nullptr;
  const float* normaliser = nullptr;
  const double* level = nullptr;
  const float* mass = nullptr;
  const double* turns = nullptr;

  ConstState() noexcept = default;
  ConstState(const State& x) noexcept
      : sums(x.sums), normaliser(x.normaliser), level(x.level), mass(x.mass), turns(x.turns) {}
  friend bool operator==(const ConstState&, const ConstState&) = default;
};

/// D = C(d + P - 1, P); 0 where it is beyond 2^31.
[[nodiscard]] std::int64_t monomials(int power, int d) noexcept;

/// The bytes of a state of this problem, in one piece of memory: B Hs (4 D (e + 1) + 12), with rotary 4 B Hk d more,
/// and what aligns its parts.
Status state_bytes(const Problem& problem, std::size_t& bytes) noexcept;

/// The arrays of a state in one piece of memory, aligned to 256 bytes as what cudaMalloc returns. Sets no entry.
Status state_in(const Problem& problem, void* memory, std::size_t bytes, State& state) noexcept;

/// Makes a state empty, with all angles 0. Cost: its bytes written once.
Status clear(const Problem& problem, const State& state, Stream stream) noexcept;

/// States as numbers, on the device, dense, aligned to 16 bytes: √c_m S and √c_m Z in units of 1, c_m the multinomial
/// coefficient of monomial m, as `State` of the CPU has them. Of gradients the derivatives in these.
struct StateArrays {
  float* sums = nullptr;        ///< [B, Hs, D, e]
  float* normaliser = nullptr;  ///< [B, Hs, D]
  double* angles = nullptr;     ///< [B, Hs, d/2]: μ in radians; null: 0, or not wanted
};

/// A state from such arrays, each entry rounded once. States of a key head turn by the angles of the first of them. Of
/// an odd P the mass is not known: condition numbers leave this state out. Cost: the arrays read twice, written once,
/// by one block a state.
Status state_of_arrays(const Problem& problem, const StateArrays& arrays, const State& state, Stream stream) noexcept;

/// The other way: infinite where float cannot hold it. Cost: the arrays read and written once.
Status state_to_arrays(const Problem& problem, const ConstState& state, const StateArrays& arrays,
                       Stream stream) noexcept;

}  // namespace sympow::cuda
