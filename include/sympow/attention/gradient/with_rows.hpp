// Gradients of rows whose forward pass nobody has kept.
#pragma once

#include <sympow/attention/engine/attention_engine.hpp>
#include <sympow/attention/gradient/segment_vectors.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The call with the rows of its forward pass, which is made for them.
template <class Scalar, FeatureMap F>
VjpCall<Scalar> with_rows(const F& feature, VjpCall<Scalar> call) {
  auto& sums = call.adjoint_memory.blocks.sums_of_rows;
  sums.resize(static_cast<std::size_t>(call.Q.cols()));
  const auto Y = call.adjoint_memory.blocks.Y(call.V.rows(), call.Q.cols());
  Options options = call.options;
  options.diagnostics = nullptr;
  AttentionForm<Scalar, F>::run(
      feature, {call.transition, call.rows, options, call.Q, call.K, call.V, Y, call.memory, sums.data()});
  call.known = {sums.data(), Y.data()};
  return call;
}

}  // namespace SYMPOW_NAMESPACE::detail
