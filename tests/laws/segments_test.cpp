// States of a sequence's pieces, merged in any order; random_rows_*_test.cpp resumes them in any form. The tests know
// when a state was dropped.
#include <sympow/attention/scan.hpp>

#include <vector>

#include "catch.hpp"
#include "forms.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

template <int P>
constexpr bool means = P % 2 == 0;

template <class Scalar, int P>
ReferenceRows reference(const Tokens& tokens) {
  return reference_rows(P, tokens, means<P>, std::same_as<Scalar, double> ? AngleSums::in_double : AngleSums::exact);
}

// `count` segments of random lengths, empty ones among them.
std::vector<Segment> cut(Random& random, Index T, Index count) {
  std::vector<Index> ends{0, T};
  while (static_cast<Index>(ends.size()) <= count) ends.push_back(random.integer(0, T));
  std::ranges::sort(ends);
  std::vector<Segment> segments;
  for (std::size_t n = 1; n < ends.size(); ++n) segments.push_back({ends[n - 1], ends[n] - ends[n - 1]});
  return segments;
}

// States of the segments, each started at the frame of the one before.
template <class Scalar, int P>
std::vector<State<Scalar, SymmetricPower<P>>> states_of(const Tokens& tokens, const std::vector<Segment>& segments,
                                                        Random& random) {
  std::vector<State<Scalar, SymmetricPower<P>>> states;
  Frame frame;
  for (const Segment s : segments) {
    states.emplace_back(tokens.Q.rows(), tokens.V.rows(), 32, frame);
    static_cast<void>(run(tokens.segment(s), states.back(), random.uniform() < .5 ? 0 : 16));
    frame = states.back().frame();
  }
  return states;
}

// Merges states[from … to) with the brackets at random.
template <class StateType>
StateType merged(const std::vector<StateType>& states, std::size_t from, std::size_t to, Random& random) {
  if (to - from == 1) return states[from];
  const auto middle =
      static_cast<std::size_t>(random.integer(static_cast<Index>(from) + 1, static_cast<Index>(to) - 1));
  return merge(merged(states, from, middle, random), merged(states, middle, to, random));
}

template <class Scalar, int P>
void check_merges(Gates gates, Lengths lengths, Turning turning, std::uint64_t seed) {
  Random random(seed);
  constexpr Index T = 160, seen = 120;
  Tokens tokens = sequence(random, 4, 3, T, gates, lengths, turning);
  tokens.round_to<Scalar>();
  const ReferenceRows rows = reference<Scalar, P>(tokens);
  for (Index count = 2; count <= 7; ++count) {
    const auto states = states_of<Scalar, P>(tokens, cut(random, seen, count), random);
    for (int bracketing = 0; bracketing < 2; ++bracketing) {
      State<Scalar, SymmetricPower<P>> state = merged(states, 0, states.size(), random);
      REQUIRE(state.tokens() == seen);
      const Result<Scalar> rest = run(tokens.segment({seen, T - seen}), state, 16);
      CAPTURE(P, sizeof(Scalar), static_cast<int>(gates), static_cast<int>(lengths), static_cast<int>(turning), seed,
              count, bracketing);
      CHECK(judge<Scalar>(rows.last(T - seen), rest.Y, rest.diagnostics, 1).worst <= 1);
    }
  }
}

template <class F>
void each_case(F&& f) {
  std::uint64_t seed = 0;
  for (const Gates gates : {Gates::none, Gates::slow, Gates::random, Gates::mixed, Gates::strong, Gates::closed})
    for (const Lengths lengths : {Lengths::ordinary, Lengths::mixed, Lengths::falling})
      for (const Turning turning : {Turning::none, Turning::rotary, Turning::channels})
        f(gates, lengths, turning, ++seed);
}

// The law must fail by far if a state is dropped or forgets its first gate; slow gates, an interior split.
template <class Scalar, int P>
double without_state(Turning turning) {
  Random random(5);
  Tokens tokens = sequence(random, 4, 3, 150, Gates::slow, Lengths::ordinary, turning);
  tokens.round_to<Scalar>();
  State<Scalar, SymmetricPower<P>> fresh(4, 3);
  const Result<Scalar> rest = run(tokens.segment({70, 80}), fresh, 16);
  return judge<Scalar>(reference<Scalar, P>(tokens).last(80), rest.Y, rest.diagnostics, 1).worst;
}

}  // namespace

TEST_CASE("states of two to seven segments merge, however they are bracketed", "[laws]") {
  each_case([](auto... which) {
    check_merges<float, 2>(which...);
    check_merges<float, 4>(which...);
    check_merges<double, 1>(which...);
  });
}

TEST_CASE("under slow gates a dropped state breaks the rule by orders of magnitude", "[laws]") {
  for (const Turning turning : {Turning::none, Turning::rotary, Turning::channels}) {
    CHECK(without_state<float, 2>(turning) > 1e4);
    CHECK(without_state<double, 2>(turning) > 1e12);
  }
}
