// The choice of form and chunk: what it must be where counting decides it, and that batches follow it head by head.
#include "batches.hpp"
#include "catch.hpp"

#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/transition/householder.hpp>

using namespace sympow;
using namespace sympow::test;

namespace {

using Power = SymmetricPower<2>;

ProblemShape shape_of(Index T, Index d, double D) { return {.T = T, .d = d, .e = d, .D = D}; }

// From how many tokens on a state is cheaper than attention.
double crossover(Index d, double D) {
  Index low = 1, high = Index{1} << 30;
  while (high - low > 1) {
    const Index middle = low + (high - low) / 2;
    (cheapest_form(shape_of(middle, d, D)) == Form::attention ? low : high) = middle;
  }
  return static_cast<double>(high);
}

}  // namespace

TEST_CASE("a state pays from about 2 D tokens on", "[attention]") {
  // D and the crossover by counted operations, P 2 to 4, d 16 to 128.
  for (const auto& [d, D, counted] : {std::tuple<Index, double, double>{32, 528, 1122},
                                      {64, 2080, 4290},
                                      {128, 8256, 16.8e3},
                                      {32, 5984, 12.4e3},
                                      {64, 45760, 92.9e3},
                                      {16, 3876, 8250},
                                      {64, 766480, 1.55e6}}) {
    CAPTURE(d, D, crossover(d, D));
    REQUIRE(crossover(d, D) > .6 * counted);
    REQUIRE(crossover(d, D) < 1.4 * counted);
  }
}

TEST_CASE("a form that a call cannot have is not chosen, and costs decide among the others", "[attention]") {
  ProblemShape shape = shape_of(100, 64, 2080);
  REQUIRE(cheapest_form(shape) == Form::attention);
  REQUIRE(cheapest_form(shape, {.score = 1e9}) != Form::attention);
  shape.keeps_state = true;
  shape.from_nothing = false;
  REQUIRE(cheapest_form(shape) == Form::chunked);
  REQUIRE(cheapest_form(shape, {.segment = 1e9}) == Form::chunked);
  REQUIRE(cheapest_form({.T = 50, .d = 2, .e = 2, .D = 3, .keeps_state = true, .from_nothing = false}) ==
          Form::chunked);
  shape.T = 1;
  REQUIRE(cheapest_form(shape) == Form::chunked);  // whose chunk is the recurrent form's step
  REQUIRE(cheapest_form({.T = 1'000'000'000, .d = 64, .e = 64}) == Form::attention);  // no embedding
  REQUIRE(cheapest_form({.T = 0, .d = 64, .e = 64, .D = 2080}) == Form::attention);
}

TEST_CASE("chunks grow with the state and shrink with the heads, and a short call is one", "[attention]") {
  REQUIRE(cheapest_chunk(shape_of(100'000, 16, 136)) < 192);
  REQUIRE(cheapest_chunk(shape_of(100'000, 64, 2080)) == 192);
  REQUIRE(cheapest_chunk(shape_of(100'000, 16, 3876)) == 240);
  REQUIRE(cheapest_chunk(shape_of(100'000, 64, 2080), {.segment = 0}) == 48);
  REQUIRE(cheapest_chunk(shape_of(500, 64, 2080)) == 500);
  ProblemShape goes_on = shape_of(100'000, 64, 2080);
  goes_on.from_nothing = false;
  REQUIRE(cheapest_chunk(goes_on) == 192);
  goes_on.T = 250;
  REQUIRE(cheapest_chunk(goes_on) == 250);  // and not 240, and 10 more
}

TEST_CASE("every head of a batch has the form that its own length makes the cheapest", "[attention]") {
  RandomBatch<double> batch(Order::packed, {1, 0, 5, 40, 300, 1500}, 2, 1, 11);
  const auto all = [&](BatchOptions options, RangeRef<State<double, Power>> states = {}) {
    std::ranges::fill(batch.Y.data, 7);
    batch.attend(Power{}, batch.transitions(), options, states);
    return batch.Y.data;
  };
  // Without states the costs leave attention to the short ones only, so that both kinds are in one batch.
  const Costs costs{.score = 0, .segment = 20000};
  REQUIRE(cheapest_form(shape_of(300, 4, 10), costs) == Form::attention);
  REQUIRE(cheapest_form(shape_of(1500, 4, 10), costs) == Form::chunked);
  const auto in_attention = all({.form = Form::attention}),
             in_chunks = all({.form = Form::chunked, .head = {.costs = costs}}),
             chosen = all({.head = {.costs = costs}});
  auto expected = batch.Y;
  for (Index b = 0; b < batch.B(); ++b)
    for (Index h = 0; h < batch.H; ++h) {
      const Index T = batch.lengths[static_cast<std::size_t>(b)];
      const ProblemShape shape{.T = T, .d = batch.d, .e = batch.e, .D = 10};
      batch.Y.data = cheapest_form(shape, costs) == Form::attention ? in_attention : in_chunks;
      expected.heads().head(b, h) = batch.Y.heads().head(b, h);
    }
  REQUIRE((expected.data == chosen));
  REQUIRE((in_attention != chosen));
  REQUIRE((in_chunks != chosen));

  // With a state a head goes by chunks. A step of the recurrent form is a chunk of one token, to the bit.
  auto states = batch.fresh_states<Power>();
  all({.form = Form::chunked}, states);
  auto step_by_step = states;
  const auto one = all({.head = {.chunk = 1}}, states), other = all({.form = Form::recurrent}, step_by_step);
  REQUIRE((one == other));
  for (std::size_t n = 0; n < states.size(); ++n) REQUIRE(same_bits(states[n], step_by_step[n]));
}

TEST_CASE("what has no embedding is left to attention, and what has one too large to count", "[attention]") {
  RandomBatch<double> batch(Order::bthd, {30}, 2, 1, 12);
  Workspaces<double> workspaces;
  const auto both = [&](const auto& feature, const BatchOptions& options) {
    batch.attend(feature, batch.transitions(), options);
    return batch.Y.data;
  };
  const Options shifted{.mask = causal(-3)}, dear{.mask = causal(-3), .costs = {.score = 1e9}};
  REQUIRE((both(Power{}, {.head = dear}) == both(Power{}, {.form = Form::attention, .head = shifted})));
  const Options further{.mask = full(4), .costs = {.score = 1e9}};
  batch.attend(Power{}, rotary(batch.theta, Pairing::interleaved), {.head = further});
  const auto seen = batch.Y.data;
  batch.attend(Power{}, rotary(batch.theta, Pairing::interleaved), {.form = Form::attention, .head = further});
  REQUIRE((seen == batch.Y.data));
  REQUIRE((both(Exponential{}, {}) == both(Exponential{}, {.form = Form::attention})));

  const Index d = Index{1} << 16, T = 3;  // C(d + 7, 8) is beyond 2^63
  Random random(1);
  Matrix<double> X = random.matrix<double>(d, T) / 256, V = random.matrix<double>(2, T), Y = V;
  const auto view = [&](Matrix<double>& x) { return Heads<double>::bhtd(x.data(), 1, 1, T, x.rows()); };
  attend(SymmetricPower<8>{}, constant_decay(.9),
         {.Q = view(X), .K = view(X), .V = view(V), .Y = view(Y), .workspaces = workspaces});
  REQUIRE(Y == attention(SymmetricPower<8>{}, constant_decay(.9), X, X, V));
}

TEST_CASE("a long head sees all keys where the mask says so", "[attention]") {
  // As many tokens as make a causal head of this shape go by segments.
  const Index T = 600;
  Random random(3);
  Matrix<double> Q = random.matrix<double>(4, T), K = random.matrix<double>(4, T), V = random.matrix<double>(3, T),
                 Y = V;
  const auto view = [&](Matrix<double>& x) { return Heads<double>::bhtd(x.data(), 1, 1, T, x.rows()); };
  Workspaces<double> workspaces;
  const auto turns = rotary(rotary_frequencies<double>(4, 64), Pairing::interleaved);
  const Options options{.chunk = 8, .mask = full()};
  attend(Power{}, turns,
         {.Q = view(Q),
          .K = view(K),
          .V = view(V),
          .Y = view(Y),
          .workspaces = workspaces,
          .options = {.form = Form::chunked, .head = options}});
  REQUIRE(Y == chunked(Power{}, turns, Q, K, V, options));
  REQUIRE((Y - attention(Power{}, turns, Q, K, V, options)).cwiseAbs().maxCoeff() <= 1e-12);
}

TEST_CASE("the shape of a head has an embedding exactly where there are state forms", "[attention]") {
  const Eigen::MatrixXf w = Eigen::MatrixXf::Ones(4, 7);
  const auto chain = householder(w, Eigen::VectorXd::Ones(7));
  const ProblemShape square = head_shape(SymmetricPower<2>{}, stationary(), 7, 4, 3);
  CHECK((square.T == 7 && square.d == 4 && square.e == 3 && square.D == 10 && square.action == KeyAction::none));
  CHECK(head_shape(Linear{}, chain, 7, 4, 3).D == 4);
  CHECK(head_shape(Linear{}, chain, 7, 4, 3).action == KeyAction::mix);
  CHECK(head_shape(SymmetricPower<2>{}, chain, 7, 4, 3).D == ProblemShape::no_embedding);
  CHECK(head_shape(Exponential{}, stationary(), 7, 4, 3).D == ProblemShape::no_embedding);
  CHECK(head_shape(SymmetricPower<8>{}, stationary(), 7, 1 << 20, 3).D == ProblemShape::no_embedding);  // does not fit
}
