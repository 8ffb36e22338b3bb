// The symmetric power embedding of many tokens at once: a walk over the prefixes of its multi-indices.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include <sympow/combinatorics/binomial.hpp>
#include <sympow/core/blocks.hpp>
#include <sympow/core/view.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A walk through the tree of prefixes of φ^P in order, some entries at a time. The entry of α with counts c is
/// √(P!/Π c_i!) Π x_{α_l}: starting from √P! x_i, appending index i multiplies by x_i, or by x_i/√r where it makes a
/// run of length r. One multiplication per node, C(d + P, P) - 1 in all.
///
///     enter(int level, Index i, int run)    the prefix of level + 1 indices that ends in a run of `run` times i
///     leaves(Index first, Index i, Index count, int run)    its completions by i, i + 1, …, the entries first, … of
///                                           those that were asked for; `run` of the first, the others have 1
///     leave(int level, Index i, int run)    the prefix has no further completion
///
/// Prefixes that complete have P - 1 indices; each is entered when the one before has been left.
template <int P>
class SymmetricPowerWalk {
  static_assert(P > 1);

 public:
  /// Enters the first prefix, if there is one.
  template <class Visitor>
  SymmetricPowerWalk(Index d, Visitor& visitor) : d_(d) {
    if (d > 0) enter(0, 0, visitor);
  }

  /// The next `count` entries, of which there must be as many.
  template <class Visitor>
  void next(Index count, Visitor& visitor) {
    for (Index done = 0, size = 0; done < count; done += size) {
      const auto& [last, run] = prefix_.back();
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

  // Prefixes go on by i, i, … from a level on.
  template <class Visitor>
  void enter(std::size_t level, Index i, Visitor& visitor) {
    leaf_ = i;
    for (int run = 1; level < prefix_.size(); ++level, ++run) {
      prefix_[level] = {i, run};
      visitor.enter(static_cast<int>(level), i, run);
    }
  }

  template <class Visitor>
  void advance(Visitor& visitor) {
    for (std::size_t level = prefix_.size(); level-- > 0;) {
      const auto [index, run] = prefix_[level];
      visitor.leave(static_cast<int>(level), index, run);
      if (index + 1 < d_) return enter(level, index + 1, visitor);
    }
  }

  Index d_, leaf_ = 0;
  std::array<Node, std::size_t{P} - 1> prefix_{};
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

/// The prefixes of a walk for n tokens side by side, level by level. X: n × d, the prefixes are n × (P - 1).
template <int P, class Scalar>
class SymmetricPowerPrefixes {
 public:
  SymmetricPowerPrefixes(MatrixView<const Scalar> x, MatrixView<Scalar> prefixes) : x_(x), prefixes_(prefixes) {
    for (int r = 1; r <= P; ++r) factors_[static_cast<std::size_t>(r)] = inverse_root_of<Scalar>(r);
  }

  [[nodiscard]] MatrixView<const Scalar> x() const { return x_; }
  [[nodiscard]] const Scalar* operator[](int level) const { return prefixes_.col(level).data(); }
  /// 1/√run.
  [[nodiscard]] Scalar factor(int run) const { return factors_[static_cast<std::size_t>(run)]; }
  /// √P!, of the prefixes of one index.
  [[nodiscard]] static Scalar root() { return root_of<Scalar>(factorial(P)); }

  void enter(int level, Index i, int run) {
    if (level == 0)
      set_scaled(prefixes_.col(0).data(), x_.col(i).data(), root(), x_.rows());
    else
      append(prefixes_.col(level).data(), level - 1, i, run);
  }
  /// The prefix of a level times x_i/√run.
  void append(Scalar* target, int level, Index i, int run) const {
    set_entrywise_product(target, (*this)[level], factor(run), x_.col(i).data(), x_.rows());
  }
  /// The same for i, i + 1, …, one column after the other, of which the first ends a run.
  void append(MatrixView<Scalar> targets, int level, Index i, int run) const {
    set_entrywise_products(targets.data(), targets.outerStride(), (*this)[level], factor(run), x_.col(i).data(),
                           x_.outerStride(), x_.rows(), targets.cols());
  }

 private:
  MatrixView<const Scalar> x_;
  MatrixView<Scalar> prefixes_;
  std::array<Scalar, std::size_t{P} + 1> factors_{};
};

/// φ^P of n columns at once, one token a row: entry α of all of them side by side, some entries at a time.
///
/// X: n × d. The panel, n × block, holds the next entries in its columns; the prefixes are n × (P - 1) of scratch.
template <int P, class Scalar>
class SymmetricPowerPanels {
 public:
  SymmetricPowerPanels(MatrixView<const Scalar> x, MatrixView<Scalar> panel, MatrixView<Scalar> prefixes)
      : prefixes_(x, prefixes), panel_(panel), walk_(x.cols(), *this) {}

  /// The next `count` entries, into the first columns of the panel.
  void fill(Index count) { walk_.next(count, *this); }

  void enter(int level, Index i, int run) { prefixes_.enter(level, i, run); }
  void leaves(Index first, Index i, Index count, int run) {
    prefixes_.append(panel_.middleCols(first, count), P - 2, i, run);
  }
  void leave(int, Index, int) {}

 private:
  SymmetricPowerPrefixes<P, Scalar> prefixes_;
  MatrixView<Scalar> panel_;
  SymmetricPowerWalk<P> walk_;
};

}  // namespace SYMPOW_NAMESPACE::detail
