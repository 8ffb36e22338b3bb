// The definition: in any arithmetic, under any mask, and of what a row sees alone.
#include <sympow/sympow.hpp>
#include "catch.hpp"

#include <limits>

#include <sympow/core/random.hpp>
#include <sympow/verify/direct.hpp>

#include "counted.hpp"
#include "sequences.hpp"

namespace sympow::test {

// What a type of one's own has beside its operators.
inline Counted exp(Counted x) { return std::exp(x.value()); }
inline bool isfinite(Counted x) { return std::isfinite(x.value()); }

}  // namespace sympow::test

using namespace sympow;
using namespace sympow::test;
using namespace sympow::verify;
using Eigen::MatrixXd, Eigen::VectorXd;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// f(transition) for each kind of them.
template <class F>
void each_transition(Random& random, Index d, Index T, const F& f) {
  const VectorXd log_gamma = -.1 * random.vector(T).cwiseAbs(), beta = random.vector(T);
  f(decay(log_gamma));
  f(constant_decay(.9) * rotary(rotary_frequencies<double>(d, 64), beta, Pairing::interleaved));
  f(channel_decay(-.1 * random.matrix(d, T).cwiseAbs()));
  f(decay(log_gamma) * householder(systems::unit_columns(random.matrix(d, T)), 1 + beta.array().tanh()));
}

// Rows in the arithmetic of a type against those in long double.
template <class Real, class F, class A>
double from_long_double(const F& feature, const A& transition, const MatrixXd& Q, const MatrixXd& K,
                        const MatrixXd& V) {
  const auto exact = direct_attention<DefaultNormalization, long double>(feature, transition, Q, K, V);
  const auto rows = direct_attention<DefaultNormalization, Real>(feature, transition, Q, K, V);
  static_assert(std::is_same_v<typename decltype(rows.Y)::Scalar, Real>);
  return row_rule<DefaultNormalization, F>(exact, rows.Y.template cast<long double>(), exact.Y,
                                           static_cast<double>(std::numeric_limits<Real>::epsilon()) / 2);
}

}  // namespace

TEST_CASE("the definition is evaluated in float, double, long double or a type of one's own", "[verify]") {
  constexpr Index d = 4, e = 3, T = 40;
  Random random(1);
  const MatrixXd Q = random.matrix<float>(d, T).cast<double>(), K = random.matrix<float>(d, T).cast<double>(),
                 V = random.matrix<float>(e, T).cast<double>();
  const auto check = [&]<class F>(const F& feature, const auto& transition) {
    for (const double worst : {from_long_double<float>(feature, transition, Q, K, V),
                               from_long_double<double>(feature, transition, Q, K, V)}) {
      CHECK(worst <= 1);
      CHECK(worst > 0);
    }
    const auto own = direct_attention<DefaultNormalization, Counted>(feature, transition, Q, K, V);
    const auto rows = direct_attention(feature, transition, Q, K, V);
    static_assert(std::is_same_v<decltype(rows), const DirectRows<double>>);
    CHECK(own.Y.template cast<double>() == rows.Y);
    CHECK(own.condition.template cast<double>() == rows.condition);
    CHECK(row_rule<DefaultNormalization, F>(own, rows.Y.template cast<Counted>(), own.Y, 0x1p-53) == 0);
  };
  each_transition(random, d, T, [&](const auto& transition) {
    check(Linear{}, transition);
    check(SymmetricPower<2>{}, transition);
    check(Exponential{}, transition);
  });
}

TEST_CASE("the definition is in double unless the queries are larger", "[verify]") {
  const Matrix<float> x = Matrix<float>::Ones(2, 3);
  const auto of_float = direct_attention(Linear{}, stationary(), x, x, x);
  const auto of_long_double =
      direct_attention(Linear{}, stationary(), x.cast<long double>(), x.cast<long double>(), x.cast<long double>());
  CHECK(std::is_same_v<decltype(of_float.Y), Matrix<double>>);
  CHECK(std::is_same_v<decltype(of_long_double.Y), Matrix<long double>>);
}

TEST_CASE("the definition in long double is that of the tests", "[verify]") {
  Random random(2);
  for (const Gates gates : {Gates::slow, Gates::random, Gates::strong, Gates::closed})
    for (const Lengths lengths : {Lengths::ordinary, Lengths::mixed}) {
      const Tokens tokens = sequence(random, 4, 3, 60, gates, lengths);
      const ReferenceRows expected = reference_rows(4, tokens, true);
      tokens.with_transition([&](const auto& transition) {
        const auto rows = direct_attention<DefaultNormalization, long double>(SymmetricPower<4>{}, transition, tokens.Q,
                                                                              tokens.K, tokens.V);
        for (Index i = 0; i < tokens.size(); ++i) {
          CAPTURE(static_cast<int>(gates), static_cast<int>(lengths), i);
          REQUIRE((expected.denominator[i] == 0) == (rows.denominator[i] == 0));
          if (expected.denominator[i] == 0) continue;
          REQUIRE(std::abs(rows.condition[i] / expected.condition(i) - 1) < 1e-15L);
          REQUIRE((rows.Y.col(i) - expected.Y.col(i)).norm() <= 1e-17L * rows.condition[i] * rows.largest_value);
        }
      });
    }
}

TEST_CASE("the definition follows the mask", "[verify]") {
  Random random(3);
  const MatrixXd x = random.matrix(2, 3), v = random.matrix(1, 3);
  const auto scores = [&](Index i, Index keys) {
    double sum = 0, weighted = 0;
    for (Index j = 0; j < keys; ++j) {
      const double score = std::pow(x.col(i).dot(x.col(j)), 2);
      sum += score;
      weighted += score * v(0, j);
    }
    return weighted / sum;
  };
  const auto all = direct_attention(SymmetricPower<2>{}, stationary(), x, x, v, {.mask = full()});
  for (Index i = 0; i < 3; ++i) CHECK(std::abs(all.Y(0, i) - scores(i, 3)) < 1e-14);
  const auto last = direct_attention(SymmetricPower<2>{}, stationary(), x.leftCols(2), x, v, {.mask = causal(1)});
  for (Index i = 0; i < 2; ++i) CHECK(std::abs(last.Y(0, i) - scores(i, i + 2)) < 1e-14);
  const auto before = direct_attention(SymmetricPower<2>{}, stationary(), x, x, v, {.mask = causal(-2)});
  CHECK(before.Y(0, 0) == 0);
  CHECK(degenerate(before, 1, 0x1p-53));
  CHECK(before.Y(0, 2) == v(0, 0));
  CHECK_THROWS_AS(direct_attention(Linear{}, constant_decay(.5), x, x, v, {.mask = full()}), InvalidArgument);
  CHECK_THROWS_AS(direct_attention(Linear{}, stationary(), x.leftCols(2), x, v), ShapeMismatch);
}

TEST_CASE("the definition sees nothing behind a gate of 0, and any weight before it", "[verify]") {
  const MatrixXd q = MatrixXd::Ones(1, 3), k{{1, 2, 0}}, v{{3, 5, 7}};
  MatrixXd hidden_v = v, hidden_k = k;
  hidden_v(0, 0) = std::numeric_limits<double>::quiet_NaN();
  hidden_k(0, 0) = infinity;
  const auto closed = decay(VectorXd{{0, -infinity, 0}}), strong = decay(VectorXd{{0, -1000, -1000}});
  CHECK(direct_attention(SymmetricPower<2>{}, closed, q, hidden_k, hidden_v).Y.rightCols(2) == MatrixXd{{5, 5}});
  const auto rows = direct_attention(SymmetricPower<2>{}, strong, q, k, v);
  CHECK(rows.Y == MatrixXd{{3, 5, 5}});  // e^-1000 and e^-2000 of nothing newer
  CHECK(rows.condition == VectorXd::Ones(3));
}
