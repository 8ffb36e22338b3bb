// The scratch memory of all engines.
#pragma once

#include <vector>

#include <sympow/attention/engine/common_scale_rows.hpp>
#include <sympow/attention/engine/own_scale_rows.hpp>
#include <sympow/attention/state.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Keys of the attention form that are loaded: consecutive tokens, and the decay over them.
struct KeyBlock {
  Segment tokens;
  double M;
  LogDecay decay;
  bool begins_anew;  ///< nothing before is seen from here on
  double reach;      ///< log2 of the largest weight of its keys and those before, seen from its end
};

/// What the attention form keeps of all keys.
template <class Scalar>
struct AttentionMemory {
  std::vector<KeyBlock> blocks;
  Panel<Scalar> vectors;  ///< of each block a matrix, a panel of every later product
  Panel<Scalar> norms, weights;
  Panel<double> exponents, log_b, log_b_low, scratch;
  Frame frame;  ///< where queries and keys turn from
};

template <class Scalar>
struct EngineMemory {
  SegmentMemory<Scalar> segment;
  CommonScaleMemory<Scalar> common_scale;
  OwnScaleMemory<Scalar> own_scale;
  FoldMemory<Scalar> fold;
  TailMemory<Scalar> tail;
  AttentionMemory<Scalar> attention;
  Panel<Scalar> lengths;
  Panel<double> noise, channels;
  Frame frame;                   ///< where queries and keys turned from before a segment was loaded
  Eigen::VectorXd log_channels;  ///< Σ log a of a segment
};

}  // namespace SYMPOW_NAMESPACE::detail
