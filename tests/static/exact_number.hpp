// `Number`: a type of which it is said that nothing rounds; double with SYMPOW_CONTROL defined.
#pragma once

#include <sympow/core/exact_scalar.hpp>

#ifdef SYMPOW_CONTROL
using Number = double;
#else
using Number = long double;
template <>
inline constexpr bool sympow::is_exact_scalar<long double> = true;
#endif
