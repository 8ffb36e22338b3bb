// Feature maps of embedded scores behind one interface, so that passes are compiled once for all of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <sympow/core/checks.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/simd/scaled.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A feature map of an embedded score of any type. It stands where passes have a feature map. It refers to the map and
/// does not own it. One virtual call for some tokens.
template <class Scalar>
class EmbeddedFeature {
 public:
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;  // not read: the call says how its rows are normalized

  EmbeddedFeature() = default;
  EmbeddedFeature(const EmbeddedFeature&) = delete;
  EmbeddedFeature& operator=(const EmbeddedFeature&) = delete;
  virtual ~EmbeddedFeature() = default;

  /// Whether it is the same as another map of its type.
  [[nodiscard]] virtual bool is(const void* other) const = 0;
  [[nodiscard]] virtual Index dimension(Index d) const = 0;
  /// See `has_nonnegative_entries`.
  [[nodiscard]] virtual bool entries_are_nonnegative() const = 0;
  /// Whether scores have a closed form, see `KernelFeatureMap`. `set_lengths` and `set_scores` are for such maps.
  [[nodiscard]] virtual bool has_kappa() const = 0;
  /// Whether there is `embed_vjp`, see `FeatureMapWithVjp`.
  [[nodiscard]] virtual bool has_vjp() const = 0;
  /// Whether there is `set_slopes`, see `KernelWithSlope`.
  [[nodiscard]] virtual bool has_slope() const = 0;

  /// φ(x_t) = 2^exponents[t] features.col(t) with lengths below 1, which are given.
  void embed(MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<double> exponents,
             ColumnView<Scalar> norms) const {
    if (x.cols() == 0) return;  // what is empty has no memory
    embed(x, features, exponents);
    for (Index t = 0; t < x.cols(); ++t)
      exponents[t] += normalize_column<Scalar>(features.col(t), features.col(t), 1, norms[t]);
  }
  /// The same lengths and exponents, ‖φ(x_t)‖ = 2^exponents[t] norms[t], without φ: ‖φ(x)‖ = √κ(‖x‖²).
  virtual void set_lengths(MatrixView<const Scalar> x, ColumnView<double> exponents,
                           ColumnView<Scalar> norms) const = 0;
  /// logits(j, i) ← κ(logits(j, i)) / 2^{n_j + m_i} for keys and queries of these exponents: at most 1 in size by
  /// Cauchy's inequality, as the inner product of their scaled φ. Causal: for j ≤ i. Logits are true ones.
  virtual void set_scores(MatrixView<Scalar> logits, ColumnView<const double> of_keys,
                          ColumnView<const double> of_queries, bool causal) const = 0;
  /// logits(j, i) ← κ'(logits(j, i)) / 2^{n_j + m_i}: the slopes of such scores with respect to the true logits. A key
  /// or query of length 0 has the exponent 0 here, for its logits can have a slope.
  virtual void set_slopes(MatrixView<Scalar> logits, ColumnView<const double> of_keys,
                          ColumnView<const double> of_queries, bool causal) const = 0;
  /// dx.col(t) = Dφ(x_t)ᵀ 2^-exponents[t] d_features.col(t): the gradient where that of the features is d_features.
  /// x, features and exponents are what `embed` was given and has left; of maps without exponents of their own the
  /// features are overwritten by φ(x_t). A φ(x_t) = 0 has the exponent 0 here.
  virtual void embed_vjp(MatrixView<const Scalar> x, MatrixView<Scalar> features, ColumnView<const double> exponents,
                         MatrixView<const Scalar> d_features, MatrixView<Scalar> dx) const = 0;

 protected:
  virtual void embed(MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<double> exponents) const = 0;
};

template <class Scalar, FeatureMap F>
  requires(F::score == Score::embedded)
class PassFeatureOf<Scalar, F> final : public EmbeddedFeature<Scalar> {
 public:
  explicit PassFeatureOf(const F& feature) : feature_(feature) {}

  [[nodiscard]] bool is(const void* other) const override {
    return same_feature(feature_, *static_cast<const F*>(other));
  }
  /// Throws `InvalidArgument` if it is negative, `DimensionOverflow` if no memory can hold so many.
  [[nodiscard]] Index dimension(Index d) const override {
    constexpr Index most = std::numeric_limits<Index>::max() / (Index{1} << 16);
    const Index D = feature_.dimension(d);
    if (D < 0)
      raise<InvalidArgument>("the dimension of the feature map for d = ", d, " is ", D, ", must not be negative");
    if (D > most)
      raise<DimensionOverflow>("the dimension of the feature map for d = ", d, " is ", D, ", must be at most ", most);
    return D;
  }
  [[nodiscard]] bool entries_are_nonnegative() const override { return has_nonnegative_entries<F>; }
  [[nodiscard]] bool has_kappa() const override { return KernelFeatureMap<F>; }
  [[nodiscard]] bool has_vjp() const override { return FeatureMapWithVjp<F>; }
  [[nodiscard]] bool has_slope() const override { return KernelWithSlope<F>; }

  void set_lengths(MatrixView<const Scalar> x, ColumnView<double> exponents, ColumnView<Scalar> norms) const override {
    if constexpr (KernelFeatureMap<F>)
      for (Index t = 0; t < x.cols(); ++t) {
        double square = 0;
        for (Index i = 0; i < x.rows(); ++i) square += static_cast<double>(x(i, t)) * static_cast<double>(x(i, t));
        int exponent = 0;
        const double length = std::sqrt(static_cast<double>(feature_.kappa(square))),
                     mantissa = std::frexp(length, &exponent);
        norms[t] = static_cast<Scalar>(mantissa);  // what is not finite is itself, and shows in the rows that see it
        exponents[t] = length == 0 ? log2_zero : std::isfinite(length) ? exponent : 0;
      }
  }

  void set_scores(MatrixView<Scalar> logits, ColumnView<const double> of_keys, ColumnView<const double> of_queries,
                  bool causal) const override {
    if constexpr (KernelFeatureMap<F>)
      set_scaled_values([&](Scalar s) { return feature_.kappa(s); }, log2_zero, logits, of_keys, of_queries, causal);
  }
  void set_slopes(MatrixView<Scalar> logits, ColumnView<const double> of_keys, ColumnView<const double> of_queries,
                  bool causal) const override {
    if constexpr (KernelWithSlope<F>)
      set_scaled_values([&](Scalar s) { return feature_.kappa_slope(s); }, 0, logits, of_keys, of_queries, causal);
  }

  void embed_vjp(MatrixView<const Scalar> x, MatrixView<Scalar> features, ColumnView<const double> exponents,
                 MatrixView<const Scalar> d_features, MatrixView<Scalar> dx) const override {
    if constexpr (FeatureMapWithVjp<F>) {
      if (x.cols() == 0) return;
      if constexpr (!ScaledFeatureMap<F>)
        for (Index t = 0; t < x.cols(); ++t)
          if (exponents[t] != log2_zero) set_times_power_of_two<Scalar>(features.col(t), features.col(t), exponents[t]);
      feature_.embed_vjp(x, features, d_features, dx);
      if constexpr (!ScaledFeatureMap<F>)
        for (Index t = 0; t < x.cols(); ++t)
          if (exponents[t] != log2_zero) set_times_power_of_two<Scalar>(dx.col(t), dx.col(t), -exponents[t]);
    }
  }

 protected:
  void embed(MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<double> exponents) const override {
    if constexpr (ScaledFeatureMap<F>) {
      feature_.embed(x, features, exponents);
    } else {
      feature_.embed(x, features);
      exponents.setZero();
    }
  }

 private:
  // x(j, i) ← f(x(j, i)) / 2^{n_j + m_i}, with `of_zero` where an exponent is that of 0.
  template <class Function>
  static void set_scaled_values(const Function& f, double of_zero, MatrixView<Scalar> values,
                                ColumnView<const double> of_keys, ColumnView<const double> of_queries, bool causal) {
    using Number = std::common_type_t<Scalar, decltype(f(Scalar()))>;
    constexpr double most = 2 * (std::numeric_limits<Number>::max_exponent - 2);
    const auto exponent_of = [&](double exponent) { return exponent == log2_zero ? of_zero : exponent; };
    for (Index i = 0; i < values.cols(); ++i)
      for (Index j = 0; j < (causal ? std::min(i + 1, values.rows()) : values.rows()); ++j) {
        const double both = exponent_of(of_keys[j]) + exponent_of(of_queries[i]);
        const int down = static_cast<int>(std::clamp(-both, -most, most)),
                  half = down / 2;  // in two steps: 2^down may leave the type
        const Number x = f(values(j, i)) * normal_power_of_two<Number>(half) * normal_power_of_two<Number>(down - half);
        values(j, i) = both == log2_zero ? Scalar(0) : static_cast<Scalar>(x);
      }
  }

  const F& feature_;
};

}  // namespace SYMPOW_NAMESPACE::detail
