#include <sympow/core/row_panels.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;

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
