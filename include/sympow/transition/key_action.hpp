// What a transition does to keys. Needs no Eigen.
#pragma once

namespace sympow {

/// What the part of A_i in key space is.
enum class KeyAction {
  none,  ///< the identity: scalar decay only
  /// a rotation, which queries and keys undergo in absolute coordinates: the frame knows it and a state stands still
  turn,
  scale,  ///< diagonal
  mix     ///< any matrix: a state is multiplied by it
};

}  // namespace sympow
