// A feature map as a pass sees it: one of three, whatever the map.
#pragma once

#include <type_traits>

#include <sympow/feature/embedded_feature.hpp>
#include <sympow/feature/power_feature.hpp>
#include <sympow/simd/integer_power.hpp>

namespace SYMPOW_NAMESPACE::detail {

template <class Scalar, FeatureMap F>
using InterfaceOf = std::conditional_t<F::score == Score::power, PowerFeature<Scalar>,
                                       std::conditional_t<F::score == Score::embedded, EmbeddedFeature<Scalar>, F>>;

/// The feature map of a call as its pass sees it, of type `InterfaceOf`.
template <class Scalar, FeatureMap F>
[[nodiscard]] decltype(auto) pass_feature(const F& feature) {
  if constexpr (std::is_same_v<F, InterfaceOf<Scalar, F>>)
    return (feature);
  else
    return PassFeatureOf<Scalar, F>(feature);
}

/// What a state can be made of: a finite embedding.
template <class F>
inline constexpr bool has_embedding = FiniteFeatureMap<F>;
template <class Scalar>
inline constexpr bool has_embedding<PowerFeature<Scalar>> = true;
template <class Scalar>
inline constexpr bool has_embedding<EmbeddedFeature<Scalar>> = true;

/// Whether a state or tape of another map of the same type, or of none, goes with this one.
template <FeatureMap F>
bool is_feature(const void* other, const F& feature) {
  if (other == nullptr) return true;
  if constexpr (F::score == Score::exponential)
    return same_feature(feature, *static_cast<const F*>(other));
  else
    return feature.is(other);
}

/// Whether there are states of it; a power may be without an embedding.
template <FeatureMap F>
bool has_states(const F& feature) {
  if constexpr (F::score == Score::power)
    return feature.is_finite;
  else
    return has_embedding<F>;
}

/// See `has_nonnegative_entries`.
template <FeatureMap F>
bool entries_are_nonnegative(const F& feature) {
  if constexpr (F::score == Score::embedded)
    return feature.entries_are_nonnegative();
  else
    return feature.nonnegative_entries;
}

/// Whether scores are made of φ: an embedded score without a closed form.
template <FeatureMap F>
bool scores_need_features(const F& feature) {
  if constexpr (F::score == Score::embedded)
    return !feature.has_kappa();
  else
    return false;
}

/// The degree of homogeneity P: embedded scores are bilinear in φ, exponential ones have none.
template <FeatureMap F>
int degree_in(const F& feature) {
  if constexpr (F::score == Score::power)
    return feature.degree;
  else
    return 1;
}

/// f(x ↦ x^P) for the degree P of F, which the compiler knows for the usual powers.
template <FeatureMap F, class Function>
decltype(auto) with_power(int P, const Function& f) {
  if constexpr (F::score == Score::power) {
    if (P == 2) return f(FixedPower<2>{});
    if (P == 3) return f(FixedPower<3>{});
    if (P == 4) return f(FixedPower<4>{});
    if (P > 4) return f(RaiseTo{P});
  }
  return f(FixedPower<1>{});
}

}  // namespace SYMPOW_NAMESPACE::detail
