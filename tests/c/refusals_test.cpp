// What a forward pass refuses its gradients refuse with the same status, and what it takes they take: random calls over
// all options, in which some thing or other is wrong.
#include <map>

#include "catch.hpp"
#include "tensors.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr double nan_ = std::numeric_limits<double>::quiet_NaN();

// Which case of a random call is meant, in proportion to the weights.
Index choose(Random& random, std::initializer_list<double> weights) {
  double total = 0;
  for (const double w : weights) total += w;
  double x = random.uniform() * total;
  Index n = 0;
  for (const double w : weights) {
    if (x < w) return n;
    x -= w;
    ++n;
  }
  return n - 1;
}
template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.integer(0, static_cast<Index>(values.size()) - 1)];
}

sympow_options random_options(Random& random) {
  sympow_options options = SYMPOW_OPTIONS_INIT;
  options.scores = static_cast<std::int32_t>(choose(random, {4, 1, 1}));
  options.power = static_cast<std::int32_t>(choose(random, {4, 1}) == 0 ? random.integer(1, 4) : random.integer(5, 8));
  options.features = choose(random, {9, 1}) == (options.scores == SYMPOW_SCORES_RANDOM ? 0 : 1) ? 7 : 0;
  options.normalisation = static_cast<std::int32_t>(random.integer(0, 3));
  options.form = static_cast<std::int32_t>(random.integer(0, 3));
  options.mask = choose(random, {3, 1}) == 0 ? SYMPOW_MASK_CAUSAL : SYMPOW_MASK_FULL;
  options.pairing = static_cast<std::int32_t>(random.integer(-1, 1));
  options.check_finite = static_cast<std::int32_t>(random.integer(0, 1));
  options.offset = one_of<std::int64_t>(random, {0, 0, 0, 3, -2, std::int64_t{1} << 40});
  options.chunk = one_of<std::int64_t>(random, {0, 1, 3});
  options.checkpoint = one_of<std::int64_t>(random, {0, 2});
  options.tail = one_of<std::int64_t>(random, {-1, 0, 2});
  options.scale = one_of(random, {1., -.5, 0.});
  options.rotary_dim = one_of<std::int64_t>(random, {0, 0, 0, 2, 6});
  options.threads = 1;
  return options;
}

// Arrays of a call, of sizes that fit each other or do not.
template <class S>
struct RandomCall {
  Index B, Tq, Tk, H, Hk, d, e, states_of, d_of_states;
  Tensor<S> Q, K, V, Y, dY, dQ, dK, dV, W, dW;
  Tensor<double> gates, theta, beta, channels, strengths, d_gates, d_theta, d_beta, d_channels, d_strengths;
  Tensor<double> diagnostics;
  Tensor<std::int32_t> lengths;
  bool has_gates, has_theta, has_beta, has_channels, has_vectors, has_strengths, has_lengths, asks_parameters;

  RandomCall(Random& random, const sympow_options& options)
      : B(one_of<Index>(random, {1, 2, 2, 0})),
        Tq(one_of<Index>(random, {6, 6, 1, 0})),
        Tk(choose(random, {3, 1}) == 0 ? Tq : Tq + 3),
        H(one_of<Index>(random, {2, 4, 4, 0, 3})),
        Hk(one_of<Index>(random, {2, 2, 1, 0})),
        d(one_of<Index>(random, {4, 4, 4, 3})),
        e(random.integer(1, 3)),
        has_gates(choose(random, {1, 1}) == 0),
        has_lengths(choose(random, {3, 1}) == 1),
        asks_parameters(choose(random, {1, 1}) == 0) {
    const auto filled = [&](Index T, Index heads, Index numbers) {
      Tensor<S> x({B, T, heads, numbers});
      x.fill(random);
      return x;
    };
    Q = filled(Tq, H, d), K = filled(Tk, Hk, choose(random, {30, 1}) == 0 ? d : d + 1), V = filled(Tk, Hk, e);
    dY = filled(Tq, H, choose(random, {30, 1}) == 0 ? e : e + 1);
    diagnostics = Tensor<double>({B, Tq, H, 3}, 7);
    Y = untouched(dY), dQ = untouched(Q), dK = untouched(K), dV = untouched(V);
    const Index last = Tq + static_cast<Index>(options.offset), tokens = std::clamp<Index>(last, Tk, 20);
    gates = Tensor<double>({B, tokens, choose(random, {1, 1}) == 0 ? Hk : H}, choose(random, {1, 1}) == 0 ? 0 : -.1);
    draw_parameters(random, tokens, options.rotary_dim == 0 ? d / 2 : options.rotary_dim / 2);
    lengths = Tensor<std::int32_t>({B}, static_cast<std::int32_t>(Tq));
    for (std::int32_t& length : lengths.data)
      length =
          one_of<std::int32_t>(random, {0, 1, static_cast<std::int32_t>(Tq), static_cast<std::int32_t>(Tq), 9, -1});
    states_of = one_of<Index>(random, {-1, -1, H, Hk, Hk, 3});  // heads; none
    d_of_states = choose(random, {9, 1}) == 0 ? d : d + 1;
    switch (choose(random, {4, 1, 1, 1, 1, 1, 1, 1})) {
      case 1:
        spoil(random, Q, nan_);
        break;
      case 2:
        spoil(random, K, std::numeric_limits<double>::infinity());
        break;
      case 3:
        spoil(random, V, nan_);
        break;
      case 4:
        spoil(random, gates, one_of(random, {.5, nan_}));
        break;
      case 5:
        spoil(random, theta, nan_);
        break;
      case 6:
        spoil(random, W, std::numeric_limits<double>::infinity());
        break;
      case 7:
        for (Tensor<double>* x : {&beta, &channels, &strengths}) spoil(random, *x, nan_);
        break;
      default:
        break;
    }
  }

  // θ with or without β, of two axes in one of five, and what goes in their place; now and then too much.
  void draw_parameters(Random& random, Index tokens, Index pairs) {
    const Index act = choose(random, {3, 3, 1, 1, 1});
    has_theta = act == 1 || (act > 1 && choose(random, {20, 1}) == 1);
    has_vectors = act >= 3, has_channels = act == 2 || (has_vectors && choose(random, {1, 1}) == 0);
    has_beta = has_theta && choose(random, {1, 1}) == 0, has_strengths = has_vectors && choose(random, {1, 1}) == 0;
    const Index heads = choose(random, {2, 1}) == 0 ? Hk : H;
    const std::vector<std::int64_t> of_heads{B, tokens, heads}, of_numbers{B, tokens, heads, d};
    if (choose(random, {4, 1}) == 0) {
      theta = Tensor<double>({pairs}, .3), beta = Tensor<double>(of_heads, 1);
    } else {
      theta = Tensor<double>({2, pairs}, .3), beta = Tensor<double>({B, tokens, heads, choose(random, {6, 1}) + 2}, 1);
    }
    strengths = Tensor<double>(of_heads, choose(random, {5, 1}) == 0 ? 1 : 3);
    channels = Tensor<double>(of_numbers, -.1), W = Tensor<S>(of_numbers, S(.5));
    d_gates = untouched(gates), d_theta = untouched(theta), d_beta = untouched(beta);
    d_channels = untouched(channels), dW = untouched(W), d_strengths = untouched(strengths);
  }

  sympow_inputs inputs() {
    sympow_inputs in = SYMPOW_INPUTS_INIT;
    in.queries = Q.view(), in.keys = K.view(), in.values = V.view();
    if (has_gates) in.log_gates = gates.view();
    if (has_theta) in.theta = theta.view();
    if (has_beta) in.beta = beta.view();
    if (has_channels) in.channel_gates = channels.view();
    if (has_vectors) in.householder = W.view();
    if (has_strengths) in.strengths = strengths.view();
    if (has_lengths) in.lengths = lengths.view();
    return in;
  }
  sympow_gradients gradients() {
    sympow_gradients to = SYMPOW_GRADIENTS_INIT;
    to.queries = dQ.view(), to.keys = dK.view(), to.values = dV.view();
    if (!asks_parameters) return to;
    if (has_gates) to.log_gates = d_gates.view();
    if (has_theta) to.theta = d_theta.view();
    if (has_beta) to.beta = d_beta.view();
    if (has_channels) to.channel_gates = d_channels.view();
    if (has_vectors) to.householder = dW.view();
    if (has_strengths) to.strengths = d_strengths.view();
    return to;
  }
  [[nodiscard]] static bool all_are_7(const auto&... x) {
    return (std::all_of(x.data.begin(), x.data.end(), [](auto entry) { return entry == 7; }) && ...);
  }
  [[nodiscard]] bool is_untouched() const {
    return all_are_7(Y, dQ, dK, dV, dW, d_gates, d_theta, d_beta, d_channels, d_strengths);
  }

 private:
  template <class X>
  static Tensor<X> untouched(const Tensor<X>& like) {
    return Tensor<X>(like.shape, X(7));
  }
  template <class X>
  static void spoil(Random& random, Tensor<X>& x, double value) {
    if (x.data.empty()) return;
    x.data[static_cast<std::size_t>(random.integer(0, static_cast<Index>(x.data.size()) - 1))] = static_cast<X>(value);
  }
};

// The states that a call begins with; none where there are none, or where none can be made.
template <class S>
sympow_status make_states(const Attention& attention, const RandomCall<S>& call, CStates& states) {
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = call.B, shape.heads = call.states_of, shape.d = call.d_of_states, shape.e = call.e;
  shape.dtype = dtype_of<S>();
  return sympow_states_create(attention, &shape, nullptr, &states);
}

bool all_are(const Tensor<float>& x, float value) {
  return std::all_of(x.data.begin(), x.data.end(), [&](float entry) { return entry == value; });
}

// The tokens that states have seen, of every one.
template <class S>
std::vector<std::int64_t> tokens_of(const CStates& states, const RandomCall<S>& call) {
  std::vector<std::int64_t> tokens;
  for (Index n = 0; n < call.B * call.states_of; ++n) {
    tokens.push_back(-1);
    REQUIRE(said(sympow_states_tokens(states, n / call.states_of, n % call.states_of, &tokens.back())) == well);
  }
  return tokens;
}

// Calls of one type, and how often they had which status.
template <class S>
std::map<sympow_status, int> draw_calls(Random& random, int calls) {
  std::map<sympow_status, int> count;
  for (int draw = 0; draw < calls; ++draw) {
    const sympow_options options = random_options(random);
    Attention attention;
    if (sympow_attention_create(&options, &attention) != SYMPOW_OK) continue;
    RandomCall<S> call(random, options);
    CStates states, same;
    CGradients of_states;
    const bool keeps_states = call.states_of >= 0;
    if (keeps_states && make_states(attention, call, states) != SYMPOW_OK) continue;
    if (keeps_states) {
      REQUIRE(said(make_states(attention, call, same)) == well);
      REQUIRE(said(sympow_state_gradients_create(same, nullptr, nullptr, nullptr, &of_states)) == well);
    }
    const sympow_inputs in = call.inputs();
    const sympow_gradients to = call.gradients();
    const sympow_status diagnosis = sympow_diagnose(attention, &in, states, call.diagnostics.view(), nullptr, nullptr);
    const sympow_status forward = sympow_attend(attention, &in, states, call.Y.view(), nullptr, nullptr);
    const std::string sentence = sympow_error();
    const sympow_status backward =
        sympow_attend_vjp(attention, &in, call.dY.view(), same, of_states, &to, nullptr, nullptr);
    CAPTURE(draw, sentence, sympow_error(), options.form, options.mask, options.offset, options.power, options.scores);
    CAPTURE(call.B, call.Tq, call.Tk, call.H, call.Hk, call.d, call.states_of);
    CAPTURE(call.has_theta, call.has_beta, call.has_channels, call.has_vectors, options.rotary_dim);
    REQUIRE(backward == forward);
    if (call.dY.size(3) == call.e) REQUIRE(diagnosis == forward);  // which has no rows
    REQUIRE((diagnosis == SYMPOW_OK || call.all_are_7(call.diagnostics)));
    ++count[forward];
    if (forward == SYMPOW_OK) continue;
    REQUIRE(call.is_untouched());
    if (!keeps_states) continue;
    for (const std::int64_t tokens : tokens_of(states, call)) REQUIRE(tokens == 0);
  }
  return count;
}

}  // namespace

TEST_CASE("gradients refuse what the forward pass refuses, with its status and before anything is touched", "[c]") {
  Random random(20);
  std::map<sympow_status, int> count = draw_calls<float>(random, 6000);
  for (const auto& [status, n] : draw_calls<double>(random, 6000)) count[status] += n;
  for (const auto& [status, least] : std::map<sympow_status, int>{
           {SYMPOW_OK, 100}, {SYMPOW_SHAPE_MISMATCH, 100}, {SYMPOW_INVALID_ARGUMENT, 100}, {SYMPOW_NOT_FINITE, 20}}) {
    CAPTURE(status);
    CHECK(count[status] >= least);
  }
}

TEST_CASE("states whose entries cannot be counted are refused both ways", "[c]") {
  for (const std::int32_t form : {SYMPOW_FORM_RECURRENT, SYMPOW_FORM_CHUNKED}) {
    sympow_options options = SYMPOW_OPTIONS_INIT;
    options.form = form, options.power = 4;
    Attention attention;
    REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
    CBatch<float> x(1, 2, 1, 1, 1);
    x.Q = x.K = Tensor<float>({1, 2, 1, 100'000}, 1);  // φ of 4·10¹⁸ numbers
    x.dQ = x.dK = Tensor<float>(x.Q.shape, 7);
    const sympow_inputs in = x.inputs();
    const sympow_gradients to = x.gradients();
    CAPTURE(form);
    CHECK(sympow_attend(attention, &in, nullptr, x.Y.view(), nullptr, nullptr) == SYMPOW_TOO_LARGE);
    CHECK(sympow_attend_vjp(attention, &in, x.dY.view(), nullptr, nullptr, &to, nullptr, nullptr) == SYMPOW_TOO_LARGE);
    CHECK(all_are(x.Y, 7));
    CHECK(all_are(x.dQ, 7));
  }
}

TEST_CASE("gradients of state forms take no mask with an offset, of either kind", "[c]") {
  for (const std::int32_t mask : {SYMPOW_MASK_CAUSAL, SYMPOW_MASK_FULL})
    for (const std::int64_t offset : {3, -2})
      for (const std::int32_t form : {SYMPOW_FORM_RECURRENT, SYMPOW_FORM_CHUNKED}) {
        sympow_options options = SYMPOW_OPTIONS_INIT;
        options.form = form, options.mask = mask, options.offset = offset, options.chunk = 5;
        Attention attention;
        REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
        CBatch<double> keys(1, 20, 1, 1, 1), queries(1, offset > 0 ? 20 - offset : 20, 1, 1, 1);
        sympow_inputs in = keys.inputs();
        in.queries = queries.Q.view();
        sympow_gradients to = keys.gradients();
        to.queries = queries.dQ.view();
        CAPTURE(mask, offset, form);
        CHECK(sympow_attend(attention, &in, nullptr, queries.Y.view(), nullptr, nullptr) == SYMPOW_INVALID_ARGUMENT);
        CHECK(sympow_attend_vjp(attention, &in, queries.dY.view(), nullptr, nullptr, &to, nullptr, nullptr) ==
              SYMPOW_INVALID_ARGUMENT);
        CHECK_THAT(sympow_error(), contains("does not go with a state"));
        CHECK(keys.dK == Tensor<double>(keys.K.shape, 7));
      }
}

TEST_CASE("keys of heads without queries are refused, with states and gates too", "[c]") {
  const sympow_options options = SYMPOW_OPTIONS_INIT;
  Attention attention;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  CBatch<float> x(2, 5, 0, 2, 2);
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = shape.heads = 2, shape.d = x.d, shape.e = x.e;
  CStates with_states;
  REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &with_states)) == well);
  for (sympow_states* states : {static_cast<sympow_states*>(nullptr), static_cast<sympow_states*>(with_states)})
    for (const Given& given : {Given{}, Given{.gates = true}}) {
      const sympow_inputs in = x.inputs(given);
      const sympow_gradients to = x.gradients(given);
      CHECK(sympow_attend(attention, &in, states, x.Y.view(), nullptr, nullptr) == SYMPOW_SHAPE_MISMATCH);
      CHECK(sympow_attend_vjp(attention, &in, x.dY.view(), states, nullptr, &to, nullptr, nullptr) ==
            SYMPOW_SHAPE_MISMATCH);
      CHECK_THAT(sympow_error(), contains("inputs->queries: shape[2] is 0, must be at least the 2 heads of the keys"));
      CHECK(all_are(x.dK, 7));
    }
}

TEST_CASE("rotary is refused unless its pairing is said", "[c]") {
  sympow_options options = SYMPOW_OPTIONS_INIT;
  Attention attention;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  CBatch<float> x(1, 5, 1, 1, 1);
  const sympow_inputs in = x.inputs({.theta = true});
  CHECK(sympow_attend(attention, &in, nullptr, x.Y.view(), nullptr, nullptr) == SYMPOW_INVALID_ARGUMENT);
  CHECK_THAT(sympow_error(), contains("options->pairing is not said"));
  options.pairing = SYMPOW_PAIRING_HALF_SPLIT;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  CHECK(said(sympow_attend(attention, &in, nullptr, x.Y.view(), nullptr, nullptr)) == well);
}

TEST_CASE("rotary turns the first channels of a head, as many as rotary_dim says", "[c]") {
  const auto rows = [](std::int64_t rotary_dim, std::int32_t pairing, std::vector<double> theta) {
    sympow_options options = SYMPOW_OPTIONS_INIT;
    options.rotary_dim = rotary_dim, options.pairing = pairing;
    Attention attention;
    REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
    CBatch<float> x(2, 40, 2, 1, 1);  // d = 4
    x.theta = x.d_theta = Tensor<double>({static_cast<std::int64_t>(theta.size())});
    x.theta.data = theta;
    const sympow_inputs in = x.inputs({.gates = true, .theta = true, .beta = true});
    const sympow_gradients to = x.gradients({.gates = true, .theta = true, .beta = true});
    REQUIRE(said(sympow_attend(attention, &in, nullptr, x.Y.view(), nullptr, nullptr)) == well);
    REQUIRE(said(sympow_attend_vjp(attention, &in, x.dY.view(), nullptr, nullptr, &to, nullptr, nullptr)) == well);
    sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
    shape.batch = 2, shape.heads = 1, shape.d = 4, shape.e = 3;
    Owned<sympow_states, sympow_states_destroy> states;
    REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &states)) == well);
    Tensor<float> Y = x.Y;
    REQUIRE(said(sympow_attend(attention, &in, states, Y.view(), nullptr, nullptr)) == well);
    Tensor<double> angles({2, 1, static_cast<std::int64_t>(theta.size())});
    REQUIRE(said(sympow_states_read(states, nullptr, nullptr, angles.view())) == well);
    CHECK(angles.data[0] != 0);
    return x;
  };
  const auto all = rows(0, SYMPOW_PAIRING_INTERLEAVED, {.7, 0}),
             interleaved = rows(2, SYMPOW_PAIRING_INTERLEAVED, {.7}), halves = rows(2, SYMPOW_PAIRING_HALF_SPLIT, {.7});
  CHECK(interleaved.Y == all.Y);
  CHECK(halves.Y == all.Y);
  for (const auto* some : {&interleaved, &halves}) {
    const auto near = [](double x, double y) { return std::abs(x - y) <= 1e-5 * (1 + std::abs(y)); };
    for (std::size_t n = 0; n < all.dQ.data.size(); ++n) REQUIRE(near(some->dQ.data[n], all.dQ.data[n]));
    for (std::size_t n = 0; n < all.dK.data.size(); ++n) REQUIRE(near(some->dK.data[n], all.dK.data[n]));
    CHECK(near(some->d_theta.data[0], all.d_theta.data[0]));
  }

  sympow_options options = SYMPOW_OPTIONS_INIT;
  options.pairing = SYMPOW_PAIRING_HALF_SPLIT, options.rotary_dim = 6;
  Attention attention;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  CBatch<float> x(1, 5, 1, 1, 1);
  const sympow_inputs in = x.inputs({.theta = true});
  CHECK(sympow_attend(attention, &in, nullptr, x.Y.view(), nullptr, nullptr) == SYMPOW_SHAPE_MISMATCH);
  CHECK_THAT(sympow_error(), contains("options->rotary_dim is 6, must be at most 4"));
  options.rotary_dim = 2;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  CHECK(sympow_attend(attention, &in, nullptr, x.Y.view(), nullptr, nullptr) == SYMPOW_SHAPE_MISMATCH);
  CHECK_THAT(sympow_error(), contains("inputs->theta: shape[0] is 2, must be 1"));
}
