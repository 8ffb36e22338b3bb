// Every checked statement of the source papers, with its definition: long to compile.
#pragma once

#include <sympow/verify/propositions/bias_duality_propositions.hpp>
#include <sympow/verify/propositions/conformal_propositions.hpp>
#include <sympow/verify/propositions/distribution_propositions.hpp>
#include <sympow/verify/propositions/forget_gate_propositions.hpp>
#include <sympow/verify/propositions/groups.hpp>
#include <sympow/verify/propositions/householder_duality_propositions.hpp>
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
#include <sympow/verify/propositions/rotary_duality_propositions.hpp>
#include <sympow/verify/propositions/rotation_propositions.hpp>
#include <sympow/verify/propositions/softmax_propositions.hpp>
#include <sympow/verify/propositions/structured_rotation_propositions.hpp>
#include <sympow/verify/propositions/symmetric_tensor_propositions.hpp>
#include <sympow/verify/propositions/table_propositions.hpp>
