// The way back through structured rotary positions: gradients of positions, frequencies and the basis are slopes.
#include "way_back.hpp"

#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/structured_rotary.hpp>

using namespace sympow;
using namespace sympow::test;

namespace {

// r, 2 × T, then Λ, 2 × m, then a d × d matrix P whose skew part Ω turns U into U (I - Ω/2)⁻¹ (I + Ω/2).
struct Positions {
  static constexpr bool gauged = false;
  Eigen::VectorXd parameters;
  Index tokens, planes, null;
  Eigen::MatrixXd U;  // empty: the family has none
  double steepness = 10;

  [[nodiscard]] Index d() const { return 2 * planes + null; }
  [[nodiscard]] auto positions(const Eigen::VectorXd& p) const { return p.head(2 * tokens).reshaped(2, tokens); }
  [[nodiscard]] auto frequencies(const Eigen::VectorXd& p) const {
    return p.segment(2 * tokens, 2 * planes).reshaped(2, planes);
  }
  template <class S = double>
  [[nodiscard]] auto build(const Eigen::VectorXd& p) const {
    auto family = CommutingGenerators<S>::from_frequencies(frequencies(p), null);
    if (U.size() != 0) {
      const Eigen::MatrixXd P = p.tail(d() * d()).reshaped(d(), d()), half = (P - P.transpose()) / 4,
                            I = Eigen::MatrixXd::Identity(d(), d());
      family = family.in_basis((U * (I - half).partialPivLu().solve(I + half)).template cast<S>());
    }
    return structured_rotary(family, positions(p)) * constant_decay(.5);
  }
  template <class Gradient>
  [[nodiscard]] Eigen::VectorXd flat(const Gradient& g) const {
    REQUIRE((g.left().basis + g.left().basis.transpose()).isZero(0));
    Eigen::VectorXd all(parameters.size());
    all << test::flat(g.left().positions), test::flat(g.left().frequencies), test::flat(g.left().basis);
    return all;
  }
  [[nodiscard]] double passing(const Eigen::VectorXd&, Segment, const Eigen::VectorXd&, const Eigen::MatrixXd&,
                               const Eigen::MatrixXd&) const {
    return 0;
  }
  [[nodiscard]] Eigen::VectorXd weights(const Eigen::VectorXd&, const Eigen::VectorXd& E) const {
    Eigen::VectorXd all(parameters.size());
    const Eigen::MatrixXd r = positions(parameters), Lambda = frequencies(parameters);
    all << test::flat(Lambda.cwiseAbs().rowwise().sum() * E.transpose()),
        test::flat((r.cwiseAbs() * E).replicate(1, planes)), Eigen::VectorXd::Constant(U.size(), 2 * E.sum());
    return all;
  }
};

Positions positions(Random& random, Index tokens, Index planes, Index null, bool has_basis) {
  Positions family{{}, tokens, planes, null, has_basis ? random.rotation(2 * planes + null) : Eigen::MatrixXd()};
  family.parameters = Eigen::VectorXd::Zero(2 * (tokens + planes) + family.U.size());
  family.parameters.head(2 * (tokens + planes)) = random.vector(2 * (tokens + planes));
  return family;
}

}  // namespace

TEST_CASE("the way back through structured positions: dr = Λ m, dΛ = Σ r mᵀ, skew(UᵀdU)", "[transition][vjp]") {
  for (const bool has_basis : {true, false})
    for (const Index n : {1, 2, 3, 5, 8, 31, 48, 49, 100}) {
      CAPTURE(has_basis);
      Random random(static_cast<std::uint64_t>(n));
      const Segment s{n == 31 ? 0 : 3, n};
      const auto family =
          positions(random, s.end() + 2, n == 49 ? 37 : random.integer(1, 3), random.integer(0, 2), has_basis);
      const Index frame = n == 2 ? 0 : family.planes;
      check_way_back(family, random_way(random, family.d(), s, frame, 0, 0), random);
      check_way_back(family, random_way(random, family.d(), s, frame, 0, 0), random, true);
      check_pull_back(family, s, 3, random);
    }
}

TEST_CASE("a family without a basis has no gradient of one, and positions let nothing flow through",
          "[transition][vjp]") {
  Random random(2);
  const auto family = positions(random, 5, 2, 1, false);
  const auto A = family.build(family.parameters);
  auto g = A.zero_gradient(5);
  REQUIRE(g.left().basis.size() == 0);
  detail::VjpViewOf<double, std::remove_const_t<decltype(A)>> view(A, g);
  REQUIRE(view.planes().count == 0);
}
