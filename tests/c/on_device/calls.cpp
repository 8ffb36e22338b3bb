// Calls of the C interface on a device: the bits of sympow::cuda.
#include "batch.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

cuda::Problem problem_of(Batch& x, const sympow_options& options) {
  cuda::Problem p = x.problem(options.power);
  p.form = options.form == SYMPOW_FORM_CHUNKED     ? cuda::Form::chunked
           : options.form == SYMPOW_FORM_ATTENTION ? cuda::Form::attention
                                                   : cuda::Form::automatic;
  p.chunk = static_cast<int>(options.chunk);
  p.scale = static_cast<float>(options.scale);
  if (options.normalisation == SYMPOW_UNNORMALISED) p.normalised = false;
  if (options.pairing == SYMPOW_PAIRING_HALF_SPLIT) p.pairing = cuda::Pairing::half_split;
  return p;
}

void same_rows(const std::string& what, const Sizes& sizes, sympow_options options) {
  Batch x(sizes);
  Attention attention;
  fine(sympow_attention_create(&options, &attention));
  const sympow_inputs in = x.inputs();
  const DeviceWorkspace workspace(attention, in, SYMPOW_CALL_ATTEND);
  const OwnStream stream;
  fine(sympow_attend(attention, &in, nullptr, x.rows.view(), workspace.handle, stream));
  stream.wait();

  const cuda::Problem p = problem_of(x, options);
  std::size_t bytes = 0;
  done(cuda::attention_workspace(p, bytes));
  require(bytes == workspace.memory.size(), "%s: a workspace of %zu bytes, not %zu", what.c_str(),
          workspace.memory.size(), bytes);
  const Array<std::byte> own(bytes);
  done(cuda::attend(p, x.cuda_inputs(), {x.expected.cuda_view(), {}, {}}, own.data(), bytes, stream));
  require_same(what, x.rows, x.expected);
}

void same_gradients(const std::string& what, const Sizes& sizes, sympow_options options) {
  Batch x(sizes);
  Attention attention;
  fine(sympow_attention_create(&options, &attention));
  DeviceTensor d_rows = x.more({sizes.B, sizes.T, sizes.H, sizes.e}, sizes.type);
  const auto like = [&](std::int64_t heads, std::int64_t channels) {
    return DeviceTensor({sizes.B, sizes.T, heads, channels}, sizes.type);
  };
  struct Results {
    DeviceTensor q, k, v, gates, theta, beta, scale;
  };
  const auto results = [&] {
    return Results{like(sizes.H, sizes.d),
                   like(sizes.Hk, sizes.d),
                   like(sizes.Hk, sizes.e),
                   DeviceTensor({sizes.B, sizes.T, std::max<std::int64_t>(sizes.Hg, 1)}, f32_type),
                   DeviceTensor({sizes.d / 2}, {SYMPOW_FLOAT, 64, 1}),
                   DeviceTensor({sizes.B, sizes.T, sizes.Hk}, f32_type),
                   DeviceTensor({1}, {SYMPOW_FLOAT, 64, 1})};
  };
  Results by_c = results(), by_cuda = results();
  sympow_gradients to = SYMPOW_GRADIENTS_INIT;
  to.queries = by_c.q.view(), to.keys = by_c.k.view(), to.values = by_c.v.view();
  if (sizes.Hg > 0) to.log_gates = by_c.gates.view();
  if (sizes.rotary) to.theta = by_c.theta.view();
  if (sizes.beta) to.beta = by_c.beta.view();
  to.scale = by_c.scale.view();
  const sympow_inputs in = x.inputs();
  const DeviceWorkspace workspace(attention, in, SYMPOW_CALL_ATTEND_VJP);
  fine(sympow_attend_vjp(attention, &in, d_rows.view(), nullptr, nullptr, &to, workspace.handle, nullptr));

  const cuda::Problem p = problem_of(x, options);
  DeviceTensor factors({sizes.B, sizes.T, sizes.H}, f32_type);
  std::size_t forward = 0, backward = 0;
  done(cuda::attention_workspace(p, forward));
  done(cuda::attention_vjp_workspace(p, backward));
  const Array<std::byte> own(std::max(forward, backward));
  cuda::Outputs outputs{x.expected.cuda_view(), {}, {}};
  if (p.is_normalised()) outputs.factors = factors.cuda_view();
  done(cuda::attend(p, x.cuda_inputs(), outputs, own.data(), own.size(), nullptr));
  cuda::RowGradients rows{d_rows.cuda_view(), x.expected.cuda_view()};
  if (p.is_normalised()) rows.factors = factors.cuda_view();
  cuda::Gradients gradients{by_cuda.q.cuda_view(), by_cuda.k.cuda_view(), by_cuda.v.cuda_view()};
  if (sizes.Hg > 0) gradients.log_gates = by_cuda.gates.cuda_view();
  if (sizes.rotary) gradients.rates = by_cuda.theta.data<double>();
  if (sizes.beta) gradients.beta = by_cuda.beta.cuda_view();
  gradients.scale = by_cuda.scale.data<double>();
  done(cuda::attend_vjp(p, x.cuda_inputs(), rows, gradients, own.data(), own.size(), nullptr));
  require_same(what + ": dQ", by_c.q, by_cuda.q);
  require_same(what + ": dK", by_c.k, by_cuda.k);
  require_same(what + ": dV", by_c.v, by_cuda.v);
  require_same(what + ": gates", by_c.gates, by_cuda.gates);
  require_same(what + ": θ", by_c.theta, by_cuda.theta);
  require_same(what + ": β", by_c.beta, by_cuda.beta);
  require_same(what + ": scale", by_c.scale, by_cuda.scale);
}

}  // namespace

void test_calls() {
  const sympow_options plain = turning_options();
  sympow_options chunked = plain, sums = plain, halves = plain;
  chunked.form = SYMPOW_FORM_CHUNKED, chunked.chunk = 64;
  sums.normalisation = SYMPOW_UNNORMALISED, sums.scale = .5, sums.form = SYMPOW_FORM_ATTENTION;
  halves.pairing = SYMPOW_PAIRING_HALF_SPLIT;
  same_rows("rows, bf16, gates of key heads", {}, plain);
  same_rows("rows, fp16, chunked, lengths", {.type = fp16_type, .Hg = 2, .lengths = {70, 3}}, chunked);
  same_rows("rows, f32, sums, no gates", {.type = f32_type, .Hg = 0}, sums);
  same_rows("rows, bf16, rotary, halves", {.Hg = 0, .rotary = true, .beta = true}, halves);
  same_gradients("gradients, bf16", {}, plain);
  same_gradients("gradients, bf16, chunked, lengths", {.lengths = {70, 3}}, chunked);
  same_gradients("gradients, bf16, chunked, rotary by beta", {.rotary = true, .beta = true}, chunked);
  same_gradients("gradients, bf16, rotary, halves, lengths", {.Hg = 0, .rotary = true, .lengths = {70, 3}}, halves);
  same_gradients("gradients, f32, chunked", {.type = f32_type}, chunked);
  same_gradients("gradients, fp16, sums, lengths", {.type = fp16_type, .Hg = 0, .lengths = {70, 3}}, sums);
}

}  // namespace sympow::test
