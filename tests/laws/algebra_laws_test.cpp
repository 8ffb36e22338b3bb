// Relative position, Proposition 2, homomorphisms and group laws, in both scalar types.
#include "catch.hpp"

#include <sympow/core/random.hpp>
#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/conformal.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using namespace sympow::verify;

namespace {

template <class Scalar>
void check_laws(std::uint64_t seed) {
  CAPTURE(seed);
  Random random(seed);
  const Index d = 2 * random.integer(1, 8);
  const Vector<Scalar> x = random.vector<Scalar>(d), y = random.vector<Scalar>(d);
  const BlockRotation<Scalar> R(rotary_frequencies<double>(d, 4096).template cast<Scalar>().eval());
  const BlockRotation<Scalar> S(random.vector<Scalar>(d / 2), Pairing::interleaved);
  CHECK(relative_position_law(R, x, y, random.integer(0, 4096), random.integer(0, 4096)).holds());
  CHECK(relative_position_law(S, x, y, -3, 5).holds());
  CHECK(group_law(R, S, x).holds());
  const auto scale = static_cast<Scalar>(random.uniform(.1, 1));
  CHECK(group_law(conformal(scale, R), conformal(Scalar(2), S), x, scale * scale).holds());
  CHECK_FALSE(group_law(conformal(scale, R), conformal(Scalar(2), S), x).holds());  // s² is not 1

  const Index n = random.integer(1, 4);
  const Matrix<Scalar> A = random.matrix<Scalar>(n, n), B = random.matrix<Scalar>(n, n);
  CHECK(proposition_2_law<2>(A, random.vector<Scalar>(n)).holds());
  CHECK(proposition_2_law<3>(random.rotation<Scalar>(n), random.vector<Scalar>(n)).holds());
  CHECK(homomorphism_law<2>(A, B).holds());
  CHECK(homomorphism_law<3>(A, B).holds());
}

}  // namespace

TEST_CASE("rotations, conformal maps and lifts satisfy their laws", "[laws]") {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    check_laws<double>(seed);
    check_laws<float>(seed);
  }
}

TEST_CASE("relative position holds at large positions, where angles are reduced", "[laws]") {
  Random random(3);
  const Eigen::VectorXd x = random.vector(64), y = random.vector(64);
  const BlockRotation<double> R(rope_frequencies<double>(64));
  CHECK(relative_position_law(R, x, y, 1000000, 999999).holds());
  CHECK(relative_position_law(R, x, y, 1000000, 3).holds());
}
