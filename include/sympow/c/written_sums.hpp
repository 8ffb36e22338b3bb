// States that begin with sums of a caller.
#pragma once

#include <cmath>
#include <numbers>
#include <string>

#include <sympow/attention/state.hpp>
#include <sympow/c/engine.hpp>

namespace SYMPOW_NAMESPACE::c {

/// Entry (b, h, …) of an array, checked. Throws `NotFinite`.
inline double finite_number(const Array& array, std::initializer_list<Index> position) {
  const double x = array.number(position);
  if (std::isfinite(x)) return x;
  std::string where;
  for (const Index i : position) where += (where.empty() ? "" : ", ") + std::to_string(i);
  detail::raise<NotFinite>(array.name, ": entry (", where, ") is ", x, ", must be finite");
}

/// The state of sequence b and head h that has sums and angles of arrays, no angles being 0. Throws `NotFinite`.
template <class Scalar, class F>
State<Scalar, F> state_of_sums(const F& feature, const StateShape& shape, const Array& sums, const Array& normaliser,
                               const Array* angles, Index b, Index h) {
  Matrix<Scalar> S = Matrix<Scalar>::Zero(shape.e, shape.D);
  Vector<Scalar> Z = Vector<Scalar>::Zero(shape.D);
  with_matrix<Scalar>(sums, b, h, [&](const auto& x) { S = x; });
  with_vector<Scalar>(normaliser, b, h, [&](const auto& x) { Z = x; });
  Frame frame;
  if (angles != nullptr) {
    Eigen::VectorXd turns(angles->shape[2]);
    for (Index j = 0; j < turns.size(); ++j)
      turns[j] = std::remainder(finite_number(*angles, {b, h, j}), 2 * std::numbers::pi);
    if (!turns.isZero(0)) frame.begin(Frame::angles, turns);  // else nothing has turned
  }
  try {
    return {feature, shape.d, S, Z, shape.tail, std::move(frame)};
  } catch (const NotFinite&) {
    for (Index n = 0; n < shape.D; ++n)  // the first entry that is not, by its place in the arrays
      for (Index c = 0; c < shape.e; ++c) finite_number(sums, {b, h, n, c});
    for (Index n = 0; n < shape.D; ++n) finite_number(normaliser, {b, h, n});
    throw;
  }
}

}  // namespace SYMPOW_NAMESPACE::c
