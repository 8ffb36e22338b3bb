// A backward pass: every gradient by the gradient row rule and by its roundings, in the quadratic form and the chunked
// one, and both beside what the library for CPUs says.
#include "backward_cases.hpp"
#include "rotary_backward.hpp"

#include <sympow/attention/gradients.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

using namespace sympow::test;

namespace {

using Small = Kernels<bf16, 2, 16>;

#define SYMPOW_SMALL Small, (Kernels<fp16, 2, 16>)

std::vector<double> entries(const Eigen::MatrixXd& x) { return {x.data(), x.data() + x.size()}; }

/// The bounds of the definition around what the library says.
template <class Gradients>
GradientRule around(GradientRule rule, const Gradients& library) {
  rule.q.exact = entries(library.Q), rule.k.exact = entries(library.K), rule.v.exact = entries(library.V);
  rule.gates.exact = entries(library.transition.left().log_gamma);
  rule.beta.exact = entries(library.transition.right().beta);
  rule.rates.exact = entries(library.transition.right().theta);
  return rule;
}

/// Rows of positive numbers, or of which all flows through angles have one sign.
void check_against_library(const Case& how, bool is_chunked, bool is_aligned) {
  CAPTURE(is_chunked, is_aligned);
  ArraysOf<Small> x(how);
  GradientBuffers<bf16, 16> gradients(x, 0);
  if (is_aligned)
    make_aligned<Small>(x, gradients);
  else
    make_positive<Small>(x);
  host::Report report;
  if (is_chunked) {
    report = run_calls<Small>(x, gradients, {0, 1 << 30});
  } else {
    Backward<bf16, 2, 16> backward(x, gradients);
    report = backward.run({});
  }
  INFO(report.text());
  REQUIRE(report.clean());
  const int T = how.lengths[0];
  const auto matrix = [&](const auto& tokens) {
    const std::vector<double> all = sequence_of(tokens, 0);
    return Eigen::MatrixXd(Eigen::Map<const Eigen::MatrixXd>(all.data(), tokens.width, T));
  };
  const Eigen::MatrixXd Q = matrix(x.queries), K = matrix(x.keys), V = matrix(x.values), dY = matrix(gradients.d_rows);
  const Eigen::RowVectorXd log_gamma = matrix(x.gates).row(0), beta = matrix(x.beta).row(0);
  const std::vector<double> rates = rates_of<Small>(x);
  const Eigen::VectorXd theta = Eigen::Map<const Eigen::VectorXd>(rates.data(), 8);
  const GradientRule definition = rule_of<Small>(x, gradients, 0);
  const double rule = GradientRule::factor(2, u_of<bf16>, (T + how.chunk - 1) / how.chunk, true);
  const auto compare = [&](const GradientRule& expected) {
    REQUIRE(worst_error(gradients.d_queries, 0, expected.q, rule) <= 1);
    REQUIRE(worst_error(gradients.d_keys, 0, expected.k, rule) <= 1);
    REQUIRE(worst_error(gradients.d_values, 0, expected.v, rule) <= 1);
    REQUIRE(worst_error(gradients.d_gates, 0, expected.gates, rule) <= 1);
    REQUIRE(worst_error(gradients.d_beta, 0, expected.beta, rule) <= 1);
    for (std::size_t u = 0; u < rates.size(); ++u)
      REQUIRE(std::abs(gradients.d_rates[u] - expected.rates.exact[u]) <=
              std::min(rule * expected.rates.bound[u], expected.rates.off[u]));
  };
  const auto pairing = how.rotary->halves ? sympow::Pairing::half_split : sympow::Pairing::interleaved;
  const auto A = sympow::decay(log_gamma) * sympow::rotary(theta, beta, pairing);
  const sympow::SymmetricPower<2> feature;
  if (how.normalised) {
    compare(around(definition, sympow::attention_vjp(feature, A, {.Q = Q, .K = K, .V = V, .dY = dY})));
    compare(around(definition, sympow::chunked_vjp(feature, A, {.Q = Q, .K = K, .V = V, .dY = dY})));
  } else {
    compare(around(definition,
                   sympow::attention_vjp<sympow::Unnormalized>(feature, A, {.Q = Q, .K = K, .V = V, .dY = dY})));
    compare(
        around(definition, sympow::chunked_vjp<sympow::Unnormalized>(feature, A, {.Q = Q, .K = K, .V = V, .dY = dY})));
  }
}

}  // namespace

TEST_CASE("gradients are right in every layout of a batch", "[cuda]") { check_backward_layouts<Small>(80); }
TEST_CASE("gradients are right for all gates", "[cuda]") { check_backward_gates<Small>(130); }
TEMPLATE_TEST_CASE("gradients are right for all norms and scales", "[cuda]", SYMPOW_SMALL) {
  check_backward_norms<TestType>(66);
}
TEST_CASE("gradients of zeros are right", "[cuda]") {
  check_backward_zeros<Small>(70);
  check_backward_zeros<Kernels<fp16, 1, 64>>(70);
}
TEST_CASE("rows whose gradient is zero have no weight", "[cuda]") { check_backward_large_rows_of_zeros<Small>(70); }
TEST_CASE("peaks are the largest exponents of the rows that see a key", "[cuda]") { check_peaks(); }
TEST_CASE("what is not a number shows in the gradients that it is part of", "[cuda]") {
  check_backward_not_a_number<Small>(140);
  check_backward_not_a_number<Kernels<fp16, 1, 64>>(140);
}
TEST_CASE("gradients are the same in any order of warps", "[cuda]") {
  Case how = case_of<Small>({130});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_backward_orders<Small>(how);
}
TEST_CASE("gradients meet no bank twice, and multiply each pair of tiles once", "[cuda]") {
  using Kernel = Kernels<bf16, 2, 64>;
  Case how = case_of<Kernel>({128});
  how.chunk = 128;
  how.has_factors = true;
  how.log_gate = [](int) { return -.01; };
  ArraysOf<Kernel> x(how);
  GradientBuffers<Kernel::T, Kernel::d> gradients(x, 0);
  Backward<Kernel::T, Kernel::P, Kernel::d> backward(x, gradients);
  REQUIRE(backward.forward.run_quadratic({}).clean());
  REQUIRE(backward.units({}).clean());
  const long tiles = 3, products = 4 * (64 / 16) * (64 / 8);  // pairs of 64 tokens; a warp has 16 rows
  const host::Report queries = backward.queries({}), keys = backward.keys({});
  REQUIRE(queries.executed("mma") == tiles * 3 * products);
  REQUIRE(keys.executed("mma") == tiles * 4 * products);
  for (const host::Report& report : {queries, keys})
    for (const auto& [place, site] : report.sites) {
      CAPTURE(place.text(), site.instruction);
      REQUIRE(site.shared.transactions == site.shared.ideal);
    }
}

// ---- the chunked form, in one call and in several ----

TEST_CASE("gradients of the chunked form are right in every layout of a batch", "[cuda]") {
  check_chunked_layouts<Small>();
}
TEST_CASE("gradients of the chunked form are right for all gates", "[cuda]") { check_chunked_gates<Small>(140); }
TEMPLATE_TEST_CASE("gradients of the chunked form are right for all norms and scales", "[cuda]", SYMPOW_SMALL) {
  check_chunked_norms<TestType>(150);
}
TEST_CASE("the gradient of the scale of sums of one sign", "[cuda]") {
  for (const int length : {1, 20, 70}) check_large_values<Kernels<bf16, 3, 16>>(1, false, length);
}
TEST_CASE("gradients of several calls are those of one", "[cuda]") { check_calls<Small>(true); }
TEMPLATE_TEST_CASE("gradients of the chunked form are right for other powers", "[cuda]", (Kernels<fp16, 1, 64>),
                   (Kernels<bf16, 3, 16>)) {
  check_calls<TestType>(false);
}

// ---- rows that turn, β and rates ----

TEST_CASE("gradients of rotary are right in every layout of a batch", "[cuda]") { check_rotary_layouts<Small>(); }
TEST_CASE("gradients of rotary in several calls are those of one", "[cuda]") { check_rotary_calls<Small>(); }
TEMPLATE_TEST_CASE("gradients of rotary are right for other powers", "[cuda]", (Kernels<fp16, 1, 64>),
                   (Kernels<bf16, 1, 128>), (Kernels<bf16, 3, 16>)) {
  Case how = case_of<TestType>({150});
  how.e = 16;
  how.rotary = Rotation{true, small_step, 0};
  check_aligned<TestType>(how, {});
  check_aligned<TestType>(how, {0, 70, 1 << 30});
}
TEST_CASE("gradients of rotary are right for all norms and steps", "[cuda]") {
  using Kernel = Kernels<fp16, 2, 16>;
  Case how = case_of<Kernel>({150});
  how.e = 16;
  how.key_decades = how.query_decades = .5;
  for (const double step : {0., -1e-3, 3e4}) {
    how.rotary = Rotation{false, [=](int t) { return t % 3 == 0 ? step : step / 2; }, 0};
    for (const auto& cuts : {std::vector<int>{}, {0, 1 << 30}}) check_turned<Kernel>(how, cuts);
  }
}
TEST_CASE("gradients of rotary are the same in any order of warps", "[cuda]") {
  using Kernel = Small;
  Case how = case_of<Kernel>({150});
  how.e = 16;
  how.has_factors = true;
  how.rotary = Rotation{false, small_step, 0};
  for (const auto& cuts : {std::vector<int>{}, {0, 70, 1 << 30}}) {
    how.chunk = cuts.empty() ? 192 : 64;
    std::string first;
    for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
      ArraysOf<Kernel> x(how);
      GradientBuffers<bf16, 16> gradients(x, 0);
      const host::Report report = run_calls<Kernel>(x, gradients, cuts, {schedule, 5, host::MmaSum::hopper, {}});
      INFO(report.text());
      REQUIRE(report.clean());
      std::string all = bits(gradients.d_queries.data, gradients.d_keys.data, gradients.d_beta.data);
      all.append(reinterpret_cast<const char*>(gradients.d_rates.data()), 8 * gradients.d_rates.size());
      if (first.empty()) first = all;
      REQUIRE(all == first);
    }
  }
}
TEST_CASE("what a turn of all tokens changes comes back to every one of them", "[cuda]") { check_gauge<Small>(); }

// ---- beside the library for CPUs ----

TEST_CASE("gradients of kernels are those of the library for CPUs", "[cuda]") {
  for (const bool is_chunked : {true, false})
    for (const bool is_aligned : {true, false}) {
      Case how = case_of<Small>({150});
      how.e = 16;
      how.chunk = is_chunked ? 64 : 192;
      how.normalised = how.has_factors = !is_aligned;
      how.log_gate = [](int t) { return t == 100 ? -infinity : -.02; };
      how.rotary = Rotation{is_chunked, small_step, 0};
      check_against_library(how, is_chunked, is_aligned);
    }
}
