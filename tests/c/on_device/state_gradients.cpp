// States as arrays on a device, and gradients in them: the bits of sympow::cuda.
#include "own_states.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

constexpr std::int64_t prompt = 10;

/// What a call writes.
struct Results {
  DeviceTensor q, k, v, gates, theta, beta, scale;

  Results(const Sizes& x, std::int64_t T)
      : q({x.B, T, x.H, x.d}, x.type),
        k({x.B, T, x.Hk, x.d}, x.type),
        v({x.B, T, x.Hk, x.e}, x.type),
        gates({x.B, T, std::max<std::int64_t>(x.Hg, 1)}, f32_type),
        theta({x.d / 2}, {SYMPOW_FLOAT, 64, 1}),
        beta({x.B, T, x.Hk}, f32_type),
        scale({1}, {SYMPOW_FLOAT, 64, 1}) {}
};

/// How a call has its states.
enum class Before { tokens, nothing };
enum class After { gradients, with_angles, none };

/// The gradients of the tokens after a prompt, in the state that it leaves and through the state after them.
void same_gradients(const std::string& what, const Sizes& sizes, sympow_options options, Before before, After after) {
  Batch x(sizes);
  const std::int64_t T = sizes.T - prompt;
  Attention attention;
  fine(sympow_attention_create(&options, &attention));
  DeviceTensor d_rows = x.more({sizes.B, T, sizes.H, sizes.e}, sizes.type);
  StateTensors tensors(sizes), by_c(sizes), by_cuda(sizes);
  const bool has_after = after != After::none, has_angles = after == After::with_angles;
  const auto fill = [&](DeviceTensor& c, DeviceTensor& cuda) {
    const DeviceTensor from = x.more(c.shape(), f32_type);
    for (DeviceTensor* to : {&c, &cuda})
      runtime(cudaMemcpy(to->data(), from.bytes().data(), from.bytes().size(), cudaMemcpyHostToDevice));
  };
  fill(by_c.sums, by_cuda.sums), fill(by_c.normaliser, by_cuda.normaliser);
  for (DeviceTensor* to : {&by_c.angles, &by_cuda.angles}) {
    std::vector<double> angles(to->bytes().size() / sizeof(double));
    for (std::size_t n = 0; n < angles.size(); ++n) angles[n] = static_cast<double>(n) - 3;
    runtime(cudaMemcpy(to->data(), angles.data(), to->bytes().size(), cudaMemcpyHostToDevice));
  }
  const OwnStream stream;

  // The state after the prompt as arrays, of which others begin.
  OwnStates of_prompt(attention, sizes), states(attention, sizes);
  sympow_inputs in = x.inputs(0, prompt);
  if (before == Before::tokens) {
    const DeviceWorkspace workspace(attention, in, SYMPOW_CALL_PREFILL);
    fine(sympow_attend(attention, &in, of_prompt.handle, x.rows.view(0, prompt), workspace.handle, stream));
    fine(sympow_states_to_arrays(of_prompt.handle, tensors.sums.view(), tensors.normaliser.view(),
                                 tensors.angles.view(), nullptr, stream));
    fine(sympow_states_of_arrays(states.handle, tensors.sums.view(), tensors.normaliser.view(), tensors.angles.view(),
                                 stream));
    stream.wait();
  }
  Results of_c(sizes, T), of_cuda(sizes, T);
  sympow_gradients to = SYMPOW_GRADIENTS_INIT;
  to.queries = of_c.q.view(), to.keys = of_c.k.view(), to.values = of_c.v.view(), to.scale = of_c.scale.view();
  if (sizes.Hg > 0) to.log_gates = of_c.gates.view();
  if (sizes.rotary) to.theta = of_c.theta.view();
  if (sizes.beta) to.beta = of_c.beta.view();
  CGradients gradients;
  if (has_after)
    fine(sympow_state_gradients_create(states.handle, by_c.sums.view(), by_c.normaliser.view(),
                                       has_angles ? by_c.angles.view() : nullptr, &gradients));
  in = x.inputs(prompt, T);
  const DeviceWorkspace workspace(attention, in, SYMPOW_CALL_PREFILL_VJP);
  fine(sympow_attend_vjp(attention, &in, d_rows.view(), states.handle, gradients, &to, workspace.handle, stream));

  cuda::Problem p = x.problem(2, T);
  p.form = options.form == SYMPOW_FORM_CHUNKED ? cuda::Form::chunked : cuda::Form::automatic;
  p.chunk = static_cast<int>(options.chunk);
  p.scale = static_cast<float>(options.scale);
  if (options.normalisation == SYMPOW_UNNORMALISED) p.normalised = false;
  p.carries_state = true;
  const CudaStates own(p), last(p), adjoint(p);
  cuda::Inputs inputs = x.cuda_inputs(prompt);
  if (before == Before::tokens) {
    done(cuda::state_of_arrays(p, tensors.cuda_arrays(sizes.rotary), own.state, stream));
    inputs.initial_state = own.state;
  }
  std::size_t bytes = 0;
  done(cuda::attention_vjp_workspace(p, bytes));
  const Array<std::byte> scratch(bytes);
  DeviceTensor rows({sizes.B, T, sizes.H, sizes.e}, sizes.type), factors({sizes.B, T, sizes.H}, f32_type);
  cuda::Outputs outputs{rows.cuda_view(), {}, {}};
  cuda::RowGradients of_rows{d_rows.cuda_view(), rows.cuda_view()};
  cuda::Gradients all{of_cuda.q.cuda_view(), of_cuda.k.cuda_view(), of_cuda.v.cuda_view()};
  if (p.is_normalised()) of_rows.factors = outputs.factors = factors.cuda_view();
  if (sizes.Hg > 0) all.log_gates = of_cuda.gates.cuda_view();
  if (sizes.rotary) all.rates = of_cuda.theta.data<double>();
  if (sizes.beta) all.beta = of_cuda.beta.cuda_view();
  all.scale = of_cuda.scale.data<double>();
  outputs.final_state = last.state;
  done(cuda::attend(p, inputs, outputs, scratch.data(), bytes, stream));
  if (has_after) {
    all.initial_state = adjoint.state;
    if (!has_angles) all.initial_state.turns = nullptr;
    of_rows.final_state = all.initial_state;
    done(cuda::gradient_of_arrays(p, by_cuda.cuda_arrays(has_angles), last.state, all.initial_state, stream));
  }
  done(cuda::attend_vjp(p, inputs, of_rows, all, scratch.data(), bytes, stream));
  if (has_after) {
    done(cuda::gradient_to_arrays(p, all.initial_state, inputs.initial_state, by_cuda.cuda_arrays(has_angles), stream));
    require_same(what + ": dS", by_c.sums, by_cuda.sums);
    require_same(what + ": dZ", by_c.normaliser, by_cuda.normaliser);
    require_same(what + ": dμ", by_c.angles, by_cuda.angles);
  }
  require_same(what + ": dQ", of_c.q, of_cuda.q);
  require_same(what + ": dK", of_c.k, of_cuda.k);
  require_same(what + ": dV", of_c.v, of_cuda.v);
  require_same(what + ": gates", of_c.gates, of_cuda.gates);
  require_same(what + ": θ", of_c.theta, of_cuda.theta);
  require_same(what + ": β", of_c.beta, of_cuda.beta);
  require_same(what + ": scale", of_c.scale, of_cuda.scale);
}

/// Arrays of states with a tail, which is folded first, and of empty ones; gradients refuse a tail.
void of_tails() {
  const Sizes sizes{.T = prompt, .rotary = true};
  const sympow_options options = turning_options();
  Batch x(sizes);
  Attention attention;
  fine(sympow_attention_create(&options, &attention));
  const sympow_inputs in = x.inputs();
  const DeviceWorkspace workspace(attention, in, SYMPOW_CALL_DECODE);
  OwnStates states(attention, sizes);
  StateTensors by_c(sizes), by_cuda(sizes);
  const auto read = [&](sympow_workspace* scratch) {
    return sympow_states_to_arrays(states.handle, by_c.sums.view(), by_c.normaliser.view(), by_c.angles.view(), scratch,
                                   nullptr);
  };
  const auto zeros = [](const DeviceTensor& tensor) {
    for (const std::byte byte : tensor.bytes())
      if (byte != std::byte{0}) return false;
    return true;
  };
  fine(read(nullptr));
  runtime(cudaDeviceSynchronize());
  require(zeros(by_c.sums) && zeros(by_c.normaliser) && zeros(by_c.angles), "empty states are not 0 as arrays");

  fine(sympow_decode(attention, &in, states.handle, x.rows.view(), workspace.handle, nullptr));
  sympow_gradients to = SYMPOW_GRADIENTS_INIT;
  Results results(sizes, sizes.T);
  to.queries = results.q.view(), to.keys = results.k.view(), to.values = results.v.view();
  const sympow_status tail =
      sympow_attend_vjp(attention, &in, x.expected.view(), states.handle, nullptr, &to, workspace.handle, nullptr);
  require(tail == SYMPOW_INVALID_ARGUMENT && std::strstr(sympow_error(), "states have tokens in their tail") != nullptr,
          "status %d of gradients with a tail: %s", static_cast<int>(tail), sympow_error());
  const sympow_status none = read(nullptr);
  require(none == SYMPOW_INVALID_ARGUMENT && std::strstr(sympow_error(), "workspace is null") != nullptr,
          "status %d of a fold without a workspace: %s", static_cast<int>(none), sympow_error());
  fine(read(workspace.handle));

  const cuda::Problem p = x.problem(2);
  const CudaStates own(p);
  cuda::Tail own_tail = own.tail;
  const Array<std::byte> scratch(workspace.memory.size());
  done(cuda::clear(p, own.state, nullptr));
  done(cuda::decode(p, own.state, own_tail, x.cuda_inputs(), {x.expected.cuda_view(), {}, {}}, scratch.data(),
                    scratch.size(), nullptr));
  done(cuda::fold(p, own.state, own_tail, scratch.data(), scratch.size(), nullptr));
  done(cuda::state_to_arrays(p, own.state, by_cuda.cuda_arrays(true), nullptr));
  require_same("arrays of a tail: S", by_c.sums, by_cuda.sums);
  require_same("arrays of a tail: Z", by_c.normaliser, by_cuda.normaliser);
  require_same("arrays of a tail: μ", by_c.angles, by_cuda.angles);
}

}  // namespace

void test_state_gradients() {
  const sympow_options plain = turning_options();
  sympow_options chunked = plain, sums = chunked;
  chunked.form = SYMPOW_FORM_CHUNKED, chunked.chunk = 64;
  sums.normalisation = SYMPOW_UNNORMALISED, sums.scale = .5;
  same_gradients("states, bf16, gates of query heads", {.T = 140, .Hg = 2}, chunked, Before::tokens, After::gradients);
  same_gradients("states, fp16, no gates, sums", {.type = fp16_type, .T = 60, .Hg = 0}, sums, Before::tokens,
                 After::gradients);
  same_gradients("states, bf16, rotary by beta", {.T = 90, .rotary = true, .beta = true}, plain, Before::tokens,
                 After::gradients);
  same_gradients("states, bf16, rotary, a loss of angles", {.T = 90, .rotary = true, .beta = true}, chunked,
                 Before::tokens, After::with_angles);
  same_gradients("states, bf16, rotary, a loss of angles, from nothing", {.T = 90, .Hg = 2, .rotary = true}, plain,
                 Before::nothing, After::with_angles);
  same_gradients("states, bf16, from nothing", {.T = 90}, plain, Before::nothing, After::gradients);
  same_gradients("states, bf16, of a loss of rows", {.T = 90}, plain, Before::tokens, After::none);
  of_tails();
}

}  // namespace sympow::test
