// Feature maps: inner products of embeddings are the scores; derivatives, of all maps that have one, against dual
// numbers in long double.
#include <cmath>
#include <vector>

#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/simd/integer_power.hpp>

#include "catch.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains, sympow::test::Random, sympow::test::unit;

namespace {

struct Squared {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  [[nodiscard]] Index dimension(Index d) const { return d; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = x.cwiseAbs2();
  }
  [[nodiscard]] double kappa(double s) const { return s; }  // of some other map: only the types are looked at
};
struct Sloped : Squared {
  [[nodiscard]] double kappa_slope(double) const { return 1; }
};

static_assert(FiniteFeatureMap<Linear> && FiniteFeatureMap<SymmetricPower<3>>);
static_assert(FeatureMap<Exponential> && !FiniteFeatureMap<Exponential> && !FeatureMap<int>);
static_assert(SymmetricPower<2>::nonnegative && !SymmetricPower<3>::nonnegative && !Linear::nonnegative &&
              Exponential::nonnegative);
static_assert(FeatureMapWithVjp<Linear> && FeatureMapWithVjp<SymmetricPower<1>> &&
              FeatureMapWithVjp<SymmetricPower<4>>);
static_assert(FeatureMapWithVjp<PositiveRandomFeatures> && FeatureMapWithVjp<TrigonometricRandomFeatures> &&
              FeatureMapWithVjp<HyperbolicRandomFeatures>);
static_assert(!FeatureMapWithVjp<Exponential> && !FeatureMapWithVjp<Squared>);
static_assert(KernelFeatureMap<Squared> && !KernelWithSlope<Squared> && KernelWithSlope<Sloped> &&
              !KernelWithSlope<SymmetricPower<2>>);

using Exact = long double;

/// value + slope ε, ε² = 0.
struct Dual {
  Exact value = 0, slope = 0;
};
Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
Dual operator-(Dual a) { return {-a.value, -a.slope}; }
Dual operator-(Dual a, Dual b) { return a + -b; }
Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.value * b.slope + a.slope * b.value}; }
Dual exp(Dual a) { return {std::exp(a.value), std::exp(a.value) * a.slope}; }
Dual cos(Dual a) { return {std::cos(a.value), -std::sin(a.value) * a.slope}; }
Dual sin(Dual a) { return {std::sin(a.value), std::cos(a.value) * a.slope}; }

/// φ(x + ε e_i) by the formulas.
template <class F>
std::vector<Dual> by_formula(const F& feature, const Vector<double>& x, Index i) {
  const Matrix<double>& W = feature.projections();
  const auto along = [&](Index j) { return Dual{x[j], j == i ? Exact(1) : Exact(0)}; };
  Dual half;
  for (Index j = 0; j < x.size(); ++j) half = half + Dual{Exact(.5)} * along(j) * along(j);
  std::vector<Dual> first, second;
  for (Index r = 0; r < W.rows(); ++r) {
    Dual p;
    for (Index j = 0; j < x.size(); ++j) p = p + Dual{W(r, j)} * along(j);
    if (F::kind == RandomFeatureKind::trigonometric) {
      first.push_back(exp(half) * cos(p));
      second.push_back(exp(half) * sin(p));
    } else {
      first.push_back(exp(p - half));
      if (F::kind == RandomFeatureKind::hyperbolic) second.push_back(exp(-p - half));
    }
  }
  first.insert(first.end(), second.begin(), second.end());
  const Exact count = static_cast<Exact>((F::kind == RandomFeatureKind::hyperbolic ? 2 : 1) * W.rows());
  for (Dual& entry : first) entry = Dual{1 / std::sqrt(count)} * entry;
  return first;
}

template <class Visitor>
void every_kind(Visitor&& visit) {
  visit.template operator()<PositiveRandomFeatures>();
  visit.template operator()<TrigonometricRandomFeatures>();
  visit.template operator()<HyperbolicRandomFeatures>();
}

/// dx against Σ_r dφ_r ∂φ_r/∂x_i, φ = 2^exponents y and dφ = 2^-exponents dy.
template <class F, class Scalar>
void check(const F& feature, const Matrix<Scalar>& x, const Matrix<Scalar>& y, const Vector<double>& exponents,
           const Matrix<Scalar>& dy) {
  Matrix<Scalar> larger = Matrix<Scalar>::Constant(x.rows() + 2, x.cols() + 1, 7);
  feature.embed_vjp(x, y, dy, larger.block(1, 0, x.rows(), x.cols()));
  const Matrix<Scalar> dx = larger.block(1, 0, x.rows(), x.cols());
  larger.block(1, 0, x.rows(), x.cols()).setConstant(7);
  REQUIRE((larger.array() == 7).all());
  const double longest = feature.projections().rowwise().norm().maxCoeff(), d = static_cast<double>(x.rows());
  const double blocks = static_cast<double>(feature.projections().rows()) / 64 + 70;
  for (Index t = 0; t < x.cols(); ++t) {
    const Vector<double> token = x.col(t).template cast<double>(), gradient = dy.col(t).template cast<double>();
    // An entry of φ is 8 roundings of the scalar from the formula beside the largest, and has the error of its exponent
    // in double; what is multiplied by it has the size ‖w‖ + ‖x‖.
    const double norm = token.norm(), of_exponents = (d + 8) * (longest * norm + norm * norm);
    const double relative = 9 * unit<Scalar> + (of_exponents + blocks) * unit<double>;
    const double top = y.col(t).cwiseAbs().template cast<double>().maxCoeff();
    const double bound = relative * top * gradient.cwiseAbs().sum() * 2 * (longest + norm);
    for (Index i = 0; i < x.rows(); ++i) {
      const std::vector<Dual> phi = by_formula(feature, token, i);
      Exact expected = 0;
      for (std::size_t r = 0; r < phi.size(); ++r)
        expected += static_cast<Exact>(gradient[static_cast<Index>(r)]) *
                    (std::ldexp(phi[r].slope, static_cast<int>(-exponents[t])));
      CAPTURE(F::kind, x.rows(), y.rows(), t, i, dx(i, t), static_cast<double>(expected));
      REQUIRE(std::abs(static_cast<double>(static_cast<Exact>(dx(i, t)) - expected)) <= bound);
    }
  }
}

template <class F>
void check_score(const F& feature) {
  Random random(3);
  for (const Index d : {1, 2, 5, 8}) {
    const Eigen::MatrixXd Q = random.matrix(d, 7), K = random.matrix(d, 9);
    Eigen::MatrixXd q(feature.dimension(d), 7), k(feature.dimension(d), 9);
    feature.embed(Q, q);
    feature.embed(K, k);
    for (Index i = 0; i < 7; ++i)
      for (Index j = 0; j < 9; ++j) {
        CAPTURE(d, i, j, F::degree);
        // The sum over D terms is relative to (Σ |q||k|)^P; P roundings a term and its factors.
        const double size = integer_power(Q.col(i).cwiseAbs().dot(K.col(j).cwiseAbs()), F::degree);
        const double bound = (4 * F::degree + static_cast<double>(q.rows())) * 1.2e-16 * size;
        REQUIRE(std::abs(q.col(i).dot(k.col(j)) - integer_power(Q.col(i).dot(K.col(j)), F::degree)) <= bound);
      }
  }
}

}  // namespace

TEST_CASE("inner products of embeddings are the scores", "[feature]") {
  check_score(Linear{});
  check_score(SymmetricPower<2>{});
  check_score(SymmetricPower<3>{});
}

TEMPLATE_TEST_CASE("derivatives of random features are those of the formulas", "[feature]", float, double) {
  Random random(1);
  every_kind([&]<class F>() {
    for (const Index d : {1, 3, 64, 65})
      for (const Index m : {1, 5, 65, 130}) {
        const F feature(d, m, {.seed = 7});
        const Index n = d > 10 ? 2 : 17, D = feature.dimension(d);
        const double size = 1 / std::sqrt(static_cast<double>(d));
        const Matrix<TestType> x = (size * random.matrix(d, n)).template cast<TestType>();
        const Matrix<TestType> dy = random.matrix<TestType>(D, n);
        Matrix<TestType> y(D, n);
        feature.embed(x, y);
        check<F, TestType>(feature, x, y, Vector<double>::Zero(n), dy);
      }
  });
}

TEMPLATE_TEST_CASE("and with exponents apart, however long x is", "[feature]", float, double) {
  Random random(2);
  every_kind([&]<class F>() {
    const Index d = 6, m = 70, n = 20;
    const F feature(d, m);
    const Index D = feature.dimension(d);
    Matrix<TestType> x = random.matrix<TestType>(d, n), y(D, n);
    for (Index t = 0; t < n; ++t) x.col(t) *= static_cast<TestType>(2 * t) / x.col(t).norm();  // φ is e^{±700} or so
    Vector<double> exponents(n);
    feature.embed(x, y, exponents);
    REQUIRE(exponents.cwiseAbs().maxCoeff() > 400);
    const Matrix<TestType> dy = random.matrix<TestType>(D, n);
    check<F, TestType>(feature, x, y, exponents, dy);
    // Powers of two cancel bit for bit.
    Matrix<TestType> dx(d, n), same(d, n);
    feature.embed_vjp(x, y, dy, dx);
    feature.embed_vjp(x, Matrix<TestType>(y / 1024), Matrix<TestType>(dy * 1024), same);
    REQUIRE(dx == same);
  });
}

TEST_CASE("parts of matrices and expressions are taken as embed takes them", "[feature]") {
  Random random(3);
  const Matrix<double> X = random.matrix(9, 8), dY = random.matrix(50, 8);
  const auto agree = [&](const auto& feature) {
    const Index D = feature.dimension(5);
    const Matrix<double> x = X.block(2, 1, 5, 6), dy = dY.block(3, 2, D, 6);
    Matrix<double> y(D, 6), dx(5, 6), other(5, 6);
    feature.embed(x, y);
    feature.embed_vjp(x, y, dy, dx);
    feature.embed_vjp(X.block(2, 1, 5, 6), y, dY.block(3, 2, D, 6), other);
    REQUIRE(other == dx);
    other.setZero();
    feature.embed_vjp(detail::MatrixView<const double>(x), detail::MatrixView<const double>(y),
                      detail::MatrixView<const double>(dy), detail::MatrixView<double>(other));
    REQUIRE(other == dx);
  };
  agree(Linear{});
  agree(SymmetricPower<1>{});
  agree(SymmetricPower<2>{});
  agree(SymmetricPower<3>{});
  agree(PositiveRandomFeatures(5, 20));
  agree(TrigonometricRandomFeatures(5, 20));
  agree(HyperbolicRandomFeatures(5, 20));
  const Matrix<double> dy = dY.topRows(15);
  Matrix<double> dx(5, 8), other(5, 8);
  SymmetricPower<2>{}.embed_vjp(Matrix<double>(2 * X.topRows(5)), dy, dy, dx);
  SymmetricPower<2>{}.embed_vjp(2 * X.topRows(5), dy, dY.topRows(15), other);
  REQUIRE(other == dx);
}

TEST_CASE("the identity passes gradients on", "[feature]") {
  const Matrix<float> x = Random(4).matrix<float>(3, 4), dy = Random(5).matrix<float>(3, 4);
  Matrix<float> dx(3, 4);
  Linear{}.embed_vjp(x, x, dy, dx);
  REQUIRE(dx == dy);
  dx.setZero();
  SymmetricPower<1>{}.embed_vjp(x, x, dy, dx);
  REQUIRE(dx == dy);
}

TEST_CASE("gradients of shapes that do not belong together are refused", "[feature]") {
  const auto refuse = [&](const auto& feature) {
    const Index D = feature.dimension(3);
    const Matrix<double> x = Matrix<double>::Ones(3, 2), y = Matrix<double>::Ones(D, 2);
    Matrix<double> dx(3, 2), narrow(3, 1), low(2, 2);
    REQUIRE_THROWS_WITH(feature.embed_vjp(x, y, Matrix<double>::Ones(D + 1, 2).eval(), dx), contains("rows of dy"));
    REQUIRE_THROWS_AS(feature.embed_vjp(x, y, Matrix<double>::Ones(D, 3).eval(), dx), ShapeMismatch);
    REQUIRE_THROWS_WITH(feature.embed_vjp(x, y, y, narrow), contains("columns of dx"));
    REQUIRE_THROWS_WITH(feature.embed_vjp(x, y, y, low), contains("rows of dx"));
  };
  refuse(Linear{});
  refuse(SymmetricPower<1>{});
  refuse(SymmetricPower<3>{});
  refuse(PositiveRandomFeatures(3, 4));
  const Matrix<double> x = Matrix<double>::Ones(2, 2), y = Matrix<double>::Ones(4, 2);
  Matrix<double> dx(2, 2);
  REQUIRE_THROWS_AS(PositiveRandomFeatures(3, 4).embed_vjp(x, y, y, dx), ShapeMismatch);
}
