// Householder chains: I - β w wᵀ mixes the keys at every token.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

#include <sympow/transition/divide_and_conquer.hpp>
#include <sympow/transition/householder_products.hpp>
#include <sympow/transition/householder_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// A_i = I - β_i w_i w_iᵀ. DeltaNet ↔ PaTH.
template <class S>
class Householder {
 public:
  static constexpr KeyAction key_action = KeyAction::mix;

  /// Throws `ShapeMismatch` unless beta has one entry per column of w, and `NotFinite`.
  Householder(Matrix<S> w, Eigen::VectorXd beta)
      : products_(validated(std::move(w), beta), beta), beta_(std::move(beta)) {}

  [[nodiscard]] Index length() const { return w().cols(); }
  [[nodiscard]] Index key_dimension() const { return w().rows(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  [[nodiscard]] double beta(Index token) const { return beta_[token]; }  ///< β of a token
  void check_frame(const Frame& frame, Index d) const { KeepsKeys{}.check_frame(frame, d); }

  /// Requires that no step lengthens a key: ‖A_i‖ ≤ 1 if and only if 0 ≤ β_i ‖w_i‖² ≤ 2, up to rounding. Other steps
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
    Eigen::MatrixXd A(d, d);
    for (Index j = 0; j < d; ++j)
      for (Index i = 0; i < d; ++i)
        A(i, j) =
            (i == j ? 1 : 0) - beta_[token] * static_cast<double>(w()(i, token)) * static_cast<double>(w()(j, token));
    return A;
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
    Matrix<S> w;           ///< ∂loss/∂w, d × T; 0 where β = 0
    Eigen::VectorXd beta;  ///< ∂loss/∂β, T entries
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const {
    return {Matrix<S>::Zero(w().rows(), tokens), Eigen::VectorXd::Zero(tokens)};
  }
  void add_decay_flows(Segment, const double*, Gradient&) const {}
  /// A part that shares the products.
  [[nodiscard]] Householder part(Segment s) const { return {products_.part(s), beta_.segment(s.begin, s.size)}; }
  void join(const Gradient& part, Segment s, Gradient& whole) const {
    whole.w.middleCols(s.begin, s.size) += part.w;
    whole.beta.segment(s.begin, s.size) += part.beta;
  }
  template <std::same_as<S> Scalar>
  void to_segment_frame_vjp(Frame&, Segment segment, SegmentVjp<Scalar>& x, Gradient& g) const {
    detail::HouseholderVjp<S>(products_, x.unit, g.w, g.beta).backprop_part(*this, segment, 0, x, x.state, x.adjoint);
  }
  template <std::same_as<S> Scalar>
  void apply_to_queries_vjp(Segment segment, Batch<Scalar> X, Batch<Scalar> dX, double unit, Gradient& g) const {
    detail::HouseholderVjp<S>(products_, unit, g.w, g.beta).add_pass_through(*this, segment, X, dX);
    products_.apply_to_keys(segment, dX);
  }

  /// Where to split a segment; its begin if one triangle covers it.
  [[nodiscard]] Index split_point(Segment s) const { return products_.split_point(s); }

  /// Transports a leaf: with G = triu(WᵀQ) and C = triu(KᵀW, 1)
  ///
  ///     logits = KᵀQ - C T G,   Q ← Q - W T G,   K ← K - W (C T)ᵀ
  void move_leaf(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    constexpr Index size = detail::triangle_size;
    if (segment.size == 1) {
      if (logits.size() != 0) detail::set_product(logits, keys.transpose(), queries);
      return apply_to_queries<S>(segment, queries);
    }
    const auto W = w().middleCols(segment.begin, segment.size);
    const auto T = products_.negative_triangle(segment);
    const Index n = segment.size, left = std::min(n, size / 2), right = n - left;
    S first[size * size], second[size * size];
    Eigen::Map<Matrix<S>> G(first, n, n), C(first, n, n), X(second, n, n);
    detail::set_upper_product(G, W.transpose(), queries);
    G.template triangularView<Eigen::StrictlyLower>().setZero();
    detail::multiply_upper<false>(X, T, G);
    if (logits.size() != 0) detail::set_upper_product(logits, keys.transpose(), queries);
    detail::add_product(queries.leftCols(left), W.leftCols(left), X.topLeftCorner(left, left));
    detail::add_product(queries.rightCols(right), W, X.rightCols(right));
    detail::set_upper_product(C, keys.transpose(), W);  // G is used up
    C.template triangularView<Eigen::Lower>().setZero();
    if (logits.size() != 0) detail::multiply_upper<true>(logits, C, X);
    detail::multiply_upper<false>(X, C, T);
    detail::add_product(keys.leftCols(left), W, X.topRows(left).transpose());
    detail::add_product(keys.rightCols(right), W.rightCols(right), X.bottomRightCorner(right, right).transpose());
  }

 private:
  Householder(detail::HouseholderProducts<S> products, Eigen::VectorXd beta)
      : products_(std::move(products)), beta_(std::move(beta)) {}

  static Matrix<S> validated(Matrix<S> w, const Eigen::VectorXd& beta) {
    detail::check_size("strengths beta", beta.size(), w.cols(), "columns of W, one a token");
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

}  // namespace SYMPOW_NAMESPACE
