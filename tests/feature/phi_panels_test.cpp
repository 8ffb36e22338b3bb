// φ by panels and back: every branch gives the gradients of `embed_vjp`; and embedded scores behind their interface.
#include <array>
#include <cmath>

#include <sympow/feature/linear.hpp>
#include <sympow/feature/phi_panels.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/feature/symmetric_power.hpp>

#include "catch.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;
using sympow::test::Random, sympow::test::unit;

namespace {

/// A power of one's own, without panels.
struct OwnSquare {
  static constexpr Score score = Score::power;
  static constexpr int degree = 2;
  static constexpr bool nonnegative = true;
  [[nodiscard]] Index dimension(Index d) const { return symmetric_dimension(d, 2); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    SymmetricPower<2>{}.embed(x, y);
  }
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, const Y& y, const DY& dy, DX&& dx) const {
    SymmetricPower<2>{}.embed_vjp(x, y, dy, dx);
  }
};

/// φ(x) = [1, √2 x, φ²(x)], κ(s) = (1 + s)².
struct OnePlusSquared {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  [[nodiscard]] Index dimension(Index d) const { return 1 + d + symmetric_dimension(d, 2); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    using Scalar = typename X::Scalar;
    const Matrix<Scalar> tokens = x, squares = symmetric_power<2>(tokens);
    y.row(0).setOnes();
    y.middleRows(1, x.rows()) = std::sqrt(Scalar(2)) * tokens;
    y.bottomRows(squares.rows()) = squares;
  }
  template <class Real>
  [[nodiscard]] Real kappa(Real s) const {
    return (1 + s) * (1 + s);
  }
};
struct OnePlusSquaredWithVjp : OnePlusSquared {
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, const Y& y, const DY& dy, DX&& dx) const {
    using Scalar = typename X::Scalar;
    const Index d = x.rows();
    Matrix<Scalar> squares(d, x.cols());
    SymmetricPower<2>{}.embed_vjp(Matrix<Scalar>(x), y, dy.bottomRows(dy.rows() - 1 - d), squares);
    dx = std::sqrt(Scalar(2)) * dy.middleRows(1, d) + squares;
  }
  template <class Real>
  [[nodiscard]] Real kappa_slope(Real s) const {
    return 2 * (1 + s);
  }
};

/// φ(x) = exp x by entry; its derivative is made of φ itself.
struct ExponentialOfEntries {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  [[nodiscard]] Index dimension(Index d) const { return d; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = x.array().exp().matrix();
  }
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X&, const Y& y, const DY& dy, DX&& dx) const {
    dx = y.cwiseProduct(dy);
  }
};

/// φ(x) = x, as an embedded score.
struct Identity : ExponentialOfEntries {
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = x;
  }
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X&, const Y&, const DY& dy, DX&& dx) const {
    dx = dy;
  }
};

/// Of m tokens with gradients and `others` beside them, with dφ known beforehand.
template <class F, class Scalar>
void check(const F& feature, Index d, Index m, Index others, detail::PhiVjpBuffers<Scalar>& memory) {
  CAPTURE(d, m, others);
  Random random(1);
  const Index D = feature.dimension(d), all = m + others;
  Matrix<Scalar> x = random.matrix<Scalar>(d, all), phi(D, all);
  const Matrix<Scalar> dy = random.matrix<Scalar>(D, m), own = x.leftCols(m);
  feature.embed(x, phi);
  Matrix<Scalar> expected(d, m), larger = Matrix<Scalar>::Constant(d + 1, m + 2, 7), size = expected;
  feature.embed_vjp(own, own, dy, expected);
  feature.embed_vjp(Matrix<Scalar>(own.cwiseAbs()), own, Matrix<Scalar>(dy.cwiseAbs()), size);
  const detail::MatrixView<Scalar> tokens(x), result = detail::MatrixView<Scalar>(larger).block(1, 1, d, m);
  using Entries = detail::Strided<const Scalar*>;
  const auto near_phi = [&](const Entries& entries, Index first, Index width, Index begin, Index count) {
    for (Index k = 0; k < width; ++k)
      for (Index t = 0; t < count; ++t)
        REQUIRE(std::abs(*entries.at(t, k).data - phi(first + k, begin + t)) <=
                20 * F::degree * unit<Scalar> * std::abs(phi(first + k, begin + t)));
  };
  Index next = 0;
  const detail::PassFeatureOf<Scalar, F> of_pass(feature);
  detail::for_phi_panels_vjp<detail::PowerFeature<Scalar>, Scalar>(
      of_pass, memory, tokens.leftCols(m), tokens.rightCols(others), result,
      [&](Index first, Entries of_own, Entries of_others, detail::MatrixView<Scalar> gradients) {
        REQUIRE(first == next);
        REQUIRE(gradients.rows() == m);
        near_phi(of_own, first, gradients.cols(), 0, m);
        near_phi(of_others, first, gradients.cols(), m, others);
        if (m > 0) gradients = dy.middleRows(first, gradients.cols()).transpose();  // what is empty has no memory
        next += gradients.cols();
      });
  REQUIRE(next == D);
  // Each is 2P (d + 5) roundings from the definition.
  const double bound = 4 * F::degree * static_cast<double>(d + 5) * unit<Scalar>;
  for (Index t = 0; t < m; ++t)
    for (Index i = 0; i < d; ++i) REQUIRE(std::abs(result(i, t) - expected(i, t)) <= bound * std::abs(size(i, t)));
  // Without φ the same bits.
  const Matrix<Scalar> beside_phi = result;
  detail::for_phi_gradients<detail::PowerFeature<Scalar>, Scalar>(
      of_pass, memory, tokens.leftCols(m), result, [&](Index first, detail::MatrixView<Scalar> gradients) {
        if (m > 0) gradients = dy.middleRows(first, gradients.cols()).transpose();
      });
  REQUIRE(result == beside_phi);
  larger.block(1, 1, d, m).setConstant(7);
  REQUIRE((larger.array() == 7).all());
}

}  // namespace

TEMPLATE_TEST_CASE("panels of φ give the gradients of the whole", "[feature]", float, double) {
  detail::PhiVjpBuffers<TestType> memory;
  for (const auto& [m, others] : {std::array<Index, 2>{5, 7}, {0, 7}, {3, 9}, {12, 0}, {4, 0}, {2, 2}, {33, 32}}) {
    check(Linear{}, 4, m, others, memory);
    check(SymmetricPower<1>{}, 4, m, others, memory);
    check(SymmetricPower<2>{}, 4, m, others, memory);
    check(SymmetricPower<2>{}, 20, m, others, memory);  // two panels
    check(SymmetricPower<4>{}, 7, m, others, memory);
    check(OwnSquare{}, 4, m, others, memory);
  }
}

TEMPLATE_TEST_CASE("gradients behind the interface are those of φ with its exponents", "[feature]", float, double) {
  using Scalar = TestType;
  const Index d = 3, n = 6;
  const auto check_of = [&](const auto& feature, double size) {
    const detail::PassFeatureOf<Scalar, std::remove_cvref_t<decltype(feature)>> interface(feature);
    const detail::EmbeddedFeature<Scalar>& embedded = interface;
    REQUIRE(embedded.has_vjp());
    const Index D = embedded.dimension(d);
    Random random(2);
    Matrix<Scalar> x = static_cast<Scalar>(size) * random.matrix<Scalar>(d, n), features(D, n), dx(d, n);
    const Matrix<Scalar> d_features = random.matrix<Scalar>(D, n);
    VectorXd exponents(n);
    Vector<Scalar> norms(n);
    embedded.embed(detail::MatrixView<Scalar>(x), detail::MatrixView<Scalar>(features),
                   detail::ColumnView<double>(exponents), detail::ColumnView<Scalar>(norms));
    embedded.embed_vjp(detail::MatrixView<const Scalar>(x), detail::MatrixView<Scalar>(features),
                       detail::ColumnView<const double>(exponents), detail::MatrixView<const Scalar>(d_features),
                       detail::MatrixView<Scalar>(dx));
    // The same in double, φ with no exponents; exact powers of two take nothing away.
    const MatrixXd X = x.template cast<double>();
    MatrixXd dphi = d_features.template cast<double>(), phi(D, n), expected(d, n), sizes(d, n);
    for (Index t = 0; t < n; ++t) dphi.col(t) *= std::exp2(-exponents[t]);
    feature.embed(X, phi);
    feature.embed_vjp(X, phi, dphi, expected);
    for (Index t = 0; t < n; ++t) {
      // Σ of the sizes of all terms is at most ‖dφ‖₁ ‖Dφ‖: here at most 4 ‖φ‖ (1 + 1/‖x‖), and 64 roundings are more
      // than 2P (d + 5) and those of exp.
      const double bound =
          64 * unit<Scalar> * dphi.col(t).cwiseAbs().sum() * 4 * phi.col(t).norm() * (1 + 1 / X.col(t).norm());
      CAPTURE(size, t);
      REQUIRE((dx.col(t).template cast<double>() - expected.col(t)).cwiseAbs().maxCoeff() <= bound);
    }
  };
  for (const double size : {.01, 1., 1e3, 1e8}) check_of(OnePlusSquaredWithVjp{}, size);
  for (const double size : {.01, 1., 20.}) check_of(ExponentialOfEntries{}, size);
  check_of(PositiveRandomFeatures(d, 5), 1);
}

TEST_CASE("a map says what it has", "[feature]") {
  const auto says = [](const auto& feature) {
    const detail::PassFeatureOf<float, std::remove_cvref_t<decltype(feature)>> interface(feature);
    return std::array{interface.has_kappa(), interface.has_vjp(), interface.has_slope()};
  };
  REQUIRE(says(OnePlusSquared{}) == std::array{true, false, false});
  REQUIRE(says(OnePlusSquaredWithVjp{}) == std::array{true, true, true});
  REQUIRE(says(ExponentialOfEntries{}) == std::array{false, true, false});
  REQUIRE(says(PositiveRandomFeatures(2, 3)) == std::array{false, true, false});
}

TEST_CASE("a φ of zeros has a gradient", "[feature]") {
  MatrixXd x = MatrixXd::Zero(2, 1), features(2, 1), dx(2, 1), d_features(2, 1);
  const Identity identity;
  const detail::PassFeatureOf<double, Identity> embedded(identity);
  VectorXd exponents(1), norms(1);
  d_features << 3, 4;
  static_cast<const detail::EmbeddedFeature<double>&>(embedded).embed(
      detail::MatrixView<double>(x), detail::MatrixView<double>(features), detail::ColumnView<double>(exponents),
      detail::ColumnView<double>(norms));
  REQUIRE(exponents[0] == detail::log2_zero);
  embedded.embed_vjp(detail::MatrixView<const double>(x), detail::MatrixView<double>(features),
                     detail::ColumnView<const double>(exponents), detail::MatrixView<const double>(d_features),
                     detail::MatrixView<double>(dx));
  REQUIRE(dx == d_features);
}

TEMPLATE_TEST_CASE("slopes of scores have the scale of the scores", "[feature]", float, double) {
  using Scalar = TestType;
  const OnePlusSquaredWithVjp feature;
  const detail::PassFeatureOf<Scalar, OnePlusSquaredWithVjp> embedded(feature);
  const Index n = 70;  // more than a block of keys
  Random random(3);
  const Matrix<Scalar> logits = random.matrix<Scalar>(n, n);
  const double far = std::numeric_limits<Scalar>::max_exponent * .75;
  for (const bool causal : {false, true})
    for (const double of_keys : {0., 3., std::floor(far)}) {
      VectorXd keys = VectorXd::Constant(n, of_keys), queries = VectorXd::Constant(n, 2 - of_keys);
      keys[1] = detail::log2_zero;
      queries[2] = detail::log2_zero;
      Matrix<Scalar> slopes = logits, scores = logits;
      embedded.set_slopes(detail::MatrixView<Scalar>(slopes), detail::ColumnView<const double>(keys),
                          detail::ColumnView<const double>(queries), causal);
      embedded.set_scores(detail::MatrixView<Scalar>(scores), detail::ColumnView<const double>(keys),
                          detail::ColumnView<const double>(queries), causal);
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) {
          CAPTURE(causal, of_keys, i, j);
          if (causal && j > i) {
            REQUIRE(slopes(j, i) == logits(j, i));
            REQUIRE(scores(j, i) == logits(j, i));
            continue;
          }
          const double exponent = (j == 1 ? 0 : keys[j]) + (i == 2 ? 0 : queries[i]);
          const Scalar slope = feature.kappa_slope(logits(j, i)), score = feature.kappa(logits(j, i));
          REQUIRE(slopes(j, i) == static_cast<Scalar>(std::ldexp(slope, static_cast<int>(-exponent))));
          REQUIRE(scores(j, i) ==
                  (j == 1 || i == 2 ? 0 : static_cast<Scalar>(std::ldexp(score, static_cast<int>(-exponent)))));
        }
    }
}
