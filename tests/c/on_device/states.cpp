// States on a device: prefill and decoding over folds with the bits of sympow::cuda, and their way to a CPU and back.
#include "own_states.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

/// Steps of a decoding after a prompt: tokens of each, the tail of 64 being folded where it has no room.
const std::vector<std::int64_t> steps = {1, 40, 30, 1};
constexpr std::int64_t prompt = 10;

void same_decoding(const std::string& what, const Sizes& sizes, bool is_cleared) {
  sympow_options options = turning_options();
  Batch x(sizes);
  Attention attention;
  fine(sympow_attention_create(&options, &attention));
  const DeviceWorkspace workspace(attention, x.inputs(0, prompt), SYMPOW_CALL_PREFILL);
  const DeviceWorkspace of_decoding(attention, x.inputs(0, 40), SYMPOW_CALL_DECODE);
  const OwnStream stream;
  OwnStates states(attention, sizes);
  if (is_cleared) {  // after other tokens
    const sympow_inputs in = x.inputs(5, prompt);
    fine(sympow_attend(attention, &in, states.handle, x.rows.view(5, prompt), workspace.handle, stream));
    fine(sympow_states_clear(states.handle));
  }
  sympow_inputs in = x.inputs(0, prompt);
  fine(sympow_attend(attention, &in, states.handle, x.rows.view(0, prompt), workspace.handle, stream));
  std::int64_t t = prompt;
  for (const auto count : steps) {
    in = x.inputs(t, count);
    fine(sympow_decode(attention, &in, states.handle, x.rows.view(t, count), of_decoding.handle, stream));
    t += count;
  }
  std::int64_t tokens = 0;
  fine(sympow_states_tokens(states.handle, 1, 0, &tokens));
  require(tokens == t, "%s: %d tokens, not %d", what.c_str(), static_cast<int>(tokens), static_cast<int>(t));
  // More by the form that goes on from states, the tail being folded before.
  in = x.inputs(t, prompt);
  fine(sympow_attend(attention, &in, states.handle, x.rows.view(t, prompt), workspace.handle, stream));

  cuda::Problem p = x.problem(2, prompt);
  p.carries_state = true;
  std::size_t bytes = 0, more = 0;
  const CudaStates own_states(p);
  const cuda::State& state = own_states.state;
  cuda::Tail tail = own_states.tail;
  done(cuda::attention_workspace(p, bytes));
  done(cuda::fold_workspace(p, 64, more));
  bytes = std::max(bytes, more);
  done(cuda::decode_workspace(x.problem(2, 40), more));
  const Array<std::byte> own(std::max(bytes, more));
  const auto outputs = [&](std::int64_t from) { return cuda::Outputs{x.expected.cuda_view(from), {}, {}}; };
  cuda::Outputs with_state = outputs(0);
  with_state.final_state = state;
  done(cuda::attend(p, x.cuda_inputs(), with_state, own.data(), own.size(), stream));
  t = prompt;
  for (const auto count : steps) {
    if (tail.count + count > tail.capacity) done(cuda::fold(p, state, tail, own.data(), own.size(), stream));
    done(cuda::decode(x.problem(2, count), state, tail, x.cuda_inputs(t), outputs(t), own.data(), own.size(), stream));
    t += count;
  }
  done(cuda::fold(p, state, tail, own.data(), own.size(), stream));
  with_state = outputs(t);
  with_state.final_state = state;
  cuda::Inputs after = x.cuda_inputs(t);
  after.initial_state = state;
  done(cuda::attend(p, after, with_state, own.data(), own.size(), stream));
  stream.wait();
  require_same(what, x.rows, x.expected);
}

/// Two sequences in slots of four: steps of which drafts are dropped, a fork on the way, and a wrong index. The
/// bits are those of sympow::cuda in one slot each, without the fork.
void same_slots(const std::string& what, const Sizes& sizes) {
  constexpr std::int64_t N = 4, step = 5;
  sympow_options options = turning_options();
  Batch x(sizes);
  Attention attention;
  fine(sympow_attention_create(&options, &attention));
  Sizes pool = sizes;
  pool.B = N;
  OwnStates states(attention, pool);
  const DeviceWorkspace workspace(attention, x.inputs(0, step), SYMPOW_CALL_DECODE);
  const OwnStream stream;
  cuda::Problem p = x.problem(2, step), whole = p;
  whole.batch = N;
  const CudaStates own(whole);
  cuda::Tail tail = own.tail;
  const Array<std::int32_t> counts(std::vector<std::int32_t>(N, 0));
  tail.counts = counts.data(), tail.count = tail.capacity;
  done(cuda::clear(whole, own.state, stream));
  DeviceTensor in_order({2}, std::vector<std::int32_t>{2, 0}), after({2}, std::vector<std::int32_t>{3, 0});
  DeviceTensor dropped({2}, std::vector<std::int32_t>{2, 1}), beyond({2}, std::vector<std::int32_t>{3, 4});
  DeviceTensor faults({2}, {SYMPOW_INT, 32, 1}), from({1}, std::vector<std::int32_t>{2}),
      to({1}, std::vector<std::int32_t>{3});
  const auto slots_of = [&](DeviceTensor& indices) {
    sympow_slots slots = SYMPOW_SLOTS_INIT;
    slots.indices = indices.view(), slots.faults = faults.view();
    return slots;
  };
  const auto faults_are = [&](std::vector<std::int32_t> expected) {
    stream.wait();
    require(std::memcmp(faults.bytes().data(), expected.data(), 8) == 0, "%s: other faults", what.c_str());
  };
  const cuda::Slots places{N, in_order.data<std::int32_t>(), nullptr};
  std::size_t bytes = 0;
  done(cuda::decode_workspace(p, tail, places, bytes));
  const Array<std::byte> memory(bytes);
  for (std::int64_t t = 0, n = 0; t + step <= sizes.T; t += step - 1, ++n) {
    if (n == 8) {
      sympow_slots sources = SYMPOW_SLOTS_INIT, targets = SYMPOW_SLOTS_INIT;
      sources.indices = from.view(), targets.indices = to.view();
      fine(sympow_states_copy_slots(states.handle, &targets, states.handle, &sources, stream));
    }
    const sympow_slots slots = slots_of(n < 8 ? in_order : after);
    const sympow_inputs in = x.inputs(t, step);
    fine(sympow_decode_slots(attention, &in, states.handle, &slots, x.rows.view(t, step), workspace.handle, stream));
    faults_are({0, 0});
    fine(sympow_states_drop(states.handle, dropped.view(), &slots, stream));
    faults_are({0, 0});
    done(cuda::decode(p, own.state, tail, places, x.cuda_inputs(t), {x.expected.cuda_view(t), {}, {}}, memory.data(),
                      bytes, stream));
    done(cuda::drop(p, tail, places, dropped.data<std::int32_t>(), stream));
  }
  stream.wait();
  require_same(what, x.rows, x.expected);
  DeviceTensor rows({2, step, sizes.H, sizes.e}, sizes.type);
  const sympow_inputs in = x.inputs(0, step);
  const sympow_slots wrong = slots_of(beyond);
  fine(sympow_decode_slots(attention, &in, states.handle, &wrong, rows.view(), workspace.handle, stream));
  faults_are({0, 1});
  std::int64_t tokens = 0;
  require(sympow_states_tokens(states.handle, 0, 0, &tokens) == SYMPOW_INVALID_ARGUMENT, "%s: tokens are counted",
          what.c_str());
}

/// κ_i = Σ_j b_ij ‖q_i‖² ‖k_j‖² / Σ_j b_ij (q_i·M_ij k_j)² of [B, T, H, d], where vectors of token t turn by t θ.
double condition(const Tensor<float>& q, const Tensor<float>& k, const Tensor<float>& gates,
                 const std::vector<double>& theta, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int64_t T = q.shape[1], H = q.shape[2], d = q.shape[3];
  const auto at = [&](std::int64_t t) { return static_cast<std::size_t>((b * T + t) * H + h); };
  const auto turned = [&](const Tensor<float>& x, std::int64_t t) {
    const float* const from = x.data.data() + at(t) * static_cast<std::size_t>(d);
    std::vector<double> to;
    for (std::size_t n = 0; n < theta.size(); ++n) {
      const double angle = static_cast<double>(t) * theta[n], c = std::cos(angle), s = std::sin(angle);
      const double a = static_cast<double>(from[2 * n]), z = static_cast<double>(from[2 * n + 1]);
      to.push_back(c * a - s * z), to.push_back(s * a + c * z);
    }
    return to;
  };
  const auto dot = [](const std::vector<double>& x, const std::vector<double>& y) {
    double sum = 0;
    for (std::size_t n = 0; n < x.size(); ++n) sum += x[n] * y[n];
    return sum;
  };
  const std::vector<double> of_query = turned(q, i);
  double log_b = 0, absolute = 0, sum = 0;
  for (std::int64_t j = i; j >= 0; --j) {
    const std::vector<double> of_key = turned(k, j);
    const double b_ij = std::exp(log_b), score = dot(of_query, of_key);
    absolute += b_ij * dot(of_query, of_query) * dot(of_key, of_key);
    sum += b_ij * score * score;
    log_b += static_cast<double>(gates.data[at(j)]);
  }
  return absolute / sum;
}

/// S and Z that were rounded to float once, and multiplied by a root before and after: entries are (1 + u)² - 1 apart.
void require_near(const std::string& what, const sympow_states* a, const sympow_states* b, const Sizes& sizes) {
  const std::int64_t D = sizes.d * (sizes.d + 1) / 2;
  Tensor<float> S({sizes.B, 2, D, sizes.e}), Z({sizes.B, 2, D}), s = S, z = Z;
  fine(sympow_states_read(a, S.view(), Z.view(), nullptr));
  fine(sympow_states_read(b, s.view(), z.view(), nullptr));
  double most = 0;
  const auto look = [&](const Tensor<float>& x, const Tensor<float>& y) {
    for (std::size_t n = 0; n < x.data.size(); ++n) {
      const double exact = static_cast<double>(x.data[n]), off = static_cast<double>(y.data[n]) - exact;
      most = std::max(most, std::abs(off) / (2.1 * 0x1p-24 * std::abs(exact) + 0x1p-140));
    }
  };
  look(S, s), look(Z, z);
  require(most <= 1, "%s: entries of states that came back at once are %g of their bound apart", what.c_str(), most);
  require(Z.data[0] > 1, "%s: the state is empty", what.c_str());
}

/// New states that decode tokens with gates, then without, which takes a fold in between.
void same_mixture() {
  const Sizes sizes{.T = 5};
  constexpr std::int64_t with_gates = 3;
  const sympow_options options = turning_options();
  Batch x(sizes);
  Attention attention;
  fine(sympow_attention_create(&options, &attention));
  sympow_inputs in = x.inputs(0, with_gates);
  const DeviceWorkspace workspace(attention, in, SYMPOW_CALL_DECODE);
  OwnStates states(attention, sizes);
  fine(sympow_decode(attention, &in, states.handle, x.rows.view(0, with_gates), workspace.handle, nullptr));
  in = x.inputs(with_gates, sizes.T - with_gates);
  in.log_gates = nullptr;
  fine(sympow_decode(attention, &in, states.handle, x.rows.view(with_gates, sizes.T - with_gates), workspace.handle,
                     nullptr));

  const cuda::Problem p = x.problem(2, with_gates);
  cuda::Problem without = x.problem(2, sizes.T - with_gates);
  without.gate_heads = 0;
  const CudaStates own(p);
  cuda::Tail tail = own.tail;
  const Array<std::byte> scratch(workspace.memory.size());
  const auto decode = [&](const cuda::Problem& problem, std::int64_t t, bool gates) {
    cuda::Inputs inputs = x.cuda_inputs(t);
    if (!gates) inputs.log_gates = {}, tail.log_gates = nullptr;
    done(cuda::decode(problem, own.state, tail, inputs, {x.expected.cuda_view(t), {}, {}}, scratch.data(),
                      scratch.size(), nullptr));
  };
  done(cuda::clear(p, own.state, nullptr));
  decode(p, 0, true);
  done(cuda::fold(p, own.state, tail, scratch.data(), scratch.size(), nullptr));
  decode(without, with_gates, false);
  require_same("decoding with gates, then without", x.rows, x.expected);
}

/// A prompt on the CPU, its states moved to the device and back, and rows of the next tokens on both.
void moved(const std::string& what, bool rotary) {
  const Sizes sizes{.type = f32_type, .B = 2, .T = 50, .H = 2, .Hk = 2, .Hg = 2, .rotary = rotary};
  constexpr std::int64_t first = 40, next = 5;
  sympow_options options = turning_options();
  Batch x(sizes);
  Attention attention;
  fine(sympow_attention_create(&options, &attention));

  // The same numbers on the CPU.
  const auto host = [&](const DeviceTensor& from, std::int64_t D, std::int64_t begin, std::int64_t count) {
    Tensor<float> to({sizes.B, count, 2, D});
    const std::vector<float> all = from.numbers();
    std::size_t n = 0;
    for (std::int64_t b = 0; b < sizes.B; ++b)
      for (std::int64_t i = 0; i < count * 2 * D; ++i)
        to.data[n++] = all[static_cast<std::size_t>((b * sizes.T + begin) * 2 * D + i)];
    return to;
  };
  Tensor<double> theta({sizes.d / 2});
  runtime(cudaMemcpy(theta.data.data(), x.theta.data(), theta.data.size() * sizeof(double), cudaMemcpyDeviceToHost));
  struct OnCpu {
    Tensor<float> q, k, v, gates, rows;
  };
  const auto part = [&](std::int64_t begin, std::int64_t count) {
    OnCpu p{host(x.q, sizes.d, begin, count), host(x.k, sizes.d, begin, count), host(x.v, sizes.e, begin, count),
            host(x.gates, 1, begin, count), Tensor<float>({sizes.B, count, 2, sizes.e})};
    p.gates.shape.pop_back();
    return p;
  };
  const auto run = [&](OnCpu& p, sympow_states* states) {
    sympow_inputs in = SYMPOW_INPUTS_INIT;
    in.queries = p.q.view(), in.keys = p.k.view(), in.values = p.v.view(), in.log_gates = p.gates.view();
    if (rotary) in.theta = theta.view();
    fine(sympow_attend(attention, &in, states, p.rows.view(), nullptr, nullptr));
  };
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = sizes.B, shape.heads = 2, shape.d = sizes.d, shape.e = sizes.e;
  CStates before, back;
  fine(sympow_states_create(attention, &shape, nullptr, &before));
  fine(sympow_states_create(attention, &shape, nullptr, &back));
  OnCpu of_prompt = part(0, first), after = part(first, next), again = part(first + next, next);
  run(of_prompt, before);

  // To the device, where the next tokens are decoded, and back with them in the tail.
  OwnStates there(attention, sizes);
  const OwnStream stream;
  fine(sympow_states_move(before, there.handle, nullptr, nullptr, stream));
  sympow_inputs in = x.inputs(first, next);
  const DeviceWorkspace workspace(attention, in, SYMPOW_CALL_DECODE);
  fine(sympow_states_move(there.handle, back, nullptr, nullptr, stream));
  require_near(what, before, back, sizes);
  fine(sympow_decode(attention, &in, there.handle, x.rows.view(first, next), workspace.handle, stream));
  fine(sympow_states_move(there.handle, back, nullptr, workspace.handle, stream));
  std::int64_t tokens = 0;
  fine(sympow_states_tokens(back, 1, 1, &tokens));
  require(tokens == first + next, "%s: %d tokens came back", what.c_str(), static_cast<int>(tokens));
  run(after, before);

  // Rows of tokens on the device; those of later ones on the CPU from both states.
  const Tensor<float> decoded = host(x.rows, sizes.e, first, next);
  OnCpu expected = again;
  run(expected, before);
  run(again, back);
  // The row rule: |ΔY| ≤ (|Y| + 4 (1 + √n) κ max|V|) u on each side, max|V| < 2, |Y| < 2 κ.
  const Tensor<float> q = host(x.q, sizes.d, 0, sizes.T), k = host(x.k, sizes.d, 0, sizes.T);
  const Tensor<float> gates = host(x.gates, 1, 0, sizes.T);
  const std::vector<double> rates = rotary ? theta.data : std::vector<double>(theta.data.size(), 0);
  const auto worst = [&](const Tensor<float>& a, const Tensor<float>& b, std::int64_t begin) {
    double most = 0;
    for (std::size_t n = 0; n < a.data.size(); ++n) {
      const auto row = static_cast<std::int64_t>(n) / sizes.e, i = begin + row / 2 % next;
      const double kappa = condition(q, k, gates, rates, row / 2 / next, row % 2, i);
      const double bound = 2 * (2 + 8 * (1 + std::sqrt(static_cast<double>(i + 1)))) * kappa * 0x1p-24;
      most = std::max(most, std::abs(static_cast<double>(a.data[n]) - static_cast<double>(b.data[n])) / bound);
    }
    return most;
  };
  const double of_device = worst(decoded, after.rows, first), of_cpu = worst(again.rows, expected.rows, first + next);
  require(of_device <= 1, "%s: rows on the device are %g of the row rule apart", what.c_str(), of_device);
  require(of_cpu <= 1, "%s: rows after coming back are %g of the row rule apart", what.c_str(), of_cpu);
  std::printf("  %s: %.2g and %.2g of the row rule\n", what.c_str(), of_device, of_cpu);
}

}  // namespace

void test_states() {
  same_decoding("decoding, bf16, gates of query heads", {.T = 95, .Hg = 2}, false);
  same_decoding("decoding, f32, rotary, after a clear", {.type = f32_type, .T = 95, .rotary = true, .beta = true},
                true);
  same_slots("slots, bf16", {.T = 95, .Hg = 1});
  same_slots("slots, f32, rotary, no gates", {.type = f32_type, .T = 95, .Hg = 0, .rotary = true});
  same_mixture();
  moved("states moved", false);
  moved("states moved, rotary", true);
}

}  // namespace sympow::test
