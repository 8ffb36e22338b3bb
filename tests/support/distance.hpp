// How far two results are apart, and the unit in which a tolerance is stated.
#pragma once

#include <limits>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

namespace sympow::test {

/// The unit roundoff u: one operation is off by at most u times its result. Tolerances are written n * unit<S> *
/// condition.
template <class Scalar>
inline constexpr Scalar unit = std::numeric_limits<Scalar>::epsilon() / 2;

/// The largest difference of two entries, 0 for empty matrices, NaN if there is one. Throws `ShapeMismatch`.
template <MatrixExpression A, MatrixExpression B>
[[nodiscard]] scalar_t<A> distance(const A& a, const B& b) {
  sympow::detail::check_size("rows of the second", b.rows(), a.rows(), "rows of the first");
  sympow::detail::check_size("columns of the second", b.cols(), a.cols(), "columns of the first");
  if (a.size() == 0) return 0;
  return (a - b).cwiseAbs().template maxCoeff<Eigen::PropagateNaN>();
}

}  // namespace sympow::test
