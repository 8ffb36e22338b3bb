// What each recipe holds, what a product of them holds, and what they refuse; running gates against the exponentials of
// their sums.
#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/transition/running_gates.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;
using sympow::test::Random;

static_assert(Transition<Stationary> && Transition<ConstantDecay> && Transition<Decay> &&
              Transition<ChannelDecay<float>> && Transition<ChannelDecay<double>> && Transition<Rotary> &&
              Transition<TransitionProduct<Decay, Rotary>> && Transition<Householder<float>> &&
              Transition<TransitionProduct<Householder<double>, Decay>> && !Transition<int>);

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
}

TEST_CASE("scalar gates are kept in double, whatever vector or array they come in", "[transition]") {
  const Eigen::RowVectorXf gamma = Eigen::RowVectorXf::LinSpaced(5, .1f, .9f);
  const Decay from_row = decay(gamma.array().log()), from_column = decay(gamma.transpose().array().log());
  const Decay owned = [&] { return decay(Eigen::VectorXd(gamma.transpose().cast<double>().array().log())); }();
  for (Index i = 0; i < 5; ++i) {
    REQUIRE(from_row.log_decay(i) == static_cast<double>(std::log(gamma[i])));
    REQUIRE(from_column.log_decay(i) == from_row.log_decay(i));
    REQUIRE(owned.log_decay(i) == std::log(static_cast<double>(gamma[i])));
  }
  REQUIRE(decay(Eigen::VectorXd::Constant(3, -infinity)).log_decay(1) == -infinity);
  REQUIRE(constant_decay(0).log_decay(7) == -infinity);
  REQUIRE(constant_decay(1).log_decay(7) == 0);
  REQUIRE(stationary().log_decay(7) == 0);
}

TEST_CASE("gates that are no gates are refused by position and value", "[transition]") {
  Eigen::VectorXd log_gamma = -Eigen::VectorXd::Ones(4);
  log_gamma[2] = std::numeric_limits<double>::infinity();
  REQUIRE_THROWS_AS(decay(log_gamma), InvalidGate);
  REQUIRE_THROWS_WITH(decay(log_gamma), contains("position 2") && contains("inf"));
  log_gamma[2] = std::nan("");
  REQUIRE_THROWS_AS(decay(log_gamma), InvalidGate);
  REQUIRE(channel_decay(-Eigen::MatrixXd::Ones(3, 2)).key_matrix(1, 5).rows() == 3);  // its own dimension
  REQUIRE_THROWS_WITH(channel_decay(Eigen::MatrixXd::Ones(2, 2)),
                      contains("channel_decay") && contains("channel 0 at token 0"));
  for (const double gamma : {-.1, 1.1, std::nan("")}) REQUIRE_THROWS_AS(constant_decay(gamma), InvalidGate);
}

TEST_CASE("rates that are no numbers are refused by name and position", "[transition]") {
  Eigen::VectorXd theta = Eigen::VectorXd::Ones(3), beta = Eigen::VectorXd::Ones(5);
  beta[4] = infinity;
  REQUIRE_THROWS_WITH(rotary(theta, beta, Pairing::interleaved), contains("beta at position 4 is inf"));
  theta[1] = std::nan("");
  REQUIRE_THROWS_AS(rotary(theta, Pairing::interleaved), NotFinite);
}

TEST_CASE("vectors and strengths of a Householder chain are checked, its growth on request", "[transition]") {
  Random random(2);
  Eigen::MatrixXf w = random.matrix(5, 4).colwise().normalized().cast<float>();
  w.colwise().normalize();
  Eigen::ArrayXf beta = Eigen::ArrayXf::Constant(4, 2);
  REQUIRE(householder(w, beta).require_contraction().beta(3) == 2);
  REQUIRE(householder(w, 0 * beta).key_matrix(2, 5) == Eigen::MatrixXd::Identity(5, 5));
  REQUIRE_THROWS_AS(householder(w, beta.head(3)), ShapeMismatch);
  w.col(2) *= 1.5f;
  REQUIRE_THROWS_AS(householder(w, beta).require_contraction(), InvalidGate);
  REQUIRE_THROWS_WITH(householder(w, beta).require_contraction(), contains("token 2 is 4.5"));
  w.col(2) /= 1.5f;
  beta[1] = -.25f;
  REQUIRE_THROWS_WITH(householder(w, beta).require_contraction(), contains("token 1 is -0.25"));
  beta[1] = std::nanf("");
  REQUIRE_THROWS_WITH(householder(w, beta), contains("token 1, beta is nan"));
  beta[1] = 1;
  w(0, 3) = std::numeric_limits<float>::infinity();
  REQUIRE_THROWS_AS(householder(w, beta), NotFinite);
}

TEST_CASE("a product adds log gates, in any order and number, and keeps the one that acts on keys", "[transition]") {
  Random random(1);
  const Eigen::VectorXd log_gamma = -random.vector(6).cwiseAbs(), theta = random.vector(2), beta = random.vector(6);
  const auto product =
      constant_decay(.5) * decay(log_gamma) * rotary(theta, beta, Pairing::interleaved) * constant_decay(.25);
  const auto other =
      rotary(theta, beta, Pairing::interleaved) * (constant_decay(.25) * constant_decay(.5)) * decay(log_gamma);
  for (Index i = 0; i < 6; ++i) {
    REQUIRE(std::abs(product.log_decay(i) - (log_gamma[i] + std::log(.125))) <= 1e-15 * (3 - log_gamma[i]));
    REQUIRE(std::abs(other.log_decay(i) - product.log_decay(i)) <= 1e-15 * (3 - log_gamma[i]));
    REQUIRE(product.key_matrix(i, 4) == rotary(theta, beta, Pairing::interleaved).key_matrix(i, 4));
    REQUIRE(other.key_matrix(i, 4) == product.key_matrix(i, 4));
  }
  REQUIRE(product.length() == 6);
  REQUIRE(product.key_dimension() == 4);
  REQUIRE((constant_decay(.5) * stationary()).length() == Dynamic);
  REQUIRE((constant_decay(.5) * stationary()).key_dimension() == Dynamic);
  REQUIRE(rotary(theta, Pairing::interleaved).length() == Dynamic);
  REQUIRE_THROWS_AS(decay(log_gamma) * decay(log_gamma.head(5)), ShapeMismatch);
}

TEST_CASE("a state's frame is resumed by the same kind of transition only", "[transition]") {
  const Frame turned(Frame::angles, Eigen::VectorXd::Ones(3));
  REQUIRE_THROWS_AS(stationary().check_frame(turned, 6), FrameMismatch);
  REQUIRE_THROWS_AS(channel_decay(-Eigen::MatrixXd::Ones(6, 2)).check_frame(turned, 6), FrameMismatch);
  REQUIRE_THROWS_WITH(rotary(Eigen::VectorXd::Ones(4), Pairing::interleaved).check_frame(turned, 8),
                      contains("3") && contains("4"));
  REQUIRE_NOTHROW(rotary(Eigen::VectorXd::Ones(3), Pairing::interleaved).check_frame(turned, 6));
  REQUIRE_NOTHROW(rotary(Eigen::VectorXd::Ones(3), Pairing::interleaved).check_frame(Frame{}, 6));
}

// ---- running gates ----

TEST_CASE("running gates are the exponentials of their sums", "[core]") {
  using Numbers = Eigen::Array<double, 40, 1>;
  using Gates = Eigen::Array<float, 40, 1>;
  constexpr double u = 0x1p-24;
  Random random(3);
  for (const double most : {1e-9, .01, 1., 20.}) {
    Numbers x = Numbers::Zero(), sum = Numbers::Zero();
    Gates up, down;
    const auto step = [&](const auto& a) {
      up.setOnes();
      down.setOnes();
      detail::apply_running_gates(up.data(), down.data(), x.data(), a.data(), Eigen::fix<40>);
    };
    step(Gates::Zero().eval());
    CHECK((up == 1).all());
    CHECK((down == 1).all());
    for (int t = 0; t < 3000 && sum.minCoeff() > most - 27.7; ++t) {
      const Numbers a = Numbers::NullaryExpr([&] { return -most * random.uniform(); });
      const Gates rounded = a.cast<float>();
      if (t % 2 == 0) {
        step(a);
        sum += a;
      } else {
        step(rounded);
        sum += rounded.cast<double>();
      }
      REQUIRE((x == sum).all());
      REQUIRE((up.cast<double>() / sum.exp() - 1).abs().maxCoeff() <= 2.5 * u);
      REQUIRE((down.cast<double>() * up.cast<double>() - 1).abs().maxCoeff() <= 2 * u);
    }
  }
}
