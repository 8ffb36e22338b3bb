// Inputs at the ends of the type, and sums whose exponents are far from 0: nothing overflows, nothing is lost.
#include <limits>
#include <vector>

#include "catch.hpp"
#include "distance.hpp"
#include "forms.hpp"
#include "random.hpp"

#include <sympow/feature/exponential.hpp>
#include <sympow/verify/direct.hpp>
#include <sympow/verify/proposition.hpp>

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double largest_float = std::numeric_limits<float>::max();

// Every form finite and by the row rule.
template <class Scalar, int P>
void check(const Tokens& tokens) {
  const auto verdicts = judge_forms<Scalar, SymmetricPower<P>>(tokens, 5);
  for (std::size_t form = 0; form < verdicts.size(); ++form) {
    CAPTURE(P, sizeof(Scalar), form_names[form], verdicts[form].row);
    CHECK(verdicts[form].worst <= 1);
  }
}

}  // namespace

TEST_CASE("a closed gate before nothing but zero keys empties the state for good", "[attention]") {
  Random random(1);
  Tokens tokens{random.matrix(3, 30), random.matrix(3, 30), random.matrix(2, 30), Eigen::VectorXd::Zero(30)};
  tokens.K.middleCols(10, 10).setZero();
  tokens.log_gamma[10] = -infinity;
  check<double, 2>(tokens);
  check<float, 3>(tokens);
  State<double, SymmetricPower<2>> state(3, 2, 4);  // folds within the zero keys
  const Result<double> result = run(tokens, state, 0);
  REQUIRE(result.Y.allFinite());
  REQUIRE(result.Y.middleCols(10, 10).isZero(0));
  REQUIRE(state.values().allFinite());
}

TEST_CASE("queries, keys and values as large as the type", "[attention]") {
  Random random(2);
  for (const Index d : {1, 4, 9}) {
    Tokens tokens{random.matrix(d, 40), random.matrix(d, 40), random.matrix(2, 40)};
    for (Eigen::MatrixXd* x : {&tokens.Q, &tokens.K, &tokens.V})
      *x = x->unaryExpr([](double v) { return std::copysign(.9 * largest_float, v); });
    check<float, 2>(tokens);
    check<float, 8>(tokens);
    tokens.V.rightCols(20) *= 1e-30;  // and small values after them
    check<float, 2>(tokens);
  }
  const Eigen::MatrixXf large = Eigen::MatrixXf::Constant(4, 40, .9F * std::numeric_limits<float>::max());
  REQUIRE(attention(Exponential{}, stationary(), large, large, large).allFinite());
  REQUIRE(attention(Exponential{}, stationary(), large, (-large).eval(), large, {.scale = 1e300}).allFinite());
}

TEST_CASE("an exponential score sees products of scale, query and key, not their sizes", "[attention]") {
  Random random(6);
  const Eigen::MatrixXf Q = random.matrix<float>(4, 90), K = random.matrix<float>(4, 90),
                        V = random.matrix<float>(2, 90);
  const Eigen::MatrixXf Y = attention(Exponential{}, constant_decay(.9), Q, K, V, {.scale = .5});
  const auto check_sizes = [&](int of_scale, int of_query, int of_key) {
    CAPTURE(of_scale, of_query, of_key);
    const auto times = [](const Eigen::MatrixXf& x, int n) {
      return x.unaryExpr([=](float entry) { return sympow::detail::times_power_of_two(entry, n); }).eval();
    };
    REQUIRE(attention(Exponential{}, constant_decay(.9), times(Q, of_query), times(K, of_key), V,
                      {.scale = std::ldexp(.5, of_scale)}) == Y);
  };
  check_sizes(-83, 0, 83);
  check_sizes(83, 0, -83);
  check_sizes(0, -83, 83);
  check_sizes(0, 83, -83);
  check_sizes(-200, 90, 110);
  check_sizes(180, -90, -90);
}

TEST_CASE("sums of exponential scores keep their digits where values are near the largest number", "[attention]") {
  Random random(7);
  const Eigen::MatrixXd Q = random.matrix(3, 80), K = random.matrix(3, 80), V = random.matrix(2, 80);
  const Eigen::MatrixXd Y = attention<Unnormalized>(Exponential{}, constant_decay(.5), Q, K, V, {.scale = .1});
  const double huge = std::ldexp(1, 1016);
  const Eigen::MatrixXd large =
      attention<Unnormalized>(Exponential{}, constant_decay(.5), Q, K, (V * huge).eval(), {.scale = .1});
  const Eigen::MatrixXd small =
      attention<Unnormalized>(Exponential{}, constant_decay(.5), Q, K, (V / huge).eval(), {.scale = .1});
  REQUIRE((large / huge - Y).cwiseAbs().maxCoeff() <= 4e-15);
  REQUIRE((small * huge - Y).cwiseAbs().maxCoeff() <= 4e-15);
}

TEST_CASE("denormal queries, keys and values", "[attention]") {
  Random random(3);
  Tokens tokens{random.matrix(3, 40) * 1e-40, random.matrix(3, 40) * 1e-41, random.matrix(2, 40)};
  check<float, 2>(tokens);
  check<float, 3>(tokens);
  tokens.V *= 1e-38;
  check<float, 2>(tokens);
}

TEST_CASE("a row that sees only what is far below the keys it is orthogonal to is degenerate in every form",
          "[attention]") {
  // What it sees has decayed by e^-1000 beside them: its condition number is beyond the digits of every type.
  Eigen::MatrixXd K(2, 3), V(1, 3), Q(2, 3);
  K << 1, 0, 0, 0, 1, 1;
  Q << 1, 1, 1, 1, 1, 0;
  V << 7, 1, 2;
  const Tokens tokens{Q, K, V, Eigen::Vector3d(0, -1000, -500)};
  const auto seen = [&]<class Scalar, int P>(Scalar, std::integral_constant<int, P>) {
    State<Scalar, SymmetricPower<P>> state(2, 1);
    for (const auto& rows : {run_attention_form<Scalar, SymmetricPower<P>>(tokens), run(tokens, state, 0)}) {
      CHECK(rows.Y(0, 2) == 0);
      CHECK(rows.diagnostics.is_degenerate[2]);
    }
  };
  seen(float{}, std::integral_constant<int, 2>{});
  seen(float{}, std::integral_constant<int, 8>{});
  seen(double{}, std::integral_constant<int, 2>{});
}

TEST_CASE("a state says its sums, infinite where they do not fit and zero where they are", "[attention]") {
  State<float, SymmetricPower<8>> state(2, 1);
  const Eigen::Vector2f key(1e30F, 0);
  static_cast<void>(recurrent(SymmetricPower<8>{}, stationary(), key, key, Eigen::VectorXf::Ones(1), state));
  const Eigen::MatrixXf sums = state.values();
  REQUIRE(std::isinf(sums(0, 0)));
  REQUIRE(sums.rightCols(sums.cols() - 1).isZero(0));
}

TEST_CASE("channels that forget let small keys take over from large ones", "[attention]") {
  Random random(6);
  for (const double rate : {.2, 5.0}) {
    Tokens tokens{random.matrix(3, 120), random.matrix(3, 120), random.matrix(2, 120)};
    tokens.K.leftCols(20) *= 1e6;
    tokens.K.rightCols(100) *= 1e-6;
    tokens.log_a = Eigen::MatrixXd::Constant(3, 120, -rate);
    check<float, 8>(tokens);
    check<float, 2>(tokens);
    check<double, 3>(tokens);
  }
  // Through the tail, too: nothing but zero keys for longer than float could hold the decay.
  Tokens tokens{random.matrix(3, 20), random.matrix(3, 20), random.matrix(2, 20)};
  tokens.log_a = Eigen::MatrixXd::Constant(3, 20, -40);
  tokens.K.rightCols(19).setZero();
  State<float, SymmetricPower<2>> state(3, 2);
  const Result<float> result = run(tokens, state, 0);
  for (Index t = 0; t < 20; ++t) CHECK(result.Y.col(t).isApprox(tokens.V.col(0).cast<float>()));
}

TEMPLATE_TEST_CASE("a gate that all keys which matter have in common rounds no logit of a softmax", "[attention]",
                   float, double) {
  const auto check = [](const Matrix<TestType>& Q, const Matrix<TestType>& K, const Matrix<TestType>& V,
                        const Eigen::VectorXd& log_gamma) {
    const auto rows = verify::direct_attention<Normalized, long double>(Exponential{}, decay(log_gamma), Q, K, V);
    const Matrix<long double> Y = attention(Exponential{}, decay(log_gamma), Q, K, V).template cast<long double>();
    const auto worst =
        verify::worst_row<Normalized, Exponential>(rows, Y, rows.Y, verify::unit_roundoff<TestType>, infinity);
    CAPTURE(worst.row, worst.residual);
    CHECK(worst.holds());
  };
  Matrix<TestType> Q = Matrix<TestType>::Ones(1, 3), K(1, 3), V(1, 3);
  K << 0, TestType(.001), -3000;  // behind the gate there is nothing that has weight
  V << -1, 1, 1;
  check(Q, K, V, Eigen::Vector3d(0, 0, -1000));

  const Index T = 200;  // over the ends of segments
  Random random(5);
  // Sums of gates in long double are good for so much beside the unit of the type.
  const std::vector<double> gates_of_type =
      sizeof(TestType) == 4 ? std::vector{-30., -1e3, -1e6, -1e12} : std::vector{-30., -1e3};
  for (const double far : gates_of_type)
    for (const Index at : {1, 70, 150}) {
      CAPTURE(far, at);
      Eigen::VectorXd gates = -random.vector(T).cwiseAbs() / 10;
      gates[at] = far;
      const Matrix<TestType> some = random.matrix<TestType>(2, T);
      check(some, random.matrix<TestType>(2, T), random.matrix<TestType>(3, T), gates);
      Matrix<TestType> far_keys = random.matrix<TestType>(2, T);
      far_keys.rightCols(T - at) *= TestType(1e-3);
      far_keys.row(0).rightCols(T - at).setConstant(
          TestType(2 * far));  // what is left has no weight beside what decayed
      check(Matrix<TestType>::Ones(2, T), far_keys, random.matrix<TestType>(3, T), gates);
    }
}
