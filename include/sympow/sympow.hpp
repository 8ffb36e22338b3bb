// Everything: include this one.
#pragma once

#include <sympow/attention/attention.hpp>
#include <sympow/attention/chunked.hpp>
#include <sympow/attention/merge.hpp>
#include <sympow/attention/recurrent.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/attention/state_file.hpp>
#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/random_feature_variance.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/conformal.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/tensor/symmetric_basis.hpp>
#include <sympow/tensor/symmetric_power.hpp>
#include <sympow/tensor/tensor_power.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
