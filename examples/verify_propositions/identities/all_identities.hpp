// Every statement of the papers that is decided over the rational numbers.
#pragma once

#include "identities/attention_identities.hpp"
#include "identities/backward_identities.hpp"
#include "identities/feature_identities.hpp"
#include "identities/gate_identities.hpp"
#include "identities/gradient_identities.hpp"
#include "identities/gradient_state_identities.hpp"
#include "identities/real_identities.hpp"
#include "identities/robustness_identities.hpp"
#include "identities/rotation_identities.hpp"
#include "identities/softmax_identities.hpp"
#include "identities/table_identities.hpp"
#include "identities/tensor_identities.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {

/// All of them.
[[nodiscard]] inline Identities all_identities() {
  Identities all;
  attention_identities(all);
  tensor_identities(all);
  gate_identities(all);
  rotation_identities(all);
  robustness_identities(all);
  gradient_identities(all);
  gradient_state_identities(all);
  backward_identities(all);
  softmax_identities(all);
  table_identities(all);
  feature_identities(all);
  real_identities(all);
  return all;
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
