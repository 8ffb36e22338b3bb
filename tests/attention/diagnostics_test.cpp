// Diagnostics say what the definition says, in every form and for every feature map, and change nothing.
#include <vector>

#include <sympow/sympow.hpp>
#include "catch.hpp"
#include "elu_plus_one.hpp"
#include "random.hpp"

#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

using namespace sympow;
using sympow::test::EluPlusOne, sympow::test::Random;

namespace {

constexpr Index d = 4, e = 3, T = 150;

// Σ_j s_ij and Σ_j of the absolute weights in long double, for gates and no turning (a rotation keeps lengths).
struct Sums {
  long double denominator = 0, weight = 0;
};

template <class F, class Scalar>
Sums sums_of(const F& feature, const Matrix<Scalar>& Q, const Matrix<Scalar>& K, const Eigen::VectorXd& log_gamma,
             Index i, double scale, bool weights_only) {
  Sums sums;
  long double log_b = 0;
  for (Index j = i; j >= 0; log_b += static_cast<long double>(log_gamma[j]), --j) {
    const Eigen::VectorXd q = Q.col(i).template cast<double>(), k = K.col(j).template cast<double>();
    const long double b = std::exp(log_b), s = scale * q.dot(k), lengths = std::abs(scale) * q.norm() * k.norm();
    if constexpr (F::score == Score::power) {
      sums.denominator += weights_only ? 0 : b * integer_power(s, F::degree);
      sums.weight += b * integer_power(lengths, F::degree);
    } else if constexpr (F::score == Score::exponential) {
      sums.denominator += b * std::exp(s);
      sums.weight += b * std::exp(s) * (1 + lengths);
    } else {
      Matrix<double> phi_q(d, 1), phi_k(d, 1);
      feature.embed(Matrix<double>(scale * q), phi_q);  // the scale is part of the query here
      feature.embed(Matrix<double>(k), phi_k);
      sums.denominator += b * phi_q.col(0).dot(phi_k.col(0));
      sums.weight += b * phi_q.norm() * phi_k.norm();
    }
  }
  return sums;
}

// Runs every form that there is with and without diagnostics.
template <class Normalization, class Scalar, class F, class A, class Check>
void each_form(const F& feature, const A& transition, const Matrix<Scalar>& Q, const Matrix<Scalar>& K,
               const Matrix<Scalar>& V, double scale, Check&& check) {
  Diagnostics diagnostics;  // of another size, full of something else
  diagnostics.log_sum = diagnostics.condition = Eigen::VectorXd::Constant(2, 7);
  diagnostics.is_degenerate.setConstant(2, true);
  const Options silent{.scale = scale, .chunk = 20}, talking{.scale = scale, .chunk = 20, .diagnostics = &diagnostics};
  const auto compare = [&](const char* form, const auto& call) {
    CAPTURE(form, F::score, sizeof(Scalar));
    const Matrix<Scalar> Y = call(talking);
    REQUIRE(Y == call(silent));
    REQUIRE(diagnostics.log_sum.size() == T);
    REQUIRE(diagnostics.condition.size() == T);
    REQUIRE(diagnostics.is_degenerate.size() == T);
    check(diagnostics);
  };
  compare("attention",
          [&](const Options& options) { return attention<Normalization>(feature, transition, Q, K, V, options); });
  if constexpr (FiniteFeatureMap<F>) {
    compare("chunked",
            [&](const Options& options) { return chunked<Normalization>(feature, transition, Q, K, V, options); });
    for (const Index tail : {0, 8, 32})
      compare("recurrent", [&](const Options& options) {
        State<Scalar, F> state(feature, d, e, tail);
        return recurrent<Normalization>(feature, transition, Q, K, V, state, options);
      });
  }
}

template <class Normalization, class Scalar, class F>
void check_feature(const F& feature, double scale) {
  Random random(3);
  const auto Q = random.matrix<Scalar>(d, T), K = random.matrix<Scalar>(d, T), V = random.matrix<Scalar>(e, T);
  const Eigen::VectorXd log_gamma = -.1 * random.vector(T).cwiseAbs();
  constexpr double u = std::numeric_limits<Scalar>::epsilon() / 2;
  const auto check = [&](bool turning) {
    std::vector<Sums> of_rows;
    for (Index i = 0; i < T; ++i) of_rows.push_back(sums_of(feature, Q, K, log_gamma, i, scale, turning));
    return [=](const Diagnostics& found) {
      for (Index i = 0; i < T; ++i) {
        const Sums& sums = of_rows[static_cast<std::size_t>(i)];
        const double size = turning ? std::exp(found.log_sum[i]) : static_cast<double>(std::abs(sums.denominator));
        const double condition = static_cast<double>(sums.weight) / size, unit = 16 * u * condition * 4;
        CAPTURE(i, condition, turning);
        if (!turning) REQUIRE(std::abs(found.log_sum[i] - std::log(size)) <= unit);
        REQUIRE(std::abs(found.condition[i] / condition - 1) <= unit + 64 * u);
        REQUIRE(found.is_degenerate[i] == (16 * u * condition >= 1));
      }
    };
  };
  each_form<Normalization, Scalar>(feature, decay(log_gamma), Q, K, V, scale, check(false));
  if constexpr (F::score == Score::power) {
    const auto turned = decay(log_gamma) * rotary(rotary_frequencies<double>(d, 64), Pairing::interleaved);
    each_form<Normalization, Scalar>(feature, turned, Q, K, V, scale, check(true));
  }
}

}  // namespace

TEST_CASE("diagnostics are the denominator and the condition number, and outputs do not depend on them",
          "[attention]") {
  check_feature<Normalized, double>(SymmetricPower<2>{}, 1);
  check_feature<Unnormalized, double>(SymmetricPower<2>{}, .5);
  check_feature<Normalized, float>(SymmetricPower<4>{}, -.3);
  check_feature<SignedNormalized, double>(SymmetricPower<3>{}, -2);
  check_feature<Normalized, float>(Exponential{}, .5);
  check_feature<Normalized, double>(EluPlusOne{}, 2);
}

TEST_CASE("under channel decay the condition number is an upper bound", "[attention]") {
  Random random(4);
  const Eigen::MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T);
  const Eigen::MatrixXd log_a = -.1 * random.matrix(d, T).cwiseAbs();
  each_form<Normalized, double>(SymmetricPower<2>{}, channel_decay(log_a), Q, K, V, 1, [&](const Diagnostics& found) {
    Eigen::MatrixXd k = K;
    for (Index i = 0; i < T; ++i) {
      k.leftCols(i).array().colwise() *= log_a.col(i).array().exp();
      const auto seen = k.leftCols(i + 1);
      const double denominator = (seen.transpose() * Q.col(i)).array().square().sum();
      const double condition = Q.col(i).squaredNorm() * seen.colwise().squaredNorm().sum() / denominator;
      REQUIRE(std::abs(found.log_sum[i] - std::log(denominator)) <= 1e-13 * condition);
      REQUIRE(found.condition[i] >= condition * (1 - 1e-14 * condition));
      REQUIRE(found.condition[i] <= 1e3 * condition);
    }
  });
}

TEST_CASE("rows without weight say so: no denominator, no condition, a flag unless they are sums", "[attention]") {
  Random random(5);
  Eigen::MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T);
  const Eigen::MatrixXd V = random.matrix(e, T);
  Q.col(70).setZero();
  K.leftCols(3).setZero();
  const auto check = [](bool flag) {
    return [flag](const Diagnostics& found) {
      for (const Index i : {0, 1, 2, 70}) {
        REQUIRE(found.log_sum[i] == -std::numeric_limits<double>::infinity());
        REQUIRE(found.condition[i] == 0);
        REQUIRE(found.is_degenerate[i] == flag);
      }
      REQUIRE((found.is_degenerate == flag).count() == (flag ? 4 : T));
    };
  };
  each_form<Normalized, double>(SymmetricPower<2>{}, constant_decay(.99), Q, K, V, 1, check(true));
  each_form<Unnormalized, double>(SymmetricPower<2>{}, constant_decay(.99), Q, K, V, 1, check(false));
}

TEST_CASE("a row whose scores cancel is flagged by the forms that cannot tell it from zero", "[attention]") {
  Eigen::MatrixXd Q(2, 2), K(2, 2);
  const Eigen::MatrixXd V = Eigen::MatrixXd::Ones(1, 2);
  Q << 1, 1, 0, 0;
  K << 1e-12, 1e-12, 1, 1;  // orthogonal to the query but for 1e-12: through φ this is noise, directly it is not
  Diagnostics direct, literal;
  State<double, SymmetricPower<2>> state(2, 1, 0);
  REQUIRE(attention(SymmetricPower<2>{}, stationary(), Q, K, V, {.diagnostics = &direct}).isApproxToConstant(1));
  REQUIRE(recurrent(SymmetricPower<2>{}, stationary(), Q, K, V, state, {.diagnostics = &literal}).isZero(0));
  REQUIRE(!direct.is_degenerate.any());
  REQUIRE(literal.is_degenerate.all());
}
