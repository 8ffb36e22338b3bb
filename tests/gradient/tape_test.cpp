// The tape of the attention form: tape for its gradients.
#include <utility>

#include "catch.hpp"
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3;

struct Unique {
  static constexpr Score score = Score::power;
  static constexpr int degree = 2;
  static constexpr bool nonnegative = true;
  Unique() = default;
  Unique(const Unique&) = delete;
};

template <class Normalization, class Scalar, class F, class A>
void check_bits(const F& feature, const A& transition, const Problem<Scalar>& x, Tape<Scalar, F>& tape,
                const Options& options = {}) {
  Workspace<Scalar> work;
  VjpWorkspace<Scalar> vjp_work;
  Matrix<Scalar> Y(e, x.Q.cols()), same(e, x.Q.cols());
  attention<Normalization>(feature, transition, x.Q, x.K, x.V, Batch<Scalar>(Y), work, options);
  attention<Normalization>(feature, transition, x.Q, x.K, x.V, {same, tape}, work, options);
  CHECK(same == Y);
  CHECK(tape.rows() == x.Q.cols());
  Gradients<Scalar, A> found;
  found = attention_vjp<Normalization>(feature, transition,
                                       {.Q = x.Q,
                                        .K = x.K,
                                        .V = x.V,
                                        .dY = x.dY,
                                        .tape = tape,
                                        .reuse = found,
                                        .workspace = vjp_work,
                                        .options = options});
  CHECK(equal_bits(found, attention_vjp<Normalization>(
                              feature, transition, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = options})));
}

}  // namespace

TEST_CASE("rows and gradients of attention with a tape have the bits of those without", "[gradient]") {
  const auto check = [](const Problem<double>& x) {
    const auto A = decay(x.parameters.log_gamma) * rotary(x.parameters.theta, x.parameters.beta, Pairing::interleaved);
    Tape<double, SymmetricPower<2>> of_powers;
    Tape<double, Linear> linear;
    Tape<double, Exponential> exponential;
    check_bits<Normalized>(SymmetricPower<2>{}, A, x, of_powers);
    check_bits<Unnormalized>(SymmetricPower<2>{}, A, x, of_powers);
    check_bits<SignedNormalized>(Linear{}, A, x, linear);
    check_bits<Normalized>(Exponential{}, A, x, exponential);
    check_bits<Unnormalized>(Exponential{}, A, x, exponential);
    check_bits<Normalized>(SymmetricPower<2>{}, decay(x.parameters.log_gamma), x, of_powers, {.scale = .3});
    const auto turn = rotary(x.parameters.theta, x.parameters.beta, Pairing::interleaved);
    check_bits<Normalized>(SymmetricPower<2>{}, turn, x, of_powers, {.mask = full()});
    auto fewer = x;  // the same rows again, of queries of which some stand before the first key
    fewer.Q = x.Q.leftCols(200).eval(), fewer.dY = x.dY.leftCols(200).eval();
    check_bits<Normalized>(SymmetricPower<2>{}, stationary(), fewer, of_powers, {.mask = causal(-20)});
  };
  Random random(5);
  check(Problem<double>(random, d, e, 320, .1));  // blocks of 240
  const Problem<float> x(random, d, e, 320, .1);
  Tape<float, Exponential> tape;
  check_bits<Normalized>(Exponential{}, decay(x.parameters.log_gamma), x, tape);
}

// Whose slowest channel is a gate on the way back, and none on the way there.
TEST_CASE("gradients of attention under channel decay are right with a tape", "[gradient]") {
  Random random(5);
  const Problem<float> x(random, d, e, 120, .1);
  const auto A = channel_decay(x.parameters.log_a);
  const SymmetricPower<2> feature;
  const Options options{.scale = .3};
  const Definition definition = definition_of<Normalized>(feature, A, x, {"channels", Steps::channels}, options);
  Tape<float, SymmetricPower<2>> tape;
  Workspace<float> work;
  Matrix<float> Y(e, x.Q.cols());
  attention(feature, A, x.Q, x.K, x.V, {Y, tape}, work, options);
  const auto g = attention_vjp(
      feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = definition.dY<float>(), .tape = tape, .options = options});
  const Residual worst = definition.worst(found_in(g), 0);
  INFO(worst);
  CHECK(worst.holds());
}

TEST_CASE("tapes of attention are refused that are empty, or of another call", "[gradient]") {
  Random random(6);
  const Problem<double> x(random, d, e, 20, .1);
  const SymmetricPower<2> feature;
  Workspace<double> work;
  VjpWorkspace<double> vjp_work;
  Matrix<double> Y(e, 20);
  Gradients<double, Stationary> gradients;
  Tape<double, SymmetricPower<2>> tape;
  const auto forward = [&] { attention(feature, stationary(), x.Q, x.K, x.V, {Y, tape}, work); };
  const auto back = [&](Index tokens, Index values, const Options& options) {
    gradients = attention_vjp(feature, stationary(),
                              {.Q = x.Q.leftCols(tokens),
                               .K = x.K.leftCols(tokens),
                               .V = x.V.topLeftCorner(values, tokens),
                               .dY = x.dY.topLeftCorner(values, tokens),
                               .tape = tape,
                               .reuse = gradients,
                               .workspace = vjp_work,
                               .options = options});
  };
  CHECK_THROWS_AS(back(20, e, {}), InvalidArgument);
  forward();
  back(20, e, {});
  const Matrix<double> dQ = gradients.Q;
  CHECK_THROWS_AS(back(19, e, {}), ShapeMismatch);
  CHECK_THROWS_AS(back(20, e - 1, {}), ShapeMismatch);
  CHECK_THROWS_AS(back(20, e, {.scale = 2}), InvalidArgument);
  CHECK_THROWS_AS(back(20, e, {.mask = full()}), InvalidArgument);
  CHECK_THROWS_AS(
      gradients = attention_vjp<Unnormalized>(
          feature, stationary(),
          {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .tape = tape, .reuse = gradients, .workspace = vjp_work}),
      InvalidArgument);
  CHECK(gradients.Q == dQ);  // nothing is touched
  const auto moved = std::move(tape);
  CHECK_THROWS_AS(back(20, e, {}), InvalidArgument);
  CHECK(moved.rows() == 20);
  forward();
  back(20, e, {});
  CHECK(gradients.Q == dQ);
  CHECK_THROWS_AS(attention(feature, stationary(), x.Q, x.K, x.V, {Y.leftCols(19), tape}, work), ShapeMismatch);
  CHECK(tape.rows() == 20);
}

TEST_CASE("a tape of another feature map is refused", "[gradient]") {
  Random random(7);
  const Problem<double> x(random, d, e, 20, .1);
  const PositiveRandomFeatures one(d, 8), other(d, 8, {.seed = 2});
  Tape<double, PositiveRandomFeatures> tape;
  Matrix<double> Y(e, 20);
  attention(one, stationary(), x.Q, x.K, x.V, {Y, tape});
  const auto gradients_of = [&](const PositiveRandomFeatures& feature) {
    return attention_vjp(feature, stationary(), {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .tape = tape}).Q;
  };
  CHECK_THROWS_AS(gradients_of(other), FeatureMismatch);
  const Matrix<double> dQ = gradients_of(one);
  attention(other, stationary(), x.Q, x.K, x.V, {Y, tape});
  CHECK_THROWS_AS(gradients_of(one), FeatureMismatch);
  CHECK(gradients_of(other) != dQ);
}

TEST_CASE("a feature map that cannot be copied has rows, gradients and tapes", "[gradient]") {
  Random random(8);
  const Problem<double> x(random, d, e, 20, .1);
  const Unique feature;
  Tape<double, Unique> tape;
  Matrix<double> Y(e, 20);
  attention(feature, stationary(), x.Q, x.K, x.V, {Y, tape});
  CHECK(Y == attention(SymmetricPower<2>{}, stationary(), x.Q, x.K, x.V));
  const auto gradients = attention_vjp(feature, stationary(), {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .tape = tape});
  CHECK(gradients.Q == attention_vjp(SymmetricPower<2>{}, stationary(), {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY}).Q);
}
