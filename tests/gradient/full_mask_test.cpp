// Gradients under masks in which every query sees every key.
#include "batches.hpp"
#include "catch.hpp"
#include "problem.hpp"
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3;

// Transitions without decay, as a full mask needs.
template <class Scalar, class Visit>
void each_without_decay(const Visit& visit) {
  using P = test::Parameters;
  visit(Kind{"stationary"}, [](const P&) { return stationary(); });
  visit(Kind{"decay of 1"}, [](const P& p) { return decay(0 * p.log_gamma); });
  visit(Kind{"fixed rates", Steps::fixed_rates}, [](const P& p) { return rotary(p.theta, Pairing::interleaved); });
  visit(Kind{"rates, halves", Steps::rates, Pairing::half_split},
        [](const P& p) { return constant_decay(1) * rotary(p.theta, p.beta, Pairing::half_split); });
  visit(Kind{"positions", Steps::positions}, [](const P& p) {
    return structured_rotary(
        CommutingGenerators<Scalar>::from_frequencies(p.frequencies).in_basis(p.basis.cast<Scalar>()), p.positions);
  });
}

// T_q queries from `offset` on, T_k keys.
template <class Scalar>
Problem<Scalar> problem(Index T_q, Index T_k, Index offset) {
  Random random(11);
  Problem<Scalar> x(random, d, e, std::max(T_k, T_q + offset), .1);
  for (auto* rows : {&x.Q, &x.dY}) *rows = rows->leftCols(T_q).eval();
  for (auto* keys : {&x.K, &x.V}) *keys = keys->leftCols(T_k).eval();
  return x;
}

template <class Normalization, class Scalar, class F>
void check_map(const F& feature, Index T_q, Index T_k, Index offset) {
  const Problem<Scalar> x = problem<Scalar>(T_q, T_k, offset);
  each_without_decay<Scalar>([&](const Kind& kind, const auto& make) {
    CAPTURE(kind.name, T_q, T_k, offset);
    const auto A = make(x.parameters);
    Options options{.scale = .8, .mask = full(offset)};
    const Definition definition = definition_of<Normalization>(feature, A, x, kind, options);
    const Matrix<Scalar> dY = definition.dY<Scalar>();
    require_by_rule(definition.worst(found_in(attention_vjp<Normalization>(
                                         feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = options})),
                                     0));
    if constexpr (has_state_forms<F, std::remove_const_t<decltype(A)>>)
      if (offset == 0)
        for (const Index chunk : {1, 7, 64}) {
          CAPTURE(chunk);
          options.chunk = chunk;
          const auto found = found_in(
              chunked_vjp<Normalization>(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = options}));
          require_by_rule(definition.worst(found, chunk));
        }
  });
}

}  // namespace

TEST_CASE("gradients under a full mask are those of the definition", "[gradient]") {
  for (const auto& [T_q, T_k, offset] : {std::tuple{30, 30, 0}, {40, 17, 0}, {9, 30, 0}, {20, 30, 5}, {12, 10, 30}}) {
    check_map<Normalized, double>(SymmetricPower<2>{}, T_q, T_k, offset);
    check_map<Unnormalized, double>(SymmetricPower<3>{}, T_q, T_k, offset);
    check_map<SignedNormalized, double>(Linear{}, T_q, T_k, offset);
    check_map<Normalized, double>(Exponential{}, T_q, T_k, offset);
    check_map<Normalized, double>(Squares{}, T_q, T_k, offset);
    check_map<Normalized, float>(SymmetricPower<2>{}, T_q, T_k, offset);
    check_map<Normalized, float>(SymmetricPower<4>{}, T_q, T_k, offset);
    check_map<Unnormalized, float>(Exponential{}, T_q, T_k, offset);
  }
}

TEST_CASE("gradients under a full mask through blocks of attention are those of the definition", "[gradient]") {
  check_map<Normalized, double>(SymmetricPower<2>{}, 150, 170, 0);
  check_map<Normalized, float>(Exponential{}, 170, 150, 0);
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
      const auto found = chunked_vjp<Normalization>(feature, A,
                                                    {.Q = x.Q,
                                                     .K = x.K,
                                                     .V = x.V,
                                                     .dY = definition.dY<double>(),
                                                     .state = state,
                                                     .d_state = adjoint,
                                                     .options = options});
      require_by_rule(definition.worst(found_in(found, adjoint), options.chunk));
    }
  };
  for (const Index T_q : {20, 11, 26}) {
    check(Normalized{}, SymmetricPower<2>{}, {"stationary"}, [](const test::Parameters&) { return stationary(); }, T_q);
    check(
        Unnormalized{}, Linear{}, {"rates", Steps::rates},
        [](const test::Parameters& p) { return rotary(p.theta, p.beta, Pairing::interleaved); }, T_q);
    check(
        Normalized{}, SymmetricPower<2>{}, {"rates", Steps::rates},
        [](const test::Parameters& p) { return rotary(p.theta, p.beta, Pairing::interleaved); }, T_q);
    check(
        Normalized{}, Squares{}, {"rates", Steps::rates},
        [](const test::Parameters& p) { return rotary(p.theta, p.beta, Pairing::interleaved); }, T_q);
  }
}

TEST_CASE("gradients of a batch under a full mask are those of its heads", "[gradient]") {
  const std::vector<Index> lengths = {30, 17, 0};
  const Index H = 4, groups = 2;
  for (const Form form : {Form::attention, Form::chunked, Form::automatic}) {
    RandomBatch<double> x(Order::bthd, lengths, H, groups, 5);
    BatchData<double> dY(Order::bthd, lengths, H, x.e, 0), dQ(Order::bthd, lengths, H, x.d, 7),
        dK(Order::bthd, lengths, groups, x.d, 7), dV(Order::bthd, lengths, groups, x.e, 7);
    Random random(8);
    for (double& y : dY.data) y = random.normal();
    VjpWorkspaces<double> workspaces;
    const auto A = rotary(x.theta, Pairing::interleaved);
    const Options options{.chunk = 8, .mask = full()};
    const auto gradients = attend_vjp<Normalized>(SymmetricPower<2>{}, A,
                                                  {.Q = x.Q.heads(),
                                                   .K = x.K.heads(),
                                                   .V = x.V.heads(),
                                                   .dY = dY.heads(),
                                                   .dQ = dQ.heads(),
                                                   .dK = dK.heads(),
                                                   .dV = dV.heads(),
                                                   .workspaces = workspaces,
                                                   .options = {.form = form, .threads = 1, .head = options}});
    for (Index b = 0; b < 3; ++b)
      for (Index h = 0; h < H; ++h) {
        const auto one = attention_vjp<Normalized>(SymmetricPower<2>{}, A,
                                                   {.Q = x.Q.heads().head(b, h),
                                                    .K = x.K.heads().head(b, h / 2),
                                                    .V = x.V.heads().head(b, h / 2),
                                                    .dY = dY.heads().head(b, h),
                                                    .options = options});
        const Eigen::MatrixXd found = dQ.heads().head(b, h);
        CHECK((found.size() == 0 || (found - one.Q).norm() <= 1e-12 * one.Q.norm()));
        const Eigen::VectorXd theta = gradients.transitions[static_cast<std::size_t>(b * H + h)].theta;
        CHECK((theta - one.transition.theta).norm() <= 1e-10 * (1 + one.transition.theta.norm()));
      }
  }
}

TEST_CASE("checkpoints do not go with a full mask", "[gradient]") {
  const auto x = problem<double>(9, 9, 0);
  const SymmetricPower<2> feature;
  State<double, SymmetricPower<2>> state(d, e);
  StateGradient<double, SymmetricPower<2>> adjoint(d, e);
  Checkpoints<double, SymmetricPower<2>> checkpoints;
  Workspace<double> workspace;
  VjpWorkspace<double> vjp_workspace;
  Eigen::MatrixXd Y(e, 9);
  chunked(feature, stationary(), x.Q, x.K, x.V, state, {Y, checkpoints}, workspace);
  Gradients<double, Stationary> gradients;
  CHECK_THROWS_WITH(gradients = chunked_vjp(feature, stationary(),
                                            {.Q = x.Q,
                                             .K = x.K,
                                             .V = x.V,
                                             .dY = x.dY,
                                             .tape = checkpoints,
                                             .d_state = adjoint,
                                             .reuse = gradients,
                                             .workspace = vjp_workspace,
                                             .options = {.mask = full()}}),
                    contains("checkpoints go with the mask causal()"));
}
