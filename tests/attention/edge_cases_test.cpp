// Rows without weight, gates of exactly 0 and 1, extreme logits, and normalisation by choice.
#include <sympow/sympow.hpp>
#include "catch.hpp"
#include "from_nothing.hpp"
#include "random.hpp"

#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/direct.hpp>

using namespace sympow;
using sympow::test::Random;
using sympow::test::recurrent_from_nothing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), u = std::numeric_limits<double>::epsilon() / 2;

// Runs a check on the output of each form.
template <class F, class A, class Check>
void each_form(const F& feature, const A& transition, const Eigen::MatrixXd& Q, const Eigen::MatrixXd& K,
               const Eigen::MatrixXd& V, Check&& check) {
  check(attention(feature, transition, Q, K, V), "attention");
  check(recurrent_from_nothing(feature, transition, Q, K, V), "recurrent");
  check(chunked(feature, transition, Q, K, V, {.chunk = 3}), "chunked");
}

}  // namespace

TEST_CASE("a row without weight is zero in every form", "[attention]") {
  Random random(1);
  Eigen::MatrixXd Q = random.matrix(4, 9), K = random.matrix(4, 9);
  const Eigen::MatrixXd V = random.matrix(2, 9);
  Q.col(5).setZero();
  K.leftCols(3).setZero();
  each_form(SymmetricPower<2>{}, constant_decay(.9), Q, K, V, [&](const Eigen::MatrixXd& Y, const char* form) {
    CAPTURE(form);
    REQUIRE(Y.col(5).isZero(0));
    REQUIRE(Y.leftCols(3).isZero(0));
    REQUIRE(Y.col(4).norm() > 0);
    REQUIRE(Y.allFinite());
  });
}

TEST_CASE("a gate of 0 forgets everything before, also inside a chunk", "[attention]") {
  Random random(2);
  const Eigen::MatrixXd Q = random.matrix(4, 12), K = random.matrix(4, 12), V = random.matrix(3, 12);
  Eigen::VectorXd log_gamma = -random.vector(12).cwiseAbs();
  log_gamma[7] = -infinity;
  each_form(SymmetricPower<2>{}, decay(log_gamma), Q, K, V, [&](const Eigen::MatrixXd& Y, const char* form) {
    CAPTURE(form);
    const double condition = std::pow(Q.col(7).norm() * K.col(7).norm() / Q.col(7).dot(K.col(7)), 2);
    REQUIRE((Y.col(7) - V.col(7)).norm() <= 4 * u * condition * V.col(7).norm());
    const Eigen::MatrixXd rest =
        attention(SymmetricPower<2>{}, decay(log_gamma.tail(5)), Q.rightCols(5), K.rightCols(5), V.rightCols(5));
    REQUIRE((Y.rightCols(5) - rest).norm() <= 1e-13 * rest.norm());
  });
  const Eigen::MatrixXd closed = attention(Exponential{}, decay(log_gamma), Q, K, V);
  REQUIRE((closed.col(7) - V.col(7)).norm() <= 1e-14 * V.col(7).norm());
}

TEST_CASE("every gate closed is every token alone; every gate open is no gate", "[attention]") {
  Random random(3);
  const Eigen::MatrixXd Q = random.matrix(4, 140), K = random.matrix(4, 140), V = random.matrix(3, 140);
  each_form(SymmetricPower<2>{}, decay(Eigen::VectorXd::Constant(140, -infinity)), Q, K, V,
            [&](const Eigen::MatrixXd& Y, const char* form) {
              CAPTURE(form);
              REQUIRE((Y - V).norm() <= 1e-13 * V.norm());
            });
  each_form(SymmetricPower<2>{}, decay(Eigen::VectorXd::Constant(140, -1000)), Q, K, V,
            [&](const Eigen::MatrixXd& Y, const char* form) {
              CAPTURE(form);
              REQUIRE((Y - V).norm() <= 1e-13 * V.norm());
            });
  REQUIRE(attention(SymmetricPower<2>{}, decay(Eigen::VectorXd::Zero(140)), Q, K, V) ==
          attention(SymmetricPower<2>{}, stationary(), Q, K, V));
}

TEST_CASE("the first gate is irrelevant without an initial state", "[attention]") {
  Random random(4);
  const Eigen::MatrixXd Q = random.matrix(4, 9), K = random.matrix(4, 9), V = random.matrix(2, 9);
  Eigen::VectorXd log_gamma = -random.vector(9).cwiseAbs(), closed = log_gamma;
  closed[0] = -infinity;
  each_form(SymmetricPower<2>{}, decay(log_gamma), Q, K, V, [&](const Eigen::MatrixXd& Y, const char* form) {
    CAPTURE(form);
    each_form(SymmetricPower<2>{}, decay(closed), Q, K, V,
              [&](const Eigen::MatrixXd& other, const char*) { REQUIRE((Y - other).norm() <= 1e-13 * Y.norm()); });
  });
}

TEST_CASE("logits of any size give finite rows in the attention form", "[attention]") {
  Random random(5);
  const Eigen::MatrixXd Q = random.matrix(4, 70), K = random.matrix(4, 70), V = random.matrix(2, 70);
  const Eigen::MatrixXd power = attention(SymmetricPower<4>{}, constant_decay(.9), Q, K, V);
  for (const double size : {1e-80, 1e-20, 1e20, 1e80}) {
    CAPTURE(size);
    const Eigen::MatrixXd Y = attention(SymmetricPower<4>{}, constant_decay(.9), Q * size, K * size, V);
    REQUIRE((Y - power).norm() <= 1e-11 * power.norm());  // the power does not see the size
  }
  REQUIRE(attention(Exponential{}, constant_decay(.9), Q * 1e4, K * 1e4, V).allFinite());
  // One huge logit takes the whole row.
  Eigen::MatrixXd sharp = K;
  sharp.col(30) = Q.col(50) * 1e6;
  REQUIRE((attention(Exponential{}, stationary(), Q, sharp, V).col(50) - V.col(30)).norm() <= 1e-14);
}

TEST_CASE("an entry that is no number shows in every row that sees it, in every form", "[attention]") {
  Random random(8);
  const Eigen::MatrixXd Q = random.matrix(4, 9), K = random.matrix(4, 9), V = random.matrix(2, 9);
  const double no_number = std::nan("");
  Eigen::MatrixXd q = Q, k = K;
  q(1, 2) = no_number;
  k(1, 4) = no_number;
  const auto is_number = [](const auto& x) { return x.array().isFinite().all(); };
  each_form(SymmetricPower<2>{}, constant_decay(.9), q, K, V, [&](const Eigen::MatrixXd& Y, const char* form) {
    CAPTURE(form);
    REQUIRE_FALSE(is_number(Y.col(2)));
    REQUIRE(is_number(Y.leftCols(2)));
    REQUIRE(is_number(Y.rightCols(6)));
  });
  each_form(SymmetricPower<2>{}, constant_decay(.9), Q, k, V, [&](const Eigen::MatrixXd& Y, const char* form) {
    CAPTURE(form);
    for (Index i = 0; i < 9; ++i) REQUIRE(is_number(Y.col(i)) == (i < 4));
  });
  REQUIRE_THROWS_WITH(attention(Linear{}, stationary(), q, K, V, {.check_finite = true}),
                      sympow::test::contains("Q(1, 2) is nan"));
}

TEST_CASE("the scale multiplies the logit, inside the power", "[attention]") {
  Random random(6);
  const Eigen::MatrixXd Q = random.matrix(4, 20), K = random.matrix(4, 20), V = random.matrix(2, 20);
  const Options half{.scale = -.5, .chunk = 4};
  const Eigen::MatrixXd plain = attention(SymmetricPower<3>{}, stationary(), Q, K, V);
  REQUIRE((attention(SymmetricPower<3>{}, stationary(), Q, K, V, half) + plain / 8).norm() <= 1e-14 * plain.norm());
  REQUIRE((recurrent_from_nothing(SymmetricPower<3>{}, stationary(), Q, K, V, half) + plain / 8).norm() <=
          1e-13 * plain.norm());
  REQUIRE((chunked(SymmetricPower<3>{}, stationary(), Q, K, V, half) + plain / 8).norm() <= 1e-13 * plain.norm());
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
