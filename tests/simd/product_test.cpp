// Products of matrices.
#include <sympow/simd/product.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;

namespace {

constexpr double u = 0x1p-24;

// Roundings u by which the product of matrices of equal entries is off, at worst over some entries.
double roundings_of_equal_terms(Index rows, Index cols, Index depth) {
  Random random(7);
  double worst = 0;
  for (int draw = 0; draw < 20; ++draw) {
    const auto a = static_cast<float>(random.uniform(1, 2)), b = static_cast<float>(random.uniform(1, 2));
    const Matrix<float> A = Matrix<float>::Constant(rows, depth, a), B = Matrix<float>::Constant(depth, cols, b);
    Matrix<float> C(rows, cols);
    detail::set_product(C, A, B);
    const double exact = static_cast<double>(depth) * static_cast<double>(a) * static_cast<double>(b);
    worst = std::max(worst, (C.cast<double>().array() / exact - 1).abs().maxCoeff() / u);
  }
  return worst;
}

}  // namespace

TEST_CASE("products are those of Eigen for every shape, tiles and levels included", "[core]") {
  Random random(1);
  for (const Index rows : {0, 1, 2, 64, 65})
    for (const Index cols : {0, 1, 3, 64, 130})
      for (const Index depth : {0, 1, 15, 16, 17, 256, 257, 4097}) {
        const Matrix<double> A = random.matrix(rows, depth), B = random.matrix(depth, cols),
                             C = random.matrix(rows, cols), product = A * B;
        const double bound = 1e-15 * static_cast<double>(depth + 1) * 10;
        Matrix<double> X = C;
        detail::add_product(X, A, B);
        CAPTURE(rows, cols, depth);
        CHECK((X - C - product).norm() <= bound * (1 + X.norm()));
        detail::set_product(X, A, B);
        CHECK((X - product).norm() <= bound * (1 + X.norm()));
      }
}

TEST_CASE("factors and results may lie by row, by column, or apart", "[core]") {
  Random random(2);
  for (const Index rows : {1, 7, 33, 64})
    for (const Index cols : {1, 4, 13, 40})
      for (const Index depth : {1, 40, 300}) {
        const Matrix<float> A = random.matrix<float>(rows, depth), B = random.matrix<float>(depth, cols),
                            At = A.transpose(), Bt = B.transpose();
        const Matrix<double> exact = A.cast<double>() * B.cast<double>();
        const auto check = [&](const auto& product) {
          CAPTURE(rows, cols, depth);
          CHECK((product.template cast<double>() - exact).cwiseAbs().maxCoeff() <=
                1e-6 * (static_cast<double>(depth) + 10));
        };
        Matrix<float> C(rows, cols), Ct(cols, rows), apart(3 * rows, cols);
        detail::set_product(C, At.transpose(), B);
        check(C);
        detail::set_product(C, A, Bt.transpose());
        check(C);
        detail::set_product(Ct.transpose(), At.transpose(), Bt.transpose());
        check(Ct.transpose());
        const Eigen::Map<Matrix<float>, 0, Eigen::Stride<Dynamic, 3>> every_third(apart.data(), rows, cols,
                                                                                  {3 * rows, 3});
        detail::set_product(Eigen::Map<Matrix<float>, 0, Eigen::Stride<Dynamic, 3>>(every_third), A, B);
        check(every_third);
      }
}

TEST_CASE("sums of equal terms are off by a few roundings, however many there are", "[core]") {
  for (const Index rows : {1, 3, 4, 64})
    for (const Index cols : {1, 2, 64})
      for (const Index depth : {100, 256, 2080, 8256}) {
        CAPTURE(rows, cols, depth);
        CHECK(roundings_of_equal_terms(rows, cols, depth) <= 12);  // one sum after the other: 30 to 1000
      }
}

// Each term that is left is less than half of what the sum of the packets can show; together they are more.
TEST_CASE("what is left of a row behind its packets is a sum of its own", "[core]") {
  constexpr int lanes = detail::packets::lanes<float>;
  const float step = std::numeric_limits<float>::epsilon() * lanes;
  for (const Index rows : {1, lanes, lanes + 1}) {
    Matrix<float> A = Matrix<float>::Ones(2 * lanes - 1, rows), c(rows, 1);
    A.bottomRows(lanes - 1).setConstant(.45f * step);
    detail::set_product(c, A.transpose(), Matrix<float>::Ones(2 * lanes - 1, 1).eval());
    const double exact = lanes + (lanes - 1) * .45 * static_cast<double>(step);
    CAPTURE(rows);
    CHECK((c.cast<double>().array() - exact).abs().maxCoeff() <= .6 * static_cast<double>(step));
  }
}

TEST_CASE("a product enters what is there in one addition", "[core]") {
  // Half a unit in the last place of 2^24 at a time is lost; all 64 together are not.
  for (const Index rows : {1, 5}) {
    const Matrix<float> A = Matrix<float>::Constant(rows, 64, .5F), B = Matrix<float>::Ones(64, 3);
    Matrix<float> C = Matrix<float>::Constant(rows, 3, 0x1p24F);
    detail::add_product(C, A, B);
    CHECK((C.array() == 0x1p24F + 32).all());
  }
}

TEST_CASE("causal products have every entry that a mask keeps", "[core]") {
  Random random(3);
  for (const Index n : {1, 47, 48, 49, 130}) {
    const Matrix<double> K = random.matrix(7, n), Q = random.matrix(7, n), expected = K.transpose() * Q;
    Matrix<double> logits = Matrix<double>::Constant(n, n, 77);
    detail::set_causal_product(logits, K, Q);
    CAPTURE(n);
    for (Index i = 0; i < n; ++i)
      REQUIRE((logits.col(i).head(i + 1) - expected.col(i).head(i + 1)).cwiseAbs().maxCoeff() <= 1e-14);
  }
}

TEST_CASE("copies by square blocks are transposes for every shape", "[core]") {
  Random random(4);
  for (const Index rows : {1, 15, 16, 17, 64})
    for (const Index cols : {1, 8, 33}) {
      const Matrix<float> A = random.matrix<float>(rows, cols);
      Matrix<float> C(cols, rows);
      detail::set_copy(C, A.transpose());
      CHECK(C == A.transpose());
    }
}

TEMPLATE_TEST_CASE("a column has the same bits alone, among few and among many", "[core]", float, double) {
  Random random(5);
  for (const Index rows : {2, 7, 16, 32, 64, 70})
    for (const Index depth : {15, 33, 100, 256, 300}) {
      const Matrix<TestType> A = random.matrix<TestType>(rows, depth), B = random.matrix<TestType>(depth, 13);
      Matrix<TestType> all(rows, 13);
      detail::set_product(all, A, B);
      for (Index n = 1; n <= 9; ++n) {
        Matrix<TestType> few(rows, n);
        detail::set_product(few, A, B.leftCols(n));
        CAPTURE(rows, depth, n);
        CHECK(few == all.leftCols(n));
      }
    }
}

TEMPLATE_TEST_CASE("a row has the same bits alone, among few and among many", "[core]", float, double) {
  Random random(6);
  for (const Index depth : {1, 2, 3, 5, 7, 15, 16, 17, 33, 100, 255, 257, 300}) {
    const Matrix<TestType> A = random.matrix<TestType>(depth, 37);  // rows side by side
    const Vector<TestType> b = random.matrix<TestType>(depth, 1);
    Vector<TestType> all(37);
    detail::set_product(all, A.transpose(), b);
    for (const Index n : {1, 2, 3, 4, 7, 8, 9, 16, 36})
      for (const Index first : {Index(0), 37 - n}) {
        Vector<TestType> some(n);
        detail::set_product(some, A.middleCols(first, n).transpose(), b);
        CAPTURE(depth, n, first);
        CHECK(some == all.segment(first, n));
      }
  }
}
