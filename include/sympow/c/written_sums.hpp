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

/// Sets an empty state to that of sequence b and head h which has sums and angles of arrays, no angles being 0. Throws
/// `NotFinite`.
template <class Scalar>
void set_from_arrays(detail::StateContent<Scalar>& state, const Array& sums, const Array& normaliser,
                     const Array* angles, Index b, Index h) {
  Matrix<Scalar> S = Matrix<Scalar>::Zero(state.sums.S.rows(), state.sums.S.cols());
  Vector<Scalar> Z = Vector<Scalar>::Zero(state.sums.Z.size());
  with_matrix<Scalar>(sums, b, h, [&](const auto& x) { S = x; });
  with_vector<Scalar>(normaliser, b, h, [&](const auto& x) { Z = x; });
  Frame& frame = state.frames.end;
  if (angles != nullptr) {
    Eigen::VectorXd turns(angles->shape[2]);
    for (Index j = 0; j < turns.size(); ++j)
      turns[j] = std::remainder(finite_number(*angles, {b, h, j}), 2 * std::numbers::pi);
    if (!turns.isZero(0)) frame.begin(Frame::angles, turns);  // else nothing has turned
  }
  state.frames.start = frame;
  try {
    detail::set_sums({"State", "S", "Z"}, state.sums, S, Z);
  } catch (const NotFinite&) {
    for (Index n = 0; n < S.cols(); ++n)  // the first entry that is not, by its place in the arrays
      for (Index c = 0; c < S.rows(); ++c) finite_number(sums, {b, h, n, c});
    for (Index n = 0; n < S.cols(); ++n) finite_number(normaliser, {b, h, n});
    throw;
  }
}

}  // namespace SYMPOW_NAMESPACE::c
