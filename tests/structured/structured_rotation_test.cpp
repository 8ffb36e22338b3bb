// Rotations of a family: the relative law far out, in float and in double, what they compose with, and families made
// without decomposition.
#include <sympow/structured/generator_families.hpp>

#include <complex>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;
using sympow::test::Random;

namespace {

using Family = CommutingGenerators<double>;

Family some_family(Random& random, Index generators, Index planes, Index null) {
  return Family::from_frequencies(random.matrix(generators, planes), null).in_basis(random.rotation(2 * planes + null));
}

double sum_of_sizes(const Family& family, const Eigen::VectorXd& r) {
  double sum = 0;
  for (Index k = 0; k < family.size(); ++k) sum += std::abs(r[k]) * family.generator(k).norm();
  return sum;
}

}  // namespace

TEST_CASE("a rotation is exp of its generators, orthogonal, and one per displacement, up to positions of a million",
          "[rotation]") {
  Random random(1);
  for (const double far : {1., 1e3, 1e6})
    for (const Index generators : {1, 2, 5}) {
      const auto family = some_family(random, generators, 5, 2);
      const Eigen::VectorXd r = far * random.vector(generators), s = far * random.vector(generators);
      const Eigen::MatrixXd R = family.at(r), S = family.at(s), I = Eigen::MatrixXd::Identity(12, 12);
      const double error = 1e-13 * (1 + sum_of_sizes(family, r) + sum_of_sizes(family, s));
      CAPTURE(far, generators);
      REQUIRE((R.transpose() * R - I).norm() <= 1e-13);
      REQUIRE((R.transpose() * S - family.at(s - r).toDenseMatrix()).norm() <= error);
      REQUIRE((R * S - family.at(r + s).toDenseMatrix()).norm() <= error);
      REQUIRE(((family.at(r).transpose() * family.at(s)).toDenseMatrix() - R.transpose() * S).norm() <= error);
      REQUIRE((family.at(r).transpose().toDenseMatrix() - R.transpose()).norm() <= 1e-13);
      REQUIRE((family.at(r).pow(3).toDenseMatrix() - R * R * R).norm() <= error);
      const Eigen::MatrixXd X = random.matrix(12, 4);
      REQUIRE((R * family.project_active(X) - family.project_active(R * X)).norm() <= 1e-13 * X.norm());
      REQUIRE((R * family.project_null(X) - family.project_null(X)).norm() <= 1e-13 * X.norm());
    }
}

TEST_CASE("a small turn is I + A(r)", "[rotation]") {
  Random random(2);
  const auto family = some_family(random, 3, 4, 1);
  const Eigen::Vector3d r = 1e-6 * random.vector(3);
  Eigen::MatrixXd A = Eigen::MatrixXd::Zero(9, 9);
  for (Index k = 0; k < 3; ++k) A += r[k] * family.generator(k);
  REQUIRE((family.at(r).toDenseMatrix() - Eigen::MatrixXd::Identity(9, 9) - A - A * A / 2).norm() <= 1e-14);
}

TEST_CASE("structured rotations are lazy, own what is temporary, and keep lengths", "[rotation]") {
  Random random(3);
  const Eigen::VectorXd x = random.vector(12), y = random.vector(12);
  const auto lasting = [&] {
    const auto family = some_family(random, 2, 5, 2);
    return family.at(Eigen::Vector2d(1, 2)) * x;  // the family is gone when this is evaluated
  }();
  REQUIRE(std::abs(Eigen::VectorXd(lasting).norm() - x.norm()) <= 1e-14 * x.norm());
  const auto family = some_family(random, 2, 5, 2);
  const auto R = family.at(Eigen::Vector2d(1, 2));
  REQUIRE((R * x).norm() == x.norm());
  REQUIRE((R * x).dot(R * y) == x.dot(y));
  REQUIRE(R.determinant() == 1);
  Eigen::MatrixXd X = random.matrix(12, 3);
  const Eigen::MatrixXd U = family.basis(), expected = R.toDenseMatrix() * U * X;
  R.apply_in_block_basis(X);
  REQUIRE((U * X - expected).norm() <= 1e-14 * X.norm());
  REQUIRE_THROWS_AS(R * some_family(random, 2, 5, 2).at(Eigen::Vector2d(1, 2)), FrameMismatch);
  REQUIRE(R == family.at(Eigen::Vector2d(1, 2)));
  REQUIRE_FALSE(R == family.at(Eigen::Vector2d(1, 3)));
}

TEST_CASE("a family in float turns as the one in double", "[rotation]") {
  Random random(4);
  const auto family = some_family(random, 2, 5, 2);
  std::vector<Eigen::MatrixXf> generators;
  for (Index k = 0; k < 2; ++k) {
    const Eigen::MatrixXf L = family.generator(k).cast<float>();
    generators.push_back((L - L.transpose()) / 2);
  }
  const CommutingGenerators<float> rounded(generators);
  REQUIRE(rounded.planes() == 5);
  const Eigen::Vector2d r(3, -2);
  REQUIRE((rounded.at(r).toDenseMatrix().cast<double>() - family.at(r).toDenseMatrix()).norm() <= 1e-5);
}

TEST_CASE("families by name", "[rotation]") {
  Random random(5);
  const Eigen::VectorXd x = random.vector(12);
  const auto rope = rope_family<double>(12);
  const Eigen::VectorXd by_rope = rope.at(Eigen::VectorXd::Constant(1, 7)) * x;
  const Eigen::VectorXd by_blocks = BlockRotation<double>(rope_frequencies<double>(12)).pow(7) * x;
  REQUIRE((by_rope - by_blocks).norm() <= 1e-14);
  const auto axial = axial_family<double>(12, 2);
  const Eigen::VectorXd along_first = axial.at(Eigen::Vector2d(7, 0)) * x;
  REQUIRE(along_first.tail(6) == x.tail(6));
  const Eigen::VectorXd half = BlockRotation<double>(rope_frequencies<double>(6)).pow(7) * x.head(6);
  REQUIRE((along_first.head(6) - half).norm() <= 1e-14);
  const auto mixed = mixed_family<double>(12, 3, 1);
  mixed.require_full_rank();
  REQUIRE((mixed.frequencies().colwise().norm().transpose() - rope_frequencies<double>(12)).norm() <= 1e-14);
  REQUIRE(mixed_family<double>(12, 3, 1).frequencies() == mixed.frequencies());
  REQUIRE(mixed_family<double>(12, 3, 2).frequencies() != mixed.frequencies());
  Eigen::MatrixXi whole(2, 3);
  whole << 1, 2, 0, 0, 1, 3;
  const auto periodic = periodic_family<double>(Eigen::Vector2d(24, 7), whole, 1);
  const Eigen::Vector2d r(5.5, 2);
  REQUIRE((periodic.at(r).toDenseMatrix() - periodic.at(r + Eigen::Vector2d(24, -14)).toDenseMatrix()).norm() <= 1e-13);
  REQUIRE((periodic.at(r).toDenseMatrix() - periodic.at(r + Eigen::Vector2d(12, 0)).toDenseMatrix()).norm() > .1);
}

TEST_CASE("circulant generators are the circulant matrices of their coefficients", "[rotation]") {
  Random random(6);
  for (const Index d : {1, 2, 3, 8, 9}) {
    const Index m = (d - 1) / 2;
    const Eigen::MatrixXd a = random.matrix(2, m);
    const auto family = circulant_family<double>(d, a);
    CAPTURE(d);
    REQUIRE(family.planes() == m);
    for (Index k = 0; k < 2; ++k) {
      Eigen::MatrixXd L = Eigen::MatrixXd::Zero(d, d);
      for (Index t = 0; t < d; ++t)
        for (Index j = 1; j <= m; ++j) {
          L((t + j) % d, t) = a(k, j - 1);
          L((t + d - j) % d, t) = -a(k, j - 1);
        }
      REQUIRE((family.generator(k) - L).norm() <= 1e-13);
    }
  }
  REQUIRE_THROWS_AS(circulant_family<double>(8, random.matrix(1, 4)), ShapeMismatch);
}

TEST_CASE("grids count with the last coordinate fastest", "[rotation]") {
  const Eigen::MatrixXd indices = grid_positions({2, 3}), centered = grid_positions({2, 3}, Grid::centered);
  Eigen::MatrixXd expected(2, 6);
  expected << 0, 0, 0, 1, 1, 1, 0, 1, 2, 0, 1, 2;
  REQUIRE(indices == expected);
  REQUIRE(centered.rowwise().sum().isZero(0));
  REQUIRE(centered.col(4) - centered.col(0) == indices.col(4) - indices.col(0));
  REQUIRE(grid_positions({4}, Grid::cells) == Eigen::RowVector4d(.125, .375, .625, .875));
  REQUIRE(grid_positions({3, 0}).cols() == 0);
  REQUIRE_THROWS_AS(grid_positions({2, -1}), ShapeMismatch);
}

TEST_CASE("mistakes with families by name", "[rotation]") {
  REQUIRE_THROWS_AS(rope_family<double>(7), OddDimension);
  REQUIRE_THROWS_WITH(axial_family<double>(12, 4), contains("6 planes must be a multiple of the 4 axes"));
  REQUIRE_THROWS_AS(mixed_family<double>(12, 0, 1), ShapeMismatch);
  REQUIRE_THROWS_WITH(periodic_family<double>(Eigen::Vector2d(1, 0), Eigen::MatrixXi::Ones(2, 2)),
                      contains("period 1 is 0"));
}
