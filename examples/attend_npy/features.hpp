// The feature maps and normalisations of the program, by their names at run time, and what a state of theirs costs.
#pragma once

#include <algorithm>

#include <sympow/attention/options.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/feature/symmetric_power.hpp>

#include "arguments.hpp"

namespace attend_npy {

/// Names the feature maps of the program, X(map) for each, where templates of them are instantiated.
#define ATTEND_NPY_EACH_FEATURE(X)  \
  X(sympow::Exponential)            \
  X(sympow::Linear)                 \
  X(sympow::PositiveRandomFeatures) \
  X(sympow::SymmetricPower<1>)      \
  X(sympow::SymmetricPower<2>)      \
  X(sympow::SymmetricPower<3>)      \
  X(sympow::SymmetricPower<4>)      \
  X(sympow::SymmetricPower<5>)      \
  X(sympow::SymmetricPower<6>)      \
  X(sympow::SymmetricPower<7>)      \
  X(sympow::SymmetricPower<8>)

/// Calls `visit` with the feature map that the arguments name, for keys in R^d.
template <class Visitor>
auto with_feature(const Arguments& arguments, std::ptrdiff_t d, Visitor&& visit) {
  using namespace sympow;
  if (arguments.feature == Feature::exponential) return visit(Exponential{});
  if (arguments.feature == Feature::linear) return visit(Linear{});
  if (arguments.feature == Feature::random)
    return visit(PositiveRandomFeatures(d, arguments.features, {.seed = arguments.seed}));
  switch (arguments.power) {
    case 1:
      return visit(SymmetricPower<1>{});
    case 2:
      return visit(SymmetricPower<2>{});
    case 3:
      return visit(SymmetricPower<3>{});
    case 4:
      return visit(SymmetricPower<4>{});
    case 5:
      return visit(SymmetricPower<5>{});
    case 6:
      return visit(SymmetricPower<6>{});
    case 7:
      return visit(SymmetricPower<7>{});
    default:
      return visit(SymmetricPower<8>{});
  }
}

/// Calls `visit` with `Normalized` if rows are divided by their sums, which only scores without a sign allow, or else
/// `Unnormalized`.
template <class F, class Visitor>
void with_normalization(bool divides, Visitor&& visit) {
  if constexpr (F::nonnegative)
    if (divides) return visit(sympow::Normalized{});
  visit(sympow::Unnormalized{});
}

/// Whether a transition goes with a feature map at all: a chain that mixes channels is not defined on random features.
template <class F, class A>
inline constexpr bool goes_with = A::key_action != sympow::KeyAction::mix || F::score != sympow::Score::embedded;

/// D, however large: C(d + P - 1, P), or the number of random features.
inline double dimension(const Arguments& arguments, std::ptrdiff_t d) {
  if (arguments.feature == Feature::random) return static_cast<double>(arguments.features);
  double D = 1;
  for (int n = 0; n < arguments.degree(); ++n) D *= (static_cast<double>(d) + n) / (n + 1);
  return D;
}

/// What a state and the embeddings of a chunk may take, in bytes: beyond it a state form is refused.
inline constexpr double most_state_bytes = 4294967296.0;

/// Bytes of a head's state.
inline double state_bytes(double D, std::ptrdiff_t e, std::size_t scalar) {
  return D * (static_cast<double>(e) + 1) * static_cast<double>(scalar);
}

/// Bytes of a chunk's embeddings and scores.
inline double chunk_bytes(double D, std::ptrdiff_t chunk, std::size_t scalar) {
  const double n = static_cast<double>(chunk);
  constexpr double tail = 32;
  return (D * (n + tail) + 2 * n * n) * static_cast<double>(scalar);
}

}  // namespace attend_npy
