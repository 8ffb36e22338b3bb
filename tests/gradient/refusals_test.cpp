// What a form of one head refuses its gradients refuse, as the same type and before anything is touched; what it takes
// they take.
#include <map>
#include <string>
#include <typeinfo>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd;
using sympow::test::Random;

namespace {

using Power = SymmetricPower<2>;

// The type of what f throws, empty if it throws nothing.
template <class F>
std::string thrown_by(const F& f) {
  try {
    f();
    return {};
  } catch (const std::exception& error) {
    return typeid(error).name();
  }
}

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.integer(0, static_cast<Index>(values.size()) - 1)];
}

Options random_options(Random& random) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const Index offset = one_of<Index>(random, {0, 0, 0, 2, -2, std::numeric_limits<Index>::max()});
  return {.scale = one_of(random, {1., 1., 1., -.5, nan}),
          .chunk = one_of<Index>(random, {0, 3, 3, -1}),
          .mask = one_of(random, {causal(offset), causal(offset), full(offset)}),
          .check_finite = random.integer(0, 1) == 1,
          .checkpoint = one_of<Index>(random, {0, 0, 0, 2, -1}),
          .costs = {.score = one_of(random, {15., 15., 15., 15., -1., nan})}};
}

// Both ways of a call whose sizes, entries and options fit each other or do not.
template <class A>
void check(Random& random, const A& transition, std::map<std::string, int>& count) {
  const Index d = one_of<Index>(random, {4, 4, 4, 4, 6}), e = 3, Tq = one_of<Index>(random, {7, 7, 7, 5, 0}),
              Tk = one_of<Index>(random, {7, 7, 7, 9});
  const Options options = random_options(random);
  const MatrixXd Q = random.matrix(d, Tq), V = random.matrix(e, Tk), dY = random.matrix(e, Tq);
  MatrixXd K = random.matrix(one_of<Index>(random, {d, d, d, d, d + 2}), Tk);
  if (random.integer(0, 3) == 0) K(1, Tk - 1) = std::numeric_limits<double>::infinity();
  const auto both = [&](const auto& forward, const auto& backward) {
    Gradients<double, A> kept;
    kept.Q = MatrixXd::Constant(1, 1, 7);
    const std::string first = thrown_by(forward), second = thrown_by([&] { backward(kept); });
    REQUIRE(second == first);
    if (!first.empty()) REQUIRE(kept.Q == MatrixXd::Constant(1, 1, 7));
    ++count[first];
  };
  both([&] { (void)attention(Power{}, transition, Q, K, V, options); },
       [&](auto& kept) {
         (void)attention_vjp(Power{}, transition,
                             {.Q = Q, .K = K, .V = V, .dY = dY, .reuse = kept, .options = options});
       });
  const State<double, Power> before(one_of<Index>(random, {d, d, d, 4}), e);
  State<double, Power> state = before;
  StateGradient<double, Power> d_state(d, e);
  both(
      [&] { (void)chunked(Power{}, transition, Q, K, V, state, options); },
      [&](auto& kept) {
        (void)chunked_vjp(
            Power{}, transition,
            {.Q = Q, .K = K, .V = V, .dY = dY, .state = before, .d_state = d_state, .reuse = kept, .options = options});
      });
}

}  // namespace

TEST_CASE("gradients of one head refuse what its form refuses, before anything is touched", "[gradient]") {
  Random random(30);
  std::map<std::string, int> count;
  for (int draw = 0; draw < 4000; ++draw) {
    CAPTURE(draw);
    check(random, decay(-.1 * random.vector(one_of<Index>(random, {7, 7, 9, 5})).cwiseAbs()), count);
    check(random, rotary(random.vector(one_of<Index>(random, {2, 2, 3})), Pairing::half_split), count);
    check(random, constant_decay(one_of(random, {1., .5})), count);
  }
  CHECK(count[""] >= 300);
  CHECK(count[typeid(ShapeMismatch).name()] >= 1000);
  CHECK(count[typeid(InvalidArgument).name()] >= 1000);
  CHECK(count[typeid(NotFinite).name()] >= 50);
}

TEST_CASE("outputs in the memory of inputs are refused by every form", "[gradient]") {
  Random random(31);
  const Index d = 4, T = 6;
  MatrixXd all = random.matrix(3 * d, T);
  const auto Q = all.topRows(d), K = all.middleRows(d, d), V = all.bottomRows(d);
  State<double, Power> state(d, d);
  const auto A = constant_decay(.9);
  const auto refused = [](const auto& call) { CHECK_THROWS_AS(call(), InvalidArgument); };
  refused([&] { attention(Power{}, A, Q, K, V, all.bottomRows(d)); });
  refused([&] { chunked(Power{}, A, Q, K, V, state, all.topRows(d)); });
  refused([&] { recurrent(Power{}, A, Q, K, V, state, all.middleRows(d + 1, d)); });
  CHECK(state.tokens() == 0);
  MatrixXd beside(4 * d, T);  // tokens side by side share no entry
  beside.topRows(3 * d) = all;
  CHECK_NOTHROW(attention(Power{}, A, beside.topRows(d), beside.middleRows(d, d), beside.middleRows(2 * d, d),
                          beside.bottomRows(d)));

  const auto heads = [&](Index first) { return Heads<double>::strided(all.data() + first, 1, T, 1, d, {0, 3 * d, 0}); };
  refused([&] { attend(Power{}, A, {.Q = heads(0), .K = heads(d), .V = heads(2 * d), .Y = heads(2 * d)}); });
}
