// A token at a time: what is ordinary takes a path of its own, and nobody can tell.
#include <sympow/sympow.hpp>
#include "batches.hpp"
#include "catch.hpp"
#include "from_nothing.hpp"
#include "random.hpp"

#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using sympow::test::Random;
using sympow::test::recurrent_from_nothing;
using sympow::test::same_bits;

namespace {

template <class Scalar>
struct Sequence {
  Index d = 6, e = 5, T = 150;
  Random random{7};
  Matrix<Scalar> Q = random.matrix<Scalar>(d, T), K = random.matrix<Scalar>(d, T), V = random.matrix<Scalar>(e, T);
  Eigen::VectorXd log_gamma = -.05 * random.vector(T).cwiseAbs(), beta = random.vector(T);
  Eigen::VectorXd theta = rotary_frequencies<double>(d, 64);

  [[nodiscard]] auto transition(Index begin, Index size) const {
    return decay(log_gamma.segment(begin, size)) * rotary(theta, beta.segment(begin, size), Pairing::interleaved);
  }

  // Of the recurrence against attention.
  template <class F>
  [[nodiscard]] double residual(const F& feature) const {
    const auto rows = verify::direct_attention(feature, transition(0, T), Q, K, V);
    return verify::form_residuals(rows, feature, transition(0, T), Q, K, V).recurrent.residual;
  }
};

template <class Scalar, class F>
void check_one_call_a_token(const Sequence<Scalar>& x) {
  State<Scalar, F> together(x.d, x.e), one_by_one(x.d, x.e);
  const Matrix<Scalar> Y = recurrent(F{}, x.transition(0, x.T), x.Q, x.K, x.V, together);
  for (Index t = 0; t < x.T; ++t)
    REQUIRE(same_bits(recurrent(F{}, x.transition(t, 1), x.Q.col(t), x.K.col(t), x.V.col(t), one_by_one), Y.col(t)));
  REQUIRE(same_bits(together, one_by_one));
}

}  // namespace

TEST_CASE("a call for every token is a call for all of them, bit for bit", "[attention]") {
  check_one_call_a_token<float, SymmetricPower<2>>({});
  check_one_call_a_token<float, SymmetricPower<3>>({});
  check_one_call_a_token<double, SymmetricPower<4>>({});
  check_one_call_a_token<double, Linear>({});
}

TEST_CASE("tokens that are not ordinary come in between", "[attention]") {
  for (const double size : {0., 1e-30, 1e-9, 1e9, 1e30}) {
    Sequence<float> x;
    const auto factor = static_cast<float>(size);
    CAPTURE(size);
    for (const Index t : {0, 1, 40, 66, 67, 100, 149}) {
      Sequence<float> keys = x, values = x, queries = x;
      keys.K.col(t) *= factor;
      values.V.col(t) *= factor;
      queries.Q.col(t) *= factor;
      for (const auto& sequence : {keys, values, queries}) {
        CHECK(sequence.residual(SymmetricPower<2>{}) <= 1);
        CHECK(sequence.residual(Linear{}) <= 1);
        if (size < 1e30) CHECK(sequence.residual(SymmetricPower<3>{}) <= 1);  // its cube leaves the type
      }
    }
  }
}

TEST_CASE("a tail of nothing is folded into nothing", "[attention]") {
  for (const Index nothing : {31, 32, 33, 64, 70}) {
    Sequence<double> first, later, forgotten;
    CAPTURE(nothing);
    first.K.leftCols(nothing).setZero();
    later.K.middleCols(40, nothing).setZero();
    forgotten.log_gamma[66] = -std::numeric_limits<double>::infinity();
    forgotten.K.middleCols(66, nothing).setZero();
    for (const auto& sequence : {first, later, forgotten}) {
      CHECK(sequence.residual(SymmetricPower<2>{}) <= 1);
      CHECK(sequence.residual(SymmetricPower<4>{}) <= 1);
      CHECK(sequence.residual(Linear{}) <= 1);
    }
  }
}

TEST_CASE("a closed gate forgets a key whatever its length, in the tail and in the sums", "[attention]") {
  for (const Index t : {20, 31, 32, 70}) {
    Sequence<double> x;
    x.K.col(10) *= 1e120;
    x.K.col(t - 1) *= 1e120;
    x.log_gamma[t] = -std::numeric_limits<double>::infinity();
    CAPTURE(t);
    const Matrix<double> Y = recurrent_from_nothing(SymmetricPower<8>{}, x.transition(0, x.T), x.Q, x.K, x.V);
    const Index after = x.T - t;
    const Matrix<double> alone = attention(SymmetricPower<8>{}, x.transition(t, after), x.Q.rightCols(after),
                                           x.K.rightCols(after), x.V.rightCols(after));
    CHECK((Y.rightCols(after) - alone).cwiseAbs().maxCoeff() <= 1e-8);
  }
}

TEST_CASE("the definition gives nothing where a gate has closed and the key is zero", "[attention]") {
  Sequence<double> x;
  x.log_gamma[40] = -std::numeric_limits<double>::infinity();
  x.K.col(40).setZero();
  const auto rows = verify::direct_attention(SymmetricPower<2>{}, x.transition(0, x.T), x.Q, x.K, x.V);
  CHECK(rows.Y.col(40).isZero(0));
  CHECK(x.residual(SymmetricPower<2>{}) <= 1);
}

TEST_CASE("sums that stand at an earlier fold move on when they must", "[attention]") {
  for (const double rate : {0., 1e-3, .02, .1, .4, 2., 30.}) {
    Sequence<float> x;
    CAPTURE(rate);
    x.log_gamma.setConstant(-rate);
    for (Index t = 0; t < x.T; ++t) x.K.col(t) *= static_cast<float>(std::exp(.03 * static_cast<double>(t)));
    CHECK(x.residual(SymmetricPower<2>{}) <= 1);
    x.K.rowwise().reverseInPlace();
    CHECK(x.residual(SymmetricPower<2>{}) <= 1);
    CHECK(x.residual(Linear{}) <= 1);
  }
}
