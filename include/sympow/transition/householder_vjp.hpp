// Backward pass of a Householder chain, in compact form.
#pragma once

#include <sympow/core/view.hpp>
#include <sympow/transition/divide_and_conquer.hpp>
#include <sympow/transition/householder_products.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Gradients of w and β from everything that a chain multiplies. Let N = -T of a leaf, A_a … A_b = I + W N Wᵀ. Columns
/// X that pass through the leaf, X̃ = A_a … A_b X with Y the gradient of X̃, give
///
///     dN += (WᵀY) (WᵀX)ᵀ,   dW += Y (N WᵀX)ᵀ + X (Nᵀ WᵀY)ᵀ,   dX = (A_a … A_b)ᵀ Y
///
/// the leaf's own tokens, with G = triu(WᵀQ), C = triu(KᵀW, 1), logits KᵀQ + C N G, Q̃ = Q + W N G, K̂ = K + W NᵀCᵀ,
/// give
///
///     dG = triu((CN)ᵀ dX + NᵀWᵀdQ̃),   dC = triu(dX (NG)ᵀ + (WᵀdK̂)ᵀ Nᵀ, 1),   dN += (CᵀdX + WᵀdQ̃) Gᵀ + Cᵀ (WᵀdK̂)ᵀ
///     dW += Q dGᵀ + K dC + dQ̃ (NG)ᵀ + dK̂ CN,   dQ = dQ̃ + W dG + K dX,   dK = dK̂ + W dCᵀ + Q dXᵀ
///
/// and N gives, with U = triu(WᵀW, 1),
///
///     dU = triu(Nᵀ dN Nᵀ, 1),   dW += W (dU + dUᵀ),   dβ = -diag((I + NU)ᵀ triu(dN) (I + UN)ᵀ)
///
/// There are no divisions by β, and every term has pairs j < t ≤ i only: β_t = 0 makes dw_t = 0 exactly. Allocates d +
/// 500 entries for each of at most 48 tokens, and copies of what passes through.
template <class S>
class HouseholderVjp {
  using View = MatrixView<S>;

 public:
  /// For a chain with recursive to_segment_frame; adds `unit` times the gradients to dw and dβ.
  HouseholderVjp(const HouseholderProducts<S>& products, double unit, Matrix<S>& dw, Eigen::VectorXd& dbeta)
      : products_(products), unit_(unit), dw_(dw), dbeta_(dbeta) {}

  /// Backpropagates through a part whose tokens begin at column `first` of x. A split passes the queries and keys of
  /// each side through the other.
  template <class Chain>
  void backprop_part(const Chain& chain, Segment part, Index first, SegmentVjp<S>& x, View state, View adjoint) {
    const Index n = part.size, left_size = chain.split_point(part) - part.begin, right_size = n - left_size;
    if (n == 0) return;
    const auto columns = [&](Batch<S>& batch, Index offset, Index count) {
      return View(batch).middleCols(first + offset, count);
    };
    const auto logits = [&](Index row, Index column, Index rows, Index cols) {
      return x.d_logits.size() == 0 ? View(x.d_logits)
                                    : View(x.d_logits).block(first + row, first + column, rows, cols);
    };
    if (left_size == 0) {
      begin_leaf(part);
      add_leaf_pairs(columns(x.queries, 0, n), columns(x.keys, 0, n), logits(0, 0, n, n), columns(x.d_queries, 0, n),
                     columns(x.d_keys, 0, n));
      if (state.size() != 0) add_leaf_pass_through(adjoint.transpose(), state.transpose());
      return finish_leaf();
    }
    const Segment left{part.begin, left_size}, right{part.begin + left_size, right_size};
    auto Q = columns(x.moved_queries, 0, n), K = columns(x.moved_keys, 0, n);
    Q = columns(x.queries, 0, n);
    K = columns(x.keys, 0, n);
    move_recursively<S>(chain, left, Q.leftCols(left_size), K.leftCols(left_size), no_logits<S>());
    move_recursively<S>(chain, right, Q.rightCols(right_size), K.rightCols(right_size), no_logits<S>());
    const View queries = Q.rightCols(right_size), keys = K.leftCols(left_size);  // both at the split point
    const auto d_queries = columns(x.d_queries, left_size, right_size), d_keys = columns(x.d_keys, 0, left_size);
    add_pass_through(chain, left, queries, d_queries);
    products_.apply_to_keys(left, d_queries);
    add_pass_through(chain, right, d_keys, keys);
    products_.apply_to_queries(right, d_keys);
    if (x.d_logits.size() != 0) {
      const auto dX = logits(0, left_size, left_size, right_size);
      add_product(d_queries, keys, dX);
      add_product(d_keys, queries, dX.transpose());
    }
    Matrix<S> state_between = state, adjoint_between = adjoint;
    if (state.size() != 0) {
      products_.apply_to_keys(left, state_between.transpose());
      products_.apply_to_queries(right, adjoint_between.transpose());
    }
    backprop_part(chain, left, first, x, state, adjoint_between);
    backprop_part(chain, right, first + left_size, x, state_between, adjoint);
  }

  /// Adds what passes through a whole segment: X at its end and its gradient Y at the start.
  template <class Chain>
  void add_pass_through(const Chain& chain, Segment s, View X, View Y) {
    const Index split_point = chain.split_point(s);
    if (s.size == 0 || X.cols() == 0) return;
    if (split_point == s.begin) {
      begin_leaf(s);
      add_leaf_pass_through(X, Y);
      return finish_leaf();
    }
    const Segment left{s.begin, split_point - s.begin}, right{split_point, s.end() - split_point};
    Matrix<S> between = X;
    products_.apply_to_queries(right, between);
    add_pass_through(chain, left, between, Y);
    between = Y;
    products_.apply_to_keys(left, between);
    add_pass_through(chain, right, X, between);
  }

 private:
  [[nodiscard]] auto W() const { return products_.vectors().middleCols(leaf_.begin, leaf_.size); }
  [[nodiscard]] auto N() const { return products_.negative_triangle(leaf_); }

  void begin_leaf(Segment leaf) {
    leaf_ = leaf;
    resize_safely(dW_, W().rows(), leaf.size);
    resize_safely(dN_, leaf.size, leaf.size);
    dW_.setZero(), dN_.setZero();
  }

  // C ← A B; reuses the memory of C.
  template <class A, class B>
  static Matrix<S>& set_resized(Matrix<S>& C, const A& a, const B& b) {
    resize_safely(C, a.rows(), b.cols());
    set_product(C, a, b);
    return C;
  }

  template <class X, class Y>
  void add_leaf_pass_through(const X& x, const Y& y) {
    set_resized(G_, W().transpose(), x);
    set_resized(C_, W().transpose(), y);
    add_product(dN_, C_, G_.transpose());
    add_product(dW_, y, set_resized(NG_, N(), G_).transpose());
    add_product(dW_, x, set_resized(CN_, N().transpose(), C_).transpose());
  }

  void add_leaf_pairs(View Q, View K, View dX, View dQ, View dK) {
    set_resized(G_, W().transpose(), Q).template triangularView<Eigen::StrictlyLower>().setZero();
    set_resized(C_, K.transpose(), W()).template triangularView<Eigen::Lower>().setZero();
    set_resized(NG_, N(), G_);
    set_resized(CN_, C_, N());
    set_resized(WdQ_, W().transpose(), dQ);
    set_resized(WdK_, W().transpose(), dK);
    set_resized(dG_, N().transpose(), WdQ_);
    set_resized(dC_, WdK_.transpose(), N().transpose());
    add_product(dW_, dQ, NG_.transpose());
    add_product(dW_, dK, CN_);
    if (dX.size() != 0) {
      dX.template triangularView<Eigen::StrictlyLower>().setZero();
      add_product(dG_, CN_.transpose(), dX);
      add_product(dC_, dX, NG_.transpose());
      add_product(WdQ_, C_.transpose(), dX);
      add_product(dQ, K, dX);
      add_product(dK, Q, dX.transpose());
    }
    dG_.template triangularView<Eigen::StrictlyLower>().setZero();
    dC_.template triangularView<Eigen::Lower>().setZero();
    add_product(dN_, WdQ_, G_.transpose());
    add_product(dN_, C_.transpose(), WdK_.transpose());
    add_product(dW_, Q, dG_.transpose());
    add_product(dW_, K, dC_);
    add_product(dQ, W(), dG_);
    add_product(dK, W(), dC_.transpose());
  }

  // Backpropagates dN to w and β, then adds the leaf's gradients to the totals.
  void finish_leaf() {
    dN_.template triangularView<Eigen::StrictlyLower>().setZero();
    auto& U = set_resized(G_, W().transpose(), W());
    U.template triangularView<Eigen::Lower>().setZero();
    auto& dU = set_resized(C_, N().transpose(), set_resized(dC_, dN_, N().transpose()));
    for (Index t = 0; t < leaf_.size; ++t) {
      dU(t, t) = 0;
      for (Index a = 0; a < t; ++a) dU(t, a) = dU(a, t);  // dU + dUᵀ
    }
    add_product(dW_, W(), dU);
    auto& M = set_resized(dG_, dN_, set_resized(NG_, U, N()).transpose());  // dN (UN)ᵀ
    M += dN_;
    set_resized(CN_, N(), U);
    for (Index t = 0; t < leaf_.size; ++t) {
      const double leaf_dbeta =
          static_cast<double>(M(t, t)) + CN_.col(t).template cast<double>().dot(M.col(t).template cast<double>());
      dbeta_[leaf_.begin + t] -= unit_ * leaf_dbeta;
      dw_.col(leaf_.begin + t) += (unit_ * dW_.col(t).template cast<double>()).template cast<S>();
    }
  }

  const HouseholderProducts<S>& products_;
  double unit_;
  Matrix<S>& dw_;
  Eigen::VectorXd& dbeta_;
  Segment leaf_;
  Matrix<S> dW_, dN_, G_, C_, NG_, CN_, dG_, dC_, WdQ_, WdK_;
};

}  // namespace SYMPOW_NAMESPACE::detail
