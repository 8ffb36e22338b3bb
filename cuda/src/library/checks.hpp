// Whether arguments are what they must be. A host can tell without touching an array.
#pragma once

#include <sympow/cuda/decode.hpp>
#include <sympow/cuda/gradient.hpp>

namespace sympow::cuda::library {

/// Sizes, heads, and whether the kernels were compiled.
Status check_problem(const Problem& problem) noexcept;

/// The arrays of a call. Those of a problem without tokens may be missing.
Status check_arrays(const Problem& problem, const Inputs& inputs, const Outputs& outputs) noexcept;

/// The arrays of `attend_vjp`.
Status check_vjp_arrays(const Problem& problem, const Inputs& inputs, const RowGradients& rows,
                        const Gradients& gradients) noexcept;

/// Any of its pointers is there.
bool is_there(const ConstState& state) noexcept;

/// All of its pointers are there, and aligned; the angles of a gradient need not be.
Status check_state(const Problem& problem, const ConstState& state, const char* name,
                   bool is_gradient = false) noexcept;

/// The arrays of states; angles may be missing.
Status check_state_arrays(const Problem& problem, const StateArrays& arrays) noexcept;

/// Of a tail, in tokens.
Status check_capacity(int capacity) noexcept;

/// Its arrays and sizes.
Status check_tail(const Problem& problem, const Tail& tail) noexcept;

/// Its slots, and whether sequences and counts fit them.
Status check_slots(const Problem& problem, const Tail& tail, const Slots& slots) noexcept;

/// An array of 32-bit integers; whether it must be there.
Status check_integers(const char* name, const void* data, bool needed) noexcept;

/// The problem of a call that decodes.
Status check_decoding(const Problem& problem) noexcept;

}  // namespace sympow::cuda::library
