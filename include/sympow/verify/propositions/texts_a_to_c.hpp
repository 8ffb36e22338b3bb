// Every checked statement of the texts A, B and C on symmetric power transformers.
#pragma once

#include <vector>

#include <sympow/verify/propositions/conformal_propositions.hpp>
#include <sympow/verify/propositions/distribution_propositions.hpp>
#include <sympow/verify/propositions/induced_propositions.hpp>
#include <sympow/verify/propositions/kernel_propositions.hpp>
#include <sympow/verify/propositions/listing_propositions.hpp>
#include <sympow/verify/propositions/positional_bias_propositions.hpp>
#include <sympow/verify/propositions/recurrence_propositions.hpp>
#include <sympow/verify/propositions/rotation_propositions.hpp>
#include <sympow/verify/propositions/symmetric_tensor_propositions.hpp>
#include <sympow/verify/propositions/table_propositions.hpp>

namespace sympow::verify {

/// Groups of propositions in the order of the texts' argument, to be decided in arithmetic of the given scalar type.
template <class Scalar>
[[nodiscard]] std::vector<PropositionGroup> texts_a_to_c() {
  return {
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
  };
}

}  // namespace sympow::verify
