#include <sympow/core/blocks.hpp>
#include <sympow/core/exponential.hpp>
#include <sympow/core/power_of_two.hpp>
#include <sympow/core/scaled.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;

namespace {

template <class Scalar>
void powers_and_exponents_are_those_of_the_standard_library() {
  using Limits = std::numeric_limits<Scalar>;
  for (int n = Limits::min_exponent; n < Limits::max_exponent; ++n) {
    const Scalar power = std::ldexp(Scalar(1), n);
    REQUIRE(detail::normal_power_of_two<Scalar>(n) == power);
    REQUIRE(detail::nearest_power_of_two<Scalar>(n) == (n > Limits::min_exponent ? power : 0));
    for (const Scalar x : {power, power * Scalar(1.5), std::nextafter(2 * power, Scalar(0))}) {
      int exponent = 0;
      std::frexp(x, &exponent);
      REQUIRE(detail::exponent_above(x) == exponent);
    }
  }
  CHECK(detail::nearest_power_of_two<Scalar>(-Limits::infinity()) == 0);
  CHECK(detail::nearest_power_of_two<Scalar>(1e9) == std::ldexp(Scalar(1), Limits::max_exponent - 1));
}

// Beyond the type's ends too, where a factor of its own would have been 0 or infinite, and where there is no number.
template <class Scalar>
void products_with_powers_are_rounded_once() {
  using Limits = std::numeric_limits<Scalar>;
  constexpr double infinity = std::numeric_limits<double>::infinity(), none = std::numeric_limits<double>::quiet_NaN();
  const int range = 2 * Limits::max_exponent + Limits::digits;
  for (const Scalar x : {Scalar(1.5), Limits::max(), Limits::min(), Limits::denorm_min(), Scalar(-0.75), Scalar(0)}) {
    for (int n = -range; n <= range; ++n) REQUIRE(detail::times_power_of_two(x, n) == std::ldexp(x, n));
    CHECK(detail::times_power_of_two(x, -infinity) == 0);
    CHECK(std::isnan(detail::times_power_of_two(x, none)));
  }
  CHECK(detail::times_power_of_two(Scalar(-1), infinity) == -Limits::infinity());
}

}  // namespace

TEST_CASE("powers of two by their bits", "[core]") {
  powers_and_exponents_are_those_of_the_standard_library<float>();
  powers_and_exponents_are_those_of_the_standard_library<double>();
  products_with_powers_are_rounded_once<float>();
  products_with_powers_are_rounded_once<double>();
}

TEST_CASE("exponentials end in an exact zero", "[core]") {
  const double infinity = std::numeric_limits<double>::infinity();
  Eigen::ArrayXd x(19);
  x << 0, -1e-20, -1, -700, -707.9, -708.1, -709, -720, -745, -746, -1e4, -1e300, -infinity, 0, -2, -infinity, -5, -800,
      3;
  Eigen::ArrayXd y(19);
  detail::set_exponential(y, x);
  for (Index i = 0; i < x.size(); ++i) CHECK(std::abs(y[i] - (x[i] < -708 ? 0 : std::exp(x[i]))) <= 4e-16 * y[i]);
  detail::set_exponential(x, x);
  CHECK((x == y).all());
}

TEST_CASE("blocks cover a vector once", "[core]") {
  for (const Index size : {0, 1, 15, 16, 17, 100}) {
    Vector<float> x = Vector<float>::Zero(size);
    detail::for_blocks(size, [&](Index first, auto count) { x.segment(first, count).array() += 1; });
    CHECK(x == Vector<float>::Ones(size));
    const Vector<float> y = Random(5).vector(size).cast<float>();
    CHECK(std::abs(detail::squared_norm(y.data(), y.size()) - y.squaredNorm()) <= 1e-5F * y.squaredNorm());
  }
}
