// The tape of the chunked form: states for its gradients.
#include "catch.hpp"
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3;

template <class Scalar, class F, class A>
void check_bits(const F& feature, const A& transition, const Problem<Scalar>& x, const State<Scalar, F>& start) {
  Workspace<Scalar> work;
  VjpWorkspace<Scalar> vjp_work;
  Matrix<Scalar> Y(e, x.tokens()), same(e, x.tokens());
  Options options{.chunk = 40};  // longer than a tail
  State<Scalar, F> last = start;
  chunked(feature, transition, x.Q, x.K, x.V, last, Batch<Scalar>(Y), work, options);
  Gradients<Scalar, A> expected, found;
  StateGradient<Scalar, F> d_start(feature, d, e);
  expected = chunked_vjp(feature, transition,
                         {.Q = x.Q,
                          .K = x.K,
                          .V = x.V,
                          .dY = x.dY,
                          .state = start,
                          .d_state = d_start,
                          .reuse = expected,
                          .workspace = vjp_work,
                          .options = options});
  for (const Index k : {0, 1, 2, 3, 100}) {
    CAPTURE(k);
    options.checkpoint = k;
    State<Scalar, F> state = start;
    Tape<Scalar, F> tape;
    chunked(feature, transition, x.Q, x.K, x.V, state, {same, tape}, work, options);
    CHECK(same == Y);
    CHECK(state.values() == last.values());
    CHECK(tape.tokens_between() == 40 * std::max<Index>(k, 1));
    CHECK(tape.states() == (x.tokens() - 1) / tape.tokens_between() + 1);
    CHECK(tape.state(0).values() == start.values());
    CHECK(!tape.state(tape.states() - 1).interrupted());
    for (auto* gradient : {&found.Q, &found.K, &found.V})  // what is there is not added to
      gradient->setConstant(std::numeric_limits<Scalar>::quiet_NaN());
    StateGradient<Scalar, F> adjoint(feature, d, e);
    found = chunked_vjp(feature, transition,
                        {.Q = x.Q,
                         .K = x.K,
                         .V = x.V,
                         .dY = x.dY,
                         .tape = tape,
                         .d_state = adjoint,
                         .reuse = found,
                         .workspace = vjp_work,
                         .options = options});
    CHECK(found.Q == expected.Q);
    CHECK(found.K == expected.K);
    CHECK(found.V == expected.V);
    CHECK(found.scale == expected.scale);
    CHECK(adjoint.values() == d_start.values());
    CHECK(adjoint.frame() == d_start.frame());
  }
}

}  // namespace

TEST_CASE("rows and gradients of chunks with a tape have the bits of those without", "[gradient]") {
  Random random(5);
  const Problem<double> x(random, d, e, 333, .1);
  const Problem<float> y(random, d, e, 333, .1);
  const SymmetricPower<2> feature;
  State<double, SymmetricPower<2>> resumed(feature, d, e);
  Workspace<double> work;
  const auto A = decay(x.parameters.log_gamma) * rotary(x.parameters.theta, x.parameters.beta, Pairing::interleaved);
  check_bits(feature, A, x, resumed);
  absorb(feature, constant_decay(.9) * rotary(x.parameters.theta, Pairing::interleaved), x.K.leftCols(50),
         x.V.leftCols(50), resumed, work);
  check_bits(feature, A, x, resumed);
  check_bits(Linear{}, decay(y.parameters.log_gamma), y, State<float, Linear>(d, e));
}

TEST_CASE("tapes of chunks are refused that are empty, or of another sequence", "[gradient]") {
  Random random(6);
  const Problem<double> x(random, d, e, 20, .1);
  const SymmetricPower<2> feature;
  Workspace<double> work;
  VjpWorkspace<double> vjp_work;
  Matrix<double> Y(e, 20);
  State<double, SymmetricPower<2>> state(feature, d, e);
  StateGradient<double, SymmetricPower<2>> adjoint(feature, d, e);
  Gradients<double, Stationary> gradients;
  Tape<double, SymmetricPower<2>> tape;
  const auto back = [&](Index tokens, const Options& options = {}) {
    gradients = chunked_vjp(feature, stationary(),
                            {.Q = x.Q.leftCols(tokens),
                             .K = x.K.leftCols(tokens),
                             .V = x.V.leftCols(tokens),
                             .dY = x.dY.leftCols(tokens),
                             .tape = tape,
                             .d_state = adjoint,
                             .reuse = gradients,
                             .workspace = vjp_work,
                             .options = options});
  };
  CHECK_THROWS_AS(back(20), InvalidArgument);
  chunked(feature, stationary(), x.Q, x.K, x.V, state, {Y, tape}, work);
  back(20);
  CHECK_THROWS_WITH(back(19), contains("tokens of the tape"));
  CHECK_THROWS_WITH(back(20, {.mask = full()}), contains("a tape goes with the mask causal()"));
  Diagnostics diagnostics;
  CHECK_THROWS_AS(chunked(feature, stationary(), x.Q, x.K, x.V, state, {Y, tape}, work, {.diagnostics = &diagnostics}),
                  InvalidArgument);
  CHECK_THROWS_AS(chunked(feature, stationary(), x.Q, x.K, x.V, state, {Y, tape}, work, {.mask = full()}),
                  InvalidArgument);
}

TEST_CASE("tapes of a transition that acts otherwise on keys, or of other sizes, are refused", "[gradient]") {
  Random random(7);
  const Problem<double> x(random, d, e, 20, .1), wide(random, d + 2, e + 1, 20, .1);
  const auto& p = x.parameters;
  const auto refuse = [](const auto& there, const auto& back, const Problem<double>& of, const Problem<double>& with,
                         Index chunk, const std::string& text) {
    CAPTURE(text);
    using A = std::remove_cvref_t<decltype(back)>;
    Workspace<double> work;
    VjpWorkspace<double> vjp_work;
    Matrix<double> Y(of.V.rows(), 20);
    State<double, Linear> state(of.K.rows(), of.V.rows());
    Tape<double, Linear> tape;
    const Options options{.chunk = chunk};
    chunked(Linear{}, there, of.Q, of.K, of.V, state, {Y, tape}, work, options);
    StateGradient<double, Linear> adjoint(with.K.rows(), with.V.rows());
    Gradients<double, A> gradients;
    CHECK_THROWS_WITH(gradients = chunked_vjp(Linear{}, back,
                                              {.Q = with.Q,
                                               .K = with.K,
                                               .V = with.V,
                                               .dY = with.dY,
                                               .tape = tape,
                                               .d_state = adjoint,
                                               .reuse = gradients,
                                               .workspace = vjp_work,
                                               .options = options}),
                      contains(text));
    CHECK(gradients.Q.size() == 0);
  };
  for (const Index chunk : {5, 40}) {  // several states, or only that before the first token
    refuse(decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::interleaved), decay(p.log_gamma), x, x, chunk,
           "turns keys, that of the call");
    refuse(decay(p.log_gamma), rotary(p.theta, Pairing::interleaved), x, x, chunk,
           "that leaves keys alone, that of the call turns keys");
    refuse(channel_decay(p.log_a), stationary(), x, x, chunk, "scales the channels of keys");
    refuse(stationary(), stationary(), x, wide, chunk, "key dimension of the state");
  }
}

TEST_CASE("tapes of chunks do not depend on queries and the scale", "[gradient]") {
  Random random(8);
  const Problem<double> x(random, d, e, 120, .1);
  const SymmetricPower<2> feature;
  const auto A = decay(x.parameters.log_gamma) * rotary(x.parameters.theta, Pairing::interleaved);
  Workspace<double> work;
  Matrix<double> Y(e, 120);
  const State<double, SymmetricPower<2>> start(feature, d, e);
  State<double, SymmetricPower<2>> state = start;
  Tape<double, SymmetricPower<2>> tape;
  chunked(feature, A, x.V.replicate(2, 1).topRows(d), x.K, x.V, state, {Y, tape}, work, {.scale = 3, .chunk = 40});
  StateGradient<double, SymmetricPower<2>> adjoint(feature, d, e);
  const Options options{.scale = -.3, .chunk = 40};
  CHECK(
      equal_bits(chunked_vjp(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .tape = tape, .options = options}),
                 from_state(feature, A, x, x.dY, start, adjoint, options)));
}

TEST_CASE("states of a tape as far apart as can be, and none at a negative distance", "[gradient]") {
  Random random(6);
  const Problem<double> x(random, d, e, 70, .1);
  using F = SymmetricPower<2>;
  Workspace<double> work;
  Matrix<double> Y(e, x.tokens());
  const auto leave = [&](Index checkpoint) {
    State<double, F> state(d, e);
    Tape<double, F> tape;
    chunked(F{}, stationary(), x.Q, x.K, x.V, state, {Y, tape}, work, {.chunk = 32, .checkpoint = checkpoint});
    return tape;
  };
  constexpr Index most = std::numeric_limits<Index>::max();
  for (const Index k : {most, most / 2, most / 32, most / 32 + 1}) {
    CAPTURE(k);
    const auto tape = leave(k);
    CHECK(tape.states() == 1);
    CHECK(tape.tokens_between() == most / 32 * 32);
  }
  CHECK_THROWS_WITH(leave(-1), "options: checkpoint is -1, must not be negative");
}
