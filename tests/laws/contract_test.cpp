// The forms give the rows of the definition by the row rule: every power, shape, length, gate and size of keys.
#include <ctime>
#include <limits>

#include <sympow/attention/state_file.hpp>

#include "catch.hpp"
#include "forms.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

// The verdict on each form; `seed` makes the tokens.
template <class Scalar, int P>
void check(Index d, Index e, Index T, Gates gates, Lengths lengths, Turning turning, std::uint64_t seed,
           Index chunk = 64, Inputs inputs = Inputs::ordinary) {
  Random random(seed);
  const auto verdicts =
      judge_forms<Scalar, SymmetricPower<P>>(sequence(random, d, e, T, gates, lengths, turning), chunk, inputs);
  for (std::size_t form = 0; form < verdicts.size(); ++form) {
    CAPTURE(P, sizeof(Scalar), d, e, T, static_cast<int>(gates), static_cast<int>(lengths), static_cast<int>(turning),
            seed, chunk, form_names[form], verdicts[form].row, verdicts[form].flagged);
    CHECK(verdicts[form].worst <= 1);
  }
}

constexpr Index largest_dimension = 100000;

template <class Scalar, int P>
void check_shapes(std::initializer_list<Index> dimensions, std::initializer_list<Index> lengths) {
  std::uint64_t seed = 0;
  for (const Index d : dimensions)
    for (const Index T : lengths)
      if (symmetric_dimension(d, P) <= largest_dimension) {
        check<Scalar, P>(d, d == 3 ? 5 : 3, T, Gates::slow, Lengths::ordinary, Turning::none, ++seed);
        if (d % 2 == 0) check<Scalar, P>(d, 3, T, Gates::random, Lengths::ordinary, Turning::rotary, ++seed);
      }
}

// Runs f<Scalar, P>() for both scalars, with even and odd powers, high and low.
template <class F>
void each_power(F&& f) {
  const auto run = [&]<class Scalar, int... P>(Scalar, std::integer_sequence<int, P...>) {
    (f(Scalar{}, std::integral_constant<int, P>{}), ...);
  };
  run(0.F, std::integer_sequence<int, 2, 3, 8>{});
  run(0., std::integer_sequence<int, 1, 2, 4>{});
}

}  // namespace

TEST_CASE("the forms agree with the definition for every power, dimension and length", "[laws]") {
  each_power([]<class Scalar, int P>(Scalar, std::integral_constant<int, P>) {
    check_shapes<Scalar, P>({1, 2, 3, 8}, {0, 1, 2, 63, 64, 65, 130});
    check_shapes<Scalar, P>({P <= 2 ? 128 : P == 3 ? 32 : 16}, {65});
  });
}

TEST_CASE("the forms agree with the definition, the whole grid", "[laws][.long]") {
  each_power([]<class Scalar, int P>(Scalar, std::integral_constant<int, P>) {
    check_shapes<Scalar, P>({1, 2, 3, 7, 8, 16, 32, 64, 128}, {0, 1, 2, 63, 64, 65, 130, 1000});
  });
}

TEST_CASE("the forms agree under every gate, for keys and queries of every size", "[laws]") {
  each_power([]<class Scalar, int P>(Scalar, std::integral_constant<int, P>) {
    std::uint64_t seed = 100;
    for (const Gates gates : all_gates)
      for (const Lengths lengths : all_lengths) {
        check<Scalar, P>(4, 3, 140, gates, lengths, Turning::none, ++seed);
        check<Scalar, P>(2, 3, 70, gates, lengths, Turning::rotary, ++seed, 5);
        check<Scalar, P>(3, 2, 70, gates, lengths, Turning::channels, ++seed, 16);
      }
  });
}

TEST_CASE("the forms agree under every gate, for keys and queries of every size, many sequences", "[laws][.long]") {
  each_power([]<class Scalar, int P>(Scalar, std::integral_constant<int, P>) {
    for (std::uint64_t seed = 1000; seed < 1040; ++seed)
      for (const Gates gates : all_gates)
        for (const Lengths lengths : all_lengths) {
          Random random(seed);
          const Index d = random.integer(1, P <= 2 ? 12 : P <= 4 ? 6 : 4), e = random.integer(1, 4);
          const Index T = random.integer(1, 300), chunk = random.integer(1, 80);
          const auto turning = static_cast<Turning>(random.integer(0, 2));
          // Among so many rows of one token some have all their roundings in one direction.
          check<Scalar, P>(d, e, T, gates, lengths, turning, seed, chunk, Inputs::aligned);
        }
  });
}

TEST_CASE("keys of 1e6, none, keys of 1e-6 under gates of .8: the small ones take over", "[laws]") {
  each_power([]<class Scalar, int P>(Scalar, std::integral_constant<int, P>) {
    for (const Turning turning : {Turning::none, Turning::rotary})
      check<Scalar, P>(2, 3, 1500, Gates::none, Lengths::falling, turning, 7);
  });
}

TEST_CASE("rows and gradients take as long under strong gates as under weak ones", "[laws]") {
  constexpr Index d = 32, T = 1024;
  const SymmetricPower<2> feature;
  Random random(5);
  const auto X = random.matrix<float>(d, T);
  const auto time_of = [&](double log_gate, const auto& call) {
    const auto transition = constant_decay(std::exp(log_gate));
    const std::clock_t begin = std::clock();
    const Matrix<float> Y = call(transition);
    const std::clock_t end = std::clock();
    CHECK(Y.allFinite());
    return static_cast<double>(end - begin);
  };
  // Tiny weights make subnormal products, which take many times as long on some processors.
  const auto check = [&](double most, const auto& call) {
    for (const double log_gate : {-.3, -1., -5.}) {
      double weak = std::numeric_limits<double>::max(), strong = weak;
      const auto holds = [&] { return strong <= most * weak; };
      for (int n = 0; n < 3 || (n < 30 && !holds()); ++n) {  // the least of each, on a busy machine of many
        weak = std::min(weak, time_of(-.01, call));
        strong = std::min(strong, time_of(log_gate, call));
      }
      CAPTURE(log_gate, strong, weak);
      CHECK(holds());
    }
  };
  check(2, [&](const auto& transition) { return chunked(feature, transition, X, X, X, {.chunk = 512}); });
  check(2, [&](const auto& transition) { return attention(feature, transition, X, X, X); });
  check(2,
        [&](const auto& transition) { return chunked_vjp(feature, transition, {.Q = X, .K = X, .V = X, .dY = X}).K; });
  check(3, [&](const auto& transition) {
    return attention_vjp(feature, transition, {.Q = X, .K = X, .V = X, .dY = X}).K;
  });
}
