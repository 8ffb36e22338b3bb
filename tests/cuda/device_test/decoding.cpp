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

}  // namespace

void test_decoding() {
  for (const auto [power, d] : cuda::library::instantiations)
    for (const auto element : {cuda::Element::bf16, cuda::Element::fp16}) {
      cuda::Problem p = problem_of(power, d, 68);
      p.element = element;
      p.normalised = element == cuda::Element::bf16;
      check("P " + std::to_string(power) + ", d " + std::to_string(d) +
                (element == cuda::Element::bf16 ? ", bf16, normalised" : ", fp16"),
            p, Tokens(p, Gates::none, 7), 64, 3);
    }
  for (const std::int64_t step : {1, 7, 64})
    for (const auto gates : {Gates::slow, Gates::any}) {
      cuda::Problem p = problem_of(2, 16, step == 1 ? 70 : 200);
      p.batch = 2;
      p.query_heads = 4;
      p.key_heads = 1;
      p.gate_heads = 4;
      const std::string kind = gates == Gates::any ? ", gates of 0 and e^-1000" : "";
      check(std::to_string(step) + " at once from nothing" + kind, p, Tokens(p, gates, 8), 0, step);
      p.gate_heads = 1;
      check(std::to_string(step) + " at once after 60" + kind, p, Tokens(p, gates, 8), 60, step);
    }
}

}  // namespace sympow::test
