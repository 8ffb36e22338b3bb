// The run-time choices that C++, the C interface and CUDA have in common. Needs no Eigen.
#pragma once

#include <cstdint>

namespace sympow {

/// The form of a head; the numbers are those of `SYMPOW_FORM_…` in sympow.h.
enum class Form : std::int32_t {
  automatic = 0,  ///< the one that the cost model expects to be the fastest
  attention = 1,  ///< every query against every key that it sees, T² (d + e) operations; no state
  recurrent = 2,  ///< token by token, 4 T D (e + 1) operations
  chunked = 3     ///< attention inside chunks, a state between them: T (4 D (e + 1) + c (d + e)) operations
};

/// Which coordinates form pair j of d/2 (0-based). Nothing in a checkpoint says which it was trained with, and the
/// wrong one gives wrong rows without an error; so no call has a default. The numbers are those of `SYMPOW_PAIRING_…`
/// in sympow.h.
enum class Pairing : std::int32_t {
  interleaved = 0,  ///< 2j and 2j + 1: the RoFormer paper, GPT-J
  half_split = 1    ///< j and j + d/2: LLaMA, GPT-NeoX, most checkpoints
};

}  // namespace sympow
