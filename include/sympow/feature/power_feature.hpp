// Feature maps whose scores are powers behind one interface, so that passes are compiled once for all of them.
#pragma once

#include <sympow/core/checks.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/feature/symmetric_power.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A feature map of scores s^P. It stands where passes have a feature map. It refers to the map and does not own it.
/// φ^P passes compute themselves; other maps are asked, with one virtual call for some tokens.
template <class Scalar>
class PowerFeature {
 public:
  static constexpr Score score = Score::power;
  static constexpr bool nonnegative = true;  // not read: the call says how its rows are normalized

  const int degree;                ///< P
  const bool is_finite;            ///< there is an embedding
  const bool is_symmetric;         ///< φ is φ^P, see `symmetric_power`
  const bool nonnegative_entries;  ///< see `has_nonnegative_entries`

  PowerFeature(const PowerFeature&) = delete;
  PowerFeature& operator=(const PowerFeature&) = delete;
  virtual ~PowerFeature() = default;

  /// Whether it is the same as another map of its type.
  [[nodiscard]] virtual bool is(const void* other) const = 0;
  [[nodiscard]] virtual Index dimension(Index d) const = 0;
  /// y.col(t) = φ(x.col(t)), of tokens, and of what channels decay by.
  virtual void embed(MatrixView<Scalar> x, MatrixView<Scalar> y) const = 0;
  virtual void embed_decays(MatrixView<double> x, MatrixView<double> y) const = 0;
  /// dx.col(t) = Dφ(x_t)ᵀ dy.col(t), of y = φ(x).
  virtual void embed_vjp(MatrixView<Scalar> x, MatrixView<Scalar> y, MatrixView<Scalar> dy,
                         MatrixView<Scalar> dx) const = 0;

 protected:
  PowerFeature(int P, bool finite, bool symmetric, bool all_nonnegative)
      : degree(P), is_finite(finite), is_symmetric(symmetric), nonnegative_entries(all_nonnegative) {}
};

template <class F>
inline constexpr bool is_symmetric_power_map = false;
template <int P>
inline constexpr bool is_symmetric_power_map<SymmetricPower<P>> = true;

template <class Scalar, FeatureMap F>
  requires(F::score == Score::power)
class PassFeatureOf<Scalar, F> final : public PowerFeature<Scalar> {
  static_assert(F::degree >= 1, "scores are powers s^degree with a degree of 1 or more");
  using View = MatrixView<Scalar>;

 public:
  explicit PassFeatureOf(const F& feature)
      : PowerFeature<Scalar>(F::degree, FiniteFeatureMap<F>, is_symmetric_power_map<F>, has_nonnegative_entries<F>),
        feature_(feature) {}

  [[nodiscard]] bool is(const void* other) const override {
    return same_feature(feature_, *static_cast<const F*>(other));
  }
  [[nodiscard]] Index dimension([[maybe_unused]] Index d) const override {
    if constexpr (FiniteFeatureMap<F>)
      return feature_.dimension(d);
    else
      return 0;
  }
  void embed([[maybe_unused]] View x, [[maybe_unused]] View y) const override {
    if constexpr (FiniteFeatureMap<F>) feature_.embed(x, y);
  }
  void embed_decays([[maybe_unused]] MatrixView<double> x, [[maybe_unused]] MatrixView<double> y) const override {
    if constexpr (FiniteFeatureMap<F>) feature_.embed(x, y);
  }
  void embed_vjp([[maybe_unused]] View x, [[maybe_unused]] View y, [[maybe_unused]] View dy,
                 [[maybe_unused]] View dx) const override {
    if constexpr (FeatureMapWithVjp<F> && !is_symmetric_power_map<F>) feature_.embed_vjp(x, y, dy, dx);
  }

 private:
  const F& feature_;
};

}  // namespace SYMPOW_NAMESPACE::detail
