// The way back through a Householder chain, in compact form.
#pragma once

#include <sympow/core/view.hpp>
#include <sympow/transition/halves.hpp>
#include <sympow/transition/householder_products.hpp>
#include <sympow/transition/transport_vjp.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Gradients of w and β from all that tokens of a chain multiply. With N = -T of a piece of it, A_a … A_b = I + W N Wᵀ,
/// what passes the piece, X̃ = A_a … A_b X with Y the gradient of X̃, gives
///
///     dN += (WᵀY) (WᵀX)ᵀ,   dW += Y (N WᵀX)ᵀ + X (Nᵀ WᵀY)ᵀ,   dX = (A_a … A_b)ᵀ Y
///
/// its own tokens, G = triu(WᵀQ), C = triu(KᵀW, 1), logits KᵀQ + C N G, Q̃ = Q + W N G, K̂ = K + W NᵀCᵀ,
///
///     dG = triu((CN)ᵀ dX + NᵀWᵀdQ̃),   dC = triu(dX (NG)ᵀ + (WᵀdK̂)ᵀ Nᵀ, 1),   dN += (CᵀdX + WᵀdQ̃) Gᵀ + Cᵀ (WᵀdK̂)ᵀ
///     dW += Q dGᵀ + K dC + dQ̃ (NG)ᵀ + dK̂ CN,   dQ = dQ̃ + W dG + K dX,   dK = dK̂ + W dCᵀ + Q dXᵀ
///
/// and N itself, with U = triu(WᵀW, 1),
///
///     dU = triu(Nᵀ dN Nᵀ, 1),   dW += W (dU + dUᵀ),   dβ = -diag((I + NU)ᵀ triu(dN) (I + UN)ᵀ)
///
/// Nothing is divided by β, and every term holds pairs j < t ≤ i only: β_t = 0 makes dw_t = 0 exactly. It asks for
/// memory: d + 500 numbers for each of at most 48 tokens, and copies of what passes them.
template <class S>
class HouseholderVjp {
  using View = MatrixView<S>;

 public:
  /// Of a chain, which can be transported by halves; adds to dw and dβ `unit` times what it finds.
  HouseholderVjp(const HouseholderProducts<S>& products, double unit, Matrix<S>& dw, Eigen::VectorXd& dbeta)
      : products_(products), unit_(unit), dw_(dw), dbeta_(dbeta) {}

  /// Tokens of a segment from number `first` of x on. A cut sends its two sides' queries and keys to each other through
  /// the other side.
  template <class Chain>
  void add_part(const Chain& chain, Segment part, Index first, TransportVjp<S>& x, View state, View adjoint) {
    const Index n = part.size, half = chain.middle(part) - part.begin, rest = n - half;
    if (n == 0) return;
    const auto columns = [&](Batch<S>& of, Index from, Index count) {
      return View(of).middleCols(first + from, count);
    };
    const auto logits = [&](Index row, Index column, Index rows, Index cols) {
      return x.d_logits.size() == 0 ? View(x.d_logits)
                                    : View(x.d_logits).block(first + row, first + column, rows, cols);
    };
    if (half == 0) {
      begin(part);
      add_pairs(columns(x.queries, 0, n), columns(x.keys, 0, n), logits(0, 0, n, n), columns(x.d_queries, 0, n),
                columns(x.d_keys, 0, n));
      if (state.size() != 0) add_passing(adjoint.transpose(), state.transpose());
      return end();
    }
    const Segment left{part.begin, half}, right{part.begin + half, rest};
    auto Q = columns(x.moved_queries, 0, n), K = columns(x.moved_keys, 0, n);
    Q = columns(x.queries, 0, n);
    K = columns(x.keys, 0, n);
    transport_by_halves<S>(chain, left, Q.leftCols(half), K.leftCols(half), no_logits<S>());
    transport_by_halves<S>(chain, right, Q.rightCols(rest), K.rightCols(rest), no_logits<S>());
    const View queries = Q.rightCols(rest), keys = K.leftCols(half);  // where they meet
    const auto d_queries = columns(x.d_queries, half, rest), d_keys = columns(x.d_keys, 0, half);
    add_through(chain, left, queries, d_queries);
    products_.push(left, d_queries);
    add_through(chain, right, d_keys, keys);
    products_.pull(right, d_keys);
    if (x.d_logits.size() != 0) {
      const auto dX = logits(0, half, half, rest);
      add_product(d_queries, keys, dX);
      add_product(d_keys, queries, dX.transpose());
    }
    Matrix<S> state_between = state, adjoint_between = adjoint;
    if (state.size() != 0) {
      products_.push(left, state_between.transpose());
      products_.pull(right, adjoint_between.transpose());
    }
    add_part(chain, left, first, x, state, adjoint_between);
    add_part(chain, right, first + half, x, state_between, adjoint);
  }

  /// What passes a whole segment: X at its end and Y, the gradient, at its start.
  template <class Chain>
  void add_through(const Chain& chain, Segment s, View X, View Y) {
    const Index middle = chain.middle(s);
    if (s.size == 0 || X.cols() == 0) return;
    if (middle == s.begin) {
      begin(s);
      add_passing(X, Y);
      return end();
    }
    const Segment left{s.begin, middle - s.begin}, right{middle, s.end() - middle};
    Matrix<S> between = X;
    products_.pull(right, between);
    add_through(chain, left, between, Y);
    between = Y;
    products_.push(left, between);
    add_through(chain, right, X, between);
  }

 private:
  [[nodiscard]] auto W() const { return products_.vectors().middleCols(piece_.begin, piece_.size); }
  [[nodiscard]] auto N() const { return products_.negative_triangle(piece_); }

  void begin(Segment piece) {
    piece_ = piece;
    resize_anew(dW_, W().rows(), piece.size);
    resize_anew(dN_, piece.size, piece.size);
    dW_.setZero(), dN_.setZero();
  }

  // C ← A B, its memory kept.
  template <class A, class B>
  static Matrix<S>& set(Matrix<S>& C, const A& a, const B& b) {
    resize_anew(C, a.rows(), b.cols());
    set_product(C, a, b);
    return C;
  }

  template <class X, class Y>
  void add_passing(const X& x, const Y& y) {
    set(G_, W().transpose(), x);
    set(C_, W().transpose(), y);
    add_product(dN_, C_, G_.transpose());
    add_product(dW_, y, set(NG_, N(), G_).transpose());
    add_product(dW_, x, set(CN_, N().transpose(), C_).transpose());
  }

  void add_pairs(View Q, View K, View dX, View dQ, View dK) {
    set(G_, W().transpose(), Q).template triangularView<Eigen::StrictlyLower>().setZero();
    set(C_, K.transpose(), W()).template triangularView<Eigen::Lower>().setZero();
    set(NG_, N(), G_);
    set(CN_, C_, N());
    set(WdQ_, W().transpose(), dQ);
    set(WdK_, W().transpose(), dK);
    set(dG_, N().transpose(), WdQ_);
    set(dC_, WdK_.transpose(), N().transpose());
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

  // From dN to w and β, and all of it to where it belongs.
  void end() {
    dN_.template triangularView<Eigen::StrictlyLower>().setZero();
    auto& U = set(G_, W().transpose(), W());
    U.template triangularView<Eigen::Lower>().setZero();
    auto& dU = set(C_, N().transpose(), set(dC_, dN_, N().transpose()));
    for (Index t = 0; t < piece_.size; ++t) {
      dU(t, t) = 0;
      for (Index a = 0; a < t; ++a) dU(t, a) = dU(a, t);  // dU + dUᵀ
    }
    add_product(dW_, W(), dU);
    auto& M = set(dG_, dN_, set(NG_, U, N()).transpose());  // dN (UN)ᵀ
    M += dN_;
    set(CN_, N(), U);
    for (Index t = 0; t < piece_.size; ++t) {
      const double through =
          static_cast<double>(M(t, t)) + CN_.col(t).template cast<double>().dot(M.col(t).template cast<double>());
      dbeta_[piece_.begin + t] -= unit_ * through;
      dw_.col(piece_.begin + t) += (unit_ * dW_.col(t).template cast<double>()).template cast<S>();
    }
  }

  const HouseholderProducts<S>& products_;
  double unit_;
  Matrix<S>& dw_;
  Eigen::VectorXd& dbeta_;
  Segment piece_;
  Matrix<S> dW_, dN_, G_, C_, NG_, CN_, dG_, dC_, WdQ_, WdK_;
};

}  // namespace SYMPOW_NAMESPACE::detail
