// Gradients of states in two terms: as exact as that, which those of one term are not.
#include "rotary_backward.hpp"

using namespace sympow::test;

namespace {

/// Root mean square of the errors of dq (or dk) that read a state (or an adjoint) alone, of which most cancels, in
/// relation to theirs. P 1 and no gates: nothing but the state and the gradient is rounded. Keys from token 128 on are
/// 0, and so is dy before; vectors that read are ±1, as many of both signs, those of states are about 1.
template <class T>
double error_of_reading(bool is_split, bool of_keys) {
  constexpr int d = 64, e = 16, tokens = 160, cut = 128;
  using K = Kernels<T, 1, d>;
  Case how = case_of<K>({tokens});
  how.e = e;
  how.normalised = false;
  how.is_split = is_split;
  ArraysOf<K> x(how);
  GradientBuffers<T, d> gradients(x, 0);
  auto &signs = of_keys ? x.values : gradients.d_rows, &others = of_keys ? gradients.d_rows : x.values;
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < e; ++c) {
      x.set(signs, 0, t, 0, c, (t * 3 + c * 5) % e < e / 2 ? 1 : -1);
      x.set(others, 0, t, 0, c, 1 + double{to_float(others.data[others.at(0, t, 0, c)])} / 16);
    }
    if (t >= cut) x.set_row(x.keys, 0, t, 0, 0.);
    if (t < cut) x.set_row(gradients.d_rows, 0, t, 0, 0.);
  }
  const host::Report report = run_calls<K>(x, gradients, {0, 1 << 30});
  INFO(report.text());
  REQUIRE(report.clean());
  const GradientRule expected = rule_of<K>(x, gradients, 0);
  const std::vector<double> got = sequence_of(of_keys ? gradients.d_keys : gradients.d_queries, 0);
  const auto& exact = of_keys ? expected.k.exact : expected.q.exact;
  double errors = 0, squares = 0;
  for (int i = (of_keys ? 0 : cut) * d; i < (of_keys ? cut : tokens) * d; ++i) {
    errors += (got[index(i)] - exact[index(i)]) * (got[index(i)] - exact[index(i)]);
    squares += exact[index(i)] * exact[index(i)];
  }
  return std::sqrt(errors / squares);
}

}  // namespace

TEMPLATE_TEST_CASE("where states are all that is rounded, gradients of split states are off by their own rounding",
                   "[cuda]", bf16, fp16) {
  for (const bool of_keys : {false, true}) {
    const double split = error_of_reading<TestType>(true, of_keys), rounded = error_of_reading<TestType>(false, of_keys);
    CAPTURE(of_keys, split, rounded);
    REQUIRE(split < u_of<TestType>);
    REQUIRE(rounded > 4 * split);
  }
}
TEMPLATE_TEST_CASE("gradients of split states are right", "[cuda]", (Kernels<bf16, 2, 16>), (Kernels<fp16, 1, 64>)) {
  Case how = case_of<TestType>({140, 70, 0});
  how.is_split = true;
  how.e = 72;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_chunked<TestType>(how, {0, 70, 1 << 30});
  how.rotary = Rotation{true, small_step, 0};
  how.e = 8;
  check_aligned<TestType>(how, {0, 70, 1 << 30});
}
