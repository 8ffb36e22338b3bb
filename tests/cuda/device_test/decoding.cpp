// Decoding after a prefill, or from nothing: rows of every token, through folds of the tail.
#include "call.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

struct OwnTail {
  Array<std::byte> memory;
  cuda::Tail tail;

  OwnTail(const cuda::Problem& p, int capacity) : memory(bytes(p, capacity)) {
    done(cuda::tail_in(p, capacity, memory.data(), memory.size(), tail));
  }
  static std::size_t bytes(const cuda::Problem& p, int capacity) {
    std::size_t n = 0;
    done(cuda::tail_bytes(p, capacity, n));
    return n;
  }
};

/// Tokens up to `prefill` at once, then `step` at a time. The tail is folded when it has no room for more.
void check(const std::string& what, cuda::Problem p, const Tokens& x, std::int64_t prefill, std::int64_t step) {
  if (!is_compiled(what, p)) return;
  const Arrays arrays(x, Layout::apart);
  arrays.set_rotary(p);
  const OwnState own(p);
  OwnTail tail(p, 64);
  p.carries_state = true;
  if (prefill == 0) {
    done(cuda::clear(p, own.state, nullptr));
  } else {
    p.tokens = prefill;
    cuda::Outputs outputs = arrays.outputs();
    outputs.final_state = own.state;
    if (!run(p, arrays.inputs(), outputs, nullptr)) return;
  }
  std::size_t fold_bytes = 0;
  if (!done(cuda::fold_workspace(p, tail.tail.capacity, fold_bytes))) return;
  for (std::int64_t t = prefill; t < x.tokens; t += p.tokens) {
    p.tokens = std::min(step, x.tokens - t);
    if (tail.tail.count + p.tokens > tail.tail.capacity) {
      const Array<std::byte> workspace(fold_bytes);
      if (!done(cuda::fold(p, own.state, tail.tail, workspace.data(), fold_bytes, nullptr))) return;
      runtime(cudaDeviceSynchronize());
    }
    std::size_t bytes = 0;
    if (!done(cuda::decode_workspace(p, bytes))) return;
    const Array<std::byte> workspace(bytes);
    if (!done(cuda::decode(p, own.state, tail.tail, arrays.inputs(t), arrays.outputs(t), workspace.data(), bytes,
                           nullptr)))
      return;
    runtime(cudaDeviceSynchronize());
  }
  p.tokens = x.tokens;
  arrays.check_rows(what, p, {64, static_cast<double>(cuda::monomials(p.power, p.d)), 10});
}

cuda::Problem problem_of(int power, int d, std::int64_t tokens) {
  cuda::Problem p;
  p.power = power;
  p.d = d;
  p.e = 24;
  p.tokens = tokens;
  p.scale = 1.f / static_cast<float>(d);
  p.chunk = 64;
  return p;
}

/// Sizes that no state has are refused by `fold`, too.
void folds_of_no_size() {
  std::size_t bytes = 0;
  for (const std::int64_t heads : {std::int64_t{1} << 62, std::int64_t{1} << 60, std::int64_t{0}}) {
    cuda::Problem p = problem_of(2, 64, 1);
    p.query_heads = p.key_heads = heads;
    require(cuda::fold_workspace(p, 64, bytes).code() == cuda::Code::bad_argument, "a fold of %lld heads",
            static_cast<long long>(heads));
  }
  cuda::Problem p = problem_of(2, 64, 1);
  p.batch = std::int64_t{1} << 32;
  require(cuda::fold_workspace(p, 64, bytes).code() == cuda::Code::bad_argument, "a fold of 2^32 sequences");
}

/// More states than are folded at once: the bits are those of `attend`, which reads the tail's tokens where they are.
void fold_in_passes() {
  cuda::Problem p;
  p.power = 1;
  p.d = 64;
  p.e = 8;
  p.batch = 3;
  p.query_heads = p.key_heads = p.gate_heads = 300;
  p.tokens = 5;
  p.carries_state = true;
  if (!is_compiled("a fold in passes", p)) return;
  OwnTail own(p, 64);
  cuda::Tail& tail = own.tail;
  tail.count = static_cast<int>(p.tokens);
  const auto fill = [&](auto* data, std::int64_t channels, const auto& number) {
    std::vector<std::remove_pointer_t<decltype(data)>> x(static_cast<std::size_t>(p.batch * 300 * 64 * channels));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = number(i);
    runtime(cudaMemcpy(data, x.data(), x.size() * sizeof x[0], cudaMemcpyHostToDevice));
  };
  const auto entry = [&](std::size_t i) {
    return static_cast<std::uint16_t>(Format{p.element}.bits(static_cast<double>(i * 37 % 101) / 50 - 1));
  };
  fill(static_cast<std::uint16_t*>(tail.keys), p.d, entry);
  fill(static_cast<std::uint16_t*>(tail.values), p.e, entry);
  fill(tail.log_gates, 1, [](std::size_t i) { return static_cast<float>(i % 13) / -13; });
  const auto view = [&](const void* data, cuda::Element element, std::int64_t channels) {
    return cuda::ConstView{data, element, 300 * 64 * channels, channels, 64 * channels};
  };
  const cuda::Inputs inputs{view(tail.keys, p.element, p.d),
                            view(tail.keys, p.element, p.d),
                            view(tail.values, p.element, p.e),
                            view(tail.log_gates, cuda::Element::f32, 1),
                            {}};
  const Array<std::uint16_t> rows(static_cast<std::size_t>(p.batch * p.tokens * 300 * p.e));
  OwnState expected(p), folded(p);
  expected.memory.fill(0);  // what aligns its parts is compared, too
  folded.memory.fill(0);
  if (!run(p, inputs, {cuda::dense(rows.data(), p.element, p.tokens, 300, p.e), {}, expected.state}, nullptr)) return;
  std::size_t bytes = 0;
  done(cuda::clear(p, folded.state, nullptr));
  if (!done(cuda::fold_workspace(p, 64, bytes))) return;
  const Array<std::byte> workspace(bytes);
  if (!done(cuda::fold(p, folded.state, tail, workspace.data(), bytes, nullptr))) return;
  runtime(cudaDeviceSynchronize());
  require(tail.count == 0, "a folded tail has %d tokens", tail.count);
  require(folded.memory.values() == expected.memory.values(), "a fold in passes has other bits than attend");
}

}  // namespace

void test_decoding() {
  fold_in_passes();
  for (const auto& [power, d, floats] : cuda::library::instantiations)
    for (const Format& format : all_formats) {
      if (format.element == cuda::Element::f32 && !floats) continue;
      const bool one = format.element == cuda::Element::bf16 || format.products == cuda::Products::fast;
      const std::int64_t step = one ? 1 : 3;  // one query at once, and several
      cuda::Problem p = problem_of(power, d, 64 + step);
      p.element = format.element;
      p.products = format.products;
      p.normalised = format.element != cuda::Element::fp16;
      check("P " + std::to_string(power) + ", d " + std::to_string(d) + (*p.normalised ? ", normalised, " : ", ") +
                format.name(),
            p, Tokens(p, Gates::none, 7), 64, step);
    }
  folds_of_no_size();
  for (const std::int64_t step : {1, 7, 64}) {
    cuda::Problem p = problem_of(2, 16, step == 1 ? 70 : 200);
    p.batch = 2;
    p.query_heads = p.gate_heads = 4;
    check(std::to_string(step) + " at once from nothing, gates of 0 and e^-1000", p, Tokens(p, Gates::any, 8), 0, step);
    p.gate_heads = 1;
    check(std::to_string(step) + " at once after 60", p, Tokens(p, Gates::slow, 8), 60, step);
    p.key_heads = p.gate_heads = 2;
    p.element = cuda::Element::fp16;  // the smaller bound
    const auto steps = [](int t) { return 1 + .9 * std::sin(t); };
    check(std::to_string(step) + " at once, rotary", p, Tokens(p, Gates::slow, 8).turned({step == 1, {}, 0}), 0, step);
    check(std::to_string(step) + " at once after 60, rotary by beta", p,
          Tokens(p, Gates::slow, 8).turned({step == 7, steps, 0}), 60, step);
  }
}

}  // namespace sympow::test
