// Attention with random features: one function in three forms, on long vectors as well, and states that keep their
// projections.
#include <sstream>
#include <sympow/attention/scan.hpp>
#include <sympow/attention/state_file.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/laws.hpp>

#include <sympow/sympow.hpp>
#include "catch.hpp"
#include "from_nothing.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;
using sympow::test::Random;
using sympow::test::recurrent_from_nothing;

namespace {

template <class Scalar>
struct Sequence {
  Matrix<Scalar> Q, K, V;
  Eigen::VectorXd log_gamma, beta;

  Sequence(Index d, Index e, Index T, double size, std::uint64_t seed) {
    Random random(seed);
    Q = (size * random.matrix(d, T)).cast<Scalar>();
    K = (size * random.matrix(d, T)).cast<Scalar>();
    V = random.matrix(e, T).cast<Scalar>();
    log_gamma = -.01 * random.vector(T).cwiseAbs();
    beta = random.vector(T);
  }
};

template <class Scalar, class F>
void check_forms(Index d, Index m, Index T, double size, std::uint64_t seed, const Options& options) {
  const F feature(d, m, {.seed = seed});
  const Sequence<Scalar> in(d, 3, T, size, seed);
  CAPTURE(sizeof(Scalar), F::kind, d, m, T, size, seed, options.scale, options.chunk);
  const auto conformal = decay(in.log_gamma) * rotary(rotary_frequencies<double>(d, 64), in.beta, Pairing::interleaved);
  REQUIRE(verify::three_forms_law(feature, conformal, in.Q, in.K, in.V, options).residual <= 1);
}

}  // namespace

TEST_CASE("the three forms are one function, in double and in float", "[attention]") {
  const auto check = []<class F>(const F&) {
    check_forms<double, F>(4, 16, 40, .7, 1, {});
    check_forms<double, F>(4, 1, 33, .3, 2, {.chunk = 7});
    check_forms<double, F>(6, 70, 100, 1, 3, {.scale = -.5, .chunk = 16});
    check_forms<double, F>(16, 64, 140, .5, 4, {});
  };
  check(PositiveRandomFeatures(1, 1));
  check(TrigonometricRandomFeatures(1, 1));
  check(HyperbolicRandomFeatures(1, 2));
  check_forms<float, PositiveRandomFeatures>(4, 16, 40, .7, 5, {});
  check_forms<float, PositiveRandomFeatures>(8, 65, 130, .6, 6, {.chunk = 33});
  check_forms<float, PositiveRandomFeatures>(16, 24, 70, .5, 7, {.scale = 2});
}

TEST_CASE("a state is not continued under other projections", "[attention]") {
  const Sequence<double> in(4, 3, 10, .7, 9);
  const PositiveRandomFeatures feature(4, 8, {.seed = 1}), same(4, 8, {.seed = 1}), other(4, 8, {.seed = 2});
  State state(feature, 4, 3), started(other, 4, 3);
  const Eigen::MatrixXd Y = chunked(same, stationary(), in.Q, in.K, in.V, state);
  const State before = state;
  REQUIRE_THROWS_AS(chunked(other, stationary(), in.Q, in.K, in.V, state), FeatureMismatch);
  REQUIRE_THROWS_AS(recurrent(other, stationary(), in.Q, in.K, in.V, state), FeatureMismatch);
  REQUIRE_THROWS_AS(merge(state, started), FeatureMismatch);
  REQUIRE(state.tokens() == 10);
  REQUIRE(state.values() == before.values());
  std::stringstream file;
  save(state, file);
  REQUIRE_THROWS_WITH(load(started, file), contains("fingerprint of the feature map, of its kind, size and seed, is "));
  State<double, HyperbolicRandomFeatures> hyperbolic(HyperbolicRandomFeatures(4, 4), 4, 3);
  file.seekg(0);
  REQUIRE_THROWS_AS(load(hyperbolic, file), InvalidStateFile);  // of the same D
  file.seekg(0);
  State again(feature, 4, 3);
  load(again, file);
  REQUIRE(again.values() == state.values());
}

TEST_CASE("keys of another length than the projections are refused", "[attention]") {
  const PositiveRandomFeatures feature(4, 8);
  const Eigen::MatrixXd Q = Eigen::MatrixXd::Zero(5, 3), V = Eigen::MatrixXd::Zero(2, 3);
  REQUIRE_THROWS_AS(attention(feature, stationary(), Q, Q, V), ShapeMismatch);
  REQUIRE_THROWS_AS(State(feature, 5, 2), ShapeMismatch);
}

namespace {

// Rows by logarithms: log s_ij = log Σ_r exp(w_r·(q + k)) - (‖q‖² + ‖k‖²)/2, for one value a token.
template <class Scalar>
Eigen::VectorXd rows_by_logarithms(const PositiveRandomFeatures& feature, const Sequence<Scalar>& in) {
  const Eigen::MatrixXd Q = in.Q.template cast<double>(), K = in.K.template cast<double>();
  Eigen::VectorXd y(Q.cols());
  for (Index i = 0; i < Q.cols(); ++i) {
    Eigen::ArrayXd log_s(i + 1);
    for (Index j = 0; j <= i; ++j) {
      const Eigen::ArrayXd exponents = (feature.projections() * (Q.col(i) + K.col(j))).array();
      log_s[j] =
          exponents.maxCoeff() + std::log((exponents - exponents.maxCoeff()).exp().sum()) - K.col(j).squaredNorm() / 2;
    }
    const Eigen::ArrayXd s = (log_s - log_s.maxCoeff()).exp();
    y[i] = (s * in.V.row(0).transpose().head(i + 1).template cast<double>().array()).sum() / s.sum();
  }
  return y;
}

template <class Scalar>
void check_long(double norm, double tolerance) {
  const Index d = 8, T = 70;
  const PositiveRandomFeatures feature(d, 40, {.seed = 4});
  Sequence<Scalar> in(d, 1, T, 1, 3);
  in.Q.colwise().normalize();
  in.K = (.3 * in.K.colwise().normalized() + in.Q).colwise().normalized();  // every row has a weight in reach
  in.Q *= static_cast<Scalar>(norm);
  in.K *= static_cast<Scalar>(norm);
  const Eigen::VectorXd expected = rows_by_logarithms(feature, in);
  const auto check = [&](const Matrix<Scalar>& Y) {
    REQUIRE(Y.allFinite());
    REQUIRE((Y.row(0).transpose().template cast<double>() - expected).cwiseAbs().maxCoeff() <= tolerance);
  };
  CAPTURE(sizeof(Scalar), norm);
  Diagnostics diagnostics;
  const Options options{.chunk = 16, .diagnostics = &diagnostics};
  const auto none_degenerate = [&] { REQUIRE(!diagnostics.is_degenerate.any()); };
  check(attention(feature, stationary(), in.Q, in.K, in.V, options)), none_degenerate();
  check(recurrent_from_nothing(feature, stationary(), in.Q, in.K, in.V, options)), none_degenerate();
  check(chunked(feature, stationary(), in.Q, in.K, in.V, options)), none_degenerate();
  State<Scalar, PositiveRandomFeatures> literal(feature, d, 1, 0);
  check(recurrent(feature, stationary(), in.Q, in.K, in.V, literal, options)), none_degenerate();
}

}  // namespace

TEST_CASE("long queries and keys give the rows that they have", "[attention]") {
  check_long<float>(1, 1e-5);
  check_long<float>(12, 1e-5);
  check_long<float>(40, 1e-4);
  check_long<double>(40, 1e-11);
  check_long<double>(100, 1e-10);
}

TEST_CASE("rows are finite however long queries and keys are", "[attention]") {
  const Index d = 8;
  const auto check = [&]<class Scalar, class F>(Scalar, F) {
    for (const double size : {1e-30, 15., 40., 1e3, 1e8, 1e15}) {
      const Sequence<Scalar> in(d, 2, 70, size, 3);
      const F feature(d, 20);
      const double most = static_cast<double>(in.V.cwiseAbs().maxCoeff()) * (1 + 1e-5);
      const auto good = [&](const Matrix<Scalar>& Y) {
        return Y.allFinite() && static_cast<double>(Y.cwiseAbs().maxCoeff()) <= most;
      };
      CAPTURE(sizeof(Scalar), F::kind, size);
      REQUIRE(good(attention(feature, decay(in.log_gamma), in.Q, in.K, in.V)));
      REQUIRE(good(recurrent_from_nothing(feature, decay(in.log_gamma), in.Q, in.K, in.V)));
      REQUIRE(good(chunked(feature, decay(in.log_gamma), in.Q, in.K, in.V, {.chunk = 16})));
    }
  };
  check(0.F, PositiveRandomFeatures(1, 1));
  check(0., HyperbolicRandomFeatures(1, 1));
}
