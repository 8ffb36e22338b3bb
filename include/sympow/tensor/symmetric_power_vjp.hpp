// The vector-Jacobian product of the symmetric power embedding.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include <sympow/tensor/symmetric_power_tree.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Calls f(y, x, n) on contiguous parts of two matrices of the same shape.
template <class Scalar, class F>
void for_entries(MatrixView<Scalar> y, MatrixView<const Scalar> x, const F& f) {
  if (y.outerStride() == y.rows() && x.outerStride() == x.rows()) return f(y.data(), x.data(), y.size());
  for (Index j = 0; j < y.cols(); ++j) f(y.col(j).data(), x.col(j).data(), y.rows());
}

/// dX = Dφ^P(X)ᵀ dΦ of m tokens, a block of entries of φ at a time.
///
///     a = prefix · x_i/√r:   d prefix += da · x_i/√r,   dx_i += da · prefix/√r
///
/// for every node a of the tree, leaves first; leaving a prefix passes on its gradient. Prefixes are recomputed, leaves
/// are not. Shapes: X, dX: m × d; d_panel: m × block, the next entries of dΦ as columns; scratch: m ×
/// scratch_columns(d). Cost: 2 (C(d + P, P) - 1) multiply-adds and one per prefix. Each subtree of a prefix of at most
/// P - 2 indices has its own sum, so no sum has more than d + 1 terms. The error is at most about 2P(d + 5)u relative
/// to the result for |x| and |dΦ|.
template <class Scalar>
class SymmetricPowerVjp {
 public:
  /// Columns of scratch: prefixes, their gradients, and dX of the subtree of each.
  static constexpr Index scratch_columns(int P, Index d) { return 2 * (P - 1) + (P - 2) * d; }

  SymmetricPowerVjp(int P, MatrixView<const Scalar> x, MatrixView<const Scalar> d_panel, MatrixView<Scalar> scratch,
                    MatrixView<Scalar> dx)
      : P_(P),
        prefixes_(P, x, scratch.leftCols(P - 1)),
        d_prefixes_(scratch.middleCols(P - 1, P - 1)),
        sums_(scratch.middleCols(2 * (P - 1), (P - 2) * x.cols())),
        d_panel_(d_panel),
        dx_(dx),
        walk_(P, x.cols(), *this) {
    dx_.setZero();
  }

  /// Consumes the next `count` entries of dΦ from the first columns of the panel; dX is complete after the last.
  void take(Index count) { walk_.next(count, *this); }

  void enter(int level, Index i, int run) {
    prefixes_.enter(level, i, run);
    std::fill_n(d_prefixes_.col(level).data(), dx_.rows(), Scalar(0));
    if (level < P_ - 2) {
      const MatrixView<Scalar> sums = subtree_sums(level + 1, i);
      for_entries<Scalar>(sums, sums, [](Scalar* y, const Scalar*, Index n) { std::fill_n(y, n, Scalar(0)); });
    }
  }
  void leaves(Index first, Index i, Index count, int run) { add(P_ - 2, d_panel_.middleCols(first, count), i, run); }
  void leave(int level, Index i, int run) {
    const MatrixView<const Scalar> d_prefix = d_prefixes_.middleCols(level, 1);
    if (level > 0)
      add(level - 1, d_prefix, i, run);
    else
      dx_.col(i) += prefixes_.root() * d_prefix.col(0);
    if (level < P_ - 2) for_entries<Scalar>(subtree_sums(level, i), subtree_sums(level + 1, i), add_entries<Scalar>);
  }

 private:
  // dX over columns i … of the subtree of the current prefix of `indices` indices, 0 ≤ indices ≤ P - 2.
  [[nodiscard]] MatrixView<Scalar> subtree_sums(int indices, Index i) const {
    const Index d = dx_.cols();
    return (indices == 0 ? dx_ : sums_.middleCols((indices - 1) * d, d)).rightCols(d - i);
  }

  // Adds the gradients da of the nodes that append i, i + 1, … to the prefix of `level`.
  void add(int level, MatrixView<const Scalar> da, Index i, int run) {
    const Index m = dx_.rows();
    const MatrixView<Scalar> dx = subtree_sums(std::min(level + 1, P_ - 2), i);
    if (m == 1 && da.outerStride() == 1 && prefixes_.x().outerStride() == 1 && dx.outerStride() == 1)
      return add_token(level, da, dx.data(), i, run);
    Index t = 0;
    for (; t + 4 * packet <= m; t += 4 * packet) add_tokens<4 * packet>(level, da, dx, i, run, t);
    for (; t + 2 * packet <= m; t += 2 * packet) add_tokens<2 * packet>(level, da, dx, i, run, t);
    for (; t + packet <= m; t += packet) add_tokens<packet>(level, da, dx, i, run, t);
    for (; t < m; ++t) add_tokens<1>(level, da, dx, i, run, t);
  }

  // The same sums for tokens t … t + size - 1.
  template <int size>
  void add_tokens(int level, const MatrixView<const Scalar>& da, const MatrixView<Scalar>& dx, Index i, int run,
                  Index t) {
    using X = std::conditional_t<size == 1, Scalar, Lanes<Scalar, size>>;
    const MatrixView<const Scalar> x = prefixes_.x();
    const Index a_right = da.outerStride(), x_right = x.outerStride(), dx_right = dx.outerStride(), count = da.cols();
    const Scalar *a = da.data() + t, *factor = x.data() + i * x_right + t;
    Scalar* target = dx.data() + t;
    const X prefix = load_as<X>(prefixes_[level] + t), first = load_as<X>(a) * prefixes_.factor(run);
    X sum = first * load_as<X>(factor);
    store_at(target, load_as<X>(target) + first * prefix);
    for (Index k = 1; k < count; ++k) {
      a += a_right, factor += x_right, target += dx_right;
      const X gradient = load_as<X>(a);
      sum = sum + gradient * load_as<X>(factor);
      store_at(target, load_as<X>(target) + gradient * prefix);
    }
    Scalar* const to = d_prefixes_.col(level).data() + t;
    store_at(to, load_as<X>(to) + sum);
  }

  // The same sums for one token with contiguous entries.
  void add_token(int level, const MatrixView<const Scalar>& da, Scalar* dx, Index i, int run) {
    using Packet = Eigen::Array<Scalar, 8, 1>;
    const Scalar *a = da.data(), *x = prefixes_.x().data() + i, prefix = prefixes_[level][0];
    const Scalar first = a[0] * prefixes_.factor(run);
    Scalar tail_sum = first * x[0];
    dx[0] += first * prefix;
    Packet sums = Packet::Zero();
    Index k = 1;
    for (; k + 8 <= da.cols(); k += 8) {
      sums += Packet::Map(a + k) * Packet::Map(x + k);
      Packet::Map(dx + k) += Packet::Map(a + k) * prefix;
    }
    for (; k < da.cols(); ++k) {
      tail_sum += a[k] * x[k];
      dx[k] += a[k] * prefix;
    }
    *d_prefixes_.col(level).data() += sums.sum() + tail_sum;
  }

  // Tokens per register; four registers hide the latency of an addition.
  static constexpr int packet = packets::lanes<Scalar>;

  int P_;
  SymmetricPowerPrefixes<Scalar> prefixes_;
  MatrixView<Scalar> d_prefixes_, sums_;
  MatrixView<const Scalar> d_panel_;
  MatrixView<Scalar> dx_;
  SymmetricPowerWalk walk_;
};

/// dx_t = Dφ^P(x_t)ᵀ dy_t for columns t; x and dy have contiguous columns, dx any layout.
template <class Scalar, class DX>
void set_symmetric_power_vjp(int P, MatrixView<const Scalar> x, MatrixView<const Scalar> dy, DX& dx) {
  using Gradients = SymmetricPowerVjp<Scalar>;
  constexpr Index stack_size = 4096;
  const Index d = x.rows(), D = dy.rows(), width = Gradients::scratch_columns(P, d), needed = width + d;
  std::array<Scalar, stack_size> stack;
  std::vector<Scalar> heap(needed > stack_size ? static_cast<std::size_t>(needed) : 0);
  Scalar* const scratch = needed > stack_size ? heap.data() : stack.data();
  for (Index t = 0; t < x.cols(); ++t) {
    const MatrixView<Scalar> row(scratch + width, 1, d);
    Gradients(P, {x.col(t).data(), 1, d}, {dy.col(t).data(), 1, D}, {scratch, 1, width}, row).take(D);
    dx.col(t) = row.transpose();
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
