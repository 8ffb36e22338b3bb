// The symmetric power embedding of many tokens: a traversal of the prefixes of its multi-indices.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include <sympow/combinatorics/binomial.hpp>
#include <sympow/core/view.hpp>
#include <sympow/simd/blocks.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Traverses the tree of prefixes of φ^P in order, a block of entries at a time. The entry of α with counts c is √(P!/Π
/// c_i!) Π x_{α_l}. A prefix starts as √P! x_i; appending i multiplies by x_i/√r, where r is the length of the run it
/// extends. Cost: one multiplication per node, C(d + P, P) - 1 in all.
///
///     enter(int level, Index i, int run)    a prefix of level + 1 indices begins; it ends in `run` times i
///     leaves(Index first, Index i, Index count, int run)    its completions by i, i + 1, …: entries first, … of
///                                           the block; `run` of the first, 1 for the others
///     leave(int level, Index i, int run)    the prefix is finished
///
/// Complete prefixes have P - 1 indices; a prefix ends before the next begins.
class SymmetricPowerWalk {
 public:
  /// Enters the first prefix if d > 0; P > 1.
  template <class Visitor>
  SymmetricPowerWalk(int P, Index d, Visitor& visitor) : levels_(static_cast<std::size_t>(P - 1)), d_(d) {
    if (d > 0) enter(0, 0, visitor);
  }

  /// Visits the next `count` entries, which must exist.
  template <class Visitor>
  void next(Index count, Visitor& visitor) {
    for (Index done = 0, size = 0; done < count; done += size) {
      const auto& [last, run] = prefix_[levels_ - 1];
      size = std::min(count - done, d_ - leaf_);
      visitor.leaves(done, leaf_, size, leaf_ == last ? run + 1 : 1);
      leaf_ += size;
      if (leaf_ == d_) advance(visitor);
    }
  }

 private:
  struct Node {
    Index index = 0;
    int run = 0;
  };

  // Enters the prefixes from `level` down to the last level, each appending i.
  template <class Visitor>
  void enter(std::size_t level, Index i, Visitor& visitor) {
    leaf_ = i;
    for (int run = 1; level < levels_; ++level, ++run) {
      prefix_[level] = {i, run};
      visitor.enter(static_cast<int>(level), i, run);
    }
  }

  template <class Visitor>
  void advance(Visitor& visitor) {
    for (std::size_t level = levels_; level-- > 0;) {
      const auto [index, run] = prefix_[level];
      visitor.leave(static_cast<int>(level), index, run);
      if (index + 1 < d_) return enter(level, index + 1, visitor);
    }
  }

  std::size_t levels_;
  Index d_, leaf_ = 0;
  std::array<Node, std::size_t{max_power} - 1> prefix_{};
};

/// √n and 1/√n.
template <class Scalar>
Scalar root_of(Index n) {
  return static_cast<Scalar>(std::sqrt(static_cast<double>(n)));
}
template <class Scalar>
Scalar inverse_root_of(Index n) {
  return static_cast<Scalar>(1 / std::sqrt(static_cast<double>(n)));
}

/// The prefixes of a traversal for n tokens, one column per level. X: n × d; prefixes: n × (P - 1).
template <class Scalar>
class SymmetricPowerPrefixes {
 public:
  SymmetricPowerPrefixes(int P, MatrixView<const Scalar> x, MatrixView<Scalar> prefixes)
      : x_(x), prefixes_(prefixes), root_(root_of<Scalar>(factorial(P))) {
    for (int r = 1; r <= P; ++r) factors_[static_cast<std::size_t>(r)] = inverse_root_of<Scalar>(r);
  }

  [[nodiscard]] MatrixView<const Scalar> x() const { return x_; }
  [[nodiscard]] const Scalar* operator[](int level) const { return prefixes_.col(level).data(); }
  /// 1/√run.
  [[nodiscard]] Scalar factor(int run) const { return factors_[static_cast<std::size_t>(run)]; }
  /// √P!, the factor of the first index.
  [[nodiscard]] Scalar root() const { return root_; }

  void enter(int level, Index i, int run) {
    if (level == 0)
      set_scaled(prefixes_.col(0).data(), x_.col(i).data(), root(), x_.rows());
    else
      append(prefixes_.col(level).data(), level - 1, i, run);
  }
  /// target ← prefix of `level` · x_i/√run.
  void append(Scalar* target, int level, Index i, int run) const {
    set_entrywise_product(target, (*this)[level], factor(run), x_.col(i).data(), x_.rows());
  }
  /// Columns of targets ← prefix of `level` · x_j for j = i, i + 1, …; the first also has 1/√run.
  void append(MatrixView<Scalar> targets, int level, Index i, int run) const {
    set_entrywise_products(targets.data(), targets.outerStride(), (*this)[level], factor(run), x_.col(i).data(),
                           x_.outerStride(), x_.rows(), targets.cols());
  }

 private:
  MatrixView<const Scalar> x_;
  MatrixView<Scalar> prefixes_;
  Scalar root_;
  std::array<Scalar, std::size_t{max_power} + 1> factors_{};
};

/// φ^P of n tokens at once, one token per row and a block of entries at a time.
///
/// X: n × d. panel: n × block, receives the next entries as columns. prefixes: n × (P - 1), scratch.
template <class Scalar>
class SymmetricPowerPanels {
 public:
  SymmetricPowerPanels(int P, MatrixView<const Scalar> x, MatrixView<Scalar> panel, MatrixView<Scalar> prefixes)
      : P_(P), prefixes_(P, x, prefixes), panel_(panel), walk_(P, x.cols(), *this) {}

  /// Writes the next `count` entries into the first columns of the panel.
  void fill(Index count) { walk_.next(count, *this); }

  void enter(int level, Index i, int run) { prefixes_.enter(level, i, run); }
  void leaves(Index first, Index i, Index count, int run) {
    prefixes_.append(panel_.middleCols(first, count), P_ - 2, i, run);
  }
  void leave(int, Index, int) {}

 private:
  int P_;
  SymmetricPowerPrefixes<Scalar> prefixes_;
  MatrixView<Scalar> panel_;
  SymmetricPowerWalk walk_;
};

}  // namespace SYMPOW_NAMESPACE::detail
