// The gradient row rule: how far two gradients may be apart where both are right.
#pragma once

#include <string>

#include <sympow/verify/gradient_bounds.hpp>
#include <sympow/verify/gradient_reference.hpp>
#include <sympow/verify/residual.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// max |Δ| / bound over the entries of a gradient, by its name; `row` is the column of the worst entry, its token where
/// columns are tokens. Bound 1. What is not finite, of another shape, or off where the bound is 0 or not finite, is
/// infinitely wrong.
[[nodiscard]] inline Residual worst_entry(const std::string& name, const Matrix<Wide>& found,
                                          const Matrix<Wide>& expected, const Matrix<Wide>& bound) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Residual worst{0, 1, name};
  if (found.rows() != expected.rows() || found.cols() != expected.cols()) return {infinity, 1, name};
  for (Index t = 0; t < found.cols(); ++t)
    for (Index c = 0; c < found.rows(); ++c) {
      const Wide apart = std::abs(found(c, t) - expected(c, t));
      if (apart == 0) continue;
      double ratio = static_cast<double>(apart / bound(c, t));
      if (!(ratio >= 0 && std::isfinite(bound(c, t)))) ratio = infinity;
      if (ratio > worst.residual) worst.residual = ratio, worst.row = t;
    }
  return worst;
}

/// The gradients that every call has, dQ, dK, dV, d scale, [dS_0; dZ_0] where there is a state, and d log γ where
/// it has T entries or one, the sum: the worst entry of them, by its name.
[[nodiscard]] inline Residual worst_gradient(const GradientReference& found, const GradientReference& expected,
                                             const GradientBounds& bounds) {
  const auto one = [](Wide x) { return Matrix<Wide>(Matrix<Wide>::Constant(1, 1, x)); };
  Residual worst{0, 1};
  const auto add = [&](const Residual& next) { worst = worse(worst, next); };
  add(worst_entry("dQ", found.Q, expected.Q, bounds.Q));
  add(worst_entry("dK", found.K, expected.K, bounds.K));
  add(worst_entry("dV", found.V, expected.V, bounds.V));
  add(worst_entry("d scale", one(found.scale), one(expected.scale), one(bounds.scale)));
  if (expected.initial.size() > 0) add(worst_entry("[dS_0; dZ_0]", found.initial, expected.initial, bounds.initial));
  if (found.log_gamma.size() == 1 && expected.log_gamma.size() != 1)
    add(worst_entry("d log gamma", one(found.log_gamma[0]), one(expected.log_gamma.sum()),
                    one(bounds.log_gamma.sum())));
  else
    add(worst_entry("d log gamma", found.log_gamma.transpose(), expected.log_gamma.transpose(),
                    bounds.log_gamma.transpose()));
  return worst;
}

/// The call with dY = 0 in every row that says nothing in this arithmetic, or that another side flags.
[[nodiscard]] inline GradientCall without_degenerate_rows(GradientCall call, const GradientArithmetic& arithmetic = {},
                                                          const std::vector<bool>& flagged = {}) {
  const std::vector<bool> degenerate = gradient_bounds(call, arithmetic).is_degenerate;
  for (std::size_t i = 0; i < degenerate.size(); ++i)
    if (degenerate[i] || (i < flagged.size() && flagged[i])) call.dY.col(static_cast<Index>(i)).setZero();
  return call;
}

}  // namespace SYMPOW_NAMESPACE::verify
