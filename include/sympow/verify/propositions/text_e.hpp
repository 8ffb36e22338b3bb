// Every checked statement of text E on structured positional rotations.
#pragma once

#include <vector>

#include <sympow/verify/propositions/joint_block_propositions.hpp>
#include <sympow/verify/propositions/perturbation_propositions.hpp>
#include <sympow/verify/propositions/post_rotation_propositions.hpp>
#include <sympow/verify/propositions/random_feature_propositions.hpp>
#include <sympow/verify/propositions/robustness_propositions.hpp>
#include <sympow/verify/propositions/structured_rotation_propositions.hpp>

namespace sympow::verify {

/// Groups of propositions in the order of the text's argument, to be decided in arithmetic of the given scalar type.
template <class Scalar>
[[nodiscard]] std::vector<PropositionGroup> text_e() {
  return {
      {"planes of commuting generators", joint_block_propositions<Scalar>},
      {"structured rotations", structured_rotation_propositions<Scalar>},
      {"Cayley transforms and post-rotations", post_rotation_propositions<Scalar>},
      {"generators that nearly commute", robustness_propositions<Scalar>},
      {"commutators and perturbations", perturbation_propositions<Scalar>},
      {"random features", random_feature_propositions<Scalar>},
  };
}

}  // namespace sympow::verify
