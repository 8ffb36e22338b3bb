// The scratch memory of the forms.
#pragma once

#include <sympow/core/concepts.hpp>

namespace sympow {

/// Scratch of one call at a time; keep it to reuse its memory. It holds nothing that outlives a call. Any form, feature map and
/// shape may use the same one in turn; buffers grow to what the largest call needed and keep the last call's shape.
template <class Scalar>
struct Workspace {
  Matrix<Scalar> queries;        ///< d × n, of one segment, at its start
  Matrix<Scalar> keys;           ///< d × n, of one segment at its end; d × T in the attention form
  Matrix<Scalar> logits;         ///< n × n, keys by queries; then weights
  Matrix<Scalar> query_features; ///< D × n
  Matrix<Scalar> key_features;   ///< D × n; D × T in the attention form of an embedded score
  Matrix<Scalar> values;         ///< e × n, weighted values or numerators
  Eigen::RowVectorX<Scalar> row; ///< n, sums over keys
  Vector<Scalar> factors;        ///< n or D, decays in the scalar type
  Eigen::VectorXd gates;         ///< n, decays in double
  Eigen::VectorXd channels;      ///< d, a segment's channel decay
};

}  // namespace sympow
