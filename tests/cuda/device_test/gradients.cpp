// attend_vjp: gradients against their definition in double, by the gradient row rule.
#include <array>
#include <random>
#include <span>

#include <sympow/cuda/gradient.hpp>

#include "../gradient_rule.hpp"
#include "call.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

/// What sequence b of a call must come to; chunk 0: without states.
GradientRule rule_of(const Tokens& x, const std::vector<double>& d_rows, std::int64_t b, bool normalised, double scale,
                     int chunk) {
  const auto length = static_cast<int>(x.lengths[static_cast<std::size_t>(b)]);
  const auto of_sequence = [&](const auto& all, std::int64_t heads, int channels) {
    const auto size = heads * channels, first = b * x.tokens * size;
    return std::vector<double>(all.begin() + first, all.begin() + first + length * size);
  };
  std::vector<double> steps;
  for (std::int64_t i = 0; i < length * x.key_heads && x.rotary; ++i)
    steps.push_back(static_cast<double>(x.step(i / x.key_heads, i % x.key_heads)));
  const GradientProblem problem{x.power,
                                x.d,
                                x.e,
                                length,
                                static_cast<int>(x.query_heads),
                                static_cast<int>(x.key_heads),
                                static_cast<int>(x.gate_heads),
                                normalised,
                                scale,
                                of_sequence(x.queries, x.query_heads, x.d),
                                of_sequence(x.keys, x.key_heads, x.d),
                                of_sequence(x.values, x.key_heads, x.e),
                                of_sequence(d_rows, x.query_heads, x.e),
                                of_sequence(x.log_gates, x.gate_heads, 1),
                                x.rates(),
                                steps,
                                x.rotary && x.rotary->halves};
  if (!x.format.is_float()) return GradientRule(problem, x.format.u());
  const int rows = 2 * static_cast<int>(cuda::monomials(x.power, x.d));  // at least those of a state
  return GradientRule(problem, x.format.u(), GradientRule::floats(problem, x.format.lost(), chunk, rows));
}

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
  std::vector<std::byte> bytes() const { return memory.values(); }
  /// The largest error of sequence b in relation to its bound: the smaller one of `rule` times that of norms, and that
  /// of roundings.
  double check(const std::string& what, const Tokens& x, const Places& places, std::int64_t b,
               const GradientRule::Entries& of, double rule) const {
    const std::vector<std::byte> all = bytes();
    double worst = 0;
    std::size_t i = 0;
    for (std::int64_t t = 0; t < x.lengths[static_cast<std::size_t>(b)]; ++t)
      for (std::int64_t h = 0; h < heads; ++h)
        for (int c = 0; c < channels; ++c, ++i) {
          std::uint32_t bits = 0;
          std::memcpy(&bits, &all[(places.at(b, t, h, heads, channels) + static_cast<std::size_t>(c)) * format.bytes()],
                      format.bytes());
          const double got = format.number(bits), exact = of.exact[i];
          const double off = std::min(rule * of.bound[i], of.off[i] + format.u() * std::abs(exact)) + format.tiny();
          const double error = std::abs(got - exact) / off;
          worst = std::max(worst, error);
          if (!require(error <= 1, "%s: %s of token %d, sequence %d, head %d, channel %d is %g, not %g ± %g",
                       what.c_str(), name, static_cast<int>(t), static_cast<int>(b), static_cast<int>(h), c, got, exact,
                       off))
            return worst;
        }
    return worst;
  }
};

/// States of a problem on the device.
struct States {
  Array<std::byte> memory;
  cuda::State state;
  static std::size_t bytes(const cuda::Problem& p) {
    std::size_t size = 0;
    done(cuda::state_bytes(p, size));
    return size;
  }
  explicit States(const cuda::Problem& p) : memory(bytes(p)) {
    done(cuda::state_in(p, memory.data(), bytes(p), state));
  }
};

/// Gradients of all tokens in one call, or cut before token `cut`: then of two, with a state and its gradient between.
/// `angles`: with those of β and rates, where there is rotary.
void check(const std::string& what, cuda::Problem p, const Tokens& x, Layout layout, std::int64_t cut = 0,
           bool angles = true) {
  if (!can_run(what, p)) return;
  p.carries_state = cut > 0;
  const Arrays arrays(x, layout);
  arrays.set_rotary(p);
  if (layout == Layout::packed) {
    p.offsets = arrays.offsets.data();
    p.total_tokens = arrays.places.offsets.back();
  } else if (cut == 0) {
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
  Result q("dq", x.format, arrays.places, x.query_heads, x.d), k("dk", x.format, arrays.places, x.key_heads, x.d),
      v("dv", x.format, arrays.places, x.key_heads, x.e), gates("d log gate", floats, arrays.places, x.gate_heads, 1),
      beta("dβ", floats, arrays.places, x.key_heads, 1);
  const Array<double> d_scale(1);
  double scale = 0;  // of all parts
  const bool has_angles = angles && x.rotary.has_value();
  const Array<double> d_rates(static_cast<std::size_t>(x.d / 2));
  std::vector<double> all_rates(static_cast<std::size_t>(has_angles ? x.d / 2 : 0));  // of all parts
  const cuda::View d_view = arrays.places.view(d_rows_memory.data(), x.format.element, x.query_heads, x.e);

  cuda::Form form{};
  int chunk = 0;
  const States state(p), adjoint(p);
  struct Part {
    cuda::Problem problem;
    cuda::Inputs inputs;
    cuda::Outputs outputs;
    cuda::RowGradients rows;
    cuda::Gradients gradients;
  };
  std::vector<Part> parts;
  for (const std::int64_t first : cut > 0 ? std::vector<std::int64_t>{0, cut} : std::vector<std::int64_t>{0}) {
    const auto from = [&](cuda::View view, Format format) {
      view.data = static_cast<std::byte*>(view.data) + first * view.token * static_cast<std::int64_t>(format.bytes());
      return view;
    };
    Part part{p, arrays.inputs(first), arrays.outputs(first), {}, {}};
    part.problem.tokens = cut > 0 && first == 0 ? cut : x.tokens - first;
    if (p.is_normalised()) part.outputs.factors = from(factors.view, floats);
    part.rows = {from(d_view, x.format), part.outputs.rows, part.outputs.factors, {}};
    part.gradients = {from(q.view, x.format),
                      from(k.view, x.format),
                      from(v.view, x.format),
                      x.gate_heads > 0 ? from(gates.view, floats) : cuda::View{},
                      {},
                      has_angles ? from(beta.view, floats) : cuda::View{},
                      has_angles ? d_rates.data() : nullptr,
                      d_scale.data()};
    if (first > 0) part.inputs.initial_state = state.state, part.gradients.initial_state = adjoint.state;
    if (first == 0 && cut > 0) part.outputs.final_state = state.state, part.rows.final_state = adjoint.state;
    if (!run(part.problem, part.inputs, part.outputs, nullptr)) return;
    parts.push_back(part);
  }
  // All bytes of gradients. `left`: of what the forward pass leaves in their workspace.
  const auto take_back = [&](bool left) {
    scale = 0;
    std::fill(all_rates.begin(), all_rates.end(), 0.);
    for (Result* result : {&q, &k, &v, &gates, &beta}) result->memory.fill(0xff);
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      std::size_t size = 0;
      done(cuda::attention_vjp_workspace(part->problem, size));
      const Array<std::byte> workspace(size);
      cuda::Forward forward;
      cuda::Outputs outputs = part->outputs;
      cuda::RowGradients rows = part->rows;
      if (left) {
        outputs.forward = &forward, rows.forward = &forward;
        done(cuda::attend(part->problem, part->inputs, outputs, workspace.data(), size, nullptr));
      }
      if (!done(cuda::attend_vjp(part->problem, part->inputs, rows, part->gradients, workspace.data(), size, nullptr)))
        return std::vector<std::byte>();
      runtime(cudaStreamSynchronize(nullptr));
      done(cuda::attention_form(part->problem, form, chunk));
      scale += d_scale.values()[0];
      const std::vector<double> of_part = d_rates.values();
      for (std::size_t u = 0; u < all_rates.size(); ++u) all_rates[u] += of_part[u];
    }
    std::vector<std::byte> bytes;
    for (const auto& more : {q.bytes(), k.bytes(), v.bytes(), gates.bytes(), beta.bytes()})
      bytes.insert(bytes.end(), more.begin(), more.end());
    const auto of_rates = std::as_bytes(std::span(all_rates));
    bytes.insert(bytes.end(), of_rates.begin(), of_rates.end());
    return bytes;
  };
  const std::vector<std::byte> all = take_back(false);
  if (all.empty()) return;
  const double scale_alone = scale;
  const std::vector<std::byte> adjoint_alone = adjoint.memory.values();
  require(x.d > 16 || (take_back(true) == all && scale == scale_alone && adjoint.memory.values() == adjoint_alone),
          "%s: other bits from what the forward pass left", what.c_str());
  const double states = form == cuda::Form::chunked ? static_cast<double>(x.tokens) / chunk + 1 : 0;
  const double rule = GradientRule::factor(x.power, x.format.u(), states, x.rotary.has_value());
  GradientRule::Entries rates(all_rates.size()), of_scale(1);
  double worst = 0;
  for (std::int64_t b = 0; b < x.batch; ++b) {
    const GradientRule exact =
        rule_of(x, d_rows, b, p.is_normalised(), static_cast<double>(p.scale), form == cuda::Form::chunked ? chunk : 0);
    worst = std::max(
        {worst, q.check(what, x, arrays.places, b, exact.q, rule), k.check(what, x, arrays.places, b, exact.k, rule),
         v.check(what, x, arrays.places, b, exact.v, rule), gates.check(what, x, arrays.places, b, exact.gates, rule)});
    of_scale.add(0, exact.d_scale.exact[0], exact.d_scale.bound[0], exact.d_scale.off[0]);
    if (has_angles) worst = std::max(worst, beta.check(what, x, arrays.places, b, exact.beta, rule));
    for (std::size_t u = 0; u < rates.exact.size(); ++u)
      rates.add(u, exact.rates.exact[u], exact.rates.bound[u], exact.rates.off[u]);
  }
  for (std::size_t u = 0; u < rates.exact.size(); ++u) {
    const double off = std::min(rule * rates.bound[u], rates.off[u]), error = std::abs(all_rates[u] - rates.exact[u]);
    worst = std::max(worst, error / off);
    require(error <= off, "%s: d rates of pair %d is %g, not %g ± %g", what.c_str(), static_cast<int>(u), all_rates[u],
            rates.exact[u], off);
  }
  const double scale_off = std::min(rule * of_scale.bound[0], of_scale.off[0]);
  require(std::abs(scale - of_scale.exact[0]) <= scale_off, "%s: d scale is %g, not %g ± %g", what.c_str(), scale,
          of_scale.exact[0], scale_off);
  std::printf("  %-52s %4.2f of the rule, bits %016llx\n", what.c_str(), worst, digest(all));
}

cuda::Problem problem_of(int power, int d, int e, std::int64_t tokens) {
  cuda::Problem p;
  p.power = power, p.d = d, p.e = e;
  p.tokens = tokens;
  p.scale = -1.f / static_cast<float>(d);
  return p;
}

/// Steps that turn little: couplings have one sign, and bounds are those of what they add up to.
double little_step(int t) { return .002 * (1 + .9 * std::sin(t)); }

/// Instantiations that are tested first; the others take most of the time where kernels are interpreted.
bool is_one_of_few(int power, int d) { return power == 2 && d == 16; }

void test_instantiations(bool few) {
  for (const auto& [power, d, floats] : cuda::library::instantiations)
    for (const Format& format : all_formats)
      for (const bool normalised : {true, false})
        for (const auto form : {cuda::Form::attention, cuda::Form::chunked})
          for (const auto states : {cuda::Precision::rounded, cuda::Precision::split}) {
            if (is_one_of_few(power, d) != few) continue;
            const bool is_chunked = form == cuda::Form::chunked, is_split = states == cuda::Precision::split;
            const bool is_bf16 = format.is_bf16(), is_exact = format.products == cuda::Products::exact;
            const bool is_large = cuda::monomials(power, d) > 5000;
            if (format.is_float() && (!floats || normalised != is_exact)) continue;
            if (!format.is_float() && is_chunked && (normalised != is_bf16 || (is_large && !is_bf16))) continue;
            if (is_split && (!is_chunked || is_large || format.is_float())) continue;
            cuda::Problem p = problem_of(power, d, d == 64 ? 72 : 24, 100);
            p.gate_heads = 1;
            p.element = format.element;
            p.products = format.products;
            p.normalised = normalised;
            p.form = form;
            p.chunk = is_chunked ? 64 : 0;
            p.states = states;
            check("gradients, P " + std::to_string(power) + ", d " + std::to_string(d) +
                      (normalised ? ", normalised, " : ", ") + (is_chunked ? "chunked, " : "") +
                      (is_split ? "split, " : "") + format.name(),
                  p, Tokens(p, Gates::slow, 1), Layout::dense);
          }
  for (const auto& [power, d, floats] : cuda::library::instantiations)
    for (const auto& [form, element] :
         {std::pair(cuda::Form::attention, cuda::Element::fp16), std::pair(cuda::Form::chunked, cuda::Element::bf16),
          std::pair(cuda::Form::chunked, cuda::Element::f32)}) {
      if (is_one_of_few(power, d) != few) continue;
      const bool is_chunked = form == cuda::Form::chunked, is_float = element == cuda::Element::f32;
      if ((is_chunked && cuda::monomials(power, d) > 5000) || (is_float && !floats)) continue;
      cuda::Problem p = problem_of(power, d, 24, 150);
      p.element = element;
      p.query_heads = 2;
      p.gate_heads = 1;
      p.normalised = false;
      p.form = form;
      p.chunk = is_chunked ? 64 : 0;
      Tokens x = Tokens(p, Gates::slow, 2).turned({is_chunked, little_step, 0});
      x.lengths = {140};
      check("gradients of rotary, P " + std::to_string(power) + ", d " + std::to_string(d) +
                (is_chunked ? ", chunked" : "") + (is_float ? ", f32" : ""),
            p, x, is_chunked ? Layout::packed : Layout::apart);
    }
}

}  // namespace

void test_more_gradients() { test_instantiations(false); }

/// Problems that kernels for one architecture support, by these where the device has them, and by the general ones:
/// several chunks, whose blocks of 64 tokens may be odd in number, ragged ends, gates of 0, grouped heads, few
/// channels.
void test_gradients_of_architectures() {
  struct Case {
    const char* name;
    int e, tokens, chunk;  // chunk 0: the quadratic form
    int query_heads, key_heads, gate_heads;
    Gates gates;
    Layout layout;
    std::int64_t cut;
    bool turns;
  };
  const Case cases[] = {
      {"chunks", 64, 460, 192, 1, 1, 1, Gates::slow, Layout::dense, 0, false},
      {"gates of 0", 64, 330, 0, 2, 2, 2, Gates::any, Layout::packed, 0, false},
      {"gates of 0, chunks", 24, 460, 256, 2, 2, 2, Gates::any, Layout::apart, 0, false},
      {"grouped heads", 64, 330, 320, 3, 1, 1, Gates::slow, Layout::packed, 0, false},
      {"states", 8, 400, 128, 2, 1, 1, Gates::any, Layout::dense, 200, false},
      {"rotary", 64, 330, 128, 2, 1, 1, Gates::slow, Layout::dense, 0, true},
      {"no gates", 64, 200, 0, 1, 1, 0, Gates::none, Layout::apart, 0, false},
  };
  for (const int d : {64, 128, 16, 32})
    for (const Case& c : cases)
      for (const auto element : {cuda::Element::bf16, cuda::Element::fp16})
        for (const auto kernels : {cuda::Kernels::automatic, cuda::Kernels::general}) {
          cuda::Problem p = problem_of(2, d, d > 64 && c.e == 64 ? 104 : c.e, c.tokens);
          p.element = element;
          p.query_heads = c.query_heads, p.key_heads = c.key_heads, p.gate_heads = c.gate_heads;
          p.form = c.chunk == 0 ? cuda::Form::attention : cuda::Form::chunked;
          p.chunk = c.chunk;
          p.kernels = kernels;
          p.batch = c.cut > 0 ? 1 : 2;
          Tokens x(p, c.gates, 5);
          if (d > 64) x = x.uneven();
          if (c.cut == 0) x.lengths = {c.tokens, c.tokens / 3};
          if (c.turns) x.rotary = Rotation{d == 64, little_step, 0};
          check(std::string("architecture, d ") + std::to_string(d) + ", " + c.name +
                    (element == cuda::Element::bf16 ? ", bf16" : ", fp16") +
                    (kernels == cuda::Kernels::general ? ", general" : ""),
                p, x, c.layout, c.cut, false);
        }
}

void test_gradients() {
  test_instantiations(true);
  for (const auto form : {cuda::Form::attention, cuda::Form::chunked})
    for (const auto layout : {Layout::dense, Layout::apart, Layout::packed})
      for (const auto [query_heads, key_heads, gate_heads] : {std::array{4, 2, 4}, {4, 2, 2}, {3, 1, 0}, {2, 2, 2}}) {
        const bool is_chunked = form == cuda::Form::chunked;
        if (is_chunked && (layout == Layout::apart) != (gate_heads == 4)) continue;
        cuda::Problem p = problem_of(2, 16, 24, 200);
        p.batch = 4;
        p.query_heads = query_heads;
        p.key_heads = key_heads;
        p.gate_heads = gate_heads;
        p.form = form;
        p.chunk = !is_chunked ? 0 : layout == Layout::packed ? 128 : 64;
        Tokens x(p, gate_heads == 2 ? Gates::any : Gates::slow, 2);
        x.lengths = {200, 0, 65, 64};
        check("gradients, " + std::to_string(query_heads) + " " + std::to_string(key_heads) + " " +
                  std::to_string(gate_heads) + " heads, " + (is_chunked ? "chunked, " : "") + "layout " +
                  std::to_string(static_cast<int>(layout)),
              p, x, layout);
      }
  for (const bool turns : {false, true})
    for (const std::int64_t cut : {64, 100}) {
      cuda::Problem p = problem_of(2, 16, 24, 200);
      p.batch = 2;
      p.query_heads = p.key_heads = p.gate_heads = 2;
      p.chunk = 64;
      Tokens x(p, Gates::slow, 2);
      if (turns) x.rotary = Rotation{cut == 64, little_step, 0};
      check((turns ? "gradients of rotary, cut at " : "gradients, cut at ") + std::to_string(cut), p, x, Layout::dense,
            cut);
    }
}

}  // namespace sympow::test
