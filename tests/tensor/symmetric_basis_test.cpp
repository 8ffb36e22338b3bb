// The basis S^α of the symmetric tensors, polarisation, coordinates and the isometry between the two embeddings.
#include <cmath>
#include <numeric>
#include <vector>

#include <sympow/tensor/symmetric_basis.hpp>
#include <sympow/tensor/symmetric_power.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd, Eigen::RowVectorXd;
using sympow::test::contains, sympow::test::unit, sympow::test::distance;

namespace {

/// Σ over all p! permutations σ of e_{α_σ(1)} ⊗ … ⊗ e_{α_σ(p)}, term by term.
VectorXd summed_over_permutations(const MultiIndex<>& alpha, Index d) {
  VectorXd tensor = VectorXd::Zero(tensor_dimension(d, alpha.size()));
  MultiIndex sigma(alpha.size());
  std::iota(sigma.begin(), sigma.end(), Index(0));
  do {
    Index position = 0;
    for (const Index l : sigma) position = position * d + alpha[static_cast<int>(l)];
    tensor[position] += 1;
  } while (std::ranges::next_permutation(sigma).found);
  return tensor;
}

}  // namespace

TEST_CASE("basis elements are sums over permutations, and polarisation gives the same", "[tensor]") {
  const Index d = GENERATE(1, 2, 3);
  const int p = GENERATE(1, 2, 3, 4, 5);
  CAPTURE(d, p);
  for (const auto& alpha : MultiIndices(d, p)) {
    CAPTURE(std::vector<Index>(alpha.begin(), alpha.end()));
    const VectorXd expected = summed_over_permutations(alpha, d);
    REQUIRE(symmetric_basis<double>(alpha, d) == expected);
    REQUIRE(polarization<double>(alpha, d) == expected);  // whole numbers below 2^53: no rounding
  }
}

TEST_CASE("the basis does not depend on the order of the entries nor on how the power is known", "[tensor]") {
  const MultiIndex<4> sorted({0, 1, 1, 2}), mixed({1, 2, 0, 1});
  REQUIRE(symmetric_basis<double>(mixed, 3) == symmetric_basis<double>(sorted, 3));
  REQUIRE(polarization<double>(mixed, 3) == symmetric_basis<double>(MultiIndex({0, 1, 1, 2}), 3));
  REQUIRE(symmetric_basis<float>(sorted, 3).sum() == 24);  // 4! terms
}

TEST_CASE("coordinates and tensor are inverse to each other", "[tensor]") {
  const auto seed = GENERATE(1u, 2u);
  const Index d = GENERATE(0, 1, 3, 4);
  const int p = GENERATE(1, 2, 3, 5);
  CAPTURE(seed, d, p);
  const VectorXd coordinates = test::Random(seed).vector(symmetric_dimension(d, p));
  const VectorXd tensor = symmetric_tensor(coordinates, d, p);
  VectorXd expected = VectorXd::Zero(tensor_dimension(d, p));
  const MultiIndices indices(d, p);
  for (Index n = 0; n < indices.size(); ++n) expected += coordinates[n] * symmetric_basis<double>(indices[n], d);
  REQUIRE(tensor == expected);  // one product for every entry
  // A product and a quotient by the same whole number.
  const VectorXd back = symmetric_coordinates(tensor, d, p);
  REQUIRE(test::relative_distance(back, coordinates) <= 2 * unit<double>);
}

TEST_CASE("the coordinates of a tensor power are its monomials over the stabilisers", "[tensor]") {
  const VectorXd x = test::Random(1).vector(3);
  const VectorXd coordinates = symmetric_coordinates(tensor_power<3>(x), 3, 3);
  const MultiIndices<3> indices(3);
  for (Index n = 0; n < indices.size(); ++n) {
    const auto alpha = indices[n];
    const double expected = x[alpha[0]] * x[alpha[1]] * x[alpha[2]] / static_cast<double>(stabilizer_order(alpha));
    REQUIRE(std::abs(coordinates[n] - expected) <= 6 * unit<double> * std::abs(expected));
  }
  const VectorXd rebuilt = symmetric_tensor(2 * coordinates, 3, 3), plain = tensor_power<3>(x);
  REQUIRE(distance(rebuilt, 2 * plain) <= 2 * 6 * unit<double> * plain.cwiseAbs().maxCoeff());
}

TEST_CASE("flat positions count in base d", "[tensor]") {
  REQUIRE(flat_position(MultiIndex({2, 0, 1}), 3) == 19);
  REQUIRE(flat_position(MultiIndex({0, 0, 0}), 3) == 0);
  REQUIRE(flat_position(MultiIndex({2, 2, 2}), 3) == 26);
  REQUIRE_THROWS_AS(flat_position(MultiIndex({0, 3}), 3), InvalidMultiIndex);
  REQUIRE_THROWS_WITH(flat_position(MultiIndex({0, 3}), 3), contains("entry 3 must lie in 0 … 2"));
  REQUIRE_THROWS_WITH(flat_position(MultiIndex({-1, 0}), 3), contains("entry -1"));
}

TEST_CASE("tensors of a wrong size and foreign indices are refused", "[tensor]") {
  REQUIRE_THROWS_AS(symmetric_coordinates(VectorXd::Zero(8), 3, 2), ShapeMismatch);
  REQUIRE_THROWS_WITH(symmetric_coordinates(VectorXd::Zero(8), 3, 2), contains("length of the tensor is 8, must be 9"));
  REQUIRE_THROWS_AS(symmetric_tensor(VectorXd::Zero(5), 3, 2), ShapeMismatch);
  REQUIRE_THROWS_WITH(symmetric_tensor(VectorXd::Zero(5), 3, 2), contains("number of coordinates is 5, must be 6"));
  REQUIRE_THROWS_AS(symmetric_basis<double>(MultiIndex({0, 3}), 3), InvalidMultiIndex);
  REQUIRE_THROWS_AS(polarization<double>(MultiIndex({0, 3}), 3), InvalidMultiIndex);
  REQUIRE_THROWS_AS(SymmetricIsometry<double>(3, 9), InvalidPower);
  REQUIRE_THROWS_AS(SymmetricIsometry<double>(1000, 8), DimensionOverflow);
}

TEMPLATE_TEST_CASE("the isometry is its definition and leads from φ_SYM to φ_TP and back", "[tensor]", float, double) {
  const Index d = GENERATE(0, 1, 2, 3);
  const int p = GENERATE(1, 2, 3, 4);
  CAPTURE(d, p);
  const SymmetricIsometry<TestType> J(d, p);
  const Matrix<test::Exact> expected = test::defined_isometry(d, p);
  REQUIRE(J.rows() == tensor_dimension(d, p));
  REQUIRE(J.cols() == symmetric_dimension(d, p));
  // A root, a quotient, a conversion.
  REQUIRE(test::relative_distance(J.toDenseMatrix(), expected) <= 3 * unit<TestType>);
  REQUIRE(J.transpose().toDenseMatrix() == J.toDenseMatrix().transpose());
  REQUIRE(J.transpose().transpose().toDenseMatrix() == J.toDenseMatrix());

  const auto x = test::Random(1).matrix<TestType>(d, 2);
  const Matrix<TestType> symmetric = symmetric_power(x, p), tensor = tensor_power(x, p);
  const Matrix<TestType> there = J * symmetric;
  const Matrix<TestType> back = J.transpose() * tensor;
  // 5p roundings of an entry of φ_SYM, p of φ_TP, 4 of J and the product; back sums at most p! = 24 equal terms.
  const TestType scale = d == 0 ? 0 : tensor.cwiseAbs().maxCoeff();
  REQUIRE(distance(there, tensor) <= TestType(6 * p + 4) * unit<TestType> * scale);
  REQUIRE(test::relative_distance(back, symmetric) <= TestType(6 * p + 4 + 24) * unit<TestType>);
}

TEST_CASE("the isometry is one: its transpose undoes it", "[tensor]") {
  const SymmetricIsometry<double> J(4, 3);
  const VectorXd x = test::Random(2).vector(J.cols());
  const VectorXd back = J.transpose() * (J * x);
  REQUIRE(test::relative_distance(back, x) <= (2 * 4 + 6) * unit<double>);  // twice J, at most 3! equal terms
  REQUIRE(std::abs(VectorXd(J * x).norm() - x.norm()) <= (4 + 64) * unit<double> * x.norm());
}

TEST_CASE("the isometry multiplies from the left and right, and in place of a dense matrix", "[tensor]") {
  const SymmetricIsometry<double> J(3, 2);
  const MatrixXd dense = J;
  const RowVectorXd row = test::Random(3).vector(9).transpose();
  const RowVectorXd image = row * J;
  REQUIRE(distance(image, row * dense) <= 4 * unit<double> * row.cwiseAbs().sum());
  const auto kept = row * SymmetricIsometry<double>(3, 2);
  REQUIRE(kept.eval() == image);
  REQUIRE_THROWS_AS(J * VectorXd(9), ShapeMismatch);
  REQUIRE_THROWS_WITH(J * VectorXd(9), contains("rows of the right factor is 9, must be 6"));
}
