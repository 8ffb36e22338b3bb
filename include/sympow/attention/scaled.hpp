// Columns as a power of two times a vector of moderate length, and weights that never leave the range of the scalar type.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <sympow/core/integer_power.hpp>
#include <sympow/feature/feature_map.hpp>

namespace sympow::detail {

/// Memory for a matrix of changing shape: it only ever grows.
template <class Scalar>
class Panel {
 public:
  /// A rows × cols matrix of undefined content, valid until the next call.
  Eigen::Map<Matrix<Scalar>> operator()(Index rows, Index cols) {
    if (storage_.size() < rows * cols) storage_.resize(rows * cols);
    return {storage_.data(), rows, cols};
  }

  /// The first `size` entries as a column; a later call of no more entries sees the same ones.
  Eigen::Map<Vector<Scalar>> operator()(Index size) {
    if (storage_.size() < size) storage_.resize(size);
    return {storage_.data(), size};
  }

 private:
  Vector<Scalar> storage_;
};

inline constexpr double no_weight = -std::numeric_limits<double>::infinity();  // log2 of 0

/// The degree in which a feature map is homogeneous: P for a power; an embedded score is bilinear in φ. Exponentials are not.
template <FeatureMap F>
inline constexpr int degree_of = [] {
  if constexpr (F::score == Score::power)
    return F::degree;
  else
    return 1;
}();

/// 2^exponent, 0 and infinity where the type ends.
template <class Scalar>
Scalar power_of_two(double exponent) {
  return static_cast<Scalar>(std::exp2(std::clamp(exponent, -4096.0, 4096.0)));
}

/// x ← x / 2^n, exactly, with 2^n the power of two above ‖x‖; returns n, or log2 of 0 for x = 0.
template <class Column>
double take_exponent(Column&& x) {
  using Scalar = typename std::remove_cvref_t<Column>::Scalar;
  const Scalar norm = x.stableNorm();
  if (norm == Scalar(0)) return no_weight;
  if (!std::isfinite(norm)) return 0;  // it shows in the rows that see it
  int exponent = 0;
  std::frexp(norm, &exponent);
  const int half = exponent / 2;  // in two steps: 2^-exponent alone can overflow
  x = (x * std::ldexp(Scalar(1), -half)) * std::ldexp(Scalar(1), half - exponent);
  return exponent;
}

/// Takes the exponents of the columns of X out, as far as the score allows it: of every column for a power; for an exponential
/// score lengths are cut where a logit could overflow, which its row condition number excuses; an embedded score has them taken from
/// φ(x) instead. exponents(t) + log2 of the new length is log2 of the old one.
template <FeatureMap F, class X, class Exponents>
void take_exponents(X&& x, Exponents&& exponents) {
  using Scalar = typename std::remove_cvref_t<X>::Scalar;
  exponents.setZero();
  for (Index t = 0; t < x.cols(); ++t) {
    if constexpr (F::score == Score::power) {
      exponents[t] = take_exponent(x.col(t));
    } else if constexpr (F::score == Score::exponential) {
      constexpr int limit = std::numeric_limits<Scalar>::max_exponent / 2 - 4;
      if (x.col(t).stableNorm() > std::ldexp(Scalar(1), limit)) {
        take_exponent(x.col(t));
        x.col(t) *= std::ldexp(Scalar(1), limit);
      }
    }
  }
}

/// The queries of a call: exponents taken out and the scale multiplied in, its power of two into the exponents.
template <FeatureMap F, class X, class Exponents>
void load_queries(X&& x, Exponents&& exponents, double scale) {
  using Scalar = typename std::remove_cvref_t<X>::Scalar;
  take_exponents<F>(x, exponents);
  int exponent = 0;
  const double mantissa = std::frexp(scale, &exponent);
  x *= static_cast<Scalar>(F::score == Score::power ? mantissa : scale);
  if constexpr (F::score == Score::power) exponents.array() += exponent;
}

/// Gates and lengths of keys on their way into weights. For a score of degree P the factor b_j 2^{P n_j} of key j is split into
///
///     2^reference · before_j^P · after_j,   before_j ≤ 1 a power of two, after_j in [1, 2^P)
///
/// so that nothing overflows and only after_j is rounded. For an exponential score before_j = log b_j belongs into the exponent.
template <class Scalar>
class KeyFactors {
 public:
  /// From the natural logarithms of b and the exponents n of the keys.
  template <FeatureMap F, class LogGates, class Exponents>
  void set(const LogGates& log_b, const Exponents& exponents) {
    const Index keys = log_b.size();
    auto before = before_(keys), after = after_(keys);
    reference_ = 0;
    if constexpr (F::score == Score::exponential) {
      before = log_b.template cast<Scalar>();
      after.setOnes();
    } else {
      constexpr double degree = degree_of<F>;
      const auto whole = [&](Index j) { return std::floor(log_b[j] * std::numbers::log2e / degree); };
      double largest = no_weight;
      for (Index j = 0; j < keys; ++j) largest = std::max(largest, whole(j) + exponents[j]);
      if (largest != no_weight) reference_ = degree * largest;
      for (Index j = 0; j < keys; ++j) {
        const bool nothing = whole(j) + exponents[j] == no_weight;
        before[j] = nothing ? Scalar(0) : power_of_two<Scalar>(whole(j) + exponents[j] - largest);
        after[j] = nothing ? Scalar(0) : static_cast<Scalar>(std::exp2(log_b[j] * std::numbers::log2e - degree * whole(j)));
      }
    }
  }

  auto before(Index keys) { return before_(keys); }
  auto after(Index keys) { return after_(keys); }
  [[nodiscard]] double reference() const { return reference_; }

 private:
  Panel<Scalar> before_, after_;
  double reference_ = 0;
};

/// Turns the logits of one query with some keys into weights of size at most max(after), in place; returns log2 of what was
/// taken out.
template <FeatureMap F, class Column, class Scalar>
double weigh(Column&& x, KeyFactors<Scalar>& factors) {
  const auto before = factors.before(x.size()), after = factors.after(x.size());
  if constexpr (F::score == Score::exponential) {
    x += before;
    const Scalar maximum = x.maxCoeff();
    if (maximum == -std::numeric_limits<Scalar>::infinity()) {
      x.setZero();
      return no_weight;
    }
    x = (x.array() - maximum).exp();
    return static_cast<double>(maximum) * std::numbers::log2e;
  } else {
    x.array() *= before.array();
    const Scalar maximum = x.cwiseAbs().maxCoeff();
    if (maximum == Scalar(0)) return no_weight;
    int exponent = 0;
    std::frexp(maximum, &exponent);
    exponent = std::max(exponent, std::numeric_limits<Scalar>::min_exponent);  // 2^-exponent must not overflow
    x = (x * std::ldexp(Scalar(1), -exponent)).unaryExpr(RaiseTo{degree_of<F>}).cwiseProduct(after);
    return degree_of<F> * static_cast<double>(exponent) + factors.reference();
  }
}

}  // namespace sympow::detail
