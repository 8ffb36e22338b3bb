// attend_vjp: gradients against their definition in double, by the gradient row rule.
#include <array>
#include <random>

#include <sympow/cuda/gradient.hpp>

#include "call.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

/// Gradients by sums over pairs, and the rule's bounds: with m_ij = b_ij (|scale| ‖q_i‖ ‖k_j‖)^P, ω = m / den,
/// ω' = b |x|^{P-1} |scale| ‖q‖ ‖k‖ / den, K_i = Σ_j ω, h_i = ‖dy_i‖₁ (max|v| + max|y_i|), ε = h (ω + K ω'),
///   dv: Σ_i max|dy_i| (ω + K p)    dq: P Σ_j ε / ‖q_i‖    dk: P Σ_i ε / ‖k_j‖    d log γ_t: Σ_{j<t≤i} ε
/// times (6 + P) u. Sums have den = 1, K = 0 and no y.
struct ReferenceGradients {
  struct Entries {
    std::vector<double> exact, bound;
    explicit Entries(std::size_t n) : exact(n), bound(n) {}
    void add(std::size_t i, double more, double off) { exact[i] += more, bound[i] += off; }
  };
  Entries q, k, v, gates;

  ReferenceGradients(const Tokens& x, const std::vector<double>& d_rows, bool normalised, double scale)
      : q(x.queries.size()), k(x.keys.size()), v(x.values.size()), gates(x.log_gates.size()) {
    const auto d = static_cast<std::size_t>(x.d), e = static_cast<std::size_t>(x.e);
    double largest = 0;
    for (const double c : x.values) largest = std::max(largest, std::abs(c));
    for (std::int64_t b = 0; b < x.batch; ++b)
      for (std::int64_t h = 0; h < x.query_heads; ++h)
        for (std::int64_t i = 0; i < x.lengths[static_cast<std::size_t>(b)]; ++i) {
          const std::int64_t key_head = h * x.key_heads / x.query_heads;
          const std::size_t row = x.row(b, i, h, x.query_heads);
          const double *of_q = &x.queries[row * d], *dy = &d_rows[row * e];
          const double q_norm = norm(of_q, d);
          std::vector<double> weight, dot;
          std::vector<std::size_t> keys;
          double gate = 0, den = 0;
          for (std::int64_t j = i; j >= 0 && gate > -1e300; --j) {
            keys.push_back(x.row(b, j, key_head, x.key_heads));
            weight.push_back(std::exp(gate));
            dot.push_back(scale * product(of_q, &x.keys[keys.back() * d], d));
            den += weight.back() * std::pow(dot.back(), x.power);
            if (x.gate_heads > 0) gate += static_cast<double>(x.log_gates[gate_of(x, b, j, h)]);
          }
          if (!normalised) den = 1;
          double K = 0, offset = 0, most_y = 0, most_dy = 0, dy_size = 0;
          for (std::size_t c = 0; c < e; ++c) {
            double y = 0;
            for (std::size_t n = 0; n < keys.size() && normalised; ++n)
              y += weight[n] * std::pow(dot[n], x.power) * x.values[keys[n] * e + c] / den;
            offset -= dy[c] * y;
            most_y = std::max(most_y, std::abs(y)), most_dy = std::max(most_dy, std::abs(dy[c]));
            dy_size += std::abs(dy[c]);
          }
          const auto size = [&](std::size_t n) { return std::abs(scale) * q_norm * norm(&x.keys[keys[n] * d], d); };
          for (std::size_t n = 0; n < keys.size() && normalised; ++n) K += weight[n] * std::pow(size(n), x.power) / den;
          for (std::size_t n = 0; n < keys.size(); ++n) {
            const double* of_k = &x.keys[keys[n] * d];
            const double slope = weight[n] * std::pow(dot[n], x.power - 1) / den, p = slope * dot[n];
            const double c = product(dy, &x.values[keys[n] * e], e) + offset, dx = x.power * slope * c * scale;
            const double omega = weight[n] * std::pow(size(n), x.power) / den;
            const double epsilon = dy_size * (largest + most_y) * (omega + K * std::abs(slope) * size(n));
            for (std::size_t m = 0; m < d; ++m) {
              q.add(row * d + m, dx * of_k[m], x.power * epsilon / q_norm);
              k.add(keys[n] * d + m, dx * of_q[m], x.power * epsilon / norm(of_k, d));
            }
            for (std::size_t m = 0; m < e; ++m) v.add(keys[n] * e + m, p * dy[m], most_dy * (omega + K * std::abs(p)));
            for (std::int64_t t = i - static_cast<std::int64_t>(n) + 1; t <= i && x.gate_heads > 0; ++t)
              gates.add(gate_of(x, b, t, h), p * c, epsilon);
          }
        }
  }

 private:
  static std::size_t gate_of(const Tokens& x, std::int64_t b, std::int64_t t, std::int64_t h) {
    return x.row(b, t, h * x.gate_heads / x.query_heads, x.gate_heads);
  }
  static double product(const double* a, const double* b, std::size_t n) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
  }
  static double norm(const double* a, std::size_t n) { return std::sqrt(product(a, a, n)); }
};

/// An array of gradients, against what it must be.
struct Result {
  const char* name;
  Format format;
  std::int64_t heads;
  int channels;
  Array<std::byte> memory;
  cuda::View view;

  Result(const char* of, Format in, const Places& places, std::int64_t h, int width)
      : name(of), format(in), heads(h), channels(width), memory(places.size(h, width) * in.bytes()) {
    view = places.view(memory.data(), in.element, h, width);
  }
  /// The bits, and the largest error in relation to its bound.
  std::vector<std::byte> check(const std::string& what, const Tokens& x, const Places& places,
                               const ReferenceGradients::Entries& of, double& worst) const {
    const std::vector<std::byte> bytes = memory.values();
    const double rule = (6 + x.power) * x.format.u();
    for (std::int64_t b = 0; b < x.batch; ++b)
      for (std::int64_t t = 0; t < x.lengths[static_cast<std::size_t>(b)]; ++t)
        for (std::int64_t h = 0; h < heads; ++h)
          for (int c = 0; c < channels; ++c) {
            const std::size_t i =
                x.row(b, t, h, heads) * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c);
            std::uint32_t bits = 0;
            std::memcpy(&bits,
                        &bytes[(places.at(b, t, h, heads, channels) + static_cast<std::size_t>(c)) * format.bytes()],
                        format.bytes());
            const double got = format.number(bits), off = rule * of.bound[i] + format.tiny();
            const double error = std::abs(got - of.exact[i]) / off;
            worst = std::max(worst, error);
            if (!require(error <= 1, "%s: %s of token %d, sequence %d, head %d, channel %d is %g, not %g ± %g",
                         what.c_str(), name, static_cast<int>(t), static_cast<int>(b), static_cast<int>(h), c, got,
                         of.exact[i], off))
              return bytes;
          }
    return bytes;
  }
};

void check(const std::string& what, cuda::Problem p, const Tokens& x, Layout layout) {
  if (!is_compiled(what, p)) return;
  p.form = cuda::Form::quadratic;
  const Arrays arrays(x, layout);
  if (layout == Layout::packed) {
    p.offsets = arrays.offsets.data();
    p.total_tokens = arrays.places.offsets.back();
  } else {
    p.lengths = arrays.lengths.data();
  }
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> d_rows;
  for (std::int64_t i = 0; i < x.batch * x.tokens * x.query_heads * x.e; ++i)
    d_rows.push_back(x.format.number(x.format.bits(normal(random))));
  const Array<std::byte> d_rows_memory(arrays.bytes(d_rows, x.query_heads, x.e));
  const Format floats{cuda::Element::f32};
  const Result factors("factors", floats, arrays.places, x.query_heads, 1);
  const Result q("dq", x.format, arrays.places, x.query_heads, x.d), k("dk", x.format, arrays.places, x.key_heads, x.d),
      v("dv", x.format, arrays.places, x.key_heads, x.e), gates("d log gate", floats, arrays.places, x.gate_heads, 1);
  cuda::Outputs outputs = arrays.outputs();
  if (p.is_normalised()) outputs.factors = factors.view;
  if (!run(p, arrays.inputs(), outputs, nullptr)) return;
  std::size_t size = 0;
  if (!done(cuda::attention_vjp_workspace(p, size))) return;
  const Array<std::byte> workspace(size);
  const cuda::View d_view = arrays.places.view(d_rows_memory.data(), x.format.element, x.query_heads, x.e);
  const cuda::Gradients gradients{q.view, k.view, v.view, x.gate_heads > 0 ? gates.view : cuda::View{}};
  if (!done(cuda::attend_vjp(p, arrays.inputs(), {d_view, outputs.rows, outputs.factors}, gradients, workspace.data(),
                             size, nullptr)))
    return;
  runtime(cudaStreamSynchronize(nullptr));
  const ReferenceGradients exact(x, d_rows, p.is_normalised(), p.is_normalised() ? 1 : static_cast<double>(p.scale));
  double worst = 0;
  std::vector<std::byte> all = q.check(what, x, arrays.places, exact.q, worst);
  for (const auto& more :
       {k.check(what, x, arrays.places, exact.k, worst), v.check(what, x, arrays.places, exact.v, worst),
        gates.check(what, x, arrays.places, exact.gates, worst)})
    all.insert(all.end(), more.begin(), more.end());
  std::printf("  %-52s %4.2f of the rule, bits %016llx\n", what.c_str(), worst, digest(all));
}

cuda::Problem problem_of(int power, int d, int e, std::int64_t tokens) {
  cuda::Problem p;
  p.power = power, p.d = d, p.e = e;
  p.tokens = tokens;
  p.scale = -1.f / static_cast<float>(d);
  return p;
}

}  // namespace

void test_gradients() {
  for (const auto& [power, d, floats] : cuda::library::instantiations)
    for (const auto element : {cuda::Element::bf16, cuda::Element::fp16})
      for (const bool normalised : {true, false}) {
        cuda::Problem p = problem_of(power, d, d == 64 ? 72 : 24, 100);
        p.gate_heads = 1;
        p.element = element;
        p.normalised = normalised;
        check("gradients, P " + std::to_string(power) + ", d " + std::to_string(d) +
                  (normalised ? ", normalised, " : ", ") + Format{element}.name(),
              p, Tokens(p, Gates::slow, 1), Layout::dense);
      }
  for (const auto layout : {Layout::dense, Layout::apart, Layout::packed})
    for (const auto [query_heads, key_heads, gate_heads] : {std::array{4, 2, 4}, {4, 2, 2}, {3, 1, 0}, {2, 2, 2}}) {
      cuda::Problem p = problem_of(2, 16, 24, 200);
      p.batch = 4;
      p.query_heads = query_heads;
      p.key_heads = key_heads;
      p.gate_heads = gate_heads;
      Tokens x(p, gate_heads == 2 ? Gates::any : Gates::slow, 2);
      x.lengths = {200, 0, 65, 64};
      check("gradients, " + std::to_string(query_heads) + " " + std::to_string(key_heads) + " " +
                std::to_string(gate_heads) + " heads, layout " + std::to_string(static_cast<int>(layout)),
            p, x, layout);
    }
}

}  // namespace sympow::test
