// The arrays of one run, checked against each other, and the heads inside of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include <sympow/systems/peer_parameters.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

#include <sympow/io/npy.hpp>
#include "arguments.hpp"

namespace attend_npy {

using namespace sympow::io;  // arrays of numpy

using sympow::Index;

/// Where the heads of arrays (T, n), (H, T, n) or (B, T, H, n) are.
struct Layout {
  std::size_t axes = 2;
  Index batches = 1, heads = 1, tokens = 0;

  [[nodiscard]] Index count() const { return batches * heads; }  ///< heads in all; head n is that of batch n / heads
  /// The first number of head n, and the distance of its tokens, in an array with `width` numbers a token and head.
  [[nodiscard]] Index first(Index n, Index width) const {
    return axes == 4 ? ((n / heads) * tokens * heads + n % heads) * width : n * tokens * width;
  }
  [[nodiscard]] Index step(Index width) const { return axes == 4 ? heads * width : width; }

  /// The tokens of head n as columns, in place.
  template <class Number>
  [[nodiscard]] auto head(Number* numbers, Index n, Index width) const {
    using Plain = sympow::Matrix<std::remove_const_t<Number>>;
    using Columns = std::conditional_t<std::is_const_v<Number>, const Plain, Plain>;
    return Eigen::Map<Columns, Eigen::Unaligned, Eigen::OuterStride<>>(
        tokens == 0 ? nullptr : numbers + first(n, width), width, tokens, Eigen::OuterStride<>(step(width)));
  }
};

/// Scalar is the type that a chain is computed in.
template <class Scalar>
using Transition = std::variant<sympow::Decay, sympow::TransitionProduct<sympow::Decay, sympow::Rotary>,
                                sympow::TransitionProduct<sympow::Decay, sympow::Householder<Scalar>>>;

struct Problem {
  Arguments arguments;
  Array Q, K, V;
  std::optional<Array> log_gate, theta, beta, W, strength;
  Layout layout;
  Index d = 0, e = 0;
  Form form = Form::attention;  // that was chosen

  /// What happens between the tokens of head n.
  template <class Scalar>
  [[nodiscard]] Transition<Scalar> transition(Index n) const {
    const auto numbers = [&](const std::optional<Array>& array, double otherwise) {
      Eigen::VectorXd x = Eigen::VectorXd::Constant(layout.tokens, otherwise);
      if (array)
        for (Index t = 0; t < layout.tokens; ++t)
          x[t] = (*array)[static_cast<std::size_t>(layout.first(n, 1) + t * layout.step(1))];
      return x;
    };
    sympow::Decay gates = sympow::decay(numbers(log_gate, 0));
    if (W) {
      const auto vectors = [&](const auto& entries) -> sympow::Matrix<Scalar> {
        return layout.head(entries.data(), n, d).template cast<Scalar>();
      };
      return std::move(gates) * sympow::householder(std::visit(vectors, W->entries), numbers(strength, 0));
    }
    if (!theta) return gates;
    Eigen::VectorXd rates(d / 2);
    for (Index j = 0; j < rates.size(); ++j) rates[j] = (*theta)[static_cast<std::size_t>(j)];
    return std::move(gates) * sympow::rotary(rates, numbers(beta, 1));
  }
};

namespace detail {

/// Throws unless every entry is finite, or for gates at most 0.
inline void check_entries(const Array& array, bool is_gate) {
  std::visit(
      [&](const auto& entries) {
        for (std::size_t n = 0; n < entries.size(); ++n)
          if (is_gate ? !(entries[n] <= 0) : !std::isfinite(entries[n]))
            fail(array.name, ": entry ", position(array.shape, n), " is ", entries[n], ", must be ",
                 is_gate ? "a logarithm of at most 0" : "finite");
      },
      array.entries);
}

/// The largest absolute value.
inline double largest(const Array& array) {
  double most = 0;
  for (std::size_t n = 0; n < array.size(); ++n) most = std::max(most, std::abs(array[n]));
  return most;
}

inline void check_shape(const Array& array, const Shape& expected, const std::string& why) {
  if (array.shape != expected)
    fail(array.name, ": shape is ", text(array.shape), ", must be ", text(expected), ", ", why);
}

inline void check_type(const Array& array, const Array& Q) {
  if (array.entries.index() != Q.entries.index())
    fail(array.name, ": is of type ", array.type(), ", must be ", Q.type(), " as ", Q.name, " is");
}

/// Throws unless β, |w|² and β |w|² of every step I - β w wᵀ are in the range of the type.
template <class Scalar>
void check_steps(const Array& W, const Array& strength, Index d) {
  const Eigen::Map<const sympow::Matrix<Scalar>> w(W.data<Scalar>(), d, static_cast<Index>(strength.size()));
  const auto fits = [](double x) { return std::abs(x) <= static_cast<double>(std::numeric_limits<Scalar>::max()); };
  for (Index n = 0; n < w.cols(); ++n) {
    const double squared = w.col(n).template cast<double>().squaredNorm();
    const auto place = static_cast<std::size_t>(n);
    if (!fits(strength[place]))
      fail(strength.name, ": entry ", position(strength.shape, place), " is ", strength[place],
           ", must be in the range of ", W.type(), ", the type of ", W.name);
    if (!fits(squared) || !fits(strength[place] * squared))
      fail(W.name, ": |w|^2 at ", position(strength.shape, place), " is ", squared, ", it and ", strength[place],
           " times it must be in the range of ", W.type());
  }
}

/// β v for all tokens.
template <class Scalar>
void multiply_values(Array& V, const Array& strength, Index e) {
  auto& entries = std::get<std::vector<Scalar>>(V.entries);
  Eigen::VectorXd beta(static_cast<Index>(strength.size()));
  for (Index n = 0; n < beta.size(); ++n) beta[n] = strength[static_cast<std::size_t>(n)];
  Eigen::Map<sympow::Matrix<Scalar>> values(entries.data(), e, beta.size());
  values = sympow::systems::delta_rule_values(values, beta);
  for (std::size_t n = 0; n < entries.size(); ++n)
    if (!std::isfinite(entries[n]))
      fail(strength.name, ": times entry ", position(V.shape, n), " of ", V.name, " is beyond the range of ", V.type());
}

}  // namespace detail

/// Reads the arrays and checks them. Throws `BadInput`.
inline Problem read_problem(const Arguments& arguments) {
  Problem problem;
  problem.arguments = arguments;
  problem.Q = read_npy("--q", arguments.q);
  problem.K = read_npy("--k", arguments.k);
  problem.V = read_npy("--v", arguments.v);
  const Array &Q = problem.Q, &K = problem.K, &V = problem.V;
  const auto axes = Q.shape.size();
  if (axes < 2 || axes > 4) fail(Q.name, ": shape is ", text(Q.shape), ", must be (T, d), (H, T, d) or (B, T, H, d)");
  for (const Array* other : {&K, &V}) detail::check_type(*other, Q);
  detail::check_shape(K, Q.shape, "that of " + Q.name);
  Shape of_values = Q.shape;
  if (V.shape.size() == axes) of_values.back() = V.shape.back();
  detail::check_shape(V, of_values, "that of " + Q.name + " up to the last axis");

  problem.layout = {.axes = axes,
                    .batches = axes == 4 ? Q.shape[0] : 1,
                    .heads = axes == 2 ? 1 : Q.shape[axes == 3 ? 0 : 2],
                    .tokens = Q.shape[axes == 3   ? 1
                                      : axes == 4 ? 1
                                                  : 0]};
  problem.d = Q.shape.back();
  problem.e = V.shape.back();
  if (problem.d == 0) fail(Q.name, ": shape is ", text(Q.shape), ", its last axis d must be at least 1");
  if (problem.e == 0) fail(V.name, ": shape is ", text(V.shape), ", its last axis must be at least 1");

  const Shape of_tokens(Q.shape.begin(), Q.shape.end() - 1);
  const auto read_gates = [&](const char* option, const std::string& path, bool is_gate) -> std::optional<Array> {
    if (path.empty()) return std::nullopt;
    Array array = read_npy(option, path);
    detail::check_shape(array, of_tokens, "one number for each token and head of " + Q.name);
    detail::check_entries(array, is_gate);
    return array;
  };
  problem.log_gate = read_gates("--log-gate", arguments.log_gate, true);
  problem.beta = read_gates("--beta", arguments.beta, false);
  if (!arguments.theta.empty()) {
    problem.theta = read_npy("--theta", arguments.theta);
    if (problem.d % 2 != 0)
      fail(problem.theta->name, ": turns pairs, and the last axis of ", Q.name, " is odd, ", problem.d);
    detail::check_shape(*problem.theta, {problem.d / 2}, "half of the last axis of " + Q.name);
    detail::check_entries(*problem.theta, false);
    const double fastest = detail::largest(*problem.theta) * (problem.beta ? detail::largest(*problem.beta) : 1);
    if (!std::isfinite(fastest))
      fail(problem.theta->name, ": its largest rate times the largest of ", problem.beta->name, " is no finite angle");
  }
  if (!arguments.householder.empty()) {
    problem.W = read_npy("--householder", arguments.householder);
    detail::check_type(*problem.W, Q);
    detail::check_shape(*problem.W, K.shape, "that of " + K.name);
    detail::check_entries(*problem.W, false);
  }
  problem.strength = read_gates("--strength", arguments.strength, false);
  for (const Array* array : {&Q, &K, &V}) detail::check_entries(*array, false);
  const auto apply = [&]<class Scalar>(const std::vector<Scalar>&) {
    if (problem.W) detail::check_steps<Scalar>(*problem.W, *problem.strength, problem.d);
    if (arguments.delta_rule) detail::multiply_values<Scalar>(problem.V, *problem.strength, problem.e);
  };
  std::visit(apply, Q.entries);
  return problem;
}

}  // namespace attend_npy
