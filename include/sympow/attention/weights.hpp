// Gates and lengths of keys as weights: the only place where exponents become numbers.
#pragma once

#include <numbers>

#include <sympow/attention/log_decay.hpp>
#include <sympow/core/integer_power.hpp>
#include <sympow/core/packed_exponential.hpp>
#include <sympow/core/panel.hpp>
#include <sympow/core/scaled.hpp>
#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// max_j log2 (b_j 2^{P n_j}), from the natural logarithms of b and the exponents n of keys; log2 of 0 without any.
template <int degree>
double largest_log2_weight(ColumnView<const double> log_b, ColumnView<const double> exponents) {
  double largest = no_weight;
  for (Index j = 0; j < log_b.size(); ++j)
    largest = std::max(largest, degree * exponents[j] + std::numbers::log2e * log_b[j]);
  return largest;
}

/// weights_j ← b_j 2^{P n_j - M} with the whole number M above the largest log2 weight, which is returned; weights are
/// at most 1. `low` has what the logarithms have lost to rounding, or is empty; the scratch holds twice as many
/// numbers.
template <int degree, class Scalar>
double set_weights(ColumnView<Scalar> weights, ColumnView<const double> log_b, ColumnView<const double> low,
                   ColumnView<const double> exponents, ColumnView<double> scratch) {
  const double M = std::ceil(largest_log2_weight<degree>(log_b, exponents));
  const Index n = weights.size();
  if (M == no_weight) return weights.setZero(), M;
  auto rest = scratch.head(n), whole = scratch.tail(n);
  for (Index j = 0; j < n; ++j) {
    const ReducedExponent log = reduced_exponent(log_b[j]);
    rest[j] = low.size() == 0 ? log.rest : log.rest + low[j];
    whole[j] = log.whole + (degree * exponents[j] - M);
  }
  set_exponential<double>(rest.data(), rest.data(), n, 0);
  for (Index j = 0; j < n; ++j)
    weights[j] =
        whole[j] > no_weight ? static_cast<Scalar>(rest[j] * nearest_power_of_two<double>(whole[j])) : Scalar(0);
  return M;
}

/// Σ_j w_j n_j^P of lengths n_j, in double.
template <int degree, class Scalar>
double absolute_weight(ColumnView<const Scalar> weights, ColumnView<const Scalar> norms) {
  double sum = 0;
  for (Index j = 0; j < weights.size(); ++j)
    sum += static_cast<double>(weights[j]) * power<degree>(static_cast<double>(norms[j]));
  return sum;
}

/// scores_j ← scores_j^P w_j for n logits; returns their sum, which zeros at the end do not change by a bit.
template <int degree, class Scalar>
Scalar weigh_scores(Scalar* scores, const Scalar* weights, Index n) {
  constexpr Index block = 16;
  using Block = Eigen::Array<Scalar, block, 1>;
  Block sums = Block::Zero();
  Index j = 0;
  for (; j + block <= n; j += block) {
    const Block some = power<degree>(Block(Block::Map(scores + j))) * Block::Map(weights + j);
    Block::Map(scores + j) = some;
    sums += some;
  }
  if (j < n) {
    Block rest = Block::Zero();
    for (Index r = 0; j < n; ++j, ++r) rest[r] = scores[j] = power<degree>(scores[j]) * weights[j];
    sums += rest;
  }
  return sums.sum();
}

/// Σ x_i, by the same lanes.
template <class Scalar>
Scalar sum_of(ColumnView<const Scalar> x) {
  using Block = Eigen::Array<Scalar, 16, 1>;
  Block sums = Block::Zero();
  Index j = 0;
  for (; j + 16 <= x.size(); j += 16) sums += Block::Map(x.data() + j);
  for (Index r = 0; j < x.size(); ++j, ++r) sums[r] += x[j];
  return sums.sum();
}

/// A factor 2^whole e^log of any size.
struct FarFactor {
  double whole = 0;  ///< a whole number, or log2 of 0
  LogDecay log;
};

/// Weights for rows that each have a scale of their own. For a score of degree P the factor b_j 2^{P n_j} of key j is
/// split into
///
///     2^reference · before_j^P · after_j,   before_j ≤ 1 a power of two, after_j in (2^-P, 1]
///
/// so that nothing overflows and only after_j is rounded. For an exponential score log2 b_j belongs into the exponent,
/// as a whole number and a rest.
template <class Scalar>
class KeyFactors {
 public:
  /// Memory for so many keys.
  void reserve(Index keys) {
    before_(keys);
    after_(keys);
    exponents_(keys);
  }

  /// From the natural logarithms of b and the exponents n of the keys, which live as long as these factors are used.
  /// All b_j of a power are e^since as large.
  template <FeatureMap F>
  void set(ColumnView<const double> log_b, ColumnView<const double> low, ColumnView<const double> exponents,
           const LogDecay& since) {
    constexpr double degree = degree_of<F>;
    const Index keys = log_b.size();
    auto before = before_(keys), after = after_(keys);
    const auto low_of = [&](Index j) { return low.size() == 0 ? 0 : low[j]; };
    reference_ = 0;
    if constexpr (F::score == Score::exponential) {
      log_b_ = log_b.data();
      low_ = low.size() == 0 ? nullptr : low.data();
      lengths_ = exponents.data();
      set_log2(log_b, before.data(), after.data());
      near_ = 0;
      while (near_ < keys && std::abs(before[near_]) < PackedExponential<Scalar>::limit) ++near_;
      is_far_ = (exponents.array() != 0).any();
    } else {
      const auto gate = [&](Index j) {
        LogDecay sum = since;
        sum.add(LogDecay{log_b[j], low_of(j)});
        return sum;
      };
      const auto whole = [&](Index j) { return std::ceil((log_b[j] + since.high) * std::numbers::log2e / degree); };
      double largest = no_weight;
      for (Index j = 0; j < keys; ++j) largest = std::max(largest, whole(j) + exponents[j]);
      if (largest != no_weight) reference_ = degree * largest;
      auto lost = exponents_(keys);
      for (Index j = 0; j < keys; ++j) {
        const bool nothing = whole(j) + exponents[j] == no_weight;
        lost[j] = nothing ? no_weight : whole(j) + exponents[j] - largest;
        before[j] = nothing ? Scalar(0) : power_of_two<Scalar>(lost[j]);
        after[j] = nothing ? Scalar(0) : static_cast<Scalar>(gate(j).weight(-degree * whole(j)));
      }
    }
  }

  /// Turns the logits of one query, to be multiplied by 2^exponent, into weights of size at most about 1, in place;
  /// returns what was taken out.
  template <FeatureMap F>
  FarFactor weigh(ColumnView<Scalar> x, double exponent) {
    if constexpr (F::score == Score::exponential)
      return weigh_exponentials(x);
    else
      return {weigh_powers(x, degree_of<F>) + degree_of<F> * exponent, {}};
  }

  /// Takes lengths, and 2^exponent, into logits of exponentials; returns a whole number above log2 of their weights, or
  /// a NaN where `weigh` must see to them.
  [[nodiscard]] Scalar exponent_above(ColumnView<Scalar> x, double exponent) {
    constexpr Scalar nothing = std::numeric_limits<Scalar>::quiet_NaN();
    constexpr double end = std::numeric_limits<Scalar>::max() / 4;  // beyond it a logit leaves no digits to its row
    for (Index j = 0; j < x.size() && (is_far_ || exponent != 0); ++j)
      if (const double far = lengths_[j] + exponent; far != 0)
        x[j] = static_cast<Scalar>(std::clamp(times_power_of_two(static_cast<double>(x[j]), far), -end, end));
    if (x.size() > near_) return nothing;
    const Scalar largest = PackedExponential<Scalar>::largest(x.data(), before_(x.size()).data(), x.size());
    return std::abs(largest) < PackedExponential<Scalar>::limit ? std::ceil(largest) + 1 : nothing;
  }
  /// Such logits as weights 2^{rest - shift} times what they are, |rest| ≤ 1/2; returns their sum.
  Scalar exponentiate(ColumnView<Scalar> x, Scalar shift, Scalar rest) {
    const Index n = x.size();
    return PackedExponential<Scalar>::set(x.data(), before_(n).data(), after_(n).data(), n, shift, rest);
  }

 private:
  // log2 b_j as a whole number, as far as that is near, and a rest.
  void set_log2(ColumnView<const double> log_b, Scalar* whole, Scalar* rest) const {
    for_blocks(log_b.size(), [&](Index first, auto count) {
      for (Index j = first; j < first + count; ++j) {
        const ReducedExponent log = ReducedExponent::of_near(log_b[j]);
        whole[j] = static_cast<Scalar>(log.whole);
        rest[j] = static_cast<Scalar>((log.rest + (low_ == nullptr ? 0 : low_[j])) * std::numbers::log2e);
      }
    });
  }

  // Relative to the key with the most weight: a gate that all keys which matter have in common must not round their
  // logits, so differences from that key's go into the exponents.
  FarFactor weigh_exponentials(ColumnView<Scalar> x) {
    Index m = 0;
    const auto sum = [&](Index j) { return static_cast<double>(x[j]) + log_b_[j]; };
    for (Index j = 1; j < x.size(); ++j)
      if (sum(j) > sum(m)) m = j;
    if (sum(m) == no_weight) {
      for (Index j = 0; j < x.size(); ++j) x[j] = std::isnan(x[j]) ? x[j] : Scalar(0);  // the row is none either
      return {no_weight, {}};
    }
    const double logit = static_cast<double>(x[m]), gate = log_b_[m], low = low_ == nullptr ? 0 : low_[m];
    for (Index j = 0; j < x.size(); ++j)
      x[j] = static_cast<Scalar>((static_cast<double>(x[j]) - logit) +
                                 ((log_b_[j] - gate) + (low_ == nullptr ? 0 : low_[j] - low)));
    const Scalar maximum = x.maxCoeff();  // 0 but for what the sums have rounded away
    set_exponential<Scalar>(x.data(), x.data(), x.size(), maximum);
    LogDecay log{gate, low};
    log.add(logit + static_cast<double>(maximum));
    return {0, log};
  }

  double weigh_powers(ColumnView<Scalar> x, int degree) {
    const auto before = before_(x.size()), after = after_(x.size());
    const Scalar maximum = x.cwiseProduct(before).cwiseAbs().maxCoeff();
    double taken = 0;
    if (maximum > Scalar(0)) {
      int exponent = 0;
      std::frexp(maximum, &exponent);
      exponent = std::max(exponent, std::numeric_limits<Scalar>::min_exponent);  // 2^-exponent must not overflow
      x = x.cwiseProduct(before) * std::ldexp(Scalar(1), -exponent);
      taken = exponent;
    } else {
      taken = weigh_far_below(x);
      if (taken == no_weight) return no_weight;
    }
    for (Index j = 0; j < x.size(); ++j) x[j] = integer_power(x[j], degree) * after[j];
    return degree * taken + reference_;
  }

  // x_j ← before_j x_j / 2^m with m such that the largest is near 1, even if before_j x_j is below the type for all j;
  // returns m, or log2 of 0 if there is nothing.
  double weigh_far_below(ColumnView<Scalar> x) {
    const auto exponents = exponents_(x.size());
    double m = no_weight;
    for (Index j = 0; j < x.size(); ++j) {
      if (std::isnan(x[j])) return 0;  // it stays, and the row is none either
      if (x[j] != Scalar(0)) m = std::max(m, exponents[j] + std::ilogb(x[j]));
    }
    for (Index j = 0; j < x.size(); ++j) x[j] = m == no_weight ? Scalar(0) : times_power_of_two(x[j], exponents[j] - m);
    return m;
  }

  Panel<Scalar> before_, after_;  // of an exponential score log2 b_j
  Panel<double> exponents_;       // log2 of before_, also where the type ends
  double reference_ = 0;
  // Of an exponential score:
  bool is_far_ = false;  // lengths are in the exponents
  Index near_ = 0;       // keys, the first ones, whose gates are as near as most are
  const double *log_b_ = nullptr, *low_ = nullptr, *lengths_ = nullptr;
};

}  // namespace SYMPOW_NAMESPACE::detail
