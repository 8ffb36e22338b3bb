// What the rules save, in operations: the library's own code run on numbers that count.
#include <bit>

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/conformal.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/tensor/tensor_power.hpp>

#include "catch.hpp"
#include "counted.hpp"

using namespace sympow;
using sympow::test::Counted, sympow::test::Operations, sympow::test::operations_of;

namespace {

using Numbers = Vector<Counted>;
using Table = Matrix<Counted>;

/// Entries 1, 1/2, …: what they are does not matter to the counts.
Table table(Index rows, Index cols) {
  return Table::NullaryExpr(rows, cols,
                            [](Index i, Index j) { return Counted(1. / static_cast<double>(i + 3 * j + 1)); });
}

/// Multiplications of φ^P of one vector: one an entry of every level, of which x_i^m/√m! of level m takes 2 m - 1, and
/// none for the first.
Index embedding_cost(Index d, int p) { return p == 1 ? 0 : binomial(d + p, p) - 1 + (p * p - p - 1) * d; }

/// Multiplications that Eigen's kernel adds to an n × m product for the scalar factors of its operands, here 1.
Index kernel_cost(Index n, Index m) { return n * m + 2; }

/// Multiplications of s^P.
Index power_cost(int p) {
  const auto bits = static_cast<unsigned>(p);
  return static_cast<Index>(std::bit_width(bits)) - 1 + std::popcount(bits) - 1;
}

template <int P>
void check_embedding(Index d) {
  CAPTURE(d, P);
  const Numbers x = table(d, 1);
  Numbers phi(symmetric_dimension(d, P));
  REQUIRE(operations_of([&] { phi = symmetric_power<P>(x); }) == Operations{.multiplications = embedding_cost(d, P)});
  REQUIRE(operations_of([&] { phi = symmetric_power(x, P); }) == Operations{.multiplications = embedding_cost(d, P)});
  Counted s;
  const auto product = operations_of([&] { s = symmetric_power<P>(x).dot(symmetric_power<P>(x)); });
  REQUIRE(product == Operations{.multiplications = d + power_cost(P), .additions = d - 1});
  REQUIRE(operations_of([&] { s = symmetric_power<P>(x).squaredNorm(); }) == product);
  const auto norm = operations_of([&] { s = symmetric_power<P>(x).norm(); });
  REQUIRE(norm == Operations{.multiplications = d + power_cost(P), .additions = d - 1, .roots = 1});
}

}  // namespace

TEST_CASE("an embedding costs a multiplication a node, an inner product of two of them d and a power", "[cost]") {
  const Index d = GENERATE(1, 2, 5, 16);
  check_embedding<1>(d);
  check_embedding<2>(d);
  check_embedding<3>(d);
  check_embedding<4>(d);
}

TEST_CASE("an embedding costs less where the entries of the level before are too many to be listed", "[cost]") {
  const Numbers x = table(16, 1);
  Numbers phi(symmetric_dimension(16, 5));
  const auto done = operations_of([&] { phi = symmetric_power<5>(x); });
  REQUIRE(done.multiplications >= phi.size());
  REQUIRE(done.multiplications < embedding_cost(16, 5) - symmetric_dimension(16, 4) / 2);
  REQUIRE(done == Operations{.multiplications = done.multiplications});
}

TEST_CASE("tensor powers cost a multiplication an entry of every level", "[cost]") {
  const Numbers x = table(5, 1), y = table(3, 1);
  Numbers tensor(625);
  REQUIRE(operations_of([&] { tensor = tensor_power<4>(x); }) == Operations{.multiplications = 25 + 125 + 625});
  REQUIRE(operations_of([&] { tensor = tensor_product(x, y, x); }) == Operations{.multiplications = 5 + 15 + 75});
  Counted s;
  const auto product = operations_of([&] { s = tensor_product(x, y, x).dot(tensor_product(x, y, x)); });
  REQUIRE(product.multiplications == 5 + 3 + 5 + 2);
  const auto scaled = operations_of([&] { tensor = tensor_product(x, 2 * x); });
  REQUIRE(scaled == Operations{.multiplications = 5 + 5 + 25});  // the factor 2 x is computed once
}

TEST_CASE("a Gram matrix of embeddings costs a product and powers, nothing of the order of D", "[cost]") {
  const Index d = 12, n = 7, m = 5;
  const Table x = table(d, n), y = table(d, m);
  Table gram(n, m);
  const auto done = operations_of([&] { gram = symmetric_power<4>(x).transpose() * symmetric_power<4>(y); });
  REQUIRE(done.multiplications <= n * m * (d + power_cost(4)) + kernel_cost(n, m));
  REQUIRE(done.multiplications >= n * m * (d + power_cost(4)));
  REQUIRE(done.additions <= 2 * n * m * d);  // one a product, and those of the kernel's accumulators
  REQUIRE(done.divisions + done.roots == 0);
}

TEST_CASE("Sym(A) φ(X) costs A X once and one embedding a column", "[cost]") {
  const Index d = 8, n = 6;
  const Table a = table(d, d), x = table(d, n);
  Table image(symmetric_dimension(d, 4), n);
  const auto done = operations_of([&] { image = induced<4>(a) * symmetric_power<4>(x); });
  REQUIRE(done.multiplications >= n * (d * d + embedding_cost(d, 4)));
  REQUIRE(done.multiplications <= n * (d * d + embedding_cost(d, 4)) + kernel_cost(d, n));

  const BlockRotation<Counted> R(Numbers(table(d / 2, 1)));
  const auto turned = operations_of([&] { image = induced<4>(R) * symmetric_power<4>(x); });
  REQUIRE(turned == Operations{.multiplications = n * (2 * d + embedding_cost(d, 4)), .additions = n * d});
  const auto twice = operations_of([&] { image = (induced<4>(R) * induced<4>(R)) * symmetric_power<4>(x); });
  REQUIRE(twice == turned);
}

TEST_CASE("products, transposes and determinants of induced maps cost those of their arguments", "[cost]") {
  const Index d = 6;
  const Table a = table(d, d) + Table(Table::Identity(d, d)), b = a.transpose();
  const auto unevaluated = operations_of([&] {
    static_cast<void>(induced<4>(a) * induced<4>(b));
    static_cast<void>(induced<4>(a).transpose());
  });
  REQUIRE(unevaluated == Operations{});
  Counted s;
  const auto done = operations_of([&] { s = induced<4>(a).determinant(); });
  REQUIRE(done.multiplications <= d * d * d + 2 * 7);  // LU, then the power C(9, 6) = 84 < 2^7
}

TEST_CASE("rotations cost four multiplications a pair, however many were multiplied", "[cost]") {
  const Index d = 10, n = 3;
  const BlockRotation<Counted> R(Numbers(table(d / 2, 1)));
  const Table x = table(d, n);
  const Numbers v = x.col(0), w = x.col(1);
  Table y(d, n);
  const Operations once{.multiplications = 2 * d * n, .additions = d * n};
  REQUIRE(operations_of([&] { y = R * x; }) == once);
  REQUIRE(operations_of([&] { y = R * R * R.transpose() * R.pow(1000) * x; }) == once);
  REQUIRE(operations_of([&] { static_cast<void>(R * R); }) == Operations{});
  Counted s;
  const Operations inner{.multiplications = d, .additions = d - 1};
  REQUIRE(operations_of([&] { s = (R * v).dot(R * w); }) == inner);
  REQUIRE(operations_of([&] { s = (R * v).squaredNorm(); }) == inner);
  REQUIRE(operations_of([&] { s = (R * v).norm(); }) ==
          Operations{.multiplications = d, .additions = d - 1, .roots = 1});
  const auto lifted = operations_of([&] { s = symmetric_power<4>(R * v).dot(symmetric_power<4>(R * w)); });
  REQUIRE(lifted == Operations{.multiplications = d + 2, .additions = d - 1});
}

TEST_CASE("a product of conformal maps costs one multiplication, its image one more an entry", "[cost]") {
  const Index d = 10;
  const auto T = conformal(Counted(2), BlockRotation<Counted>(Numbers(table(d / 2, 1))));
  const Numbers x = table(d, 1);
  Numbers y(d);
  REQUIRE(operations_of([&] { y = T * x; }).multiplications == 2 * d + d);
  REQUIRE(operations_of([&] { y = (T * T) * x; }).multiplications == 2 * d + d + 1);
}
