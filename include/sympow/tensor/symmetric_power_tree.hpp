// The symmetric power embedding of many tokens at once: a walk over the prefixes of its multi-indices.
#pragma once

#include <cmath>

#include <sympow/combinatorics/binomial.hpp>
#include <sympow/core/blocks.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Visits the tree of prefixes of φ^P in order. The entry of α with counts c is √(P!/Π c_i!) Π x_{α_l}: starting from
/// √P! x_i, appending index i multiplies by x_i, or by x_i/√r where it makes a run of length r. One multiplication per
/// node, C(d + P, P) - 1 in all.
///
///     Prefix root(Index i);                                      √P! x_i
///     Prefix append<level>(Prefix, Index i, int run);   longer by index i, of `level` indices; r = run
///     void leaves(Prefix, Index last, int run);                  its completions by one of last, last + 1, …, d - 1
template <int P, class Visitor>
class SymmetricPowerTree {
 public:
  SymmetricPowerTree(Index d, Visitor& visitor) : d_(d), visitor_(visitor) {
    for (Index i = 0; i < d_; ++i) extend<1>(visitor_.root(i), i, 1);
  }

 private:
  // Every completion of a prefix of `level` indices that ends in a run of `run` times `last`.
  template <int level, class Prefix>
  void extend(const Prefix& prefix, Index last, int run) {
    if constexpr (level == P - 1) {
      visitor_.leaves(prefix, last, run);
    } else {
      extend<level + 1>(visitor_.template append<level>(prefix, last, run + 1), last, run + 1);
      for (Index i = last + 1; i < d_; ++i) extend<level + 1>(visitor_.template append<level>(prefix, i, 1), i, 1);
    }
  }

  Index d_;
  Visitor& visitor_;
};

/// √x and 1/√x of a whole number.
template <class Scalar>
Scalar root_of(Index n) {
  return static_cast<Scalar>(std::sqrt(static_cast<double>(n)));
}
template <class Scalar>
Scalar inverse_root_of(Index n) {
  return static_cast<Scalar>(1 / std::sqrt(static_cast<double>(n)));
}

/// φ^P of n columns at once, one token a row: entry α of all of them side by side, some entries at a time.
///
/// X: n × d. The panel, n × block, holds entries first, first + 1, … in its columns when `consume(first, columns)` is
/// called; the prefixes are n × (P - 1) of scratch.
template <int P, class X, class Panel, class Consume>
class SymmetricPowerPanels {
  using Scalar = typename X::Scalar;

 public:
  SymmetricPowerPanels(const X& x, Panel& panel, Panel& prefixes, Consume& consume)
      : x_(x), panel_(panel), prefixes_(prefixes), consume_(consume) {
    SymmetricPowerTree<P, SymmetricPowerPanels>(x.cols(), *this);
    if (filled_ > 0) consume_(first_, panel_.leftCols(filled_));
  }

  Index root(Index i) {
    set_scaled(prefixes_.col(0).data(), x_.col(i).data(), root_of<Scalar>(factorial(P)), x_.rows());
    return 0;
  }
  template <int level>
  Index append(Index prefix, Index i, int run) {
    multiply(prefixes_.col(level).data(), prefix, i, run);
    return level;
  }
  void leaves(Index prefix, Index last, int run) {
    for (Index i = last; i < x_.cols(); ++i) {
      multiply(panel_.col(filled_).data(), prefix, i, i == last ? run + 1 : 1);
      step();
    }
  }

 private:
  void multiply(Scalar* target, Index prefix, Index i, int run) const {
    const Scalar factor = run == 1 ? Scalar(1) : inverse_root_of<Scalar>(run);
    set_entrywise_product(target, prefixes_.col(prefix).data(), factor, x_.col(i).data(), x_.rows());
  }

  void step() {
    if (++filled_ < panel_.cols()) return;
    consume_(first_, panel_.leftCols(filled_));
    first_ += filled_;
    filled_ = 0;
  }

  const X& x_;
  Panel &panel_, &prefixes_;
  Consume& consume_;
  Index first_ = 0, filled_ = 0;
};

}  // namespace SYMPOW_NAMESPACE::detail
