// x ⊗ … ⊗ x and v_1 ⊗ … ⊗ v_p against Kronecker products; the basis S^α of the symmetric tensors, polarisation,
// coordinates and the isometry between the two embeddings.
#include <cmath>
#include <numeric>
#include <vector>

#include <sympow/tensor/symmetric_basis.hpp>
#include <sympow/tensor/symmetric_power.hpp>
#include <sympow/tensor/tensor_power.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::RowVectorXd, Eigen::VectorXd;
using sympow::test::contains, sympow::test::distance, sympow::test::relative_distance, sympow::test::unit;

namespace {

template <class Scalar, int P>
void check_power(const Matrix<Scalar>& x) {
  CAPTURE(P);
  const Matrix<Scalar> power = tensor_power<P>(x), same = tensor_power(x, P);
  REQUIRE(power.rows() == tensor_dimension(x.rows(), P));
  REQUIRE(power == same);
  for (Index t = 0; t < x.cols(); ++t)  // P - 1 products an entry, and as many in the reference
    REQUIRE(relative_distance(power.col(t), test::kronecker_power(x.col(t), P)) <= (P - 1) * unit<Scalar>);
}

static_assert(decltype(tensor_power<3>(Eigen::Vector2d()))::RowsAtCompileTime == 8);
static_assert(decltype(tensor_power<8>(Eigen::Matrix<double, 8, 1>()))::RowsAtCompileTime == Dynamic);
static_assert(!is_symmetric_power<decltype(tensor_power<3>(Eigen::Vector2d()))>);

}  // namespace

TEMPLATE_TEST_CASE("the tensor power is an iterated Kronecker product, column by column", "[tensor]", float, double) {
  const auto seed = GENERATE(1u, 2u);
  const Index d = GENERATE(0, 1, 2, 4);
  const Index n = GENERATE(0, 1, 3);
  CAPTURE(seed, d, n);
  test::Random random(seed);
  const auto x = random.matrix<TestType>(d, n);
  check_power<TestType, 1>(x);
  check_power<TestType, 2>(x);
  check_power<TestType, 3>(x);
  check_power<TestType, 5>(x);
  check_power<TestType, 8>(x);
}

TEST_CASE("inner products of tensor powers are powers of inner products", "[tensor]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  test::Random random(seed);
  const VectorXd x = random.vector(4), y = random.vector(4);
  const VectorXd a = tensor_power<3>(x), b = tensor_power<3>(y);
  // 64 terms of six factors each against three sums of four terms; the absolute values of the terms sum to (|x|·|y|)^3.
  const double bound = (64 + 6 + 3 * 4) * unit<double> * std::pow(x.cwiseAbs().dot(y.cwiseAbs()), 3);
  REQUIRE(std::abs(tensor_power<3>(x).dot(tensor_power<3>(y)) - a.dot(b)) <= bound);
  REQUIRE(std::abs(tensor_power(x, 3).dot(tensor_power(y, 3)) - a.dot(b)) <= bound);
  const double length_bound = 2 * (64 + 6 + 3 * 4) * unit<double> * a.squaredNorm();
  REQUIRE(std::abs(tensor_power<3>(x).squaredNorm() - a.squaredNorm()) <= length_bound);
  REQUIRE(std::abs(tensor_power<3>(x).norm() * a.norm() - a.squaredNorm()) <= length_bound);
}

TEST_CASE("the tensor product of different vectors is their Kronecker product", "[tensor]") {
  const auto seed = GENERATE(1u, 2u);
  CAPTURE(seed);
  test::Random random(seed);
  const VectorXd a = random.vector(3), b = random.vector(1), c = random.vector(4), d = random.vector(2);
  const VectorXd product = tensor_product(a, b, c, d);
  const auto exact = [](const VectorXd& v) { return test::kronecker_power(v, 1); };
  const auto expected = test::kronecker(test::kronecker(test::kronecker(exact(a), exact(b)), exact(c)), exact(d));
  REQUIRE(relative_distance(product, expected) <= 3 * unit<double>);  // three products an entry
  REQUIRE(VectorXd(tensor_product(a)) == a);
  const auto kept = tensor_product(VectorXd(a), VectorXd(b));
  const std::vector<VectorXd> churn(64, VectorXd::Constant(3, 99));
  REQUIRE(kept.eval() == VectorXd(tensor_product(a, b)));
  const VectorXd cube = tensor_power<3>(a);
  REQUIRE(VectorXd(tensor_product(a, a, a)) == cube);
}

TEST_CASE("the inner product of two tensor products is the product of the inner products", "[tensor]") {
  test::Random random(3);
  const VectorXd a = random.vector(3), b = random.vector(2), c = random.vector(3), d = random.vector(2);
  const double full = VectorXd(tensor_product(a, b)).dot(VectorXd(tensor_product(c, d)));
  // Six terms of four factors; the absolute values sum to (|a|·|c|)(|b|·|d|).
  const double bound = 2 * (6 + 4) * unit<double> * a.cwiseAbs().dot(c.cwiseAbs()) * b.cwiseAbs().dot(d.cwiseAbs());
  REQUIRE(std::abs(tensor_product(a, b).dot(tensor_product(c, d)) - full) <= bound);
  REQUIRE(std::abs(tensor_product(a, b).dot(VectorXd(tensor_product(c, d))) - full) <= bound);
  // Another grouping of the same six entries has no such rule and is computed entry by entry.
  const VectorXd six = random.vector(6);
  REQUIRE(tensor_product(a, b).dot(tensor_product(six)) == VectorXd(tensor_product(a, b)).dot(six));
  REQUIRE_THROWS_AS(tensor_product(a, b).dot(tensor_product(d, c)), ShapeMismatch);
  REQUIRE_THROWS_WITH(tensor_product(a, b).dot(tensor_product(d, c)), contains("right factor is 2, must be 3"));
}

TEST_CASE("an empty factor makes an empty tensor product", "[tensor]") {
  const VectorXd a = VectorXd::Ones(3), none(0);
  REQUIRE(tensor_product(a, none).eval().size() == 0);
  REQUIRE(tensor_product(none, a).eval().size() == 0);
  REQUIRE(tensor_product(a, a, none, a).rows() == 0);
}

TEST_CASE("tensor powers and products beyond the index type are refused at once", "[tensor]") {
  const VectorXd x = VectorXd::Ones(256), y = VectorXd::Ones(3);
  REQUIRE_THROWS_AS(tensor_power<8>(x), DimensionOverflow);
  REQUIRE_THROWS_AS(tensor_product(x, x, x, x, x, x, x, x), DimensionOverflow);
  REQUIRE_THROWS_WITH(tensor_product(x, x, x, x, x, x, x, x), contains("does not fit"));
  REQUIRE(tensor_power<7>(x).rows() == Index(1) << 56);
  REQUIRE_THROWS_WITH(tensor_power(y, 9), contains("power p = 9"));
  REQUIRE_THROWS_AS(tensor_power(y, 0), InvalidPower);
  REQUIRE_THROWS_AS(tensor_power(y, 2).dot(tensor_power(y, 3)), ShapeMismatch);
}

// ---- symmetric tensors ----

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
