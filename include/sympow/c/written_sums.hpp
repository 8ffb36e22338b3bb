// States that begin with sums of a caller.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include <sympow/attention/state.hpp>
#include <sympow/c/arrays.hpp>
#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/scaled.hpp>
#include <sympow/feature/symmetric_power.hpp>

namespace SYMPOW_NAMESPACE::c {

/// Σ_j b_j ‖k_j‖^P of Z = Σ_j b_j φ(k_j), Z: D numbers of keys in R^d. It is linear in Z for an even P = 2n, as
///
///     ‖k‖^2n = Σ_β (n! / Π β_i!) Π_i k_i^{2β_i},   φ_{2β}(k) = √((2n)! / Π (2β_i)!) Π_i k_i^{2β_i}
///
/// and 0 for an odd one, where Z does not say it. At least 0. Cost: D.
template <class Scalar, int P>
double absolute_weight(const Vector<Scalar>& Z, Index d) {
  double weight = 0;
  if constexpr (P % 2 == 0) {
    Index n = 0;
    for (const auto& alpha : MultiIndices<P>(d)) {
      MultiIndex<P / 2> half;
      bool is_square = true;
      for (int level = 0; level < P / 2; ++level) {
        half[level] = alpha[2 * level];
        is_square = is_square && alpha[2 * level] == alpha[2 * level + 1];
      }
      const double entry = static_cast<double>(Z[n++]);
      if (is_square)
        weight += entry * static_cast<double>(multiplicity(half)) / std::sqrt(static_cast<double>(multiplicity(alpha)));
    }
  }
  return std::max(weight, 0.);
}

/// Entry (b, h, …) of an array, checked. Throws `NotFinite`.
inline double finite_number(const Array& array, std::initializer_list<Index> position) {
  const double x = array.number(position);
  if (std::isfinite(x)) return x;
  std::string where;
  for (const Index i : position) where += (where.empty() ? "" : ", ") + std::to_string(i);
  detail::raise<NotFinite>(array.name, ": entry (", where, ") is ", x, ", must be finite");
}

/// max |x_i|, NaN where one is NaN; 0 of none.
template <class Numbers>
double largest_magnitude(const Numbers& x) {
  return x.size() == 0 ? 0 : static_cast<double>(x.cwiseAbs().template maxCoeff<Eigen::PropagateNaN>());
}

/// Sets an empty state of sequence b and head h to S, Z and μ; no angles are 0. Throws `NotFinite`.
template <class Scalar, int P>
void write_sums(State<Scalar, SymmetricPower<P>>& state, const Array& sums, const Array& normaliser,
                const Array* angles, Index b, Index h) {
  auto& content = detail::StateAccess::content(state);
  Matrix<Scalar>& S = content.sums.S;
  Vector<Scalar>& Z = content.sums.Z;
  with_matrix<Scalar>(sums, b, h, [&](const auto& x) { S = x; });
  with_vector<Scalar>(normaliser, b, h, [&](const auto& x) { Z = x; });
  const double of_S = largest_magnitude(S), of_Z = largest_magnitude(Z), largest = std::max(of_S, of_Z);
  if (!std::isfinite(of_S) || !std::isfinite(of_Z)) {  // name the first entry that is not
    for (Index n = 0; n < S.cols(); ++n)
      for (Index c = 0; c < S.rows(); ++c) finite_number(sums, {b, h, n, c});
    for (Index n = 0; n < Z.size(); ++n) finite_number(normaliser, {b, h, n});
  }
  if (largest > 0) {
    int exponent = 0;
    std::frexp(largest, &exponent);
    const auto scale = [exponent](Scalar* x, Index size) {
      detail::set_times_power_of_two<Scalar>({x, size}, {x, size}, -exponent);
    };
    scale(S.data(), S.size());
    scale(Z.data(), Z.size());
    content.sums.L = exponent;
    content.sums.A = absolute_weight<Scalar, P>(Z, state.key_dimension());
  }

  if (angles == nullptr) return;
  Eigen::VectorXd frame(angles->shape[2]);
  for (Index j = 0; j < frame.size(); ++j)
    frame[j] = std::remainder(finite_number(*angles, {b, h, j}), 2 * std::numbers::pi);
  if (frame.isZero(0)) return;  // where nothing has turned
  content.frames.start.begin(Frame::angles, frame);
  content.frames.end = content.frames.start;
}

}  // namespace SYMPOW_NAMESPACE::c
