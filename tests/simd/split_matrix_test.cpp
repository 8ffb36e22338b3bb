// Matrices in halves, and rows that were packed into panels: products with them have the bits of those with whole ones.
#include <sympow/simd/product.hpp>
#include <sympow/simd/row_panels.hpp>
#include <sympow/simd/split_matrix.hpp>

#include <bit>
#include <cmath>
#include <cstring>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using namespace sympow::test;
using detail::SplitMatrix;

namespace {

template <class Scalar>
bool same(const Matrix<Scalar>& a, const Matrix<Scalar>& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         (a.size() == 0 || std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(Scalar)) == 0);
}

template <class Scalar>
SplitMatrix<Scalar> split_of(const Matrix<Scalar>& X) {
  SplitMatrix<Scalar> split(X.rows(), X.cols());
  split.set(0, X);
  return split;
}
template <class Scalar>
Matrix<Scalar> whole(const SplitMatrix<Scalar>& split) {
  Matrix<Scalar> X(split.rows(), split.cols());
  split.get(0, X);
  return X;
}
template <class Scalar>
Matrix<Scalar> upper(const SplitMatrix<Scalar>& split) {
  Matrix<Scalar> X(split.rows(), split.cols());
  split.get_high(0, X);
  return X;
}

// Numbers of all exponents and both signs, both zeros, and the numbers on both sides of the middle of two split.
template <class Scalar>
Matrix<Scalar> all_kinds(Index rows, Index cols) {
  using Word = detail::Bits<Scalar>;
  constexpr int half = 4 * sizeof(Word);
  Random random(3);
  Matrix<Scalar> X(rows, cols);
  for (Index n = 0; n < X.size(); ++n) {
    const auto fraction = static_cast<Word>(random.integer(0, (1 << 30) - 1)) << (8 * sizeof(Word) - 32);
    Word bits = fraction * 4 + fraction % 4;
    if (n % 5 == 0) bits = bits >> half << half;                                  // a half
    if (n % 5 == 1) bits = (bits >> half << half) + (Word(1) << (half - 1));      // the middle
    if (n % 5 == 2) bits = (bits >> half << half) + (Word(1) << (half - 1)) - 1;  // below it
    const auto x = std::bit_cast<Scalar>(bits);
    X.data()[n] = std::isfinite(x) && std::abs(x) < std::numeric_limits<Scalar>::max() / 2 ? x : Scalar(0);
  }
  if (X.size() > 2)
    X.data()[0] = Scalar(0), X.data()[1] = -Scalar(0), X.data()[2] = std::numeric_limits<Scalar>::denorm_min();
  return X;
}

// x to so many bits of its fraction, the middle away from 0.
template <class Scalar>
Scalar rounded(Scalar x, int bits) {
  if (x == Scalar(0)) return x;
  const int exponent = std::max(std::ilogb(x), std::numeric_limits<Scalar>::min_exponent - 1);
  return std::ldexp(std::round(std::ldexp(x, bits - exponent)), exponent - bits);
}

}  // namespace

TEMPLATE_TEST_CASE("halves lose nothing, and the upper ones are what is nearest", "[core]", float, double) {
  for (const Index rows : {0, 1, 7, 8, 9, 16, 31, 32, 33, 64, 100})
    for (const Index cols : {0, 1, 13}) {
      CAPTURE(rows, cols);
      const Matrix<TestType> X = all_kinds<TestType>(rows, cols);
      const auto split = split_of(X);
      REQUIRE(split.rows() == rows);
      REQUIRE(split.cols() == cols);
      REQUIRE(same(whole(split), X));
      const Matrix<TestType> of_halves = upper(split);
      for (Index n = 0; n < X.size(); ++n) {
        CAPTURE(X.data()[n]);
        REQUIRE(of_halves.data()[n] == rounded(X.data()[n], sizeof(TestType) == 4 ? 7 : 20));
      }
    }
}

TEMPLATE_TEST_CASE("what is no number stays none in halves", "[core]", float, double) {
  using Word = detail::Bits<TestType>;
  Matrix<TestType> X(5, 1);
  X << std::numeric_limits<TestType>::infinity(), -std::numeric_limits<TestType>::infinity(),
      std::numeric_limits<TestType>::quiet_NaN(), std::bit_cast<TestType>(~Word(0)),
      std::bit_cast<TestType>(std::bit_cast<Word>(std::numeric_limits<TestType>::infinity()) + 1);
  const auto split = split_of(X);
  for (const Matrix<TestType>& read : {whole(split), upper(split)}) {
    CHECK(read(0, 0) == X(0, 0));
    CHECK(read(1, 0) == X(1, 0));
    for (const Index i : {2, 3, 4}) CHECK(std::isnan(read(i, 0)));
  }
}

TEMPLATE_TEST_CASE("some columns of halves are written and the others stay", "[core]", float, double) {
  Random random(5);
  Matrix<TestType> X = random.matrix<TestType>(19, 9);
  auto split = split_of(X);
  X.middleCols(2, 4) = random.matrix<TestType>(19, 4);
  split.set(2, X.middleCols(2, 4).eval());
  CHECK(same(whole(split), X));
  split.set_zero();
  CHECK(whole(split).isZero(0));
}

TEMPLATE_TEST_CASE("a product of upper halves has the bits of one with the same numbers whole", "[core]", float,
                   double) {
  Random random(4);
  for (const Index rows : {1, 5, 8, 16, 17, 32, 33, 48, 63, 64, 65, 96, 130})
    for (const Index depth : {1, 15, 16, 17, 100, 256, 300, 512, 528, 1024, 2112, 4096, 4100, 70000}) {
      if (depth > 5000 && rows > 17) continue;
      CAPTURE(rows, depth);
      const auto split = split_of(random.matrix<TestType>(rows, depth));
      const Matrix<TestType> A = upper(split);
      const Vector<TestType> b = random.matrix<TestType>(depth, 1), before = random.matrix<TestType>(rows, 1);
      for (const bool add : {false, true}) {
        Matrix<TestType> c = before, expected = before;
        detail::ColumnProduct<TestType>::times_column(add, rows, depth, split.high(), b.data(), c.data());
        detail::ColumnProduct<TestType>::times_column(add, rows, depth, detail::DenseColumns<TestType>{A.data(), rows},
                                                      b.data(), expected.data());
        REQUIRE(same(c, expected));
      }
    }
}

TEMPLATE_TEST_CASE("a column alone has the bits that it has beside others", "[core]", float, double) {
  Random random(6);
  for (const Index rows : {16, 32, 40, 64, 128})
    for (const Index depth : {16, 256, 500, 512, 1024, 1500, 2112, 4096}) {
      CAPTURE(rows, depth);
      const Matrix<TestType> A = random.matrix<TestType>(rows, depth), B = random.matrix<TestType>(depth, 24);
      Matrix<TestType> all(rows, 24), one(rows, 1);
      for (Index k = 0; k < depth; k += detail::panel_depth) {  // as panels of φ do
        const Index n = std::min(detail::panel_depth, depth - k);
        if (k == 0)
          detail::set_product(all, A.middleCols(k, n), B.middleRows(k, n));
        else
          detail::add_product(all, A.middleCols(k, n), B.middleRows(k, n));
      }
      detail::set_product(one, A, B.col(3));
      REQUIRE(same<TestType>(one, all.col(3)));
    }
}

// ---- panels of rows ----

TEMPLATE_TEST_CASE("a product with panels of rows has the bits of one with the matrix", "[core]", float, double) {
  Random random(1);
  detail::Panel<TestType> memory;
  for (const Index rows : {1, 2, 7, 16, 17, 33, 64, 70, 240})
    for (const Index depth : {1, 15, 64, 100, 300}) {
      const Matrix<TestType> A = random.matrix<TestType>(rows, depth), At = A.transpose();
      const auto of_rows =
          detail::RowPanels<TestType>::pack(rows, depth, detail::strided(A), memory(2 * A.size()).data());
      const auto of_columns = detail::RowPanels<TestType>::pack(rows, depth, {At.data(), At.outerStride(), 1},
                                                                memory(2 * A.size()).data() + A.size());
      const detail::RowPanels<TestType> plain{detail::MatrixView<const TestType>(A)};
      for (const Index cols : {1, 8, 9, 24})
        for (const Index terms : {depth, (depth + 1) / 2}) {
          const Matrix<TestType> B = random.matrix<TestType>(terms, cols), C = random.matrix<TestType>(rows, cols);
          Matrix<TestType> sum = C, product(rows, cols);
          detail::add_product(sum, A.leftCols(terms), B);
          detail::set_product(product, A.leftCols(terms), B);
          CAPTURE(rows, depth, cols, terms);
          for (const auto& panels : {of_rows, of_columns, plain}) {
            Matrix<TestType> X = C;
            detail::add_product(X, panels, B);
            CHECK(X == sum);
            detail::set_product(X, panels, B);
            CHECK(X == product);
          }
        }
    }
}
