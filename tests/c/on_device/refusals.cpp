// Every bad argument that a call on a device alone can have is a status and a sentence in the names of the C interface;
// what arrays on a CPU may lack as well is in arguments_test.cpp. No array is touched: addresses here are of nothing.
#include <functional>

#include "batch.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

/// A tensor whose memory nobody looks at.
struct Nothing {
  std::int64_t shape[4] = {}, strides[4] = {};
  sympow_tensor tensor = {};

  Nothing(std::uintptr_t address, std::vector<std::int64_t> sizes, sympow_dtype type) {
    std::copy(sizes.begin(), sizes.end(), shape);
    std::int64_t stride = 1;
    for (std::size_t n = sizes.size(); n-- > 0; stride *= sizes[n]) strides[n] = stride;
    tensor = {reinterpret_cast<void*>(address),
              {SYMPOW_CUDA, 0},
              static_cast<std::int32_t>(sizes.size()),
              type,
              shape,
              strides,
              0};
  }
  Nothing(const Nothing&) = delete;
  Nothing& operator=(const Nothing&) = delete;
};

constexpr std::int64_t B = 2, T = 8, H = 4, Hk = 2, d = 16, e = 16;
constexpr std::uintptr_t place = std::uintptr_t{1} << 30, step = std::uintptr_t{1} << 24;

/// A call that is right but for what a test breaks; nothing but a missing GPU would refuse it.
struct Call {
  sympow_options options = turning_options();
  Nothing q{place, {B, T, H, d}, bf16_type}, k{place + step, {B, T, Hk, d}, bf16_type};
  Nothing v{place + 2 * step, {B, T, Hk, e}, bf16_type}, gates{place + 3 * step, {B, T, Hk}, f32_type};
  Nothing theta{place + 4 * step, {d / 2}, {SYMPOW_FLOAT, 64, 1}}, beta{place + 5 * step, {B, T, Hk}, f32_type};
  Nothing lengths{place + 6 * step, {B}, {SYMPOW_INT, 32, 1}}, rows{place + 7 * step, {B, T, H, e}, bf16_type};
  Nothing d_rows{place + 8 * step, {B, T, H, e}, bf16_type}, dq{place + 9 * step, {B, T, H, d}, bf16_type};
  Nothing dk{place + 10 * step, {B, T, Hk, d}, bf16_type}, dv{place + 11 * step, {B, T, Hk, e}, bf16_type};
  Nothing d_gates{place + 12 * step, {B, T, Hk}, f32_type}, one{place + 13 * step, {1}, f32_type};
  Nothing memory{place + 14 * step, {1 << 22}, {SYMPOW_UINT, 8, 1}};
  Nothing of_states{place + 15 * step, {1 << 22}, {SYMPOW_UINT, 8, 1}};
  sympow_inputs in = SYMPOW_INPUTS_INIT;
  sympow_gradients to = SYMPOW_GRADIENTS_INIT;
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  bool with_states = false, without_workspace = false;
  Attention attention;
  CWorkspace workspace;
  CStates states;

  Call() {
    in.queries = &q.tensor, in.keys = &k.tensor, in.values = &v.tensor, in.log_gates = &gates.tensor;
    to.queries = &dq.tensor, to.keys = &dk.tensor, to.values = &dv.tensor, to.log_gates = &d_gates.tensor;
    shape.batch = B, shape.heads = Hk, shape.d = d, shape.e = e, shape.dtype = bf16_type;
    shape.device = {SYMPOW_CUDA, 0}, shape.memory = &of_states.tensor;
  }
  void make() {
    fine(sympow_attention_create(&options, &attention));
    if (!without_workspace) fine(sympow_workspace_create(&memory.tensor, &workspace));
    if (with_states) fine(sympow_states_create(attention, &shape, nullptr, &states));
  }
  sympow_status diagnose() { return sympow_diagnose(attention, &in, nullptr, &rows.tensor, nullptr, nullptr); }
  sympow_status attend() { return sympow_attend(attention, &in, states, &rows.tensor, workspace, nullptr); }
  sympow_status decode() { return sympow_decode(attention, &in, states, &rows.tensor, workspace, nullptr); }
  sympow_status take_back() {
    return sympow_attend_vjp(attention, &in, &d_rows.tensor, nullptr, nullptr, &to, workspace, nullptr);
  }
};

void refused(sympow_status status, sympow_status expected, const char* words) {
  require(status == expected && std::strstr(sympow_error(), words) != nullptr,
          "status %d, must be %d; \"%s\" must say \"%s\"", static_cast<int>(status), static_cast<int>(expected),
          sympow_error(), words);
}

using Spoil = std::function<void(Call&)>;
void refuses(sympow_status (Call::*function)(), const Spoil& spoil, sympow_status expected, const char* words) {
  Call call;
  spoil(call);
  call.make();
  refused((call.*function)(), expected, words);
}

constexpr sympow_status bad = SYMPOW_INVALID_ARGUMENT, no_match = SYMPOW_SHAPE_MISMATCH, not_built = SYMPOW_NOT_BUILT,
                        too_large = SYMPOW_TOO_LARGE;

void of_arrays() {
  const auto attend = [](const Spoil& spoil, sympow_status expected, const char* words) {
    refuses(&Call::attend, spoil, expected, words);
  };
  attend([](Call& c) { c.k.tensor.device = {SYMPOW_CPU, 0}; }, bad,
         "inputs->keys is on a CPU, must be on CUDA device 0");
  attend([](Call& c) { c.k.tensor.device.id = 1; }, bad, "inputs->keys is on CUDA device 1, must be on CUDA device 0");
  attend([](Call& c) { c.rows.tensor.device = {SYMPOW_CPU, 0}; }, bad, "rows is on a CPU");
  attend(
      [](Call& c) {
        c.q.tensor.device = {SYMPOW_CPU, 0};
        c.q.tensor.dtype = f32_type;
      },
      bad, "inputs->keys is on CUDA device 0, must be on a CPU");
  attend([](Call& c) { c.q.tensor.dtype.bits = 64; }, bad, "inputs->queries: the type has code 4, 64 bits");
  attend([](Call& c) { c.q.tensor.dtype = {SYMPOW_FLOAT, 64, 1}; }, bad, "must be float16 or bfloat16 or float32");
  attend([](Call& c) { c.k.tensor.dtype = fp16_type; }, bad, "inputs->keys is of float16, must be of bfloat16");
  attend([](Call& c) { c.gates.tensor.dtype.bits = 64; }, bad, "inputs->log_gates: the type has code 2, 64 bits");
  attend([](Call& c) { c.in.theta = &c.theta.tensor, c.theta.tensor.dtype.bits = 32; }, bad, "must be float64");
  attend([](Call& c) { c.in.lengths = &c.lengths.tensor, c.lengths.tensor.dtype.bits = 64; }, bad, "must be int32");
  attend([](Call& c) { c.q.tensor.byte_offset = 2; }, bad, "inputs->queries: its address");
  attend([](Call& c) { c.q.tensor.byte_offset = 1; }, bad, "inputs->queries: data are not aligned to 2 bytes");
  attend([](Call& c) { c.rows.tensor.byte_offset = 8; }, bad, "rows: its address");
  attend([](Call& c) { c.q.strides[2] = 20, c.q.strides[1] = 80; }, bad, "must be a multiple of 8");
  attend([](Call& c) { c.rows.tensor.data = c.memory.tensor.data; }, bad, "the workspace and rows share");
  attend([](Call& c) { c.q.tensor.data = c.memory.tensor.data; }, bad, "the workspace and inputs->queries share");
  attend([](Call& c) { c.with_states = true, c.rows.tensor.data = c.of_states.tensor.data; }, bad,
         "memory of the states and rows share memory");
  attend([](Call& c) { c.in.lengths = &c.lengths.tensor, c.lengths.strides[0] = 2; }, bad,
         "inputs->lengths: strides[0] is 2, must be 1");
  attend([](Call& c) { c.q.strides[0] = std::int64_t{1} << 61; }, too_large,
         "inputs->queries: the last entry is beyond");
}

void of_what_there_is() {
  const auto attend = [](const Spoil& spoil, sympow_status expected, const char* words) {
    refuses(&Call::attend, spoil, expected, words);
  };
  attend([](Call& c) { c.q.shape[3] = c.k.shape[3] = 8; }, not_built,
         "there are no kernels of bf16 for P 2 with d 8; there are: P");
  attend([](Call& c) { c.options.scores = SYMPOW_SCORES_EXPONENTIAL; }, not_built,
         "options->scores is not SYMPOW_SCORES_POWER");
  attend([](Call& c) { c.options.scores = SYMPOW_SCORES_RANDOM, c.options.features = 8; }, not_built,
         "options->scores is not SYMPOW_SCORES_POWER");
  refuses(&Call::diagnose, [](Call&) {}, not_built, "sympow_diagnose is for a CPU alone");
  attend([](Call& c) { c.options.power = 5; }, not_built, "there are no kernels of bf16 for P 5");
  attend([](Call& c) { c.options.offset = 0, c.options.mask = SYMPOW_MASK_FULL; }, not_built,
         "options->mask, offset or window");
  attend([](Call& c) { c.options.check_finite = 1; }, not_built, "options->check_finite is 1");
  attend([](Call& c) { c.options.form = SYMPOW_FORM_RECURRENT; }, not_built, "options->form is SYMPOW_FORM_RECURRENT");
  attend([](Call& c) { c.options.chunk = 65; }, bad, "options->chunk is 65 and must be a multiple of 64");
  attend([](Call& c) { c.options.scale = 1e300; }, bad, "options->scale is inf");
  attend([](Call& c) { c.in.theta = &c.theta.tensor, c.in.beta = &c.beta.tensor, c.beta.shape[2] = H; }, not_built,
         "inputs->beta: shape[2] is 4; on a CUDA device it must be 2");
  attend([](Call& c) { c.v.shape[3] = c.rows.shape[3] = 12; }, bad,
         "e, numbers of a value, is 12 and must be a multiple");
  attend([](Call& c) { c.with_states = true, c.options.form = SYMPOW_FORM_ATTENTION; }, bad, "which has no states");
  attend([](Call& c) { c.without_workspace = true; }, bad, "workspace is null");
  attend([](Call& c) { c.memory.shape[0] = 256; }, bad, "workspace has 256 bytes, must have ");

  const auto take_back = [](const Spoil& spoil, sympow_status expected, const char* words) {
    refuses(&Call::take_back, spoil, expected, words);
  };
  take_back([](Call& c) { c.to.scale = &c.one.tensor; }, bad, "gradients->scale: the type has code 2, 32 bits");
  take_back(
      [](Call& c) {
        c.to.scale = &c.one.tensor, c.one.tensor.dtype.bits = 64, c.one.tensor.data = c.memory.tensor.data;
      },
      bad, "the workspace and gradients->scale share memory");
  take_back([](Call& c) { c.dq.tensor.byte_offset = 2; }, bad, "gradients->queries: its address");
  take_back([](Call& c) { c.d_gates.tensor.dtype.bits = 64; }, bad, "gradients->log_gates: the type has code 2, 64");
  take_back([](Call& c) { c.memory.shape[0] = 256; }, bad, "workspace has 256 bytes, must have ");

  const auto decode = [](const Spoil& spoil, sympow_status expected, const char* words) {
    refuses(
        &Call::decode,
        [&](Call& c) {
          c.with_states = true;
          spoil(c);
        },
        expected, words);
  };
  decode([](Call& c) { c.with_states = false; }, bad, "states is null");
  decode([](Call& c) { c.in.lengths = &c.lengths.tensor; }, not_built, "inputs->lengths is given; decoding");
  decode(
      [](Call& c) {
        for (Nothing* x : {&c.q, &c.k, &c.v, &c.gates, &c.rows}) x->shape[1] = 65, x->tensor.strides = nullptr;
      },
      bad, "tokens of a decoding is 65 and must be 1 to 64");
  decode([](Call& c) { c.shape.heads = 4, c.shape.key_heads = 2; }, no_match,
         "heads of states is 4, must be 2 (heads of");
  decode([](Call& c) { c.shape.dtype = fp16_type; }, bad,
         "states are of power 2 and float16, must be of power 2 and bf");
  decode([](Call& c) { c.rows.tensor.byte_offset = 8; }, bad, "rows: its address");
  decode([](Call& c) { c.memory.shape[0] = 256; }, bad, "workspace has 256 bytes, must have ");
}

/// Slots of a call, of tokens that are dropped, and of copies.
void of_slots(Call& call, sympow_states* on_cpu) {
  Nothing indices(place + 20 * step, {B}, {SYMPOW_INT, 32, 1}), faults(place + 21 * step, {B}, {SYMPOW_INT, 32, 1});
  Nothing tokens(place + 22 * step, {B}, {SYMPOW_INT, 32, 1});
  sympow_slots slots = SYMPOW_SLOTS_INIT, none = SYMPOW_SLOTS_INIT;
  slots.indices = &indices.tensor, slots.faults = &faults.tensor;
  const auto decode = [&](sympow_states* states, const sympow_slots* given) {
    return sympow_decode_slots(call.attention, &call.in, states, given, &call.rows.tensor, call.workspace, nullptr);
  };
  const auto drop = [&](const sympow_slots* given) {
    return sympow_states_drop(call.states, &tokens.tensor, given, nullptr);
  };
  const auto copy = [&](const sympow_slots* to, const sympow_slots* from) {
    return sympow_states_copy_slots(call.states, to, call.states, from, nullptr);
  };
  refused(decode(on_cpu, &slots), bad, "states are on a CPU, must be on a CUDA device; here it is sympow_decode");
  refused(decode(call.states, nullptr), bad, "slots is null");
  refused(drop(nullptr), bad, "slots is null");
  refused(sympow_states_drop(call.states, nullptr, &slots, nullptr), bad, "tokens is null");
  refused(sympow_states_drop(on_cpu, &tokens.tensor, &slots, nullptr), bad, "here it is sympow_states_assign");
  refused(copy(&slots, nullptr), bad, "from_slots is null");
  refused(copy(&none, &slots), bad, "slots->indices is null");
  refused(copy(&slots, &none), bad, "from_slots->indices is null");
  refused(sympow_states_copy_slots(call.states, &slots, on_cpu, &slots, nullptr), bad, "from is on a CPU");
  const auto all = [&](const auto& spoil, sympow_status expected, const char* words) {
    const auto kept = indices.tensor;
    spoil();
    refused(decode(call.states, &slots), expected, words);
    refused(drop(&slots), expected, words);
    refused(copy(&slots, &slots), expected, words);
    indices.tensor = kept, indices.shape[0] = B, indices.strides[0] = 1;
  };
  all([&] { indices.tensor.dtype.bits = 64; }, bad, "slots->indices: the type has code 0, 64 bits");
  all([&] { indices.tensor.device = {SYMPOW_CPU, 0}; }, bad, "slots->indices is on ");
  all([&] { indices.strides[0] = 2; }, bad, "slots->indices: strides[0] is 2, must be 1");
  indices.shape[0] = B + 1;
  refused(decode(call.states, &slots), no_match, "slots->indices: shape[0] is 3, must be 2");
  tokens.shape[0] = faults.shape[0] = B + 1;
  refused(drop(&slots), no_match, "sequences of states: 2, must be at least 3");
  refused(drop(&none), no_match, "slots->indices must say which they are");
  sympow_state_shape shape = call.shape;
  shape.e = 8;
  CStates others;
  fine(sympow_states_create(call.attention, &shape, nullptr, &others));
  refused(sympow_states_copy_slots(call.states, &slots, others, &slots, nullptr), no_match, "from has other sizes");
}

/// Arrays of states, and gradients in them.
void of_state_arrays(Call& call, sympow_states* on_cpu) {
  constexpr std::int64_t D = d * (d + 1) / 2;
  Nothing S(place + 16 * step, {B, Hk, D, e}, f32_type), Z(place + 17 * step, {B, Hk, D}, f32_type);
  Nothing angles(place + 18 * step, {B, Hk, d / 2}, {SYMPOW_FLOAT, 64, 1});
  const auto both = [&](sympow_status expected, const char* words) {
    refused(sympow_states_of_arrays(call.states, &S.tensor, &Z.tensor, &angles.tensor, nullptr), expected, words);
    refused(sympow_states_to_arrays(call.states, &S.tensor, &Z.tensor, &angles.tensor, nullptr, nullptr), expected,
            words);
  };
  const auto spoilt = [&](auto& part, auto value, sympow_status expected, const char* words) {
    const auto before = std::exchange(part, value);
    both(expected, words);
    part = before;
  };
  spoilt(S.shape[2], D - 1, no_match, "sums: shape[2] is 135, must be 136");
  spoilt(Z.tensor.dtype.bits, 64, bad, "normaliser: the type has code 2, 64 bits");
  spoilt(angles.tensor.dtype.bits, 32, bad, "angles: the type has code 2, 32 bits");
  spoilt(Z.strides[1], 2 * D, bad, "normaliser: strides[1] is 272, must be 136 on a device");
  spoilt(S.tensor.byte_offset, 4, bad, "sums: data are not aligned to 16 bytes");
  spoilt(S.tensor.device, sympow_device{SYMPOW_CPU, 0}, bad, "sums is on a CPU, must be on CUDA device 0");
  spoilt(S.tensor.data, call.of_states.tensor.data, bad, "share memory");
  refused(sympow_states_to_arrays(call.states, &S.tensor, &S.tensor, nullptr, nullptr, nullptr), no_match,
          "normaliser: ndim is 4, must be 3");
  refused(sympow_states_to_arrays(nullptr, &S.tensor, &Z.tensor, nullptr, nullptr, nullptr), bad, "states is null");
  refused(sympow_states_to_arrays(on_cpu, &S.tensor, &Z.tensor, nullptr, nullptr, nullptr), bad,
          "states are on a CPU, must be on a CUDA device; here it is sympow_states_read");
  refused(sympow_states_of_arrays(on_cpu, &S.tensor, &Z.tensor, nullptr, nullptr), bad,
          "here it is sympow_states_write");

  CGradients gradients, of_cpu;
  refused(sympow_state_gradients_create(call.states, &S.tensor, nullptr, nullptr, &gradients), bad,
          "normaliser is null");
  refused(sympow_state_gradients_create(call.states, &S.tensor, &Z.tensor, &Z.tensor, &gradients), bad,
          "angles: the type has code 2, 32 bits");
  fine(sympow_state_gradients_create(call.states, &S.tensor, &Z.tensor, nullptr, &gradients));
  refused(sympow_state_gradients_read(gradients, nullptr, nullptr, nullptr), bad,
          "state_gradients are on a CUDA device");
  fine(sympow_state_gradients_create(on_cpu, nullptr, nullptr, nullptr, &of_cpu));
  const auto take_back = [&](sympow_states* states, sympow_state_gradients* given, sympow_status expected,
                             const char* words) {
    refused(sympow_attend_vjp(call.attention, &call.in, &call.d_rows.tensor, states, given, &call.to, call.workspace,
                              nullptr),
            expected, words);
  };
  take_back(nullptr, gradients, bad, "states is null");
  take_back(on_cpu, nullptr, bad, "states are on a CPU");
  take_back(call.states, of_cpu, bad, "state_gradients are on a CPU, must be where the queries are");
  call.to.scale = &Z.tensor, Z.tensor.dtype.bits = 64, Z.tensor.ndim = 0;
  take_back(call.states, gradients, bad, "normaliser and gradients->scale share memory");
  call.to.scale = nullptr;
  sympow_state_shape shape = call.shape;
  shape.e = 8, S.shape[3] = 8, S.tensor.strides = nullptr, Z.tensor.dtype.bits = 32, Z.tensor.ndim = 3;
  CStates others;
  CGradients of_others;
  fine(sympow_states_create(call.attention, &shape, nullptr, &others));
  fine(sympow_state_gradients_create(others, &S.tensor, &Z.tensor, nullptr, &of_others));
  take_back(call.states, of_others, no_match, "state_gradients has other sizes, type or power than states");
}

void of_handles() {
  Call call;
  call.with_states = true;
  call.make();
  const sympow_attention* attention = call.attention;
  CWorkspace workspace;
  Nothing memory(place + 128, {64}, {SYMPOW_UINT, 8, 1});
  refused(sympow_workspace_create(&memory.tensor, &workspace), bad, "memory: data are not aligned to 256 bytes");
  memory.tensor.data = reinterpret_cast<void*>(place), memory.strides[0] = 2;
  refused(sympow_workspace_create(&memory.tensor, &workspace), bad, "memory: strides[0] is 2, must be 1");
  std::size_t bytes = 0;
  refused(sympow_workspace_bytes(attention, &call.in, 5, &bytes), bad, "call is 5, must lie in 0 … 4");

  CStates states, on_cpu;
  sympow_state_shape shape = call.shape;
  shape.memory = nullptr;
  refused(sympow_states_create(attention, &shape, nullptr, &states), bad, "shape->memory is null");
  shape.memory = &call.q.tensor;
  refused(sympow_states_create(attention, &shape, nullptr, &states), no_match, "shape->memory: ndim is 4");
  shape.memory = &memory.tensor, memory.strides[0] = 1;
  refused(sympow_states_create(attention, &shape, nullptr, &states), bad, "shape->memory has 64 bytes, must have ");
  refused(sympow_states_create(attention, &call.shape, call.states, &states), bad, "after is given, must be null on");
  shape.key_heads = 3;
  refused(sympow_states_bytes(attention, &shape, &bytes), no_match,
          "shape->heads is 2, must be a multiple of key_heads, 3");
  shape = call.shape, shape.d = 17;
  refused(sympow_states_bytes(attention, &shape, &bytes), not_built, "there are no kernels of bf16 for P 2 with d 17");
  shape = call.shape, shape.batch = std::int64_t{1} << 62;
  refused(sympow_states_bytes(attention, &shape, &bytes), bad, "sequences is ");
  shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = B, shape.heads = Hk, shape.d = d, shape.e = 8;
  fine(sympow_states_create(attention, &shape, nullptr, &on_cpu));
  fine(sympow_states_bytes(attention, &shape, &bytes));
  require(bytes == 0, "states on a CPU take %zu bytes", bytes);
  shape.memory = &memory.tensor;
  refused(sympow_states_create(attention, &shape, nullptr, &states), bad, "shape->memory is on a CPU, where it must");

  const char* const words = "are on a CUDA device, must be on a CPU: sympow_states_move";
  sympow_state_gradients* gradients = nullptr;
  sympow_states* other = nullptr;
  refused(sympow_states_copy(call.states, &other), bad, words);
  refused(sympow_states_merge(call.states, on_cpu, &other), bad, words);
  refused(sympow_states_merge(on_cpu, call.states, &other), bad, words);
  refused(sympow_states_read(call.states, nullptr, nullptr, nullptr), bad, words);
  refused(sympow_states_write(call.states, nullptr, nullptr, nullptr), bad, words);
  refused(sympow_states_save(call.states, "nowhere"), bad, words);
  refused(sympow_states_load(call.states, "nowhere"), bad, words);
  refused(sympow_state_gradients_create(call.states, nullptr, nullptr, nullptr, &gradients), bad, "sums is null");
  refused(sympow_states_move(call.states, call.states, nullptr, nullptr, nullptr), bad, "both on a CUDA device");
  refused(sympow_states_move(on_cpu, on_cpu, nullptr, nullptr, nullptr), bad, "both on a CPU");
  refused(sympow_states_move(on_cpu, call.states, nullptr, nullptr, nullptr), no_match,
          "e on the CPU is 8, must be 16");
  refused(sympow_attend(attention, &call.in, on_cpu, &call.rows.tensor, call.workspace, nullptr), bad,
          "states are on a CPU");
  std::int64_t tokens = 0;
  refused(sympow_states_tokens(call.states, B, 0, &tokens), bad, "sequence is 2, must be at least 0 and below");

  of_state_arrays(call, on_cpu);
  of_slots(call, on_cpu);

  // Arrays on a CPU with handles of a device.
  Tensor<float> x({B, T, H, d}), y({B, T, H, e}), v({B, T, H, e});
  sympow_inputs in = SYMPOW_INPUTS_INIT;
  in.queries = in.keys = x.view(), in.values = v.view();
  refused(sympow_attend(attention, &in, nullptr, y.view(), call.workspace, nullptr), bad,
          "workspace is that of a CUDA");
  refused(sympow_attend(attention, &in, call.states, y.view(), nullptr, nullptr), bad, words);
}

}  // namespace

void test_refusals() {
  of_arrays();
  of_what_there_is();
  of_handles();
}

}  // namespace sympow::test
