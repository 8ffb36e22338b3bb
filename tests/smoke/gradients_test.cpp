// Gradients of both forms, compiled from the headers alone, against the definition.
#include "../gradient/require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

template <class Scalar, class F>
void check_map() {
  for (const double gates : {.1, 3.}) {
    CAPTURE(gates);
    Random random(1);
    const Problem<Scalar> x(random, 4, 3, 40, gates);
    const auto& p = x.parameters;
    check_forms<Normalized>(F{}, decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::half_split), x,
                            {"rates", Steps::rates, Pairing::half_split}, {.scale = .8}, 0, {1, 7, 64});
    check_forms<Normalized>(F{}, channel_decay(p.log_a), x, {"channels", Steps::channels}, {.scale = .8}, 0, {16});
  }
}

}  // namespace

TEST_CASE("every gradient is that of the definition", "[smoke]") {
  check_map<float, SymmetricPower<2>>();
  check_map<double, Exponential>();
}
