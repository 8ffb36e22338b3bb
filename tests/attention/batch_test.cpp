// Batches of heads: each head is what it is alone, and the ways in which batches are known to fail, one test each.
// Offsets that decrease and more than 2^31 elements stand with the views, equal results on any number of threads with
// the threads.
#include <algorithm>
#include <cstring>
#include <limits>

#include "batches.hpp"
#include "catch.hpp"
#include "from_nothing.hpp"

#include <sympow/transition/householder.hpp>

using namespace sympow;
using namespace sympow::test;

namespace {

using Power = SymmetricPower<2>;
constexpr std::array forms = {Form::attention, Form::recurrent, Form::chunked};
constexpr std::array orders = {Order::bthd, Order::bhtd, Order::packed};
constexpr Index chunk = 16;

// A head by itself, from `state` unless the form has none.
template <class Scalar>
Matrix<Scalar> alone(RandomBatch<Scalar>& batch, Index b, Index h, Form form, State<Scalar, Power>& state) {
  const Index g = h / (batch.H / batch.groups);
  const auto q = batch.Q.heads().head(b, h), k = batch.K.heads().head(b, g), v = batch.V.heads().head(b, g);
  const auto A = batch.transition(b, h);
  const Options options{.scale = .5, .chunk = chunk};
  return form == Form::attention   ? attention(Power{}, A, q, k, v, options)
         : form == Form::recurrent ? recurrent(Power{}, A, q, k, v, state, options)
                                   : chunked(Power{}, A, q, k, v, state, options);
}

template <class Scalar, class Transitions>
void run(RandomBatch<Scalar>& batch, const Transitions& transitions, std::vector<State<Scalar, Power>>& states,
         Form form, int threads = 0) {
  const BatchOptions options{.form = form, .threads = threads, .head = {.scale = .5, .chunk = chunk}};
  if (form == Form::attention)
    batch.attend(Power{}, transitions, options);
  else
    batch.attend(Power{}, transitions, options, states);
}

// Every head and state of a batch against itself alone, bit for bit, from nothing and from the states that are left;
// nothing but zeros in the padding.
template <class Scalar>
void check(RandomBatch<Scalar> batch) {
  for (const Form form : forms) {
    auto states = batch.template fresh_states<Power>(), expected = states;
    for (const bool resumed : {false, true}) {
      run(batch, batch.transitions(), states, form);
      for (Index b = 0; b < batch.B(); ++b)
        for (Index h = 0; h < batch.H; ++h) {
          CAPTURE(sizeof(Scalar), static_cast<int>(form), static_cast<int>(batch.order), resumed, b, h);
          auto& state = expected[batch.index(b, h)];
          REQUIRE(same_bits(batch.Y.heads().head(b, h), alone(batch, b, h, form, state)));
          REQUIRE(same_bits(states[batch.index(b, h)], state));
          REQUIRE(batch.Y.heads().padding(b, h).isZero(0));
        }
    }
  }
}

// What a call that must throw leaves of outputs and states.
template <class Scalar, class Call>
void check_untouched(RandomBatch<Scalar>& batch, const std::vector<State<Scalar, Power>>& states, Call&& call) {
  const auto data = batch.Y.data;
  const auto before = states;
  call();
  REQUIRE(batch.Y.data == data);
  for (std::size_t n = 0; n < states.size(); ++n) REQUIRE(same_bits(states[n], before[n]));
}

}  // namespace

TEST_CASE("a head of a batch is the head alone, whatever the order, the form, the length and its state",
          "[attention]") {
  for (const Order order : orders) {
    check<double>({order, {chunk - 1, 0, chunk, 1, chunk + 1, 97}, 4, 2, 1});
    check<float>({order, {13, 31, 2 * chunk}, 3, 3, 2});
    check<float>({order, {5}, 1, 1, 3});
    check<double>({order, {0, 0}, 2, 1, 4});
  }
}

TEST_CASE("a batch without rows leaves its states as one with rows does, and looks at no query", "[attention]") {
  for (const Form form : {Form::automatic, Form::recurrent, Form::chunked})
    for (const bool share : {false, true}) {
      RandomBatch<float> batch(Order::bthd, {40, 0, 21}, 4, 2, 5);
      const BatchOptions options{.form = form, .head = {.scale = .5, .chunk = chunk}};
      const auto transitions = [&](Index b, Index h) { return batch.transition(b, h); };
      auto unread = batch.Q;
      for (float& x : unread.data) x = std::numeric_limits<float>::quiet_NaN();
      auto states = batch.fresh_states<Power>();
      if (share) states.erase(states.begin() + std::ssize(states) / 2, states.end());
      auto moved = states;
      const AttendCall<float, Power> call{
          .Q = unread.heads(), .K = batch.K.heads(), .V = batch.V.heads(), .states = moved, .options = options};
      for (int n = 0; n < 2; ++n) {
        batch.attend(Power{}, transitions, options, states);
        attend(Power{}, transitions, call);
        for (std::size_t i = 0; i < states.size(); ++i) REQUIRE(same_bits(states[i], moved[i]));
      }
      AttendCall<float, Power> without = call;
      without.states = {};
      REQUIRE_THROWS_WITH(attend(Power{}, transitions, without),
                          "attend: Y and states are left out, must be one of them at least");
    }
}

TEST_CASE("transitions come from a callable, from a container or from one for all", "[attention]") {
  RandomBatch<double> batch(Order::bthd, {12, 30}, 2, 2, 9);
  auto states = batch.fresh_states<Power>();
  run(batch, batch.transitions(), states, Form::chunked);
  const auto called = batch.Y.data;
  std::vector<decltype(batch.transition(0, 0))> container;
  for (Index n = 0; n < 4; ++n) container.push_back(batch.transition(n / 2, n % 2));
  states = batch.fresh_states<Power>();
  run(batch, container, states, Form::chunked);
  REQUIRE(batch.Y.data == called);

  const auto one = constant_decay(.9) * rotary(batch.theta, Pairing::interleaved);
  states = batch.fresh_states<Power>();
  run(batch, one, states, Form::chunked);
  const auto single = batch.Y.data;
  states = batch.fresh_states<Power>();
  run(batch, [&](Index, Index) { return one; }, states, Form::chunked);
  REQUIRE(batch.Y.data == single);
  REQUIRE(single != called);
}

TEST_CASE("states are values in any container, dropped where there are none", "[attention]") {
  RandomBatch<double> batch(Order::packed, {12, 30}, 2, 2, 10);
  auto states = batch.fresh_states<Power>();
  run(batch, batch.transitions(), states, Form::chunked);
  const auto expected = batch.Y.data;

  auto fresh = batch.fresh_states<Power>();
  std::vector<State<double, Power>*> active;  // states of a server's running sequences, wherever they are
  for (auto& state : fresh) active.push_back(&state);
  const BatchOptions options{.form = Form::chunked, .head = {.scale = .5, .chunk = chunk}};
  batch.attend(Power{}, batch.transitions(), options,
               active | std::views::transform([](auto* state) -> auto& { return *state; }));
  REQUIRE(batch.Y.data == expected);
  for (std::size_t n = 0; n < 4; ++n) REQUIRE(same_bits(fresh[n], states[n]));

  batch.attend(Power{}, batch.transitions(), options);
  REQUIRE(batch.Y.data == expected);
}

TEST_CASE("a state in two places of a batch is refused, states in any order are not", "[attention]") {
  RandomBatch<double> batch(Order::packed, {12, 30}, 2, 2, 10);
  auto expected = batch.fresh_states<Power>(), states = expected;
  run(batch, batch.transitions(), expected, Form::chunked);
  const auto rows = batch.Y.data;
  const BatchOptions options{.form = Form::chunked, .head = {.scale = .5, .chunk = chunk}};
  std::array<std::size_t, 4> slots{};  // of the states, by the place in the call
  const auto call = [&] {
    batch.attend(Power{}, batch.transitions(), options,
                 slots | std::views::transform([&](std::size_t n) -> auto& { return states[n]; }));
  };
  for (slots = {0, 1, 2, 3};;) {
    states = batch.fresh_states<Power>();
    call();
    REQUIRE(batch.Y.data == rows);
    for (std::size_t n = 0; n < 4; ++n) REQUIRE(same_bits(states[slots[n]], expected[n]));
    if (!std::next_permutation(slots.begin(), slots.end())) break;
  }
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = i + 1; j < 4; ++j) {
      slots = {3, 1, 0, 2};
      slots[j] = slots[i];
      const std::string text =
          "states: number " + std::to_string(j) + " is the same object as number " + std::to_string(i);
      check_untouched(batch, states, [&] {
        REQUIRE_THROWS_AS(call(), InvalidArgument);
        REQUIRE_THROWS_WITH(call(), contains(text));
      });
    }
}

TEST_CASE("what has the attention form only runs in it and says so otherwise", "[attention]") {
  RandomBatch<double> batch(Order::bthd, {12, 30}, 2, 2, 11);
  const auto q = batch.Q.heads(), k = batch.K.heads(), v = batch.V.heads(), y = batch.Y.heads();
  Workspaces<double> workspaces;
  const auto only = contains("has the attention form only");
  attend(Exponential{}, batch.transitions(),
         {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces, .options = {.form = Form::attention}});
  REQUIRE(same_bits(y.head(1, 1),
                    attention(Exponential{}, batch.transition(1, 1), q.head(1, 1), k.head(1, 1), v.head(1, 1))));
  REQUIRE_THROWS_WITH(
      attend(Exponential{}, batch.transitions(),
             {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces, .options = {.form = Form::chunked}}),
      only);

  const auto chain = [&](Index b, Index h) {
    return householder(k.head(b, h).colwise().normalized(), Eigen::VectorXd::Ones(k.length(b)));
  };
  attend(Power{}, chain,
         {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces, .options = {.form = Form::attention}});
  REQUIRE(same_bits(y.head(1, 0), attention(Power{}, chain(1, 0), q.head(1, 0), k.head(1, 0), v.head(1, 0))));
  REQUIRE_THROWS_WITH(
      attend(Power{}, chain,
             {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces, .options = {.form = Form::recurrent}}),
      contains("Householder vectors have states for power 1 alone"));
  attend<Unnormalized>(
      Linear{}, chain,
      {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces, .options = {.form = Form::recurrent}});
  REQUIRE(
      same_bits(y.head(1, 0), recurrent_from_nothing(Linear{}, chain(1, 0), q.head(1, 0), k.head(1, 0), v.head(1, 0))));
}

TEST_CASE("an error of one head names it and leaves all others as they were", "[attention]") {
  for (const Form form : {Form::recurrent, Form::chunked}) {
    RandomBatch<double> batch(Order::bthd, {4, 6, 5, 8}, 2, 2, 12);
    auto states = batch.fresh_states<Power>();
    run(batch, batch.transitions(), states, form);

    check_untouched(batch, states, [&] {
      RandomBatch<double> bad = batch;
      bad.log_gamma[7][2] = .5;
      REQUIRE_THROWS_AS(run(batch, bad.transitions(), states, form), InvalidGate);
      REQUIRE_THROWS_WITH(run(batch, bad.transitions(), states, form),
                          contains("sequence 3, head 1: the transition's log gate of token 2 is 0.5"));
    });
    check_untouched(batch, states, [&] {
      const auto too_long = [&](Index b, Index h) {
        return b == 2 && h == 1 ? decay(Eigen::VectorXd::Zero(6))
                                : decay(Eigen::VectorXd::Zero(batch.Q.heads().length(b)));
      };
      auto unrotated = batch.fresh_states<Power>();
      REQUIRE_THROWS_WITH(run(batch, too_long, unrotated, form),
                          contains("sequence 2, head 1: length of the transition is 6, must be 5"));
      REQUIRE_THROWS_AS(run(batch, constant_decay(.9), states, form), FrameMismatch);
      std::vector<Decay> few(7, decay(Eigen::VectorXd::Zero(5)));
      REQUIRE_THROWS_WITH(run(batch, few, unrotated, form), contains("number of transitions is 7, must be 8"));
    });
    check_untouched(batch, states, [&] {
      auto other = states;
      other[5] = State<double, Power>(4, 2);
      REQUIRE_THROWS_WITH(run(batch, batch.transitions(), other, form),
                          contains("sequence 2, head 1: rows of V is 3, must be 2"));
      other.pop_back();
      REQUIRE_THROWS_WITH(run(batch, batch.transitions(), other, form), contains("number of states is 7, must be 8"));
    });
  }
}

TEST_CASE("sizes that no state has are refused before anything is touched", "[attention]") {
  constexpr Index d = 40000, e = 32, T = 2;  // (e + 1) D is 2^61.6 numbers
  const std::vector<Index> lengths = {1, 2};
  const std::vector<float> x(2 * T * d, 1.f);
  std::vector<float> rows(2 * T * e, 7.f);
  const auto q = Heads<const float>::bthd(x.data(), 2, T, 1, d, lengths);
  const auto v = Heads<const float>::bthd(x.data(), 2, T, 1, e, lengths);
  const auto y = Heads<float>::bthd(rows.data(), 2, T, 1, e, lengths);
  Workspaces<float> workspaces;
  const auto run = [&](Form form) {
    attend(SymmetricPower<4>{}, stationary(),
           {.Q = q, .K = q, .V = v, .Y = y, .workspaces = workspaces, .options = {.form = form, .threads = 1}});
  };
  for (const Form form : {Form::recurrent, Form::chunked}) {
    REQUIRE_THROWS_AS(run(form), DimensionOverflow);
    REQUIRE_THROWS_WITH(run(form), contains("sequence 0, head 0: State: d = 40000 and e = 32"));
    REQUIRE(rows == std::vector<float>(rows.size(), 7.f));
  }
  run(Form::automatic);
  REQUIRE(rows[0] == 1);

  // Neither do features of another dimension.
  std::ranges::fill(rows, 7.f);
  const auto other = [&] {
    attend(
        PositiveRandomFeatures(3, 8), stationary(),
        {.Q = q, .K = q, .V = v, .Y = y, .workspaces = workspaces, .options = {.form = Form::attention, .threads = 1}});
  };
  REQUIRE_THROWS_AS(other(), ShapeMismatch);
  REQUIRE_THROWS_WITH(other(), contains("sequence 0, head 0: rows of x is 40000, must be 3"));
  REQUIRE(rows == std::vector<float>(rows.size(), 7.f));
}

TEST_CASE("what a transition says of an empty frame is heard before anything is touched", "[attention]") {
  struct Refusing : KeepsKeys {
    bool refuses = false;
    [[nodiscard]] Index length() const { return Dynamic; }
    [[nodiscard]] double log_decay(Index) const { return 0; }
    void check_frame(const Frame&, Index d) const {
      if (refuses) throw FrameMismatch("no frame of " + std::to_string(d) + " rows");
    }
  };
  std::vector<Refusing> transitions(2);
  transitions[1].refuses = true;
  const Matrix<float> x = Matrix<float>::Random(4, 10);
  const auto in = Heads<const float>::bhtd(x.data(), 1, 2, 5, 4);
  for (const Form form : {Form::recurrent, Form::chunked}) {
    Matrix<float> y = Matrix<float>::Constant(4, 10, 7);
    const auto call = [&] {
      attend(Power{}, transitions,
             {.Q = in, .K = in, .V = in, .Y = Heads<float>::bhtd(y.data(), 1, 2, 5, 4), .options = {.form = form}});
    };
    REQUIRE_THROWS_WITH(call(), "sequence 0, head 1: no frame of 4 rows");
    REQUIRE_THROWS_AS(call(), FrameMismatch);
    CHECK((y.array() == 7).all());
  }
}

TEST_CASE("what a callable throws arrives as the type that it is", "[attention]") {
  struct Own : ShapeMismatch {
    using ShapeMismatch::ShapeMismatch;
    int code = 5;
  };
  RandomBatch<double> batch(Order::bthd, {4, 6}, 2, 2, 12);
  auto states = batch.fresh_states<Power>();
  const auto run_throwing = [&](const auto& raise) {
    run(
        batch,
        [&](Index b, Index h) {
          if (b == 1 && h == 0) raise();
          return batch.transition(b, h);
        },
        states, Form::chunked);
  };
  const auto check_named = [&]<class Error>(std::type_identity<Error>) {
    try {
      run_throwing([] { throw Error("message"); });
    } catch (const std::exception& error) {
      CAPTURE(typeid(Error).name());
      REQUIRE(typeid(error) == typeid(Error));
      REQUIRE(std::string(error.what()) == "sequence 1, head 0: message");
      return;
    }
    FAIL("nothing was thrown");
  };
  check_untouched(batch, states, [&] {
    [&]<class... Error>(sympow::detail::TypeList<Error...>) {
      static_assert(sizeof...(Error) == 16);
      (check_named(std::type_identity<Error>{}), ...);
    }(sympow::detail::Errors{});
    REQUIRE_THROWS_WITH(run_throwing([] { static_cast<void>(rotary_frequencies<double>(3, 64)); }),
                        contains("sequence 1, head 0: ") && contains("3"));
    try {
      run_throwing([] { throw Own("mine"); });
      FAIL("nothing was thrown");
    } catch (const Own& error) {
      REQUIRE(error.code == 5);
      REQUIRE(std::string(error.what()) == "mine");
    }
    REQUIRE_THROWS_AS(run_throwing([] { throw std::runtime_error("no"); }), std::runtime_error);
    REQUIRE_THROWS_AS(run_throwing([] { throw std::bad_alloc(); }), std::bad_alloc);
    REQUIRE_THROWS_AS(run_throwing([] { throw 3; }), int);
  });
}

TEST_CASE("queries and keys of different number, as the mask aligns them", "[attention]") {
  RandomBatch<float> asked(Order::bthd, {5, 0, 40, 3}, 4, 2, 21), known(Order::packed, {50, 7, 9, 0}, 4, 2, 22);
  Workspaces<float> workspaces;
  const auto turn = rotary(asked.theta, Pairing::interleaved);
  const auto q = asked.Q.heads(), y = asked.Y.heads(), k = known.K.heads(), v = known.V.heads();
  for (const Mask mask : {full(), full(2), causal(45)})
    for (const Form form : {Form::automatic, Form::attention, Form::chunked, Form::recurrent}) {
      if (mask.offset != 0 && form != Form::automatic && form != Form::attention) continue;
      CAPTURE(mask.offset, mask.is_full, static_cast<int>(form));
      std::ranges::fill(asked.Y.data, 7);
      attend(Power{}, turn,
             {.Q = q,
              .K = k,
              .V = v,
              .Y = y,
              .workspaces = workspaces,
              .options = {.form = form, .head = {.mask = mask}}});
      for (Index b = 0; b < 4; ++b)
        for (Index h = 0; h < 4; ++h) {
          const auto Q = q.head(b, h), K = k.head(b, h / 2), V = v.head(b, h / 2);
          const Options options{.mask = mask};
          CAPTURE(b, h);
          bool found = false;
          const auto is = [&](Form which, const auto& by_itself) {
            if (form == which) REQUIRE(same_bits(y.head(b, h), by_itself));
            found = found || same_bits(y.head(b, h), by_itself);
          };
          is(Form::attention, attention(Power{}, turn, Q, K, V, options));
          if (mask.offset == 0) is(Form::chunked, chunked(Power{}, turn, Q, K, V, options));
          if (mask.offset == 0) is(Form::recurrent, recurrent_from_nothing(Power{}, turn, Q, K, V, options));
          REQUIRE(found);
          REQUIRE(y.padding(b, h).isZero(0));
        }
    }
  auto states = asked.fresh_states<Power>();
  attend(Power{}, turn,
         {.Q = q,
          .K = k,
          .V = v,
          .states = states,
          .Y = y,
          .workspaces = workspaces,
          .options = {.head = {.mask = full()}}});
  for (Index b = 0; b < 4; ++b)
    REQUIRE(states[asked.index(b, 3)].tokens() == known.lengths[static_cast<std::size_t>(b)]);
  REQUIRE_THROWS_WITH(attend(Power{}, turn, {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces}),
                      contains("length of sequence 0 in K is 50, must be 5 (that in Q) unless options.head.mask"));
  REQUIRE_THROWS_WITH(
      attend(Power{}, turn,
             {.Q = q, .K = k, .V = q, .Y = y, .workspaces = workspaces, .options = {.head = {.mask = full()}}}),
      contains("length of sequence 0 in V is 5, must be 50 (that in K)"));
  REQUIRE_THROWS_WITH(
      attend(Power{}, decay(Eigen::VectorXd::Zero(50)),
             {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces, .options = {.head = {.mask = full()}}}),
      contains("sequence 1, head 0"));
}

TEST_CASE("a mask or costs that no form takes are refused before anything is touched", "[attention]") {
  RandomBatch<double> batch(Order::bthd, {4, 6, 0}, 2, 1, 13);
  auto states = batch.fresh_states<Power>();
  const auto call = [&](const auto& transitions, BatchOptions options, RangeRef<State<double, Power>> given = {}) {
    batch.attend(Power{}, transitions, options, given);
  };
  std::ranges::fill(batch.Y.data, 7);
  check_untouched(batch, states, [&] {
    const BatchOptions shifted{.head = {.mask = causal(3)}}, chunks{.form = Form::chunked, .head = {.mask = full(3)}};
    REQUIRE_THROWS_WITH(call(batch.transitions(), shifted, states),
                        contains("a causal mask with the offset 3 does not go with a state; absorb"));
    REQUIRE_THROWS_WITH(call(rotary(batch.theta, Pairing::interleaved), chunks),
                        contains("a full mask with the offset 3 does not go with a state; use the attention"));
    REQUIRE_THROWS_WITH(call(batch.transitions(), {.head = {.mask = full()}}),
                        contains("sequence 0, head 0: options: a full"));
    REQUIRE_THROWS_WITH(call(batch.transitions(), {.head = {.costs = {.score = -1}}}),
                        contains("the costs are -1 and "));
  });
}

TEST_CASE("entries that are not finite are found before anything is touched, those of padding are nobody's",
          "[attention]") {
  RandomBatch<double> batch(Order::bthd, {4, 6}, 2, 1, 13);
  auto states = batch.fresh_states<Power>();
  const auto call = [&] { batch.attend(Power{}, batch.transitions(), {.head = {.check_finite = true}}, states); };
  REQUIRE_NOTHROW(call());
  batch.K.heads().head(1, 0)(2, 5) = std::numeric_limits<double>::infinity();
  check_untouched(batch, states, [&] { REQUIRE_THROWS_WITH(call(), contains("sequence 1, head 0: K(2, 5) is inf")); });
}

TEST_CASE("arguments of a batch that do not fit are named with their values", "[attention]") {
  RandomBatch<double> batch(Order::bthd, {4, 6}, 4, 2, 14);
  auto states = batch.fresh_states<Power>();
  Workspaces<double> workspaces;
  const auto q = batch.Q.heads(), k = batch.K.heads(), v = batch.V.heads(), y = batch.Y.heads();
  const auto call = [&](Heads<double> Q, Heads<double> K, Heads<double> V, Heads<double> Y, BatchOptions options = {}) {
    attend(Power{}, batch.transitions(),
           {.Q = Q, .K = K, .V = V, .states = states, .Y = Y, .workspaces = workspaces, .options = options});
  };
  RandomBatch<double> other(Order::packed, {4, 6}, 3, 3, 1), longer(Order::packed, {4, 7}, 4, 2, 1),
      more(Order::packed, {4, 6, 0}, 4, 2, 1), none(Order::packed, {4, 6}, 0, 0, 1);
  check_untouched(batch, states, [&] {
    REQUIRE_THROWS_WITH(call(q, other.K.heads(), other.V.heads(), y),
                        contains("number of heads of Q is 4, must be a multiple of that of K, which is 3"));
    REQUIRE_THROWS_WITH(call(none.Q.heads(), k, v, none.Y.heads()),
                        contains("number of heads of Q is 0, must be at least that of K, which is 2"));
    REQUIRE_THROWS_WITH(call(q, other.K.heads(), v, y), contains("number of heads of V is 2, must be 3 (that of K)"));
    REQUIRE_THROWS_WITH(call(q, k, v, other.Y.heads()), contains("number of heads of Y is 3, must be 4 (that of Q)"));
    REQUIRE_THROWS_WITH(call(q, longer.K.heads(), v, y), contains("length of sequence 1 in K is 7, must be 6"));
    REQUIRE_THROWS_WITH(call(q, k, v, more.Y.heads()), contains("number of sequences of Y is 3, must be 2"));
    REQUIRE_THROWS_WITH(call(q, v, v, y), contains("dimension of K is 3, must be 4"));
    REQUIRE_THROWS_WITH(call(q, k, v, q), contains("dimension of Y is 4, must be 3"));
    REQUIRE_THROWS_WITH(call(q, k, v, y, {.form = Form::attention}), contains("the attention form has no states"));
    REQUIRE_THROWS_WITH(call(q, k, v, y, {.threads = -1}), contains("threads is -1"));
    REQUIRE_THROWS_WITH(call(q, k, v, y, {.head = {.chunk = -1}}), contains("chunk is -1"));
    Diagnostics diagnostics;
    REQUIRE_THROWS_WITH(call(q, k, v, y, {.head = {.diagnostics = &diagnostics}}), contains("gives no diagnostics"));
  });
}

TEST_CASE("work follows the heads that there are, however many sequences have none", "[attention]") {
  double number = 0;
  const auto none = Heads<double>::bthd(&number, Index{1} << 50, 1, 0, 4);
  Workspaces<double> workspaces;
  const auto gates = [](Index, Index) { return constant_decay(.5); };
  REQUIRE_NOTHROW(attend(Power{}, gates, {.Q = none, .K = none, .V = none, .Y = none, .workspaces = workspaces}));
  std::vector<State<double, Power>> states;
  REQUIRE_NOTHROW(
      attend(Power{}, gates, {.Q = none, .K = none, .V = none, .states = states, .Y = none, .workspaces = workspaces}));
}
