// Every checked statement of text D on forget gates and positional embeddings.
#pragma once

#include <vector>

#include <sympow/verify/propositions/bias_duality_propositions.hpp>
#include <sympow/verify/propositions/forget_gate_propositions.hpp>
#include <sympow/verify/propositions/householder_duality_propositions.hpp>
#include <sympow/verify/propositions/rotary_duality_propositions.hpp>
#include <sympow/verify/propositions/softmax_propositions.hpp>

namespace sympow::verify {

/// Groups of propositions in the order of the text's argument, to be decided in arithmetic of the given scalar type.
template <class Scalar>
[[nodiscard]] std::vector<PropositionGroup> text_d() {
  return {
      {"softmax attention", softmax_propositions<Scalar>},
      {"forget gates", forget_gate_propositions<Scalar>},
      {"gates that are biases", bias_duality_propositions<Scalar>},
      {"a complex gate and RoPE", rotary_duality_propositions<Scalar>},
      {"Householder chains", householder_duality_propositions<Scalar>},
  };
}

}  // namespace sympow::verify
