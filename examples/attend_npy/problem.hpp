// The arrays of one run, and the heads inside of them.
#pragma once

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <sympow/attention/heads.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

#include <sympow/io/npy.hpp>
#include "arguments.hpp"

namespace attend_npy {

using namespace sympow::io;  // arrays of numpy

using sympow::Index;

/// Scalar is the type that a chain is computed in.
template <class Scalar>
using Transition = std::variant<sympow::Decay, sympow::TransitionProduct<sympow::Decay, sympow::Rotary>,
                                sympow::TransitionProduct<sympow::Decay, sympow::Householder<Scalar>>>;

struct Problem {
  Arguments arguments;
  Array Q, K, V;
  std::optional<Array> log_gate, theta, beta, W, strength, scale;
  std::optional<Array> dY, given_V;  // V before --delta-rule, kept for gradients
  std::vector<Index> lengths;        // tokens of every sequence; none if there is no padding
  Index B = 1, H = 1, H_kv = 1, T = 0, d = 0, e = 0;
  bool heads_first = false;     // in memory, before the tokens
  Form form = Form::attention;  // that was chosen

  /// Heads of queries in all; number n is head n % H of sequence n / H.
  [[nodiscard]] Index count() const { return B * H; }
  /// Tokens of a sequence.
  [[nodiscard]] Index length(Index b) const { return lengths.empty() ? T : lengths[static_cast<std::size_t>(b)]; }
  /// Tokens of the longest sequence.
  [[nodiscard]] Index longest() const {
    return lengths.empty() ? T : *std::max_element(lengths.begin(), lengths.end());
  }
  /// The head of keys that query head h reads.
  [[nodiscard]] Index key_head(Index h) const { return h / (H / H_kv); }
  /// Q's shape with another last axis.
  [[nodiscard]] Shape rows_of(Index width) const {
    Shape shape = Q.shape;
    shape.back() = width;
    return shape;
  }

  /// The heads of an array with `width` numbers a token and head.
  template <class S>
  [[nodiscard]] sympow::Heads<S> heads(S* numbers, Index head_count, Index width) const {
    return heads_first ? sympow::Heads<S>::bhtd(numbers, B, head_count, T, width, lengths)
                       : sympow::Heads<S>::bthd(numbers, B, T, head_count, width, lengths);
  }

  /// What head n of the queries is computed from, in place.
  template <class Scalar>
  [[nodiscard]] auto queries(Index n) const {
    return heads(Q.data<Scalar>(), H, d).head(n / H, n % H);
  }
  template <class Scalar>
  [[nodiscard]] auto keys(Index n) const {
    return heads(K.data<Scalar>(), H_kv, d).head(n / H, key_head(n % H));
  }
  template <class Scalar>
  [[nodiscard]] auto values(Index n) const {
    return heads(V.data<Scalar>(), H_kv, e).head(n / H, key_head(n % H));
  }

  /// Calls visit(x) with the tokens of each head in turn, without padding.
  template <class S, class Visitor>
  void each_head(S* numbers, Index head_count, Index width, const Visitor& visit) const {
    const auto all = heads(numbers, head_count, width);
    for (Index b = 0; b < B; ++b)
      for (Index h = 0; h < head_count; ++h) visit(all.head(b, h));
  }

  /// What happens between the tokens that head n of the queries sees.
  template <class Scalar>
  [[nodiscard]] Transition<Scalar> transition(Index n) const {
    const Index b = n / H, h = n % H;
    const auto numbers = [&](const std::optional<Array>& array, Index head_count, Index head, double otherwise) {
      Eigen::VectorXd x = Eigen::VectorXd::Constant(length(b), otherwise);
      if (array)
        std::visit(
            [&](const auto& entries) {
              x = heads(entries.data(), head_count, 1).head(b, head).transpose().template cast<double>();
            },
            array->entries);
      return x;
    };
    sympow::Decay gates = sympow::decay(numbers(log_gate, H, h, 0));
    if (W) {
      const auto vectors = [&](const auto& entries) -> sympow::Matrix<Scalar> {
        return heads(entries.data(), H_kv, d).head(b, key_head(h)).template cast<Scalar>();
      };
      return std::move(gates) *
             sympow::householder(std::visit(vectors, W->entries), numbers(strength, H_kv, key_head(h), 0));
    }
    if (!theta) return gates;
    Eigen::VectorXd rates(d / 2);
    for (Index j = 0; j < rates.size(); ++j) rates[j] = (*theta)[static_cast<std::size_t>(j)];
    return std::move(gates) * sympow::rotary(rates, numbers(beta, H, h, 1), arguments.pairing);
  }
};

/// Calls visit(ST, |w|², the place of ST) for every step I - ST w wᵀ of a chain.
template <class Scalar, class Visitor>
void each_step(const Problem& problem, const Visitor& visit) {
  std::visit(
      [&](const auto& entries) {
        const auto w = problem.heads(problem.W->data<Scalar>(), problem.H_kv, problem.d);
        const auto strength = problem.heads(entries.data(), problem.H_kv, 1);
        for (Index b = 0; b < problem.B; ++b)
          for (Index h = 0; h < problem.H_kv; ++h) {
            const auto vectors = w.head(b, h);
            const auto numbers = strength.head(b, h);
            for (Index t = 0; t < vectors.cols(); ++t)
              visit(static_cast<double>(numbers(0, t)), vectors.col(t).template cast<double>().squaredNorm(),
                    static_cast<std::size_t>(numbers.col(t).data() - entries.data()));
          }
      },
      problem.strength->entries);
}

}  // namespace attend_npy
