// The options of an attention, checked.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <sympow/attention/batch.hpp>
#include <sympow/c/status.hpp>
#include <sympow/c/structs.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/feature/symmetric_power.hpp>

namespace SYMPOW_NAMESPACE::c {

static_assert(static_cast<int>(Form::automatic) == SYMPOW_FORM_AUTOMATIC &&
              static_cast<int>(Form::attention) == SYMPOW_FORM_ATTENTION &&
              static_cast<int>(Form::recurrent) == SYMPOW_FORM_RECURRENT &&
              static_cast<int>(Form::chunked) == SYMPOW_FORM_CHUNKED);
static_assert(static_cast<int>(Pairing::interleaved) == SYMPOW_PAIRING_INTERLEAVED &&
              static_cast<int>(Pairing::half_split) == SYMPOW_PAIRING_HALF_SPLIT);

/// The scores of an attention, or of states.
struct Scores {
  int power = 0;           ///< P; 0: exponential scores, or their random features
  Index features = 0;      ///< random features; 0: none
  std::uint64_t seed = 1;  ///< of their projections
  friend bool operator==(const Scores&, const Scores&) = default;
};

/// What a message calls them.
inline std::string name_of(const Scores& x) {
  if (x.power > 0) return "power " + std::to_string(x.power);
  if (x.features == 0) return "exponential scores";
  return std::to_string(x.features) + " random features of seed " + std::to_string(x.seed);
}

/// The feature map of random features, whose projections are drawn once for every d, by whichever thread asks first.
class DrawnFeatures {
 public:
  /// That of keys in R^d. Throws `InvalidArgument` for d = 0, `DimensionOverflow`.
  [[nodiscard]] PositiveRandomFeatures of(const Scores& scores, Index d) {
    Index bytes = 0;
    if (__builtin_mul_overflow(scores.features, d, &bytes) || __builtin_mul_overflow(bytes, Index(8), &bytes))
      detail::raise<DimensionOverflow>("options->features is ", scores.features, ", which with keys in R^", d,
                                       " makes more bytes than fit the index type");
    const std::lock_guard lock(mutex_);
    const auto drawn = drawn_.find(d);
    if (drawn != drawn_.end()) return drawn->second;
    return drawn_.emplace(d, PositiveRandomFeatures(d, scores.features, {.seed = scores.seed})).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<Index, PositiveRandomFeatures> drawn_;
};

/// What an attention computes: immutable.
struct Settings {
  Scores scores = {};
  std::shared_ptr<DrawnFeatures> drawn = {};  ///< of random features
  int normalisation = 0;                      ///< one of those by name, not the default
  std::optional<Pairing> pairing = {};        ///< none if it is not said
  Index tail = 0;
  Index rotary_dim = 0;  ///< 0: all channels
  BatchOptions options = {};

  /// The feature map F of keys in R^d.
  template <class F>
  [[nodiscard]] F feature([[maybe_unused]] Index d) const {
    if constexpr (std::is_same_v<F, PositiveRandomFeatures>)
      return drawn->of(scores, d);
    else
      return {};
  }

  /// The angles by which keys in R^d turn.
  [[nodiscard]] Index pairs(Index d) const { return (rotary_dim == 0 ? d : rotary_dim) / 2; }
};

/// Throws `InvalidArgument` unless x is one of the values of an enumeration, 0 … last.
inline void check_value(const char* name, std::int32_t x, std::int32_t last) {
  if (x < 0 || x > last) detail::raise<InvalidArgument>("options->", name, " is ", x, ", must lie in 0 … ", last);
}

/// A count of an option.
inline Index count_in(const char* name, std::int64_t x, std::int64_t least) {
  if (x < least || !std::in_range<Index>(x))
    detail::raise<InvalidArgument>("options->", name, " is ", x, ", must be at least ", least);
  return static_cast<Index>(x);
}

/// The normalisation that is meant. Throws `InvalidArgument` for one that the scores do not have.
inline std::int32_t normalisation_in(std::int32_t asked, bool nonnegative) {
  check_value("normalisation", asked, SYMPOW_SIGNED_NORMALISED);
  if (asked == SYMPOW_NORMALISATION_DEFAULT) return nonnegative ? SYMPOW_NORMALISED : SYMPOW_UNNORMALISED;
  if (asked == SYMPOW_NORMALISED && !nonnegative)
    detail::raise<InvalidArgument>(
        "options->normalisation is SYMPOW_NORMALISED, but odd powers have scores of either sign and give no "
        "distribution: SYMPOW_UNNORMALISED, or SYMPOW_SIGNED_NORMALISED if signed weights are meant");
  if (asked == SYMPOW_SIGNED_NORMALISED && nonnegative)
    detail::raise<InvalidArgument>(
        "options->normalisation is SYMPOW_SIGNED_NORMALISED, but no score is negative: SYMPOW_NORMALISED");
  return asked;
}

/// The scores that are meant. Throws `InvalidArgument`.
inline Scores scores_in(const sympow_options& x) {
  Scores scores;
  check_value("scores", x.scores, SYMPOW_SCORES_RANDOM);
  if (x.scores == SYMPOW_SCORES_POWER) {
    if (x.power < 1 || x.power > max_power)
      detail::raise<InvalidArgument>("options->power is ", x.power, ", must lie in 1 … ", max_power);
    scores.power = x.power;
  }
  const bool is_random = x.scores == SYMPOW_SCORES_RANDOM;
  scores.features = count_in("features", x.features, is_random ? 1 : 0);
  if (!is_random && x.features != 0)
    detail::raise<InvalidArgument>("options->features is ", x.features,
                                   ", must be 0 unless options->scores is SYMPOW_SCORES_RANDOM");
  if (is_random) scores.seed = static_cast<std::uint64_t>(count_in("seed", x.seed, 0));
  return scores;
}

/// What options mean. Throws `InvalidArgument`, `NotFinite`.
inline Settings settings_of(const sympow_options* given) {
  const sympow_options x = read_struct(given, "options", sympow_options SYMPOW_OPTIONS_INIT);
  Settings settings;
  settings.scores = scores_in(x);
  if (settings.scores.features > 0) settings.drawn = std::make_shared<DrawnFeatures>();
  settings.normalisation = normalisation_in(x.normalisation, settings.scores.power % 2 == 0);
  check_value("form", x.form, SYMPOW_FORM_CHUNKED);
  check_value("mask", x.mask, SYMPOW_MASK_FULL);
  check_value("check_finite", x.check_finite, 1);
  if (x.pairing != -1) {
    check_value("pairing", x.pairing, SYMPOW_PAIRING_HALF_SPLIT);
    settings.pairing = static_cast<Pairing>(x.pairing);
  }
  settings.tail = count_in("tail", x.tail, -1);
  if (settings.tail < 0)
    settings.tail = settings.drawn ? State<double, PositiveRandomFeatures>::default_tail
                                   : State<double, SymmetricPower<2>>::default_tail;
  settings.rotary_dim = count_in("rotary_dim", x.rotary_dim, 0);
  if (settings.rotary_dim % 2 != 0)
    detail::raise<OddDimension>("options->rotary_dim is ", x.rotary_dim, ", must be even: channels turn in pairs");
  if (!std::isfinite(x.scale)) detail::raise<NotFinite>("options->scale is ", x.scale, ", must be finite");

  settings.options.form = static_cast<Form>(x.form);
  settings.options.threads = static_cast<int>(count_in("threads", x.threads, 0));
  settings.options.head.scale = x.scale;
  settings.options.head.chunk = count_in("chunk", x.chunk, 0);
  settings.options.head.checkpoint = count_in("checkpoint", x.checkpoint, 0);
  settings.options.head.check_finite = x.check_finite != 0;
  const Index window = count_in("window", x.window, 0);
  settings.options.head.mask = {count_in("offset", x.offset, std::numeric_limits<std::int64_t>::min()),
                                x.mask == SYMPOW_MASK_FULL, window == 0 ? Mask::unlimited : window};
  return settings;
}

}  // namespace SYMPOW_NAMESPACE::c
