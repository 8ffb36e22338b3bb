// Running gates against the exponentials of their sums.
#include <sympow/transition/running_gates.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::Random;

TEST_CASE("running gates are the exponentials of their sums", "[core]") {
  using Numbers = Eigen::Array<double, 40, 1>;
  using Gates = Eigen::Array<float, 40, 1>;
  constexpr double u = 0x1p-24;
  Random random(3);
  for (const double most : {1e-9, .01, 1., 20.}) {
    Numbers x = Numbers::Zero(), sum = Numbers::Zero();
    Gates up, down;
    const auto step = [&](const auto& a) {
      up.setOnes();
      down.setOnes();
      detail::apply_running_gates(up.data(), down.data(), x.data(), a.data(), Eigen::fix<40>);
    };
    step(Gates::Zero().eval());
    CHECK((up == 1).all());
    CHECK((down == 1).all());
    for (int t = 0; t < 3000 && sum.minCoeff() > most - 27.7; ++t) {
      const Numbers a = Numbers::NullaryExpr([&] { return -most * random.uniform(); });
      const Gates rounded = a.cast<float>();
      if (t % 2 == 0) {
        step(a);
        sum += a;
      } else {
        step(rounded);
        sum += rounded.cast<double>();
      }
      REQUIRE((x == sum).all());
      REQUIRE((up.cast<double>() / sum.exp() - 1).abs().maxCoeff() <= 2.5 * u);
      REQUIRE((down.cast<double>() * up.cast<double>() - 1).abs().maxCoeff() <= 2 * u);
    }
  }
}
