#include <sympow/core/two_part_factor.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using namespace sympow::test;

TEMPLATE_TEST_CASE("a number times a factor of two parts has the same bits wherever it lies", "[core]", float, double) {
  Random random(1);
  const detail::TwoPartFactor<TestType> factor(.912345678912345678);
  const auto own = static_cast<TestType>(.73);
  for (Index n = 0; n < 64; ++n) {
    const Vector<TestType> x = random.matrix<TestType>(n, 1), y = random.matrix<TestType>(n, 1);
    Vector<TestType> product = x, sum = x;
    factor.multiply(product.data(), n);
    factor.add(sum.data(), own, y.data(), n);
    for (Index i = 0; i < n; ++i) {
      TestType alone = x[i], added = x[i];
      factor.multiply(&alone, 1);
      factor.add(&added, own, &y[i], 1);
      CAPTURE(n, i);
      REQUIRE(product[i] == alone);
      REQUIRE(sum[i] == added);
    }
  }
}

TEST_CASE("a factor of two parts has the digits of a double", "[core]") {
  Random random(2);
  for (const double exact : {.9999, .3, 1 - 0x1p-30}) {
    const detail::TwoPartFactor<float> factor(exact);
    Vector<float> x = random.matrix<float>(50, 1), y = x;
    const Vector<float> before = x;
    factor.multiply(x.data(), 50);
    factor.add(y.data(), 0, before.data(), 50);
    for (Index i = 0; i < 50; ++i) {
      const double wanted = exact * static_cast<double>(before[i]), u = 0x1p-24 * std::abs(wanted);
      for (const float product : {x[i], y[i]})  // two roundings, one of them fused on some processors
        CHECK(std::abs(static_cast<double>(product) - wanted) <= 2.01 * u);
    }
  }
}

TEST_CASE("a factor of 0 leaves 0 of whatever there is", "[core]") {
  std::vector<float> x(21, std::numeric_limits<float>::quiet_NaN());
  detail::TwoPartFactor<float>(0).multiply(x.data(), 20);
  for (int i = 0; i < 20; ++i) CHECK(x[static_cast<std::size_t>(i)] == 0);
  CHECK(std::isnan(x.back()));
}
