// Tokens that are hard on sums of scores, of every kind, and a call's transition with every type that it has.
#pragma once

#include <initializer_list>
#include <vector>

#include <sympow/sympow.hpp>
#include "sequences.hpp"

namespace sympow::test {

/// One of the arguments.
template <class T>
T one_of(Random& random, std::initializer_list<T> choices) {
  return *(choices.begin() + random.integer(0, static_cast<Index>(choices.size()) - 1));
}

inline double power_of_ten(Random& random, double range) { return std::pow(10, random.uniform(-range, range)); }

/// Queries and keys that are hard on sums of powers: nearly orthogonal, parallel, repeated, sparse, all alike, or of
/// any size.
inline void make_hard(Random& random, Tokens& tokens) {
  const Index d = tokens.Q.rows(), T = tokens.size();
  const Eigen::VectorXd axis = random.vector(d).normalized();
  const double cosine = power_of_ten(random, 4) * 1e-5;
  const int kind = static_cast<int>(random.integer(0, 7));
  for (Index t = 0; t < T; ++t) {
    auto q = tokens.Q.col(t), k = tokens.K.col(t);
    if (kind == 0) {  // every key nearly orthogonal to every query
      k -= k.dot(axis) * axis;
      q = q.norm() * (axis + cosine * random.vector(d));
    } else if (kind == 1) {  // all of them parallel, in both directions
      k = random.normal() * axis;
      q = random.normal() * axis;
    } else if (kind == 2 && t > 0 && random.uniform() < .7) {
      k = tokens.K.col(random.integer(0, t - 1));
      q = tokens.K.col(random.integer(0, t));
    } else if (kind == 3) {
      k = k.unaryExpr([&](double x) { return random.uniform() < .6 ? 0 : x; }).eval();
      q = q.unaryExpr([&](double x) { return random.uniform() < .6 ? 0 : x; }).eval();
    } else if (kind == 4) {  // one token over and over
      k = tokens.K.col(0);
      q = tokens.K.col(0);
    } else if (kind == 5) {  // one number over and over
      k.setConstant(axis[0]);
      q.setConstant(cosine);
    }
  }
}

/// Values that cancel, are of any size, all alike, or of one size with both signs.
inline void make_values(Random& random, Tokens& tokens, double range) {
  const int kind = static_cast<int>(random.integer(0, 4));
  for (Index t = 0; t < tokens.size(); ++t) {
    auto v = tokens.V.col(t);
    if (kind == 1) v *= power_of_ten(random, range);
    if (kind == 2) v = v.unaryExpr([](double x) { return std::copysign(1., x); }).eval();
    if (kind == 3) v = v.unaryExpr([&](double x) { return std::copysign(t % 2 == 0 ? 1 : -1 + 1e-3, x); }).eval();
    if (kind == 4) v = tokens.V.col(0);
  }
}

/// A random sequence of any gates, lengths, turning and sizes.
inline Tokens any_tokens(Random& random, Index d, double range) {
  const auto gates = static_cast<Gates>(random.integer(0, 7));
  const auto lengths =
      one_of(random, {Lengths::ordinary, Lengths::ordinary, Lengths::with_zeros, Lengths::mixed, Lengths::falling});
  const auto turning = one_of(random, {Turning::none, Turning::rotary, Turning::channels});
  const Index T = random.uniform() < .3 ? random.integer(1, 6) : random.integer(7, 160);
  Tokens tokens = sequence(random, d, random.integer(1, 3), T, gates, lengths, turning);
  if (random.uniform() < .6) make_hard(random, tokens);
  make_values(random, tokens, range);
  if (random.uniform() < .5) tokens.scale = std::copysign(power_of_ten(random, range / 2), random.normal());
  if (random.uniform() < .2) tokens.K *= power_of_ten(random, range / 2);
  return tokens;
}

/// Queries, keys and values each of one size, from 10^-smallest for values and 10^-largest for the others up to
/// 10^largest. The product of a value below `min() / u` with a weight is no normal number, and sums over such products
/// in a state lose digits that the rule does not know of.
inline void move_to_ends(Random& random, Tokens& tokens, double largest, double smallest) {
  for (Eigen::MatrixXd* x : {&tokens.Q, &tokens.K, &tokens.V})
    if (const double size = x->size() > 0 ? x->cwiseAbs().maxCoeff() : 0; size > 0)
      *x *= std::pow(10, random.uniform(x == &tokens.V ? -smallest : -largest, largest)) / size;
  tokens.scale = 1;
}

/// A Householder chain in the place of what turned keys, with strengths from 0 to 2, both included.
inline void reflect(Random& random, Tokens& tokens) {
  const Index d = tokens.Q.rows(), T = tokens.size();
  tokens.theta.resize(0), tokens.beta.resize(0), tokens.log_a.resize(0, 0);
  tokens.w = random.matrix(d, T).colwise().normalized();
  if (random.uniform() < .3) tokens.w = tokens.w.col(0).replicate(1, T).eval();
  tokens.strength = Eigen::VectorXd::NullaryExpr(
      T, [&] { return random.uniform() < .2 ? static_cast<double>(random.integer(0, 2)) : random.uniform(0, 2); });
}

/// A mask under which queries and keys differ in number, all see all, or a query sees the last keys.
inline void set_mask(Random& random, Tokens& tokens) {
  const Index T = tokens.size(), first = random.integer(0, T);
  const double kind = random.uniform();
  if (kind < .2) {  // queries before the first key
    tokens.mask = causal(-first);
    return;
  }
  if (kind > .75 && tokens.log_a.size() == 0) {
    tokens.mask = sliding_window(random.uniform() < .5 ? random.integer(1, 8) : random.integer(1, T + 1));
    return;
  }
  tokens.mask = kind < .6 ? causal(first) : full();
  if (!tokens.mask.is_full) {
    tokens.Q = tokens.Q.rightCols(T - first).eval();
  } else {
    tokens.log_gamma.resize(0), tokens.log_a.resize(0, 0), tokens.w.resize(0, 0), tokens.strength.resize(0);
  }
  if (tokens.mask != causal() && random.uniform() < .3) {  // queries behind the last key
    const Index keys = random.integer(0, T);
    tokens.K = tokens.K.leftCols(keys).eval();
    tokens.V = tokens.V.leftCols(keys).eval();
  }
}

/// The tokens of these numbers, of a sequence without a mask.
inline Tokens chosen(const Tokens& tokens, const std::vector<Index>& numbers) {
  const auto columns = [&](const Eigen::MatrixXd& x) {
    return x.size() > 0 ? Eigen::MatrixXd(x(Eigen::all, numbers)) : x;
  };
  const auto entries = [&](const Eigen::VectorXd& x) { return x.size() > 0 ? Eigen::VectorXd(x(numbers)) : x; };
  Tokens some = tokens;
  some.Q = columns(tokens.Q), some.K = columns(tokens.K), some.V = columns(tokens.V);
  some.log_a = columns(tokens.log_a), some.w = columns(tokens.w);
  some.log_gamma = entries(tokens.log_gamma), some.beta = entries(tokens.beta),
  some.strength = entries(tokens.strength);
  return some;
}

/// f with the transition of these tokens. `every_type` has them in all types that they can have: no decay, one gate for
/// all tokens, a gate each, and what acts on keys with decay or alone; else decay is always there.
template <class Scalar, bool every_type, class F>
void with_any_transition(const Tokens& tokens, const F& f) {
  const Index T = tokens.tokens();
  const bool decays = tokens.log_gamma.size() > 0;
  const Decay gates = decay(decays ? tokens.log_gamma : Eigen::VectorXd::Zero(T).eval());
  if (tokens.w.size() > 0) {
    const auto chain = householder(tokens.w.cast<Scalar>().eval(), tokens.strength);
    if constexpr (every_type)
      if (!decays) return f(chain);
    return f(gates * chain);
  }
  if (tokens.theta.size() > 0) {
    const Eigen::VectorXd beta = tokens.beta.size() > 0 ? tokens.beta : Eigen::VectorXd::Ones(T).eval();
    const auto turning = rotary(tokens.theta, beta, tokens.pairing);
    if constexpr (every_type)
      if (!decays) return f(turning);
    return f(gates * turning);
  }
  if (tokens.log_a.size() > 0) return f(channel_decay(tokens.log_a) * gates);
  if constexpr (every_type) {
    if (!decays) return f(stationary());
    if (T > 0 && (tokens.log_gamma.array() == tokens.log_gamma[0]).all())
      return f(ConstantDecay::from_log(tokens.log_gamma[0]));
  }
  f(gates);
}

}  // namespace sympow::test
