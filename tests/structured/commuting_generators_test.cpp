// Commuting generators find their joint planes, whatever is repeated, zero or tiny, and say by how much generators fail
// to commute.
#include <sympow/structured/commuting_generators.hpp>
#include "propositions/given_generators.hpp"

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;
using sympow::test::Random;

namespace {

constexpr double u = std::numeric_limits<double>::epsilon() / 2;

using verify::detail::exponential, verify::detail::frequency_tables;
using Table = verify::detail::FrequencyTable;
using Given = verify::detail::GivenGenerators<double>;

// Every family; the three large ones in one draw of `large_every`.
void check_draws(int draws, int large_every, std::uint64_t seed) {
  Random random(seed);
  for (int draw = 0; draw < draws; ++draw)
    for (const Table& table : frequency_tables(random, u)) {
      if (table.lambda.cols() > 20 && draw % large_every != 0) continue;
      const Given given(table, random);
      const auto& generators = given.L;
      const CommutingGenerators<double> family(generators, Commutation::exact, static_cast<std::uint64_t>(draw + 1));
      const Index d = family.dimension();
      CAPTURE(table.name, draw, family.residuals().transpose(), family.planes());
      REQUIRE(family.planes() == table.lambda.cols());
      REQUIRE(family.null_dimension() == table.null);
      REQUIRE(family.residuals().maxCoeff() <= 2e-13);
      const Eigen::MatrixXd U = family.basis();
      REQUIRE(verify::detail::apart<double>(U.transpose() * U, Eigen::MatrixXd::Identity(d, d)) <= 2e-14);
      REQUIRE(given.frequency_error(family.frequencies()) <= 16 * static_cast<double>(d) * u);
      for (Index k = 0; k < family.size(); ++k) {
        const Eigen::MatrixXd& L = generators[static_cast<std::size_t>(k)];
        REQUIRE((family.generator(k) - L).norm() <= 2.5e-13 * L.norm());
      }
    }
}

}  // namespace

TEST_CASE("joint planes of families with repeated, zero and tiny frequencies", "[rotation]") { check_draws(20, 10, 1); }

TEST_CASE("joint planes of families with repeated, zero and tiny frequencies, a thousand draws", "[rotation][.long]") {
  check_draws(1000, 1, 2);
}

TEST_CASE("generators that nearly commute: refused, or snapped to a family with a bound that holds", "[rotation]") {
  Random random(5);
  for (const double noise : {1e-12, 1e-8, 1e-5, 1e-2}) {
    auto generators = Given({"", random.matrix(3, 4), 1}, random).L;
    for (auto& L : generators) L += noise * random.skew(9);
    CAPTURE(noise);
    REQUIRE_THROWS_AS(CommutingGenerators<double>(generators), NotCommuting);
    const CommutingGenerators<double> family(generators, Commutation::nearest);
    REQUIRE(family.residuals().maxCoeff() > noise / 100);
    REQUIRE(family.residuals().maxCoeff() < noise * 20);
    for (int draw = 0; draw < 5; ++draw) {
      const Eigen::Vector3d r = random.vector(3);
      const Eigen::MatrixXd A = r[0] * generators[0] + r[1] * generators[1] + r[2] * generators[2];
      const double deviation = verify::detail::apart<double>(exponential<double>(A), family.at(r).toDenseMatrix());
      REQUIRE(deviation <= family.deviation_bound(r) + 1e-13);
      REQUIRE(deviation > 1e-3 * family.deviation_bound(r));
    }
  }
}

TEST_CASE("a family says what is wrong with its generators", "[rotation]") {
  Random random(6);
  auto generators = Given({"", random.matrix(2, 2), 1}, random).L;
  using Family = CommutingGenerators<double>;
  const auto with = [&](std::size_t k, const Eigen::MatrixXd& L) {
    auto changed = generators;
    changed[k] = L;
    return changed;
  };
  REQUIRE_THROWS_WITH(Family(std::vector<Eigen::MatrixXd>{}), contains("generators: there are 0"));
  REQUIRE_THROWS_WITH(Family(with(1, random.skew(4))), contains("generator 1 is 4 x 4, must be 5 x 5"));
  REQUIRE_THROWS_WITH(Family(with(1, generators[1] + Eigen::MatrixXd::Identity(5, 5))),
                      contains("generator 1: |S + S^T| is 4.47"));
  REQUIRE_THROWS_AS(Family(with(0, random.skew(5) + 1e-9 * random.matrix(5, 5))), NotSkew);
  REQUIRE_THROWS_WITH(Family(with(1, random.skew(5))), contains("generators 0 and 1: |[L_a, L_b]| is"));
  Eigen::MatrixXd infinite = generators[0];
  infinite(0, 1) = std::numeric_limits<double>::infinity();
  REQUIRE_THROWS_AS(Family(with(0, infinite)), NotFinite);
  Eigen::MatrixXd huge = Eigen::MatrixXd::Zero(4, 4);  // entries that are finite, and a norm that is not
  huge(1, 0) = huge(3, 2) = 1.7e308;
  huge(0, 1) = huge(2, 3) = -1.7e308;
  REQUIRE_THROWS_WITH(Family({huge}), contains("generator 0: its norm is inf, must be finite"));
  const Family family(generators);
  REQUIRE_THROWS_AS(family.at(random.vector(3)), ShapeMismatch);
  REQUIRE_THROWS_AS(family.in_basis(random.matrix(5, 5)), InvalidArgument);
  REQUIRE_NOTHROW(family.require_full_rank());
  REQUIRE_NOTHROW(family.require_active());
  Eigen::MatrixXd parallel(2, 3);
  parallel << 1, 2, 3, 2, 4, 6;
  REQUIRE_THROWS_WITH(Family::from_frequencies(parallel).require_full_rank(), contains("rank is 1, must be 2"));
  REQUIRE_THROWS_AS(Family::from_frequencies(Eigen::MatrixXd(1, 0), 3).require_active(), EmptyActiveSpace);
  REQUIRE_THROWS_AS(Family::from_frequencies(Eigen::MatrixXd::Constant(1, 1, std::nan(""))), NotFinite);
  REQUIRE_THROWS_AS(Family::from_frequencies(parallel, -1), ShapeMismatch);
}

TEST_CASE("a plane that turns by little more than rounding leaves its rank open", "[rotation]") {
  const auto with = [](double small) {
    Eigen::MatrixXd L = Eigen::MatrixXd::Zero(4, 4);
    L(1, 0) = 1;
    L(3, 2) = small;
    return std::vector<Eigen::MatrixXd>{L - L.transpose()};
  };
  // 8 d u ‖L‖ = 5e-15.
  REQUIRE(CommutingGenerators<double>(with(1e-14 + 1e-15)).planes() == 2);
  REQUIRE(CommutingGenerators<double>(with(4e-15)).planes() == 1);
  REQUIRE_THROWS_WITH(CommutingGenerators<double>(with(7e-15)), contains("of their generators, and rounding leaves"));
  REQUIRE_THROWS_AS(CommutingGenerators<double>(with(7e-15)), AmbiguousRank);
  REQUIRE(CommutingGenerators<double>(with(7e-15), Commutation::nearest).planes() == 2);
}

TEST_CASE("distances of planes, commutators and projections", "[rotation]") {
  Random random(7);
  Eigen::MatrixXd lambda(2, 3);
  lambda << 1, 1, 3, .5, -.5, 0;
  const auto family = CommutingGenerators<double>::from_frequencies(lambda, 2).in_basis(random.rotation(8));
  REQUIRE(std::abs(family.gap() - 2 / std::sqrt(22)) <= 1e-14);  // planes 1 and 2 with one of them turned over
  const Eigen::MatrixXd X = random.matrix(8, 3), U = family.basis();
  REQUIRE((family.project_active(X) + family.project_null(X) - X).norm() <= 1e-14);
  REQUIRE((family.project_active(family.project_active(X)) - family.project_active(X)).norm() <= 1e-14);
  REQUIRE(family.project_null(family.project_active(X)).norm() <= 1e-14);
  REQUIRE((family.generator(0) * family.project_null(X)).norm() <= 1e-14);
  const auto blocks = family.in_block_basis();
  REQUIRE_FALSE(blocks.has_basis());
  REQUIRE((blocks.at(Eigen::Vector2d(1, 2)).toDenseMatrix() -
           U.transpose() * family.at(Eigen::Vector2d(1, 2)).toDenseMatrix() * U)
              .norm() <= 1e-14);
  auto generators = Given({"", random.matrix(2, 2), 1}, random).L;
  generators[1] += 1e-3 * random.skew(5);
  const Eigen::MatrixXd bracket = generators[0] * generators[1] - generators[1] * generators[0];
  const CommutingGenerators<double> near(generators, Commutation::nearest);
  REQUIRE(std::abs(near.commutators()(0, 1) - bracket.norm()) <= 1e-13);
  REQUIRE(near.commutators()(1, 0) == near.commutators()(0, 1));
}
