// What goes wrong by a user's hand: one typed exception each, and one cold place that throws them.
#pragma once

#include <charconv>
#include <concepts>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <typeinfo>

#include <sympow/core/config.hpp>

#ifndef __cpp_exceptions
#error "sympow throws: compile without -fno-exceptions"
#endif

#pragma GCC visibility push(default)  // caught by the same type in other shared libraries
namespace sympow {

/// An argument that the function cannot work with. The base of every error below but `DimensionOverflow`.
/// The message names the argument, what it was and what it must be.
struct InvalidArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// Two shapes that must agree do not.
struct ShapeMismatch : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A power outside of 1 … `max_power`.
struct InvalidPower : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A rotation acts on pairs of coordinates; the dimension is odd.
struct OddDimension : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A log gate that is positive or not a number, or a gate outside of [0, 1].
struct InvalidGate : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A multi-index that is not non-decreasing, or whose entries do not lie in 0 … d - 1.
struct InvalidMultiIndex : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// An entry that is infinite or not a number, where the caller asked to look for such.
struct NotFinite : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A state that was built under another kind of turning transition than the one it is resumed with.
struct FrameMismatch : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A generator or Cayley argument with S + Sᵀ ≠ 0.
struct NotSkew : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// Generators that do not commute, or have no joint planes.
struct NotCommuting : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A plane of which rounding leaves open whether anything turns it.
struct AmbiguousRank : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// Frequencies that do not tell all positions apart.
struct RankDeficient : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A family that turns nothing, where something must turn.
struct EmptyActiveSpace : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A state that was built with a feature map of other parameters than the one it is resumed or merged with.
struct FeatureMismatch : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A state file that cannot be read: absent, foreign, of another version, shape or type, truncated or damaged. Or one
/// that cannot be written.
struct InvalidStateFile : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A state that a call has left half way: memory ended in it, or a feature map or transition threw.
struct InterruptedState : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// A count or dimension that the index type cannot hold.
struct DimensionOverflow : std::overflow_error {
  using std::overflow_error::overflow_error;
};

}  // namespace sympow
#pragma GCC visibility pop

namespace SYMPOW_NAMESPACE::detail {

inline constexpr const char* log_gate_rule = ", must be at most 0: the logarithm of a gate in [0, 1], not the gate";

/// A part of a message: words, or a number in the fewest digits that read back as it.
class Part {
 public:
  explicit Part(std::string_view words) : words_(words) {}
  template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
  [[gnu::cold, gnu::noinline]] explicit Part(Number x) {
    words_ = std::string_view(
        digits_, static_cast<std::size_t>(std::to_chars(digits_, digits_ + sizeof digits_, x).ptr - digits_));
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  [[nodiscard]] std::string_view words() const { return words_; }  ///< as they are printed

 private:
  char digits_[64];
  std::string_view words_;
};

/// What a part of a message is passed as, so that few kinds of messages are compiled.
template <class T>
using PartType = std::conditional_t<std::floating_point<T>, T,
                                    std::conditional_t<std::unsigned_integral<T>, std::size_t,
                                                       std::conditional_t<std::integral<T>, Index, std::string_view>>>;

/// The parts joined into one message.
[[gnu::cold, gnu::noinline]] inline std::string joined(std::initializer_list<Part> parts) {
  std::string message;
  for (const Part& part : parts) message += part.words();
  return message;
}

/// Throws `Error` with the parts joined. Cold and never inlined, so that a check costs one branch.
template <class Error, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void raise_joined(Parts... parts) {
  throw Error(joined({Part(parts)...}));
}

/// Throws `Error` with a message of words and numbers.
template <class Error, class... Parts>
[[noreturn, gnu::always_inline]] inline void raise(const Parts&... parts) {
  raise_joined<Error, PartType<Parts>...>(static_cast<PartType<Parts>>(parts)...);
}

/// Some types.
template <class...>
struct TypeList {};

/// The errors of this page.
using Errors = TypeList<InvalidArgument, ShapeMismatch, InvalidPower, OddDimension, InvalidGate, InvalidMultiIndex,
                        NotFinite, FrameMismatch, NotSkew, NotCommuting, AmbiguousRank, RankDeficient, EmptyActiveSpace,
                        FeatureMismatch, InterruptedState, DimensionOverflow>;

/// Rethrows the exception being handled: one of these errors with a prefix to its message, anything else unchanged.
/// Without run-time type information everything is unchanged.
template <class... Error, class... Parts>
[[noreturn, gnu::cold]] void rethrow_with_prefix(TypeList<Error...>, [[maybe_unused]] const Parts&... prefix) {
  try {
    throw;
  } catch ([[maybe_unused]] const std::exception& error) {
#ifdef __cpp_rtti
    ((typeid(error) == typeid(Error) ? raise<Error>(prefix..., error.what()) : void()), ...);
#endif
    throw;
  }
}

/// Throws `ShapeMismatch` unless `actual == expected`; the message reads "what is actual, must be expected (why)".
inline void check_size(std::string_view what, Index actual, Index expected, std::string_view why) {
  if (actual != expected) raise<ShapeMismatch>(what, " is ", actual, ", must be ", expected, " (", why, ")");
}

}  // namespace SYMPOW_NAMESPACE::detail
