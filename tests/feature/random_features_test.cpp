// Random features: those of the formulas, unbiased, of the exact variance, orthogonal where they say so, the same for a
// seed.
#include <Eigen/LU>
#include <array>
#include <sympow/feature/random_feature_variance.hpp>
#include <sympow/feature/symmetric_power.hpp>

#include "catch.hpp"
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

TEST_CASE("in float the features of long x are as good as those of short x", "[feature]") {
  Random random(3);
  every_kind([&]<class F>() {
    const Index d = 16, m = 200;
    const F feature(d, m);
    const Eigen::MatrixXf X = 30 * random.matrix(d, 20).colwise().normalized().cast<float>();
    const Eigen::MatrixXd X_double = X.cast<double>();
    Eigen::MatrixXf phi(feature.dimension(d), X.cols());
    Eigen::MatrixXd expected(phi.rows(), X.cols());
    Eigen::VectorXd exponents(X.cols()), expected_exponents(X.cols());
    feature.embed(X, phi, exponents);
    feature.embed(X_double, expected, expected_exponents);
    REQUIRE(exponents == expected_exponents);
    CAPTURE(F::kind);
    REQUIRE((phi.cast<double>() - expected).cwiseAbs().maxCoeff() <= 8 * 6e-8);
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
        const std::uint64_t draws = m == 1 ? 36000 : m == d ? 14000 : 6000;
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
  CAPTURE(feature.projections()(0, 0), feature.projections()(5, 3));
  REQUIRE(std::abs(feature.projections()(0, 0) - 1.699084103238564) <= 1e-14);
  REQUIRE(std::abs(feature.projections()(5, 3) + 1.6012205729686511) <= 1e-14);
  const PositiveRandomFeatures independent(4, 6, {.seed = 5, .orthogonal = false});
  REQUIRE(std::abs(independent.projections()(5, 3) - .3125236059243155) <= 1e-14);
  REQUIRE(feature.fingerprint() == 7262115212855563683);
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
