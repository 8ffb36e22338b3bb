// A row depends on what it sees, and on all of that: numbers that are not finite, keys of any length, gates of any
// strength.
#include <cmath>
#include <limits>

#include <sympow/sympow.hpp>

#include "catch.hpp"
#include "random.hpp"

#include <sympow/verify/direct.hpp>
#include <sympow/verify/proposition.hpp>

using namespace sympow;
using sympow::test::Random;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(),
                 not_a_number = std::numeric_limits<double>::quiet_NaN();

template <class Scalar>
struct Outcome {
  Matrix<Scalar> Y;
  Diagnostics diagnostics;

  [[nodiscard]] bool flagged(Index i) const { return diagnostics.is_degenerate[i]; }
  [[nodiscard]] bool has_same_bits(const Outcome& other, Index first, Index count) const {
    return Y.middleCols(first, count) == other.Y.middleCols(first, count) && Y.middleCols(first, count).allFinite();
  }
};

/// P of a power, 0 for an exponential score, -1 for an embedded one.
template <class F>
int degree_of(const F&) {
  if constexpr (F::score == Score::power) return F::degree;
  return F::score == Score::exponential ? 0 : -1;
}

/// visit(form, outcome) for every form of a call; states begin empty.
template <class Normalization = DefaultNormalization, class F, class A, class Scalar, class Visit>
void in_every_form(const F& feature, const A& transition, const Matrix<Scalar>& Q, const Matrix<Scalar>& K,
                   const Matrix<Scalar>& V, const Visit& visit) {
  Outcome<Scalar> outcome;
  Options options{.diagnostics = &outcome.diagnostics};
  outcome.Y = attention<Normalization>(feature, transition, Q, K, V, options);
  visit("attention", outcome);
  if constexpr (has_state_forms<F, A>) {
    for (const Index chunk : {1, 7, 64}) {
      options.chunk = chunk;
      State<Scalar, F> state(feature, Q.rows(), V.rows(), chunk == 64 ? 0 : 32);
      outcome.Y = chunked<Normalization>(feature, transition, Q, K, V, state, options);
      visit("chunked", outcome);
    }
    for (const Index tail : {0, 5, 32}) {
      State<Scalar, F> state(feature, Q.rows(), V.rows(), tail);
      outcome.Y = recurrent<Normalization>(feature, transition, Q, K, V, state, options);
      visit(tail == 0 ? "literal" : "recurrent", outcome);
    }
  }
}

template <class Scalar>
struct Sequence {
  explicit Sequence(Index T, unsigned seed = 1)
      : random(seed),
        Q(random.matrix<Scalar>(4, T)),
        K(random.matrix<Scalar>(4, T)),
        V(random.matrix<Scalar>(3, T)),
        log_gamma(-.05 * random.vector(T).cwiseAbs()) {}
  Random random;
  Matrix<Scalar> Q, K, V;
  Eigen::VectorXd log_gamma;
};

/// Sequences whose first tokens are the same: these rows have the same bits, whichever change the others undergo.
template <class Scalar, class F, class Change>
void check_first_rows(const F& feature, Index same, Index T, const std::vector<Change>& changes) {
  const Sequence<Scalar> x(T);
  std::vector<Outcome<Scalar>> expected;
  in_every_form(feature, decay(x.log_gamma), x.Q, x.K, x.V,
                [&](const char*, const Outcome<Scalar>& outcome) { expected.push_back(outcome); });
  for (std::size_t change = 0; change < changes.size(); ++change) {
    Sequence<Scalar> other = x;
    changes[change](other, same);
    std::size_t n = 0;
    in_every_form(feature, decay(other.log_gamma), other.Q, other.K, other.V,
                  [&](const char* form, const Outcome<Scalar>& outcome) {
                    CAPTURE(form, n, same, T, change, sizeof(Scalar), degree_of(feature));
                    CHECK(outcome.has_same_bits(expected[n++], 0, same));
                  });
  }
}

}  // namespace

TEMPLATE_TEST_CASE("no bit of a row changes with what comes later", "[attention]", float, double) {
  using Scalar = TestType;
  using Change = void (*)(Sequence<Scalar>&, Index same);
  const std::vector<Change> changes{[](auto& x, Index same) { x.K.col(same) *= Scalar(1e15); },
                                    [](auto& x, Index same) { x.V.col(same) *= Scalar(1e15); },
                                    [](auto& x, Index same) { x.Q.col(same) *= Scalar(1e15); },
                                    [](auto& x, Index same) { x.K(1, same) = static_cast<Scalar>(not_a_number); },
                                    [](auto& x, Index same) { x.V(1, same) = static_cast<Scalar>(not_a_number); },
                                    [](auto& x, Index same) { x.V(2, same) = static_cast<Scalar>(infinity); },
                                    [](auto& x, Index same) { x.K(0, same) = static_cast<Scalar>(-infinity); },
                                    [](auto& x, Index same) { x.log_gamma[same] = -infinity; },
                                    [](auto& x, Index same) { x.log_gamma[same] = -1000; }};
  for (const auto& [same, T] : {std::pair<Index, Index>{5, 20}, {41, 100}, {63, 64}, {177, 192}, {130, 200}}) {
    check_first_rows<Scalar>(SymmetricPower<2>{}, same, T, changes);
    check_first_rows<Scalar>(SymmetricPower<3>{}, same, T, changes);
    check_first_rows<Scalar>(Exponential{}, same, T, changes);
    check_first_rows<Scalar>(PositiveRandomFeatures(4, 12), same, T, changes);
  }
}

TEST_CASE("behind a gate of 0 everything is gone, and rows are those of a new sequence", "[attention]") {
  using Scalar = float;
  const auto check = [](const auto& feature, Index T, Index reset, const auto& spoil) {
    Sequence<Scalar> x(T);
    x.log_gamma[reset] = -infinity;
    const Index rest = T - reset;
    spoil(x);
    const Matrix<Scalar> Q = x.Q.rightCols(rest), K = x.K.rightCols(rest), V = x.V.rightCols(rest);
    const Eigen::VectorXd log_gamma = x.log_gamma.tail(rest);
    std::vector<Outcome<Scalar>> expected;
    in_every_form(feature, decay(log_gamma), Q, K, V,
                  [&](const char*, const Outcome<Scalar>& outcome) { expected.push_back(outcome); });
    std::size_t n = 0;
    in_every_form(feature, decay(x.log_gamma), x.Q, x.K, x.V, [&](const char* form, const Outcome<Scalar>& outcome) {
      CAPTURE(form, n, T, reset, sizeof(Scalar));
      const Matrix<Scalar> Y = outcome.Y.rightCols(rest);
      CHECK(Y.allFinite());
      const double largest = static_cast<double>(V.cwiseAbs().maxCoeff());
      for (Index i = 0; i < rest; ++i) {
        const double condition = expected[n].diagnostics.condition[i],
                     error = static_cast<double>((Y.col(i) - expected[n].Y.col(i)).norm());
        CHECK(error <=
              8 * static_cast<double>(std::numeric_limits<Scalar>::epsilon()) * condition * largest * std::sqrt(T));
      }
      ++n;
    });
  };
  const auto in_all = [&](const auto& feature, const auto& spoil) {
    check(feature, 30, 9, spoil);
    check(feature, 120, 50, spoil);
    check(feature, 120, 96, spoil);
    check(feature, 300, 240, spoil);  // where a block of the attention form begins
  };
  const auto spoils = [&](const auto& feature) {
    in_all(feature, [](auto& x) { x.K(1, 3) = static_cast<Scalar>(not_a_number); });
    in_all(feature, [](auto& x) { x.V(1, 5) = static_cast<Scalar>(infinity); });
    in_all(feature, [](auto& x) { x.V.leftCols(8).setConstant(static_cast<Scalar>(not_a_number)); });
    in_all(feature, [](auto& x) { x.K.col(8) *= static_cast<Scalar>(1e18); });
  };
  spoils(SymmetricPower<2>{});
  spoils(Exponential{});
  spoils(PositiveRandomFeatures(4, 40));
}

TEST_CASE("a row that sees what is not finite shows it", "[attention]") {
  using Scalar = double;
  const auto check = [](const auto& feature, const auto& spoil, bool one_row) {
    for (const Index T : {1, 20, 100}) {
      Sequence<Scalar> x(T);
      const Index at = T / 2;
      spoil(x, at);
      in_every_form(feature, decay(x.log_gamma), x.Q, x.K, x.V, [&](const char* form, const Outcome<Scalar>& outcome) {
        for (Index i = 0; i < T; ++i) {
          CAPTURE(form, T, i, sizeof(Scalar), static_cast<int>(std::remove_cvref_t<decltype(feature)>::score));
          const bool sees = one_row ? i == at : i >= at;
          CHECK(outcome.Y.col(i).allFinite() == !sees);
          CHECK_FALSE((sees && outcome.flagged(i)));
        }
      });
    }
  };
  const auto in_all = [&](const auto& feature) {
    for (const double x : {not_a_number, infinity, -infinity}) {
      const auto value = static_cast<Scalar>(x);
      check(feature, [&](auto& s, Index at) { s.V(0, at) = value; }, false);
      check(feature, [&](auto& s, Index at) { s.Q(1, at) = value; }, true);
      check(feature, [&](auto& s, Index at) { s.K(1, at) = value; }, false);
    }
  };
  in_all(SymmetricPower<2>{});
  in_all(SymmetricPower<3>{});
}

TEST_CASE("a row of exponential scores whose query is not finite shows it, even if all logits are", "[attention]") {
  using Scalar = float;
  for (const Index T : {1, 20, 200})
    for (const double number : {not_a_number, infinity, -infinity}) {
      Sequence<Scalar> x(T);
      const Index at = T / 2;
      x.K.row(1) = -x.K.row(1).cwiseAbs();  // logits are all -∞, or all ∞
      const auto clean = attention(Exponential{}, decay(x.log_gamma), x.Q, x.K, x.V);
      x.Q(1, at) = static_cast<Scalar>(number);
      in_every_form(Exponential{}, decay(x.log_gamma), x.Q, x.K, x.V, [&](const char*, const Outcome<Scalar>& outcome) {
        CAPTURE(T, number);
        CHECK(outcome.Y.col(at).array().isNaN().all());
        CHECK_FALSE(outcome.flagged(at));
        for (Index i = 0; i < T; ++i)
          if (i != at) CHECK(outcome.Y.col(i) == clean.col(i));
      });
    }
}

TEST_CASE("what every gate has weakened alike keeps its mean", "[attention]") {
  using Scalar = float;
  constexpr Index T = 100;
  const Matrix<Scalar> ones = Matrix<Scalar>::Ones(2, T);
  Matrix<Scalar> keys = ones;
  keys.rightCols(T - 10).setZero();
  const auto check = [&](const Eigen::VectorXd& log_gamma) {
    in_every_form(SymmetricPower<2>{}, decay(log_gamma), ones, keys, ones,
                  [&](const char* form, const Outcome<Scalar>& outcome) {
                    CAPTURE(form, log_gamma[20], log_gamma[50]);
                    for (Index i = 0; i < T; ++i) {
                      CHECK_FALSE(outcome.flagged(i));
                      CHECK(std::abs(static_cast<double>(outcome.Y(0, i)) - 1) <= 1e-5);
                    }
                  });
  };
  Eigen::VectorXd log_gamma = Eigen::VectorXd::Zero(T);
  log_gamma[20] = -1000;
  check(log_gamma);
  check(Eigen::VectorXd::Constant(T, -20));
  check(Eigen::VectorXd::Constant(T, -1e5));
  log_gamma.setConstant(-.5);
  log_gamma[50] = -745;
  check(log_gamma);
}

// Tokens at which all channels nearly close, and no key from then on: rows are those of gates that are open there,
// though what is left is below all numbers of the type.
TEMPLATE_TEST_CASE("what all channels have weakened alike keeps its mean", "[attention]", float, double) {
  using Scalar = TestType;
  constexpr Index T = 60, closed = 20;
  const auto check = [&](const auto& feature, double gate, Index count) {
    using F = std::remove_cvref_t<decltype(feature)>;
    CAPTURE(F::degree, gate, count);
    Sequence<Scalar> x(T);
    x.Q = x.Q.cwiseAbs(), x.K = x.K.cwiseAbs();
    x.K.rightCols(T - closed).setZero();
    Eigen::MatrixXd log_a = -.05 * x.random.template matrix<double>(4, T).cwiseAbs();
    log_a.middleCols(closed, count).setZero();
    const auto rows = verify::direct_attention<Normalized, long double>(feature, channel_decay(log_a), x.Q, x.K, x.V);
    log_a.middleCols(closed, count).setConstant(gate);
    const auto A = channel_decay(log_a);
    // The rule, and in every weight the roundings of its logarithm in double.
    const double most = 1 + F::degree * -gate * static_cast<double>(count) * verify::unit_roundoff<double> /
                                verify::unit_roundoff<Scalar>;
    const auto require = [&](const Matrix<Scalar>& Y) {
      const Matrix<long double> wide = Y.template cast<long double>();
      const auto worst = verify::worst_row<Normalized, F>(rows, wide, rows.Y, verify::unit_roundoff<Scalar>, 1);
      CAPTURE(worst.row, worst.residual);
      CHECK(worst.residual <= most);
    };
    in_every_form(feature, A, x.Q, x.K, x.V, [&](const char* form, const Outcome<Scalar>& outcome) {
      CAPTURE(form);
      require(outcome.Y);
    });
    for (const Index chunk : {1, 16, 64}) {
      CAPTURE(chunk);
      const Index n = closed + count;
      State<Scalar, F> state(feature, 4, 3);
      Workspace<Scalar> workspace;
      absorb(feature, channel_decay(log_a.leftCols(n)), x.K.leftCols(n), x.V.leftCols(n), state, workspace,
             {.chunk = chunk});
      Matrix<Scalar> Y = rows.Y.template cast<Scalar>();
      Y.rightCols(T - n) = chunked<Normalized>(feature, channel_decay(log_a.rightCols(T - n)), x.Q.rightCols(T - n),
                                               x.K.rightCols(T - n), x.V.rightCols(T - n), state, {.chunk = chunk});
      require(Y);
      CHECK(state.tokens() == T);
      CHECK(state.log_decay() == 0);
      CHECK((state.log_channels() - log_a.rowwise().sum()).norm() <= 1e-12 * log_a.norm() * T);
    }
  };
  for (const Index count : {1, 2, 4, 8})
    for (const double gate : {-15., -30., -60., -200., -1e4}) {
      check(SymmetricPower<2>{}, gate, count);
      check(SymmetricPower<4>{}, gate, count);
    }
}

// Channels that close at one token each, and no key from then on: nothing is left of those before.
TEST_CASE("channels that have closed one after the other leave nothing", "[attention]") {
  using Scalar = double;
  constexpr Index T = 40, d = 3, closed = 12;
  const SymmetricPower<2> power;
  const Matrix<Scalar> ones = Matrix<Scalar>::Ones(d, T);
  Matrix<Scalar> keys = ones;
  keys.rightCols(T - 8).setZero();
  for (const double others : {0., -1., -40.}) {
    Eigen::MatrixXd log_a = Eigen::MatrixXd::Zero(d, T);
    for (Index c = 0; c < d; ++c) {
      log_a.col(closed + c).setConstant(others);
      log_a(c, closed + c) = -std::numeric_limits<double>::infinity();
    }
    const auto A = channel_decay(log_a);
    for (const Index tail : {0, 4, 32})
      for (const Index chunk : {0, 1, 3, 8, 13, 64}) {
        CAPTURE(others, tail, chunk);
        State<Scalar, SymmetricPower<2>> state(power, d, d, tail);
        const Matrix<Scalar> Y = chunk == 0
                                     ? recurrent<Unnormalized>(power, A, ones, keys, ones, state)
                                     : chunked<Unnormalized>(power, A, ones, keys, ones, state, {.chunk = chunk});
        CHECK(Y.rightCols(T - closed - d + 1).isZero(0));
        CHECK(Y.leftCols(closed).minCoeff() > 0);
        CHECK(state.values().isZero(0));
      }
  }
}

TEMPLATE_TEST_CASE("a long key that its channel has forgotten does not hide what is left", "[attention]", float,
                   double) {
  using Scalar = TestType;
  constexpr Index T = 400;
  Matrix<Scalar> Q = Matrix<Scalar>::Ones(2, T), K(2, T), V = Matrix<Scalar>::Ones(1, T);
  K.row(0).setConstant(Scalar(.1));
  K.row(1).setZero();
  Eigen::MatrixXd log_a(2, T);
  log_a.row(0).setZero();
  log_a.row(1).setConstant(-.1);
  const double bound = 64 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  for (const double length : {1e4, 1e5, 1e6}) {
    K.col(0) << Scalar(0), static_cast<Scalar>(length);
    in_every_form(SymmetricPower<2>{}, channel_decay(log_a), Q, K, V,
                  [&](const char* form, const Outcome<Scalar>& outcome) {
                    CAPTURE(form, length, sizeof(Scalar));
                    for (Index i = 350; i < T; ++i) {
                      CHECK_FALSE(outcome.flagged(i));
                      CHECK(std::abs(static_cast<double>(outcome.Y(0, i)) - 1) <= bound);
                    }
                  });
  }
}

// A key beyond all digits and numbers of the others whose channel closes at once, or fast: rows behind it see the rest.
TEMPLATE_TEST_CASE("a key that sets the level of a row is one that the row has not forgotten", "[attention]", float,
                   double) {
  using Scalar = TestType;
  constexpr Index T = 400;
  const SymmetricPower<4> power;
  Matrix<Scalar> Q = Matrix<Scalar>::Ones(2, T), K(2, T), V = Matrix<Scalar>::Ones(1, T);
  K.row(0).setConstant(Scalar(.1));
  K.row(1).setZero();
  K.col(0) << Scalar(0), static_cast<Scalar>(std::is_same_v<Scalar, float> ? 1e12 : 1e90);
  V(0, 0) = 7;
  const double bound = 64 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  for (const double gate : {-std::numeric_limits<double>::infinity(), -1000., -400.}) {
    Eigen::MatrixXd log_a = Eigen::MatrixXd::Zero(2, T);
    log_a(1, 1) = gate;
    in_every_form(power, channel_decay(log_a), Q, K, V, [&](const char* form, const Outcome<Scalar>& outcome) {
      CAPTURE(form, gate, sizeof(Scalar));
      for (Index i = 1; i < T; ++i) {
        CHECK_FALSE(outcome.flagged(i));
        CHECK(std::abs(static_cast<double>(outcome.Y(0, i)) - 1) <= bound);
      }
    });
  }
}

TEST_CASE("keys without channels have rows of 0 under channel decay, over several blocks too", "[attention]") {
  const Matrix<double> none(0, 500), values = Matrix<double>::Ones(2, 500);
  const auto A = channel_decay(Eigen::MatrixXd(0, 500));
  CHECK(attention(SymmetricPower<2>{}, A, none, none, values).isZero(0));
}

// Keys whose weights are below all numbers of the type beside those of the keys before them: rows see both.
TEMPLATE_TEST_CASE("light keys between a row and heavy ones hide nothing", "[attention]", float, double) {
  using Scalar = TestType;
  using F = SymmetricPower<2>;
  constexpr Index T = 400, heavy = 100;
  Sequence<Scalar> x(T);
  x.Q = x.Q.cwiseAbs(), x.K = x.K.cwiseAbs();
  x.K.rightCols(T - heavy) *= static_cast<Scalar>(std::is_same_v<Scalar, float> ? 1e-25 : 1e-180);
  for (const double gate : {0., -.5, -3.}) {
    const auto A = decay(Eigen::VectorXd::Constant(T, gate));
    const auto rows = verify::direct_attention<Normalized, long double>(F{}, A, x.Q, x.K, x.V);
    // The rule, and in every weight the roundings of its logarithm in double.
    const double most =
        1 - gate * static_cast<double>(T) * verify::unit_roundoff<double> / verify::unit_roundoff<Scalar>;
    in_every_form(F{}, A, x.Q, x.K, x.V, [&](const char* form, const Outcome<Scalar>& outcome) {
      const Matrix<long double> wide = outcome.Y.template cast<long double>();
      const auto worst = verify::worst_row<Normalized, F>(rows, wide, rows.Y, verify::unit_roundoff<Scalar>, 1);
      CAPTURE(gate, form, worst.row, worst.residual);
      CHECK(worst.residual <= most);
    });
  }
}
