// What a head is compared with: its rows in double, and what their rounding is relative to.
#pragma once

#include <sympow/verify/direct.hpp>

#include "features.hpp"
#include "problem.hpp"

namespace attend_npy {

/// Rows of one head in double: attention by blocks, O(T² d); the bare definition for exponential scores and under
/// Householder chains, where it is O(T² d²). It measures keys where a chain has taken them, so that weights are right
/// for chains that make keys grow.
template <class F>
sympow::verify::DirectRows<double> reference(const F& feature, const Transition<double>& transition,
                                             const Eigen::MatrixXd& Q, const Eigen::MatrixXd& K,
                                             const Eigen::MatrixXd& V, double scale, bool divides);

/// n_i, the tokens inside the window of the gates, after `before` earlier ones that weigh at most 1 each.
template <class Scalar>
Eigen::VectorXd window(const Transition<Scalar>& transition, Index tokens, double before) {
  Eigen::VectorXd n(tokens);
  std::visit(
      [&](const auto& A) {
        for (Index i = 0; i < tokens; ++i) n[i] = 1 + std::exp(A.log_decay(i)) * (i > 0 ? n[i - 1] : before);
      },
      transition);
  return n;
}

}  // namespace attend_npy
