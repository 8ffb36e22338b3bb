// Gradients of a loss in what a run was given, from those in its rows.
#pragma once

#include <vector>

#include <sympow/attention/vjp_call.hpp>

#include "problem.hpp"
#include "state_files.hpp"

namespace attend_npy {

/// Gradients in the arrays and numbers of a problem, in their shapes; of what was not given, nothing.
template <class Scalar>
struct ProblemGradients {
  std::vector<Scalar> Q, K, V, W;
  std::vector<double> log_gate, theta, beta, strength, scale;  // sums of many terms

  /// Zeros.
  explicit ProblemGradients(const Problem& problem) {
    each(*this, problem, [](const char*, const Array& of, auto& gradient) { gradient.assign(of.size(), 0); });
  }

  /// Calls visit(option, what it gave, its gradient) for all that was given.
  template <class Self, class Visitor>
  static void each(Self& self, const Problem& problem, const Visitor& visit) {
    visit("--q", problem.Q, self.Q);
    visit("--k", problem.K, self.K);
    visit("--v", problem.V, self.V);
    if (problem.log_gate) visit("--log-gate", *problem.log_gate, self.log_gate);
    if (problem.theta) visit("--theta", *problem.theta, self.theta);
    if (problem.beta) visit("--beta", *problem.beta, self.beta);
    if (problem.W) visit("--householder", *problem.W, self.W);
    if (problem.strength) visit("--strength", *problem.strength, self.strength);
    if (problem.scale) visit("--scale", *problem.scale, self.scale);
  }
};

/// Adds those of head n of the queries, by the form of the problem, from the state before its first token. Keys,
/// values and chains get the sum of their query heads, rates and the scale that of all heads.
template <class Scalar, class F>
void add_gradients(const F& feature, const Problem& problem, Index n, const Transition<Scalar>& transition,
                   const StateOf<Scalar, F>& state, sympow::VjpWorkspace<Scalar>& workspace,
                   ProblemGradients<Scalar>& gradients);

}  // namespace attend_npy
