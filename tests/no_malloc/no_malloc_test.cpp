// A step of a recurrence allocates nothing, and neither does a call of any form whose workspace has seen one of its
// size.
#include <typeinfo>
#include <vector>

#include <sympow/attention/batch.hpp>
#include <sympow/attention/forms.hpp>
#include <sympow/rotation/frequencies.hpp>

#include "catch.hpp"
#include "elu_plus_one.hpp"
#include "random.hpp"
#include "requests.hpp"

using namespace sympow;
using sympow::test::EluPlusOne, sympow::test::Random, sympow::test::requests_of;

namespace {

struct Shape {
  Index d = 8, e = 5, chunk = 48;
};

constexpr Index steps = 104;

// Transitions of one token each, made beforehand: they own their gates.
template <class TransitionOf>
auto each_token(TransitionOf&& transition_of) {
  std::vector<decltype(transition_of(Index(0)))> transitions;
  for (Index t = 0; t < steps; ++t) transitions.push_back(transition_of(t));
  return transitions;
}

// A warm state and workspace; then 104 steps, three folds among them, and a call of 104 tokens.
template <class Scalar, class F, class Transitions, class Whole>
void check(const Transitions& transitions, const Whole& whole, Index tail, Shape shape = {}, const F& feature = F()) {
  Random random(1);
  const auto [d, e, chunk] = shape;
  const Matrix<Scalar> Q = random.matrix<Scalar>(d, steps), K = random.matrix<Scalar>(d, steps);
  const Matrix<Scalar> V = random.matrix<Scalar>(e, steps);
  Matrix<Scalar> Y(e, steps);
  Workspace<Scalar> workspace;
  Diagnostics diagnostics;
  detail::reset(diagnostics, 1);
  for (const bool diagnose : {false, true}) {
    const Options options{.scale = .5, .chunk = shape.chunk, .diagnostics = diagnose ? &diagnostics : nullptr};
    State<Scalar, F> state(feature, d, e, tail);
    const auto step_by_step = [&] {
      for (Index t = 0; t < steps; ++t)
        recurrent<SignedNormalized>(feature, transitions[static_cast<std::size_t>(t)], Q.col(t), K.col(t), V.col(t),
                                    state, Y.col(t), workspace, options);
    };
    const auto as_usual = [&] {
      for (Index t = 0; t < steps; ++t)
        recurrent(feature, transitions[static_cast<std::size_t>(t)], Q.col(t), K.col(t), V.col(t), state, Y.col(t),
                  workspace, options);
    };
    const auto by_chunks = [&] { chunked(feature, whole, Q, K, V, state, Y, workspace, options); };
    const auto directly = [&] { attention(feature, whole, Q, K, V, Y, workspace, options); };
    CAPTURE(sizeof(Scalar), d, e, chunk, tail, diagnose, typeid(F).name(), typeid(whole).name());
    step_by_step();
    CHECK(requests_of(step_by_step) == 0);
    by_chunks();
    CHECK(requests_of(by_chunks) == 0);
    directly();
    CHECK(requests_of(directly) == 0);
    step_by_step();
    CHECK(requests_of(step_by_step) == 0);
    as_usual();
    CHECK(requests_of(as_usual) == 0);
    state.read_as_bf16();
    by_chunks();
    CHECK(requests_of(by_chunks) == 0);
    step_by_step();
    CHECK(requests_of(step_by_step) == 0);
  }
}

// One transition that turns keys and one that scales or mixes them, with gates.
template <class Scalar, class F>
void check_transitions() {
  Random random(2);
  constexpr Index d = Shape{}.d;
  const Eigen::VectorXd log_gamma = -.01 * random.vector(steps).cwiseAbs(), beta = random.vector(steps);
  const Eigen::VectorXd theta = rotary_frequencies<double>(d, 4096);
  const Eigen::MatrixXd log_a = -.01 * random.matrix(d, steps).cwiseAbs();
  const Matrix<Scalar> w = random.matrix<Scalar>(d, steps).colwise().normalized();
  for (const Index tail : {0, 1, 32}) {
    if constexpr (std::same_as<F, Linear>)
      check<Scalar, F>(each_token([&](Index t) {
                         return decay(log_gamma.segment(t, 1)) * householder(w.col(t), beta.segment(t, 1));
                       }),
                       decay(log_gamma) * householder(w, beta), tail);
    else
      check<Scalar, F>(
          each_token([&](Index t) { return channel_decay(log_a.col(t)) * decay(log_gamma.segment(t, 1)); }),
          channel_decay(log_a) * decay(log_gamma), tail);
    check<Scalar, F>(each_token([&](Index t) {
                       return decay(log_gamma.segment(t, 1)) * rotary(theta, beta.segment(t, 1), Pairing::interleaved);
                     }),
                     decay(log_gamma) * rotary(theta, beta, Pairing::interleaved), tail);
  }
}

}  // namespace

TEST_CASE("the count sees what it must", "[no_malloc]") {
  CHECK(requests_of([] { Eigen::VectorXd x(100); }) > 0);
  CHECK(requests_of([] { std::vector<double> x(100); }) > 0);
  CHECK(requests_of([] { Eigen::Matrix4d::Zero().eval(); }) == 0);
}

TEST_CASE("a step of the recurrence and calls of every form allocate nothing", "[no_malloc]") {
  check_transitions<float, Linear>();
  check_transitions<float, SymmetricPower<2>>();
  check_transitions<double, SymmetricPower<3>>();
  const Eigen::VectorXd log_gamma = Eigen::VectorXd::Constant(steps, -.01);
  const auto gates = each_token([&](Index t) { return decay(log_gamma.segment(t, 1)); });
  for (const Index tail : {0, 32}) {
    check<float, EluPlusOne>(gates, decay(log_gamma), tail);
    check<float>(gates, decay(log_gamma), tail, {96, 16, 64}, HyperbolicRandomFeatures(96, 130));
  }
  const auto open = each_token([](Index) { return stationary(); });
  for (const Shape shape : {Shape{64, 32, 64}, Shape{16, 96, 200}, Shape{128, 2, 200}})
    check<float, SymmetricPower<2>>(open, stationary(), 32, shape);
}

TEST_CASE("the first token that is not ordinary asks for nothing more", "[no_malloc]") {
  constexpr Index d = 16, e = 8;
  Random random(4);
  const Matrix<float> Q = random.matrix<float>(d, 3);
  Matrix<float> K = random.matrix<float>(d, 3), V = random.matrix<float>(e, 3), Y(e, 1);
  K.col(1).setZero();
  V.col(2) *= 1e30F;
  const auto gate = decay(Eigen::VectorXd::Constant(1, -.1));
  for (const Index folded : {0, 40}) {
    Workspace<float> workspace;
    State<float, SymmetricPower<2>> state(d, e);
    const auto step = [&](Index t) {
      recurrent(SymmetricPower<2>{}, gate, Q.col(t), K.col(t), V.col(t), state, Y, workspace);
    };
    for (Index t = 0; t <= folded; ++t) step(0);
    CHECK(requests_of([&] { step(1); }) == 0);
    CHECK(requests_of([&] { step(2); }) == 0);
  }
}

TEST_CASE("a form that fills a tape once more allocates nothing", "[no_malloc]") {
  constexpr Index d = 16, e = 8, T = 200;
  Random random(5);
  const Matrix<float> Q = random.matrix<float>(d, T), K = random.matrix<float>(d, T), V = random.matrix<float>(e, T);
  Matrix<float> Y(e, T);
  const auto A = decay(Eigen::VectorXd::Constant(T, -.01)) * rotary(rope_frequencies<double>(d), Pairing::interleaved);
  const SymmetricPower<2> feature;
  Workspace<float> workspace;
  State<float, SymmetricPower<2>> state(d, e);
  Tape<float, SymmetricPower<2>> of_chunks, of_rows;
  const auto by_chunks = [&] { chunked(feature, A, Q, K, V, state, {Y, of_chunks}, workspace, {.chunk = 48}); };
  const auto directly = [&] { attention(feature, A, Q, K, V, {Y, of_rows}, workspace); };
  by_chunks(), by_chunks(), directly();
  CHECK(requests_of(by_chunks) == 0);
  CHECK(requests_of(directly) == 0);
  CHECK(of_chunks.states() == 5);
}

TEST_CASE("a batch whose workspaces are warm allocates nothing", "[no_malloc]") {
  constexpr Index B = 2, T = 40, H = 4, groups = 2, d = 8, e = 5;
  Random random(3);
  const Matrix<float> Q = random.matrix<float>(d, B * T * H), K = random.matrix<float>(d, B * T * groups);
  const Matrix<float> V = random.matrix<float>(e, B * T * groups);
  Matrix<float> Y(e, B * T * H);
  const std::vector<Index> lengths = {40, 17};
  const auto q = Heads<const float>::bthd(Q.data(), B, T, H, d, lengths);
  const auto k = Heads<const float>::bthd(K.data(), B, T, groups, d, lengths);
  const auto v = Heads<const float>::bthd(V.data(), B, T, groups, e, lengths);
  const auto y = Heads<float>::bthd(Y.data(), B, T, H, e, lengths);
  std::vector<Decay> gates;
  for (Index n = 0; n < B * H; ++n)
    gates.push_back(decay(-.01 * random.vector(lengths[static_cast<std::size_t>(n / H)]).cwiseAbs()));
  std::vector<State<float, SymmetricPower<2>>> states(B * H, State<float, SymmetricPower<2>>(d, e));
  Workspaces<float> workspaces;
  for (const Form form : {Form::recurrent, Form::chunked}) {
    const auto call = [&] {
      attend(SymmetricPower<2>{}, gates,
             {.Q = q,
              .K = k,
              .V = v,
              .states = states,
              .Y = y,
              .workspaces = workspaces,
              .options = {.form = form, .threads = 1}});
    };
    call();
    CHECK(requests_of(call) == 0);
  }
  const auto directly = [&] {
    attend(
        SymmetricPower<2>{}, gates,
        {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces, .options = {.form = Form::attention, .threads = 1}});
  };
  directly();
  CHECK(requests_of(directly) == 0);
}
