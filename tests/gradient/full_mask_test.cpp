// Gradients under masks in which every query sees every key.
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3;

// Transitions without decay, as a full mask needs.
template <class Scalar, class Visit>
void each_without_decay(const Visit& visit) {
  using P = test::Parameters;
  visit(Kind{"decay of 1"}, [](const P& p) { return decay(0 * p.log_gamma); });
  visit(Kind{"rates, halves", Steps::rates, Pairing::half_split},
        [](const P& p) { return constant_decay(1) * rotary(p.theta, p.beta, Pairing::half_split); });
  visit(Kind{"positions", Steps::positions}, [](const P& p) {
    return structured_rotary(
        CommutingGenerators<Scalar>::from_frequencies(p.frequencies).in_basis(p.basis.cast<Scalar>()), p.positions);
  });
}

template <class Normalization, class Scalar, class F>
void check_map(const F& feature, Index T_q, Index T_k, Index offset) {
  Random random(11);
  const auto x = Problem<Scalar>::seen(random, d, e, T_q, T_k, offset);
  each_without_decay<Scalar>([&](const Kind& kind, const auto& make) {
    CAPTURE(T_q, T_k, offset);
    check_forms<Normalization>(feature, make(x.parameters), x, kind, {.scale = .8, .mask = full(offset)}, 0,
                               {1, 7, 64});
  });
}

}  // namespace

TEST_CASE("gradients under a full mask are those of the definition", "[gradient]") {
  for (const auto& [T_q, T_k, offset] : {std::tuple{30, 30, 0}, {40, 17, 0}, {9, 30, 0}, {20, 30, 5}, {12, 10, 30}}) {
    check_map<Normalized, double>(SymmetricPower<2>{}, T_q, T_k, offset);
    check_map<SignedNormalized, double>(Linear{}, T_q, T_k, offset);
    check_map<Normalized, double>(Squares{}, T_q, T_k, offset);
    check_map<Unnormalized, float>(Exponential{}, T_q, T_k, offset);
  }
}

TEST_CASE("gradients under a full mask through blocks of attention are those of the definition", "[gradient]") {
  check_map<Normalized, double>(SymmetricPower<2>{}, 150, 170, 0);
  check_map<Unnormalized, float>(Exponential{}, 170, 150, 0);
}

TEST_CASE("a state under a full mask, and a loss on the one behind it", "[gradient]") {
  const auto check = [](auto norm, const auto& feature, const Kind& kind, const auto& make, Index T_q) {
    using F = std::remove_cvref_t<decltype(feature)>;
    using Normalization = decltype(norm);
    const Index before = 9, T_k = 20, D = feature.dimension(d);
    for (const bool with_loss : {false, true}) {
      CAPTURE(kind.name, T_q, with_loss);
      Random random(3);
      const Problem<double> all(random, d, e, before + std::max(T_k, T_q), .1), first = all.part(0, before);
      Problem<double> x = all.part(before, std::max(T_k, T_q));
      for (auto* rows : {&x.Q, &x.dY}) *rows = rows->leftCols(T_q).eval();
      for (auto* keys : {&x.K, &x.V}) *keys = keys->leftCols(T_k).eval();
      State<double, F> state(feature, d, e);
      static_cast<void>(chunked(feature, make(first.parameters), first.Q, first.K, first.V, state));
      Kind resumed = kind;
      const bool turns = kind.steps == Steps::rates;
      if (turns) resumed.frame = state.frame().numbers();
      const Options options{.chunk = 6, .mask = full()};
      const auto A = make(x.parameters);
      GradientCall call = call_of<Normalization>(feature, A, x, options);
      call.initial.resize(e + 1, D);
      call.initial << wide(state.values()), wide(state.normalizer().transpose());
      StateGradient<double, F> adjoint(feature, d, e);
      // The state goes on by the keys' tokens: of a loss on it the definition knows where there are no later queries.
      if (with_loss && T_q <= T_k) {
        const Eigen::MatrixXd dS = random.matrix(e, D), dZ = random.matrix(1, D);
        call.d_final.resize(e + 1, D);
        call.d_final << wide(dS), wide(dZ);
        if (turns) resumed.d_frame = random.vector(d / 2);
        adjoint = StateGradient<double, F>(feature, d, dS, dZ.transpose(), resumed.d_frame);
      }
      const Definition definition(std::move(call), resumed, x.parameters, unit_roundoff<double>);
      const auto found = from_state<Normalization>(feature, A, x, definition.dY<double>(), state, adjoint, options);
      require_by_rule(definition.worst(found_in(found, adjoint), options.chunk));
    }
  };
  for (const Index T_q : {20, 11, 26}) {
    check(
        Unnormalized{}, Linear{}, {"rates", Steps::rates},
        [](const test::Parameters& p) { return rotary(p.theta, p.beta, Pairing::interleaved); }, T_q);
    check(
        Normalized{}, SymmetricPower<2>{}, {"rates", Steps::rates},
        [](const test::Parameters& p) { return rotary(p.theta, p.beta, Pairing::interleaved); }, T_q);
  }
}
