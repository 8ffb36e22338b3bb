// Backward pass of a Householder chain, in compact form.
#pragma once

#include <sympow/core/view.hpp>
#include <sympow/transition/divide_and_conquer.hpp>
#include <sympow/transition/flows.hpp>
#include <sympow/transition/householder_products.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Gradients of w, β and log a from everything that a chain multiplies. Let N = -T of tokens s … e of a leaf, A_s … A_e
/// = e^{H_s} (I + U N Zᵀ) e^{G_e}, see `HouseholderProducts`; without gates U = Z = W. In what follows queries, keys
/// and columns that pass through have the gates e^{G_i}, e^{-G_j} and e^{G_e}; gradients of queries and of columns at
/// the segment's start have e^{H_s}, those of keys at its end e^{G_e}. Columns X that pass through the leaf, X̃ = (I +
/// U N Zᵀ) X with Y the gradient of X̃, give
///
///     dN += (UᵀY) (ZᵀX)ᵀ,   dU += Y (N ZᵀX)ᵀ,   dZ += X (Nᵀ UᵀY)ᵀ,   dX = (I + U N Zᵀ)ᵀ Y
///
/// the leaf's own tokens, with G = triu(ZᵀQ), C = triu(KᵀU, 1), logits KᵀQ + C N G, Q̃ = Q + U N G, K̂ = K + Z NᵀCᵀ,
/// give
///
///     dG = triu((CN)ᵀ dX + NᵀUᵀdQ̃),   dC = triu(dX (NG)ᵀ + (ZᵀdK̂)ᵀ Nᵀ, 1),   dN += (CᵀdX + UᵀdQ̃) Gᵀ + Cᵀ (ZᵀdK̂)ᵀ
///     dU += K dC + dQ̃ (NG)ᵀ,   dZ += Q dGᵀ + dK̂ CN,   dQ = dQ̃ + Z dG + K dX,   dK = dK̂ + U dCᵀ + Q dXᵀ
///
/// and N gives, with P = triu(ZᵀU, 1),
///
///     dP = triu(Nᵀ dN Nᵀ, 1),   dU += Z dP,   dZ += U dPᵀ,   dβ = -diag((I + NP)ᵀ triu(dN) (I + PN)ᵀ)
///
/// Then dw_t = e^{G_t} du_t + e^{-G_t} dz_t, and so of queries and keys. log a_t is a parameter of pairs: of the
/// products KᵀQ, ZᵀQ, KᵀU and ZᵀU with gradients dX, dG, dC and dP, and of what passes the leaf's ends. d log a_t is
/// the flow of these through t, see `PairFlows`, a sum without subtractions.
///
/// There are no divisions by β, and every term has pairs j < t ≤ i only: β_t = 0 makes dw_t = 0 exactly, and a gate of
/// 0 d log a_tc = 0. Allocates d + 500 entries for each of at most 48 tokens, with gates 7 d, and copies of what passes
/// through.
template <class S>
class HouseholderVjp {
  using View = MatrixView<S>;

 public:
  /// For a chain with recursive to_segment_frame; adds `unit` times the gradients to dw, dβ and d log a, with gates.
  HouseholderVjp(const HouseholderProducts<S>& products, double unit, Matrix<S>& dw, Eigen::VectorXd& dbeta,
                 Eigen::MatrixXd& dlog_a)
      : products_(products), unit_(unit), dw_(dw), dbeta_(dbeta), dlog_a_(dlog_a) {}

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
      auto Q = columns(x.queries, 0, n), K = columns(x.keys, 0, n), dQ = columns(x.d_queries, 0, n),
           dK = columns(x.d_keys, 0, n);
      if (is_gated()) {
        columns(x.moved_queries, 0, n) = Q, columns(x.moved_keys, 0, n) = K;
        Q = columns(x.moved_queries, 0, n), K = columns(x.moved_keys, 0, n);
      }
      add_leaf_pairs(Q, K, logits(0, 0, n, n), dQ, dK);
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
  [[nodiscard]] bool is_gated() const { return products_.is_gated(); }
  [[nodiscard]] auto U() const { return products_.U(leaf_); }
  [[nodiscard]] auto Z() const { return products_.Z(leaf_); }
  [[nodiscard]] auto N() const { return products_.negative_triangle(leaf_); }
  // dZ, and dU, which is the same without gates.
  [[nodiscard]] Matrix<S>& dU() { return is_gated() ? dU_ : dZ_; }

  void begin_leaf(Segment leaf) {
    leaf_ = leaf;
    for (Matrix<S>* x : {&dZ_, &dU_, &pairs_dU_, &pairs_dZ_})
      if (x == &dZ_ || is_gated()) resize_safely(*x, Z().rows(), leaf.size), x->setZero();
    resize_safely(dN_, leaf.size, leaf.size);
    dN_.setZero();
    if (!is_gated()) return;
    copy_resized(U_, U()), copy_resized(Z_, Z());
    resize_safely(through_, U_.rows());
    through_.setZero();
  }

  template <class X>
  static void copy_resized(Matrix<S>& copy, const X& x) {
    resize_safely(copy, x.rows(), x.cols());
    copy = x;
  }
  // C ← A B; reuses the memory of C.
  template <class A, class B>
  static Matrix<S>& set_resized(Matrix<S>& C, const A& a, const B& b) {
    resize_safely(C, a.rows(), b.cols());
    set_product(C, a, b);
    return C;
  }

  // The flows of pairs of left vectors L and right vectors R with products LᵀR.
  [[nodiscard]] auto flows(Batch<S> R, Batch<S> L, Batch<S> dX, Batch<S> dR, Batch<S> dL) {
    const auto add = [this](Index t, Index first, Index n, const double* values) {
      dlog_a_.col(leaf_.begin + t).segment(first, n) += unit_ * Eigen::Map<const Eigen::VectorXd>(values, n);
    };
    return PairFlows<S, decltype(add)>({Coupling::channels, R.rows()}, R, L, dX, dR, dL, add);
  }

  template <class X, class Y>
  void add_leaf_pass_through(const X& x, const Y& y) {
    if (!is_gated()) return add_inner_pass_through(x, y);
    copy_resized(X_, x), copy_resized(Y_, y);
    products_.apply_gates_through(leaf_, X_);
    products_.apply_gates_before(leaf_, Y_);
    Coupling{Coupling::channels, X_.rows()}.add_all<S>(through_.data(), 1, X_, Y_);
    add_inner_pass_through(X_, Y_);
  }
  template <class X, class Y>
  void add_inner_pass_through(const X& x, const Y& y) {
    set_resized(G_, Z().transpose(), x);
    set_resized(C_, U().transpose(), y);
    add_product(dN_, C_, G_.transpose());
    add_product(dU(), y, set_resized(NG_, N(), G_).transpose());
    add_product(dZ_, x, set_resized(CN_, N().transpose(), C_).transpose());
  }

  // Q and K are written with gates.
  void add_leaf_pairs(View Q, View K, View dX, View dQ, View dK) {
    if (is_gated()) {
      products_.apply_running_gates(leaf_, Q, K);
      products_.apply_gates_before(leaf_, dQ);
      products_.apply_gates_through(leaf_, dK);
      flows(Q, K, dX, dQ, dK).add_boundary(nullptr);
    }
    set_resized(G_, Z().transpose(), Q).template triangularView<Eigen::StrictlyLower>().setZero();
    set_resized(C_, K.transpose(), U()).template triangularView<Eigen::Lower>().setZero();
    set_resized(NG_, N(), G_);
    set_resized(CN_, C_, N());
    set_resized(WdQ_, U().transpose(), dQ);
    set_resized(WdK_, Z().transpose(), dK);
    set_resized(dG_, N().transpose(), WdQ_);
    set_resized(dC_, WdK_.transpose(), N().transpose());
    add_product(dU(), dQ, NG_.transpose());
    add_product(dZ_, dK, CN_);
    if (dX.size() != 0) {
      dX.template triangularView<Eigen::StrictlyLower>().setZero();
      add_product(dG_, CN_.transpose(), dX);
      add_product(dC_, dX, NG_.transpose());
      add_product(WdQ_, C_.transpose(), dX);
      if (is_gated()) {
        flows(Q, K, dX, dQ, dK).add_pairs(0, leaf_.size);
      } else {
        add_product(dQ, K, dX);
        add_product(dK, Q, dX.transpose());
      }
    }
    dG_.template triangularView<Eigen::StrictlyLower>().setZero();
    dC_.template triangularView<Eigen::Lower>().setZero();
    add_product(dN_, WdQ_, G_.transpose());
    add_product(dN_, C_.transpose(), WdK_.transpose());
    if (is_gated()) {
      flows(Q, Z_, dG_, dQ, pairs_dZ_).add_pairs(0, leaf_.size);
      flows(U_, K, dC_, pairs_dU_, dK).add_pairs(0, leaf_.size);
      return products_.apply_running_gates(leaf_, dQ, dK);
    }
    add_product(dZ_, Q, dG_.transpose());
    add_product(dZ_, K, dC_);
    add_product(dQ, Z(), dG_);
    add_product(dK, U(), dC_.transpose());
  }

  // Backpropagates dN to w, β and log a, then adds the leaf's gradients to the totals.
  void finish_leaf() {
    dN_.template triangularView<Eigen::StrictlyLower>().setZero();
    auto& P = set_resized(G_, Z().transpose(), U());
    P.template triangularView<Eigen::Lower>().setZero();
    auto& dP = set_resized(C_, N().transpose(), set_resized(dC_, dN_, N().transpose()));
    dP.diagonal().setZero();
    if (is_gated()) {
      flows(U_, Z_, dP, dU_, dZ_).add_boundary(through_.data());
      flows(U_, Z_, dP, pairs_dU_, pairs_dZ_).add_pairs(0, leaf_.size);
      dU_ += pairs_dU_, dZ_ += pairs_dZ_;
      products_.apply_running_gates(leaf_, dU_, dZ_);
      dZ_ += dU_;
    } else {
      for (Index t = 0; t < leaf_.size; ++t)
        for (Index a = 0; a < t; ++a) dP(t, a) = dP(a, t);  // dP + dPᵀ
      add_product(dZ_, Z(), dP);
    }
    auto& M = set_resized(dG_, dN_, set_resized(NG_, P, N()).transpose());  // dN (PN)ᵀ
    M += dN_;
    set_resized(CN_, N(), P);
    for (Index t = 0; t < leaf_.size; ++t) {
      const double leaf_dbeta =
          static_cast<double>(M(t, t)) + CN_.col(t).template cast<double>().dot(M.col(t).template cast<double>());
      dbeta_[leaf_.begin + t] -= unit_ * leaf_dbeta;
      dw_.col(leaf_.begin + t) += (unit_ * dZ_.col(t).template cast<double>()).template cast<S>();
    }
  }

  const HouseholderProducts<S>& products_;
  double unit_;
  Matrix<S>& dw_;
  Eigen::VectorXd& dbeta_;
  Eigen::MatrixXd& dlog_a_;
  Segment leaf_;
  Matrix<S> dZ_, dN_, G_, C_, NG_, CN_, dG_, dC_, WdQ_, WdK_;
  // With gates. Gradients of U and Z by pairs are apart from those by what passes the leaf's ends: dU_, dZ_.
  Matrix<S> U_, Z_, dU_, pairs_dU_, pairs_dZ_, X_, Y_;
  Eigen::VectorXd through_;
};

}  // namespace SYMPOW_NAMESPACE::detail
