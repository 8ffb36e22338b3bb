// Cayley transforms in their three forms, rotations after them, and the logits of both.
#include <sympow/simd/linear_algebra.hpp>
#include <sympow/structured/cayley.hpp>
#include <sympow/structured/post_rotation.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;
using sympow::test::Random;

namespace {

Eigen::MatrixXd identity(Index d) { return Eigen::MatrixXd::Identity(d, d); }

// (I - S)(I + S)⁻¹ as it stands.
Eigen::MatrixXd defined(const Eigen::MatrixXd& S) {
  const Index d = S.rows();
  return detail::Factored<double>(identity(d) + S).solve(identity(d) - S);  // both commute
}

CommutingGenerators<double> some_family(Random& random, Index planes, Index null) {
  return CommutingGenerators<double>::from_frequencies(random.matrix(2, planes), null)
      .in_basis(random.rotation(2 * planes + null));
}

}  // namespace

TEST_CASE("a dense Cayley transform is the definition, orthogonal, and its transpose that of -S", "[rotation]") {
  Random random(1);
  for (const Index d : {1, 2, 5, 16})
    for (const double size : {1e-6, 1., 1e3}) {
      const Eigen::MatrixXd S = size * random.skew(d), X = random.matrix(d, 3);
      const auto P = cayley(S);
      const Eigen::MatrixXd dense = P;
      const double error = 1e-14 * static_cast<double>(d) * (1 + size);
      CAPTURE(d, size);
      REQUIRE((dense - defined(S)).norm() <= error * 10);
      REQUIRE((dense.transpose() * dense - identity(d)).norm() <= error);
      REQUIRE((P.transpose().toDenseMatrix() - dense.transpose()).norm() <= error);
      REQUIRE((cayley(-S).toDenseMatrix() - dense.transpose()).norm() <= error);
      REQUIRE(std::abs(detail::Factored<double>(dense).determinant() - 1) <= error);
      REQUIRE(P.determinant() == 1);
      const Eigen::MatrixXd image = P * X;
      REQUIRE((image - dense * X).norm() <= error * X.norm());
      const Eigen::VectorXd x = X.col(0);
      REQUIRE((P * x).norm() == x.norm());
      REQUIRE((P.inverse() * image - X).norm() <= error * X.norm());
      const Eigen::VectorXd turned = cayley(S) * x;  // of a temporary
      REQUIRE((turned - image.col(0)).norm() <= error * x.norm());
    }
}

TEST_CASE("the low-rank Cayley transform is the dense one of G H' - H G'", "[rotation]") {
  Random random(2);
  for (const Index d : {3, 8, 33})
    for (const Index r : {0, 1, 2}) {
      const Eigen::MatrixXd G = random.matrix(d, r), H = random.matrix(d, r), S = G * H.transpose() - H * G.transpose();
      const auto P = cayley(G, H);
      CAPTURE(d, r);
      REQUIRE(P.rank() == (r == 0 ? d : 2 * r));
      REQUIRE((P.toDenseMatrix() - defined(S)).norm() <= 1e-13 * static_cast<double>(d));
      REQUIRE((P.transpose().toDenseMatrix() - defined(S).transpose()).norm() <= 1e-13 * static_cast<double>(d));
    }
}

TEST_CASE("a Cayley transform on the null space fixes every plane, another does not", "[rotation]") {
  Random random(3);
  const auto family = some_family(random, 3, 2);
  const auto member = cayley(family, 1.7 * random.skew(2));
  const Eigen::MatrixXd P = member, U = family.basis();
  REQUIRE(distance_to_block_identity(family, member) <= 1e-14);
  REQUIRE((P * U.leftCols(6) - U.leftCols(6)).norm() <= 1e-14);
  REQUIRE((P * U.rightCols(2) - U.rightCols(2)).norm() > .1);
  REQUIRE((P.transpose() * P - identity(8)).norm() <= 1e-14);
  REQUIRE_THROWS_AS(distance_to_block_identity(family, Eigen::MatrixXd(random.matrix(9, 8))), ShapeMismatch);
  for (const double size : {1e-6, 1e-3, 1., 30.}) {
    const Eigen::MatrixXd S = size * random.skew(8), active = U.leftCols(6) * U.leftCols(6).transpose();
    const double distance = distance_to_block_identity(family, cayley(S));
    const Eigen::MatrixXd moved = (defined(S) - identity(8)) * active;
    REQUIRE(std::abs(distance - detail::singular_values(moved)[0]) <= 1e-12 * (1 + size));
    REQUIRE(distance <= 2 * detail::singular_values(Eigen::MatrixXd(S * active))[0] + 1e-14);
    REQUIRE(distance > .01 * std::min(size, 1.));
  }
}

TEST_CASE("the projected logit sees displacements only, under every P; members of the family do not show in it",
          "[rotation]") {
  Random random(5);
  const auto family = some_family(random, 3, 2);
  const auto P = cayley(random.skew(8)), member = cayley(family, random.skew(2)),
             none = cayley(Eigen::MatrixXd::Zero(8, 8));
  const Eigen::VectorXd q = random.vector(8), k = random.vector(8), r = random.vector(2), s = random.vector(2),
                        by = random.vector(2);
  const Eigen::VectorXd r_moved = r + by, s_moved = s + by;
  const Eigen::MatrixXd U = family.basis(), active = U.leftCols(6) * U.leftCols(6).transpose();
  const auto literal = [&](const Eigen::MatrixXd& p) {  // (20) to (24)
    const Eigen::VectorXd a = active * family.at(r).toDenseMatrix() * p * active * q;
    const Eigen::VectorXd b = active * family.at(s).toDenseMatrix() * p * active * k;
    return a.dot(b) / std::sqrt(6);
  };
  REQUIRE(std::abs(projected_logit(family, P, q, r, k, s) - literal(P)) <= 1e-13);
  REQUIRE(std::abs(projected_logit(family, P, q, r_moved, k, s_moved) - literal(P)) <= 1e-13);
  REQUIRE(std::abs(projected_logit(family, member, q, r, k, s) - literal(identity(8))) <= 1e-13);
  REQUIRE(std::abs(literal(P) - literal(identity(8))) > 1e-2);
  const double whole = (family.at(r) * q).eval().dot((family.at(s) * k).eval()) / std::sqrt(8);
  REQUIRE(std::abs(unprojected_logit(family, none, q, r, k, s) - whole) <= 1e-13);
  REQUIRE(std::abs(unprojected_logit(family, P, q, r_moved, k, s_moved) - unprojected_logit(family, P, q, r, k, s)) <=
          1e-13);
  const auto still = CommutingGenerators<double>::from_frequencies(Eigen::MatrixXd(2, 0), 8);
  REQUIRE_THROWS_AS(projected_logit(still, none, q, r, k, s), EmptyActiveSpace);
}

TEST_CASE("what is not skew is refused with its distance", "[rotation]") {
  Random random(6);
  Eigen::MatrixXd S = random.skew(4);
  REQUIRE_NOTHROW(cayley(S));
  S(1, 0) += 1e-6;
  REQUIRE_THROWS_AS(cayley(S), NotSkew);
  REQUIRE_THROWS_WITH(cayley(S), contains("cayley: S: |S + S^T| is 1.41"));
  S(1, 0) = std::nan("");
  REQUIRE_THROWS_AS(cayley(S), NotFinite);
  REQUIRE_THROWS_WITH(cayley(random.matrix(3, 4)), contains("columns of cayley: S is 4, must be 3"));
  REQUIRE_THROWS_AS(cayley(random.matrix(4, 2), random.matrix(5, 2)), ShapeMismatch);
  REQUIRE_THROWS_AS(cayley(some_family(random, 3, 2), random.skew(3)), ShapeMismatch);
  REQUIRE_THROWS_AS(post_rotation(some_family(random, 3, 2).at(random.vector(2)), cayley(random.skew(4))),
                    ShapeMismatch);
}
