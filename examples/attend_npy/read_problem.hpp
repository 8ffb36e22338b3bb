// Reads the arrays of one run and checks them against each other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <ranges>
#include <string>
#include <variant>
#include <vector>

#include <sympow/systems/peer_parameters.hpp>

#include "problem.hpp"

namespace attend_npy {

namespace detail {

/// Throws unless every entry is finite, or for gates at most 0; what is padding may be anything.
inline void check_entries(const Problem& problem, const Array& array, Index head_count, Index width, bool is_gate) {
  std::visit(
      [&](const auto& entries) {
        problem.each_head(entries.data(), head_count, width, [&](const auto& x) {
          for (Index t = 0; t < x.cols(); ++t)
            for (Index i = 0; i < width; ++i)
              if (is_gate ? !(x(i, t) <= 0) : !std::isfinite(x(i, t)))
                fail(array.name, ": entry ",
                     position(array.shape, static_cast<std::size_t>(x.col(t).data() + i - entries.data())), " is ",
                     x(i, t), ", must be ", is_gate ? "a logarithm of at most 0" : "finite");
        });
      },
      array.entries);
}

inline void check_shape(const Array& array, const Shape& expected, const std::string& why) {
  if (array.shape != expected)
    fail(array.name, ": shape is ", text(array.shape), ", must be ", text(expected), ", ", why);
}

inline void check_type(const Array& array, const Array& Q) {
  if (array.entries.index() != Q.entries.index())
    fail(array.name, ": is of type ", array.type(), ", must be ", Q.type(), " as ", Q.name, " is");
}

/// Throws unless β, |w|² and β |w|² of every step are in the range of the type.
template <class Scalar>
void check_steps(const Problem& problem) {
  const Array &W = *problem.W, &strength = *problem.strength;
  const auto fits = [](double x) { return std::abs(x) <= static_cast<double>(std::numeric_limits<Scalar>::max()); };
  each_step<Scalar>(problem, [&](double beta, double squared, std::size_t place) {
    if (!fits(beta))
      fail(strength.name, ": entry ", position(strength.shape, place), " is ", beta, ", must be in the range of ",
           W.type(), ", the type of ", W.name);
    if (!fits(squared) || !fits(beta * squared))
      fail(W.name, ": |w|^2 at ", position(strength.shape, place), " is ", squared, ", it and ", beta,
           " times it must be in the range of ", W.type());
  });
}

/// β v for all tokens.
template <class Scalar>
void multiply_values(Problem& problem) {
  auto& entries = std::get<std::vector<Scalar>>(problem.V.entries);
  const auto V = problem.heads(entries.data(), problem.H_kv, problem.e);
  std::visit(
      [&](const auto& strengths) {
        const auto strength = problem.heads(strengths.data(), problem.H_kv, 1);
        for (Index b = 0; b < problem.B; ++b)
          for (Index h = 0; h < problem.H_kv; ++h) {
            auto values = V.head(b, h);
            values = sympow::systems::delta_rule_values(values, strength.head(b, h).row(0));
          }
      },
      problem.strength->entries);
  problem.each_head(entries.data(), problem.H_kv, problem.e, [&](const auto& values) {
    for (Index t = 0; t < values.cols(); ++t)
      for (Index i = 0; i < values.rows(); ++i)
        if (!std::isfinite(values(i, t)))
          fail(problem.strength->name, ": times entry ",
               position(problem.V.shape, static_cast<std::size_t>(values.col(t).data() + i - entries.data())), " of ",
               problem.V.name, " is beyond the range of ", problem.V.type());
  });
}

/// The tokens of B sequences of up to T, from a file or a list; none if there is no option.
inline std::vector<Index> read_lengths(const std::string& given, Index B, Index T) {
  if (given.empty()) return {};
  const bool is_list = given.find_first_not_of("0123456789,") == std::string::npos;
  const std::string name = "--lengths " + given;
  std::vector<Index> lengths;
  if (is_list)
    for (const auto number : std::views::split(given, ','))
      lengths.push_back(whole_number(name, {number.begin(), number.end()}, 0, PTRDIFF_MAX));
  else
    for (const std::int64_t number : read_whole_numbers("--lengths", given)) lengths.push_back(number);
  if (std::ssize(lengths) != B)
    fail(name, ": ", lengths.size(), lengths.size() == 1 ? " length is" : " lengths are", " given, must be ", B,
         ", one for each sequence");
  for (std::size_t b = 0; b < lengths.size(); ++b)
    if (lengths[b] < 0 || lengths[b] > T) fail(name, ": length ", b, " is ", lengths[b], ", must be 0 to T = ", T);
  return lengths;
}

/// Reads Q, K and V and what their shapes say.
inline void read_tokens(Problem& problem) {
  const Arguments& arguments = problem.arguments;
  problem.Q = read_npy("--q", arguments.q);
  problem.K = read_npy("--k", arguments.k);
  problem.V = read_npy("--v", arguments.v);
  const Array &Q = problem.Q, &K = problem.K, &V = problem.V;
  const auto axes = Q.shape.size();
  if (axes < 2 || axes > 4) fail(Q.name, ": shape is ", text(Q.shape), ", must be (T, d), (H, T, d) or (B, T, H, d)");
  if (axes != 4 && arguments.has_layout)
    fail("--layout does not go with ", Q.name, " of shape ", text(Q.shape), ": it is the order of four axes");
  for (const Array* other : {&K, &V}) check_type(*other, Q);

  problem.heads_first = axes < 4 || arguments.layout == Layout::bhtd;
  const std::size_t of_heads = axes < 4 ? axes - 3 : problem.heads_first ? 1 : 2;  // which axis; none of two
  const std::size_t of_tokens = axes < 4 ? axes - 2 : problem.heads_first ? 2 : 1;
  const bool has_heads = axes > 2;
  problem.B = axes == 4 ? Q.shape[0] : 1;
  problem.T = Q.shape[of_tokens];
  problem.d = Q.shape.back();
  Shape of_keys = Q.shape;
  if (has_heads) {
    problem.H = problem.H_kv = Q.shape[of_heads];
    const Index fewer = K.shape.size() == axes ? K.shape[of_heads] : 0;
    if (fewer > 0 && problem.H % fewer == 0) of_keys[of_heads] = problem.H_kv = fewer;
  }
  check_shape(K, of_keys,
              "that of " + Q.name +
                  (has_heads ? ", or with fewer heads, whose number divides H = " + std::to_string(problem.H) : ""));
  if (V.shape.size() == axes) of_keys.back() = V.shape.back();
  check_shape(V, of_keys, "that of " + K.name + " up to the last axis");
  problem.e = V.shape.back();
  if (problem.d == 0) fail(Q.name, ": shape is ", text(Q.shape), ", its last axis d must be at least 1");
  if (problem.e == 0) fail(V.name, ": shape is ", text(V.shape), ", its last axis must be at least 1");
  problem.lengths = read_lengths(arguments.lengths, problem.B, problem.T);
}

}  // namespace detail

/// Reads the arrays and checks them. Throws `BadInput`.
inline Problem read_problem(const Arguments& arguments) {
  Problem problem;
  problem.arguments = arguments;
  detail::read_tokens(problem);
  const Array &Q = problem.Q, &K = problem.K;
  const auto read_numbers = [&](const char* option, const std::string& path, const Array& of, Index head_count,
                                bool is_gate) -> std::optional<Array> {
    if (path.empty()) return std::nullopt;
    Array array = read_npy(option, path);
    detail::check_shape(array, {of.shape.begin(), of.shape.end() - 1},
                        "one number for each token and head of " + of.name);
    detail::check_entries(problem, array, head_count, 1, is_gate);
    return array;
  };
  problem.log_gate = read_numbers("--log-gate", arguments.log_gate, Q, problem.H, true);
  problem.beta = read_numbers("--beta", arguments.beta, Q, problem.H, false);
  if (!arguments.theta.empty()) {
    problem.theta = read_npy("--theta", arguments.theta);
    const Array& theta = *problem.theta;
    if (problem.d % 2 != 0) fail(theta.name, ": turns pairs, and the last axis of ", Q.name, " is odd, ", problem.d);
    detail::check_shape(theta, {problem.d / 2}, "half of the last axis of " + Q.name);
    double fastest = 0, longest = 1;
    for (std::size_t n = 0; n < theta.size(); ++n) {
      if (!std::isfinite(theta[n]))
        fail(theta.name, ": entry ", position(theta.shape, n), " is ", theta[n], ", must be finite");
      fastest = std::max(fastest, std::abs(theta[n]));
    }
    if (problem.beta)
      std::visit(
          [&](const auto& entries) {
            problem.each_head(entries.data(), problem.H, 1, [&](const auto& beta) {
              for (Index t = 0; t < beta.cols(); ++t) longest = std::max<double>(longest, std::abs(beta(0, t)));
            });
          },
          problem.beta->entries);
    if (!std::isfinite(fastest * longest))
      fail(theta.name, ": its largest rate times the largest of ", problem.beta->name, " is no finite angle");
  }
  if (!arguments.householder.empty()) {
    problem.W = read_npy("--householder", arguments.householder);
    detail::check_type(*problem.W, Q);
    detail::check_shape(*problem.W, K.shape, "that of " + K.name);
    detail::check_entries(problem, *problem.W, problem.H_kv, problem.d, false);
  }
  problem.strength = read_numbers("--strength", arguments.strength, K, problem.H_kv, false);
  detail::check_entries(problem, Q, problem.H, problem.d, false);
  detail::check_entries(problem, K, problem.H_kv, problem.d, false);
  detail::check_entries(problem, problem.V, problem.H_kv, problem.e, false);
  if (arguments.has_scale) problem.scale = Array{"--scale", {}, std::vector<double>{arguments.scale}};
  if (!arguments.grad.empty()) {
    problem.dY = read_npy("--grad", arguments.grad);
    detail::check_type(*problem.dY, Q);
    detail::check_shape(*problem.dY, problem.rows_of(problem.e), "that of Y");
    detail::check_entries(problem, *problem.dY, problem.H, problem.e, false);
    if (arguments.delta_rule) problem.given_V = problem.V;
  }
  const auto apply = [&]<class Scalar>(const std::vector<Scalar>&) {
    if (problem.W) detail::check_steps<Scalar>(problem);
    if (arguments.delta_rule) detail::multiply_values<Scalar>(problem);
  };
  std::visit(apply, Q.entries);
  return problem;
}

}  // namespace attend_npy
