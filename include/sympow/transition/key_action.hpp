// How a transition acts on keys. Needs no Eigen.
#pragma once

namespace sympow {

/// The factor of A_i that acts on keys.
enum class KeyAction {
  none,  ///< identity: scalar decay only
  /// a rotation of queries and keys in absolute coordinates; the frame records it and the state stays unchanged
  turn,
  scale,  ///< diagonal
  mix     ///< any matrix; it multiplies the state
};

}  // namespace sympow
