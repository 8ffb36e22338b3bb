// Initial and final states: one run is two runs joined; a final state is the sum that it says it is.
#include <array>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>

#include <sympow/cuda/gradient.hpp>

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
  if (!can_run(what, p)) return;
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
  if (!can_run("sums of a final state", p)) return;
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

/// visit(m, P! / Π r!, channels) of all monomials, in lexicographic order.
template <class Visit>
void each_monomial(int power, int d, const Visit& visit) {
  std::vector<int> channels(static_cast<std::size_t>(power), 0);
  for (std::size_t m = 0;; ++m) {
    double coefficient = 1, run = 1;
    for (std::size_t p = 1; p < channels.size(); ++p) {
      run = channels[p] == channels[p - 1] ? run + 1 : 1;
      coefficient *= static_cast<double>(p + 1) / run;
    }
    visit(m, coefficient, channels);
    std::size_t last = channels.size();
    while (last > 0 && channels[last - 1] == d - 1) --last;
    if (last == 0) return;
    const int next = channels[last - 1] + 1;
    std::fill(channels.begin() + static_cast<std::ptrdiff_t>(last) - 1, channels.end(), next);
  }
}

/// States from arrays and back, each entry rounded once: those of the last one are 0, the first has a mass.
void check_arrays(int power, int d, bool is_gradient) {
  cuda::Problem p = problem_of(power, d);
  const std::string what = "arrays, P " + std::to_string(power) + ", d " + std::to_string(d) +
                           (is_gradient ? ", of a gradient" : ", of a state");
  if (!can_run(what, p)) return;
  const Array<double> rates(std::vector<double>(static_cast<std::size_t>(d / 2), 1.));
  if (!is_gradient) p.rates = rates.data();
  p.pairing = cuda::Pairing::interleaved;
  const auto states = static_cast<std::size_t>(p.batch * p.gate_heads), e = static_cast<std::size_t>(p.e);
  const auto D = static_cast<std::size_t>(cuda::monomials(power, d)), pairs = static_cast<std::size_t>(d / 2);
  std::mt19937 random(8);
  std::normal_distribution<double> normal;
  std::vector<float> S(states * D * e), Z(states * D);
  std::vector<double> angles(states * pairs);
  for (std::size_t n = 0; n + 1 < states; ++n) {
    const double unit = std::exp2(40. * (static_cast<double>(n) - 1));
    for (std::size_t i = 0; i < D * e; ++i) S[n * D * e + i] = static_cast<float>(unit * normal(random));
    for (std::size_t m = 0; m < D; ++m)
      Z[n * D + m] = static_cast<float>(unit * (n == 0 ? 1 : -1) * static_cast<double>(1 + m % 3));
  }
  for (double& x : angles) x = 9 * normal(random);
  const Array<float> of_S(S), of_Z(Z), to_S(S.size()), to_Z(Z.size());
  const Array<double> of_angles(angles), to_angles(angles.size());
  const OwnState own(p);
  const cuda::StateArrays from{of_S.data(), of_Z.data(), p.rates ? of_angles.data() : nullptr};
  const cuda::StateArrays to{to_S.data(), to_Z.data(), p.rates ? to_angles.data() : nullptr};
  if (!done(is_gradient ? cuda::gradient_of_arrays(p, from, {}, own.state, nullptr)
                        : cuda::state_of_arrays(p, from, own.state, nullptr)) ||
      !done(is_gradient ? cuda::gradient_to_arrays(p, own.state, {}, to, nullptr)
                        : cuda::state_to_arrays(p, own.state, to, nullptr)))
    return;
  runtime(cudaDeviceSynchronize());
  const auto copy = [](const auto* data, std::size_t n) {
    std::vector<std::remove_const_t<std::remove_pointer_t<decltype(data)>>> values(n);
    runtime(cudaMemcpy(values.data(), data, n * sizeof values[0], cudaMemcpyDeviceToHost));
    return values;
  };
  const auto s = copy(own.state.sums, S.size()), z = copy(own.state.normaliser, Z.size());
  const auto A = copy(own.state.mass, states);
  const auto L = copy(own.state.level, states);
  const auto back_S = to_S.values(), back_Z = to_Z.values();
  constexpr double u = 0x1p-24;
  double worst = 0;
  const auto look = [&worst](double found, double exact, double bound) {
    const double off = std::abs(found - exact);
    worst = off <= bound ? std::max(worst, bound > 0 ? off / bound : 0.) : 1 / 0.;
  };
  const auto wide = [](float x) { return static_cast<double>(x); };
  for (std::size_t n = 0; n < states; ++n) {
    double largest = 0, mass = 0, sizes = 0;
    for (std::size_t i = 0; i < D * e; ++i) largest = std::max(largest, std::abs(wide(S[n * D * e + i])));
    for (std::size_t m = 0; m < D; ++m) largest = std::max(largest, std::abs(wide(Z[n * D + m])));
    int exponent = 0;
    std::frexp(largest, &exponent);
    require(L[n] == (largest == 0 ? -std::numeric_limits<double>::infinity() : exponent), "%s: the level of state %d",
            what.c_str(), static_cast<int>(n));
    each_monomial(power, d, [&](std::size_t m, double coefficient, const std::vector<int>& channels) {
      const double factor = std::ldexp(1 / std::sqrt(coefficient), -exponent), of_z = wide(Z[n * D + m]) * factor;
      const auto entry = [&](float there, float back, float given) {
        look(wide(there), wide(given) * factor, (1 + 1e-6) * u * std::abs(wide(given) * factor));
        look(wide(back), wide(given), (2 + 1e-6) * u * std::abs(wide(given)));
      };
      entry(z[n * D + m], back_Z[n * D + m], Z[n * D + m]);
      for (std::size_t i = (n * D + m) * e; i < (n * D + m + 1) * e; ++i) entry(s[i], back_S[i], S[i]);
      bool is_square = power % 2 == 0;
      for (std::size_t q = 1; is_square && q < channels.size(); q += 2) is_square = channels[q] == channels[q - 1];
      const double half = power == 4 && channels.front() != channels.back() ? 2 : 1;
      if (is_square) mass += half * of_z, sizes += half * std::abs(of_z);
    });
    if (is_gradient)
      mass = std::ldexp(largest, -exponent);
    else
      mass = std::max(mass, 0.);
    look(wide(A[n]), mass, (1 + 1e-6) * u * mass + sizes * 0x1p-45);
    if (!p.rates) continue;
    const auto turned = to_angles.values();
    for (std::size_t j = 0; j < pairs; ++j) {  // of one key head
      const double given = angles[n / 2 * 2 * pairs + j];
      look(std::remainder(turned[n * pairs + j] - given, 2 * std::numbers::pi), 0, 0x1p-50 * (std::abs(given) + 7));
      require(std::abs(turned[n * pairs + j]) < 3.1416, "%s: an angle is not reduced", what.c_str());
    }
  }
  require(worst <= 1, "%s: %g times the bound off", what.c_str(), worst);
  std::printf("  %-52s %4.2f of the bound, bits %016llx\n", what.c_str(), worst, digest(own.memory.values()));
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
  for (const auto [power, d] : {std::array{1, 64}, {2, 16}, {2, 128}, {3, 16}, {4, 16}})
    for (const bool is_gradient : {false, true}) check_arrays(power, d, is_gradient);
}

}  // namespace sympow::test
