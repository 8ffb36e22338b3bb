// The C interface gives the bits of the C++ calls that it stands for.
#include <sympow/attention/batch_vjp.hpp>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include <sympow/attention/state_file.hpp>

#include "catch.hpp"
#include "tensors.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr std::array givens = {Given{},
                               Given{.gates = true},
                               Given{.theta = true},
                               Given{.theta = true, .beta = true},
                               Given{.gates = true, .theta = true},
                               Given{.gates = true, .theta = true, .beta = true}};

std::string name_of(const Given& given) {
  return std::string(given.gates ? "gates " : "") + (given.theta ? "theta " : "") + (given.beta ? "beta" : "");
}

// Which transitions a case is compiled for: every kind, or the one of all that can be given.
enum class Kinds { every, all_given };

// visit(f), f(b, n) being the transition of C++ of head n of `of`.
template <Kinds kinds, class B, class Visit>
void with_transitions(const B& batch, Given given, Index of, const Visit& visit) {
  const auto gates = [&, of](Index b, Index n) { return Decay(batch.numbers(batch.gates, b, n, of)); };
  const auto turns = [&, of, given](Index b, Index n) {
    return given.beta ? Rotary(batch.rates(), batch.numbers(batch.beta, b, n, of), Pairing::half_split)
                      : Rotary(batch.rates(), Pairing::half_split);
  };
  if (given.gates && given.theta) return visit([=](Index b, Index n) { return gates(b, n) * turns(b, n); });
  if constexpr (kinds == Kinds::every) {
    if (given.gates) return visit(gates);
    if (given.theta) return visit(turns);
    return visit([](Index, Index) { return stationary(); });
  }
  FAIL("this case is not compiled");
}

const Eigen::VectorXd* gates_in(const Decay::Gradient& g) { return &g.log_gamma; }
const Eigen::VectorXd* gates_in(const Stationary::Gradient&) { return nullptr; }
const Eigen::VectorXd* gates_in(const Rotary::Gradient&) { return nullptr; }
const Rotary::Gradient* turns_in(const Decay::Gradient&) { return nullptr; }
const Rotary::Gradient* turns_in(const Stationary::Gradient&) { return nullptr; }
const Rotary::Gradient* turns_in(const Rotary::Gradient& g) { return &g; }
template <class G>
const Eigen::VectorXd* gates_in(const G& g) {
  return &g.left().log_gamma;
}
template <class G>
const Rotary::Gradient* turns_in(const G& g) {
  return &g.right();
}

// The sums of C++ gradients over the heads that read a number, in order.
template <class P, class Gradients, class Numbers>
Tensor<P> summed(const Tensor<P>& like, const auto& batch, const Gradients& all, Index groups, const Numbers& numbers) {
  Tensor<P> result(like.shape);
  for (Index b = 0; b < batch.B; ++b)
    for (Index h = 0; h < batch.Hg; ++h)
      for (Index t = 0; t < batch.length(b); ++t) {
        double sum = 0;
        for (Index n = 0; n < groups; ++n)
          if (n * batch.Hg / groups == h) sum += (*numbers(all[static_cast<std::size_t>(b * groups + n)]))[t];
        result.data[static_cast<std::size_t>((b * batch.T + t) * batch.Hg + h)] = static_cast<P>(sum);
      }
  return result;
}

template <class P, class Gradients>
void check_parameters(auto& batch, Given given, const Gradients& gradients, Index groups) {
  const auto& all = gradients.transitions;
  if (given.gates)
    REQUIRE(batch.d_gates == summed(batch.d_gates, batch, all, groups, [](const auto& g) { return gates_in(g); }));
  if (given.beta)
    REQUIRE(batch.d_beta == summed(batch.d_beta, batch, all, groups, [](const auto& g) { return &turns_in(g)->beta; }));
  if (given.theta)
    for (Index j = 0; j < batch.d / 2; ++j) {
      double sum = 0;
      for (const auto& g : all) sum += turns_in(g)->theta[j];
      REQUIRE(batch.d_theta.data[static_cast<std::size_t>(j)] == static_cast<P>(sum));
    }
  REQUIRE(batch.d_scale.data[0] == gradients.scale);
}

struct Choice {
  int form = SYMPOW_FORM_AUTOMATIC, normalisation = SYMPOW_NORMALISATION_DEFAULT, power = 2;
  [[nodiscard]] sympow_options options() const {
    sympow_options options = turning_options();
    options.scores = power == 0 ? SYMPOW_SCORES_EXPONENTIAL : SYMPOW_SCORES_POWER;
    options.power = power;
    options.form = form, options.normalisation = normalisation;
    options.pairing = SYMPOW_PAIRING_HALF_SPLIT;
    options.scale = .5, options.chunk = 8, options.checkpoint = 2;
    return options;
  }
  [[nodiscard]] BatchOptions of_cpp() const {
    return {.form = static_cast<Form>(form), .head = {.scale = .5, .chunk = 8, .checkpoint = 2}};
  }
};

// Without states: rows and gradients.
template <Kinds kinds, class N, class F, class S, class P = double>
void check_without_states(Choice choice, Given given, CBatch<S, P> batch) {
  CAPTURE(name_of(given), choice.form, choice.power, batch.Hg, batch.Hk);
  Attention attention;
  const sympow_options options = choice.options();
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  CWorkspace workspace;
  REQUIRE(said(sympow_workspace_create(nullptr, &workspace)) == well);
  const sympow_inputs in = batch.inputs(given);
  const sympow_gradients to = batch.gradients(given);
  auto Y = batch.Y, dQ = batch.dQ, dK = batch.dK, dV = batch.dV;
  for (sympow_workspace* own : {static_cast<sympow_workspace*>(nullptr), static_cast<sympow_workspace*>(workspace)}) {
    REQUIRE(said(sympow_attend(attention, &in, nullptr, batch.Y.view(), own, nullptr)) == well);
    REQUIRE(said(sympow_attend_vjp(attention, &in, batch.dY.view(), nullptr, nullptr, &to, own, nullptr)) == well);
    with_transitions<kinds>(batch, given, batch.H, [&](const auto& transitions) {
      Workspaces<S> forward;
      VjpWorkspaces<S> backward;
      attend<N>(F{}, transitions,
                {.Q = batch.heads(batch.Q),
                 .K = batch.heads(batch.K),
                 .V = batch.heads(batch.V),
                 .Y = batch.heads(Y),
                 .workspaces = forward,
                 .options = choice.of_cpp()});
      const auto gradients = attend_vjp<N>(F{}, transitions,
                                           {.Q = batch.heads(batch.Q),
                                            .K = batch.heads(batch.K),
                                            .V = batch.heads(batch.V),
                                            .dY = batch.heads(batch.dY),
                                            .dQ = batch.heads(dQ),
                                            .dK = batch.heads(dK),
                                            .dV = batch.heads(dV),
                                            .workspaces = backward,
                                            .options = choice.of_cpp()});
      REQUIRE(batch.Y == Y);
      REQUIRE(batch.dQ == dQ);
      REQUIRE(batch.dK == dK);
      REQUIRE(batch.dV == dV);
      check_parameters<P>(batch, given, gradients, batch.H);
    });
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string scratch_file(const std::string& name) {
  static const std::string process = std::to_string(std::random_device{}()) + "_";
  return (std::filesystem::temp_directory_path() / ("sympow_c_test_" + process + name)).string();
}

// The bytes of states, as they are saved.
std::string saved(const sympow_states* states) {
  const std::string path = scratch_file(std::to_string(reinterpret_cast<std::uintptr_t>(states)));
  REQUIRE(said(sympow_states_save(states, path.c_str())) == well);
  const std::string bytes = bytes_of(path);
  std::filesystem::remove(path);
  return bytes;
}
template <class S, class F>
std::string saved(const std::vector<State<S, F>>& states) {
  std::ostringstream out;
  for (const auto& state : states) save(state, out);
  return out.str();
}

// With states of Hs heads: rows, states, gradients, from states that are not empty.
template <Kinds kinds, class F, class S>
void check_with_states(Choice choice, Given given, CBatch<S> batch, Index Hs) {
  CAPTURE(name_of(given), choice.form, choice.power, batch.Hg, Hs);
  Attention attention;
  const sympow_options options = choice.options();
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = batch.B, shape.heads = Hs, shape.d = batch.d, shape.e = batch.e, shape.dtype = dtype_of<S>();
  CStates states, before;
  REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &states)) == well);
  std::vector<State<S, F>> of_cpp(static_cast<std::size_t>(batch.B * Hs), State<S, F>(batch.d, batch.e));
  const sympow_inputs in = batch.inputs(given);
  auto Y = batch.Y;

  with_transitions<kinds>(batch, given, Hs, [&](const auto& transitions) {
    Workspaces<S> forward;
    for (int call = 0; call < 2; ++call) {
      REQUIRE(said(sympow_states_copy(states, &before)) == well);
      const auto of_cpp_before = of_cpp;
      BatchOptions of_call = choice.of_cpp();
      if (call == 0) of_call.form = Form::recurrent;
      REQUIRE(said(call == 0 ? sympow_decode(attention, &in, states, batch.Y.view(), nullptr, nullptr)
                             : sympow_attend(attention, &in, states, batch.Y.view(), nullptr, nullptr)) == well);
      attend(F{}, transitions,
             {.Q = batch.heads(batch.Q),
              .K = batch.heads(batch.K),
              .V = batch.heads(batch.V),
              .states = of_cpp,
              .Y = batch.heads(Y),
              .workspaces = forward,
              .options = of_call});
      REQUIRE(batch.Y == Y);
      REQUIRE(saved(states) == saved(of_cpp));
      REQUIRE(saved(before) == saved(of_cpp_before));
      for (Index b = 0; b < batch.B; ++b) {
        std::int64_t tokens = -1;
        REQUIRE(said(sympow_states_tokens(states, b, Hs - 1, &tokens)) == well);
        REQUIRE(tokens == (call + 1) * batch.length(b));
      }
    }

    // Sequences in another order, and one of them twice.
    CStates other;
    REQUIRE(said(sympow_states_copy(states, &other)) == well);
    auto of_cpp_other = of_cpp;
    for (Index b = 0; b < batch.B; ++b) {
      const Index from = b == 0 ? 0 : batch.B - b;
      REQUIRE(said(sympow_states_assign(other, b, states, from)) == well);
      std::copy_n(of_cpp.begin() + from * Hs, Hs, of_cpp_other.begin() + b * Hs);
    }
    REQUIRE(saved(other) == saved(of_cpp_other));

    // Sums, normaliser and angles are those of C++.
    const Index D = F{}.dimension(batch.d), half = batch.d / 2;
    std::int64_t dimension = 0;
    REQUIRE(said(sympow_feature_dimension(attention, batch.d, &dimension)) == well);
    REQUIRE(dimension == D);
    Tensor<S> sums({batch.B, Hs, D, batch.e}), normaliser({batch.B, Hs, D}), d_sums = sums, d_normaliser = normaliser;
    Tensor<double> angles({batch.B, Hs, half}), d_angles = angles;
    REQUIRE(said(sympow_states_read(states, sums.view(), normaliser.view(), angles.view())) == well);
    Random random(3);
    d_sums.fill(random), d_normaliser.fill(random), d_angles.fill(random);
    if (!given.theta) d_angles = angles;
    std::vector<StateGradient<S, F>> adjoints;
    for (std::size_t n = 0; n < of_cpp.size(); ++n) {
      const auto at = [&](auto& x, Index size) { return x.data.data() + static_cast<Index>(n) * size; };
      using Numbers = Eigen::Map<const Matrix<S>>;
      REQUIRE(Numbers(at(sums, D * batch.e), batch.e, D) == of_cpp[n].values());
      REQUIRE(Numbers(at(normaliser, D), D, 1) == of_cpp[n].normalizer());
      if (given.theta && batch.length(static_cast<Index>(n) / Hs) > 0)
        REQUIRE(Eigen::Map<const Eigen::VectorXd>(at(angles, half), half) == of_cpp[n].frame().numbers());
      adjoints.emplace_back(
          F{}, batch.d, Numbers(at(d_sums, D * batch.e), batch.e, D), Numbers(at(d_normaliser, D), D, 1),
          Eigen::VectorXd(Eigen::Map<const Eigen::VectorXd>(at(d_angles, half), given.theta ? half : 0)));
    }

    // And the gradients, of a loss in rows and states.
    CGradients gradients;
    REQUIRE(said(sympow_state_gradients_create(states, d_sums.view(), d_normaliser.view(),
                                               given.theta ? d_angles.view() : nullptr, &gradients)) == well);
    VjpWorkspaces<S> backward;
    auto dQ = batch.dQ, dK = batch.dK, dV = batch.dV;
    const sympow_gradients to = batch.gradients(given);
    const auto initial = [&] {
      auto all = std::vector<State<S, F>>(of_cpp.size(), State<S, F>(batch.d, batch.e));
      std::istringstream file(saved(before));
      for (auto& one : all) load(one, file);
      return all;
    }();
    const auto take_back = [&](std::vector<StateGradient<S, F>>& of_states) {
      const auto of_parameters = attend_vjp(F{}, transitions,
                                            {.Q = batch.heads(batch.Q),
                                             .K = batch.heads(batch.K),
                                             .V = batch.heads(batch.V),
                                             .dY = batch.heads(batch.dY),
                                             .states = initial,
                                             .d_states = of_states,
                                             .dQ = batch.heads(dQ),
                                             .dK = batch.heads(dK),
                                             .dV = batch.heads(dV),
                                             .workspaces = backward,
                                             .options = choice.of_cpp()});
      REQUIRE(batch.dQ == dQ);
      REQUIRE(batch.dK == dK);
      REQUIRE(batch.dV == dV);
      check_parameters<double>(batch, given, of_parameters, Hs);
    };
    REQUIRE(said(sympow_attend_vjp(attention, &in, batch.dY.view(), before, gradients, &to, nullptr, nullptr)) == well);
    take_back(adjoints);
    REQUIRE(said(sympow_state_gradients_read(gradients, sums.view(), normaliser.view(), angles.view())) == well);
    for (std::size_t n = 0; n < adjoints.size(); ++n) {
      using Numbers = Eigen::Map<const Matrix<S>>;
      const auto at = [&](auto& x, Index size) { return x.data.data() + static_cast<Index>(n) * size; };
      REQUIRE(Numbers(at(sums, D * batch.e), batch.e, D) == adjoints[n].values());
      REQUIRE(Numbers(at(normaliser, D), D, 1) == adjoints[n].normalizer());
      if (adjoints[n].frame().size() > 0)
        REQUIRE(Eigen::Map<const Eigen::VectorXd>(at(angles, half), half) == adjoints[n].frame());
    }
    // Without gradients of states: those of a loss that sees none.
    REQUIRE(said(sympow_attend_vjp(attention, &in, batch.dY.view(), before, nullptr, &to, nullptr, nullptr)) == well);
    std::vector<StateGradient<S, F>> zeros(of_cpp.size(), StateGradient<S, F>(batch.d, batch.e));
    take_back(zeros);
  });
}

template <class S>
CBatch<S> grouped(Index Hg) {
  return CBatch<S>(3, 21, 4, 2, Hg, {21, 0, 13});
}

}  // namespace

TEST_CASE("rows, states and gradients of every transition are those of C++", "[c]") {
  for (const Given& given : givens)
    for (const int form : {SYMPOW_FORM_AUTOMATIC, SYMPOW_FORM_ATTENTION, SYMPOW_FORM_CHUNKED, SYMPOW_FORM_RECURRENT})
      for (const Index Hg : {2, 4}) {
        const Choice choice{.form = form};
        const auto batch = grouped<float>(Hg);
        check_without_states<Kinds::every, DefaultNormalization, SymmetricPower<2>>(choice, given, batch);
        if (form == SYMPOW_FORM_ATTENTION) continue;
        check_with_states<Kinds::every, SymmetricPower<2>>(choice, given, batch, 4);
        if (Hg == 2) check_with_states<Kinds::every, SymmetricPower<2>>(choice, given, batch, 2);
      }
}

TEST_CASE("rows, states and gradients in double are those of C++", "[c]") {
  for (const int form : {SYMPOW_FORM_AUTOMATIC, SYMPOW_FORM_ATTENTION, SYMPOW_FORM_CHUNKED, SYMPOW_FORM_RECURRENT})
    for (const Index Hg : {2, 4}) {
      const auto batch = grouped<double>(Hg);
      check_without_states<Kinds::all_given, DefaultNormalization, SymmetricPower<2>>({.form = form}, givens.back(),
                                                                                      batch);
      if (form != SYMPOW_FORM_ATTENTION)
        check_with_states<Kinds::all_given, SymmetricPower<2>>({.form = form}, givens.back(), batch, 4);
    }
}

TEST_CASE("rows and gradients of every power, of exponential scores and of every normalisation", "[c]") {
  const Given all = givens.back();
  const auto batch = grouped<float>(4);
  const auto run = [&]<class N, class F>(N, F, int power, int normalisation) {
    check_without_states<Kinds::all_given, N, F>({.normalisation = normalisation, .power = power}, all, batch);
  };
  run(DefaultNormalization{}, SymmetricPower<1>{}, 1, SYMPOW_NORMALISATION_DEFAULT);
  run(SignedNormalized{}, SymmetricPower<1>{}, 1, SYMPOW_SIGNED_NORMALISED);
  run(Unnormalized{}, SymmetricPower<2>{}, 2, SYMPOW_UNNORMALISED);
  run(DefaultNormalization{}, SymmetricPower<3>{}, 3, SYMPOW_NORMALISATION_DEFAULT);
  run(Normalized{}, SymmetricPower<4>{}, 4, SYMPOW_NORMALISED);
  run(DefaultNormalization{}, Exponential{}, 0, SYMPOW_NORMALISATION_DEFAULT);
  run(Unnormalized{}, Exponential{}, 0, SYMPOW_UNNORMALISED);
  check_with_states<Kinds::all_given, SymmetricPower<3>>({.power = 3}, all, batch, 4);
}

TEST_CASE("parameters in float are those numbers in double", "[c]") {
  check_without_states<Kinds::all_given, DefaultNormalization, SymmetricPower<2>>({}, givens.back(),
                                                                                  CBatch<float, float>(2, 21, 4, 2, 2));
}

TEST_CASE("arrays of any order and side by side give the bits of dense ones", "[c]") {
  CBatch<float> batch(2, 9, 2, 2, 2);
  Attention attention;
  const sympow_options options = turning_options();
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  const sympow_inputs in = batch.inputs();
  const sympow_gradients to = batch.gradients();
  REQUIRE(said(sympow_attend(attention, &in, nullptr, batch.Y.view(), nullptr, nullptr)) == well);
  REQUIRE(said(sympow_attend_vjp(attention, &in, batch.dY.view(), nullptr, nullptr, &to, nullptr, nullptr)) == well);

  // q, k, v of a token side by side, as one product makes them; and dq, dk, dv. Rows as [B, H, T, e].
  const Index B = batch.B, T = batch.T, H = batch.H, d = batch.d, e = batch.e, W = H * (2 * d + e);
  std::vector<float> fused(static_cast<std::size_t>(B * T * W + 1)), d_fused(fused.size(), 7),
      rows(batch.Y.data.size());
  const auto part = [&](std::vector<float>& memory, Tensor<float>& of, Index begin) {
    sympow_tensor view = *of.view();
    view.data = memory.data();
    view.byte_offset = static_cast<std::uint64_t>(begin + 1) * sizeof(float);
    of.strides = {T * W, W, of.size(3), 1};
    view.strides = of.strides.data();
    return view;
  };
  const auto each = [&](Tensor<float>& of, const sympow_tensor& view, const auto& visit) {
    std::size_t n = 0;
    float* const at = static_cast<float*>(view.data) + view.byte_offset / sizeof(float);
    for (Index b = 0; b < B; ++b)
      for (Index t = 0; t < T; ++t)
        for (Index h = 0; h < H; ++h)
          for (Index i = 0; i < of.size(3); ++i)
            visit(at[b * view.strides[0] + t * view.strides[1] + h * view.strides[2] + i], of.data[n++]);
  };
  const sympow_tensor q = part(fused, batch.Q, 0), k = part(fused, batch.K, H * d), v = part(fused, batch.V, 2 * H * d);
  const auto copy = [](float& x, float from) { x = from; };
  each(batch.Q, q, copy), each(batch.K, k, copy), each(batch.V, v, copy);
  const sympow_tensor dq = part(d_fused, batch.dQ, 0), dk = part(d_fused, batch.dK, H * d),
                      dv = part(d_fused, batch.dV, 2 * H * d);
  sympow_tensor y = *batch.Y.view();
  std::vector<std::int64_t> bhtd = {H * T * e, e, T * e, 1};
  y.data = rows.data(), y.strides = bhtd.data();
  sympow_inputs other = in;
  other.queries = &q, other.keys = &k, other.values = &v;
  sympow_gradients other_to = to;
  other_to.queries = &dq, other_to.keys = &dk, other_to.values = &dv;
  REQUIRE(said(sympow_attend(attention, &other, nullptr, &y, nullptr, nullptr)) == well);
  REQUIRE(said(sympow_attend_vjp(attention, &other, batch.dY.view(), nullptr, nullptr, &other_to, nullptr, nullptr)) ==
          well);
  const auto same = [](float x, float expected) { REQUIRE(x == expected); };
  each(batch.Y, y, same), each(batch.dQ, dq, same), each(batch.dK, dk, same), each(batch.dV, dv, same);
  REQUIRE(d_fused[0] == 7);

  // One head of keys and values for all, by a stride of 0; heads are read, not written.
  CBatch<float> one(2, 9, 2, 1, 1);
  const sympow_inputs shared = one.inputs();
  REQUIRE(said(sympow_attend(attention, &shared, nullptr, one.Y.view(), nullptr, nullptr)) == well);
  const auto expected = one.Y;
  one.K.shape[2] = one.V.shape[2] = 2;
  one.K.strides = {T * d, d, 0, 1}, one.V.strides = {T * e, e, 0, 1};
  const sympow_inputs broadcast = one.inputs();
  REQUIRE(said(sympow_attend(attention, &broadcast, nullptr, one.Y.view(), nullptr, nullptr)) == well);
  REQUIRE(one.Y == expected);
}

TEST_CASE("masks: queries elsewhere than keys, full, and a window", "[c]") {
  CBatch<double> batch(1, 9, 2, 2, 2);
  batch.Q = Tensor<double>({1, 4, 2, 4}), batch.Y = Tensor<double>({1, 4, 2, 3}, 7);
  Random random(5);
  batch.Q.fill(random);
  auto Y = batch.Y;
  for (const Mask mask : {causal(5), full(5), sliding_window(3, 5)}) {
    sympow_options options = turning_options();
    options.mask = mask.is_full ? SYMPOW_MASK_FULL : SYMPOW_MASK_CAUSAL;
    options.offset = mask.offset, options.window = mask.window == Mask::unlimited ? 0 : mask.window;
    Attention attention;
    REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
    const sympow_inputs in = batch.inputs({.theta = true});
    REQUIRE(said(sympow_attend(attention, &in, nullptr, batch.Y.view(), nullptr, nullptr)) == well);
    Workspaces<double> workspaces;
    attend(SymmetricPower<2>{}, Rotary(batch.rates(), Pairing::interleaved),
           {.Q = batch.heads(batch.Q),
            .K = batch.heads(batch.K),
            .V = batch.heads(batch.V),
            .Y = batch.heads(Y),
            .workspaces = workspaces,
            .options = {.head = {.mask = mask}}});
    REQUIRE(batch.Y == Y);
  }
}

namespace {

// Sums that were read are written into other states, which then hold these bits and weigh what the keys did.
template <class S, int P>
void check_written() {
  using One = State<S, SymmetricPower<P>>;
  CAPTURE(P);
  CBatch<S> batch(2, 40, 4, 2, 2);
  Attention attention;
  sympow_options options = turning_options();
  options.power = P, options.tail = 0;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = 2, shape.heads = 2, shape.d = batch.d, shape.e = batch.e, shape.dtype = dtype_of<S>();
  CStates states, written;
  REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &states)) == well);
  REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &written)) == well);
  const sympow_inputs in = batch.inputs(givens.back());
  REQUIRE(said(sympow_attend(attention, &in, written, batch.Y.view(), nullptr, nullptr)) == well);  // to be replaced
  const std::string empty = saved(states);
  REQUIRE(said(sympow_attend(attention, &in, states, batch.Y.view(), nullptr, nullptr)) == well);

  const Index D = SymmetricPower<P>{}.dimension(batch.d);
  Tensor<S> sums({2, 2, D, batch.e}), normaliser({2, 2, D});
  Tensor<double> angles({2, 2, batch.d / 2});
  REQUIRE(said(sympow_states_read(states, sums.view(), normaliser.view(), angles.view())) == well);
  REQUIRE(said(sympow_states_write(written, sums.view(), normaliser.view(), angles.view())) == well);
  auto sums_again = sums, normaliser_again = normaliser;
  auto angles_again = angles;
  for (auto* x : {&sums_again, &normaliser_again}) std::fill(x->data.begin(), x->data.end(), S(7));
  REQUIRE(said(sympow_states_read(written, sums_again.view(), normaliser_again.view(), angles_again.view())) == well);
  REQUIRE(sums_again == sums);
  REQUIRE(normaliser_again == normaliser);
  REQUIRE(angles_again == angles);

  std::istringstream file(saved(states)), written_file(saved(written));
  for (int n = 0; n < 4; ++n) {
    One one(batch.d, batch.e, 0), other = one;
    load(one, file), load(other, written_file);
    REQUIRE(other.tokens() == 0);
    REQUIRE(other.frame() == one.frame());
    REQUIRE(other.start_frame() == one.frame());
    auto &of = sympow::detail::StateAccess::content(one).sums,
         &again = sympow::detail::StateAccess::content(other).sums;
    of.settle();
    const auto whole = [](const auto& x, double number) { return std::ldexp(number, static_cast<int>(x.exponent())); };
    const double weight = P % 2 == 0 ? whole(of, of.A) : whole(of, static_cast<double>(of.Z.norm()));
    // A sum over 40 keys, each entry of its φ rounded P times; A itself is summed in double.
    const double most = (40 + P) * static_cast<double>(std::numeric_limits<S>::epsilon()) * weight;
    CHECK(std::abs(whole(again, again.A) - weight) <= most);
  }

  std::fill(sums.data.begin(), sums.data.end(), S(0));
  std::fill(normaliser.data.begin(), normaliser.data.end(), S(0));
  REQUIRE(said(sympow_states_write(written, sums.view(), normaliser.view(), nullptr)) == well);
  REQUIRE(saved(written) == empty);
}

}  // namespace

TEST_CASE("a call without rows leaves states as one with rows does, with queries and without", "[c]") {
  CBatch<float> batch(2, 40, 4, 2, 2);
  Attention attention;
  const sympow_options options = turning_options();
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = 2, shape.heads = 2, shape.d = batch.d, shape.e = batch.e;
  sympow_inputs in = batch.inputs(givens.back());
  const auto left = [&](auto* call, const sympow_tensor* rows) {
    CStates states;
    REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &states)) == well);
    for (int n = 0; n < 2; ++n) REQUIRE(said(call(attention, &in, states, rows, nullptr, nullptr)) == well);
    return saved(states);
  };
  for (const auto call : {&sympow_attend, &sympow_decode}) {
    const std::string wanted = left(call, batch.Y.view());
    REQUIRE(left(call, nullptr) == wanted);
    const sympow_tensor* const queries = std::exchange(in.queries, nullptr);
    REQUIRE(left(call, nullptr) == wanted);
    in.queries = queries;
  }
}

TEST_CASE("states begin with sums that are written", "[c]") {
  check_written<float, 1>();
  check_written<float, 2>();
  check_written<double, 3>();
  check_written<float, 4>();
}

TEST_CASE("states are saved, loaded, merged and emptied", "[c]") {
  CBatch<float> batch(2, 40, 2, 2, 2);
  const Given given = givens.back();
  Attention attention;
  const sympow_options options = turning_options();
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = 2, shape.heads = 2, shape.d = batch.d, shape.e = batch.e;
  CStates left, right, merged, loaded;
  const sympow_inputs in = batch.inputs(given);
  REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &left)) == well);
  const std::string empty = saved(left);
  REQUIRE(said(sympow_attend(attention, &in, left, batch.Y.view(), nullptr, nullptr)) == well);
  REQUIRE(said(sympow_states_create(attention, &shape, left, &right)) == well);
  REQUIRE(said(sympow_attend(attention, &in, right, batch.Y.view(), nullptr, nullptr)) == well);
  REQUIRE(said(sympow_states_merge(left, right, &merged)) == well);
  using One = State<float, SymmetricPower<2>>;
  std::vector<One> of_left(4, One(batch.d, batch.e)), of_right = of_left, of_merged;
  std::istringstream left_file(saved(left)), right_file(saved(right));
  for (std::size_t n = 0; n < 4; ++n) {
    load(of_left[n], left_file), load(of_right[n], right_file);
    of_merged.push_back(merge(of_left[n], of_right[n]));
  }
  REQUIRE(saved(merged) == saved(of_merged));

  const std::string path = scratch_file("states"), bytes = saved(merged);
  REQUIRE(said(sympow_states_save(merged, path.c_str())) == well);
  REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &loaded)) == well);
  REQUIRE(said(sympow_states_load(loaded, path.c_str())) == well);
  REQUIRE(saved(loaded) == bytes);
  const auto refused = [&](const std::string& content, const std::string& words) {
    std::ofstream(path, std::ios::binary) << content;
    REQUIRE(sympow_states_load(loaded, path.c_str()) == SYMPOW_BAD_FILE);
    CHECK_THAT(sympow_error(), contains(words));
    REQUIRE(saved(loaded) == bytes);  // as they were
  };
  refused("", "state 0: state file: this is not one");
  refused(bytes + "x", "goes on after 4 states");
  refused(bytes.substr(0, bytes.size() / 4), "holds 1 state, must hold 4");
  refused(bytes.substr(0, bytes.size() - 1), "state 3: state file: it ends inside of its body");
  std::string damaged = bytes;
  damaged[damaged.size() - 1] ^= 1;
  refused(damaged, "the checksum does not match");
  std::filesystem::remove(path);
  REQUIRE(sympow_states_load(loaded, path.c_str()) == SYMPOW_BAD_FILE);
  CHECK_THAT(sympow_error(), contains("cannot be read"));
  REQUIRE(sympow_states_save(loaded, (path + "/none/of/these").c_str()) == SYMPOW_BAD_FILE);

  REQUIRE(said(sympow_states_clear(loaded)) == well);
  REQUIRE(saved(loaded) == empty);
}

TEST_CASE("states are read rounded where that is asked for, whatever is put into them", "[c]") {
  CBatch<float> batch(2, 40, 2, 2, 2);
  Attention attention;
  const sympow_options options = turning_options();
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = 2, shape.heads = 2, shape.d = batch.d, shape.e = batch.e;
  CStates rounds, whole;
  for (sympow_states** states : {&rounds, &whole})
    REQUIRE(said(sympow_states_create(attention, &shape, nullptr, states)) == well);
  const std::array<sympow_states*, 2> both{rounds, whole};
  const sympow_inputs in = batch.inputs(givens.back());
  const auto rows_of = [&](sympow_states* states) {
    REQUIRE(said(sympow_attend(attention, &in, states, batch.Y.view(), nullptr, nullptr)) == well);
    return batch.Y.data;
  };
  REQUIRE(said(sympow_states_read_as_bf16(rounds, 1)) == well);
  for (int round = 0; round < 2; ++round) {  // states that are emptied go on as they did
    REQUIRE(rows_of(rounds) == rows_of(whole));
    REQUIRE(rows_of(rounds) != rows_of(whole));
    REQUIRE(saved(rounds) == saved(whole));
    for (sympow_states* states : both) REQUIRE(said(sympow_states_clear(states)) == well);
  }
  for (sympow_states* states : both) (void)rows_of(states);
  REQUIRE(said(sympow_states_read_as_bf16(rounds, 0)) == well);
  REQUIRE(rows_of(rounds) == rows_of(whole));
  REQUIRE(sympow_states_read_as_bf16(rounds, 2) == SYMPOW_INVALID_ARGUMENT);
  CHECK_THAT(sympow_error(), contains("rounds is 2, must be 0 or 1"));
  REQUIRE(sympow_states_read_as_bf16(nullptr, 1) == SYMPOW_INVALID_ARGUMENT);
}
