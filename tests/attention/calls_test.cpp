// How the forms are called: views, outputs, workspaces, states, user's own feature maps, and mistakes that lose
// nothing.
#include <sympow/sympow.hpp>
#include "catch.hpp"
#include "elu_plus_one.hpp"
#include "from_nothing.hpp"
#include "random.hpp"

#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using sympow::test::contains;
using sympow::test::EluPlusOne, sympow::test::Random;
using sympow::test::recurrent_from_nothing;

namespace {

struct Inputs {
  Random random{1};
  Index d = 4, e = 3, T = 20;
  Eigen::MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T);
  Eigen::VectorXd log_gamma = -random.vector(T).cwiseAbs();
};

const SymmetricPower<2> feature;

}  // namespace

TEST_CASE("heads inside a larger array, blocks and row-major inputs are read as they are", "[attention]") {
  const Inputs in;
  const Eigen::MatrixXd expected = attention(feature, decay(in.log_gamma), in.Q, in.K, in.V);
  Eigen::MatrixXd heads = Eigen::MatrixXd::Constant(3 * in.d, in.T, 7);  // [T, H, D] of numpy
  heads.middleRows(in.d, in.d) = in.Q;
  using Head = Eigen::Map<const Eigen::MatrixXd, 0, Eigen::OuterStride<>>;
  const Head q(heads.data() + in.d, in.d, in.T, Eigen::OuterStride<>(3 * in.d));
  const Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> k = in.K;
  REQUIRE(attention(feature, decay(in.log_gamma), q, k, in.V) == expected);
  REQUIRE(attention(feature, decay(in.log_gamma), heads.middleRows(in.d, in.d), in.K * 1.0, in.V) == expected);
}

TEST_CASE("outputs go where the caller says, with a workspace for calls of any shape", "[attention]") {
  const Inputs in;
  const auto transition = decay(in.log_gamma);
  Workspace<double> workspace;
  Eigen::MatrixXd Y = Eigen::MatrixXd::Constant(in.e + 2, in.T + 5, 7);
  const auto inside = [&] { return Y.block(1, 2, in.e, in.T); };
  for (int repeat = 0; repeat < 2; ++repeat) {
    attention(feature, transition, in.Q, in.K, in.V, inside(), workspace);
    REQUIRE(inside() == attention(feature, transition, in.Q, in.K, in.V));
    State<double, SymmetricPower<2>> state(in.d, in.e), other(in.d, in.e);
    chunked(feature, transition, in.Q, in.K, in.V, state, inside(), workspace, {.chunk = 6});
    REQUIRE(inside() == chunked(feature, transition, in.Q, in.K, in.V, {.chunk = 6}));
    recurrent(feature, transition, in.Q, in.K, in.V, other, inside(), workspace);
    REQUIRE(inside() == recurrent_from_nothing(feature, transition, in.Q, in.K, in.V));
    State<double, SymmetricPower<3>> cubic(2, 1);
    Eigen::MatrixXd small(1, 1);
    recurrent(SymmetricPower<3>{}, stationary(), in.Q.block(0, 0, 2, 1), in.K.block(0, 0, 2, 1), in.V.block(0, 0, 1, 1),
              cubic, small, workspace);
  }
  REQUIRE((Y.row(0).array() == 7).all());
  REQUIRE((Y.rightCols(3).array() == 7).all());
}

TEST_CASE("a state says what it has seen, and its copies go separate ways", "[attention]") {
  const Inputs in;
  const Eigen::VectorXd theta = rotary_frequencies<double>(in.d, 64);
  const auto transition = decay(in.log_gamma) * rotary(theta, Pairing::interleaved);
  State state(feature, in.d, in.e);
  static_assert(std::same_as<decltype(state), State<double, SymmetricPower<2>>>);
  REQUIRE(state.tokens() == 0);
  REQUIRE(state.values().isZero(0));
  REQUIRE(state.frame().numbers().size() == 0);
  const Eigen::MatrixXd whole = chunked(feature, transition, in.Q, in.K, in.V, state);
  REQUIRE(state.tokens() == in.T);
  REQUIRE(state.key_dimension() == in.d);
  REQUIRE(state.value_dimension() == in.e);
  REQUIRE(state.tail_capacity() == 32);
  REQUIRE(state.bytes() == 8 * 10 * 4 + 32 * (8 * (4 + 3) + 16));  // D = 10, e + 1 = 4; a tail of 32 keys and values
  REQUIRE(std::abs(state.log_decay() - in.log_gamma.sum()) <= 1e-14 * in.log_gamma.cwiseAbs().sum());
  REQUIRE(state.frame().numbers().size() == in.d / 2);
  State copy = state;
  const auto next = decay(in.log_gamma.head(1)) * rotary(theta, Pairing::interleaved);
  const Eigen::MatrixXd once = recurrent(feature, next, in.Q.leftCols(1), in.K.leftCols(1), in.V.leftCols(1), state);
  REQUIRE(copy.tokens() == in.T);
  REQUIRE(recurrent(feature, next, in.Q.leftCols(1), in.K.leftCols(1), in.V.leftCols(1), copy) == once);
}

TEST_CASE("a feature map of the user's own works in every form", "[attention]") {
  static_assert(FiniteFeatureMap<EluPlusOne>);
  Inputs in;
  const Eigen::VectorXd slow = in.log_gamma * .01;
  REQUIRE(verify::three_forms_law(EluPlusOne{}, decay(slow), in.Q, in.K, in.V, {.chunk = 7}).residual <= 1);
  const auto turning = decay(slow) * rotary(rope_frequencies<double>(in.d), Pairing::interleaved);
  REQUIRE(verify::three_forms_law(EluPlusOne{}, turning, in.Q, in.K, in.V).residual <= 1);
  REQUIRE(verify::three_forms_law(EluPlusOne{}, stationary(), in.random.matrix(5, 140), in.Q.replicate(2, 7).topRows(5),
                                  in.V.replicate(1, 7))
              .residual <= 1);
}

TEST_CASE("a call for every token is a call for all of them, bit for bit", "[attention]") {
  const auto check = []<class Scalar, class F>(Scalar, const F& map) {
    const Index d = 6, e = 5, T = 150;
    Random random(7);
    const auto Q = random.matrix<Scalar>(d, T), K = random.matrix<Scalar>(d, T), V = random.matrix<Scalar>(e, T);
    const Eigen::VectorXd log_gamma = -.05 * random.vector(T).cwiseAbs(), beta = random.vector(T);
    const auto transition = [&](Index begin, Index size) {
      return decay(log_gamma.segment(begin, size)) *
             rotary(rotary_frequencies<double>(d, 64), beta.segment(begin, size), Pairing::interleaved);
    };
    State<Scalar, F> together(d, e), one_by_one(d, e);
    const Matrix<Scalar> Y = recurrent(map, transition(0, T), Q, K, V, together);
    for (Index t = 0; t < T; ++t)
      REQUIRE(recurrent(map, transition(t, 1), Q.col(t), K.col(t), V.col(t), one_by_one) == Y.col(t));
    REQUIRE(together.values() == one_by_one.values());
    REQUIRE(together.normalizer() == one_by_one.normalizer());
  };
  check(0.F, SymmetricPower<2>{});
  check(0.F, SymmetricPower<3>{});
  check(0., Linear{});
}

TEST_CASE("normalised by default where no score is negative, and as the caller says otherwise", "[attention]") {
  Random random(7);
  const Eigen::MatrixXd Q = random.matrix(4, 10), K = random.matrix(4, 10), ones = Eigen::MatrixXd::Ones(1, 10);
  const auto all_ones = [](const Eigen::MatrixXd& Y) { return (Y.array() - 1).abs().maxCoeff() <= 1e-13; };
  const auto transition = constant_decay(.9);
  REQUIRE(all_ones(attention(SymmetricPower<2>{}, transition, Q, K, ones)));
  REQUIRE(all_ones(attention(Exponential{}, transition, Q, K, ones)));
  REQUIRE(all_ones(recurrent_from_nothing<Normalized>(SymmetricPower<2>{}, transition, Q, K, ones)));
  REQUIRE(all_ones(chunked<SignedNormalized>(SymmetricPower<3>{}, transition, Q, K, ones)));
  REQUIRE_FALSE(all_ones(attention(SymmetricPower<3>{}, transition, Q, K, ones)));
  REQUIRE_FALSE(all_ones(recurrent_from_nothing(Linear{}, transition, Q, K, ones)));
  REQUIRE_FALSE(all_ones(chunked<Unnormalized>(SymmetricPower<2>{}, transition, Q, K, ones)));
}

TEST_CASE("no tokens, no values, one token", "[attention]") {
  const Eigen::MatrixXd none(4, 0), value(3, 0);
  REQUIRE(attention(feature, stationary(), none, none, value).cols() == 0);
  REQUIRE(recurrent_from_nothing(feature, decay(Eigen::VectorXd(0)), none, none, value).rows() == 3);
  REQUIRE(chunked(feature, stationary(), none, none, value).cols() == 0);
  const Inputs in;
  REQUIRE(chunked(feature, stationary(), in.Q, in.K, Eigen::MatrixXd(0, in.T)).rows() == 0);
  REQUIRE((attention(feature, stationary(), in.Q.leftCols(1), in.K.leftCols(1), in.V.leftCols(1)) - in.V.leftCols(1))
              .norm() <= 1e-15 * in.V.col(0).norm());
}

TEST_CASE("a mistake is named with its numbers and leaves state and output as they were", "[attention]") {
  const Inputs in;
  const auto transition = decay(in.log_gamma);
  State state(feature, in.d, in.e);
  (void)recurrent(feature, transition, in.Q, in.K, in.V, state);
  const State before = state;
  Workspace<double> workspace;
  Eigen::MatrixXd Y = Eigen::MatrixXd::Constant(in.e, in.T, 7);
  const auto call = [&](const auto& A, const Eigen::MatrixXd& Q, const Eigen::MatrixXd& K, const Eigen::MatrixXd& V,
                        const Options& options = {}) { chunked(feature, A, Q, K, V, state, Y, workspace, options); };
  REQUIRE_THROWS_WITH(call(transition, in.Q, in.K.topRows(3), in.V), contains("rows of K is 3, must be 4"));
  REQUIRE_THROWS_WITH(call(transition, in.Q, in.K.leftCols(3), in.V), contains("columns of K is 3, must be 20"));
  REQUIRE_THROWS_WITH(call(transition, in.Q, in.K, in.V.leftCols(3)), contains("columns of V is 3, must be 20"));
  REQUIRE_THROWS_WITH(call(decay(in.log_gamma.head(19)), in.Q, in.K, in.V),
                      contains("length of the transition is 19, must be 20"));
  REQUIRE_THROWS_WITH(call(rotary(Eigen::VectorXd::Ones(3), Pairing::interleaved), in.Q, in.K, in.V),
                      contains("key dimension of the transition is 6, must be 4"));
  REQUIRE_THROWS_WITH(call(transition, in.Q.topRows(2), in.K.topRows(2), in.V), contains("rows of Q is 2, must be 4"));
  REQUIRE_THROWS_WITH(call(transition, in.Q, in.K, in.V.topRows(2)), contains("rows of V is 2, must be 3"));
  REQUIRE_THROWS_WITH(chunked(feature, transition, in.Q, in.K, in.V, state, Y.topRows(2)),
                      contains("rows of Y is 2, must be 3"));
  REQUIRE_THROWS_AS(call(transition, in.Q, in.K, in.V, {.chunk = -1}), InvalidArgument);
  Eigen::MatrixXd no_number = in.Q;
  no_number(1, 2) = std::nan("");
  REQUIRE_THROWS_WITH(call(transition, no_number, in.K, in.V, {.check_finite = true}), contains("Q(1, 2) is nan"));
  REQUIRE_THROWS_WITH(absorb(feature, transition, no_number, in.V, state, {}, {.check_finite = true}),
                      contains("K(1, 2) is nan"));
  REQUIRE_THROWS_AS(call(transition, in.Q, in.K, in.V, {.scale = std::nan("")}), InvalidArgument);
  REQUIRE(state.values() == before.values());
  REQUIRE(state.tokens() == before.tokens());
  REQUIRE((Y.array() == 7).all());
  State turned(feature, in.d, in.e);
  (void)recurrent(feature, rotary(Eigen::VectorXd::Ones(2), Pairing::interleaved), in.Q, in.K, in.V, turned);
  REQUIRE_THROWS_AS(recurrent(feature, transition, in.Q, in.K, in.V, turned), FrameMismatch);
  REQUIRE_THROWS_AS(State(feature, -1, 2), ShapeMismatch);
  REQUIRE_THROWS_AS((State<double, SymmetricPower<8>>(1000000, 2)), DimensionOverflow);
}
