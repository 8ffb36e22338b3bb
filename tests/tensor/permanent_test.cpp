// The permanent against the sum over permutations.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <sympow/tensor/induced.hpp>

#include "catch.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd;
using sympow::test::contains, sympow::test::unit;

namespace {

double summed_over_permutations(const MatrixXd& a) {
  std::vector<Index> sigma(static_cast<std::size_t>(a.rows()));
  std::iota(sigma.begin(), sigma.end(), Index(0));
  double sum = 0;
  do {
    double term = 1;
    for (Index i = 0; i < a.rows(); ++i) term *= a(i, sigma[static_cast<std::size_t>(i)]);
    sum += term;
  } while (std::ranges::next_permutation(sigma).found);
  return sum;
}

}  // namespace

TEST_CASE("the permanent is the sum over permutations", "[tensor]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  const Index n = GENERATE(0, 1, 2, 3, 4, 5, 6, 7);
  CAPTURE(seed, n);
  const MatrixXd a = test::Random(seed).matrix(n, n);
  // n! terms of n factors on one side, n sums of up to n terms on the other; the absolute values sum to per |a|.
  const double bound = static_cast<double>(factorial(n) + n + 2 * n * n) * unit<double> * permanent(a.cwiseAbs());
  REQUIRE(std::abs(permanent(a) - summed_over_permutations(a)) <= bound);
}

TEST_CASE("the permanent is exact on small whole numbers, up to 20 rows", "[tensor]") {
  for (Index n = 0; n <= 20; n += 4) {
    CAPTURE(n);
    REQUIRE(permanent(MatrixXd::Identity(n, n)) == 1);
  }
  for (Index n = 1; n <= 18; ++n) {
    CAPTURE(n);
    REQUIRE(permanent(MatrixXd::Ones(n, n)) == static_cast<double>(factorial(n)));  // below 2^53
  }
  Eigen::Matrix2i a;
  a << 1, 2, 3, 4;
  REQUIRE(permanent(a) == 10);
  REQUIRE(permanent(a * a) == 7 * 22 + 10 * 15);  // an expression
}

TEST_CASE("the permanent keeps rows and columns apart but not their order", "[tensor]") {
  const MatrixXd a = test::Random(1).matrix(5, 5);
  const double bound = 2 * 5 * 5 * unit<double> * permanent(a.cwiseAbs());
  REQUIRE(std::abs(permanent(a.transpose()) - permanent(a)) <= bound);
  REQUIRE(std::abs(permanent(a.rowwise().reverse()) - permanent(a)) <= bound);
  MatrixXd scaled = a;
  scaled.row(2) *= 4;
  REQUIRE(permanent(scaled) == 4 * permanent(a));  // a power of two
}

TEST_CASE("the permanent of a rectangular or large matrix is refused", "[tensor]") {
  REQUIRE_THROWS_AS(permanent(MatrixXd::Ones(2, 3)), ShapeMismatch);
  REQUIRE_THROWS_WITH(permanent(MatrixXd::Ones(2, 3)), contains("columns of the matrix is 3, must be 2"));
  REQUIRE_THROWS_WITH(permanent(MatrixXd::Ones(21, 21)), contains("21 rows, must be at most 20"));
}
