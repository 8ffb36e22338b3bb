// Powers above 4, random features and diagnostics by the C interface: the bits of the C++ forms of one head.
#include <sympow/attention/forms.hpp>
#include <sympow/attention/gradients.hpp>
#include <sympow/attention/state_file.hpp>

#include <cstdio>
#include <filesystem>

#include "catch.hpp"
#include "tensors.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index chunk = 8, features = 24, seed = 5;

template <class F>
F feature_of(Index d) {
  if constexpr (std::is_same_v<F, PositiveRandomFeatures>)
    return PositiveRandomFeatures(d, features, {.seed = seed});
  else
    return {};
}

template <class F>
sympow_options options_of(Form form) {
  sympow_options options = turning_options();
  options.form = static_cast<std::int32_t>(form), options.scale = .5, options.chunk = chunk;
  options.normalisation = F::nonnegative ? SYMPOW_NORMALISED : SYMPOW_UNNORMALISED;
  if constexpr (F::score == Score::power)
    options.power = F::degree;
  else if constexpr (FiniteFeatureMap<F>)
    options.scores = SYMPOW_SCORES_RANDOM, options.features = features, options.seed = seed;
  else
    options.scores = SYMPOW_SCORES_EXPONENTIAL;
  return options;
}

// Empty states of all heads of the keys.
template <class S>
void make_states(const sympow_attention* attention, const CBatch<S>& x, CStates& states) {
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = x.B, shape.heads = x.Hk, shape.d = x.d, shape.e = x.e, shape.dtype = dtype_of<S>();
  REQUIRE(said(sympow_states_create(attention, &shape, nullptr, &states)) == well);
}

// One head, its transition and what the forms of C++ give for it.
template <class S, class F>
struct OneHead {
  explicit OneHead(Form the_form, std::uint64_t of = 1) : form(the_form), x(1, 21, 1, 1, 1, {}, of) {
    const sympow_options options = options_of<F>(form);
    REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  }
  [[nodiscard]] auto transition() const {
    return Decay(x.numbers(x.gates, 0, 0, 1)) * Rotary(x.rates(), x.numbers(x.beta, 0, 0, 1), Pairing::interleaved);
  }
  [[nodiscard]] static auto matrix(const Tensor<S>& of) {
    return Eigen::Map<const Matrix<S>>(of.data.data(), of.size(3), of.size(1));
  }
  [[nodiscard]] Options options() const { return {.scale = .5, .chunk = chunk}; }
  Matrix<S> rows(OptionalRef<State<S, F>> given = {}, Diagnostics* said_of = nullptr) const {
    Options of_call = options();
    of_call.diagnostics = said_of;
    const auto Q = matrix(x.Q), K = matrix(x.K), V = matrix(x.V);
    if (form == Form::attention) return attention_rows(of_call);
    State<S, F> own(feature, x.d, x.e);
    State<S, F>& state = given ? *given : own;
    return form == Form::recurrent ? recurrent(feature, transition(), Q, K, V, state, of_call)
                                   : chunked(feature, transition(), Q, K, V, state, of_call);
  }
  [[nodiscard]] Matrix<S> attention_rows(const Options& of_call) const {
    return sympow::attention(feature, transition(), matrix(x.Q), matrix(x.K), matrix(x.V), of_call);
  }

  Form form;
  CBatch<S> x;
  Attention attention;
  F feature = feature_of<F>(4);
  Given all = {.gates = true, .theta = true, .beta = true};
};

// Rows and gradients without a state.
template <class S, class F>
void check_form(Form form) {
  OneHead<S, F> head(form);
  auto& x = head.x;
  const sympow_inputs in = x.inputs(head.all);
  const sympow_gradients to = x.gradients(head.all);
  CAPTURE(static_cast<int>(form));
  REQUIRE(said(sympow_attend(head.attention, &in, nullptr, x.Y.view(), nullptr, nullptr)) == well);
  CHECK(head.matrix(x.Y) == head.rows());
  REQUIRE(said(sympow_attend_vjp(head.attention, &in, x.dY.view(), nullptr, nullptr, &to, nullptr, nullptr)) == well);
  const auto check = [&](const auto& gradients) {
    CHECK(head.matrix(x.dQ) == gradients.Q);
    CHECK(head.matrix(x.dK) == gradients.K);
    CHECK(head.matrix(x.dV) == gradients.V);
    CHECK(x.d_scale.data[0] == gradients.scale);
    CHECK(Eigen::Map<const Eigen::VectorXd>(x.d_gates.data.data(), x.T) == gradients.transition.left().log_gamma);
    CHECK(Eigen::Map<const Eigen::VectorXd>(x.d_theta.data.data(), x.d / 2) == gradients.transition.right().theta);
  };
  const auto Q = head.matrix(x.Q), K = head.matrix(x.K), V = head.matrix(x.V), dY = head.matrix(x.dY);
  if (form == Form::attention) {
    check(
        attention_vjp(head.feature, head.transition(), {.Q = Q, .K = K, .V = V, .dY = dY, .options = head.options()}));
  } else {
    check(chunked_vjp(head.feature, head.transition(), {.Q = Q, .K = K, .V = V, .dY = dY, .options = head.options()}));
  }
}

// States: rows that go on, sums, files, and what is written again.
template <class S, class F>
void check_states() {
  OneHead<S, F> head(Form::chunked);
  auto& x = head.x;
  const sympow_inputs in = x.inputs(head.all);
  CStates states, again;
  make_states(head.attention, x, states);
  make_states(head.attention, x, again);
  State<S, F> of_cpp(head.feature, x.d, x.e);
  for (int call = 0; call < 2; ++call) {
    REQUIRE(said(sympow_attend(head.attention, &in, states, x.Y.view(), nullptr, nullptr)) == well);
    CHECK(head.matrix(x.Y) == head.rows(of_cpp));
  }
  std::int64_t D = 0;
  REQUIRE(said(sympow_feature_dimension(head.attention, x.d, &D)) == well);
  REQUIRE(D == head.feature.dimension(x.d));
  Tensor<S> sums({1, 1, D, x.e}), normaliser({1, 1, D});
  Tensor<double> angles({1, 1, x.d / 2});
  REQUIRE(said(sympow_states_read(states, sums.view(), normaliser.view(), angles.view())) == well);
  CHECK(Eigen::Map<const Matrix<S>>(sums.data.data(), x.e, D) == of_cpp.values());
  CHECK(Eigen::Map<const Matrix<S>>(normaliser.data.data(), D, 1) == of_cpp.normalizer());

  const std::string path = (std::filesystem::temp_directory_path() / ("sympow_c_scores_" + std::to_string(D))).string();
  REQUIRE(said(sympow_states_save(states, path.c_str())) == well);
  State<S, F> loaded(head.feature, x.d, x.e);
  sympow::load(loaded, path);
  CHECK(loaded.values() == of_cpp.values());
  REQUIRE(said(sympow_states_load(again, path.c_str())) == well);
  std::filesystem::remove(path);
  auto rows = x.Y;
  REQUIRE(said(sympow_decode(head.attention, &in, again, x.Y.view(), nullptr, nullptr)) == well);
  REQUIRE(said(sympow_decode(head.attention, &in, states, rows.view(), nullptr, nullptr)) == well);
  CHECK(x.Y == rows);

  REQUIRE(said(sympow_states_clear(again)) == well);
  REQUIRE(said(sympow_states_write(again, sums.view(), normaliser.view(), angles.view())) == well);
  REQUIRE(said(sympow_states_read(again, sums.view(), nullptr, nullptr)) == well);
  const Matrix<S> written = Eigen::Map<const Matrix<S>>(sums.data.data(), x.e, D);
  CHECK((written - of_cpp.values()).norm() <= 4 * std::numeric_limits<S>::epsilon() * written.norm());
}

// What is said of the rows of a batch in a form, with states and without.
template <class S, class F>
void check_diagnostics(Form form) {
  OneHead<S, F> head(form);
  auto& x = head.x;
  for (Index n = 0; n < x.d; ++n) x.Q.data[static_cast<std::size_t>(x.d + n)] = 0;  // a row that says nothing
  const sympow_inputs in = x.inputs(head.all);
  Tensor<double> found({1, x.T, 1, 3}, 7);
  Diagnostics said_of;
  const auto check = [&] {
    for (Index t = 0; t < x.T; ++t) {
      const double* const of_row = found.data.data() + 3 * t;
      CAPTURE(t, static_cast<int>(form));
      CHECK(of_row[0] == said_of.log_sum[t]);
      CHECK(of_row[1] == said_of.condition[t]);
      CHECK((of_row[2] == 1) == said_of.is_degenerate[t]);
    }
  };
  REQUIRE(said(sympow_diagnose(head.attention, &in, nullptr, found.view(), nullptr, nullptr)) == well);
  head.rows({}, &said_of);
  check();
  if constexpr (F::score == Score::power && F::nonnegative) CHECK(found.data[5] == 1);
  if (form == Form::attention) return;
  CStates states;
  make_states(head.attention, x, states);
  State<S, F> of_cpp(head.feature, x.d, x.e);
  for (int call = 0; call < 2; ++call) {
    REQUIRE(said(sympow_diagnose(head.attention, &in, states, found.view(), nullptr, nullptr)) == well);
    std::int64_t tokens = -1;
    REQUIRE(said(sympow_states_tokens(states, 0, 0, &tokens)) == well);
    REQUIRE(tokens == call * x.T);
    REQUIRE(said(sympow_attend(head.attention, &in, states, x.Y.view(), nullptr, nullptr)) == well);
    head.rows(of_cpp, &said_of);
    check();
  }
}

}  // namespace

TEST_CASE("powers up to 8 and random features have the rows, gradients and states of C++", "[c]") {
  const auto check = [&]<class S, class F>(S, F*) {
    for (const Form form : {Form::attention, Form::recurrent, Form::chunked}) check_form<S, F>(form);
    check_states<S, F>();
  };
  check(float(), static_cast<SymmetricPower<5>*>(nullptr));
  check(double(), static_cast<SymmetricPower<6>*>(nullptr));
  check(double(), static_cast<SymmetricPower<7>*>(nullptr));
  check(float(), static_cast<SymmetricPower<8>*>(nullptr));
  check(float(), static_cast<PositiveRandomFeatures*>(nullptr));
  check(double(), static_cast<PositiveRandomFeatures*>(nullptr));
}

TEST_CASE("diagnostics are those of the C++ forms", "[c]") {
  for (const Form form : {Form::attention, Form::recurrent, Form::chunked}) {
    check_diagnostics<float, SymmetricPower<2>>(form);
    check_diagnostics<double, SymmetricPower<3>>(form);
    check_diagnostics<float, PositiveRandomFeatures>(form);
  }
}

TEST_CASE("diagnostics of a batch are those of its heads, and 0 where a query is padding", "[c]") {
  CBatch<float> x(2, 9, 4, 2, 2, {9, 5});
  const sympow_options options = turning_options();
  Attention attention;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  const Given all = {.gates = true, .theta = true, .beta = true};
  const sympow_inputs in = x.inputs(all);
  Tensor<double> found({x.B, x.T, x.H, 3}, 7);
  REQUIRE(said(sympow_diagnose(attention, &in, nullptr, found.view(), nullptr, nullptr)) == well);
  CStates states;
  make_states(attention, x, states);  // shared by two query heads each
  Tensor<double> of_groups({x.B, x.T, x.H, 3}, 7);
  REQUIRE(said(sympow_diagnose(attention, &in, states, of_groups.view(), nullptr, nullptr)) == well);
  for (Index b = 0; b < x.B; ++b)
    for (Index h = 0; h < x.H; ++h) {
      const auto Q = x.heads(x.Q).head(b, h), K = x.heads(x.K).head(b, h / 2), V = x.heads(x.V).head(b, h / 2);
      Diagnostics of_head;  // by the attention form; the library may take others, which round otherwise
      const Matrix<float> rows = sympow::attention(
          SymmetricPower<2>{},
          Decay(x.numbers(x.gates, b, h, x.H)) * Rotary(x.rates(), x.numbers(x.beta, b, h, x.H), Pairing::interleaved),
          Q, K, V, {.diagnostics = &of_head});
      for (Index t = 0; t < x.T; ++t) {
        CAPTURE(b, h, t);
        const auto at = static_cast<std::size_t>(((b * x.T + t) * x.H + h) * 3);
        if (t >= x.length(b)) {
          CHECK((found.data[at] == 0 && found.data[at + 1] == 0 && found.data[at + 2] == 0));
          continue;
        }
        for (const Tensor<double>* said_of : {&found, &of_groups}) {
          CHECK(std::abs(said_of->data[at] - of_head.log_sum[t]) <= 1e-4);
          CHECK(std::abs(said_of->data[at + 1] / of_head.condition[t] - 1) <= 1e-4);
          CHECK(said_of->data[at + 2] == 0);
        }
      }
    }
}

TEST_CASE("random features of another number or seed, and transitions that they do not have, are refused", "[c]") {
  sympow_options options = options_of<PositiveRandomFeatures>(Form::chunked);
  CBatch<float> x(1, 5, 1, 1, 1);
  sympow_inputs in = x.inputs();
  Attention attention, other;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  CStates states, of_other, merged;
  make_states(attention, x, states);
  const std::string path = (std::filesystem::temp_directory_path() / "sympow_c_scores_seed").string();
  REQUIRE(said(sympow_states_save(states, path.c_str())) == well);
  options.seed = 6;
  REQUIRE(said(sympow_attention_create(&options, &other)) == well);
  CHECK(sympow_attend(other, &in, states, x.Y.view(), nullptr, nullptr) == SYMPOW_INVALID_ARGUMENT);
  CHECK_THAT(sympow_error(), contains("states are of 24 random features of seed 5 and float32, must be of 24 random "
                                      "features of seed 6 and float32"));
  make_states(other, x, of_other);
  CHECK(sympow_states_merge(states, of_other, &merged) == SYMPOW_SHAPE_MISMATCH);
  CHECK_THAT(sympow_error(), contains("right is of 24 random features of seed 6"));
  CHECK(sympow_states_load(of_other, path.c_str()) == SYMPOW_BAD_FILE);
  CHECK_THAT(sympow_error(), contains("fingerprint of the feature map"));
  std::filesystem::remove(path);

  Tensor<float> vectors(x.K.shape, 0);
  for (const sympow_tensor* sympow_inputs::* of : {&sympow_inputs::channel_gates, &sympow_inputs::householder}) {
    in = x.inputs();
    in.*of = vectors.view();
    CHECK(sympow_attend(attention, &in, nullptr, x.Y.view(), nullptr, nullptr) == SYMPOW_INVALID_ARGUMENT);
    CHECK_THAT(sympow_error(), contains("is given, must be null with SYMPOW_SCORES_RANDOM"));
  }
  CHECK(x.Y == Tensor<float>(x.Y.shape, 7));
  options.features = std::int64_t{1} << 60;
  REQUIRE(said(sympow_attention_create(&options, &other)) == well);
  in = x.inputs();
  CHECK(sympow_attend(other, &in, nullptr, x.Y.view(), nullptr, nullptr) == SYMPOW_TOO_LARGE);
  CHECK_THAT(sympow_error(), contains("options->features is 1152921504606846976"));
}

TEST_CASE("diagnostics of another shape or type are refused", "[c]") {
  CBatch<float> x(1, 5, 1, 1, 1);
  const sympow_options options = SYMPOW_OPTIONS_INIT;
  Attention attention;
  REQUIRE(said(sympow_attention_create(&options, &attention)) == well);
  const sympow_inputs in = x.inputs();
  const auto refuses = [&](const sympow_tensor* diagnostics, sympow_status status, const char* words) {
    CHECK(sympow_diagnose(attention, &in, nullptr, diagnostics, nullptr, nullptr) == status);
    CHECK_THAT(sympow_error(), contains(words));
  };
  Tensor<double> two({1, 5, 1, 2}), other({1, 4, 1, 3});
  Tensor<float> single({1, 5, 1, 3});
  refuses(nullptr, SYMPOW_INVALID_ARGUMENT, "diagnostics is null");
  refuses(two.view(), SYMPOW_SHAPE_MISMATCH, "diagnostics: shape[3] is 2, must be 3");
  refuses(other.view(), SYMPOW_SHAPE_MISMATCH, "diagnostics: shape[1] is 4, must be 5");
  refuses(single.view(), SYMPOW_INVALID_ARGUMENT,
          "diagnostics: the type has code 2, 32 bits and 1 lanes, must be float64");
}
