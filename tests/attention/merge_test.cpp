// Merging states: what it refuses, the empty state as its unit, and what the result says of itself. That the result is
// the state of both segments is among the laws.
#include <sympow/attention/scan.hpp>

#include "catch.hpp"
#include "forms.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

using StateType = State<double, SymmetricPower<2>>;

StateType after(const Tokens& tokens, const Frame& frame = {}) {
  StateType state(tokens.Q.rows(), tokens.V.rows(), 8, frame);
  (void)run(tokens, state, 0);
  return state;
}

Tokens turning_tokens(std::uint64_t seed) {
  Random random(seed);
  return sequence(random, 4, 3, 30, Gates::random, Lengths::ordinary, Turning::rotary);
}

}  // namespace

TEST_CASE("states that do not follow each other are not merged", "[attention]") {
  const StateType left = after(turning_tokens(1));
  REQUIRE_THROWS_WITH(merge(left, after(turning_tokens(2))), contains("must be started at the left one's frame()"));
  Frame wrong = left.frame();
  wrong.numbers()[1] += 1e-6;
  REQUIRE_THROWS_AS(merge(left, after(turning_tokens(2), wrong)), FrameMismatch);
  Frame close = left.frame();
  close.numbers()[1] += 1e-12;
  REQUIRE_NOTHROW(merge(left, after(turning_tokens(2), close)));
  Frame round_the_circle = left.frame();
  round_the_circle.numbers().array() += 2 * std::numbers::pi;
  REQUIRE_NOTHROW(merge(left, after(turning_tokens(2), round_the_circle)));
  REQUIRE_THROWS_WITH(merge(StateType(4, 3), StateType(5, 3)),
                      contains("key dimension of the right state is 5, must be 4"));
  REQUIRE_THROWS_WITH(merge(StateType(4, 3), StateType(4, 2)),
                      contains("value dimension of the right state is 2, must be 3"));
}

TEST_CASE("the empty state is the unit of merging", "[attention]") {
  const StateType state = after(turning_tokens(1));
  const StateType behind = merge(state, StateType(4, 3, 8, state.frame())),
                  ahead = merge(StateType(4, 3), after(turning_tokens(1)));
  for (const StateType* merged : {&behind, &ahead}) {
    REQUIRE(merged->tokens() == state.tokens());
    REQUIRE((merged->values() - state.values()).norm() <= 1e-14 * state.values().norm());
    REQUIRE(merged->frame().numbers() == state.frame().numbers());
    REQUIRE(merged->log_decay() == state.log_decay());
  }
  const StateType nothing = merge(StateType(4, 3), StateType(4, 3));
  REQUIRE(nothing.values().isZero(0));
  REQUIRE(nothing.tokens() == 0);
}

TEST_CASE("a merged state knows its tokens, its transition and its frames", "[attention]") {
  const StateType left = after(turning_tokens(1)), right = after(turning_tokens(2), left.frame());
  const StateType whole = merge(left, right);
  REQUIRE(whole.tokens() == 60);
  REQUIRE(whole.tail_size() == 0);
  REQUIRE(whole.log_decay() == left.log_decay() + right.log_decay());
  REQUIRE(whole.start_frame().numbers() == left.start_frame().numbers());
  REQUIRE(whole.frame().numbers() == right.frame().numbers());
  REQUIRE(left.tail_size() > 0);  // the arguments are values and stay as they were
}
