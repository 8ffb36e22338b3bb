// Initial and final states: one run is two runs joined; a final state is the sum that it says it is.
#include <array>
#include <numeric>

#include "call.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

cuda::Problem problem_of(int power, int d) {
  cuda::Problem p;
  p.power = power;
  p.d = d;
  p.e = 24;
  p.batch = 2;
  p.tokens = 200;
  p.query_heads = 2;
  p.key_heads = 1;
  p.gate_heads = 2;
  p.scale = 1.f / static_cast<float>(d);  // rows are within fp16
  p.carries_state = true;
  p.chunk = 64;
  return p;
}

/// Tokens 0 … split - 1 of every sequence, then the others from the state that these leave, in the same memory.
void check_joined(const std::string& what, cuda::Problem p, const Tokens& x, std::int64_t split) {
  if (!is_compiled(what, p)) return;
  const Arrays arrays(x, Layout::dense);
  arrays.set_rotary(p);
  const OwnState own(p);
  for (const std::int64_t first : {std::int64_t{0}, split}) {
    p.tokens = first == 0 ? split : x.tokens - split;
    cuda::Inputs inputs = arrays.inputs(first);
    cuda::Outputs outputs = arrays.outputs(first);
    if (first > 0) inputs.initial_state = own.state;
    outputs.final_state = own.state;
    if (!run(p, inputs, outputs, nullptr)) return;
  }
  p.tokens = x.tokens;
  arrays.check_rows(what, p, way_of(p));
  std::printf("  %-52s bits %016llx\n", (what + ": the last state,").c_str(), digest(own.memory.values()));
}

/// S, Z, L and A against their sums, of P 2. Roundings: a weighted key and a product; sums of 16 products; a sum a
/// chunk. Of A: all sums in float.
void check_sums() {
  cuda::Problem p = problem_of(2, 16);
  p.batch = 1;
  if (!is_compiled("sums of a final state", p)) return;
  const Tokens x(p, Gates::slow, 6);
  const Arrays arrays(x, Layout::dense);
  const OwnState own(p);
  cuda::Outputs outputs = arrays.outputs();
  outputs.final_state = own.state;
  if (!run(p, arrays.inputs(), outputs, nullptr)) return;
  const auto D = static_cast<std::size_t>(cuda::monomials(2, 16)), e = static_cast<std::size_t>(p.e);
  const auto heads = static_cast<std::size_t>(p.gate_heads);
  const auto copy = [](const auto* data, std::size_t n) {
    std::vector<std::remove_const_t<std::remove_pointer_t<decltype(data)>>> values(n);
    runtime(cudaMemcpy(values.data(), data, n * sizeof values[0], cudaMemcpyDeviceToHost));
    return values;
  };
  const auto S = copy(own.state.sums, heads * D * e), Z = copy(own.state.normaliser, heads * D);
  const auto A = copy(own.state.mass, heads);
  const auto L = copy(own.state.level, heads);
  const double rounding = (2 * x.format.u() + (4 + 1) * 21 / 4. * 0x1p-23 + 16 * 0x1p-23) * 1.1;
  for (std::size_t h = 0; h < heads; ++h) {
    const double unit = std::exp2(std::ceil(L[h]));
    std::vector<double> sums(D * e), normaliser(D), sizes(D * e);
    double mass = 0, gate = 0;
    for (std::int64_t t = p.tokens - 1; t >= 0; --t) {
      const double* k = &x.keys[x.row(0, t, 0, 1) * 16];
      const double weight = std::exp(gate) / unit;
      std::size_t m = 0;
      for (int i = 0; i < 16; ++i)
        for (int j = i; j < 16; ++j, ++m) {
          normaliser[m] += weight * k[i] * k[j];
          for (std::size_t c = 0; c < e; ++c) {
            const double term = weight * k[i] * k[j] * x.values[x.row(0, t, 0, 1) * e + c];
            sums[m * e + c] += term;
            sizes[m * e + c] += std::abs(term);
          }
        }
      mass += weight * std::inner_product(k, k + 16, k, 0.);
      gate += static_cast<double>(x.log_gates[x.row(0, t, static_cast<std::int64_t>(h), p.gate_heads)]);
    }
    double worst = std::abs(static_cast<double>(A[h]) - mass) / (mass * (200 + 16 + 16) * 0x1p-24);
    for (std::size_t m = 0; m < D; ++m) {
      worst = std::max(worst, std::abs(static_cast<double>(Z[h * D + m]) - normaliser[m]) / (rounding * normaliser[m]));
      for (std::size_t i = m * e; i < (m + 1) * e; ++i)
        worst = std::max(worst, std::abs(static_cast<double>(S[h * D * e + i]) - sums[i]) / (rounding * sizes[i]));
    }
    require(worst <= 1, "a state of head %d is %g times its bound off", static_cast<int>(h), worst);
    std::printf("  %-52s %4.2f of the bound\n", "S, Z and A of a final state", worst);
  }
}

}  // namespace

void test_states() {
  for (const auto [power, d] : {std::array{1, 64}, {2, 16}, {2, 32}, {3, 16}})
    for (const auto element : {cuda::Element::bf16, cuda::Element::fp16}) {
      cuda::Problem p = problem_of(power, d);
      p.element = element;
      check_joined(
          "two runs joined, P " + std::to_string(power) + ", d " + std::to_string(d) + ", " + Format{element}.name(), p,
          Tokens(p, Gates::slow, 5), 70);
    }
  cuda::Problem p = problem_of(2, 16);
  check_joined("two runs joined, gates of 0 and e^-1000", p, Tokens(p, Gates::any, 5), 64);
  check_joined("the first run of one token", p, Tokens(p, Gates::slow, 5), 1);
  check_joined("the second run of one chunk", p, Tokens(p, Gates::slow, 5), 150);
  for (const auto element : {cuda::Element::fp16, cuda::Element::f32})  // of 16 bits that with the smaller bound
    for (const bool halves : {false, true}) {
      p.element = element;
      check_joined(std::string("two runs joined, ") + Format{element}.name() +
                       (halves ? ", rotary of halves" : ", rotary of neighbours"),
                   p, Tokens(p, Gates::slow, 5).turned({halves, [](int t) { return 1 + .9 * std::sin(t); }, 0}), 70);
    }
  check_sums();
}

}  // namespace sympow::test
