// Decoding after a prefill, or from nothing: rows of every token, through folds of the tail.
#include <numbers>

#include "call.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

/// Tokens up to `prefill` at once, then `step` at a time. The tail is folded when it has no room for more.
void check(const std::string& what, cuda::Problem p, const Tokens& x, std::int64_t prefill, std::int64_t step) {
  if (!can_run(what, p)) return;
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

/// More states than are folded at once: the bits are those of `attend`, which reads the tail's tokens where they are,
/// keys that were turned before they came there among them. Angles go on by the path of the last token.
void fold_in_passes(const std::string& what, const Format& format, bool rotary) {
  cuda::Problem p;
  p.power = 1;
  p.d = 64;
  p.e = 8;
  p.batch = 17;  // 16 at once
  p.query_heads = p.gate_heads = 32;
  p.key_heads = 16;
  p.tokens = 5;
  p.element = format.element;
  p.products = format.products;
  p.carries_state = true;
  if (!can_run(what, p)) return;
  const OwnState expected(p);
  const auto pairs = static_cast<std::size_t>(p.d / 2),
             angles = static_cast<std::size_t>(p.batch * p.key_heads) * pairs;
  const std::vector<double> rates(pairs, .3), before(angles, .4);
  const Array<double> rates_on_device(rates);
  cuda::Problem with_rates = p;
  if (rotary) with_rates.rates = rates_on_device.data();
  with_rates.pairing = cuda::Pairing::interleaved;
  OwnTail own(with_rates, 64);
  OwnState folded(with_rates);
  cuda::Tail& tail = own.tail;
  tail.count = static_cast<int>(p.tokens);
  const auto fill = [&](void* data, std::int64_t heads, std::int64_t channels, std::size_t bytes, const auto& entry) {
    std::vector<std::byte> x(static_cast<std::size_t>(p.batch * heads * 64 * channels) * bytes);
    for (std::size_t i = 0; i < x.size() / bytes; ++i) {
      const auto number = entry(i);
      std::memcpy(&x[i * bytes], &number, bytes);
    }
    runtime(cudaMemcpy(data, x.data(), x.size(), cudaMemcpyHostToDevice));
  };
  const auto entry = [&](std::size_t i) { return format.bits(static_cast<double>(i * 37 % 101) / 50 - 1); };
  const auto path = [](std::size_t i) {
    return static_cast<double>(i % 64 + 1) * (1 + static_cast<double>(i / 64) / 7);
  };
  fill(tail.keys, p.key_heads, p.d, format.bytes(), entry);
  fill(tail.values, p.key_heads, p.e, format.bytes(), entry);
  fill(tail.log_gates, p.gate_heads, 1, 4, [](std::size_t i) { return static_cast<float>(i % 13) / -13; });
  if (rotary) fill(tail.paths, p.key_heads, 1, 8, path);
  const auto view = [&](const void* data, cuda::Element element, std::int64_t heads, std::int64_t channels) {
    return cuda::ConstView{data, element, heads * 64 * channels, channels, 64 * channels};
  };
  const Array<std::byte> queries(
      std::vector<std::byte>(static_cast<std::size_t>(p.batch * p.tokens * p.query_heads * p.d) * format.bytes()));
  const Array<std::byte> rows(static_cast<std::size_t>(p.batch * p.tokens * p.query_heads * p.e) * format.bytes());
  const cuda::Inputs inputs{cuda::dense(queries.data(), p.element, p.tokens, p.query_heads, p.d),
                            view(tail.keys, p.element, p.key_heads, p.d),
                            view(tail.values, p.element, p.key_heads, p.e),
                            view(tail.log_gates, cuda::Element::f32, p.gate_heads, 1),
                            {}};
  const cuda::Outputs outputs{cuda::dense(rows.data(), p.element, p.tokens, p.query_heads, p.e), {}, expected.state};
  if (!run(p, inputs, outputs, nullptr)) return;
  std::size_t bytes = 0;
  done(cuda::clear(with_rates, folded.state, nullptr));
  if (rotary) runtime(cudaMemcpy(folded.state.turns, before.data(), angles * sizeof(double), cudaMemcpyHostToDevice));
  if (!done(cuda::fold_workspace(with_rates, 64, bytes))) return;
  const Array<std::byte> workspace(bytes);
  if (!done(cuda::fold(with_rates, folded.state, tail, workspace.data(), bytes, nullptr))) return;
  runtime(cudaDeviceSynchronize());
  require(tail.count == 0, "%s: the folded tail has %d tokens", what.c_str(), tail.count);
  const std::vector<std::byte> is = folded.memory.values(), must_be = expected.memory.values();
  require(std::equal(must_be.begin(), must_be.end(), is.begin()), "%s has other bits than attend", what.c_str());
  std::vector<double> turns(rotary ? angles : 0);
  if (rotary) runtime(cudaMemcpy(turns.data(), folded.state.turns, angles * sizeof(double), cudaMemcpyDeviceToHost));
  for (std::size_t i = 0; i < turns.size(); ++i) {  // roundings of 2^-53 of less than 32 turns: three here, three there
    const double exact = before[i] + path(i / pairs * 64 + 4) * rates[i % pairs] / (2 * std::numbers::pi);
    if (!require(std::abs(std::remainder(turns[i] - exact, 1)) <= 6 * 32 * 0x1p-53, "%s: angle %d is %g", what.c_str(),
                 static_cast<int>(i), turns[i]))
      return;
  }
}

}  // namespace

void test_decoding() {
  fold_in_passes("a fold in passes", {cuda::Element::bf16}, false);
  fold_in_passes("a fold in passes, of floats that turn", {cuda::Element::f32}, true);
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
    cuda::Problem p = problem_of(2, 16, step == 1 ? 70 : 140);
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
    if (step == 1) continue;
    p.element = cuda::Element::f32;
    check(std::to_string(step) + " at once, f32, rotary" + (step == 7 ? " by beta" : ""), p,
          Tokens(p, Gates::slow, 8).turned({step == 64, step == 7 ? steps : std::function<double(int)>(), 0}),
          step == 64 ? 0 : 60, step);
  }
}

}  // namespace sympow::test
