// Every bad argument is refused by a status and a sentence that names it, and nothing has been touched.
#include <dlfcn.h>

#include <cmath>
#include <functional>
#include <set>

#include <sympow/c/overlaps.hpp>
#include <sympow/c/structs.hpp>

#include "catch.hpp"
#include "tensors.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr double nan_ = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
constexpr sympow_status on_cuda = c::has_cuda ? SYMPOW_INVALID_ARGUMENT : SYMPOW_NOT_BUILT;
constexpr Given all{.gates = true, .theta = true, .beta = true};

// A call with all that it can have, of which a test breaks one thing.
struct Call {
  explicit Call(sympow_options options = turning_options()) : batch(2, 5, 4, 2, 2) {
    REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
    in = batch.inputs(all);
    to = batch.gradients(all);
    queries = *in.queries, keys = *in.keys, values = *in.values, gates = *in.log_gates, theta = *in.theta;
    beta = *in.beta, dq = *to.queries, dk = *to.keys, d_gates = *to.log_gates, d_scale = *to.scale;
    in.queries = &queries, in.keys = &keys, in.values = &values, in.log_gates = &gates, in.theta = &theta;
    in.beta = &beta, to.queries = &dq, to.keys = &dk, to.log_gates = &d_gates, to.scale = &d_scale;
    rows = *batch.Y.view(), d_rows = *batch.dY.view();
    shape.batch = 2, shape.heads = 2, shape.d = batch.d, shape.e = batch.e;
    REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &states)) == well);
    REQUIRE(said(sympow_state_gradients_create(states, nullptr, nullptr, nullptr, &gradients)) == well);
  }
  sympow_status attend() { return sympow_attend(attention, &in, states, &rows, nullptr, stream); }
  sympow_status take_back() {
    return sympow_attend_vjp(attention, &in, &d_rows, states, gradients, &to, nullptr, stream);
  }

  CBatch<float> batch;
  Attention attention;
  CStates states;
  CGradients gradients;
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  sympow_inputs in = SYMPOW_INPUTS_INIT;
  sympow_gradients to = SYMPOW_GRADIENTS_INIT;
  sympow_tensor queries, keys, values, gates, theta, beta, rows, d_rows, dq, dk, d_gates, d_scale;
  void* stream = nullptr;
};

void check_refused(sympow_status status, sympow_status expected, const std::string& words) {
  CHECK(status == expected);
  CHECK_THAT(sympow_error(), contains(words));
}

// Refused by both calls, which have touched no output and no state.
void refuses(const std::function<void(Call&)>& spoil, sympow_status expected, const std::string& words,
             bool of_vjp_alone = false) {
  Call call;
  spoil(call);
  if (!of_vjp_alone) check_refused(call.attend(), expected, words);
  check_refused(call.take_back(), expected, words);
  std::int64_t tokens = -1;
  REQUIRE(said(sympow_states_tokens(call.states, 0, 0, &tokens)) == well);
  CHECK(tokens == 0);
  for (const auto* x : {&call.batch.Y, &call.batch.dQ, &call.batch.dK, &call.batch.dV})
    for (const float entry : x->data) CHECK(entry == 7);
}

void refuses_options(const std::function<void(sympow_options&)>& spoil, sympow_status expected,
                     const std::string& words) {
  sympow_options options = turning_options();
  spoil(options);
  sympow_attention* const before = reinterpret_cast<sympow_attention*>(alignof(void*));
  sympow_attention* attention = before;
  check_refused(sympow_attention_create(&options, &attention), expected, words);
  CHECK(attention == before);
}

}  // namespace

TEST_CASE("a call with all that it can have passes", "[c]") {
  Call call;
  REQUIRE(said(call.take_back()) == well);
  REQUIRE(said(call.attend()) == well);
  REQUIRE(sympow_version() == SYMPOW_C_VERSION);
}

TEST_CASE("options that no attention has", "[c]") {
  using O = sympow_options;
  refuses_options([](O& o) { o.size = 0; }, SYMPOW_INVALID_ARGUMENT, "options->size is 0, must lie in");
  refuses_options([](O& o) { o.size = std::size_t(1) << 40; }, SYMPOW_INVALID_ARGUMENT, "options->size is");
  refuses_options([](O& o) { o.scores = 3; }, SYMPOW_INVALID_ARGUMENT, "options->scores is 3, must lie in 0 … 2");
  refuses_options([](O& o) { o.power = 0; }, SYMPOW_INVALID_ARGUMENT, "options->power is 0, must lie in 1 … 8");
  refuses_options([](O& o) { o.power = 9; }, SYMPOW_INVALID_ARGUMENT, "options->power is 9, must lie in 1 … 8");
  refuses_options([](O& o) { o.features = 9; }, SYMPOW_INVALID_ARGUMENT, "options->features is 9, must be 0 unless");
  refuses_options([](O& o) { o.scores = SYMPOW_SCORES_RANDOM; }, SYMPOW_INVALID_ARGUMENT,
                  "options->features is 0, must be at least 1");
  refuses_options([](O& o) { o.scores = SYMPOW_SCORES_RANDOM, o.features = 9, o.seed = -1; }, SYMPOW_INVALID_ARGUMENT,
                  "options->seed is -1, must be at least 0");
  refuses_options([](O& o) { o.window = -1; }, SYMPOW_INVALID_ARGUMENT, "options->window is -1, must be at least 0");
  refuses_options([](O& o) { o.normalisation = -1; }, SYMPOW_INVALID_ARGUMENT, "options->normalisation is -1");
  refuses_options([](O& o) { o.power = 3, o.normalisation = SYMPOW_NORMALISED; }, SYMPOW_INVALID_ARGUMENT,
                  "odd powers have scores of either sign");
  refuses_options([](O& o) { o.normalisation = SYMPOW_SIGNED_NORMALISED; }, SYMPOW_INVALID_ARGUMENT,
                  "no score is negative");
  refuses_options([](O& o) { o.form = 4; }, SYMPOW_INVALID_ARGUMENT, "options->form is 4");
  refuses_options([](O& o) { o.mask = 2; }, SYMPOW_INVALID_ARGUMENT, "options->mask is 2");
  refuses_options([](O& o) { o.pairing = 2; }, SYMPOW_INVALID_ARGUMENT, "options->pairing is 2");
  refuses_options([](O& o) { o.check_finite = 2; }, SYMPOW_INVALID_ARGUMENT, "options->check_finite is 2");
  refuses_options([](O& o) { o.threads = -1; }, SYMPOW_INVALID_ARGUMENT, "options->threads is -1, must be at least 0");
  refuses_options([](O& o) { o.chunk = -1; }, SYMPOW_INVALID_ARGUMENT, "options->chunk is -1");
  refuses_options([](O& o) { o.checkpoint = -1; }, SYMPOW_INVALID_ARGUMENT, "options->checkpoint is -1");
  refuses_options([](O& o) { o.tail = -2; }, SYMPOW_INVALID_ARGUMENT, "options->tail is -2, must be at least -1");
  refuses_options([](O& o) { o.rotary_dim = 3; }, SYMPOW_INVALID_ARGUMENT, "options->rotary_dim is 3, must be even");
  refuses_options([](O& o) { o.rotary_dim = -2; }, SYMPOW_INVALID_ARGUMENT, "options->rotary_dim is -2");
  refuses_options([](O& o) { o.scale = nan_; }, SYMPOW_NOT_FINITE, "options->scale is nan");
  refuses_options([](O& o) { o.scale = HUGE_VAL; }, SYMPOW_NOT_FINITE, "options->scale is inf");
  sympow_options options = turning_options();
  check_refused(sympow_attention_create(&options, nullptr), SYMPOW_INVALID_ARGUMENT, "attention is null");
  Attention attention;
  check_refused(sympow_attention_create(nullptr, &attention), SYMPOW_INVALID_ARGUMENT, "options is null");
}

TEST_CASE("tensors that no call can read", "[c]") {
  using C = Call&;
  const auto bad = SYMPOW_INVALID_ARGUMENT;
  refuses([](C c) { c.in.queries = nullptr; }, bad, "inputs->queries is null");
  refuses([](C c) { c.in.size = 3; }, bad, "inputs->size is 3");
  refuses([](C c) { c.queries.data = nullptr; }, bad, "inputs->queries: data is null");
  refuses([](C c) { c.queries.shape = nullptr; }, bad, "inputs->queries: shape is null");
  refuses([](C c) { c.queries.byte_offset = 2; }, bad, "inputs->queries: data are not aligned to 4 bytes");
  refuses([](C c) { c.queries.byte_offset = ~std::uint64_t(3); }, SYMPOW_TOO_LARGE, "byte_offset is");
  if (!c::has_cuda)
    refuses([](C c) { c.queries.device.type = SYMPOW_CUDA; }, SYMPOW_NOT_BUILT,
            "inputs->queries is on a CUDA device, and this library is of a CPU");
  refuses([](C c) { c.keys.device.type = SYMPOW_CUDA; }, on_cuda,
          c::has_cuda ? "inputs->keys is on CUDA device 0, must be on a CPU" : "inputs->keys is on a CUDA device");
  refuses([](C c) { c.queries.device.type = 17; }, bad, "inputs->queries: the device has the type 17");
  refuses([](C c) { c.queries.dtype.bits = 16; }, bad, "must be float32 or float64");
  refuses([](C c) { c.queries.dtype.lanes = 4; }, bad, "4 lanes");
  refuses([](C c) { c.queries.dtype.code = SYMPOW_INT; }, bad, "inputs->queries: the type has code 0");
  refuses([](C c) { c.queries.ndim = 3; }, SYMPOW_SHAPE_MISMATCH, "inputs->queries: ndim is 3, must be 4 of [B, T_q");
  refuses([](C c) { c.batch.Q.shape[1] = -1; }, SYMPOW_SHAPE_MISMATCH, "inputs->queries: shape[1] is -1");
  refuses([](C c) { c.batch.Q.shape[1] = huge; }, SYMPOW_TOO_LARGE, "inputs->queries: shape makes more bytes");
  const auto strided = [](std::vector<std::int64_t> strides) {
    return [strides](C c) {
      c.batch.Q.strides = strides;
      c.queries.strides = c.batch.Q.strides.data();
    };
  };
  refuses(strided({80, 16, -4, 1}), bad, "inputs->queries: strides[2] is -4, must not be negative");
  refuses(strided({80, 16, 4, 2}), bad, "inputs->queries: strides[3] is 2, must be 1");
  refuses(strided({80, 3, 4, 1}), bad, "inputs->queries: strides[1] is 3, must be at least 4");
  refuses(strided({huge, 16, 4, 1}), SYMPOW_TOO_LARGE, "inputs->queries: strides[0] is 9223372036854775807");
  refuses([](C c) { c.values.dtype.bits = 64; }, bad, "inputs->values is of float64, must be of float32");
  refuses([](C c) { c.gates.data = nullptr; }, bad, "inputs->log_gates: data is null");
  refuses([](C c) { c.in.theta = nullptr; }, bad, "inputs->beta is given, but no inputs->theta");
}

TEST_CASE("sizes that do not agree", "[c]") {
  using C = Call&;
  const auto bad = SYMPOW_SHAPE_MISMATCH;
  refuses([](C c) { c.batch.K.shape[0] = 1; }, bad, "inputs->keys: shape[0] is 1, must be 2");
  refuses([](C c) { c.batch.K.shape[1] = c.batch.V.shape[1] = 4; }, bad, "inputs->keys: shape[1] is 4, must be 5");
  refuses([](C c) { c.batch.K.shape[2] = c.batch.V.shape[2] = 3; }, bad, "must be a multiple of the 3 heads");
  refuses([](C c) { c.batch.Q.shape[2] = 0; }, bad, "inputs->queries: shape[2] is 0, must be at least the 2 heads");
  refuses([](C c) { c.batch.K.shape[3] = 3; }, bad, "inputs->keys: shape[3] is 3, must be 4");
  refuses([](C c) { c.batch.gates.shape[2] = 1; }, bad, "inputs->log_gates: shape[2] is 1, must be 2 (heads of");
  refuses([](C c) { c.batch.gates.shape[1] = 4; }, bad, "inputs->log_gates: shape[1] is 4, must be 5 (tokens)");
  refuses([](C c) { c.batch.theta.shape[0] = 1; }, bad, "inputs->theta: shape[0] is 1, must be 2");
  refuses([](C c) { c.batch.beta.shape[0] = 1; }, bad, "inputs->beta: shape[0] is 1, must be 2");
  refuses([](C c) { c.batch.K.shape[1] = 4; }, bad, "inputs->keys: shape[1] is 4, must be 5 (tokens of the queries");
  refuses([](C c) { c.batch.Y.shape[3] = c.batch.dY.shape[3] = 2; }, bad, "rows: shape[3] is 2, must be 3");
  refuses([](C c) { c.batch.dQ.shape[2] = 2; }, bad, "gradients->queries: shape[2] is 2, must be 4", true);
  refuses([](C c) { c.batch.d_gates.shape[2] = 4; }, bad, "gradients->log_gates: shape[2] is 4, must be 2", true);
  refuses([](C c) { c.batch.d_scale.shape[0] = 2; }, bad, "gradients->scale: shape[0] is 2, must be 1", true);

  Call odd;
  odd.batch.Q.shape[3] = odd.batch.K.shape[3] = 3;
  check_refused(odd.attend(), SYMPOW_INVALID_ARGUMENT, "must be even: theta turns pairs");
  Tensor<std::int64_t> lengths({2});
  lengths.data = {5, 6};
  Call call;
  call.in.lengths = lengths.view();
  check_refused(call.attend(), SYMPOW_SHAPE_MISMATCH, "inputs->lengths[1] is 6, must lie in 0 … T = 5");
  lengths.data = {5, -1};
  check_refused(call.attend(), SYMPOW_SHAPE_MISMATCH, "inputs->lengths[1] is -1");
  lengths.shape[0] = 1;
  check_refused(call.attend(), SYMPOW_SHAPE_MISMATCH, "inputs->lengths: shape[0] is 1, must be 2");
}

TEST_CASE("channel gates and Householder vectors that no call takes", "[c]") {
  using C = Call&;
  const auto bad = SYMPOW_INVALID_ARGUMENT;
  Tensor<float> W({2, 5, 2, 4});
  Tensor<double> strengths({2, 5, 2});
  const auto with = [&](const std::function<void(C)>& spoil) {
    return [&, spoil](C c) {
      c.in.theta = c.in.beta = c.to.theta = c.to.beta = nullptr;
      spoil(c);
    };
  };
  const auto gates = [&](C c) { c.in.channel_gates = W.view(); };
  const auto vectors = [&](C c) { c.in.householder = W.view(), c.in.strengths = strengths.view(); };
  refuses([&](C c) { gates(c); }, bad, "inputs->theta and inputs->channel_gates are given, must be one of them");
  refuses([&](C c) { vectors(c); }, bad, "inputs->theta and inputs->householder are given, must be one of them");
  refuses(with(vectors), bad, "Householder vectors have states for power 1 alone");
  refuses(with([&](C c) { c.in.strengths = strengths.view(); }), bad,
          "inputs->strengths is given, but no inputs->householder");
  refuses(with([&](C c) { gates(c), c.to.strengths = strengths.view(); }), bad,
          "gradients->strengths is given, but no inputs->strengths", true);
  refuses(with([&](C c) { gates(c), c.to.channel_gates = W.view(); }), bad, "gradients->channel_gates", true);
  W.data[3] = .5f;
  refuses(with(gates), bad, "the log gate of channel 3 at token 0 is 0.5");
  W.data[3] = std::numeric_limits<float>::quiet_NaN();
  refuses(with(gates), bad, "the log gate of channel 3 at token 0 is nan");
  refuses(with(vectors), SYMPOW_NOT_FINITE, "sequence 0, key head 0: householder: at token 0");
  Tensor<float> positive({2, 5, 2, 4});
  positive.data[3] = 1;
  refuses(with([&](C c) { vectors(c), c.in.channel_gates = positive.view(); }), bad, "the log gate of channel 3 at");
  W.data[3] = 0;
  W.shape[3] = 3;
  refuses(with(gates), SYMPOW_SHAPE_MISMATCH, "inputs->channel_gates: shape[3] is 3, must be 4 (numbers of a query)");
  W.shape[3] = 4, strengths.shape[2] = 1;
  refuses(with(vectors), SYMPOW_SHAPE_MISMATCH, "inputs->strengths: shape[2] is 1, must be 2");
}

TEST_CASE("numbers that no call takes", "[c]") {
  using C = Call&;
  refuses([](C c) { c.batch.gates.data[3] = .5; }, SYMPOW_INVALID_ARGUMENT, "log gate of token 1 is 0.5");
  refuses([](C c) { c.batch.gates.data[3] = nan_; }, SYMPOW_INVALID_ARGUMENT, "log gate of token 1 is nan");
  refuses([](C c) { c.batch.theta.data[1] = nan_; }, SYMPOW_NOT_FINITE, "theta at position 1 is nan");
  refuses([](C c) { c.batch.beta.data[0] = HUGE_VAL; }, SYMPOW_NOT_FINITE, "beta at position 0 is inf");
  sympow_options options = turning_options();
  options.check_finite = 1;
  Call call(options);
  call.batch.V.data[1] = std::numeric_limits<float>::infinity();
  check_refused(call.attend(), SYMPOW_NOT_FINITE, "V(1, 0) is inf, must be finite");
  check_refused(call.take_back(), SYMPOW_NOT_FINITE, "V(1, 0) is inf, must be finite");
}

TEST_CASE("outputs that share memory", "[c]") {
  using C = Call&;
  const auto bad = SYMPOW_INVALID_ARGUMENT;
  Call call;
  call.rows.data = call.batch.V.data.data();
  check_refused(call.attend(), bad, "rows and inputs->values share memory");
  Call last;
  const std::size_t keys = last.batch.K.data.size();
  last.batch.K.data.resize(keys + last.batch.Y.data.size());  // so that rows share memory with nothing else
  last.keys.data = last.batch.K.data.data();
  last.rows.data = &last.batch.K.data[keys - 1];
  check_refused(last.attend(), bad, "rows and inputs->keys share memory");
  refuses([](C c) { c.dk.data = c.batch.dQ.data.data(); }, bad, "gradients->keys and gradients->queries share memory",
          true);
  refuses([](C c) { c.dq.data = c.batch.Q.data.data(); }, bad, "gradients->queries and inputs->queries share memory",
          true);
  refuses(
      [](C c) {
        c.batch.dY.data.resize(c.batch.dQ.data.size());
        c.dq.data = c.d_rows.data = c.batch.dY.data.data();
      },
      bad, "gradients->queries and d_rows share memory", true);
  refuses([](C c) { c.d_scale.data = c.batch.theta.data.data(); }, bad, "gradients->scale and inputs->theta", true);
  std::vector<std::int64_t> strides = {60, 12, 0, 1};
  call.rows = *call.batch.Y.view();
  call.rows.strides = strides.data();
  check_refused(call.attend(), bad, "rows: strides[2] is 0, with which entries of an output share memory");
  strides = {60, 12, 2, 1};
  check_refused(call.attend(), bad, "rows: strides[2] is 2, with which");
  strides = {59, 12, 3, 1};
  check_refused(call.attend(), bad, "rows: strides[0] is 59, with which");
}

TEST_CASE("arrays are apart where they share no byte, and only there", "[c]") {
  // Against all of their entries, for arrays that begin anywhere in 40 floats.
  const auto array = [](Index begin, std::array<Index, 4> shape, std::array<Index, 4> strides) {
    return c::Array{
        "x", reinterpret_cast<std::byte*>(std::uintptr_t{4096}) + 4 * begin, c::Element::float32, 3, shape, strides};
  };
  const auto entries = [](const c::Array& x) {
    std::vector<const std::byte*> found;
    for (Index i = 0; i < x.shape[0]; ++i)
      for (Index j = 0; j < x.shape[1]; ++j)
        for (Index k = 0; k < x.shape[2]; ++k) found.push_back(x.at({i, j, k}));
    return found;
  };
  const auto share = [&](const c::Array& a, const c::Array& b) {
    for (const auto* x : entries(a))
      for (const auto* y : entries(b))
        if (x == y) return true;
    return false;
  };
  struct Layout {
    std::array<Index, 4> shape, strides;
  };
  const std::array layouts = {Layout{{2, 3, 2, 0}, {30, 10, 1, 0}}, Layout{{2, 3, 2, 0}, {30, 10, 3, 0}},
                              Layout{{2, 3, 4, 0}, {12, 4, 1, 0}},  Layout{{1, 3, 2, 0}, {6, 10, 1, 0}},
                              Layout{{2, 2, 1, 0}, {0, 5, 1, 0}},   Layout{{0, 2, 2, 0}, {4, 2, 1, 0}}};
  int told_apart = 0;
  for (const Layout& a : layouts)
    for (const Layout& b : layouts)
      for (Index begin = -20; begin <= 20; ++begin) {
        const c::Array x = array(0, a.shape, a.strides), y = array(begin, b.shape, b.strides);
        const bool apart = detail::are_apart(c::layout_of(x), c::layout_of(y));
        if (share(x, y)) REQUIRE_FALSE(apart);
        const bool tokens_alike = &a == &b && a.strides[1] == 10;
        if (!share(x, y) && tokens_alike && a.strides[2] == 1) REQUIRE(apart);
        told_apart += apart && std::abs(begin) < 10;
      }
  REQUIRE(told_apart > 0);
}

TEST_CASE("handles that are missing or of another kind", "[c]") {
  Call call;
  const auto bad = SYMPOW_INVALID_ARGUMENT;
  void* const stream = &call;
  const auto* const no_attention = reinterpret_cast<const sympow_attention*>(static_cast<sympow_states*>(call.states));
  auto* const no_states = reinterpret_cast<sympow_states*>(static_cast<sympow_attention*>(call.attention));
  auto* const no_gradients = reinterpret_cast<sympow_state_gradients*>(static_cast<sympow_states*>(call.states));
  auto* const no_workspace = reinterpret_cast<sympow_workspace*>(static_cast<sympow_states*>(call.states));
  check_refused(sympow_attend(nullptr, &call.in, nullptr, &call.rows, nullptr, nullptr), bad, "attention is null");
  check_refused(sympow_attend(no_attention, &call.in, nullptr, &call.rows, nullptr, nullptr), bad,
                "attention is sympow_states, must be a sympow_attention");
  check_refused(sympow_attend(call.attention, nullptr, nullptr, &call.rows, nullptr, nullptr), bad, "inputs is null");
  check_refused(sympow_attend(call.attention, &call.in, no_states, &call.rows, nullptr, nullptr), bad,
                "states is a sympow_attention, must be sympow_states");
  check_refused(sympow_attend(call.attention, &call.in, nullptr, nullptr, nullptr, nullptr), bad, "rows is null");
  sympow_inputs without_queries = call.in;
  without_queries.queries = nullptr;
  check_refused(sympow_attend(call.attention, &without_queries, call.states, &call.rows, nullptr, nullptr), bad,
                "inputs->queries is null");
  check_refused(sympow_attend(call.attention, &call.in, call.states, &call.rows, no_workspace, nullptr), bad,
                "workspace is sympow_states, must be a sympow_workspace");
  check_refused(sympow_attend(call.attention, &call.in, call.states, &call.rows, nullptr, stream), bad,
                "stream is not null");
  check_refused(sympow_decode(call.attention, &call.in, nullptr, &call.rows, nullptr, nullptr), bad, "states is null");
  check_refused(
      sympow_attend_vjp(call.attention, &call.in, &call.d_rows, call.states, no_gradients, &call.to, nullptr, nullptr),
      bad, "state_gradients is sympow_states, must be sympow_state_gradients");
  check_refused(
      sympow_attend_vjp(call.attention, &call.in, &call.d_rows, nullptr, call.gradients, &call.to, nullptr, nullptr),
      bad, "states is null");
  check_refused(sympow_attend_vjp(call.attention, &call.in, &call.d_rows, nullptr, nullptr, nullptr, nullptr, nullptr),
                bad, "gradients is null");
  sympow_states_destroy(no_states);  // ends nothing, and leaves the text
  check_refused(bad, bad, "gradients is null");
  REQUIRE(said(call.attend()) == well);
  for (const auto destroy :
       {+[] { sympow_attention_destroy(nullptr); }, +[] { sympow_states_destroy(nullptr); },
        +[] { sympow_workspace_destroy(nullptr); }, +[] { sympow_state_gradients_destroy(nullptr); }})
    destroy();
  char bytes[64] = {};
  check_refused(sympow_states_clear(reinterpret_cast<sympow_states*>(bytes + 1)), bad, "states is not aligned");
  alignas(16) char zeros[64] = {};
  check_refused(sympow_states_clear(reinterpret_cast<sympow_states*>(zeros)), bad, "no handle of this library");
}

TEST_CASE("states of other sizes, powers and places", "[c]") {
  Call call;
  const auto create = [&](const std::function<void(sympow_state_shape&)>& spoil, sympow_status expected,
                          const std::string& words, const sympow_states* after = nullptr) {
    sympow_state_shape shape = call.shape;
    spoil(shape);
    CStates states;
    check_refused(sympow_states_create(call.attention, &shape, after, &states), expected, words);
    CHECK(static_cast<sympow_states*>(states) == nullptr);
  };
  using S = sympow_state_shape&;
  create([](S s) { s.batch = -1; }, SYMPOW_SHAPE_MISMATCH, "shape->batch is -1");
  create([](S s) { s.heads = -1; }, SYMPOW_SHAPE_MISMATCH, "shape->heads is -1");
  create([](S s) { s.d = -1; }, SYMPOW_SHAPE_MISMATCH, "shape->d is -1");
  create([](S s) { s.e = -1; }, SYMPOW_SHAPE_MISMATCH, "shape->e is -1");
  create([](S s) { s.batch = s.heads = huge; }, SYMPOW_TOO_LARGE, "sequences of 9223372036854775807");
  create([](S s) { s.batch = huge / 2; }, SYMPOW_TOO_LARGE, "more entries than it can hold");
  create([](S s) { s.d = huge; }, SYMPOW_TOO_LARGE, "9223372036854775807");
  create([](S s) { s.e = huge; }, SYMPOW_TOO_LARGE, "9223372036854775807");
  create([](S s) { s.device.type = SYMPOW_CUDA; }, on_cuda,
         c::has_cuda ? "shape->memory is null" : "shape is on a CUDA device");
  create([](S s) { s.dtype.bits = 8; }, SYMPOW_INVALID_ARGUMENT, "8 bits");
  create([](S s) { s.reserved = 1; }, SYMPOW_INVALID_ARGUMENT, "shape->reserved is 1");
  create([](S s) { s.e = 4; }, SYMPOW_SHAPE_MISMATCH, "shape: e is 4, must be 3, that of after", call.states);
  sympow_options options = turning_options();
  options.scores = SYMPOW_SCORES_EXPONENTIAL;
  Attention softmax, cubes;
  REQUIRE(said(sympow_attention_create(&options, &softmax)) == well);
  CStates states;
  check_refused(sympow_states_create(softmax, &call.shape, nullptr, &states), SYMPOW_INVALID_ARGUMENT, "no states");
  options.scores = SYMPOW_SCORES_POWER, options.power = 3;
  REQUIRE(said(sympow_attention_create(&options, &cubes)) == well);
  check_refused(sympow_attend(cubes, &call.in, call.states, &call.rows, nullptr, nullptr), SYMPOW_INVALID_ARGUMENT,
                "states are of power 2 and float32, must be of power 3 and float32");

  const auto other = [&](std::int64_t batch, std::int64_t heads, std::int64_t d, std::int64_t e,
                         const std::string& words) {
    sympow_state_shape shape = call.shape;
    shape.batch = batch, shape.heads = heads, shape.d = d, shape.e = e;
    REQUIRE(said(sympow_states_create(call.attention, &shape, nullptr, &states)) == well);
    check_refused(sympow_attend(call.attention, &call.in, states, &call.rows, nullptr, nullptr), SYMPOW_SHAPE_MISMATCH,
                  words);
    CStates merged;
    check_refused(sympow_states_merge(call.states, states, &merged), SYMPOW_SHAPE_MISMATCH, "right: ");
    if (batch == call.shape.batch)
      check_refused(sympow_states_assign(call.states, 0, states, 0), SYMPOW_SHAPE_MISMATCH, "from: ");
  };
  for (const std::int64_t sequence : {std::int64_t{-1}, std::int64_t{2}, huge}) {
    const std::string words = "sequence is " + std::to_string(sequence) + ", must be at least 0 and below 2";
    check_refused(sympow_states_assign(call.states, sequence, call.states, 0), SYMPOW_INVALID_ARGUMENT, words);
    check_refused(sympow_states_assign(call.states, 0, call.states, sequence), SYMPOW_INVALID_ARGUMENT,
                  "from_" + words);
  }
  other(3, 2, 4, 3, "sequences of states is 3, must be 2");
  other(2, 3, 4, 3, "heads of states is 3, must be 2 (heads of the keys) or 4");
  other(2, 2, 6, 3, "d of states is 6, must be 4");
  other(2, 2, 4, 2, "e of states is 2, must be 3");

  // Gates of query heads, and states of key heads.
  CBatch<float> batch(2, 5, 4, 2, 4);
  const sympow_inputs in = batch.inputs(all);
  check_refused(sympow_attend(call.attention, &in, call.states, batch.Y.view(), nullptr, nullptr),
                SYMPOW_SHAPE_MISMATCH, "inputs->log_gates: shape[2] is 4, must be 2 (heads of the states");

  // What was built under a rotation goes on under one, and to the right of what it was started after.
  REQUIRE(said(call.attend()) == well);
  sympow_inputs plain = call.in;
  plain.theta = plain.beta = nullptr;
  check_refused(sympow_attend(call.attention, &plain, call.states, &call.rows, nullptr, nullptr),
                SYMPOW_INVALID_ARGUMENT, "was built under a rotation");
  CStates fresh, merged;
  REQUIRE(said(sympow_states_create(call.attention, &call.shape, nullptr, &fresh)) == well);
  check_refused(sympow_states_merge(call.states, fresh, &merged), SYMPOW_INVALID_ARGUMENT, "must be started at");

  std::int64_t tokens = 0;
  check_refused(sympow_states_tokens(call.states, 2, 0, &tokens), SYMPOW_INVALID_ARGUMENT, "sequence is 2, must be");
  check_refused(sympow_states_tokens(call.states, 0, -1, &tokens), SYMPOW_INVALID_ARGUMENT, "head is -1, must be");
  check_refused(sympow_states_tokens(call.states, 0, 0, nullptr), SYMPOW_INVALID_ARGUMENT, "tokens is null");
  check_refused(sympow_states_save(call.states, nullptr), SYMPOW_INVALID_ARGUMENT, "path is null");

  Tensor<float> sums({2, 2, 10, 3});
  Tensor<double> angles({2, 2, 2});
  check_refused(sympow_states_read(call.states, angles.view(), nullptr, nullptr), SYMPOW_SHAPE_MISMATCH, "sums: ndim");
  check_refused(sympow_states_read(call.states, sums.view(), sums.view(), nullptr), SYMPOW_SHAPE_MISMATCH,
                "normaliser: ndim");
  sums.strides = {0, 30, 3, 1};
  check_refused(sympow_states_read(call.states, sums.view(), nullptr, nullptr), SYMPOW_INVALID_ARGUMENT,
                "sums: strides[0] is 0, with which");
  sums.strides = {};
  Tensor<float> normaliser({2, 2, 10});
  check_refused(sympow_states_write(nullptr, sums.view(), normaliser.view(), nullptr), SYMPOW_INVALID_ARGUMENT,
                "states is null");
  check_refused(sympow_states_write(call.states, nullptr, normaliser.view(), nullptr), SYMPOW_INVALID_ARGUMENT,
                "sums is null");
  check_refused(sympow_states_write(call.states, sums.view(), nullptr, nullptr), SYMPOW_INVALID_ARGUMENT,
                "normaliser is null");
  check_refused(sympow_states_write(call.states, normaliser.view(), normaliser.view(), nullptr), SYMPOW_SHAPE_MISMATCH,
                "sums: ndim is 3");
  sums.data[4] = std::numeric_limits<float>::infinity();
  check_refused(sympow_states_write(call.states, sums.view(), normaliser.view(), nullptr), SYMPOW_NOT_FINITE,
                "sums: entry (0, 0, 1, 1) is inf, must be finite");
  std::int64_t seen = 0;
  REQUIRE(said(sympow_states_tokens(call.states, 1, 1, &seen)) == well);
  CHECK(seen > 0);  // as it was
  CGradients gradients;
  check_refused(sympow_state_gradients_create(call.states, sums.view(), nullptr, nullptr, &gradients),
                SYMPOW_NOT_FINITE, "sequence 0, head 0: StateGradient: entry 4 of dS is inf");
  angles.data[1] = nan_;
  check_refused(sympow_state_gradients_create(call.states, nullptr, nullptr, angles.view(), &gradients),
                SYMPOW_NOT_FINITE, "angles: entry (0, 0, 1) is nan");
}

TEST_CASE("the attention form has no states, and exponential scores nothing else", "[c]") {
  sympow_options options = turning_options();
  options.form = SYMPOW_FORM_ATTENTION;
  Call call(options);
  check_refused(call.attend(), SYMPOW_INVALID_ARGUMENT, "the attention form has no states");
  options.scores = SYMPOW_SCORES_EXPONENTIAL, options.form = SYMPOW_FORM_CHUNKED;
  Attention softmax;
  REQUIRE(said(sympow_attention_create(&options, &softmax)) == well);
  check_refused(sympow_attend(softmax, &call.in, nullptr, &call.rows, nullptr, nullptr), SYMPOW_INVALID_ARGUMENT,
                "has the attention form only");
}

TEST_CASE("what a workspace needs, and whose memory it is", "[c]") {
  Call call;
  std::size_t bytes = 1;
  for (const int kind :
       {SYMPOW_CALL_ATTEND, SYMPOW_CALL_ATTEND_VJP, SYMPOW_CALL_DECODE, SYMPOW_CALL_PREFILL, SYMPOW_CALL_PREFILL_VJP}) {
    REQUIRE(said(sympow_workspace_bytes(call.attention, &call.in, kind, &bytes)) == well);
    REQUIRE(bytes == 0);
  }
  check_refused(sympow_workspace_bytes(call.attention, &call.in, 5, &bytes), SYMPOW_INVALID_ARGUMENT, "call is 5");
  CWorkspace workspace;
  check_refused(sympow_workspace_create(&call.rows, &workspace), SYMPOW_INVALID_ARGUMENT, "memory is on a CPU");
  call.rows.device.type = SYMPOW_CUDA;
  check_refused(sympow_workspace_create(&call.rows, &workspace), c::has_cuda ? SYMPOW_SHAPE_MISMATCH : SYMPOW_NOT_BUILT,
                c::has_cuda ? "memory: ndim is 4, must be 1" : "memory is on a CUDA device");
}

TEST_CASE("structs of older and of newer programs", "[c]") {
  struct Older {
    std::size_t size;
    std::int64_t first;
  };
  struct Newer {
    std::size_t size;
    std::int64_t first, second;
  };
  const Newer defaults{sizeof(Newer), 1, 2};
  Newer given{sizeof(Older), 5, 6};  // of a program that knows the first field alone
  const Newer read = c::read_struct(&given, "given", defaults, sizeof(Older));
  REQUIRE(read.first == 5);
  REQUIRE(read.second == 2);
  given.size = sizeof(Newer);
  REQUIRE(c::read_struct(&given, "given", defaults, sizeof(Older)).second == 6);
  given.size = sizeof(Older) - 1;
  REQUIRE_THROWS_WITH(c::read_struct(&given, "given", defaults, sizeof(Older)), contains("given->size is 15"));

  struct {
    sympow_options options;
    std::int64_t unknown;
  } larger = {SYMPOW_OPTIONS_INIT, 0};
  larger.options.size = sizeof larger;
  Attention attention;
  REQUIRE(said(sympow_attention_create(&larger.options, &attention)) == well);
  larger.unknown = std::int64_t(1) << 40;
  check_refused(sympow_attention_create(&larger.options, &attention), SYMPOW_INVALID_ARGUMENT,
                "is not 0: a field of a later version");
}

TEST_CASE("a text loses its middle where characters begin, and ends with the next call", "[c]") {
  Call call;
  const auto text_of = [&](const std::string& path) {
    REQUIRE(sympow_states_load(call.states, path.c_str()) == SYMPOW_BAD_FILE);
    return std::string(sympow_error());
  };
  const std::string directory = "/nowhere/", gap = " ... ", reason = text_of(directory).substr(directory.size());
  REQUIRE(reason.size() > 10);
  std::string two_bytes;
  for (int n = 0; n < 800; ++n) two_bytes += "ä";
  std::set<std::size_t> sizes;
  for (std::size_t n = 0; n < 4; ++n) {
    const std::string whole = directory + std::string(n % 2, 'y') + two_bytes + std::string(n / 2, 'y') + reason;
    const std::string text = text_of(whole.substr(0, whole.size() - reason.size()));
    const std::size_t cut = text.find(gap);
    REQUIRE(cut != std::string::npos);
    const std::string begin = text.substr(0, cut), end = text.substr(cut + gap.size());
    CAPTURE(begin, end);
    REQUIRE((whole.starts_with(begin) && whole.ends_with(end) && end.ends_with(reason)));
    REQUIRE(((whole[begin.size()] & 0xC0) != 0x80 && (end[0] & 0xC0) != 0x80));
    sizes.insert(text.size());
  }
  REQUIRE(sizes == std::set<std::size_t>{1021, 1022, 1023});
  // What just fits is whole.
  const std::string fits = directory + std::string(1023 - directory.size() - reason.size(), 'x');
  REQUIRE(text_of(fits) == fits + reason);
  REQUIRE(text_of(fits + "x").find(gap) != std::string::npos);
  REQUIRE(said(call.attend()) == well);
}

TEST_CASE("the library is found and used by name", "[c]") {
  void* const library = dlopen(SYMPOW_C_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto version = reinterpret_cast<decltype(&sympow_version)>(dlsym(library, "sympow_version"));
  REQUIRE(version != nullptr);
  REQUIRE(version() == SYMPOW_C_VERSION);
  REQUIRE(dlclose(library) == 0);
}
