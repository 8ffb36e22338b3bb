// The ways in which implementations of linear attention are known to fail, one test each. What concerns batches, heads
// and files stands with test_attend.py; that dropped states are noticed stands with the laws.
#include <limits>

#include "catch.hpp"
#include "forms.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Every form by the row rule.
template <class Scalar, class F>
void check(const Tokens& tokens, Index chunk) {
  const auto verdicts = judge_forms<Scalar, F>(tokens, chunk);
  for (std::size_t form = 0; form < verdicts.size(); ++form) {
    CAPTURE(F::degree, sizeof(Scalar), form_names[form], verdicts[form].row, verdicts[form].flagged);
    CHECK(verdicts[form].worst <= 1);
  }
}
void check_both(const Tokens& tokens, Index chunk = 16) {
  check<float, SymmetricPower<4>>(tokens, chunk);
  check<double, SymmetricPower<1>>(tokens, chunk);
  check<double, SymmetricPower<2>>(tokens, chunk);
}

Tokens ordinary(Index T, std::uint64_t seed = 1, Gates gates = Gates::slow, Turning turning = Turning::none) {
  Random random(seed);
  return sequence(random, 4, 3, T, gates, Lengths::ordinary, turning);
}

// Calls f with an engine for every form:  f(name, call), call(tokens, state) -> Y.
template <class F>
void each_form(F&& f) {
  using StateType = State<double, SymmetricPower<2>>;
  f("recurrent, tail 0", StateType(4, 3, 0),
    [](const Tokens& tokens, StateType& state) { return run(tokens, state, 0).Y; });
  f("recurrent", StateType(4, 3), [](const Tokens& tokens, StateType& state) { return run(tokens, state, 0).Y; });
  f("chunked", StateType(4, 3), [](const Tokens& tokens, StateType& state) { return run(tokens, state, 16).Y; });
}

}  // namespace

TEST_CASE("decays far below the type still count where keys compensate them", "[attention]") {
  // b_ij ‖k_j‖² is the same for all j: an exponent that was clamped drops all tokens but the last few.
  for (const double log_gamma : {-1., -3.}) {
    Tokens tokens = ordinary(24);
    tokens.log_gamma = Eigen::VectorXd::Constant(24, log_gamma);
    for (Index j = 0; j < 24; ++j) tokens.K.col(j) *= std::exp(log_gamma / 2 * static_cast<double>(j));
    const ReferenceRows rows = reference_rows(2, tokens, true),
                        clamped = reference_rows(2, tokens.segment({16, 8}), true);
    REQUIRE((rows.last(8).Y - clamped.Y).rightCols(1).norm() > .05);
    check_both(tokens, 7);
  }
}

TEST_CASE("a gate of exactly 1 is no gate", "[attention]") {
  Tokens open = ordinary(100, 2, Gates::open), none = open;
  none.log_gamma.resize(0);
  check_both(open);
  each_form([&](const char* form, auto state, const auto& call) {
    CAPTURE(form);
    auto other = state;
    REQUIRE(call(open, state) == call(none, other));
  });
}

TEST_CASE("closed gates, alone and in a row, at the start, at the end and on a chunk's border", "[attention]") {
  Tokens tokens = ordinary(66, 3);
  for (const Index t : {0, 15, 16, 17, 31, 48, 65}) tokens.log_gamma[t] = -infinity;
  check_both(tokens);
  tokens.log_gamma.setConstant(-infinity);
  check_both(tokens);
}

TEST_CASE("an empty sequence leaves its state as it was", "[attention]") {
  each_form([](const char* form, auto state, const auto& call) {
    CAPTURE(form);
    const Tokens tokens = ordinary(70, 7, Gates::random, Turning::rotary);
    REQUIRE(call(tokens.segment({0, 0}), state).cols() == 0);
    (void)call(tokens.segment({0, 33}), state);
    const auto before = state;
    REQUIRE(call(tokens.segment({33, 0}), state).cols() == 0);
    REQUIRE(state.values() == before.values());
    REQUIRE(state.frame().numbers() == before.frame().numbers());
    REQUIRE(state.log_decay() == before.log_decay());
    REQUIRE(state.tokens() == before.tokens());
  });
}

TEST_CASE("padding with zero keys and open gates neither decays the state nor enters its sums", "[attention]") {
  each_form([](const char* form, auto state, const auto& call) {
    CAPTURE(form);
    (void)call(ordinary(50, 8), state);
    const auto before = state;
    Tokens padding = ordinary(37, 9, Gates::open);
    padding.K.setZero();
    (void)call(padding, state);
    REQUIRE((state.values() - before.values()).norm() <= 1e-15 * before.values().norm());
    REQUIRE((state.normalizer() - before.normalizer()).norm() <= 1e-15 * before.normalizer().norm());
    REQUIRE(state.log_decay() == before.log_decay());
  });
}

TEST_CASE("the state that is left holds the last chunk as well, full or not", "[attention]") {
  for (const Index T : {1, 15, 16, 17, 45, 48}) {
    const Tokens tokens = ordinary(T, 10);
    Eigen::MatrixXd S = Eigen::MatrixXd::Zero(3, 10);
    Matrix<double> phi(10, T);
    SymmetricPower<2>{}.embed(tokens.K, phi);
    for (Index t = 0; t < T; ++t)
      S = (S * std::exp(tokens.log_gamma[t]) + tokens.V.col(t) * phi.col(t).transpose()).eval();
    each_form([&](const char* form, auto state, const auto& call) {
      CAPTURE(form, T);
      (void)call(tokens, state);
      REQUIRE((state.values() - S).norm() <= 1e-14 * S.norm());
    });
  }
}

TEST_CASE("the normaliser is no channel of the values", "[attention]") {
  Tokens tokens = ordinary(70, 12);
  tokens.V.row(2).setOnes();
  Tokens fewer = tokens;
  fewer.V = tokens.V.topRows(2);
  const auto check_rows = [&](const char* form, const Matrix<double>& Y, const Matrix<double>& of_fewer) {
    CAPTURE(form);
    REQUIRE((Y.row(2).array() - 1).abs().maxCoeff() <= 1e-13);
    REQUIRE((Y.topRows(2) - of_fewer).cwiseAbs().maxCoeff() <= 1e-13);
  };
  check_rows("attention", run_attention_form<double, SymmetricPower<2>>(tokens).Y,
             run_attention_form<double, SymmetricPower<2>>(fewer).Y);
  State<double, SymmetricPower<2>> three(4, 3), two(4, 2);
  check_rows("recurrent", run(tokens, three, 0).Y, run(fewer, two, 0).Y);
}
