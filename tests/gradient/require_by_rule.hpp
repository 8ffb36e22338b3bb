// What tests of gradients ask of what they find.
#pragma once

#include <sympow/verify/residual.hpp>

#include "catch.hpp"

namespace sympow::test {

/// The worst entry is within its bound.
inline void require_by_rule(const verify::Residual& found) {
  INFO(found);
  CHECK(found.holds());
}

}  // namespace sympow::test
