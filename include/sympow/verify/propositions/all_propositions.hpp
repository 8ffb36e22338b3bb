// Every checked statement of the source papers, by groups in the order of the papers' argument.
#pragma once

#include <sympow/verify/propositions/conformal_propositions.hpp>
#include <sympow/verify/propositions/distribution_propositions.hpp>
#include <sympow/verify/propositions/induced_propositions.hpp>
#include <sympow/verify/propositions/joint_block_propositions.hpp>
#include <sympow/verify/propositions/kernel_propositions.hpp>
#include <sympow/verify/propositions/listing_propositions.hpp>
#include <sympow/verify/propositions/perturbation_propositions.hpp>
#include <sympow/verify/propositions/positional_bias_propositions.hpp>
#include <sympow/verify/propositions/post_rotation_propositions.hpp>
#include <sympow/verify/propositions/random_feature_propositions.hpp>
#include <sympow/verify/propositions/recurrence_propositions.hpp>
#include <sympow/verify/propositions/robustness_propositions.hpp>
#include <sympow/verify/propositions/rotation_propositions.hpp>
#include <sympow/verify/propositions/structured_rotation_propositions.hpp>
#include <sympow/verify/propositions/symmetric_tensor_propositions.hpp>
#include <sympow/verify/propositions/table_propositions.hpp>

namespace sympow::verify {

/// Propositions about one subject.
struct PropositionGroup {
  const char* name;                                    ///< what they are about
  void (*decide)(Ledger& ledger, std::uint64_t seed);  ///< adds them, decided on random inputs of this seed
};

/// All groups, to be decided in arithmetic of the given scalar type.
template <class Scalar>
[[nodiscard]] const std::vector<PropositionGroup>& proposition_groups() {
  static const std::vector<PropositionGroup> groups = {
      {"kernels and tensor products", kernel_propositions<Scalar>},
      {"recurrences and gates", recurrence_propositions<Scalar>},
      {"rotations", rotation_propositions<Scalar>},
      {"conformal-sympow", conformal_propositions<Scalar>},
      {"the induced map", induced_propositions<Scalar>},
      {"positional biases", positional_bias_propositions<Scalar>},
      {"distributions", distribution_propositions<Scalar>},
      {"symmetric tensors", symmetric_tensor_propositions<Scalar>},
      {"listings", listing_propositions<Scalar>},
      {"tables", table_propositions<Scalar>},
      {"planes of commuting generators", joint_block_propositions<Scalar>},
      {"structured rotations", structured_rotation_propositions<Scalar>},
      {"Cayley transforms and post-rotations", post_rotation_propositions<Scalar>},
      {"generators that nearly commute", robustness_propositions<Scalar>},
      {"commutators and perturbations", perturbation_propositions<Scalar>},
      {"random features", random_feature_propositions<Scalar>},
  };
  return groups;
}

}  // namespace sympow::verify
