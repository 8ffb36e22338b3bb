// The library on the host, kernels being noted and not run: what it refuses, at which sizes, before it launches any.
#include <string>
#include <tuple>
#include <typeindex>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "device_test/refusals.cpp"
#include "library/attend.cu"
#include "library/attend_vjp.cu"
#include "library/checks.cpp"
#include "library/copy_slots.cu"
#include "library/decode.cu"
#include "library/fold.cu"
#include "library/plan.cu"
#include "library/state.cpp"
#include "library/state_arrays.cu"

namespace sympow::cuda::library {

struct Launched {
  std::type_index kernel;
  Blocks blocks;
};
static std::vector<Launched> launched;
static int shared_memory = 227 << 10;  // of a block

template <class Kernel>
Status launch(const Blocks& blocks, const typename Kernel::Args&, Stream) noexcept {
  launched.push_back({typeid(Kernel), blocks});
  return {};
}
template <class Kernel>
Status allow() noexcept {
  return Kernel::shared_bytes <= shared_memory ? Status() : refuse(Code::device_too_small, "%d", Kernel::shared_bytes);
}
template <class Kernel>
Status multiprocessors_of(int& count) noexcept {
  count = 0;  // no device: the general kernels
  return {};
}
Status copy(const double*, double*, std::int64_t, const char*, Stream) noexcept { return {}; }

}  // namespace sympow::cuda::library

using namespace sympow::test;
using namespace sympow::cuda;
using block::bf16;
using library::launched;

namespace {

/// The text of a call of `attend` with pointers that lead nowhere; `launched` has its kernels.
Status attend_nowhere(const Problem& problem, bool final_state = false) {
  Call call;
  call.problem = problem;
  const int d = problem.d, e = problem.e;
  const auto dense_at = [&](std::uintptr_t at, std::int64_t heads, int channels, Element element) {
    return dense(address(at << 12), element, problem.tokens, heads, channels);
  };
  call.inputs = {dense_at(1, problem.query_heads, d, problem.element),
                 dense_at(2, problem.key_heads, d, problem.element),
                 dense_at(3, problem.key_heads, e, problem.element),
                 {},
                 {}};
  call.outputs.rows = dense_at(5, problem.query_heads, e, problem.element);
  call.outputs.condition = {};
  if (!final_state) call.outputs.final_state = {};
  launched.clear();
  if (const Status status = attention_workspace(problem, call.bytes); !status.ok()) return status;
  return attend(problem, call.inputs, call.outputs, call.workspace, call.bytes, nullptr);
}

/// Packed sequences without tokens: so a batch is limited by grids, not by memory.
Problem empty_sequences(int power, int d, int e, std::int64_t tokens, Form form, int chunk) {
  Problem p;
  p.power = power, p.d = d, p.e = e;
  p.tokens = tokens;
  p.offsets = address<std::int64_t>(8);
  p.total_tokens = 0;
  p.form = form;
  p.chunk = chunk;
  return p;
}

}  // namespace

TEST_CASE("what is wrong with a call is said before a kernel is launched", "[cuda]") {
  launched.clear();
  test_refusals();
  REQUIRE(failures == 0);
  REQUIRE(launched.empty());
}

TEST_CASE("the largest grid is launched, the next is refused", "[cuda]") {
  struct Border {
    Problem problem;
    std::type_index kernel;
    std::int64_t blocks;  // of a sequence, in the largest grid
  };
  const auto q = Form::attention, c = Form::chunked;
  const Border borders[] = {
      // rows of queries × tiles of value channels
      {empty_sequences(2, 64, 64, 256, q, 0), typeid(Attention<bf16, 2, 64>), 1},
      {empty_sequences(2, 64, 72, 256, q, 0), typeid(Attention<bf16, 2, 64>), 2},
      {empty_sequences(2, 64, 256, 257, q, 0), typeid(Attention<bf16, 2, 64>), 2 * 4},
      {empty_sequences(1, 64, 8, 1 << 20, q, 0), typeid(Attention<bf16, 1, 64>), 1 << 13},
      {empty_sequences(2, 16, 256, 1 << 20, c, 1024), typeid(Attention<bf16, 2, 16>), 1024 * 4 * 4},
      // 512 sums and 256 normalisers of a state
      {empty_sequences(2, 64, 64, 65, c, 64), typeid(Scan<bf16>), 2304 * 64 / 512 + 18},
      {empty_sequences(2, 64, 72, 65, c, 64), typeid(Scan<bf16>), 2304 * 72 / 512 + 18},
      {empty_sequences(4, 32, 256, 128, c, 64), typeid(Scan<bf16>), 76160 / 2 + 595},
      // chunks × 8 units of 64 monomials × tiles
      {empty_sequences(2, 64, 72, 1 << 20, c, 64), typeid(Update<bf16, 2, 64>), (1 << 14) * 5 * 2},
      {empty_sequences(4, 32, 256, 1 << 20, c, 4096), typeid(Update<bf16, 4, 32>), 256 * 103 * 4},
      {empty_sequences(2, 16, 8, (1 << 20) + 1, c, 64), typeid(Update<bf16, 2, 16>), (1 << 14) + 1},
  };
  for (Border border : borders) {
    Problem& p = border.problem;
    CAPTURE(p.power, p.d, p.e, p.tokens, p.chunk, border.kernel.name());
    p.batch = 0x7fffffff / border.blocks;
    const Status fits = attend_nowhere(p);
    INFO(fits.text());
    REQUIRE(fits.ok());
    REQUIRE(launched.size() == (p.form == q ? 2 : 5));
    std::int64_t largest = 0;
    for (const auto& launch : launched) {
      REQUIRE(launch.blocks.fit());
      if (launch.kernel == border.kernel) largest = launch.blocks.x;
    }
    REQUIRE(largest == p.batch * border.blocks);
    ++p.batch;
    const Status refused = attend_nowhere(p);
    REQUIRE(refused.code() == (border.blocks == 1 ? Code::bad_argument : Code::too_large));
    REQUIRE(launched.empty());
  }
}

TEST_CASE("grids of states count only where there are states", "[cuda]") {
  Problem p = empty_sequences(2, 64, 64, 64, Form::chunked, 64);  // one chunk
  p.batch = 0x7fffffff / (288 + 18) + 1;
  REQUIRE(attend_nowhere(p).ok());
  REQUIRE(launched.size() == 2);
  p.carries_state = true;
  REQUIRE(attend_nowhere(p).code() == Code::too_large);
  --p.batch;
  REQUIRE(attend_nowhere(p).ok());
  REQUIRE(launched.size() == 2);
  REQUIRE(attend_nowhere(p, true).ok());
  REQUIRE(launched.size() == 5);
}

TEST_CASE("chunks and slots are counted in 31 bits", "[cuda]") {
  Problem p = empty_sequences(2, 16, 8, 1 << 30, Form::chunked, 64);
  p.batch = 128;  // 2^24 chunks each
  REQUIRE(attend_nowhere(p).code() == Code::too_large);
  p.batch = 127;
  REQUIRE(attend_nowhere(p).ok());
  p.total_tokens = 127 * p.tokens;
  REQUIRE(attend_nowhere(p).ok());
  std::size_t bytes = 0;
  p = empty_sequences(2, 16, 8, 64, Form::chunked, 64);
  p.batch = 0x7fffffff;
  p.total_tokens = 63;
  REQUIRE(attention_workspace(p, bytes).ok());
  p.total_tokens = 64;
  REQUIRE(attention_workspace(p, bytes).code() == Code::too_large);
}

namespace {

/// Pieces of a memory that begins at `begin`: aligned, in order, each as large as it must be, and no byte more at the
/// end than alignment asks for.
struct PiecesInOrder {
  std::uintptr_t begin, end = begin;
  bool right = true;

  void next(const void* piece, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(piece);
    right = right && at % 256 == 0 && at >= end && at < end + 256;
    end = at + bytes;
  }
  [[nodiscard]] bool end_at(std::size_t bytes) const {
    return right && bytes >= end - begin && bytes < end - begin + 256;
  }
};

}  // namespace

TEST_CASE("the pieces of a workspace, a state and a tail lie one after the other", "[cuda]") {
  for (const auto& [form, states, element] : {std::tuple(Form::chunked, Precision::rounded, Element::bf16),
                                              {Form::chunked, Precision::split, Element::bf16},
                                              {Form::chunked, Precision::split, Element::f32},
                                              {Form::attention, Precision::split, Element::fp16}}) {
    const bool rotary = form == Form::chunked, is_split = states == Precision::split && element != Element::f32;
    const std::size_t size = element == Element::f32 ? 4 : 2;
    Problem p;
    p.states = states, p.element = element;
    if (rotary) p.rates = address<double>(16);
    p.pairing = Pairing::interleaved;
    p.power = 2, p.d = 16, p.e = 24;
    p.batch = 3, p.tokens = 200;
    p.query_heads = p.gate_heads = 4, p.key_heads = 2;
    p.form = form;
    p.chunk = 64;
    library::Plan plan;
    REQUIRE(library::plan_attention(p, plan).ok());
    REQUIRE(plan.D == 136);
    REQUIRE(plan.chunk == (form == Form::chunked ? 64 : 256));
    REQUIRE(plan.chunks == (form == Form::chunked ? 4 : 1));
    REQUIRE(plan.slots == (form == Form::chunked ? 3 + 9 : 3 + 2));
    PiecesInOrder all{1 << 20};
    library::Pieces pieces(address(all.begin));
    const library::AttentionMemory m(p, plan, pieces);
    const auto slots = static_cast<std::size_t>(4 * plan.slots), tokens = slots * static_cast<std::size_t>(plan.chunk);
    for (const double* x : {m.sum, m.key, m.level}) all.next(x, 8 * tokens);
    all.next(m.inverse, 4 * tokens), all.next(m.to_end, 4 * tokens), all.next(m.reset, 4 * tokens);
    all.next(m.total, 8 * slots), all.next(m.end, 8 * slots), all.next(m.own_mass, 4 * slots);
    all.next(m.enter, 8 * slots), all.next(m.mass, 4 * slots), all.next(m.keep, 4 * slots);
    all.next(m.add, 4 * slots), all.next(m.shift, 4 * slots);
    const std::size_t rows = form == Form::chunked ? slots * 136 : 0;
    all.next(m.own_sums, 4 * rows * 24), all.next(m.own_normaliser, 4 * rows);
    const std::size_t padded = form == Form::chunked ? slots * 192 : 0;
    all.next(m.prefix_sums, size * padded * 24), all.next(m.prefix_normaliser, size * padded * 4);
    if (is_split) all.next(m.prefix_rest, size * padded * 24);
    REQUIRE((m.prefix_rest != nullptr) == is_split);
    const std::size_t keys = rotary ? 3 * 200 * 2 : 0;
    all.next(m.paths, 8 * keys), all.next(m.begin, rotary ? 3 * 2 * 8 * 8 : 0), all.next(m.turned, size * keys * 16);
    std::size_t bytes = 0;
    REQUIRE(attention_workspace(p, bytes).ok());
    REQUIRE(all.end_at(bytes));

    PiecesInOrder of_state{1 << 20};
    State state;
    REQUIRE(state_bytes(p, bytes).ok());
    REQUIRE(state_in(p, address(of_state.begin), bytes, state).ok());
    of_state.next(state.sums, 3 * 4 * 136 * 24 * 4), of_state.next(state.normaliser, 3 * 4 * 136 * 4);
    of_state.next(state.level, 3 * 4 * 8), of_state.next(state.mass, 3 * 4 * 4);
    if (rotary) of_state.next(state.turns, 3 * 2 * 8 * 8);
    REQUIRE((state.turns != nullptr) == rotary);
    REQUIRE(of_state.end_at(bytes));
    REQUIRE(state_in(p, address(of_state.begin), bytes - 1, state).code() == Code::workspace_too_small);

    PiecesInOrder of_tail{1 << 20};
    Tail tail;
    REQUIRE(tail_bytes(p, 128, bytes).ok());
    REQUIRE(tail_in(p, 128, address(of_tail.begin), bytes, tail).ok());
    of_tail.next(tail.keys, 3 * 2 * 128 * 16 * size), of_tail.next(tail.values, 3 * 2 * 128 * 24 * size);
    of_tail.next(tail.log_gates, 3 * 4 * 128 * 4);
    if (rotary) of_tail.next(tail.paths, 3 * 2 * 128 * 8);
    REQUIRE((tail.paths != nullptr) == rotary);
    REQUIRE(of_tail.end_at(bytes));
    REQUIRE((tail.capacity == 128 && tail.count == 0));
  }
}

TEST_CASE("a form is what a problem asks for, a chunk no longer than a sequence", "[cuda]") {
  Problem p;
  p.power = 2, p.d = 64;
  p.query_heads = p.key_heads = 8;
  const auto form_of = [&](std::int64_t tokens, Form form, int chunk, bool carries_state) {
    p.tokens = tokens, p.form = form, p.chunk = chunk, p.carries_state = carries_state;
    Form is{};
    int its_chunk = 0;
    REQUIRE(attention_form(p, is, its_chunk).ok());
    return std::pair(is, its_chunk);
  };
  using Chosen = std::pair<Form, int>;
  REQUIRE(form_of(1000, Form::chunked, 128, false) == Chosen(Form::chunked, 128));
  REQUIRE(form_of(1000, Form::chunked, 4096, false) == Chosen(Form::chunked, 1024));
  REQUIRE(form_of(1000, Form::attention, 128, false) == Chosen(Form::attention, 1024));
  REQUIRE(form_of(0, Form::attention, 0, false) == Chosen(Form::attention, 64));
  REQUIRE(form_of(64, Form::chunked, 64, true) == Chosen(Form::chunked, 64));
  REQUIRE(form_of(100, Form::automatic, 0, false).first == Form::attention);
  REQUIRE(form_of(100, Form::automatic, 0, true).first == Form::chunked);
  REQUIRE(form_of(1 << 20, Form::automatic, 0, false).first == Form::chunked);
}

TEST_CASE("decoding launches a reader of states for one query or eight, then the rows", "[cuda]") {
  Call call;
  call.problem.tokens = 1;
  call.problem.carries_state = false;
  State state = call.outputs.final_state;
  call.outputs.final_state = {};
  const auto decode_after = [&](int count, std::int64_t query_heads) {
    call.problem.query_heads = query_heads;
    Tail tail{address(16), address(32), address<float>(48), 64, count};
    std::size_t bytes = 0;
    REQUIRE(decode_workspace(call.problem, bytes).ok());
    launched.clear();
    const Status status = decode(call.problem, state, tail, call.inputs, call.outputs, call.workspace, bytes, nullptr);
    INFO(status.text());
    REQUIRE(status.ok());
    REQUIRE(tail.count == count + call.problem.tokens);
    REQUIRE(launched.size() == 2);
    REQUIRE(launched[1].kernel == typeid(FinishRows<bf16, 64>));
    REQUIRE(launched[1].blocks.x * launched[1].blocks.y * launched[1].blocks.z ==
            2 * query_heads * call.problem.tokens);
    return launched[0].kernel == typeid(ReadState<bf16, 1, 64, 1>);
  };
  REQUIRE(decode_after(0, 2));
  REQUIRE(!decode_after(63, 4));
  call.problem.tokens = 2;
  REQUIRE(!decode_after(62, 2));
}

TEST_CASE("slots are reserved first, and folded only if the bound of their counts asks for it", "[cuda]") {
  Call call;
  call.problem.tokens = 2;
  State state = call.outputs.final_state;
  call.outputs.final_state = {};
  const Slots slots{2000, address<std::int32_t>(112), nullptr};
  Tail tail{address(16), address(32), address<float>(48), 64, 0, nullptr, address<std::int32_t>(160)};
  const auto launches_after = [&](int count) {
    tail.count = count;
    std::size_t bytes = 0;
    REQUIRE(decode_workspace(call.problem, tail, slots, bytes).ok());
    launched.clear();
    const Status status =
        decode(call.problem, state, tail, slots, call.inputs, call.outputs, call.workspace, bytes, nullptr);
    INFO(status.text());
    REQUIRE(status.ok());
    REQUIRE(launched[0].kernel == typeid(ReserveTails));
    REQUIRE(launched.back().kernel == typeid(FinishRows<bf16, 64>));
    return launched.size();
  };
  REQUIRE(launches_after(0) == 3);
  REQUIRE(tail.count == 2);
  REQUIRE(launches_after(62) == 3);
  REQUIRE(tail.count == 64);
  REQUIRE(launches_after(63) == 7);
  REQUIRE(tail.count == 64);
  REQUIRE(launched[4].kernel == typeid(Scan<bf16>));
  // Parts of rows depend on the number of slots, not on that of sequences.
  const auto parts_of = [&](std::int64_t batch) {
    call.problem.batch = batch;
    launches_after(0);
    return launched[1].blocks.x;
  };
  const std::int64_t batch = call.problem.batch;
  REQUIRE(parts_of(1) == parts_of(600));
  call.problem.batch = batch;
  std::size_t bytes = 0;
  REQUIRE(fold_workspace(call.problem, 64, bytes).ok());
  launched.clear();
  REQUIRE(fold(call.problem, state, tail, slots, call.workspace, bytes, nullptr).ok());
  REQUIRE(launched.size() == 5);
  REQUIRE(tail.count > 0);  // of other slots
}

TEST_CASE("with rotary paths come first", "[cuda]") {
  Call call;
  call.problem.rates = address<double>(16);
  call.problem.pairing = Pairing::interleaved;
  State& state = call.outputs.final_state;
  state.turns = address<double>(80);
  REQUIRE(attention_workspace(call.problem, call.bytes).ok());
  launched.clear();
  REQUIRE(attend(call.problem, call.inputs, call.outputs, call.workspace, call.bytes, nullptr).ok());
  REQUIRE(launched.size() == 6);
  REQUIRE(launched[0].kernel == typeid(Paths));
  REQUIRE((launched[0].blocks.x == 2 && launched[0].blocks.y == 2 && launched[0].blocks.z == 1));
  call.problem.tokens = 2;
  const State read = std::exchange(state, {});
  Tail tail{address(16), address(32), address<float>(48), 64, 60, address<double>(64)};
  launched.clear();
  REQUIRE(decode(call.problem, read, tail, call.inputs, call.outputs, call.workspace, 1 << 30, nullptr).ok());
  REQUIRE(launched.size() == 3);
  REQUIRE(launched[0].kernel == typeid(Paths));
}

TEST_CASE("gradients are launched one after the other, those of gates where they are wanted", "[cuda]") {
  VjpCall call;
  launched.clear();
  INFO(call.run().text());
  REQUIRE(launched.size() == 7);
  REQUIRE(launched[3].kernel == typeid(Peaks));
  REQUIRE(launched[6].kernel == typeid(Flows));
  REQUIRE((launched[6].blocks.x == 2 * 2 && launched[6].blocks.y == 2));
  call.gradients.log_gates = {};
  launched.clear();
  REQUIRE(call.run().ok());
  REQUIRE(launched.size() == 6);
}

TEST_CASE("gradients of what attend has left make no weights and states again", "[cuda]") {
  VjpCall call;
  Problem& p = call.problem;
  p.form = Form::chunked;
  p.chunk = 64;
  p.rates = address<double>(16);
  p.pairing = Pairing::interleaved;
  const auto count = [](std::type_index kernel) {
    return std::count_if(launched.begin(), launched.end(), [&](const auto& one) { return one.kernel == kernel; });
  };
  for (const bool carries : {false, true}) {  // a state for gradients alone: of one chunk attend would make none
    p.carries_state = carries;
    if (carries) p.tokens = 64;
    REQUIRE(attention_vjp_workspace(p, call.bytes).ok());
    Forward forward;
    Outputs outputs = call.outputs;
    outputs.final_state = {}, outputs.forward = &forward;
    launched.clear();
    REQUIRE(attend(p, call.inputs, outputs, call.workspace, call.bytes, nullptr).ok());
    REQUIRE((forward.workspace == call.workspace && forward.problem == p && forward.inputs == call.inputs));
    REQUIRE((count(typeid(Paths)) == 1 && count(typeid(Scan<bf16>)) == 1));
    for (const Forward* left : {static_cast<const Forward*>(nullptr), static_cast<const Forward*>(&forward)}) {
      call.rows.forward = left;
      launched.clear();
      REQUIRE(call.run().ok());
      const std::ptrdiff_t again = left == nullptr;  // the other Levels and Scan are of adjoints
      REQUIRE((count(typeid(Paths)) == again && count(typeid(Weights<bf16>)) == again));
      REQUIRE((count(typeid(Levels)) == again + 1 && count(typeid(Scan<bf16>)) == again + 1));
    }
  }
}

TEST_CASE("gradients have a workspace of their own behind that of the rows", "[cuda]") {
  Problem p;
  p.power = 2, p.d = 16, p.e = 24;
  p.batch = 3, p.tokens = 200;
  p.query_heads = 4, p.key_heads = p.gate_heads = 2;
  p.form = Form::attention;
  library::Plan plan;
  REQUIRE(library::plan_attention(p, plan).ok());
  std::size_t bytes = 0;
  REQUIRE(attention_workspace(p, bytes).ok());
  PiecesInOrder all{1 << 20};
  library::Pieces pieces(address(all.begin));
  const library::VjpMemory m(p, plan, pieces);
  all.next(m.forward.sum, bytes);
  const std::size_t tokens = 3 * 200, slots = 4 * 5, rows = slots * 256;
  all.next(m.query_units, 2 * tokens * 4 * 16), all.next(m.row_units, 2 * tokens * 4 * 24);
  all.next(m.key_units, 2 * tokens * 2 * 16);
  all.next(m.exponent, 8 * rows), all.next(m.peak, 8 * rows);
  all.next(m.factor, 4 * rows), all.next(m.offset, 4 * rows), all.next(m.inverse, 4 * rows);
  all.next(m.unit, 4 * slots), all.next(m.values_exponent, 4 * 2 * 5 * 4);
  for (const double* x : {m.row, m.key, m.inside}) all.next(x, 8 * rows);
  all.next(m.through, 8 * slots * 4 * 4);
  all.next(m.scale_products, 8 * slots * 4);
  REQUIRE(attention_vjp_workspace(p, bytes).ok());
  REQUIRE(all.end_at(bytes));
}

TEST_CASE("gradients of the chunked form keep adjoints behind the rest", "[cuda]") {
  for (const auto& [element, states_are] : {std::pair(Element::bf16, Precision::rounded),
                                            {Element::fp16, Precision::split},
                                            {Element::f32, Precision::split}}) {
    const std::size_t size = element == Element::f32 ? 4 : 2;
    const bool is_split = element == Element::fp16;
    Problem p;
    p.element = element, p.states = states_are;
    p.power = 2, p.d = 16, p.e = 24;
    p.batch = 3, p.tokens = 200;
    p.query_heads = 4, p.key_heads = p.gate_heads = 2;
    p.form = Form::chunked;
    p.chunk = 128;
    library::Plan plan;
    REQUIRE(library::plan_attention(p, plan).ok());
    PiecesInOrder all{1 << 20};
    library::Pieces pieces(address(all.begin));
    const library::VjpMemory m(p, plan, pieces);
    const auto offset = [&](const void* x) { return reinterpret_cast<std::uintptr_t>(x) - all.begin; };
    const std::size_t slots = 600 / 128 + 3, states = 2 * slots, rows = 4 * slots * 128, padded = states * 192;
    std::size_t bytes = 0;
    all.next(m.forward.sum, offset(m.row_mass));
    all.next(m.row_mass, 4 * rows), all.next(m.weights, 4 * rows);
    all.next(m.ends, 4 * states), all.next(m.exponents, 4 * states);
    all.next(m.begin, 8 * states), all.next(m.own_mass, 4 * states);
    all.next(m.enter, 8 * states);
    for (const float* x : {m.mass, m.keep, m.add}) all.next(x, 4 * states);
    all.next(m.shift, 4 * states);
    all.next(m.adjoint_sums, size * padded * 24);
    if (is_split) all.next(m.adjoint_rest, size * padded * 24);
    REQUIRE((m.adjoint_rest != nullptr) == is_split);
    all.next(m.adjoint_normaliser, 4 * padded);
    all.next(m.later, 8 * states * 128), all.next(m.passing, 8 * states);
    all.next(m.scale_products, 8 * 4 * slots * 2), all.next(m.whole, 4 * padded);
    REQUIRE(attention_vjp_workspace(p, bytes).ok());
    REQUIRE(all.end_at(bytes));
  }
}

TEST_CASE("sizes beyond 64 bits stay too large", "[cuda]") {
  Problem p;
  p.power = 2, p.d = 64, p.e = 256;
  p.batch = 1 << 30;
  p.query_heads = p.key_heads = 1 << 13;
  std::size_t bytes = 0;  // sums have (2^64 + 2^58) bytes
  REQUIRE(state_bytes(p, bytes).code() == Code::too_large);
}

// 99 KB a block: compute capability 8.6, 8.9, 12.0.
TEST_CASE("kernels that need more than 99 KB are refused by a smaller device", "[cuda]") {
  library::shared_memory = 99 << 10;
  std::string text;
  for (const auto& [power, d, floats] : library::instantiations)
    for (const Form form : {Form::attention, Form::chunked}) {
      Problem p;
      p.power = power, p.d = d;
      p.element = floats ? Element::f32 : Element::bf16;
      p.tokens = 100;
      p.form = form;
      p.chunk = 64;
      const Status status = attend_nowhere(p);
      REQUIRE((status.ok() || status.code() == Code::device_too_small));
      REQUIRE(launched.empty() == !status.ok());
      if (!status.ok())
        text += std::to_string(power) + ":" + std::to_string(d) + (form == Form::attention ? "q " : " ");
    }
  library::shared_memory = 227 << 10;
  REQUIRE(text == "1:128q 1:128 2:128q 2:128 3:32 ");
}

TEST_CASE("gradients of floats need no more shared memory than a smaller device has", "[cuda]") {
  REQUIRE(QueryGradients<float, 2, 64, true>::shared_bytes <= 99 << 10);
  REQUIRE(KeyGradients<float, 2, 64, true>::shared_bytes <= 99 << 10);
}

// Threads of a multiprocessor: 1536 of compute capability 8.6, 8.9, 12.0.
TEST_CASE("blocks that a multiprocessor is asked to hold have threads for all of them", "[cuda]") {
  const auto fit = []<class... Kernel>() {
    const auto require_one = [](int threads, const char* name) {
      CAPTURE(name);
      REQUIRE(threads <= 1536);
    };
    (require_one(Kernel::threads * Kernel::blocks_per_multiprocessor, typeid(Kernel).name()), ...);
  };
  fit.operator()<Weights<bf16>, Levels, Paths, Scan<bf16>, Flows, Peaks, AdjointWeights, Passing<bf16>, KeyUnits<bf16>,
                 RowUnits<bf16>, QueryGradients<bf16, 2, 64>, KeyGradients<bf16, 2, 64>, Update<bf16, 2, 64>,
                 Attention<bf16, 1, 64>, Attention<bf16, 2, 64>, ReadState<bf16, 2, 64, 1>, ReadState<bf16, 2, 64, 8>,
                 FinishRows<bf16, 64>, Gauges, OfArrays, ToArrays>();
}
