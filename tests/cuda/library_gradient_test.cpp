// Gradients of kernels beside those of the library for CPUs: both forms of both agree by the gradient row rule.
#include "rotary_backward.hpp"

#include <sympow/attention/attention_vjp.hpp>
#include <sympow/attention/chunked_vjp.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

using namespace sympow::test;

namespace {

using Kernel = Kernels<bf16, 2, 16>;

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
  ArraysOf<Kernel> x(how);
  GradientBuffers<bf16, 16> gradients(x, 0);
  if (is_aligned)
    make_aligned<Kernel>(x, gradients);
  else
    make_positive<Kernel>(x);
  host::Report report;
  if (is_chunked) {
    report = run_calls<Kernel>(x, gradients, {0, 1 << 30});
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
  const std::vector<double> rates = rates_of<Kernel>(x);
  const Eigen::VectorXd theta = Eigen::Map<const Eigen::VectorXd>(rates.data(), 8);
  const GradientRule definition = rule_of<Kernel>(x, gradients, 0);
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

TEST_CASE("gradients of kernels are those of the library for CPUs", "[cuda]") {
  for (const bool is_chunked : {true, false})
    for (const bool is_aligned : {true, false}) {
      Case how = case_of<Kernel>({150});
      how.e = 16;
      how.chunk = is_chunked ? 64 : 192;
      how.normalised = how.has_factors = !is_aligned;
      how.log_gate = [](int t) { return t == 100 ? -infinity : -.02; };
      how.rotary = Rotation{is_chunked, small_step, 0};
      check_against_library(how, is_chunked, is_aligned);
    }
}
