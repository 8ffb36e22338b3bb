// The checked statements of the source papers by subject: declared here, defined in a header of their own each.
#pragma once

#include <vector>

#include <sympow/verify/proposition.hpp>

namespace SYMPOW_NAMESPACE::verify {

// Each adds its propositions to a ledger, decided in arithmetic of the given scalar type on random inputs of this seed.
template <class Scalar>
void kernel_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void recurrence_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void rotation_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void conformal_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void induced_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void positional_bias_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void distribution_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void symmetric_tensor_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void listing_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void table_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void softmax_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void forget_gate_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void bias_duality_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void rotary_duality_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void householder_duality_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void joint_block_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void structured_rotation_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void post_rotation_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void robustness_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void perturbation_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void random_feature_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void gradient_formula_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void gradient_flow_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void gradient_state_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void gradient_limit_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void gradient_library_propositions(Ledger& ledger, std::uint64_t seed);
template <class Scalar>
void gradient_extreme_propositions(Ledger& ledger, std::uint64_t seed);

/// All groups of propositions in the order of the papers' argument. Include all_propositions.hpp, or compile the
/// definitions in other files, as the program verify_propositions does.
template <class Scalar>
[[nodiscard]] std::vector<PropositionGroup> proposition_groups() {
  return {
      // A to C, on symmetric power transformers
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
      // D, on forget gates and positional embeddings
      {"softmax attention", softmax_propositions<Scalar>},
      {"forget gates", forget_gate_propositions<Scalar>},
      {"gates that are biases", bias_duality_propositions<Scalar>},
      {"a complex gate and RoPE", rotary_duality_propositions<Scalar>},
      {"Householder chains", householder_duality_propositions<Scalar>},
      // E, on structured positional rotations
      {"planes of commuting generators", joint_block_propositions<Scalar>},
      {"structured rotations", structured_rotation_propositions<Scalar>},
      {"Cayley transforms and post-rotations", post_rotation_propositions<Scalar>},
      {"generators that nearly commute", robustness_propositions<Scalar>},
      {"commutators and perturbations", perturbation_propositions<Scalar>},
      {"random features", random_feature_propositions<Scalar>},
  };
}
/// The same of gradients, which no paper states: of the program verify_gradients.
template <class Scalar>
[[nodiscard]] std::vector<PropositionGroup> gradient_groups() {
  return {
      {"derivatives of formulas", gradient_formula_propositions<Scalar>},
      {"gradients of gates and angles", gradient_flow_propositions<Scalar>},
      {"gradients through states", gradient_state_propositions<Scalar>},
      {"gradients of zeros", gradient_limit_propositions<Scalar>},
      {"gradients of every form and score", gradient_library_propositions<Scalar>},
      {"gradients at the ends of the type", gradient_extreme_propositions<Scalar>},
  };
}

}  // namespace SYMPOW_NAMESPACE::verify
