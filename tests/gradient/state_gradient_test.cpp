// States before a call, losses on the state behind it, and calls one behind the other.
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3, before = 21;

enum class Loss { rows, state, both };

// A sequence whose first tokens have gone into a state.
template <class Scalar, class F, class Make>
struct Resumed {
  Problem<Scalar> all, x;
  Kind kind;
  Options options{.scale = .8, .chunk = 8};
  State<Scalar, F> state;
  StateGradient<Scalar, F> d_final;
  WideMatrix d_sums;

  Resumed(const F& feature, Kind the_kind, const Make& make, Loss loss, bool with_frame, Index T = 40,
          double gates = .1)
      : Resumed(Random(7), feature, std::move(the_kind), make, loss, with_frame, T, gates) {}

  template <class Normalization>
  [[nodiscard]] Definition definition(const F& feature, const Make& make) const {
    GradientCall call = call_of<Normalization>(feature, make(x.parameters), x, options);
    call.initial.resize(e + 1, state.normalizer().size());
    call.initial << wide(state.values()), wide(state.normalizer().transpose());
    call.d_final = d_sums;
    Definition result(std::move(call), kind, x.parameters, unit_roundoff<Scalar>);
    result.excuse(2 * Wide(std::numeric_limits<Scalar>::denorm_min()));  // what has decayed to where the type ends
    return result;
  }

 private:
  Resumed(Random random, const F& feature, Kind the_kind, const Make& make, Loss loss, bool with_frame, Index T,
          double gates)
      : all(random, d, e, before + T, gates),
        x(all.part(before, T)),
        kind(std::move(the_kind)),
        state(feature, d, e),
        d_final(feature, d, e) {
    const Problem<Scalar> first = all.part(0, before);
    static_cast<void>(recurrent(feature, make(first.parameters), first.Q, first.K, first.V, state));
    const bool turns = kind.steps == Steps::rates || kind.steps == Steps::fixed_rates;
    if (turns) kind.frame = state.frame().numbers();
    if (loss == Loss::state) x.dY.setZero();
    if (loss == Loss::rows) return;
    const Index D = state.normalizer().size();
    const Matrix<Scalar> dS = random.matrix<Scalar>(e, D), dZ = random.matrix<Scalar>(1, D);
    d_sums.resize(e + 1, D);
    d_sums << wide(dS), wide(dZ);
    if (turns && with_frame) kind.d_frame = random.vector(d / 2);
    d_final = StateGradient<Scalar, F>(feature, d, dS, dZ.transpose(), kind.d_frame);
  }
};

template <class Normalization, class Scalar, class F, class Make>
void check_resumed(const F& feature, const Kind& kind, const Make& make) {
  for (const Loss loss : {Loss::rows, Loss::state, Loss::both})
    for (const bool with_frame : {false, true})
      for (const double gates : {.1, 3.}) {
        CAPTURE(kind.name, static_cast<int>(loss), with_frame, gates);
        Resumed<Scalar, F, Make> run(feature, kind, make, loss, with_frame, 40, gates);
        REQUIRE(run.state.tokens() == before);
        const Definition definition = run.template definition<Normalization>(feature, make);
        const Matrix<Scalar> dY = definition.dY<Scalar>();
        const Index per_update = kind.steps == Steps::mixing ? 1 : run.options.chunk;
        const auto A = make(run.x.parameters);

        StateGradient<Scalar, F> adjoint = run.d_final;
        const auto found = from_state<Normalization>(feature, A, run.x, dY, run.state, adjoint, run.options);
        const Found one = found_in(found, adjoint);
        require_by_rule(definition.worst(one, per_update));

        const Index middle = 19, rest = 40 - middle;
        const auto left = run.x.part(0, middle), right = run.x.part(middle, rest);
        State<Scalar, F> between = run.state;
        const auto A_left = make(left.parameters);
        static_cast<void>(chunked<Normalization>(feature, A_left, left.Q, left.K, left.V, between, run.options));
        StateGradient<Scalar, F> passed = run.d_final;
        const auto second = from_state<Normalization>(feature, make(right.parameters), right, dY.rightCols(rest),
                                                      between, passed, run.options);
        const auto first =
            from_state<Normalization>(feature, A_left, left, dY.leftCols(middle), run.state, passed, run.options);
        const Found two = joined(found_in(first, passed), found_in(second));
        require_by_rule(definition.worst(two, per_update));
        require_by_rule(definition.worst(two, one, per_update));
      }
}

// Of the transitions that have states of the map.
template <class Normalization, class Scalar, class F>
void check_kinds(const F& feature) {
  one_of_a_kind<Scalar, F>([&](const Kind& kind, const auto& make) {
    if constexpr (has_state_forms<F, decltype(make(std::declval<test::Parameters>()))>)
      check_resumed<Normalization, Scalar>(feature, kind, make);
  });
}

template <class Scalar, class F>
void require_equal_bits(const StateGradient<Scalar, F>& a, const StateGradient<Scalar, F>& b) {
  CHECK(a.values() == b.values());
  CHECK(a.normalizer() == b.normalizer());
  CHECK(a.frame() == b.frame());
}

}  // namespace

TEST_CASE("gradients through states of powers: initial, final, and of two calls for one", "[gradient]") {
  check_kinds<Normalized, double>(SymmetricPower<2>{});
  check_kinds<Unnormalized, double>(SymmetricPower<3>{});
  check_kinds<Normalized, float>(SymmetricPower<4>{});
}

TEST_CASE("gradients through states of linear attention: initial, final, and of two calls for one", "[gradient]") {
  each_transition<double>(
      [](const Kind& kind, const auto& make) { check_resumed<Unnormalized, double>(Linear{}, kind, make); });
}

TEST_CASE("gradients through states of feature maps: initial, final, and of two calls for one", "[gradient]") {
  check_kinds<Normalized, double>(Squares{});
}

TEST_CASE("a loss on later rows turns the frame before them, and one on sums all coordinates", "[gradient]") {
  const auto make = [](const test::Parameters& p) { return rotary(p.theta, p.beta, Pairing::interleaved); };
  using Run = Resumed<double, Linear, decltype(make)>;
  for (const Loss loss : {Loss::rows, Loss::state}) {
    const Run run(Linear{}, {"rates", Steps::rates}, make, loss, false);
    StateGradient<double, Linear> adjoint = run.d_final;
    const auto A = make(run.x.parameters);
    static_cast<void>(from_state(Linear{}, A, run.x, run.x.dY, run.state, adjoint, run.options));
    Eigen::MatrixXd S(e + 1, d), dS(e + 1, d);
    S << run.state.values(), run.state.normalizer().transpose();
    dS << adjoint.values(), adjoint.normalizer().transpose();
    for (Index u = 0; u < d / 2; ++u) {
      const double turned = dS.col(2 * u + 1).dot(S.col(2 * u)) - dS.col(2 * u).dot(S.col(2 * u + 1)),
                   size = dS.middleCols(2 * u, 2).norm() * S.middleCols(2 * u, 2).norm(),
                   gauge = adjoint.frame()[u] + turned;
      CAPTURE(u, turned, gauge, size);
      CHECK(std::abs(adjoint.frame()[u]) > 1e-3 * size);
      // rows do not see where all of their coordinates turn to; what they say of dS is rounded once a token
      CHECK((std::abs(gauge) < 40 * 16 * unit_roundoff<double> * size) == (loss == Loss::rows));
    }
  }
}

TEST_CASE("the spacing of checkpoints changes no bit, whether there are more of them than chunks or not",
          "[gradient]") {
  one_of_a_kind<double, Linear>([](const Kind& kind, const auto& make) {
    CAPTURE(kind.name);
    using Run = Resumed<double, Linear, std::remove_cvref_t<decltype(make)>>;
    for (const Index T : {0, 1, 3, 4, 5, 40}) {
      CAPTURE(T);
      Run run(Linear{}, kind, make, Loss::both, true, T);
      run.options.chunk = 4;
      const auto A = make(run.x.parameters);
      const auto call = [&](Index spacing, auto& adjoint) {
        run.options.checkpoint = spacing;
        return from_state<Unnormalized>(Linear{}, A, run.x, run.x.dY, run.state, adjoint, run.options);
      };
      StateGradient<double, Linear> expected_adjoint = run.d_final;
      const auto expected = call(1, expected_adjoint);
      for (const Index spacing : {2, 3, 7, 100, 0}) {
        CAPTURE(spacing);
        StateGradient<double, Linear> adjoint = run.d_final;
        CHECK(equal_bits(call(spacing, adjoint), expected));
        require_equal_bits(adjoint, expected_adjoint);
      }
    }
  });
}

TEST_CASE("calls of no token, of fewer than a chunk has, and of one chunk", "[gradient]") {
  const auto make = [](const test::Parameters& p) {
    return decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::interleaved);
  };
  const SymmetricPower<2> feature;
  using Run = Resumed<double, SymmetricPower<2>, decltype(make)>;
  for (const Index T : {0, 1, 5, 8}) {
    CAPTURE(T);
    const Run run(feature, {"", Steps::rates}, make, Loss::both, true, T);
    StateGradient<double, SymmetricPower<2>> adjoint = run.d_final;
    const auto A = make(run.x.parameters);
    const auto found = from_state(feature, A, run.x, run.x.dY, run.state, adjoint, run.options);
    CHECK(found.template of<Decay>().log_gamma.size() == T);
    if (T > 0) {
      require_by_rule(run.definition<Normalized>(feature, make).worst(found_in(found, adjoint), run.options.chunk));
      continue;
    }
    CHECK(found.Q.size() + found.K.size() + found.V.size() == 0);
    CHECK(found.scale == 0);
    CHECK(adjoint.values() == run.d_final.values());
    CHECK(adjoint.normalizer() == run.d_final.normalizer());
    CHECK((adjoint.frame() - run.kind.d_frame).norm() <= 1e-12 * (1 + run.kind.d_frame.norm()));
  }
}

// Means of any sign may have parameters whose bounds say little; sums do not.
TEST_CASE("a gradient of a parameter that is twice what it is is found where rows are sums", "[gradient]") {
  const auto check = [](const auto& feature, const Kind& kind, const auto& make) {
    using F = std::remove_cvref_t<decltype(feature)>;
    const Resumed<double, F, std::remove_cvref_t<decltype(make)>> run(feature, kind, make, Loss::rows, true);
    const Definition definition = run.template definition<Unnormalized>(feature, make);
    StateGradient<double, F> adjoint = run.d_final;
    const Found found = found_in(
        from_state<Unnormalized>(feature, make(run.x.parameters), run.x, run.x.dY, run.state, adjoint, run.options),
        adjoint);
    const Index per_update = kind.steps == Steps::mixing ? 1 : run.options.chunk;
    require_by_rule(definition.worst(found, per_update));
    for (const auto part : {&Found::log_a, &Found::theta, &Found::beta, &Found::frame, &Found::w, &Found::strengths,
                            &Found::positions, &Found::frequencies, &Found::basis}) {
      if ((found.*part).size() == 0) continue;
      Found twice = found;
      twice.*part *= 2;
      const Residual worst = definition.worst(twice, per_update);
      CAPTURE(kind.name, worst);
      CHECK(worst.residual > 1e4);
    }
  };
  each_transition<double>([&](const Kind& kind, const auto& make) { check(Linear{}, kind, make); });
}
