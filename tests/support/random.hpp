// Seeded random inputs under the tests' namespace. Name the seed in the test and print it:
//     const auto seed = GENERATE(1u, 2u); CAPTURE(seed);
#pragma once

#include <sympow/core/random.hpp>

namespace sympow::test {

using sympow::Random;

}  // namespace sympow::test
