// The exceptions: who derives from whom, and how a message is put together.
#include <concepts>

#include <sympow/core/checks.hpp>

#include "catch.hpp"

using namespace sympow;
using sympow::test::contains;

namespace {

template <class Error>
concept AnInvalidArgument = std::derived_from<Error, InvalidArgument> && !std::same_as<Error, InvalidArgument>;

static_assert(std::derived_from<InvalidArgument, std::invalid_argument>);
static_assert(AnInvalidArgument<ShapeMismatch> && AnInvalidArgument<InvalidPower> && AnInvalidArgument<OddDimension>);
static_assert(AnInvalidArgument<InvalidGate> && AnInvalidArgument<InvalidMultiIndex> &&
              AnInvalidArgument<FrameMismatch>);
static_assert(std::derived_from<DimensionOverflow, std::overflow_error> &&
              !std::derived_from<DimensionOverflow, InvalidArgument>);

template <class Error>
void check_raise() {
  REQUIRE_THROWS_AS(detail::raise<Error>("text"), Error);
  REQUIRE_THROWS_WITH(detail::raise<Error>("n = ", -3, ", x = ", .5, " and ", std::string("text")),
                      "n = -3, x = 0.5 and text");
}

}  // namespace

TEST_CASE("every error carries the message that its parts make", "[core]") {
  check_raise<InvalidArgument>();
  check_raise<ShapeMismatch>();
  check_raise<InvalidPower>();
  check_raise<OddDimension>();
  check_raise<InvalidGate>();
  check_raise<InvalidMultiIndex>();
  check_raise<FrameMismatch>();
  check_raise<DimensionOverflow>();
}

TEST_CASE("a size is checked against what it must be", "[core]") {
  REQUIRE_NOTHROW(detail::check_size("rows", 3, 3, "as many"));
  REQUIRE_THROWS_AS(detail::check_size("rows", 3, 4, "as many"), ShapeMismatch);
  REQUIRE_THROWS_WITH(detail::check_size("rows", 3, 4, "as many"), "rows is 3, must be 4 (as many)");
  REQUIRE_THROWS_WITH(detail::check_size("rows", 4, 3, "as many"), contains("is 4, must be 3"));
}
