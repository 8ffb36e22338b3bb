// States in the layout of a device: plain monomials against their definition, and rows after a way there and back.
#include <sympow/attention/device_state.hpp>

#include "catch.hpp"
#include "forms.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 5, e = 3;

template <class Scalar, int P>
State<Scalar, SymmetricPower<P>> after(const Tokens& tokens, Index tail) {
  State<Scalar, SymmetricPower<P>> state(tokens.K.rows(), e, tail);
  (void)run<Unnormalized>(tokens, state, 0);
  return state;
}

// Σ_j b_j f(j) of the weights after the last token, and Σ_j |b_j f(j)|.
std::pair<Real, Real> weighted_sum(const Tokens& tokens, const auto& f) {
  Real sum = 0, absolute = 0, log_b = 0;
  for (Index j = tokens.K.cols() - 1; j >= 0; --j) {
    const Real term = std::exp(log_b) * f(j);
    sum += term, absolute += std::abs(term);
    if (tokens.log_gamma.size() > 0) log_b += static_cast<Real>(tokens.log_gamma[j]);
  }
  return {sum, absolute};
}

template <int P>
void check_monomials(const Tokens& tokens, Index tail) {
  const DeviceState device = device_state(after<double, P>(tokens, tail));
  const Real unit =
      device.level == -std::numeric_limits<double>::infinity() ? 1 : std::exp2(std::ceil(Real(device.level)));
  // One rounding to float, sums in double of entries whose φ has P factors and a root, and what is below float.
  const auto check = [&](float actual, const auto& f, const std::string& what) {
    const auto [sum, absolute] = weighted_sum(tokens, f);
    const Real bound = 0x1p-24L * std::abs(sum) / unit +
                       static_cast<Real>(2 * tokens.K.cols() + 8 * P + 8) * 0x1p-53L * absolute / unit + 0x1p-149L;
    INFO(what << ", P = " << P << ": " << actual << " for " << static_cast<double>(sum / unit));
    REQUIRE(std::abs(static_cast<Real>(actual) - sum / unit) <= bound);
  };
  Index n = 0;
  for (const auto& alpha : MultiIndices<P>(d)) {
    const auto monomial = [&](Index j) {
      Real product = 1;
      for (const Index i : alpha) product *= static_cast<Real>(tokens.K(i, j));
      return product;
    };
    check(device.normaliser[static_cast<std::size_t>(n)], monomial, "Z");
    for (Index c = 0; c < e; ++c)
      check(
          device.sums[static_cast<std::size_t>(n * e + c)],
          [&](Index j) { return monomial(j) * static_cast<Real>(tokens.V(c, j)); }, "S");
    ++n;
  }
  check(device.mass, [&](Index j) { return std::pow(tokens.K.col(j).cast<Real>().norm(), Real(P)); }, "mass");
}

template <int P>
void check_rows(const Tokens& tokens, Index before) {
  const Index n = tokens.size() - before;
  const auto first = after<double, P>(tokens.segment({0, before}), 16);
  State<float, SymmetricPower<P>> state =
      state_of_device<float, P>(device_state(first), tokens.K.rows(), e, first.tokens(), first.log_decay());
  REQUIRE(state.tokens() == before);
  REQUIRE(state.log_decay() == first.log_decay());
  // Two roundings to float of S and Z, one of A; both tails are in the sums.
  const auto values = first.values(), same_values = state.values().template cast<double>().eval();
  const auto normalizer = first.normalizer(), same_normalizer = state.normalizer().template cast<double>().eval();
  REQUIRE(((same_values - values).cwiseAbs().array() <= 0x1p-22 * values.cwiseAbs().array()).all());
  REQUIRE(((same_normalizer - normalizer).cwiseAbs().array() <= 0x1p-22 * normalizer.cwiseAbs().array()).all());
  const auto& sums = sympow::detail::StateAccess::content(state).sums;
  const auto [mass, same] = weighted_sum(
      tokens.segment({0, before}), [&](Index j) { return std::pow(tokens.K.col(j).cast<Real>().norm(), Real(P)); });
  REQUIRE(std::abs(static_cast<Real>(sums.A) * std::exp2(std::ceil(Real(sums.L))) - mass) <= 0x1p-23L * same);
  const auto result = run<Unnormalized>(tokens.segment({before, n}), state, 0);
  const ReferenceRows rows = reference_rows(P, tokens, false).last(n);
  const Verdict verdict = judge<float>(rows, result.Y, result.diagnostics, 1);
  INFO("P = " << P << ", row " << verdict.row);
  REQUIRE(verdict.worst <= 1);
  REQUIRE(verdict.compared > 0);
}

}  // namespace

TEST_CASE("a device's state is sums of plain monomials", "[attention]") {
  Random random(41);
  for (const Lengths lengths : all_lengths)
    for (const Gates gates : all_gates) {
      const Tokens tokens = sequence(random, d, e, 40, gates, lengths, Turning::none);
      check_monomials<1>(tokens, 0);
      check_monomials<2>(tokens, 7);
      check_monomials<3>(tokens, 64);
      check_monomials<4>(tokens, 0);
    }
}

TEST_CASE("a state that was on a device goes on as before", "[attention]") {
  Random random(42);
  for (const Gates gates : {Gates::none, Gates::slow, Gates::random, Gates::mixed}) {
    Tokens tokens = sequence(random, d, e, 90, gates, Lengths::ordinary, Turning::none);
    tokens.round_to<float>();
    check_rows<1>(tokens, 60);
    check_rows<2>(tokens, 60);
    check_rows<4>(tokens, 60);
  }
}

TEST_CASE("angles go to a device and come back", "[attention]") {
  Random random(44);
  for (const Pairing pairing : {Pairing::interleaved, Pairing::half_split}) {
    Tokens tokens = sequence(random, 6, e, 90, Gates::slow, Lengths::ordinary, Turning::rotary);
    tokens.pairing = pairing;
    tokens.round_to<float>();
    check_rows<2>(tokens, 60);
    const auto state = after<double, 2>(tokens.segment({0, 60}), 16);
    const DeviceState device = device_state(state);
    REQUIRE(device.turns.size() == 3);
    Eigen::VectorXd mu = Eigen::VectorXd::Zero(3);
    for (Index t = 0; t < 60; ++t) mu += (tokens.beta.size() > 0 ? tokens.beta[t] : 1) * tokens.theta;
    for (Index j = 0; j < 3; ++j) {
      const double turns = device.turns[static_cast<std::size_t>(j)];
      REQUIRE(std::abs(turns) <= .5);
      // A rounding a token of sums up to 60 times the largest, here and there, and some to turns.
      REQUIRE(std::abs(std::remainder(turns - mu[j] / (2 * std::numbers::pi), 1)) <= 200 * 0x1p-53 * 60);
    }
    const auto back = state_of_device<double, 2>(device, 6, e, 60);
    REQUIRE(back.frame().kind() == Frame::angles);
    REQUIRE((back.frame().numbers() - state.frame().numbers()).cwiseAbs().maxCoeff() <= 4 * 0x1p-53 * std::numbers::pi);
  }
}

TEST_CASE("the empty state of a device is empty", "[attention]") {
  const State<float, SymmetricPower<2>> nothing(d, e);
  const DeviceState device = device_state(nothing);
  REQUIRE(device.level == -std::numeric_limits<double>::infinity());
  REQUIRE(device.mass == 0);
  DeviceState with_rest = device;  // what an empty state has in memory is not looked at
  with_rest.sums[3] = std::numeric_limits<float>::quiet_NaN();
  const auto back = state_of_device<float, 2>(with_rest, d, e, 0);
  REQUIRE(back.values().isZero(0));
  REQUIRE(back.normalizer().isZero(0));
}

TEST_CASE("what is no state of a device is refused", "[attention]") {
  Random random(43);
  using StateType = State<double, SymmetricPower<2>>;
  const StateType other(4, 3, 32, Frame("block entries", Eigen::VectorXd::Zero(2)));
  REQUIRE_THROWS_WITH(device_state(other), contains("those of the state turn otherwise"));
  const StateType few(6, 3, 32, Frame(Frame::angles, Eigen::VectorXd::Zero(2)));
  REQUIRE_THROWS_AS(device_state(few), FrameMismatch);
  const DeviceState device = device_state(StateType(d, e));
  const auto back = [](const DeviceState& of, Index keys, Index values, Index tokens, double log_decay) {
    return state_of_device<double, 2>(of, keys, values, tokens, log_decay);
  };
  REQUIRE_THROWS_WITH(back(device, d, e + 1, 0, 0), contains("sums of the device's state is 45, must be 60"));
  DeviceState short_one = device;
  short_one.normaliser.pop_back();
  REQUIRE_THROWS_AS(back(short_one, d, e, 0, 0), ShapeMismatch);
  DeviceState turned = device;
  turned.turns = {.1, .2};
  REQUIRE_THROWS_WITH(back(turned, d, e, 0, 0), contains("turns of the device's state is 2, must be 0 (d/2)"));
  REQUIRE_THROWS_WITH(back(device, d, e, -1, 0), contains("tokens is -1"));
  REQUIRE_THROWS_WITH(back(device, d, e, 1, .5), contains("log_decay is 0.5"));
  REQUIRE_THROWS_AS(back(device, d, e, 1, std::numeric_limits<double>::quiet_NaN()), InvalidArgument);
}
