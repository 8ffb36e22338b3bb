// Which scalar types are exact: no operation of theirs rounds.
#pragma once

#include <type_traits>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE {

/// Whether +, -, × and ÷ of a type are exact: false for float and double, true for `Rational`. Specialise it for a
/// field of your own.
template <class T>
inline constexpr bool is_exact_scalar = false;

/// A field without rounding, such as `Rational`: a residual of it is 0, or the statement is false.
template <class T>
concept ExactScalar = is_exact_scalar<std::remove_cvref_t<T>>;

}  // namespace SYMPOW_NAMESPACE
