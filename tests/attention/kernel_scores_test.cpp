// Embedded scores that have a closed form: the same function, φ only where a state needs it.
#include <sympow/sympow.hpp>

#include "catch.hpp"
#include "from_nothing.hpp"
#include "random.hpp"

#include <sympow/verify/laws.hpp>

using namespace sympow;
using sympow::test::Random;
using sympow::test::recurrent_from_nothing;

namespace {

Index embedded_columns = 0;

/// a_0 + a_1 s + a_2 s²; φ(x) = [√a_0, √a_1 x, √a_2 φ²(x)].
template <int Form>
struct Polynomial {
  static constexpr double a[3] = {Form == 3 ? 0 : 1,
                                  Form == 3   ? 0
                                  : Form == 0 ? 2
                                              : 1,
                                  Form == 2   ? 0
                                  : Form == 1 ? .5
                                              : 1};
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = Form != 2;
  [[nodiscard]] Index dimension(Index d) const { return 1 + d + (Form == 2 ? 0 : symmetric_dimension(d, 2)); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    using Scalar = typename X::Scalar;
    const Matrix<Scalar> keys = x, squares = symmetric_power<2>(keys);
    embedded_columns += keys.cols();
    y.row(0).setConstant(static_cast<Scalar>(std::sqrt(a[0])));
    y.middleRows(1, keys.rows()) = static_cast<Scalar>(std::sqrt(a[1])) * keys;
    if constexpr (Form != 2) y.bottomRows(squares.rows()) = static_cast<Scalar>(std::sqrt(a[2])) * squares;
  }
};

template <int Form>
struct ClosedPolynomial : Polynomial<Form> {
  template <class S>
  S kappa(S s) const {
    if constexpr (Form == 0) return (1 + s) * (1 + s);
    if constexpr (Form == 1) return 1 + s + s * s / 2;
    if constexpr (Form == 2) return 1 + s;
    return s * s;
  }
};

/// Worked out in double whatever it is asked for.
struct InDouble : Polynomial<0> {
  [[nodiscard]] double kappa(double s) const { return (1 + s) * (1 + s); }
};

/// Another function than its embedding.
struct Wrong : Polynomial<0> {
  [[nodiscard]] double kappa(double s) const { return 1 + s * s; }
};

static_assert(KernelFeatureMap<ClosedPolynomial<0>> && KernelFeatureMap<InDouble> && !KernelFeatureMap<Polynomial<0>> &&
              !KernelFeatureMap<SymmetricPower<2>> && !KernelFeatureMap<PositiveRandomFeatures>);

struct Inputs {
  Random random{3};
  Index d = 4, e = 3, T = 150;
  Eigen::MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T);
  Eigen::VectorXd log_gamma = -.05 * random.vector(T).cwiseAbs(), theta = random.vector(d / 2);
};

// All forms against sums over φ.
template <class Normalization = DefaultNormalization, class F>
void check_forms(const F& feature, const Inputs& in, const Options& options = {.chunk = 7}) {
  const auto turning = decay(in.log_gamma) * rotary(in.theta, Pairing::interleaved);
  CHECK(verify::three_forms_law<Normalization>(feature, turning, in.Q, in.K, in.V, options).residual <= 1);
}

}  // namespace

TEST_CASE("scores in closed form are those of the embedding, in every form", "[attention]") {
  Inputs in;
  check_forms(ClosedPolynomial<0>{}, in);
  check_forms(ClosedPolynomial<1>{}, in, {.scale = -.3});
  check_forms(ClosedPolynomial<2>{}, in);
  check_forms<SignedNormalized>(ClosedPolynomial<2>{}, in);
  const Eigen::MatrixXf Q = in.Q.cast<float>(), K = in.K.cast<float>(), V = in.V.cast<float>();
  CHECK(verify::three_forms_law<Unnormalized>(InDouble{}, decay(in.log_gamma), Q, K, V).residual <= 1);
  for (Index t = 0; t < in.T; ++t) {  // κ is not homogeneous: lengths matter
    in.K.col(t) *= std::pow(10, in.random.uniform() * 8 - 4);
    in.Q.col(t) *= std::pow(10, in.random.uniform() * 8 - 4);
  }
  check_forms(ClosedPolynomial<0>{}, in);
}

TEST_CASE("a score in closed form is as exact as its logit", "[attention]") {
  // q·k = -1 at every pair: κ is 0, and the row means nothing; √2 √2 is not 2, and φ does not see it.
  const Index T = 5;
  const Eigen::MatrixXd Q = Eigen::Vector3d(3, 5, 7).replicate(1, T), K = Eigen::Vector3d(9, 7, -9).replicate(1, T),
                        V = Eigen::MatrixXd::Ones(2, T);
  Diagnostics said;
  for (const bool chunks : {false, true}) {
    const Eigen::MatrixXd Y = chunks ? chunked(ClosedPolynomial<0>{}, stationary(), Q, K, V, {.diagnostics = &said})
                                     : attention(ClosedPolynomial<0>{}, stationary(), Q, K, V, {.diagnostics = &said});
    CHECK(Y.isZero(0));
    CHECK((said.log_sum.array() == -std::numeric_limits<double>::infinity()).all());
    CHECK(said.is_degenerate.all());
  }
}

TEST_CASE("a closed form that is not that of the embedding is found by the law", "[attention]") {
  const Inputs in;
  CHECK(verify::three_forms_law(Wrong{}, decay(in.log_gamma), in.Q, in.K, in.V).residual > 1e6);
}

TEST_CASE("only what a state folds or reads is embedded", "[attention]") {
  const Inputs in;
  const auto embedded = [&](const auto& run) {
    embedded_columns = 0;
    (void)run();
    return embedded_columns;
  };
  const ClosedPolynomial<1> feature;
  CHECK(embedded([&] { return attention(feature, decay(in.log_gamma), in.Q, in.K, in.V); }) == 0);
  CHECK(embedded([&] { return attention(Polynomial<1>{}, decay(in.log_gamma), in.Q, in.K, in.V); }) == 2 * in.T);
  // Each query and key at its token, and keys once more when the tail is full.
  CHECK(embedded([&] { return recurrent_from_nothing(feature, decay(in.log_gamma), in.Q, in.K, in.V); }) <= 3 * in.T);
  CHECK(embedded([&] { return recurrent_from_nothing(Polynomial<1>{}, decay(in.log_gamma), in.Q, in.K, in.V); }) >
        10 * in.T);
}

TEST_CASE("masks, splits and merges under a score in closed form", "[attention]") {
  const Inputs in;
  const ClosedPolynomial<0> feature;
  const auto A = rotary(in.theta, Pairing::interleaved);
  CHECK(verify::splitting_law(
            feature, [&](Segment s) { return decay(in.log_gamma.segment(s.begin, s.size)); }, in.Q, in.K, in.V, 61)
            .residual <= 1);
  const auto full = attention(feature, A, in.Q, in.K, in.V, {.mask = sympow::full()});
  CHECK((full - attention(Polynomial<0>{}, A, in.Q, in.K, in.V, {.mask = sympow::full()})).norm() <= 1e-12);
  CHECK((full - chunked(feature, A, in.Q, in.K, in.V, {.mask = sympow::full()})).norm() <= 1e-12);
  const Index half = 70, rest = in.T - half;
  const auto few = attention(feature, A, in.Q.rightCols(rest), in.K, in.V, {.mask = causal(half)});
  CHECK((few - attention(feature, A, in.Q, in.K, in.V).rightCols(rest)).norm() <= 1e-12);

  using StateType = State<double, ClosedPolynomial<0>>;
  StateType left(in.d, in.e, 8), whole = left;
  (void)chunked(feature, A, in.Q.leftCols(half), in.K.leftCols(half), in.V.leftCols(half), left);
  StateType right(in.d, in.e, 8, left.frame());
  (void)recurrent(feature, A, in.Q.rightCols(rest), in.K.rightCols(rest), in.V.rightCols(rest), right);
  (void)chunked(feature, A, in.Q, in.K, in.V, whole);
  CHECK((merge(left, right).values() - whole.values()).norm() <= 1e-13 * whole.values().norm());
}

TEST_CASE("lengths at which κ is 0, and numbers that are none, show where they are seen", "[attention]") {
  Inputs in;
  in.K.col(3).setZero();
  in.Q.col(5).setZero();
  check_forms(ClosedPolynomial<1>{}, in);
  check_forms(ClosedPolynomial<3>{}, in);
  in.K.col(20)[1] = std::numeric_limits<double>::quiet_NaN();
  const Eigen::MatrixXd Y = attention(ClosedPolynomial<1>{}, decay(in.log_gamma), in.Q, in.K, in.V);
  CHECK(Y.leftCols(20).allFinite());
  CHECK(Y.rightCols(in.T - 20).array().isNaN().all());
}

TEST_CASE("lengths whose powers leave the type cancel in a score that does not", "[attention]") {
  Random random(11);
  const Matrix<float> Q = random.matrix<float>(4, 70), K = random.matrix<float>(4, 70), V = random.matrix<float>(3, 70);
  for (const float size : {1e-19f, 1e-9f, 1e9f, 1e19f}) {
    const Matrix<float> y = attention(ClosedPolynomial<3>{}, stationary(), size * Q, K / size, V),
                        expected = attention(SymmetricPower<2>{}, stationary(), size * Q, K / size, V);
    CAPTURE(size);
    CHECK((y - expected).norm() <= 1e-5f * expected.norm());
  }
}

TEST_CASE("an embedding of impossible size is an error before anything is written", "[attention]") {
  struct Sized : Polynomial<0> {
    Index D = 0;
    [[nodiscard]] Index dimension(Index) const { return D; }
  };
  const Matrix<double> x = Matrix<double>::Ones(3, 5);
  Sized feature;
  feature.D = -3;
  CHECK_THROWS_AS(attention(feature, stationary(), x, x, x), InvalidArgument);
  feature.D = std::numeric_limits<Index>::max() / 4;
  CHECK_THROWS_AS(attention(feature, stationary(), x, x, x), DimensionOverflow);
}
