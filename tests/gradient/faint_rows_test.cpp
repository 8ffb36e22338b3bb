// Gradients of means of scores that are far below the lengths of their queries and keys.
#include <typeinfo>

#include "catch.hpp"
#include "problem.hpp"
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3, few = 40, many = 100;  // in one block of attention, and in two
constexpr double infinity = std::numeric_limits<double>::infinity();

// Queries have nothing in the last two channels. With the others of keys times 2^-n, and of queries times 2^n, no logit
// changes by a bit: rows and gradients are those of the problem as it was, by a rule that does not know of the long
// keys, but for these powers of two.
template <class Scalar>
Problem<Scalar> short_problem(Index tokens, double gates = .1) {
  Random random(8);
  Problem<Scalar> x(random, d, e, tokens, gates);
  x.Q.bottomRows(2).setZero();
  return x;
}
template <class Scalar>
Problem<Scalar> stretched(Problem<Scalar> x, int n) {
  for (Index t = 0; t < x.tokens(); ++t)
    for (const Index c : {0, 1}) {
      x.K(c, t) = std::ldexp(x.K(c, t), -n);
      x.Q(c, t) = std::ldexp(x.Q(c, t), n);
    }
  return x;
}
Found brought_back(Found found, int n) {
  for (const Index c : {0, 1})
    for (Index t = 0; t < found.K.cols(); ++t) {
      found.K(c, t) = std::ldexp(found.K(c, t), -n);
      found.Q(c, t) = std::ldexp(found.Q(c, t), n);
    }
  return found;
}

template <class Normalization, class Scalar, class F, class A>
void check_stretched(const F& feature, const A& transition, const Problem<Scalar>& x, int n, const Kind& kind,
                     Options options, std::initializer_list<Index> chunks) {
  CAPTURE(typeid(F).name(), typeid(Normalization).name(), typeid(A).name(), n);
  Definition definition = definition_of<Normalization>(feature, transition, x, kind, options);
  definition.excuse(4096 * Wide(std::numeric_limits<Scalar>::denorm_min()));
  const Matrix<Scalar> dY = definition.template dY<Scalar>();
  const auto far = stretched(x, n);
  const auto by_attention = attention_vjp<Normalization>(feature, transition, far.Q, far.K, far.V, dY, options);
  require_by_rule(definition.worst(brought_back(found_in(by_attention), n), 0));
  for (const Index chunk : chunks) {
    CAPTURE(chunk);
    options.chunk = chunk;
    const auto by_chunks = chunked_vjp<Normalization>(feature, transition, far.Q, far.K, far.V, dY, options);
    require_by_rule(definition.worst(brought_back(found_in(by_chunks), n), chunk));
  }
}
// By blocks and by one chunk, whose rows see nothing through a state: of what they see there φ leaves noise.
template <class Normalization, class Scalar, class F>
void check_all(const F& feature, const Problem<Scalar>& x, int n) {
  const auto& p = x.parameters;
  const Index whole = x.tokens();
  check_stretched<Normalization>(feature, stationary(), x, n, {}, {}, {whole});
  check_stretched<Normalization>(feature, decay(p.log_gamma), x, n, {}, {}, {whole, whole + 9});
  check_stretched<Normalization>(feature, rotary(p.theta, p.beta), x, n, {"", Steps::rates}, {}, {whole});
  if (whole == few)  // more tokens are cut where channels have decayed
    check_stretched<Normalization>(feature, channel_decay(p.log_a), x, n, {"", Steps::channels}, {}, {whole});
  check_stretched<Normalization>(feature, rotary(p.theta), x, n, {"", Steps::fixed_rates}, {.mask = full()}, {});
}

}  // namespace

TEST_CASE("gradients of rows nearly orthogonal to all keys", "[gradient]") {
  const auto check = [](auto norm, const auto& feature, const auto& x, std::initializer_list<int> far) {
    for (const int n : far) check_all<decltype(norm)>(feature, x, n);
  };
  for (const Index tokens : {few, many}) {
    check(Normalized{}, SymmetricPower<8>{}, short_problem<float>(tokens), {8, 14, 17, 30, 60});
    check(Normalized{}, SymmetricPower<4>{}, short_problem<float>(tokens), {20, 32, 40, 60});
    check(Normalized{}, SymmetricPower<2>{}, short_problem<float>(tokens), {40, 60});
    check(Normalized{}, SymmetricPower<2>{}, short_problem<double>(tokens), {250, 300, 480});
    check(SignedNormalized{}, SymmetricPower<3>{}, short_problem<double>(tokens), {180, 300, 480});
  }
}

TEST_CASE("gradients of rows orthogonal to their longest keys", "[gradient]") {
  const auto check = [](auto norm, const auto& feature, auto x, std::initializer_list<int> far) {
    for (Index t = 0; t < x.tokens(); ++t)
      if (t % 7 == 3)
        x.K.col(t).head(2).setZero();
      else
        x.K.col(t).tail(2).setZero();
    for (const int n : far) check_all<decltype(norm)>(feature, x, n);
  };
  for (const Index tokens : {few, many}) {
    check(Normalized{}, SymmetricPower<8>{}, short_problem<float>(tokens), {14, 17, 60});
    check(Normalized{}, SymmetricPower<2>{}, short_problem<float>(tokens), {40, 60});
    check(Normalized{}, SymmetricPower<2>{}, short_problem<double>(tokens), {300, 480});
    check(SignedNormalized{}, SymmetricPower<3>{}, short_problem<double>(tokens), {180, 480});
  }
}

// Which of the later keys rows see something of, and so nothing else; or of none, and then only what the gate has left.
TEST_CASE("gradients of faint rows with far larger scores behind a gate that is nearly closed", "[gradient]") {
  const auto check = [](auto norm, const auto& feature, const auto& problem, std::initializer_list<int> far) {
    const auto check_gate = [&](double gate, bool alone, std::initializer_list<Index> chunks) {
      CAPTURE(gate, alone);
      auto x = problem;
      const Index closed = 10, rest = x.tokens() - closed;
      x.K.leftCols(closed) *= 0x1p16f;
      if (alone) x.K.rightCols(rest).topRows(2).setZero();
      x.parameters.log_gamma[closed] = gate;
      for (const int n : far)
        check_stretched<decltype(norm)>(feature, decay(x.parameters.log_gamma), x, n, {}, {}, chunks);
    };
    for (const double gate : {-infinity, -1e5}) check_gate(gate, false, {problem.tokens()});
    for (const double gate : {-5e3, -1e3, -100.}) check_gate(gate, true, {}), check_gate(gate, false, {});
  };
  for (const Index tokens : {few, many}) {
    check(Normalized{}, SymmetricPower<8>{}, short_problem<float>(tokens), {14, 60});
    check(Normalized{}, SymmetricPower<2>{}, short_problem<float>(tokens), {40, 60});
    check(Normalized{}, SymmetricPower<2>{}, short_problem<double>(tokens), {300, 480});
    check(SignedNormalized{}, SymmetricPower<3>{}, short_problem<double>(tokens), {180, 480});
  }
}

// The last row sees only what a gate has left, and its own key, which is orthogonal to it and too heavy for the rows
// before, of which something is asked.
TEST_CASE("a faint row of which nothing is asked hides nothing from the rows before it", "[gradient]") {
  const auto check = [](auto norm, const auto& feature, auto x, double gate) {
    const Index closed = 10, last = x.tokens() - 1;
    x.parameters.log_gamma[closed] = gate;
    x.K.middleCols(closed, last - closed).setZero();
    x.K.col(last).head(2).setZero();
    x.dY.col(last).setZero();
    check_stretched<decltype(norm)>(feature, decay(x.parameters.log_gamma), x, 0, {}, {}, {x.tokens()});
  };
  for (const double gate : {-110., -745.}) {
    check(Normalized{}, SymmetricPower<2>{}, short_problem<float>(few), gate);
    check(Normalized{}, SymmetricPower<8>{}, short_problem<float>(few), gate);
    check(SignedNormalized{}, SymmetricPower<3>{}, short_problem<double>(few), 10 * gate);
  }
}
