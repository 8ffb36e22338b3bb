// attend: every instantiation, every layout, every kind of gate, forms and lengths.
#include <array>

#include "call.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

cuda::Problem problem_of(int power, int d, int e, std::int64_t tokens) {
  cuda::Problem p;
  p.power = power;
  p.d = d;
  p.e = e;
  p.tokens = tokens;
  p.scale = 1.f / static_cast<float>(d);
  return p;
}

void check(const std::string& what, cuda::Problem p, const Tokens& x, Layout layout) {
  if (!can_run(what, p)) return;
  const Arrays arrays(x, layout);
  arrays.set_rotary(p);
  if (layout == Layout::packed) {
    p.offsets = arrays.offsets.data();
    p.total_tokens = arrays.places.offsets.back();
  } else {
    p.lengths = arrays.lengths.data();
  }
  if (run(p, arrays.inputs(), arrays.outputs(), nullptr)) arrays.check_rows(what, p, way_of(p));
}

void every_instantiation() {
  for (const auto& [power, d, floats] : cuda::library::instantiations)
    for (const Format& format : all_formats)
      for (const auto form : {cuda::Form::chunked, cuda::Form::attention}) {
        if (format.element == cuda::Element::f32 && !floats) continue;
        const bool large = cuda::monomials(power, d) > 1000;
        cuda::Problem p = problem_of(power, d, d == 64 ? 72 : 24, large ? 70 : 100);
        p.query_heads = large ? 1 : 2;
        p.gate_heads = 1;
        p.element = format.element;
        p.products = format.products;
        p.normalised = format.element != cuda::Element::fp16;
        p.form = form;
        p.chunk = 64;
        check("P " + std::to_string(power) + ", d " + std::to_string(d) + (*p.normalised ? ", normalised, " : ", ") +
                  format.name() + (form == cuda::Form::chunked ? ", chunked" : ", quadratic"),
              p, Tokens(p, Gates::slow, 1), Layout::dense);
      }
}

void every_layout() {
  for (const auto layout : {Layout::dense, Layout::apart, Layout::packed})
    for (const auto [query_heads, key_heads, gate_heads] : {std::array{4, 2, 4}, {4, 2, 2}, {3, 1, 0}, {2, 2, 2}}) {
      cuda::Problem p = problem_of(2, 16, 24, 130);
      p.batch = 4;
      p.query_heads = query_heads;
      p.key_heads = key_heads;
      p.gate_heads = gate_heads;
      p.form = cuda::Form::chunked;
      p.chunk = 64;
      Tokens x(p, Gates::slow, 2);
      x.lengths = {130, 0, 65, 128};
      const char* name = layout == Layout::dense ? "dense" : layout == Layout::apart ? "apart" : "packed";
      check(std::string(name) + ", heads " + std::to_string(query_heads) + " " + std::to_string(key_heads) + " " +
                std::to_string(gate_heads),
            p, x, layout);
    }
}

/// Sequences of unequal lengths and heads in groups, of floats, for every power; turned, too, by the steps that are
/// given or by one.
void every_float() {
  const auto steps = [](int t) { return 1 + .9 * std::sin(t); };
  for (const auto [power, d] : {std::array{1, 64}, {2, 16}, {3, 16}, {4, 16}})
    for (const auto layout : {Layout::apart, Layout::packed})
      for (const bool turns : {false, true}) {
        const bool packed = layout == Layout::packed;
        if (power == 4 && !(packed && turns)) continue;  // many monomials
        cuda::Problem p = problem_of(power, d, 24, 70);
        p.batch = 3;
        p.query_heads = p.gate_heads = packed ? 3 : 2;
        p.key_heads = 1;
        p.element = cuda::Element::f32;
        p.form = power == 2 || packed == turns ? cuda::Form::chunked : cuda::Form::attention;
        p.chunk = 64;
        Tokens x(p, Gates::slow, 12);
        x.lengths = {70, 0, 65};
        if (turns) x.rotary = Rotation{packed, packed == (power % 2 == 0) ? steps : std::function<double(int)>(), 0};
        check("f32, P " + std::to_string(power) + (packed ? ", packed" : ", apart") +
                  (turns ? packed ? ", rotary of halves" : ", rotary of neighbours" : "") +
                  (turns && x.rotary->beta ? " by beta" : ""),
              p, x, layout);
      }
}

void every_gate() {
  for (const int power : {1, 2, 3}) {
    cuda::Problem p = problem_of(power, power == 1 ? 64 : 16, 16, 200);
    p.query_heads = p.key_heads = p.gate_heads = 3;
    for (const auto form : {cuda::Form::chunked, cuda::Form::attention}) {
      p.form = form;
      p.chunk = 64;
      check("gates of 0 and e^-1000, P " + std::to_string(power), p, Tokens(p, Gates::any, 3), Layout::dense);
    }
  }
}

void every_length() {
  for (const int tokens : {0, 1, 63, 64, 65, 300})
    for (const auto form : {cuda::Form::automatic, cuda::Form::chunked}) {
      cuda::Problem p = problem_of(2, 16, 8, tokens);
      p.batch = 2;
      p.form = form;
      check(std::to_string(tokens) + " tokens" + (form == cuda::Form::automatic ? ", automatic" : ", chunked"), p,
            Tokens(p, Gates::none, 4), Layout::dense);
    }
}

void every_rotary() {
  const auto steps = [](int t) { return 1 + .9 * std::sin(t); };
  for (const bool halves : {false, true}) {
    const std::string pairing = halves ? ", halves" : ", neighbours";
    for (const auto [power, d] : {std::array{2, 16}, {2, 32}, {1, 64}, {2, 64}, {1, 128}})
      for (const auto form : {cuda::Form::chunked, cuda::Form::attention}) {
        cuda::Problem p = problem_of(power, d, 16, 100);
        p.query_heads = p.key_heads = 2;
        p.element = halves ? cuda::Element::bf16 : cuda::Element::fp16;
        p.form = form;
        p.chunk = 64;
        check("rotary, P " + std::to_string(power) + ", d " + std::to_string(d) + pairing +
                  (form == cuda::Form::chunked ? ", chunked" : ", quadratic"),
              p, Tokens(p, Gates::none, 10).turned({halves, {}, 0}), Layout::dense);
      }
    for (const auto layout : {Layout::apart, Layout::packed}) {
      cuda::Problem p = problem_of(2, 16, 24, 130);
      p.batch = 4;
      p.query_heads = p.gate_heads = 4;
      p.key_heads = 2;
      p.element = cuda::Element::fp16;  // the smaller bound
      p.form = cuda::Form::chunked;
      p.chunk = 64;
      Tokens x = Tokens(p, Gates::slow, 11).turned({halves, steps, 0});
      x.lengths = {130, 0, 65, 128};
      check("rotary by beta" + pairing + (layout == Layout::packed ? ", packed" : ", apart"), p, x, layout);
    }
  }
}

/// States in two terms, by the bound of those: of any rows, then, where sums in float leave it sharp, of rows that read
/// nothing else. These have queries of ±1 and keys of 1 and 2: all monomials are exact, and most of a state cancels.
void every_split() {
  for (const auto [power, d] : {std::array{1, 64}, {1, 128}, {2, 16}, {2, 32}, {2, 64}, {3, 16}, {4, 16}})
    for (const auto element : {cuda::Element::bf16, cuda::Element::fp16}) {
      cuda::Problem p = problem_of(power, d, d == 64 ? 72 : 24, 140);
      p.gate_heads = 1;
      p.element = element;
      p.form = cuda::Form::chunked;
      p.chunk = 64;
      p.states = cuda::Precision::split;
      const std::string what = "split states, P " + std::to_string(power) + ", d " + std::to_string(d) +
                               (element == cuda::Element::bf16 ? ", bf16" : ", fp16");
      check(what, p, Tokens(p, Gates::slow, 12), Layout::dense);
      p.gate_heads = 0;
      p.normalised = false;
      const bool is_sharp = power == 1 || (power == 2 && d == 16);
      if (!is_sharp || !cuda::library::is_compiled(power, d, element)) continue;
      const Tokens x = Tokens(p, Gates::none, 13).signs_and_ones(128);
      const Arrays arrays(x, Layout::dense);
      Way way = way_of(p);
      way.is_exact = true;
      if (run(p, arrays.inputs(), arrays.outputs(), nullptr)) arrays.check_rows(what + ", alone", p, way, 128);
    }
}

}  // namespace

/// Problems that kernels for one architecture support, by these where the device has them, and by the general ones:
/// ragged ends, an odd number of blocks of 64 tokens, gates of 0, grouped heads, states of query heads, few channels,
/// of d 128 also more than 64.
void test_rows_of_architectures() {
  struct Case {
    const char* name;
    int e, tokens, chunk, query_heads, key_heads, gate_heads;  // chunk 0: the quadratic form
    Gates gates;
    Layout layout;
    bool turns;
  };
  const Case cases[] = {
      {"chunks", 64, 460, 192, 1, 1, 1, Gates::slow, Layout::dense, false},
      {"gates of 0, chunks", 24, 460, 256, 2, 2, 2, Gates::any, Layout::apart, false},
      {"grouped heads", 64, 330, 128, 3, 1, 1, Gates::slow, Layout::packed, false},
      {"states of query heads", 8, 330, 128, 2, 1, 2, Gates::any, Layout::packed, false},
      {"more stages than slots", 8, 720, 704, 1, 1, 0, Gates::none, Layout::dense, false},
      {"rotary", 64, 330, 128, 2, 1, 1, Gates::slow, Layout::dense, true},
      {"one chunk", 64, 330, 0, 1, 1, 1, Gates::any, Layout::dense, false},
  };
  for (const int d : {64, 128, 16, 32})
    for (const Case& c : cases)
      for (const auto element : {cuda::Element::bf16, cuda::Element::fp16})
        for (const auto kernels : {cuda::Kernels::automatic, cuda::Kernels::general}) {
          cuda::Problem p = problem_of(2, d, d > 64 && c.e == 64 ? 104 : c.e, c.tokens);
          p.element = element;
          p.batch = 2;
          p.query_heads = c.query_heads, p.key_heads = c.key_heads, p.gate_heads = c.gate_heads;
          p.form = c.chunk == 0 ? cuda::Form::attention : cuda::Form::chunked;
          p.chunk = c.chunk;
          p.normalised = element == cuda::Element::bf16;
          p.kernels = kernels;
          Tokens x(p, c.gates, 6);
          if (d > 64) x = x.uneven();
          x.lengths = {c.tokens, c.tokens / 3};
          if (c.turns) x.rotary = Rotation{d == 64, {}, 0};
          check(std::string("architecture, d ") + std::to_string(d) + ", " + c.name +
                    (element == cuda::Element::bf16 ? ", bf16" : ", fp16") + ", rows" +
                    (kernels == cuda::Kernels::general ? ", general" : ""),
                p, x, c.layout);
        }
}

void test_rows() {
  every_instantiation();
  every_layout();
  every_float();
  every_gate();
  every_length();
  every_rotary();
  every_split();
}

}  // namespace sympow::test
