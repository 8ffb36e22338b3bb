// The seeded source of random numbers under the name that propositions, tests and examples use.
#pragma once

#include <sympow/core/random.hpp>

namespace sympow::verify {

using sympow::Random;

}  // namespace sympow::verify
