// The derivative of φ^p, transposed: every power, scalar type and shape against the definition.
#include <cmath>

#include <sympow/feature/symmetric_power.hpp>
#include <sympow/tensor/quadratic_form.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::Exact, sympow::test::unit;

namespace {

template <class F>
void for_each_power(F&& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I + 1>{}), ...);
  }(std::make_integer_sequence<int, max_power>{});
}

/// Σ_α dy_α ∂φ_α/∂x_i and the sum of the sizes of its terms, term by term in long double.
struct Defined {
  Matrix<Exact> dx, size;
};
template <class Scalar>
Defined defined_vjp(const Matrix<Scalar>& x, const Matrix<Scalar>& dy, int p) {
  const Index d = x.rows();
  const MultiIndices indices(d, p);
  Defined result{Matrix<Exact>::Zero(d, x.cols()), Matrix<Exact>::Zero(d, x.cols())};
  for (Index n = 0; n < indices.size(); ++n) {
    const auto alpha = indices[n];
    const Exact root = std::sqrt(static_cast<Exact>(multiplicity(alpha)));
    for (Index t = 0; t < x.cols(); ++t)
      for (int left_out = 0; left_out < p; ++left_out) {  // a run of c equal indices is left out c times
        Exact term = root * static_cast<Exact>(dy(n, t));
        for (int level = 0; level < p; ++level)
          if (level != left_out) term *= static_cast<Exact>(x(alpha[level], t));
        result.dx(alpha[left_out], t) += term;
        result.size(alpha[left_out], t) += std::abs(term);
      }
  }
  return result;
}

/// No sum of a prefix has more than d + 1 terms, none of an entry under a prefix more than d + 1, each on P - 1 levels;
/// a factor x_i/√r takes 5 roundings at most, as in the embedding.
double roundings(int p, Index d) { return 2. * p * static_cast<double>(d + 5); }

template <class Scalar, class DX>
void require_defined(const DX& dx, const Defined& expected, int p) {
  const Index d = dx.rows();
  REQUIRE(d == expected.dx.rows());
  REQUIRE(dx.cols() == expected.dx.cols());
  for (Index t = 0; t < dx.cols(); ++t)
    for (Index i = 0; i < d; ++i) {
      CAPTURE(p, d, i, t, dx(i, t), static_cast<double>(expected.dx(i, t)));
      REQUIRE(std::abs(static_cast<Exact>(dx(i, t)) - expected.dx(i, t)) <=
              static_cast<Exact>(roundings(p, d)) * static_cast<Exact>(unit<Scalar>) * expected.size(i, t));
    }
}

/// What panels of φ and the way back through them make of dy: d × m.
template <int P, class Scalar>
Matrix<Scalar> by_panels(const Matrix<Scalar>& x, const Matrix<Scalar>& dy, Index width) {
  using View = detail::MatrixView<Scalar>;
  const Index d = x.rows(), n = x.cols(), m = dy.cols();
  const Matrix<Scalar> phi = symmetric_power<P>(x);
  Matrix<Scalar> tokens = x.transpose(), panel(n, width), prefixes(n, P - 1), d_panel(m, width),
                 scratch(m, detail::SymmetricPowerVjp<Scalar>::scratch_columns(P, d));
  Matrix<Scalar> larger = Matrix<Scalar>::Constant(m + 2, d + 2, 7);
  scratch.setConstant(7);
  d_panel.setConstant(7);
  detail::SymmetricPowerPanels<Scalar> entries(P, View(tokens), View(panel), View(prefixes));
  detail::SymmetricPowerVjp<Scalar> back(P, View(tokens).topRows(m), View(d_panel), View(scratch),
                                         View(larger).block(1, 1, m, d));
  for (Index first = 0, w = 0; first < phi.rows(); first += w) {
    w = std::min(width, phi.rows() - first);
    entries.fill(w);
    const Matrix<Scalar> expected = phi.middleRows(first, w).transpose();
    // The embedding of columns multiplies in another order.
    REQUIRE(((panel.leftCols(w) - expected).cwiseAbs().array() <= 10 * P * unit<Scalar> * expected.cwiseAbs().array())
                .all());
    d_panel.leftCols(w) = dy.middleRows(first, w).transpose();
    back.take(w);
  }
  const Matrix<Scalar> result = larger.block(1, 1, m, d).transpose();
  larger.block(1, 1, m, d).setConstant(7);
  REQUIRE((larger.array() == 7).all());  // nothing beside it
  return result;
}

template <int P, class Scalar>
void check(const Matrix<Scalar>& x, const Matrix<Scalar>& dy, std::initializer_list<Index> widths) {
  const Matrix<Scalar> own = x.leftCols(dy.cols());
  const Defined expected = defined_vjp<Scalar>(own, dy, P);
  Matrix<Scalar> dx(own.rows(), own.cols());
  SymmetricPower<P>{}.embed_vjp(own, own, dy, dx);  // y is not read
  require_defined<Scalar>(dx, expected, P);
  if constexpr (P > 1)
    for (const Index width : widths) {
      CAPTURE(width);
      require_defined<Scalar>(by_panels<P, Scalar>(x, dy, width), expected, P);
    }
}

}  // namespace

TEMPLATE_TEST_CASE("gradients through φ are the definition's, for every power, by columns and by panels", "[tensor]",
                   float, double) {
  const auto seed = GENERATE(1u, 2u);
  const Index d = GENERATE(1, 2, 3, 5);
  CAPTURE(seed, d);
  test::Random random(seed);
  for_each_power([&]<int P>(std::integral_constant<int, P>) {
    const Index D = symmetric_dimension(d, P);
    for (const auto& [n, m] : {std::pair<Index, Index>{1, 1}, {4, 3}, {7, 7}}) {
      CAPTURE(P, n, m);
      Matrix<TestType> x = random.matrix<TestType>(d, n);
      if (n == 7) x.col(2).setZero(), x.col(5).tail(d / 2).setZero();
      check<P, TestType>(x, random.matrix<TestType>(D, m), {1, 2, 7, 144});
    }
  });
}

TEMPLATE_TEST_CASE("as many tokens as fill registers, and those left over", "[tensor]", float, double) {
  test::Random random(3);
  for (const Index m : {2, 16, 31, 64, 127}) {
    CAPTURE(m);
    check<2, TestType>(random.matrix<TestType>(9, m + 3), random.matrix<TestType>(45, m), {13, 144});
    check<4, TestType>(random.matrix<TestType>(4, m), random.matrix<TestType>(35, m), {11});
  }
}

TEMPLATE_TEST_CASE("long runs of leaves", "[tensor]", float, double) {
  test::Random random(4);
  check<2, TestType>(random.matrix<TestType>(70, 3), random.matrix<TestType>(symmetric_dimension(70, 2), 2), {144});
  check<3, TestType>(random.matrix<TestType>(33, 17), random.matrix<TestType>(symmetric_dimension(33, 3), 17), {144});
}

TEMPLATE_TEST_CASE("one gradient of φ² for all tokens is a quadratic form's", "[tensor]", float, double) {
  test::Random random(5);
  for (const Index d : {1, 2, 5, 33}) {
    const Matrix<TestType> x = random.matrix<TestType>(d, 7);
    const Vector<TestType> z = random.matrix<TestType>(symmetric_dimension(d, 2), 1);
    Matrix<TestType> form(d, d);
    detail::set_quadratic_form<TestType>(detail::ColumnView<const TestType>(z), detail::MatrixView<TestType>(form));
    REQUIRE(form == form.transpose());
    require_defined<TestType>((form * x).eval(), defined_vjp<TestType>(x, z.replicate(1, 7), 2), 2);
  }
}

TEST_CASE("columns that leave the stack's share", "[tensor]") {
  const Index d = 4100, D = symmetric_dimension(d, 2);
  Vector<float> x = Vector<float>::Zero(d), dx(d), dy = Vector<float>::Constant(D, 3);
  x[d - 2] = 2;
  const float root = std::sqrt(2.f);
  SymmetricPower<2>{}.embed_vjp(x, dy, dy, dx);
  REQUIRE(std::abs(dx[d - 2] - 12) <= 8 * 12 * unit<float>);
  for (const Index i : {Index(0), Index(5), d - 1}) REQUIRE(std::abs(dx[i] - 6 * root) <= 8 * 9 * unit<float>);
}

TEST_CASE("many small terms are not lost beside a large one", "[tensor]") {
  constexpr int P = 4;
  const Index d = 24, last = d - 1;
  const MultiIndices<P> indices(d);
  // Each is under half an ulp of the large one, 1, and all 2,600 of x_last make 800 u: one sum would lose them.
  Matrix<float> dy = Matrix<float>::Constant(indices.size(), 17, unit<float> / 16);
  dy.row(indices.rank({0, 0, 0, last})).setConstant(.5f);
  check<P, float>(Matrix<float>::Ones(d, 17), dy, {144});
}

TEST_CASE("nothing comes of nothing", "[tensor]") {
  for_each_power([&]<int P>(std::integral_constant<int, P>) {
    check<P, double>(Matrix<double>(0, 3), Matrix<double>(0, 2), {5});
    check<P, double>(Matrix<double>(3, 0), Matrix<double>(symmetric_dimension(3, P), 0), {5});
    check<P, double>(test::Random(1).matrix(3, 2), Matrix<double>(symmetric_dimension(3, P), 0), {5});
  });
}
