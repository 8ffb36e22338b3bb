// A backward pass by the gradient row rule: of the chunked form in one call or in several with states between them, or
// of the quadratic form.
#pragma once

#include <memory>

#include "backward.hpp"
#include "forward_cases.hpp"
#include "gradient_rule.hpp"

namespace sympow::test {

template <class X>
std::vector<double> sequence_of(const Tokens<X>& x, int b) {
  std::vector<double> all;
  for (int t = 0; t < x.batch.length(b); ++t)
    for (int h = 0; h < x.heads; ++h)
      for (int c = 0; c < x.width; ++c) all.push_back(static_cast<double>(to_float(x.data[x.at(b, t, h, c)])));
  return all;
}

template <class K>
std::vector<double> rates_of(const ArraysOf<K>& x) {
  std::vector<double> all;
  for (std::size_t u = 0; u < K::d / 2 && x.how.rotary; ++u) all.push_back(x.rates[u]);
  return all;
}

/// What sequence b must come to.
template <class K>
GradientRule rule_of(const ArraysOf<K>& x, const GradientBuffers<typename K::T, K::d>& gradients, int b) {
  const Case& how = x.how;
  const Heads& heads = how.heads;
  const GradientProblem problem{K::P,
                                K::d,
                                how.e,
                                x.batch.length(b),
                                heads.query,
                                heads.key,
                                how.log_gate ? heads.state : 0,
                                how.normalised,
                                how.scale,
                                sequence_of(x.queries, b),
                                sequence_of(x.keys, b),
                                sequence_of(x.values, b),
                                sequence_of(gradients.d_rows, b),
                                how.log_gate ? sequence_of(x.gates, b) : std::vector<double>{},
                                rates_of<K>(x),
                                how.rotary ? sequence_of(x.beta, b) : std::vector<double>{},
                                how.rotary && how.rotary->halves};
  if (sizeof(typename K::T) == 2) return GradientRule(problem, u_of<typename K::T>);
  const double lost = how.products == Products::exact ? u_of<float> : (1 + 0x1p-8) * 0x1p-15;
  return GradientRule(problem, u_float, GradientRule::floats(problem, lost, how.chunk, state_rows(K::P, K::d)));
}

/// The largest error of an array in relation to its bound: the smaller one of `rule` times that of norms and that of
/// roundings. Not a number: infinite.
template <class X>
double worst_error(const Tokens<X>& got, int b, const GradientRule::Entries& expected, double rule) {
  const std::vector<double> all = sequence_of(got, b);
  double worst = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double exact = std::abs(expected.exact[i]), rounding = u_of<X> * exact;
    const double off = std::min(rule * expected.bound[i], expected.off[i] + rounding) + least_of<X>;
    const bool is_beyond = exact + off > largest_of<X> && std::isinf(all[i]) && (all[i] > 0) == (expected.exact[i] > 0);
    const double error = is_beyond ? 0 : std::abs(all[i] - expected.exact[i]) / off;
    worst = std::max(worst, std::isnan(error) ? infinity : error);
  }
  return worst;
}

/// Calls from each of `cuts` to the next, forward and then backward; the last cut is beyond all lengths. Every call but
/// the last leaves a state, every one but the first the gradient of it. No cuts: the quadratic form. `gauge`: of all.
template <class K>
host::Report run_calls(ArraysOf<K>& x, GradientBuffers<typename K::T, K::d>& gradients, const std::vector<int>& cuts,
                       const host::Options& options = {}, Global<const double> gauge = {}) {
  using Pass = Backward<typename K::T, K::P, K::d>;
  if (cuts.empty()) {
    Pass pass(x, gradients);
    host::Report all = pass.run(options);
    pass.check_stored(all);
    return all;
  }
  const std::size_t calls = cuts.size() - 1;
  std::vector<std::unique_ptr<Pass>> passes;
  std::vector<std::unique_ptr<StateBuffers>> states, adjoints;
  const auto state = [&] {
    const int angles = x.how.rotary ? x.batch.size() * x.how.heads.key * K::d / 2 : 0;
    return std::make_unique<StateBuffers>(x.batch.size() * x.how.heads.state, Pass::D, x.how.e, angles);
  };
  host::Report report;
  for (std::size_t n = 0; n < calls; ++n) {
    passes.push_back(std::make_unique<Pass>(x, gradients, cuts[n], cuts[n + 1]));
    passes.back()->gauge = gauge;
    states.push_back(state()), adjoints.push_back(state());
    join(report, passes[n]->forward.run(options, n > 0 ? states[n - 1].get() : nullptr,
                                        n + 1 < calls ? states[n].get() : nullptr));
  }
  for (std::size_t n = calls; n-- > 0;)
    join(report,
         passes[n]->run_chunked(options, n > 0 ? states[n - 1].get() : nullptr,
                                n + 1 < calls ? adjoints[n].get() : nullptr, n > 0 ? adjoints[n - 1].get() : nullptr));
  passes[0]->check_stored(report);
  return report;
}

/// Runs without a fault, all gradients stored, all within the rule: "", else what is wrong. A gate of 0 has the
/// gradient 0.
template <class K>
std::string run_chunked_backward(
    Case how, const std::vector<int>& cuts = {0, 1 << 30},
    const std::function<void(ArraysOf<K>&, GradientBuffers<typename K::T, K::d>&)>& edit = {},
    const host::Options& options = {}) {
  how.has_factors = how.normalised;
  if (cuts.empty()) how.chunk = (*std::max_element(how.lengths.begin(), how.lengths.end()) + 63) / 64 * 64;
  ArraysOf<K> x(how);
  GradientBuffers<typename K::T, K::d> gradients(x, 0);
  if (edit) edit(x, gradients);
  const host::Report report = run_calls<K>(x, gradients, cuts, options);
  if (!report.clean()) return report.text();
  const double states =
      cuts.empty() ? 0 : (x.batch.longest + how.chunk - 1) / how.chunk + static_cast<int>(cuts.size()) - 2;
  const double rule = GradientRule::factor(K::P, u_of<typename K::T>, states, how.rotary.has_value());
  GradientRule::Entries rates(gradients.d_rates.size()), scale(1);
  for (int b = 0; b < x.batch.size(); ++b) {
    const GradientRule expected = rule_of<K>(x, gradients, b);
    const double errors[] = {worst_error(gradients.d_queries, b, expected.q, rule),
                             worst_error(gradients.d_keys, b, expected.k, rule),
                             worst_error(gradients.d_values, b, expected.v, rule),
                             how.log_gate ? worst_error(gradients.d_gates, b, expected.gates, rule) : 0.,
                             how.rotary ? worst_error(gradients.d_beta, b, expected.beta, rule) : 0.};
    for (std::size_t u = 0; u < rates.exact.size(); ++u)
      rates.add(u, expected.rates.exact[u], expected.rates.bound[u], expected.rates.off[u]);
    scale.add(0, expected.d_scale.exact[0], expected.d_scale.bound[0], expected.d_scale.off[0]);
    const char* names[] = {"dq", "dk", "dv", "d log gate", "dβ"};
    for (int n = 0; n < 5; ++n)
      if (!(errors[n] <= 1))
        return std::string(names[n]) + " of sequence " + std::to_string(b) + ": " + std::to_string(errors[n]) +
               " of the rule";
    for (int t = 0; t < x.batch.length(b) && how.log_gate; ++t)
      for (int h = 0; h < how.heads.state; ++h)
        if ((t == 0 || how.log_gate(t + h) == -infinity) &&
            gradients.d_gates.data[gradients.d_gates.at(b, t, h, 0)] != 0)
          return "d log gate of token " + std::to_string(t) + " is not 0";
    for (int h = 0; h < how.heads.key && how.rotary && x.batch.length(b) > 0; ++h)
      if (gradients.d_beta.data[gradients.d_beta.at(b, 0, h, 0)] != 0) return "dβ of the first token is not 0";
  }
  bool is_lost = false;  // rows beyond the format
  for (int b = 0; b < x.batch.size(); ++b)
    for (const double y : sequence_of(x.rows, b)) is_lost = is_lost || !std::isfinite(y);
  if (!is_lost && !(std::abs(gradients.d_scale - scale.exact[0]) <= std::min(rule * scale.bound[0], scale.off[0])))
    return "d scale: " + std::to_string(gradients.d_scale) + " is not " + std::to_string(scale.exact[0]) + " ± " +
           std::to_string(std::min(rule * scale.bound[0], scale.off[0]));
  for (std::size_t u = 0; u < rates.exact.size(); ++u) {
    const double error = std::abs(gradients.d_rates[u] - rates.exact[u]);
    if (!(error <= std::min(rule * rates.bound[u], rates.off[u])))
      return "d rates of pair " + std::to_string(u) + ": " + std::to_string(gradients.d_rates[u]) + " is not " +
             std::to_string(rates.exact[u]) + " ± " + std::to_string(std::min(rule * rates.bound[u], rates.off[u]));
  }
  return "";
}

/// Queries and keys without negative entries: rows are well conditioned, and no error hides behind a large bound.
template <class K>
void make_positive(ArraysOf<K>& x) {
  for (auto* tokens : {&x.queries, &x.keys})
    for (int b = 0; b < x.batch.size(); ++b)
      for (int t = 0; t < x.batch.length(b); ++t)
        for (int h = 0; h < tokens->heads; ++h)
          for (int c = 0; c < K::d; ++c)
            x.set(*tokens, b, t, h, c, std::abs(static_cast<double>(to_float(tokens->data[tokens->at(b, t, h, c)]))));
}

/// A case in one call or several.
template <class K>
void check_chunked(const Case& how, const std::vector<int>& cuts = {0, 1 << 30}) {
  CAPTURE(K::P, K::d, fraction_bits<typename K::T>, how.normalised, how.chunk);
  REQUIRE(run_chunked_backward<K>(how, cuts, [](auto& x, auto&) { make_positive<K>(x); }) == "");
}

/// Layouts: lengths at the borders of tiles and chunks, empty sequences, packed ones, heads in groups, value channels.
template <class K>
void check_chunked_layouts() {
  const auto slow = [](int t) { return -.002 * (t % 7); };
  Case how = case_of<K>({1, 63, 64, 65, 0, 129});
  how.e = 16;
  how.log_gate = slow;
  for (const bool packed : {false, true}) {
    how.packed = packed;
    check_chunked<K>(how);
  }
  how.lengths = {270, 190};
  for (const int chunk : {128, 192}) {  // of several blocks
    how.chunk = chunk;
    check_chunked<K>(how);
  }
  for (const int e : {8, 72, 136}) {
    Case wide = case_of<K>({140, 70});
    wide.e = e;
    wide.heads = e == 8 ? Heads{4, 2, 2} : e == 72 ? Heads{4, 2, 1} : Heads{2, 1, 1};
    wide.log_gate = slow;
    check_chunked<K>(wide);
    if (e != 72) continue;
    wide.heads = {2, 2, 1};
    wide.chunk = 128;
    check_chunked<K>(wide);
  }
}

/// Gates of all kinds, normalised or not.
template <class K>
void check_chunked_gates(int length) {
  for (const auto& gate : kinds_of_gates())
    for (const bool normalised : {true, false})
      for (const int chunk : {64, 128}) {
        Case how{{length}};
        how.e = 16;
        how.chunk = chunk;
        how.normalised = normalised;
        how.log_gate = gate;
        check_chunked<K>(how);
      }
}

/// Values of this size, and nothing of another sign: |y·dŷ| is larger still, and of sums the gradient of the scale is
/// held to few roundings.
template <class K>
void check_large_values(double size, bool normalised = true, int length = 150) {
  Case how = case_of<K>({length});
  how.e = 16;
  how.normalised = normalised;
  how.scale = normalised ? 1 : -.5;
  how.log_gate = [](int) { return -.01; };
  REQUIRE(run_chunked_backward<K>(how, {0, 1 << 30}, [&](auto& x, auto& gradients) {
            make_positive<K>(x);
            for (int t = 0; t < length; ++t)
              for (int c = 0; c < how.e; ++c) {
                x.set(x.values, 0, t, 0, c, size * (1 + (t * 5 + c * 3) % 7));
                x.set(gradients.d_rows, 0, t, 0, c, .5 + (t * 3 + c * 5) % 8 / 16.);
              }
          }) == "");
}

/// Norms of keys, queries and dY that differ by many orders; scales.
template <class K>
void check_chunked_norms(int length) {
  constexpr bool wide = fraction_bits<typename K::T> != 10;
  Case how = case_of<K>({length});
  how.e = 16;
  how.log_gate = [](int t) { return t % 5 == 0 ? -3. : -.01; };
  how.key_decades = how.query_decades = wide ? 3. : .5;
  check_chunked<K>(how);
  how.normalised = false;
  for (const double scale : {.125, -2., 0.}) {
    how.scale = scale;
    check_chunked<K>(how);
  }
  for (const double size : {wide ? 0x1p115 : 0x1p12, wide ? 0x1p-115 : 0x1p-10}) check_large_values<K>(size);
}

/// Calls with states and gradients of states between them: cut at the borders of chunks and elsewhere, a sequence that
/// ends before a cut, and one without tokens.
template <class K>
void check_calls(bool of_all_gates) {
  Case how = case_of<K>({140, 70, 0});
  how.e = 8;
  how.heads = {2, 2, 1};
  for (const auto& gate : {std::function<double(int)>([](int t) { return t % 40 == 7 ? -1. : -.01; }),
                           std::function<double(int)>([](int t) { return t % 90 == 70 ? -infinity : -.02; }),
                           std::function<double(int)>()}) {
    how.log_gate = gate;
    check_chunked<K>(how, {0, 30, 94, 95, 1 << 30});
    if (!of_all_gates) break;
    check_chunked<K>(how, {0, 64, 1 << 30});
  }
}

}  // namespace sympow::test
