// Weights that never leave the range of the scalar type.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <sympow/core/blocks.hpp>
#include <sympow/core/exponential.hpp>
#include <sympow/core/integer_power.hpp>
#include <sympow/core/power_of_two.hpp>
#include <sympow/core/view.hpp>
#include <sympow/feature/feature_map.hpp>

namespace sympow::detail {

/// Memory for a matrix of changing shape: it only ever grows.
template <class Scalar>
class Panel {
 public:
  /// A rows × cols matrix of undefined content, valid until the next call.
  MatrixView<Scalar> operator()(Index rows, Index cols) {
    if (storage_.size() < rows * cols) grow(rows * cols);
    return {storage_.data(), rows, cols};
  }

  /// The first `size` entries as a column; a later call of no more entries sees the same ones.
  ColumnView<Scalar> operator()(Index size) {
    if (storage_.size() < size) grow(size);
    return {storage_.data(), size};
  }

 private:
  [[gnu::noinline]] void grow(Index size) { storage_.resize(size); }

  Vector<Scalar> storage_;
};

inline constexpr double no_weight = -std::numeric_limits<double>::infinity();  // log2 of 0

/// max |x|, 0 for an empty x.
template <class X>
auto largest_entry(const X& x) {
  using Scalar = typename X::Scalar;
  const bool in_one_go = x.outerStride() == x.rows();
  const Index size = in_one_go ? x.size() : x.rows(), parts = size == 0 ? 0 : in_one_go ? 1 : x.cols();
  Scalar largest(0);
  for (Index t = 0; t < parts; ++t)
    largest =
        std::max(largest, Eigen::Map<const Vector<Scalar>>(x.data() + t * x.outerStride(), size).cwiseAbs().maxCoeff());
  return largest;
}

/// Powers of two by which weights stay below 1, or above it if negative, so that weighted values and their sums do not leave the type:
/// half its range where the largest value is farther from 1 than that.
template <class Scalar>
double room_for(Scalar largest) {
  using Limits = std::numeric_limits<Scalar>;
  constexpr int half = Limits::max_exponent / 2;
  if (largest > std::ldexp(Scalar(1), half)) return largest <= Limits::max() ? half : 0;
  return largest > Scalar(0) && largest < std::ldexp(Scalar(1), -half) ? -half : 0;
}

/// The degree in which a feature map is homogeneous: P for a power; an embedded score is bilinear in φ. Exponentials are not.
template <FeatureMap F>
inline constexpr int degree_of = [] {
  if constexpr (F::score == Score::power)
    return F::degree;
  else
    return 1;
}();

/// Whether φ(x) = x, so that what acts in key space acts on a state.
template <FeatureMap F>
inline constexpr bool keys_are_features = F::score == Score::power && degree_of<F> == 1;

/// 2^exponent, 0 and infinity where the type ends.
template <class Scalar>
Scalar power_of_two(double exponent) {
  return static_cast<Scalar>(std::exp2(std::clamp(exponent, -4096.0, 4096.0)));
}

/// 2^exponent x for a whole exponent, rounded once and infinite only where the product is.
template <class Scalar>
Scalar times_power_of_two(Scalar x, double exponent) {
  return std::ldexp(x, static_cast<int>(std::clamp(exponent, -8192.0, 8192.0)));
}

/// y ← 2^exponent x likewise, by packets where the power is a number of the type. y may be x.
template <class Scalar>
void set_times_power_of_two(ColumnView<Scalar> y, ColumnView<const Scalar> x, double exponent) {
  using Limits = std::numeric_limits<Scalar>;
  if (Limits::min_exponent < exponent && exponent < Limits::max_exponent)
    set_scaled(y.data(), x.data(), normal_power_of_two<Scalar>(static_cast<int>(exponent)), x.size());
  else
    for (Index i = 0; i < x.size(); ++i) y[i] = times_power_of_two(x[i], exponent);
}

/// Gates and lengths of keys on their way into weights. For a score of degree P the factor b_j 2^{P n_j} of key j is split into
///
///     2^reference · before_j^P · after_j,   before_j ≤ 1 a power of two, after_j in (2^-P, 1]
///
/// so that nothing overflows and only after_j is rounded. For an exponential score before_j = log b_j belongs into the exponent.
template <class Scalar>
class KeyFactors {
 public:
  /// From the natural logarithms of b and the exponents n of the keys.
  template <FeatureMap F>
  void set(ColumnView<const double> log_b, ColumnView<const double> exponents) {
    const Index keys = log_b.size();
    auto before = before_(keys), after = after_(keys);
    reference_ = 0;
    if constexpr (F::score == Score::exponential) {
      for (Index j = 0; j < keys; ++j) before[j] = static_cast<Scalar>(log_b[j]), after[j] = Scalar(1);
    } else {
      constexpr double degree = degree_of<F>;
      const auto whole = [&](Index j) { return std::ceil(log_b[j] * std::numbers::log2e / degree); };
      double largest = no_weight;
      for (Index j = 0; j < keys; ++j) largest = std::max(largest, whole(j) + exponents[j]);
      if (largest != no_weight) reference_ = degree * largest;
      auto lost = exponents_(keys);
      for (Index j = 0; j < keys; ++j) {
        const bool nothing = whole(j) + exponents[j] == no_weight;
        lost[j] = nothing ? no_weight : whole(j) + exponents[j] - largest;
        before[j] = nothing ? Scalar(0) : power_of_two<Scalar>(lost[j]);
        after[j] =
            nothing ? Scalar(0) : static_cast<Scalar>(std::exp2(log_b[j] * std::numbers::log2e - degree * whole(j)));
      }
    }
  }

  /// Memory for so many keys.
  void reserve(Index keys) {
    before_(keys);
    after_(keys);
    exponents_(keys);
  }

  /// x_j ← before_j x_j / 2^m with m such that the largest is near 1, even if before_j x_j is below the type for all j; returns m, or
  /// log2 of 0 if there is nothing.
  double apply_far_below(ColumnView<Scalar> x) {
    const auto exponents = exponents_(x.size());
    double m = no_weight;
    for (Index j = 0; j < x.size(); ++j)
      if (x[j] != Scalar(0)) m = std::max(m, exponents[j] + std::ilogb(x[j]));
    for (Index j = 0; j < x.size(); ++j) x[j] = m == no_weight ? Scalar(0) : times_power_of_two(x[j], exponents[j] - m);
    return m;
  }

  auto before(Index keys) { return before_(keys); }
  auto after(Index keys) { return after_(keys); }
  [[nodiscard]] double reference() const { return reference_; }

 private:
  Panel<Scalar> before_, after_;
  Panel<double> exponents_;  // log2 of before_, also where the type ends
  double reference_ = 0;
};

/// Turns the logits of one query with some keys into weights of size at most 1, in place; returns log2 of what was taken out.
template <FeatureMap F, class Scalar>
double weigh(ColumnView<Scalar> x, KeyFactors<Scalar>& factors) {
  const auto before = factors.before(x.size()), after = factors.after(x.size());
  if constexpr (F::score == Score::exponential) {
    x += before;
    const Scalar maximum = x.maxCoeff();
    if (!(maximum > -std::numeric_limits<Scalar>::infinity())) {
      if (x.hasNaN()) return 0;  // they stay, and the row is none either
      x.setZero();
      return no_weight;
    }
    x = (x.array() - maximum).exp();
    constexpr double whole =
        0x1p52;  // below it a double can take a whole exponent more; above it all digits of a logit are lost
    return std::clamp(static_cast<double>(maximum) * std::numbers::log2e, -whole, whole);
  } else {
    const Scalar maximum = x.cwiseProduct(before).cwiseAbs().maxCoeff();
    double taken = 0;
    if (maximum > Scalar(0)) {
      int exponent = 0;
      std::frexp(maximum, &exponent);
      exponent = std::max(exponent, std::numeric_limits<Scalar>::min_exponent);  // 2^-exponent must not overflow
      x = x.cwiseProduct(before) * std::ldexp(Scalar(1), -exponent);
      taken = exponent;
    } else {
      taken = factors.apply_far_below(x);
      if (taken == no_weight) return no_weight;
    }
    for (Index j = 0; j < x.size(); ++j) x[j] = integer_power(x[j], degree_of<F>) * after[j];
    return degree_of<F> * taken + factors.reference();
  }
}

}  // namespace sympow::detail
