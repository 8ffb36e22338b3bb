// Commuting generators find their joint planes, whatever is repeated, zero or tiny, and say by how much generators fail to commute.
#include <sympow/rotation/commuting_generators.hpp>

#include <numbers>

#include "catch.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::contains;
using sympow::test::Random;

namespace {

constexpr double u = std::numeric_limits<double>::epsilon() / 2;

/// A table of frequencies, d_c × m, and a null dimension: a family of which the answer is known.
struct Table {
  const char* name;
  Eigen::MatrixXd lambda;
  Index null;
};

std::vector<Table> tables(Random& random) {
  const auto rows = [](std::initializer_list<std::initializer_list<double>> entries) {
    Eigen::MatrixXd table(static_cast<Index>(entries.size()), static_cast<Index>(entries.begin()->size()));
    Index k = 0;
    for (const auto& row : entries) {
      Index plane = 0;
      for (const double entry : row) table(k, plane++) = entry;
      ++k;
    }
    return table;
  };
  const auto ladder = [](Index m, double base) {
    return Eigen::RowVectorXd::NullaryExpr(
        m, [=](Index n) { return std::pow(base, -static_cast<double>(n) / static_cast<double>(m)); });
  };
  Eigen::MatrixXd rope = Eigen::MatrixXd::Zero(3, 64), shared = random.matrix(3, 64), odd = random.matrix(2, 61);
  rope.row(0) << ladder(32, 1e4), ladder(32, 1e4);
  for (Index n = 0; n < 64; ++n) rope(1, n) = rope(0, (n + 59) % 64);
  shared.array().rowwise() *= ladder(64, 5e5).array();
  odd.array().rowwise() *= ladder(61, 1e4).array();
  return {{"distinct", random.matrix(2, 4), 0},
          {"d_c 1, d 7", random.matrix(1, 3), 1},
          {"d_c 6, d 17", random.matrix(6, 7), 3},
          {"L_1 repeated, L_2 distinct", rows({{1, 1, 1, 1}, {.3, .7, 1.1, 2}}), 1},
          {"jointly repeated, null 2", rows({{1, 1, 2, 2}, {3, 3, -1, -1}}), 2},
          {"both orientations", rows({{1, 1}, {1, -1}}), 0},
          {"axial with zeros", rows({{1, .1, 0, 0}, {0, 0, 1, .1}}), 3},
          {"down to 1e-12", rows({{1, 1e-4, 1e-7, 1e-10, 1e-12}}), 1},
          {"1e-12 beside null 4", rows({{1, 1e-12, 1}, {2, 0, 2}}), 4},
          {"L_2 scaled by 1e-9", rows({{1, 1, .5, .5}, {1e-9, 2e-9, 3e-9, 4e-9}}), 0},
          {"gaps of 1e-9", rows({{1, 1 + 1e-9, 1 - 1e-9, 1}, {0, 1e-9, 2e-9, 3e-9}}), 0},
          {"all zero", Eigen::MatrixXd::Zero(2, 0), 5},
          {"d 1", Eigen::MatrixXd::Zero(1, 0), 1},
          {"d 2", Eigen::MatrixXd::Ones(3, 1), 0},
          {"one zero generator", rows({{.7}, {0}}), 1},
          {"three of RoPE, repeated, d 128", rope, 0},
          {"mixed, d 128", shared, 0},
          {"base 1e4, d 127", odd, 5}};
}

// Generators of a table in a random basis.
std::vector<Eigen::MatrixXd> generators_of(const Table& table, Random& random) {
  const auto family = CommutingGenerators<double>::from_frequencies(table.lambda, table.null);
  const Eigen::MatrixXd U = random.rotation(family.dimension());
  std::vector<Eigen::MatrixXd> generators;
  for (Index k = 0; k < family.size(); ++k) {
    const Eigen::MatrixXd L = U * family.generator(k) * U.transpose();
    generators.push_back((L - L.transpose()) / 2);
  }
  return generators;
}

// The largest difference between found and true frequency tuples, in units of ‖L_k‖, planes matched greedily in either orientation.
double frequency_error(const Eigen::MatrixXd& found, const Eigen::MatrixXd& truth,
                       const std::vector<Eigen::MatrixXd>& generators) {
  if (found.cols() != truth.cols()) return std::numeric_limits<double>::infinity();
  std::vector<bool> used(static_cast<std::size_t>(truth.cols()));
  double worst = 0;
  for (Index n = 0; n < found.cols(); ++n) {
    double best = std::numeric_limits<double>::infinity();
    std::size_t match = 0;
    for (Index t = 0; t < truth.cols(); ++t)
      for (const double sign : {1., -1.}) {
        if (used[static_cast<std::size_t>(t)]) continue;
        double distance = 0;
        for (Index k = 0; k < truth.rows(); ++k) {
          const double norm = generators[static_cast<std::size_t>(k)].norm();
          if (norm > 0) distance = std::max(distance, std::abs(found(k, n) - sign * truth(k, t)) / norm);
        }
        if (distance < best) {
          best = distance;
          match = static_cast<std::size_t>(t);
        }
      }
    used[match] = true;
    worst = std::max(worst, best);
  }
  return worst;
}

double spectral_norm(const Eigen::MatrixXd& A) { return Eigen::JacobiSVD<Eigen::MatrixXd>(A).singularValues()[0]; }

// Every family; the three large ones in one draw of `large_every`.
void check_draws(int draws, int large_every, std::uint64_t seed) {
  Random random(seed);
  for (int draw = 0; draw < draws; ++draw)
    for (const Table& table : tables(random)) {
      if (table.lambda.cols() > 20 && draw % large_every != 0) continue;
      const auto generators = generators_of(table, random);
      const CommutingGenerators<double> family(generators, Commutation::exact, static_cast<std::uint64_t>(draw + 1));
      const Index d = family.dimension();
      CAPTURE(table.name, draw, family.residuals().transpose(), family.planes());
      REQUIRE(family.planes() == table.lambda.cols());
      REQUIRE(family.null_dimension() == table.null);
      REQUIRE(family.residuals().maxCoeff() <= 2e-13);
      const Eigen::MatrixXd U = family.basis();
      REQUIRE(spectral_norm(U.transpose() * U - Eigen::MatrixXd::Identity(d, d)) <= 2e-14);
      REQUIRE(frequency_error(family.frequencies(), table.lambda, generators) <= 16 * static_cast<double>(d) * u);
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
