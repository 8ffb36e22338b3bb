// Householder chains: I - β w wᵀ mixes the keys at every token, behind channel gates or without.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

#include <sympow/transition/channel_decay.hpp>
#include <sympow/transition/divide_and_conquer.hpp>
#include <sympow/transition/householder_products.hpp>
#include <sympow/transition/householder_vjp.hpp>
#include <sympow/transition/product.hpp>

namespace SYMPOW_NAMESPACE {

/// A_i = I - β_i w_i w_iᵀ, DeltaNet ↔ PaTH; with channel gates A_i = diag(a_i) (I - β_i w_i w_iᵀ), Kimi Delta
/// Attention.
template <class S>
class Householder {
 public:
  static constexpr KeyAction key_action = KeyAction::mix;

  /// Throws `ShapeMismatch` unless beta has one entry per column of w, and `NotFinite`.
  Householder(Matrix<S> w, Eigen::VectorXd beta)
      : products_(validated(std::move(w), beta), beta), beta_(std::move(beta)) {}
  /// With channel gates, d × T. Throws `ShapeMismatch` for other sizes.
  template <class Real>
  Householder(Matrix<S> w, Eigen::VectorXd beta, const ChannelDecay<Real>& gates)
      : products_(validated(std::move(w), beta, &gates), beta, gates.log_gates().template cast<double>()),
        beta_(std::move(beta)) {}

  [[nodiscard]] Index length() const { return w().cols(); }
  [[nodiscard]] Index key_dimension() const { return w().rows(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  [[nodiscard]] double beta(Index token) const { return beta_[token]; }  ///< β of a token
  [[nodiscard]] bool is_gated() const { return products_.is_gated(); }   ///< whether there are channel gates
  void check_frame(const Frame& frame, Index d) const { KeepsKeys{}.check_frame(frame, d); }

  /// diag(a_i) A_i. Throws `ShapeMismatch`.
  template <class Real>
  [[nodiscard]] Householder gated(const ChannelDecay<Real>& gates) const {
    if (!is_gated()) return {w(), beta_, gates};
    validated(w(), beta_, &gates);
    return {w(), beta_, ChannelDecay<double>(gates.log_gates().template cast<double>() + products_.log_gates())};
  }

  /// Requires that no step lengthens a key: ‖I - β w wᵀ‖ ≤ 1 if and only if 0 ≤ β ‖w‖² ≤ 2, up to rounding. Other steps
  /// are allowed, but their products can grow without bound. Returns *this. Throws `InvalidGate` with the first such
  /// token.
  const Householder& require_contraction() const& {
    constexpr double limit = 2 + 16 * static_cast<double>(std::numeric_limits<S>::epsilon());
    for (Index t = 0; t < w().cols(); ++t) {
      const double strength = beta_[t] * w().col(t).template cast<double>().squaredNorm();
      if (!(0 <= strength && strength <= limit))
        detail::raise<InvalidGate>("householder: beta |w|^2 at token ", t, " is ", strength,
                                   ", must lie in [0, 2] for no key to grow");
    }
    return *this;
  }
  /// The check for a temporary, which is returned.
  Householder require_contraction() && {
    std::as_const(*this).require_contraction();
    return std::move(*this);
  }

  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index d) const {
    const Eigen::VectorXd vector = w().col(token).template cast<double>();
    Eigen::MatrixXd A = -(beta_[token] * vector) * vector.transpose();
    A.diagonal().array() += 1;
    for (Index i = 0; is_gated() && i < d; ++i) A.row(i) *= std::exp(products_.log_gates()(i, token));
    return A;
  }

  /// Σ_t max_c log a_tc, 0 without gates.
  [[nodiscard]] double total_max_log_gate() const {
    double total = 0;
    for (Index t = 0; is_gated() && key_dimension() > 0 && t < length(); ++t)
      total += products_.log_gates().col(t).maxCoeff();
    return total;
  }
  /// That of the gates, see `ChannelDecay`; the chain is built again. Only with gates.
  [[nodiscard]] Householder factor_out_max_gate(Eigen::VectorXd& slowest) const {
    return {w(), beta_, ChannelDecay<double>(products_.log_gates()).factor_out_max_gate(slowest)};
  }

  template <class Scalar>
  void to_segment_frame(Frame&, Segment segment, Batch<Scalar> queries, Batch<Scalar> keys,
                        Batch<Scalar> logits) const {
    static_assert(std::is_same_v<S, Scalar>,
                  "the vectors w must have the scalar type of queries and keys; use .cast<>()");
    if constexpr (std::is_same_v<S, Scalar>) detail::move_recursively<S>(*this, segment, queries, keys, logits);
  }

  template <class Scalar>
  void apply_to_queries(Segment segment, Batch<Scalar> queries) const {
    if constexpr (std::is_same_v<S, Scalar>) products_.apply_to_queries(segment, queries);
  }

  /// K ← (A_a … A_b)ᵀ K.
  template <class Scalar>
  void apply_to_keys(Segment segment, Batch<Scalar> keys) const {
    if constexpr (std::is_same_v<S, Scalar>) products_.apply_to_keys(segment, keys);
  }

  /// X ← X A_a … A_b, the step of a state whose features are the keys.
  template <class Scalar>
  void apply_to_state(Segment segment, Batch<Scalar> X) const {
    if constexpr (std::is_same_v<S, Scalar>) products_.apply_to_keys(segment, X.transpose());
  }

  /// Gradient with respect to the parameters.
  struct Gradient {
    Matrix<S> w;            ///< ∂loss/∂w, d × T; 0 where β = 0
    Eigen::VectorXd beta;   ///< ∂loss/∂β, T entries
    Eigen::MatrixXd log_a;  ///< ∂loss/∂log a, d × T, 0 where a = 0; empty without gates

    /// Of a factor of `channel_decay(log_a) * householder(w, beta)`: of both, as a factor's gradient is part of this.
    template <class Factor>
    [[nodiscard]] const Gradient& of() const {
      return detail::gradient_of<Factor, Householder>(*this);
    }
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const {
    const Index d = w().rows();
    return {Matrix<S>::Zero(d, tokens), Eigen::VectorXd::Zero(tokens),
            Eigen::MatrixXd::Zero(is_gated() ? d : 0, is_gated() ? tokens : 0)};
  }
  void add_decay_flows(Segment, const double*, Gradient&) const {}
  /// A part that shares the products.
  [[nodiscard]] Householder part(Segment s) const { return {products_.part(s), beta_.segment(s.begin, s.size)}; }
  void join(const Gradient& part, Segment s, Gradient& whole) const {
    whole.w.middleCols(s.begin, s.size) += part.w;
    whole.beta.segment(s.begin, s.size) += part.beta;
    if (is_gated()) whole.log_a.middleCols(s.begin, s.size) += part.log_a;
  }
  template <std::same_as<S> Scalar>
  void to_segment_frame_vjp(Frame&, Segment segment, SegmentVjp<Scalar>& x, Gradient& g) const {
    detail::HouseholderVjp<S>(products_, x.unit, g.w, g.beta, g.log_a)
        .backprop_part(*this, segment, 0, x, x.state, x.adjoint);
  }
  template <std::same_as<S> Scalar>
  void apply_to_queries_vjp(Segment segment, Batch<Scalar> X, Batch<Scalar> dX, double unit, Gradient& g) const {
    detail::HouseholderVjp<S>(products_, unit, g.w, g.beta, g.log_a).add_pass_through(*this, segment, X, dX);
    products_.apply_to_keys(segment, dX);
  }

  /// Where to split a segment; its begin if it lies in one leaf.
  [[nodiscard]] Index split_point(Segment s) const { return products_.split_point(s); }

  /// Transports a leaf: with G = triu(ZᵀQ) and C = triu(KᵀU, 1) of gated q_i ← e^{G_i} q_i and k_i ← e^{-G_i} k_i
  ///
  ///     logits = KᵀQ - C T G,   Q ← Q - U T G,   K ← K - Z (C T)ᵀ
  ///
  /// and then the gates before and through the leaf; U = Z = W without gates, see `detail::HouseholderProducts`.
  void move_leaf(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    constexpr Index size = detail::triangle_size;
    if (segment.size == 1) {
      if (logits.size() != 0) detail::set_product(logits, keys.transpose(), queries);
      return apply_to_queries<S>(segment, queries);
    }
    products_.apply_running_gates(segment, queries, keys);
    const auto U = products_.U(segment), Z = products_.Z(segment);
    const auto T = products_.negative_triangle(segment);
    const Index n = segment.size, left = std::min(n, size / 2), right = n - left;
    S first[size * size], second[size * size];
    Eigen::Map<Matrix<S>> G(first, n, n), C(first, n, n), X(second, n, n);
    detail::set_upper_product(G, Z.transpose(), queries);
    G.template triangularView<Eigen::StrictlyLower>().setZero();
    detail::multiply_upper<false>(X, T, G);
    if (logits.size() != 0) detail::set_upper_product(logits, keys.transpose(), queries);
    detail::add_product(queries.leftCols(left), U.leftCols(left), X.topLeftCorner(left, left));
    detail::add_product(queries.rightCols(right), U, X.rightCols(right));
    detail::set_upper_product(C, keys.transpose(), U);  // G is used up
    C.template triangularView<Eigen::Lower>().setZero();
    if (logits.size() != 0) detail::multiply_upper<true>(logits, C, X);
    detail::multiply_upper<false>(X, C, T);
    detail::add_product(keys.leftCols(left), Z, X.topRows(left).transpose());
    detail::add_product(keys.rightCols(right), Z.rightCols(right), X.bottomRightCorner(right, right).transpose());
    products_.apply_gates_before(segment, queries);
    products_.apply_gates_through(segment, keys);
  }

 private:
  Householder(detail::HouseholderProducts<S> products, Eigen::VectorXd beta)
      : products_(std::move(products)), beta_(std::move(beta)) {}

  template <class Real = double>
  static Matrix<S> validated(Matrix<S> w, const Eigen::VectorXd& beta, const ChannelDecay<Real>* gates = nullptr) {
    detail::check_size("strengths beta", beta.size(), w.cols(), "columns of W, one a token");
    if (gates != nullptr) {
      detail::check_size("channels of the gates", gates->key_dimension(), w.rows(), "rows of W");
      detail::check_size("length of the gates", gates->length(), w.cols(), "columns of W, one a token");
    }
    for (Index t = 0; t < w.cols(); ++t)
      if (!w.col(t).allFinite() || !std::isfinite(beta[t]))
        detail::raise<NotFinite>("householder: at token ", t, ", beta is ", beta[t], " and w has the length ",
                                 static_cast<double>(w.col(t).norm()), ", must be finite");
    return w;
  }
  [[nodiscard]] auto w() const { return products_.vectors(); }

  detail::HouseholderProducts<S> products_;
  Eigen::VectorXd beta_;
};

namespace detail {
/// Gradients of gates and of a chain are one.
template <class Real, class S>
inline constexpr bool has_factor<ChannelDecay<Real>, Householder<S>> = true;
}  // namespace detail

/// A Householder chain, one factor per token.
///
///     M_ij = (A_{j+1} … A_i)ᵀ = A_i … A_{j+1},   A_i = I - β_i w_i w_iᵀ
///
/// w: d × T of the scalar type of queries and keys, usually of unit length. β: T strengths of any real type in a vector
/// or array, stored in double; 0 keeps, 1 projects, 2 reflects. Values are unchanged: pass β v for the delta rule.
/// Attention supports every power and `Exponential`; recurrent and chunked forms support `Linear`, whose state is
/// multiplied by A_i. Cost per token: 4 d T in attention; in the state forms 4 d (d + e), or 4 d e without the product
/// A_1 … A_T (`State::drop_key_product`). Stored products lower it, see `detail::HouseholderProducts`. Steps may
/// lengthen keys, see `Householder::require_contraction`. Throws `ShapeMismatch`, `NotFinite`. Source: On the Legacy of
/// Linear Transformers in Positional Embeddings, §5; PaTH (2025); DeltaNet (2024).
template <MatrixExpression Vectors, class Strengths>
[[nodiscard]] Householder<scalar_t<Vectors>> householder(const Vectors& w, const Eigen::DenseBase<Strengths>& beta) {
  static_assert(Strengths::IsVectorAtCompileTime, "householder takes one strength beta a token, in a vector");
  return {w, beta.derived().matrix().template cast<double>().reshaped()};
}

/// `channel_decay(log_a) * householder(w, beta)`: a Householder chain behind channel gates.
///
///     A_i = diag(a_i) (I - β_i w_i w_iᵀ)            M_ij = (A_{j+1} … A_i)ᵀ
///
/// log_a: d × T, each ≤ 0, -∞ allowed. The gates act before the reflection, and a product in the other order does not
/// compile. Scalar decays stand anywhere beside it. Forms, powers and states are those of `householder`; its gradient
/// has `log_a` too, and is the one `of` either factor. Cost per token: as `householder` without stored products, and
/// one pass of gates in 16 tokens; d exponentials once. Where a channel decays below 2^-40 within 48 tokens, products
/// are shorter and chunks of 16 the fastest. Throws `ShapeMismatch`. Source: Kimi Linear (2025).
template <class Real, class S>
[[nodiscard]] Householder<S> operator*(ChannelDecay<Real> gates, Householder<S> chain) {
  return chain.gated(gates);
}

}  // namespace SYMPOW_NAMESPACE
