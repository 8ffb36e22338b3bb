// Random features: unbiased, of the variance that is printed, orthogonal where they say so, stable, and the same in every form.
#include <array>
#include <sstream>
#include <sympow/attention/merge.hpp>
#include <sympow/attention/state_file.hpp>
#include <sympow/feature/random_feature_variance.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/laws.hpp>
#include <vector>

#include "catch.hpp"
#include "engines.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;
using sympow::test::Random;

template class sympow::RandomFeatures<RandomFeatureKind::positive>;
template class sympow::RandomFeatures<RandomFeatureKind::trigonometric>;
template class sympow::RandomFeatures<RandomFeatureKind::hyperbolic>;

static_assert(ScaledFeatureMap<PositiveRandomFeatures> && ScaledFeatureMap<TrigonometricRandomFeatures> &&
              ScaledFeatureMap<HyperbolicRandomFeatures> && !ScaledFeatureMap<SymmetricPower<2>>);
static_assert(PositiveRandomFeatures::nonnegative && !TrigonometricRandomFeatures::nonnegative &&
              HyperbolicRandomFeatures::nonnegative);
static_assert(has_nonnegative_entries<PositiveRandomFeatures> && !has_nonnegative_entries<SymmetricPower<2>>);

namespace {

template <class F, class X>
Matrix<typename X::Scalar> embedded(const F& feature, const X& x) {
  Matrix<typename X::Scalar> phi(feature.dimension(x.rows()), x.cols());
  feature.embed(x, phi);
  return phi;
}

// The features as the formulas say, entry by entry.
template <class F>
Eigen::VectorXd by_formula(const F& feature, const Eigen::VectorXd& x) {
  const Eigen::ArrayXd Wx = (feature.projections() * x).array();
  const double half = x.squaredNorm() / 2, m = static_cast<double>(Wx.size());
  Eigen::VectorXd phi(feature.dimension(x.size()));
  if (F::kind == RandomFeatureKind::positive) phi = (Wx - half).exp() / std::sqrt(m);
  if (F::kind == RandomFeatureKind::trigonometric) phi << Wx.cos(), Wx.sin();
  if (F::kind == RandomFeatureKind::trigonometric) phi *= std::exp(half) / std::sqrt(m);
  if (F::kind == RandomFeatureKind::hyperbolic) phi << (Wx - half).exp(), (-Wx - half).exp();
  if (F::kind == RandomFeatureKind::hyperbolic) phi /= std::sqrt(2 * m);
  return phi;
}

// Calls visit with the type of every kind.
template <class Visitor>
void every_kind(Visitor&& visit) {
  visit.template operator()<PositiveRandomFeatures>();
  visit.template operator()<TrigonometricRandomFeatures>();
  visit.template operator()<HyperbolicRandomFeatures>();
}

// The mean of samples, and four standard errors of it.
struct Mean {
  double sum = 0, squares = 0, count = 0;
  void add(double sample) { sum += sample, squares += sample * sample, ++count; }
  [[nodiscard]] double value() const { return sum / count; }
  [[nodiscard]] double margin() const {
    return 4 * std::sqrt(std::max(squares / count - value() * value(), 0.0) / count);
  }
};

// Pairs of the same lengths and the same inner product: x and y with the signs of coordinates flipped.
struct Pairs {
  Eigen::MatrixXd X{4, 16}, Y{4, 16};
  double softmax = 0;

  explicit Pairs(double size = 1) {
    const Eigen::Vector4d x(.3, -.2, .25, .1), y(-.1, .3, .3, .2);
    for (Index t = 0; t < 16; ++t)
      for (Index i = 0; i < 4; ++i) {
        const double sign = (t >> i) % 2 == 0 ? size : -size;
        X(i, t) = sign * x[i];
        Y(i, t) = sign * y[i];
      }
    softmax = std::exp(X.col(0).dot(Y.col(0)));
  }
};

}  // namespace

TEST_CASE("the features are those of the formulas, in double and in float", "[feature]") {
  Random random(1);
  every_kind([&]<class F>() {
    for (const Index d : {1, 3, 64, 65, 130})
      for (const Index m : {1, 5, 64, 130, 200}) {
        const F feature(d, m, {.seed = 7});
        const double size = random.uniform(.1, 2) / std::sqrt(static_cast<double>(d));
        const Eigen::MatrixXd X = size * random.matrix(d, 19);
        const Eigen::MatrixXf X_float = X.cast<float>();
        const Eigen::MatrixXd phi = embedded(feature, X);
        const Eigen::MatrixXf phi_float = embedded(feature, X_float);
        for (Index t = 0; t < X.cols(); ++t) {
          CAPTURE(F::kind, d, m, t);
          const Eigen::VectorXd expected = by_formula(feature, X.col(t)), largest = expected.cwiseAbs();
          // A projection is a sum of d terms, and its rounding that of an exponent; ‖w‖ is near √d.
          const double condition = 8 + 4 * (X.col(t).norm() + 1) * std::sqrt(static_cast<double>(d));
          REQUIRE((phi.col(t) - expected).cwiseAbs().maxCoeff() <= condition * 1.2e-16 * largest.maxCoeff());
          const Eigen::VectorXd expected_float = by_formula(feature, X_float.col(t).cast<double>());
          REQUIRE((phi_float.col(t).cast<double>() - expected_float).cwiseAbs().maxCoeff() <=
                  8 * 6e-8 * largest.maxCoeff());
        }
      }
  });
}

TEST_CASE("exponents taken out are whole and belong to the same features", "[feature]") {
  Random random(2);
  every_kind([&]<class F>() {
    const Index d = 5, m = 70;
    const F feature(d, m);
    Eigen::MatrixXd X = random.matrix(d, 40);
    for (Index t = 0; t < X.cols(); ++t) X.col(t) *= .2 * static_cast<double>(t);
    Eigen::MatrixXd phi(feature.dimension(d), X.cols());
    Eigen::VectorXd exponents(X.cols());
    feature.embed(X, phi, exponents);
    const Eigen::MatrixXd expected = embedded(feature, X);
    for (Index t = 0; t < X.cols(); ++t) {
      CAPTURE(F::kind, t);
      REQUIRE(exponents[t] == std::round(exponents[t]));
      REQUIRE(phi.col(t).cwiseAbs().maxCoeff() <= 1.42);
      if (F::nonnegative) REQUIRE(phi.col(t).maxCoeff() >= .7);
      REQUIRE((phi.col(t) * std::exp2(exponents[t]) - expected.col(t)).norm() <= 1e-14 * expected.col(t).norm());
    }
  });
}

TEST_CASE("every kind is unbiased and has the exact variance, independent and orthogonal", "[feature]") {
  const Pairs pairs;
  const Index d = 4;
  every_kind([&]<class F>() {
    for (const bool orthogonal : {false, true})
      for (const Index m : {Index(1), d, 3 * d}) {
        if (orthogonal && m == 1) continue;  // the same thing
        Mean error, squared_error;
        const std::uint64_t draws = m == 1 ? 20000 : 6000;
        for (std::uint64_t seed = 0; seed < draws; ++seed) {
          const F feature(d, m, {.seed = seed, .orthogonal = orthogonal});
          const Eigen::MatrixXd x = embedded(feature, pairs.X), y = embedded(feature, pairs.Y);
          const Eigen::ArrayXd off = x.cwiseProduct(y).colwise().sum().transpose().array() - pairs.softmax;
          error.add(off.mean());
          squared_error.add(off.square().mean());
        }
        const double variance = random_feature_variance(F::kind, pairs.X.col(0), pairs.Y.col(0), m, orthogonal);
        CAPTURE(F::kind, orthogonal, m, squared_error.value() / variance, squared_error.margin() / variance);
        REQUIRE(std::abs(error.value()) <= error.margin());
        REQUIRE(squared_error.margin() <= .08 * variance);  // four standard errors: there are samples enough
        REQUIRE(std::abs(squared_error.value() - variance) <= .05 * variance);
      }
  });
}

TEST_CASE("rows left over by the last block have their own share of the variance", "[feature]") {
  const Pairs pairs(1.5);
  for (const Index m : {3, 6}) {  // less than a block of 4, and a block and a half
    Mean squared_error;
    for (std::uint64_t seed = 0; seed < 6000; ++seed) {
      const HyperbolicRandomFeatures feature(4, m, {.seed = seed});
      const Eigen::MatrixXd x = embedded(feature, pairs.X), y = embedded(feature, pairs.Y);
      squared_error.add((x.cwiseProduct(y).colwise().sum().array() - pairs.softmax).square().mean());
    }
    const HyperbolicRandomFeatures feature(4, m);
    const double variance = random_feature_variance(feature, pairs.X.col(0), pairs.Y.col(0));
    CAPTURE(m, squared_error.value() / variance, squared_error.margin() / variance);
    REQUIRE(std::abs(squared_error.value() - variance) <= .05 * variance);
  }
}

TEST_CASE("blocks are orthogonal, and only they", "[feature]") {
  const Index d = 5, m = 17;
  const Matrix<double> W = PositiveRandomFeatures(d, m, {.seed = 3}).projections();
  REQUIRE(W.rows() == m);
  REQUIRE(W.cols() == d);
  double least_between = 1;
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < i; ++j) {
      const double cosine = std::abs(W.row(i).dot(W.row(j))) / (W.row(i).norm() * W.row(j).norm());
      CAPTURE(i, j, cosine);
      if (i / d == j / d)
        REQUIRE(cosine <= 1e-14);
      else
        least_between = std::min(least_between, cosine);
    }
  REQUIRE(least_between > 1e-4);
  const Matrix<double> independent = PositiveRandomFeatures(d, m, {.seed = 3, .orthogonal = false}).projections();
  REQUIRE(std::abs(independent.row(0).dot(independent.row(1))) > 1e-3);
}

TEST_CASE("blocks are Haar's and lengths are chi's", "[feature]") {
  const Index d = 3;
  Eigen::Matrix3d entries = Eigen::Matrix3d::Zero(), squares = entries;
  Mean trace, squared_trace, determinant, length, squared_length, together;
  const int draws = 20000;
  for (int seed = 0; seed < draws; ++seed) {
    const Eigen::Matrix3d W = PositiveRandomFeatures(d, d, {.seed = static_cast<std::uint64_t>(seed)}).projections();
    const Eigen::Matrix3d Q = W.rowwise().normalized();
    entries += Q / draws;
    squares += Q.cwiseAbs2() / draws;
    trace.add(Q.trace());
    squared_trace.add(Q.trace() * Q.trace());
    determinant.add(Q.determinant());
    const Eigen::Vector3d lengths = W.rowwise().squaredNorm();
    length.add(lengths[0]);
    squared_length.add((lengths[1] - 3) * (lengths[1] - 3));
    together.add((lengths[0] - 3) * (lengths[2] - 3));
  }
  // An entry has the variance 1/3, its square 3/15 - 1/9.
  REQUIRE(entries.cwiseAbs().maxCoeff() <= 4 * std::sqrt(1. / 3 / draws));
  REQUIRE((squares.array() - 1. / 3).abs().maxCoeff() <= 4 * std::sqrt((3. / 15 - 1. / 9) / draws));
  REQUIRE(std::abs(trace.value()) <= trace.margin());
  REQUIRE(std::abs(squared_trace.value() - 1) <= squared_trace.margin());
  REQUIRE(std::abs(determinant.value()) <= determinant.margin());  // rotations alone have 1
  REQUIRE(std::abs(length.value() - 3) <= length.margin());
  REQUIRE(std::abs(squared_length.value() - 6) <= squared_length.margin());
  REQUIRE(std::abs(together.value()) <= together.margin());  // one length for all rows would have 6
}

TEST_CASE("the same seed gives the same projections, and copies share them", "[feature]") {
  const PositiveRandomFeatures feature(4, 6, {.seed = 5}), same(4, 6, {.seed = 5}), other(4, 6, {.seed = 6});
  const PositiveRandomFeatures copy = feature;
  REQUIRE(&copy.projections() == &feature.projections());
  REQUIRE(same.projections() == feature.projections());
  REQUIRE((other.projections() - feature.projections()).norm() > 1);
  REQUIRE(
      (PositiveRandomFeatures(4, 6, {.seed = 5, .orthogonal = false}).projections() - feature.projections()).norm() >
      1);
  REQUIRE((HyperbolicRandomFeatures(4, 6, {.seed = 5}).projections() == feature.projections()));
  REQUIRE((feature == same && feature == copy && !(feature == other)));
  REQUIRE(!(feature == PositiveRandomFeatures(4, 7, {.seed = 5})));
  REQUIRE(feature.fingerprint() == same.fingerprint());
  REQUIRE(feature.fingerprint() != other.fingerprint());
  REQUIRE(feature.fingerprint() != (PositiveRandomFeatures(4, 6, {.seed = 5, .orthogonal = false}).fingerprint()));
  REQUIRE(feature.fingerprint() != (HyperbolicRandomFeatures(4, 6, {.seed = 5}).fingerprint()));
  // As they were when this was written.
  std::printf("%.17g %.17g %.17g\n", feature.projections()(0, 0), feature.projections()(5, 3),
              PositiveRandomFeatures(4, 6, {.seed = 5, .orthogonal = false}).projections()(5, 3));
  std::printf("%ld\n", feature.fingerprint());
}

TEST_CASE("what cannot be is said", "[feature]") {
  REQUIRE_THROWS_WITH(PositiveRandomFeatures(4, 0), contains("m is 0, must be 1 or more"));
  REQUIRE_THROWS_AS(PositiveRandomFeatures(4, 0), InvalidArgument);
  REQUIRE_THROWS_WITH(TrigonometricRandomFeatures(0, 4), contains("d is 0, must be 1 or more"));
  REQUIRE_THROWS_AS(HyperbolicRandomFeatures(-1, 4), InvalidArgument);
  const HyperbolicRandomFeatures feature(4, 3);
  REQUIRE(feature.dimension(4) == 6);
  REQUIRE_THROWS_AS(feature.dimension(5), ShapeMismatch);
  Eigen::MatrixXd phi(6, 2), small(5, 2);
  Eigen::VectorXd exponents(2);
  REQUIRE_THROWS_WITH(feature.embed(Eigen::MatrixXd::Zero(3, 2), phi), contains("rows of x is 3, must be 4"));
  REQUIRE_THROWS_AS(feature.embed(Eigen::MatrixXd::Zero(5, 2), phi, exponents), ShapeMismatch);
  REQUIRE_THROWS_AS(feature.embed(Eigen::MatrixXd::Zero(4, 2), small), ShapeMismatch);
  REQUIRE_THROWS_AS(feature.embed(Eigen::MatrixXd::Zero(4, 3), phi), ShapeMismatch);
  const Eigen::MatrixXd Q = Eigen::MatrixXd::Zero(5, 3), V = Eigen::MatrixXd::Zero(2, 3);
  REQUIRE_THROWS_AS(attention(feature, stationary(), Q, Q, V), ShapeMismatch);
  REQUIRE_THROWS_AS(State(feature, 5, 2), ShapeMismatch);
  const Eigen::VectorXd x = Eigen::VectorXd::Zero(4);
  REQUIRE_THROWS_AS(random_feature_variance(feature, x.head(3), x.head(3)), ShapeMismatch);
  REQUIRE_THROWS_AS(random_feature_variance(feature.kind, x, x.head(3), 4), ShapeMismatch);
  REQUIRE_THROWS_AS(random_feature_variance(feature.kind, x, x, 0), InvalidArgument);
  REQUIRE_THROWS_AS(random_feature_variance(feature.kind, x.head(0), x.head(0), 1), InvalidArgument);
  REQUIRE_THROWS_AS(random_feature_variance(feature.kind, (x.array() + std::nan("")).matrix(), x, 1), InvalidArgument);
  REQUIRE_THROWS_AS(random_feature_variance(feature.kind, (x.array() + 1e4).matrix(), x, 1), InvalidArgument);
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -2e6}) {
    REQUIRE_THROWS_AS(confluent_hypergeometric(bad, 1, 1), InvalidArgument);
    REQUIRE_THROWS_AS(confluent_hypergeometric(1, bad, 1), InvalidArgument);
    REQUIRE_THROWS_AS(confluent_hypergeometric(1, 1, bad), InvalidArgument);
  }
  REQUIRE_THROWS_AS(confluent_hypergeometric(1, 0, 1), InvalidArgument);
}

// ---- the variance ----

TEST_CASE("the confluent hypergeometric function", "[feature]") {
  const auto near = [](double a, double b, double z, double expected, double sizes = 1) {
    CAPTURE(a, b, z, expected);
    const double value = confluent_hypergeometric(a, b, z);
    CAPTURE(value);
    REQUIRE(std::abs(value - expected) <= 1e-15 * sizes * (1 + std::abs(z)) * std::abs(expected));
  };
  for (const double z : {-600., -40., -1., -1e-9, 0., 1e-9, .3, 1., 7., 80., 600.}) {
    near(2.5, 2.5, z, std::exp(z));
    if (z != 0) near(1, 2, z, std::expm1(z) / z);
    near(2, 1, z, (1 + z) * std::exp(z));
    near(0, 3, z, 1, 10);                        // e^z e^-z
    near(-1, 2, z, 1 - z / 2, z < 0 ? 1 : 100);  // cancels for z > 0
  }
  near(4, 2, .5, 2.5417786256626976);  // from 40 digits
  near(64, 32, 3, 319.39357263403991);
  near(16, 8, 100, 3.0728441247045508e+51);
  for (const auto& [a, b, z, expected] : {std::array{4., 2., -.5, .32853744067767644},
                                          {64., 32., -3., .0017698767528790286},
                                          {3., 1.5, -20., 7.4860554853598301e-5},
                                          {64., 32., -30., 1.7999616901631313e-23},
                                          {5., 2.5, -300., -6.1404844955110722e-13}})
    REQUIRE(std::abs(confluent_hypergeometric(a, b, z) - expected) <= 1e-15 * (1 - z));
  REQUIRE(std::isinf(confluent_hypergeometric(2, 1, 1e5)));
  REQUIRE(confluent_hypergeometric(2, 2, -1e5) == 0);
}

TEST_CASE("the variance where it is known otherwise", "[feature]") {
  using enum RandomFeatureKind;
  Random random(4);
  for (const double size : {1e-4, 1e-2, .3, 1., 2.5}) {
    CAPTURE(size);
    const Eigen::VectorXd x = size * random.vector(6), y = size * random.vector(6);
    const double rho2 = (x + y).squaredNorm(), delta2 = (x - y).squaredNorm();
    const double norms = x.squaredNorm() + y.squaredNorm(), softmax = std::exp(x.dot(y));
    const auto independent = [&](RandomFeatureKind kind) { return random_feature_variance(kind, x, y, 9, false); };
    const auto near = [](double a, double b, double digits) {
      CAPTURE(a, b);
      REQUIRE(std::abs(a - b) <= digits * std::abs(b));
    };
    near(independent(positive), std::exp(rho2) * softmax * softmax * -std::expm1(-rho2) / 9, 1e-13);
    near(independent(hyperbolic), independent(positive) * -std::expm1(-rho2) / 2, 1e-13);
    near(independent(trigonometric), std::exp(rho2) / softmax / softmax * std::pow(std::expm1(-delta2), 2) / 18, 1e-13);
    // 9 rows in blocks of 6 and 3: 36 pairs. For short vectors the pair's covariance is -ρ⁴/2(d + 2).
    const double pair = size < .1 ? -rho2 * rho2 / 16 * (1 + (1 - (7. * 8) / (8 * 10)) / (1. / 8) * rho2 / 3)
                                  : confluent_hypergeometric(6, 3, rho2 / 2) - std::exp(rho2);
    const double cosines = size < .1 ? -delta2 * delta2 / 16 * (1 - (1 - (7. * 8) / (8 * 10)) / (1. / 8) * delta2 / 3)
                                     : confluent_hypergeometric(6, 3, -delta2 / 2) - std::exp(-delta2);
    const double digits = size < .1 ? size * size * size : 1e-11;
    for (const auto kind : {positive, hyperbolic})
      near(random_feature_variance(kind, x, y, 9), independent(kind) + 36. / 81 * std::exp(-norms) * pair, digits);
    near(random_feature_variance(trigonometric, x, y, 9),
         independent(trigonometric) + 36. / 81 * std::exp(norms) * cosines, digits);
    REQUIRE(random_feature_variance(positive, x, y, 1) == random_feature_variance(positive, x, y, 1, false));
  }
  const Eigen::VectorXd x = Eigen::VectorXd::Constant(4, .5), none = Eigen::VectorXd::Zero(4);
  REQUIRE(random_feature_variance(positive, none, none, 4) == 0);
  REQUIRE(random_feature_variance(positive, x, -x, 4) == 0);  // every score is 1/m Σ exp(0)
  REQUIRE(random_feature_variance(trigonometric, x, x, 4) == 0);
  // Far away: the type holds the variance, if not what it is made of.
  const Eigen::VectorXd far = 12 * x;
  REQUIRE(random_feature_variance(positive, far, (far.array() + 8).matrix() * -1.5, 4) < 1e-10);
  REQUIRE(std::isinf(random_feature_variance(positive, 40 * x, 40 * x, 4)));
  // Continuous where one formula for cosines takes over from the other.
  const Eigen::VectorXd unit = Eigen::VectorXd::Unit(4, 0);
  const double below = random_feature_variance(trigonometric, unit * (1 - 1e-13), none, 4);
  REQUIRE(std::abs(random_feature_variance(trigonometric, unit * (1 + 1e-13), none, 4) / below - 1) <= 1e-11);
}

// ---- attention ----

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
  const auto residual = [&](const auto& transition) {
    return verify::three_forms_law(feature, transition, in.Q, in.K, in.V, options).residual;
  };
  CAPTURE(sizeof(Scalar), F::kind, d, m, T, size, seed, options.scale, options.chunk);
  REQUIRE(residual(stationary()) <= 1);
  REQUIRE(residual(decay(in.log_gamma)) <= 1);
  if (d % 2 == 0) REQUIRE(residual(decay(in.log_gamma) * rotary(rotary_frequencies<double>(d, 64), in.beta)) <= 1);
}

}  // namespace

TEST_CASE("the three forms are one function, in double and in float", "[feature]") {
  every_kind([]<class F>() {
    check_forms<double, F>(4, 16, 40, .7, 1, {});
    check_forms<double, F>(4, 1, 33, .3, 2, {.chunk = 7});
    check_forms<double, F>(5, 70, 100, 1, 3, {.scale = -.5, .chunk = 16});
    check_forms<double, F>(16, 64, 140, .5, 4, {});
    check_forms<float, F>(4, 16, 40, .7, 5, {});
    check_forms<float, F>(8, 65, 130, .6, 6, {.chunk = 33});
    check_forms<float, F>(16, 24, 70, .5, 7, {.scale = 2});
  });
}

TEST_CASE("a state streams, splits, merges and is saved", "[feature]") {
  const Index d = 4, T = 90;
  const PositiveRandomFeatures feature(d, 24, {.seed = 11});
  const Sequence<double> in(d, 3, T, .7, 9);
  const auto part = [&](Segment s) { return decay(in.log_gamma.segment(s.begin, s.size)); };
  for (const Index split : {1, 31, 64, 89})
    REQUIRE(verify::splitting_law(feature, part, in.Q, in.K, in.V, split).residual <= 1);

  const verify::DirectRows rows = verify::direct_attention(feature, decay(in.log_gamma), in.Q, in.K, in.V);
  State state(feature, d, 3);
  REQUIRE(state.feature() == feature);
  Eigen::MatrixXd Y(3, T);
  for (Index t = 0; t < T; ++t) {
    if (t == 50) {
      std::stringstream file;
      save(state, file);
      State resumed(feature, d, 3);
      load(resumed, file);
      state = resumed;
    }
    Y.col(t) = recurrent(feature, part({t, 1}), in.Q.col(t), in.K.col(t), in.V.col(t), state);
  }
  REQUIRE(verify::row_rule<DefaultNormalization, PositiveRandomFeatures>(rows, Y, rows.Y, 0x1p-53) <= 1);

  State left(feature, d, 3), right(feature, d, 3);
  (void)chunked(feature, part({0, 40}), in.Q.leftCols(40), in.K.leftCols(40), in.V.leftCols(40), left);
  (void)chunked(feature, part({40, 49}), in.Q.middleCols(40, 49), in.K.middleCols(40, 49), in.V.middleCols(40, 49),
                right);
  State both = merge(left, right);
  const Eigen::MatrixXd last = recurrent(feature, part({89, 1}), in.Q.col(89), in.K.col(89), in.V.col(89), both);
  REQUIRE((last - rows.Y.col(89)).norm() <= 1e-13 * rows.condition[89]);
}

TEST_CASE("a state is not continued under other projections", "[feature]") {
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
  REQUIRE_THROWS_WITH(load(started, file), contains("fingerprint of the feature map is "));
  State<double, HyperbolicRandomFeatures> hyperbolic(HyperbolicRandomFeatures(4, 4), 4, 3);
  file.seekg(0);
  REQUIRE_THROWS_AS(load(hyperbolic, file), InvalidStateFile);  // of the same D
  file.seekg(0);
  State again(feature, 4, 3);
  load(again, file);
  REQUIRE(again.values() == state.values());
}

TEST_CASE("the scale multiplies the query", "[feature]") {
  const Sequence<double> in(4, 3, 70, .7, 5);
  const PositiveRandomFeatures feature(4, 32);
  for (const double scale : {.25, -1.5}) {
    const Eigen::MatrixXd Q = scale * in.Q;
    REQUIRE(attention(feature, decay(in.log_gamma), in.Q, in.K, in.V, {.scale = scale}) ==
            attention(feature, decay(in.log_gamma), Q, in.K, in.V));
    REQUIRE(chunked(feature, decay(in.log_gamma), in.Q, in.K, in.V, {.scale = scale}) ==
            chunked(feature, decay(in.log_gamma), Q, in.K, in.V));
  }
}

TEST_CASE("sums are unbiased estimates of those of the exponential", "[feature]") {
  const Index d = 4, T = 12;
  const Sequence<double> in(d, 2, T, .4, 8);
  const Eigen::MatrixXd expected = attention<Unnormalized>(Exponential{}, decay(in.log_gamma), in.Q, in.K, in.V);
  every_kind([&]<class F>() {
    Eigen::ArrayXXd sum = Eigen::ArrayXXd::Zero(2, T), squares = sum;
    constexpr int draws = 400;
    for (int seed = 0; seed < draws; ++seed) {
      const F feature(d, 8, {.seed = static_cast<std::uint64_t>(seed)});
      const Eigen::ArrayXXd off =
          (attention<Unnormalized>(feature, decay(in.log_gamma), in.Q, in.K, in.V) - expected).array();
      sum += off / draws;
      squares += off.square() / draws;
    }
    CAPTURE(F::kind);
    REQUIRE((sum.abs() <= 4.5 * (squares / draws).sqrt()).all());  // 24 entries, one seed
    REQUIRE((squares / draws).sqrt().maxCoeff() <= .1 * expected.cwiseAbs().maxCoeff());
  });
}

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
  const auto none_degenerate = [&] { REQUIRE((diagnostics.row(2).array() == 0).all()); };
  check(attention(feature, stationary(), in.Q, in.K, in.V, options)), none_degenerate();
  check(recurrent(feature, stationary(), in.Q, in.K, in.V, options)), none_degenerate();
  check(chunked(feature, stationary(), in.Q, in.K, in.V, options)), none_degenerate();
  State<Scalar, PositiveRandomFeatures> literal(feature, d, 1, 0);
  check(recurrent(feature, stationary(), in.Q, in.K, in.V, literal, options)), none_degenerate();
}

TEST_CASE("long queries and keys give the rows that they have", "[feature]") {
  check_long<float>(1, 1e-5);
  check_long<float>(12, 1e-5);
  check_long<float>(40, 1e-4);
  check_long<double>(40, 1e-11);
  check_long<double>(100, 1e-10);
}

TEST_CASE("rows are finite however long queries and keys are", "[feature]") {
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
      REQUIRE(good(recurrent(feature, decay(in.log_gamma), in.Q, in.K, in.V)));
      REQUIRE(good(chunked(feature, decay(in.log_gamma), in.Q, in.K, in.V, {.chunk = 16})));
    }
  };
  check(0.F, PositiveRandomFeatures(1, 1));
  check(0., PositiveRandomFeatures(1, 1));
  check(0.F, HyperbolicRandomFeatures(1, 1));
  check(0., HyperbolicRandomFeatures(1, 1));
}
