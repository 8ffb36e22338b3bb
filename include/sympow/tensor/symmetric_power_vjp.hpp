// The derivative of the symmetric power embedding, transposed: from gradients of its entries to one of x.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include <sympow/tensor/symmetric_power_tree.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// f(y, x, n) for n entries side by side of two matrices of one shape, in as few parts as there are.
template <class Scalar, class F>
void for_entries(MatrixView<Scalar> y, MatrixView<const Scalar> x, const F& f) {
  if (y.outerStride() == y.rows() && x.outerStride() == x.rows()) return f(y.data(), x.data(), y.size());
  for (Index j = 0; j < y.cols(); ++j) f(y.col(j).data(), x.col(j).data(), y.rows());
}

/// dX = Dφ^P(X)ᵀ dΦ of m tokens side by side, some entries of φ at a time.
///
///     a = prefix · x_i/√r:   d prefix += da · x_i/√r,   dx_i += da · prefix/√r
///
/// for every node a of the tree, from the leaves on; a prefix hands on its gradient when it is left. Prefixes are made
/// again and leaves never. Shapes: X, dX: m × d; the panel, m × block, holds the next entries of dΦ in its columns;
/// scratch: m × scratch_columns(d). Cost: 2 multiplications and additions a node, 2 (C(d + P, P) - 1) in all, and one
/// multiplication and one addition a prefix. What lies under a prefix of at most P - 2 indices is summed by itself, so
/// that no sum has more than d + 1 terms: relative to the same with |x| and |dΦ| the error is some 2P(d + 5)u at most.
template <int P, class Scalar>
class SymmetricPowerVjp {
 public:
  /// Columns of scratch: prefixes, their gradients, and dX of what lies under each of them.
  static constexpr Index scratch_columns(Index d) { return 2 * (P - 1) + (P - 2) * d; }

  SymmetricPowerVjp(MatrixView<const Scalar> x, MatrixView<const Scalar> d_panel, MatrixView<Scalar> scratch,
                    MatrixView<Scalar> dx)
      : prefixes_(x, scratch.leftCols(P - 1)),
        d_prefixes_(scratch.middleCols(P - 1, P - 1)),
        sums_(scratch.middleCols(2 * (P - 1), (P - 2) * x.cols())),
        d_panel_(d_panel),
        dx_(dx),
        walk_(x.cols(), *this) {
    dx_.setZero();
  }

  /// Takes the next `count` entries of dΦ from the first columns of the panel. dX is there after the last of all.
  void take(Index count) { walk_.next(count, *this); }

  void enter(int level, Index i, int run) {
    prefixes_.enter(level, i, run);
    std::fill_n(d_prefixes_.col(level).data(), dx_.rows(), Scalar(0));
    if (level < P - 2) {
      const MatrixView<Scalar> sums = from(level + 1, i);
      for_entries<Scalar>(sums, sums, [](Scalar* y, const Scalar*, Index n) { std::fill_n(y, n, Scalar(0)); });
    }
  }
  void leaves(Index first, Index i, Index count, int run) { add(P - 2, d_panel_.middleCols(first, count), i, run); }
  void leave(int level, Index i, int run) {
    const MatrixView<const Scalar> d_prefix = d_prefixes_.middleCols(level, 1);
    if (level > 0)
      add(level - 1, d_prefix, i, run);
    else
      dx_.col(i) += SymmetricPowerPrefixes<P, Scalar>::root() * d_prefix.col(0);
    if (level < P - 2) for_entries<Scalar>(from(level, i), from(level + 1, i), add_entries<Scalar>);
  }

 private:
  // dX of what lies under the current prefix of `indices` indices, 0 … P - 2, columns i ….
  [[nodiscard]] MatrixView<Scalar> from(int indices, Index i) const {
    const Index d = dx_.cols();
    return (indices == 0 ? dx_ : sums_.middleCols((indices - 1) * d, d)).rightCols(d - i);
  }

  // The nodes that continue the prefix of a level by i, i + 1, …, from their gradients.
  void add(int level, MatrixView<const Scalar> da, Index i, int run) {
    const Index m = dx_.rows();
    const MatrixView<Scalar> dx = from(std::min(level + 1, P - 2), i);
    if (m == 1 && da.outerStride() == 1 && prefixes_.x().outerStride() == 1 && dx.outerStride() == 1)
      return add_to_one(level, da, dx.data(), i, run);
    Index t = 0;
    for (; t + 4 * packet <= m; t += 4 * packet) add_to_some<4 * packet>(level, da, dx, i, run, t);
    for (; t + 2 * packet <= m; t += 2 * packet) add_to_some<2 * packet>(level, da, dx, i, run, t);
    for (; t + packet <= m; t += packet) add_to_some<packet>(level, da, dx, i, run, t);
    for (; t < m; ++t) add_to_some<1>(level, da, dx, i, run, t);
  }

  // Of tokens t, …, t + size - 1.
  template <int size>
  void add_to_some(int level, const MatrixView<const Scalar>& da, const MatrixView<Scalar>& dx, Index i, int run,
                   Index t) {
    using Some = Eigen::Array<Scalar, size, 1>;
    const MatrixView<const Scalar> x = prefixes_.x();
    const Index a_right = da.outerStride(), x_right = x.outerStride(), dx_right = dx.outerStride(), count = da.cols();
    const Scalar *a = da.data() + t, *factor = x.data() + i * x_right + t;
    Scalar* target = dx.data() + t;
    const Some prefix = Some::Map(prefixes_[level] + t), first = Some::Map(a) * prefixes_.factor(run);
    Some sum = first * Some::Map(factor);
    Some::Map(target) += first * prefix;
    for (Index k = 1; k < count; ++k) {
      a += a_right, factor += x_right, target += dx_right;
      const Some gradient = Some::Map(a);
      sum += gradient * Some::Map(factor);
      Some::Map(target) += gradient * prefix;
    }
    Some::Map(d_prefixes_.col(level).data() + t) += sum;
  }

  // Of one token, whose entries lie side by side.
  void add_to_one(int level, const MatrixView<const Scalar>& da, Scalar* dx, Index i, int run) {
    using Some = Eigen::Array<Scalar, 8, 1>;
    const Scalar *a = da.data(), *x = prefixes_.x().data() + i, prefix = prefixes_[level][0];
    const Scalar first = a[0] * prefixes_.factor(run);
    Scalar rest = first * x[0];
    dx[0] += first * prefix;
    Some sums = Some::Zero();
    Index k = 1;
    for (; k + 8 <= da.cols(); k += 8) {
      sums += Some::Map(a + k) * Some::Map(x + k);
      Some::Map(dx + k) += Some::Map(a + k) * prefix;
    }
    for (; k < da.cols(); ++k) {
      rest += a[k] * x[k];
      dx[k] += a[k] * prefix;
    }
    *d_prefixes_.col(level).data() += sums.sum() + rest;
  }

  // Tokens of one register; four of them hide the time of an addition.
  static constexpr int packet = std::max(16, EIGEN_MAX_STATIC_ALIGN_BYTES) / int{sizeof(Scalar)};

  SymmetricPowerPrefixes<P, Scalar> prefixes_;
  MatrixView<Scalar> d_prefixes_, sums_;
  MatrixView<const Scalar> d_panel_;
  MatrixView<Scalar> dx_;
  SymmetricPowerWalk<P> walk_;
};

/// dx_t = Dφ^P(x_t)ᵀ dy_t for columns whose entries lie side by side, one after the other; those of dx lie anywhere.
template <int P, class Scalar, class DX>
void set_symmetric_power_vjp(MatrixView<const Scalar> x, MatrixView<const Scalar> dy, DX& dx) {
  using Gradients = SymmetricPowerVjp<P, Scalar>;
  constexpr Index room = 4096;
  const Index d = x.rows(), D = dy.rows(), width = Gradients::scratch_columns(d), needed = width + d;
  std::array<Scalar, room> small;
  std::vector<Scalar> large(needed > room ? static_cast<std::size_t>(needed) : 0);
  Scalar* const scratch = needed > room ? large.data() : small.data();
  for (Index t = 0; t < x.cols(); ++t) {
    const MatrixView<Scalar> row(scratch + width, 1, d);
    Gradients({x.col(t).data(), 1, d}, {dy.col(t).data(), 1, D}, {scratch, 1, width}, row).take(D);
    dx.col(t) = row.transpose();
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
