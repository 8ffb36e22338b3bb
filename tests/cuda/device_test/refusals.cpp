// Bad arguments: a status that says what is wrong, before anything is launched. Pointers here lead nowhere.
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sympow/cuda/gradient.hpp>

#include "library/instantiations.hpp"
#include "require.hpp"
#include "tests.hpp"

namespace sympow::test {

namespace {

using cuda::Code;

template <class T = void>
T* address(std::uintptr_t at) {
  return reinterpret_cast<T*>(at);
}

/// A call of `attend` that nothing is wrong with.
struct Call {
  cuda::Problem problem;
  cuda::Inputs inputs;
  cuda::Outputs outputs;
  void* workspace = address(1 << 20);
  std::size_t bytes = 0;

  Call() {
    problem.power = cuda::library::instantiations[0].power;
    problem.d = cuda::library::instantiations[0].d;
    problem.batch = 2;
    problem.tokens = 128;
    problem.query_heads = 4;
    problem.key_heads = 2;
    problem.gate_heads = 2;
    problem.carries_state = true;
    problem.pairing = cuda::Pairing::interleaved;
    const auto element = problem.element;
    inputs.queries = cuda::dense(address(1 << 12), element, 128, 4, problem.d);
    inputs.keys = cuda::dense(address(2 << 12), element, 128, 2, problem.d);
    inputs.values = cuda::dense(address(3 << 12), element, 128, 2, 64);
    inputs.log_gates = cuda::dense(address(4 << 12), cuda::Element::f32, 128, 2, 1);
    outputs.rows = cuda::dense(address(5 << 12), element, 128, 4, 64);
    outputs.condition = cuda::dense(address(6 << 12), cuda::Element::f32, 128, 4, 1);
    outputs.final_state = {address<float>(16), address<float>(32), address<double>(48), address<float>(64)};
    if (!cuda::attention_workspace(problem, bytes).ok()) bytes = 0;
  }
};

void refuses(Code code, const char* part_of_text, const std::function<void(Call&)>& spoil) {
  Call call;
  spoil(call);
  const cuda::Status status =
      cuda::attend(call.problem, call.inputs, call.outputs, call.workspace, call.bytes, nullptr);
  require(status.code() == code && std::strstr(status.text(), part_of_text),
          "\"%s\" was expected of code %d, not %d: %s", part_of_text, static_cast<int>(code),
          static_cast<int>(status.code()), status.text());
}

void refusals_of_problems() {
  const auto bad = [](const char* text, auto spoil) {
    refuses(Code::bad_argument, text, [&](Call& c) { spoil(c.problem); });
  };
  using P = cuda::Problem;
  bad("batch is -1 and must be 0 to", [](P& p) { p.batch = -1; });
  bad("tokens is -5 and must be 0 to", [](P& p) { p.tokens = -5; });
  bad("tokens is 4611686018427387904", [](P& p) { p.tokens = std::int64_t{1} << 62; });
  bad("query_heads is 0 and must be 1 to 65535", [](P& p) { p.query_heads = 0; });
  bad("key_heads is 5 and must be 1 to 4", [](P& p) { p.key_heads = 5; });
  bad("query_heads is 4 and must be a multiple of key_heads, 3", [](P& p) { p.key_heads = 3; });
  bad("gate_heads is 3 and must be 0, key_heads (2) or query_heads (4)", [](P& p) { p.gate_heads = 3; });
  bad("e is 0 and must be 8 to 256", [](P& p) { p.e = 0; });
  bad("e is 264 and must be 8 to 256", [](P& p) { p.e = 264; });
  bad("e is 12 and must be a multiple of 8", [](P& p) { p.e = 12; });
  bad("packed by offsets or padded", [](P& p) {
    p.offsets = address<std::int64_t>(8);
    p.lengths = address<std::int32_t>(8);
  });
  bad("total_tokens is 257 and must be 0 to 256", [](P& p) {
    p.offsets = address<std::int64_t>(8);
    p.total_tokens = 257;
  });
  bad("total_tokens is -1 and must be 0 to 256", [](P& p) { p.offsets = address<std::int64_t>(8); });
  bad("total_tokens is 5, but offsets is a null pointer", [](P& p) { p.total_tokens = 5; });
  bad("offsets: its address is 0x4 and must be a multiple of 8", [](P& p) { p.offsets = address<std::int64_t>(4); });
  bad("lengths: its address is 0x2 and must be a multiple of 4", [](P& p) { p.lengths = address<std::int32_t>(2); });
  bad("scale is nan and must be finite", [](P& p) { p.scale = std::nanf(""); });
  bad("form is 7", [](P& p) { p.form = static_cast<cuda::Form>(7); });
  bad("the attention form has no state", [](P& p) { p.form = cuda::Form::attention; });
  bad("rates: its address is 0x9 and must be a multiple of 16", [](P& p) { p.rates = address<double>(9); });
  bad("pairing is 5, which is none", [](P& p) { p.pairing = static_cast<cuda::Pairing>(5); });
  bad("chunk is 100 and must be a multiple of 64", [](P& p) { p.chunk = 100; });
  bad("chunk is -64 and must be a multiple of 64", [](P& p) { p.chunk = -64; });
  bad("element is 7, which is none", [](P& p) { p.element = cuda::Element{7}; });
  bad("products is 3, which is none", [](P& p) { p.products = cuda::Products{3}; });
  bad("states is 2, which is none", [](P& p) { p.states = static_cast<cuda::Precision>(2); });
  refuses(Code::not_compiled, "no kernels of f32 for P 3 with d 48; there are: ", [](Call& c) {
    c.problem.power = 3;
    c.problem.d = 48;
    c.problem.element = cuda::Element::f32;
  });
  for (const auto& [power, d, floats] : cuda::library::instantiations) {
    if (floats) continue;
    const int own_power = power, own_d = d;
    char text[80];
    std::snprintf(text, sizeof text, "no kernels of f32 for P %d with d %d; there are: ", own_power, own_d);
    refuses(Code::not_compiled, text, [&](Call& c) {
      c.problem.power = own_power;
      c.problem.d = own_d;
      c.problem.element = cuda::Element::f32;
    });
  }
  refuses(Code::not_compiled, "no kernels of bf16 for P 2 with d 48; there are: P", [](Call& c) {
    c.problem.power = 2;
    c.problem.d = 48;
  });
  refuses(Code::not_compiled, "no kernels of bf16 for P 0 with d", [](Call& c) { c.problem.power = 0; });
  refuses(Code::too_large, "2147483647 sequences of 1073741824 tokens are more blocks", [](Call& c) {
    c.problem.batch = 0x7fffffff;
    c.problem.tokens = 1 << 30;
  });
  std::size_t bytes = 0;
  cuda::Problem large = Call().problem;
  large.batch = 0x7fffffff;
  large.query_heads = large.key_heads = large.gate_heads = 65535;
  large.e = 256;
  const cuda::Status status = cuda::state_bytes(large, bytes);
  require(status.code() == Code::too_large && std::strstr(status.text(), "the state has more than 2^62 bytes"),
          "a state of 2^63 bytes: %s", status.text());
}

void refusals_of_arrays() {
  const auto bad = [](const char* text, const std::function<void(Call&)>& spoil) {
    refuses(Code::bad_argument, text, spoil);
  };
  bad("queries: the element is fp16 and must be bf16", [](Call& c) { c.inputs.queries.element = cuda::Element::fp16; });
  bad("keys: a null pointer", [](Call& c) { c.inputs.keys.data = nullptr; });
  bad("values: its address is 0x3008 and must be a multiple of 16",
      [](Call& c) { c.inputs.values.data = address(0x3008); });
  bad("keys: the token stride is -8 and must be at least 0", [](Call& c) { c.inputs.keys.token = -8; });
  bad("values: the head stride is 68 entries and must be a multiple of 8", [](Call& c) { c.inputs.values.head = 68; });
  bad("rows: the token stride is 0 and must be at least 64", [](Call& c) { c.outputs.rows.token = 0; });
  bad("rows: their memory at 0x1000 is that of an input", [](Call& c) { c.outputs.rows.data = address(1 << 12); });
  bad("log gates: a null pointer", [](Call& c) { c.inputs.log_gates = {}; });
  bad("turns of the final state: it is there, but rates is a null pointer",
      [](Call& c) { c.outputs.final_state.turns = address<double>(80); });
  bad("rows: a null pointer", [](Call& c) { c.outputs.rows.data = nullptr; });
  bad("log gates: a null pointer", [](Call& c) { c.inputs.log_gates.data = nullptr; });
  bad("log gates: the element is bf16 and must be f32",
      [](Call& c) { c.inputs.log_gates.element = cuda::Element::bf16; });
  bad("log gates: its address is 0x4002 and must be a multiple of 4",
      [](Call& c) { c.inputs.log_gates.data = address(0x4002); });
  bad("log gates: they are there, but gate_heads is 0", [](Call& c) { c.problem.gate_heads = 0; });
  const auto beta = cuda::dense(address(7 << 12), cuda::Element::f32, 128, 2, 1);
  bad("beta: it is there, but rates is a null pointer", [&](Call& c) { c.inputs.beta = beta; });
  bad("beta: the element is bf16 and must be f32", [&](Call& c) {
    c.problem.rates = address<double>(16);
    c.inputs.beta = beta;
    c.inputs.beta.element = cuda::Element::bf16;
  });
  bad("turns of the final state: a null pointer", [](Call& c) { c.problem.rates = address<double>(16); });
  bad("condition: the element is bf16 and must be f32",
      [](Call& c) { c.outputs.condition.element = cuda::Element::bf16; });
  refuses(Code::too_large, "keys: the last entry is beyond 2^60",
          [](Call& c) { c.inputs.keys.token = std::int64_t{1} << 60; });
  bad("there is a final state, but carries_state is not set", [](Call& c) { c.problem.carries_state = false; });
  bad("there is an initial state, but carries_state is not set", [](Call& c) {
    c.problem.carries_state = false;
    c.inputs.initial_state = c.outputs.final_state;
  });
  bad("level of the final state: a null pointer", [](Call& c) { c.outputs.final_state.level = nullptr; });
  bad("sums of the final state: a null pointer", [](Call& c) { c.outputs.final_state.sums = nullptr; });
  bad("sums of the initial state: a null pointer", [](Call& c) { c.inputs.initial_state.turns = address<double>(16); });
  bad("mass of the initial state: its address is 0x44 and must be a multiple of 16", [](Call& c) {
    c.inputs.initial_state = c.outputs.final_state;
    c.inputs.initial_state.mass = address<float>(0x44);
  });
  refuses(Code::workspace_too_small, "the workspace has 1024 bytes and must have", [](Call& c) { c.bytes = 1024; });
  bad("the workspace is a null pointer", [](Call& c) { c.workspace = nullptr; });
  bad("the workspace begins at 0x80, which must be a multiple of 256", [](Call& c) { c.workspace = address(0x80); });
}

void refusals_of_decoding() {
  const auto check = [](const char* part_of_text, const auto& spoil) {
    Call call;
    call.problem.tokens = 2;
    cuda::State state = call.outputs.final_state;
    call.outputs.final_state = {};
    cuda::Tail tail{address(16), address(32), address<float>(48), 64, 60};
    std::size_t bytes = 1 << 30;
    spoil(call, state, tail, bytes);
    const cuda::Status status =
        cuda::decode(call.problem, state, tail, call.inputs, call.outputs, call.workspace, bytes, nullptr);
    require(!status.ok() && std::strstr(status.text(), part_of_text), "\"%s\" was expected, not: %s", part_of_text,
            status.text());
  };
  using State = cuda::State;
  using Tail = cuda::Tail;
  using Size = std::size_t;
  check("sums of the state: a null pointer", [](Call&, State& s, Tail&, Size&) { s.sums = nullptr; });
  check("the tail's capacity is 100 and must be 64 or 128", [](Call&, State&, Tail& t, Size&) { t.capacity = 100; });
  check("the tail's count is 65 and must be 0 to 64", [](Call&, State&, Tail& t, Size&) { t.count = 65; });
  check("the tail has room for 1 tokens, not for 2", [](Call&, State&, Tail& t, Size&) { t.count = 63; });
  check("keys of the tail: a null pointer", [](Call&, State&, Tail& t, Size&) { t.keys = nullptr; });
  check("log gates of the tail: a null pointer", [](Call&, State&, Tail& t, Size&) { t.log_gates = nullptr; });
  check("paths of the tail: it is there, but rates is a null pointer",
        [](Call&, State&, Tail& t, Size&) { t.paths = address<double>(96); });
  check("log gates of the tail: it is there, but gate_heads is 0", [](Call& c, State&, Tail&, Size&) {
    c.problem.gate_heads = 0;
    c.inputs.log_gates = {};
  });
  check("turns of the state: a null pointer",
        [](Call& c, State&, Tail&, Size&) { c.problem.rates = address<double>(16); });
  check("paths of the tail: a null pointer", [](Call& c, State& s, Tail&, Size&) {
    c.problem.rates = address<double>(16);
    s.turns = address<double>(80);
  });
  check("no offsets, no lengths", [](Call& c, State&, Tail&, Size&) { c.problem.lengths = address<std::int32_t>(8); });
  check("tokens of a decoding is 65 and must be 1 to 64", [](Call& c, State&, Tail&, Size&) { c.problem.tokens = 65; });
  check("decoding has a state of its own", [](Call& c, State& s, Tail&, Size&) { c.inputs.initial_state = s; });
  check("the workspace has 0 bytes", [](Call&, State&, Tail&, Size& bytes) { bytes = 0; });
}

/// Slots whose counts are on the device: of decoding, and of what comes beside it.
void refusals_of_slots() {
  struct SlotCall : Call {
    cuda::State state;
    cuda::Tail tail{address(16), address(32), address<float>(48), 64, 60};
    cuda::Slots slots{5, address<std::int32_t>(112), address<cuda::SlotFault>(128)};
    const std::int32_t* tokens = address<std::int32_t>(144);
    std::size_t space = 1 << 30;

    SlotCall() : state(std::exchange(outputs.final_state, {})) {
      problem.tokens = 2;
      tail.counts = address<std::int32_t>(160);
    }
    cuda::Status decode() {
      return cuda::decode(problem, state, tail, slots, inputs, outputs, workspace, space, nullptr);
    }
    cuda::Status fold() { return cuda::fold(problem, state, tail, slots, workspace, space, nullptr); }
    cuda::Status drop() { return cuda::drop(problem, tail, slots, tokens, nullptr); }
    cuda::Status copy() {
      return cuda::copy_slots(problem, state, {}, {7, slots.indices}, state, tail, slots, nullptr);
    }
  };
  using Function = cuda::Status (SlotCall::*)();
  const auto check = [](const char* part_of_text, std::initializer_list<Function> functions, const auto& spoil) {
    for (const Function function : functions) {
      SlotCall call;
      spoil(call);
      const cuda::Status status = (call.*function)();
      require(status.code() != cuda::Code::ok && std::strstr(status.text(), part_of_text),
              "\"%s\" was expected, not: %s", part_of_text, status.text());
    }
  };
  const auto of_calls = {&SlotCall::decode, &SlotCall::fold, &SlotCall::drop};
  check("indices of slots: they are there, but the tail's counts are a null pointer", of_calls,
        [](SlotCall& c) { c.tail.counts = nullptr; });
  check("faults of slots: they are there, but the tail's counts are a null pointer", of_calls,
        [](SlotCall& c) { c.tail.counts = nullptr, c.slots.indices = nullptr; });
  check("slots is 1 and must be 2 to", of_calls, [](SlotCall& c) { c.slots = {1}; });
  check("slots is -1 and must be 0 to", of_calls, [](SlotCall& c) { c.slots.count = -1; });
  check("indices of slots: its address is 0x71 and must be a multiple of 4", of_calls,
        [](SlotCall& c) { c.slots.indices = address<std::int32_t>(0x71); });
  check("the tail's counts: its address is 0xa2 and must be a multiple of 4", {&SlotCall::decode, &SlotCall::fold},
        [](SlotCall& c) { c.tail.counts = address<std::int32_t>(0xa2); });
  check("the workspace has 0 bytes", {&SlotCall::decode, &SlotCall::fold}, [](SlotCall& c) { c.space = 0; });
  check("batch of a decoding is 65536", of_calls, [](SlotCall& c) { c.problem.batch = 65536; });
  check("the tail's counts: a null pointer", {&SlotCall::drop},
        [](SlotCall& c) { c.tail.counts = nullptr, c.slots = {2}; });
  check("tokens: a null pointer", {&SlotCall::drop}, [](SlotCall& c) { c.tokens = nullptr; });
  check("the tail's capacity is 0 and must be 64 or 128", {&SlotCall::drop}, [](SlotCall& c) { c.tail.capacity = 0; });
  check("the tail copied to: its counts are a null pointer", {&SlotCall::copy},
        [](SlotCall& c) { c.tail.counts = nullptr; });
  check("slots copied: there are 7 and must be 8, or indices", {&SlotCall::copy},
        [](SlotCall& c) { c.problem.batch = 8, c.slots.indices = nullptr; });
  check("sums of the state copied: a null pointer", {&SlotCall::copy}, [](SlotCall& c) { c.state.sums = nullptr; });
  {
    SlotCall call;
    cuda::Tail from = call.tail, none;
    from.capacity = 128;
    const auto copy = [&](cuda::Tail& to) {
      return cuda::copy_slots(call.problem, call.state, from, call.slots, call.state, to, call.slots, nullptr);
    };
    require(std::strstr(copy(call.tail).text(), "has capacity 128 and must have 64"), "capacities that differ");
    require(std::strstr(copy(none).text(), "the tail copied to: it has no keys"), "a tail without a target");
  }

  const auto said = [](const std::vector<std::int32_t>& indices, std::int64_t slots) {
    return std::string(cuda::check_slots({slots}, indices.data(), static_cast<std::int64_t>(indices.size())).text());
  };
  const auto must_say = [&](const std::vector<std::int32_t>& indices, std::int64_t slots, const char* text) {
    require(said(indices, slots) == text, "\"%s\" was expected, not: %s", text, said(indices, slots).c_str());
  };
  must_say({3, -1, 0, -1, 4}, 5, "");
  must_say({3, 0, 5}, 5, "index 2 of slots is 5 and must be below 5, or negative");
  must_say({3, 0, 2, 0}, 5, "index 3 of slots is 0, which an earlier sequence has");
  must_say({70000, 4464, 65536, 65535, 0}, 70001, "");  // beyond 2^16
  must_say({70000, 4464, 70000}, 70001, "index 2 of slots is 70000, which an earlier sequence has");
  must_say({0}, 0, "index 0 of slots is 0 and must be below 0, or negative");
}

/// A call of `attend_vjp` that nothing is wrong with.
struct VjpCall : Call {
  cuda::RowGradients rows;
  cuda::Gradients gradients;

  VjpCall() {
    problem.form = cuda::Form::attention;
    problem.carries_state = false;
    problem.normalised = true;
    const auto element = problem.element;
    const auto floats = [](std::uintptr_t at, std::int64_t heads) {
      return cuda::dense(address(at << 12), cuda::Element::f32, 128, heads, 1);
    };
    rows = {cuda::dense(address(7 << 12), element, 128, 4, 64), outputs.rows, floats(8, 4)};
    gradients = {cuda::dense(address(9 << 12), element, 128, 4, problem.d),
                 cuda::dense(address(10 << 12), element, 128, 2, problem.d),
                 cuda::dense(address(11 << 12), element, 128, 2, 64), floats(12, 2)};
    if (!cuda::attention_vjp_workspace(problem, bytes).ok()) bytes = 0;
  }
  cuda::Status run() const { return cuda::attend_vjp(problem, inputs, rows, gradients, workspace, bytes, nullptr); }
};

void refusals_of_gradients() {
  const auto check = [](Code code, const char* part_of_text, const std::function<void(VjpCall&)>& spoil) {
    VjpCall call;
    spoil(call);
    const cuda::Status status = call.run();
    require(status.code() == code && std::strstr(status.text(), part_of_text), "\"%s\" was expected, not: %s",
            part_of_text, status.text());
  };
  const auto bad = [&](const char* text, const std::function<void(VjpCall&)>& spoil) {
    check(Code::bad_argument, text, spoil);
  };
  bad("gradients of rates: they are there, but rates is a null pointer",
      [](VjpCall& c) { c.gradients.rates = address<double>(16); });
  bad("gradients of beta: they are there, but rates is a null pointer",
      [](VjpCall& c) { c.gradients.beta = cuda::dense(address(13 << 12), cuda::Element::f32, 128, 2, 1); });
  bad("gradients of beta: the element is bf16 and must be f32", [](VjpCall& c) {
    c.problem.rates = address<double>(16);
    c.gradients.beta = cuda::dense(address(13 << 12), cuda::Element::bf16, 128, 2, 1);
  });
  bad("gradients of rates: its address is 0x9 and must be a multiple of 8", [](VjpCall& c) {
    c.problem.rates = address<double>(16);
    c.gradients.rates = address<double>(9);
  });
  for (const auto& [power, d, _] : cuda::library::instantiations) {
    const int own_power = power, own_d = d;
    if (power == 1)
      bad("gradient of the scale: of P 1 the scale must not be 0", [&](VjpCall& c) {
        c.problem.power = own_power, c.problem.d = own_d;
        c.problem.normalised = false, c.problem.scale = 0;
        c.gradients.scale = address<double>(16);
      });
  }
  check(Code::too_large, "more blocks than a grid has", [](VjpCall& c) {
    c.problem.batch = 0x7fffffff / 2;
    c.problem.tokens = 64 * 64;
  });
  bad("batch is -1", [](VjpCall& c) { c.problem.batch = -1; });
  bad("there is an initial state", [](VjpCall& c) { c.inputs.initial_state = c.outputs.final_state; });
  bad("there is a gradient of the final state", [](VjpCall& c) { c.rows.final_state = c.outputs.final_state; });
  bad("there is a gradient of the initial state, but carries_state is not set",
      [](VjpCall& c) { c.gradients.initial_state = c.outputs.final_state; });
  bad("mass of the gradient of the initial state: a null pointer", [](VjpCall& c) {
    c.problem.form = cuda::Form::chunked;
    c.problem.carries_state = true;
    c.gradients.initial_state = c.outputs.final_state;
    c.gradients.initial_state.mass = nullptr;
  });
  bad("keys: a null pointer", [](VjpCall& c) { c.inputs.keys.data = nullptr; });
  bad("gradients of rows: the element is f32 and must be bf16",
      [](VjpCall& c) { c.rows.d_rows.element = cuda::Element::f32; });
  bad("rows: a null pointer", [](VjpCall& c) { c.rows.rows.data = nullptr; });
  bad("factors: a null pointer", [](VjpCall& c) { c.rows.factors.data = nullptr; });
  bad("gradients of queries: a null pointer", [](VjpCall& c) { c.gradients.queries.data = nullptr; });
  bad("gradients of keys: the token stride is 0", [](VjpCall& c) { c.gradients.keys.token = 0; });
  bad("gradients of values: its address is 0x3008", [](VjpCall& c) { c.gradients.values.data = address(0x3008); });
  bad("gradients of log gates: the element is bf16",
      [](VjpCall& c) { c.gradients.log_gates.element = cuda::Element::bf16; });
  bad("gradients of log gates: they are there, but gate_heads is 0", [](VjpCall& c) {
    c.problem.gate_heads = 0;
    c.inputs.log_gates = {};
  });
  check(Code::workspace_too_small, "the workspace has 1024 bytes and must have", [](VjpCall& c) { c.bytes = 1024; });
  bad("the workspace is a null pointer", [](VjpCall& c) { c.workspace = nullptr; });
  const auto stale = [&](const char* text, const std::function<void(cuda::Forward&)>& spoil) {
    cuda::Forward forward;
    bad(text, [&](VjpCall& c) {
      forward = {c.problem, c.inputs, c.workspace};
      spoil(forward);
      c.rows.forward = &forward;
    });
  };
  stale("forward: an attend that was put on its stream has left nothing", [](cuda::Forward& x) { x = {}; });
  stale("forward: it was left in the workspace at 0x100, and this one is at 0x",
        [](cuda::Forward& x) { x.workspace = address(0x100); });
  stale("forward: it was left by another problem", [](cuda::Forward& x) { x.problem.tokens = 64; });
  stale("forward: it was left by another problem", [](cuda::Forward& x) { x.problem.scale = 2; });
  stale("forward: it was left by other inputs", [](cuda::Forward& x) { x.inputs.values.head = 8; });
  stale("forward: it was left by other inputs",
        [](cuda::Forward& x) { x.inputs.initial_state.mass = address<float>(16); });
  {
    const VjpCall call;
    cuda::Outputs outputs = call.outputs;
    outputs.final_state = {}, outputs.condition = {};
    cuda::Forward forward;
    outputs.forward = &forward;
    std::size_t bytes = 0;
    require(cuda::attention_workspace(call.problem, bytes).ok(), "a workspace");
    const cuda::Status status = cuda::attend(call.problem, call.inputs, outputs, call.workspace, bytes, nullptr);
    require(status.code() == Code::workspace_too_small && !forward.workspace, "a workspace too small to leave it: %s",
            status.text());
  }
  refuses(Code::bad_argument, "factors: they are there, but rows are not normalised", [](Call& c) {
    c.problem.normalised = false;
    c.outputs.factors = c.outputs.condition;
  });
}

}  // namespace

void test_refusals() {
  refusals_of_problems();
  refusals_of_arrays();
  refusals_of_decoding();
  refusals_of_slots();
  refusals_of_gradients();
}

}  // namespace sympow::test
