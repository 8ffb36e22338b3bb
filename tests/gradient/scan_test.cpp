// One long head that goes back by segments on several threads.
#include "../threads/long_heads.hpp"
#include "catch.hpp"
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index T = 600;  // segments of 16 tokens, chunks of 8

template <class A>
struct Backward {
  Eigen::MatrixXd dQ, dK, dV, dS;
  Eigen::VectorXd frame;
  Gradients<double, A> rest;
};

// What a head gives from the state before it and a loss on rows, and on the state behind it.
template <class F, class TransitionOf>
auto backward(LongHead<double>& x, const F& feature, const TransitionOf& transition_of, const Eigen::MatrixXd& dY,
              bool with_loss, int threads, bool by_scan, bool rounds = false) {
  using Head = LongHead<double>;
  const Segment first{0, Head::before}, rest{Head::before, T};
  const auto A = transition_of(rest);
  std::vector<State<double, F>> states(1, State<double, F>(feature, Head::d, Head::e));
  static_cast<void>(chunked(feature, transition_of(first), x.Q.leftCols(first.size), x.K.leftCols(first.size),
                            x.V.leftCols(first.size), states[0]));
  states[0].read_as_bf16(rounds);
  Random random(4);
  const Index D = feature.dimension(Head::d);
  std::vector<StateGradient<double, F>> adjoints(1, StateGradient<double, F>(feature, Head::d, Head::e));
  const bool turns = std::remove_cvref_t<decltype(A)>::key_action == KeyAction::turn;
  const Eigen::VectorXd d_frame = turns ? random.vector(Head::d / 2) : Eigen::VectorXd();
  if (with_loss)
    adjoints[0] = StateGradient<double, F>(feature, Head::d, random.matrix(Head::e, D), random.vector(D), d_frame);
  Backward<std::remove_cvref_t<decltype(A)>> found;
  const Options options{.chunk = Head::chunk, .costs = Head::dear};
  if (by_scan) {
    found.dQ.setZero(Head::d, T), found.dK.setZero(Head::d, T), found.dV.setZero(Head::e, T);
    VjpWorkspaces<double> workspaces;
    const auto given = [](const auto& m) { return Heads<const double>::bhtd(m.data(), 1, 1, T, m.rows()); };
    const auto made = [](auto& m) { return Heads<double>::bhtd(m.data(), 1, 1, T, m.rows()); };
    const auto tail = [&](const auto& m) { return Eigen::MatrixXd(m.rightCols(T)); };
    const Eigen::MatrixXd Q = tail(x.Q), K = tail(x.K), V = tail(x.V);
    auto gradients = attend_vjp(feature, A,
                                {.Q = given(Q),
                                 .K = given(K),
                                 .V = given(V),
                                 .dY = given(dY),
                                 .states = states,
                                 .d_states = adjoints,
                                 .dQ = made(found.dQ),
                                 .dK = made(found.dK),
                                 .dV = made(found.dV),
                                 .workspaces = workspaces,
                                 .options = {.form = Form::chunked, .threads = threads, .head = options}});
    found.rest.transition = gradients.transitions[0];
    found.rest.scale = gradients.scale;
  } else {
    found.rest = chunked_vjp(feature, A,
                             {.Q = x.Q.rightCols(T),
                              .K = x.K.rightCols(T),
                              .V = x.V.rightCols(T),
                              .dY = dY,
                              .state = states[0],
                              .d_state = adjoints[0],
                              .options = options});
    found.dQ = found.rest.Q, found.dK = found.rest.K, found.dV = found.rest.V;
  }
  found.dS = adjoints[0].values(), found.frame = adjoints[0].frame();
  return found;
}

constexpr std::array parts = {&Found::Q,    &Found::K, &Found::V,         &Found::log_a,   &Found::theta,
                              &Found::beta, &Found::w, &Found::strengths, &Found::initial, &Found::frame};

template <class A>
Found all_of(const Backward<A>& x) {
  Found found;
  found.Q = wide(x.dQ), found.K = wide(x.dK), found.V = wide(x.dV), found.scale = x.rest.scale;
  found.initial = wide(x.dS), found.frame = wide(x.frame);
  add_parameters(x.rest.transition, found);
  return found;
}

}  // namespace

TEST_CASE("a long head goes back by segments: its gradients, and the same bits on any number of threads",
          "[gradient]") {
  LongHead<double> x(T);
  Random random(2);
  const Eigen::MatrixXd dY = random.matrix(LongHead<double>::e, T);
  for (const bool closes : {false, true}) {
    if (closes)
      for (const Index t : {0, 40, 41, 70, 333, 620}) x.log_gamma[t] = -std::numeric_limits<double>::infinity();
    const auto check = [&](const std::string& name, const auto& feature, const auto& transition_of) {
      for (const bool with_loss : {false, true}) {
        CAPTURE(name, with_loss, closes);
        const auto whole = backward(x, feature, transition_of, dY, with_loss, 1, false);
        const auto one = backward(x, feature, transition_of, dY, with_loss, 1, true);
        const Found expected = all_of(whole), found = all_of(one);
        const Wide tolerance = 1e3L * unit_roundoff<double>;
        const auto near = [&](const WideMatrix& a, const WideMatrix& b) {
          return a.size() == b.size() &&
                 (a.size() == 0 || (a - b).cwiseAbs().maxCoeff() <= tolerance * b.cwiseAbs().maxCoeff());
        };
        for (const auto part : parts) CHECK(near(found.*part, expected.*part));
        for (std::size_t n = 0; n < found.log_gamma.size(); ++n) CHECK(near(found.log_gamma[n], expected.log_gamma[n]));
        for (const int threads : {2, 3, 8}) {
          const auto many = all_of(backward(x, feature, transition_of, dY, with_loss, threads, true));
          for (const auto part : parts) CHECK((many.*part == found.*part));
          CHECK(many.scale == found.scale);
        }
        const auto rounds = all_of(backward(x, feature, transition_of, dY, with_loss, 1, true, true));
        for (const auto part : parts) CHECK((rounds.*part == found.*part));
      }
    };
    // Gates alone and fixed rates are parts of what else there is.
    x.each_kind([&](const std::string& name, const auto& feature, const auto& transition_of) {
      using A = std::remove_cvref_t<decltype(transition_of(Segment{}))>;
      if constexpr (A::key_action != KeyAction::none && !std::same_as<A, Rotary>) check(name, feature, transition_of);
    });
  }
}

TEST_CASE("gradients of a head that goes back by segments are those of the definition", "[gradient]") {
  constexpr Index d = 4, e = 3, tokens = 272;  // 17 segments of 16
  const auto check = [](auto norm, const auto& feature, const auto& x, const Kind& kind, const auto& A) {
    using Normalization = decltype(norm);
    using Scalar = typename std::remove_cvref_t<decltype(x.Q)>::Scalar;
    CAPTURE(kind.name);
    const Options options{.chunk = 8, .costs = LongHead<Scalar>::dear};
    REQUIRE(sympow::detail::scanned_chunk(head_shape(feature, A, tokens, d, e), tokens,
                                          {.form = Form::chunked, .head = options}) == 8);
    const Definition definition = definition_of<Normalization>(feature, A, x, kind, options);
    const Matrix<Scalar> dY = definition.template dY<Scalar>();
    Gradients<Scalar, std::remove_cvref_t<decltype(A)>> found;
    found.Q.setZero(d, tokens), found.K.setZero(d, tokens), found.V.setZero(e, tokens);
    VjpWorkspaces<Scalar> workspaces;
    const auto given = [](const auto& m) { return Heads<const Scalar>::bhtd(m.data(), 1, 1, tokens, m.rows()); };
    const auto made = [](auto& m) { return Heads<Scalar>::bhtd(m.data(), 1, 1, tokens, m.rows()); };
    auto gradients = attend_vjp<Normalization>(feature, A,
                                               {.Q = given(x.Q),
                                                .K = given(x.K),
                                                .V = given(x.V),
                                                .dY = given(dY),
                                                .dQ = made(found.Q),
                                                .dK = made(found.K),
                                                .dV = made(found.V),
                                                .workspaces = workspaces,
                                                .options = {.form = Form::chunked, .threads = 2, .head = options}});
    found.transition = gradients.transitions[0];
    found.scale = gradients.scale;
    const Residual worst = definition.worst(found_in(found), kind.steps == Steps::mixing ? 1 : 16);
    INFO(worst);
    CHECK(worst.holds());
  };
  Random random(5);
  const Problem<double> x(random, d, e, tokens, .05);
  const Problem<float> y(random, d, e, tokens, .05);
  const test::Parameters& p = x.parameters;
  check(Normalized{}, SymmetricPower<2>{}, x, {"decay * rates", Steps::rates},
        decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::interleaved));
  check(Normalized{}, SymmetricPower<2>{}, y, {"channels", Steps::channels}, channel_decay(y.parameters.log_a));
  check(SignedNormalized{}, Linear{}, x, {"decay * reflections", Steps::mixing},
        decay(p.log_gamma) * householder(p.w, p.strengths));
}
