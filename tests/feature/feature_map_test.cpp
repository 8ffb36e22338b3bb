// A feature map's embedding has the inner products that its score says.
#include "catch.hpp"
#include "random.hpp"

#include <sympow/core/integer_power.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/symmetric_power.hpp>

using namespace sympow;
using sympow::test::Random;

static_assert(FiniteFeatureMap<Linear> && FiniteFeatureMap<SymmetricPower<3>>);
static_assert(FeatureMap<Exponential> && !FiniteFeatureMap<Exponential> && !FeatureMap<int>);
static_assert(SymmetricPower<2>::nonnegative && !SymmetricPower<3>::nonnegative && !Linear::nonnegative &&
              Exponential::nonnegative);

namespace {

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
  check_score(SymmetricPower<1>{});
  check_score(SymmetricPower<2>{});
  check_score(SymmetricPower<3>{});
  check_score(SymmetricPower<4>{});
  check_score(SymmetricPower<6>{});
  check_score(SymmetricPower<8>{});
}
