// Gradients of states in two terms: as exact as that, which those of one term are not.
#include "rotary_backward.hpp"

using namespace sympow::test;

namespace {

enum class Of { queries, keys, gates };

/// Root mean square of the errors of dq that read a state alone, of dk that read an adjoint alone, or of d log γ of a
/// chunk that only passes both on; most of what is read cancels; in relation to these gradients. P 1 and gates of 1:
/// nothing but states and the gradient is rounded. Keys from a token on are 0, and so is dy before 128; vectors that
/// read are ±1, as many of both signs, those of states are about 1.
template <class T>
double error_of_reading(bool is_split, Of what) {
  constexpr int d = 64, e = 16, tokens = 160, cut = 128;
  const bool of_keys = what == Of::keys;
  using K = Kernels<T, 1, d>;
  Case how = case_of<K>({tokens});
  how.e = e;
  how.normalised = false;
  how.is_split = is_split;
  how.log_gate = [](int) { return 0.; };
  ArraysOf<K> x(how);
  GradientBuffers<T, d> gradients(x, 0);
  auto &signs = of_keys ? x.values : gradients.d_rows, &others = of_keys ? gradients.d_rows : x.values;
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < e; ++c) {
      x.set(signs, 0, t, 0, c, (t * 3 + c * 5) % e < e / 2 ? 1 : -1);
      x.set(others, 0, t, 0, c, 1 + double{to_float(others.data[others.at(0, t, 0, c)])} / 16);
    }
    if (t >= (what == Of::gates ? 64 : cut)) x.set_row(x.keys, 0, t, 0, 0.);
    if (t < cut) x.set_row(gradients.d_rows, 0, t, 0, 0.);
  }
  const host::Report report = run_calls<K>(x, gradients, {0, 1 << 30});
  INFO(report.text());
  REQUIRE(report.clean());
  const GradientRule expected = rule_of<K>(x, gradients, 0);
  const auto error = [&](const auto& of, const GradientRule::Entries& entries, int first, int end) {
    const std::vector<double> got = sequence_of(of, 0);
    double errors = 0, squares = 0;
    for (int i = first * of.width; i < end * of.width; ++i) {
      const double exact = entries.exact[index(i)], off = got[index(i)] - exact;
      errors += off * off, squares += exact * exact;
    }
    return std::sqrt(errors / squares);
  };
  return what == Of::queries ? error(gradients.d_queries, expected.q, cut, tokens)
         : of_keys           ? error(gradients.d_keys, expected.k, 0, cut)
                             : error(gradients.d_gates, expected.gates, 64, cut);
}

}  // namespace

TEMPLATE_TEST_CASE("where states are all that is rounded, gradients of split states are hardly off", "[cuda]", bf16,
                   fp16) {
  for (const Of what : {Of::queries, Of::keys, Of::gates}) {
    const double split = error_of_reading<TestType>(true, what), rounded = error_of_reading<TestType>(false, what);
    CAPTURE(static_cast<int>(what), split, rounded);
    if (what != Of::gates) REQUIRE(split < u_of<TestType>);  // these are not rounded themselves
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
