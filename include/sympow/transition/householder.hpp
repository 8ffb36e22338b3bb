// Householder chains: the keys are mixed by I - β w wᵀ at every token.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <sympow/transition/halves.hpp>
#include <sympow/transition/transition.hpp>

namespace sympow {

/// A_i = I - β_i w_i w_iᵀ. DeltaNet ↔ PaTH.
///
/// Products of consecutive factors are kept in compact form, sixteen tokens at a time and never d × d: with these w as columns of W,
///
///     A_a … A_b = I - W T Wᵀ,   T = (I + D triu(WᵀW, 1))⁻¹ D,   D = diag(β)
///
/// T is upper triangular, and that of a part of the tokens is the block of theirs. Nothing is divided by, so β of 0, 1 and 2 are as good as others.
template <class S>
class Householder {
 public:
  static constexpr KeyAction key_action = KeyAction::mix;

  /// Throws `ShapeMismatch` unless there are as many strengths as vectors, `NotFinite`.
  Householder(Matrix<S> w, Eigen::VectorXd beta) : w_(std::move(w)), beta_(std::move(beta)) {
    detail::check_size("strengths beta", beta_.size(), w_.cols(), "columns of W, one a token");
    for (Index t = 0; t < w_.cols(); ++t)
      if (!w_.col(t).allFinite() || !std::isfinite(beta_[t]))
        detail::raise<NotFinite>("householder: at token ", t, ", beta is ", beta_[t], " and w has the length ",
                                 static_cast<double>(w_.col(t).norm()), ", must be finite");
    negative_T_.setZero(block, w_.cols());
    for (Index begin = 0; begin < w_.cols(); begin += block) solve({begin, std::min(block, w_.cols() - begin)});
    multiply_out();
  }

  [[nodiscard]] Index length() const { return w_.cols(); }
  [[nodiscard]] Index key_dimension() const { return w_.rows(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  [[nodiscard]] double beta(Index token) const { return beta_[token]; }  ///< β of a token
  void check_frame(const Frame& frame, Index d) const { LeavesKeys{}.check_frame(frame, d); }

  /// Refuses a step that lengthens a key: ‖A_i‖ ≤ 1 if and only if 0 ≤ β_i ‖w_i‖² ≤ 2. Longer steps are legal and their products grow
  /// without bound. A length that is 1 up to rounding passes. Returns the transition; throws `InvalidGate` with the first such token.
  const Householder& require_contraction() const {
    constexpr double most = 2 + 16 * static_cast<double>(std::numeric_limits<S>::epsilon());
    for (Index t = 0; t < w_.cols(); ++t) {
      const double strength = beta_[t] * w_.col(t).template cast<double>().squaredNorm();
      if (!(0 <= strength && strength <= most))
        detail::raise<InvalidGate>("householder: beta |w|^2 at token ", t, " is ", strength,
                                   ", must lie in [0, 2] for no key to grow");
    }
    return *this;
  }

  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index d) const {
    const Eigen::VectorXd w = w_.col(token).template cast<double>();
    return Eigen::MatrixXd::Identity(d, d) - beta_[token] * w * w.transpose();
  }

  template <class Scalar>
  void transport(Frame&, Segment segment, Batch<Scalar> queries, Batch<Scalar> keys, Batch<Scalar> logits) const {
    static_assert(std::is_same_v<S, Scalar>,
                  "the vectors w must have the scalar type of queries and keys; use .cast<>()");
    if constexpr (std::is_same_v<S, Scalar>) detail::transport_by_halves<S>(*this, segment, queries, keys, logits);
  }

  template <class Scalar>
  void pull(Segment segment, Batch<Scalar> queries) const {
    if constexpr (std::is_same_v<S, Scalar>)
      backwards(segment, [&](const auto& part) { part.pull(queries); });
  }

  /// K ← (A_a … A_b)ᵀ K.
  template <class Scalar>
  void push(Segment segment, Batch<Scalar> keys) const {
    if constexpr (std::is_same_v<S, Scalar>)
      forwards(segment, [&](const auto& part) { part.push(keys); });
  }

  /// X ← X A_a … A_b, the step of a state whose features are the keys themselves.
  template <class Scalar>
  void advance(Segment segment, Batch<Scalar> X) const {
    if constexpr (std::is_same_v<S, Scalar>)
      forwards(segment, [&](const auto& part) { part.push(X.transpose()); });
  }

  /// Where to cut a segment in two; its begin if it has a compact form in one piece.
  [[nodiscard]] Index middle(Segment s) const {
    const Index first = next_block(s.begin);
    if (first >= s.end()) return s.begin;
    return std::clamp((s.begin + s.end() + block) / (2 * block) * block, first, (s.end() - 1) / block * block);
  }

  /// Transport of a segment in one piece: with C = triu(KᵀW, 1) and X = T triu(WᵀQ)
  ///
  ///     logits = KᵀQ - C X,   Q ← Q - W X,   K ← K - W Tᵀ Cᵀ
  void transport_piece(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    const Part part{*this, segment};
    const Index n = segment.size;
    S first[block * block], second[block * block], third[block * block];
    Eigen::Map<Matrix<S>> C(first, n, n), G(second, n, n), X(third, n, n);
    detail::set_product(C, keys.transpose(), part.W());
    C.template triangularView<Eigen::Lower>().setZero();
    detail::set_product(G, part.W().transpose(), queries);
    G.template triangularView<Eigen::StrictlyLower>().setZero();
    detail::set_product(X, part.T(), G);
    if (logits.size() != 0) {
      detail::set_product(logits, keys.transpose(), queries);
      detail::add_product(logits, C, X);
    }
    detail::add_product(queries, part.W(), X);
    detail::set_product(X, part.T().transpose(), C.transpose());
    detail::add_product(keys, part.W(), X);
  }

 private:
  static constexpr Index block = 16;
  static constexpr Index group = 96;  // whole blocks
  static constexpr Index widest = 128;
  static constexpr Index columns_at_once = 96;
  static constexpr Index next_block(Index token) { return (token / block + 1) * block; }

  // Consecutive tokens of one block.
  struct Part {
    const Householder& chain;
    Segment tokens;

    auto W() const { return chain.w_.middleCols(tokens.begin, tokens.size); }
    auto T() const { return chain.negative_T_.block(tokens.begin % block, tokens.begin, tokens.size, tokens.size); }

    template <class Columns>
    void pull(Columns&& X) const {
      add_low_rank(T(), X);
    }
    template <class Columns>
    void push(Columns&& X) const {
      add_low_rank(T().transpose(), X);
    }

   private:
    // X ← X + W T Wᵀ X for one of the triangles, some columns at a time.
    template <class Triangle, class Columns>
    void add_low_rank(const Triangle& triangle, Columns&& X) const {
      S first[block * columns_at_once], second[block * columns_at_once];
      for (Index j = 0; j < X.cols(); j += columns_at_once) {
        auto columns = X.middleCols(j, std::min(columns_at_once, X.cols() - j));
        Eigen::Map<Matrix<S>> G(first, tokens.size, columns.cols()), H(second, tokens.size, columns.cols());
        detail::set_product(G, W().transpose(), columns);
        detail::set_product(H, triangle, G);
        detail::add_product(columns, W(), H);
      }
    }
  };

  // A group, by its product.
  struct Whole {
    const Householder& chain;
    Index begin;

    template <class Columns>
    void pull(Columns&& X) const {
      multiply(product(), X);
    }
    template <class Columns>
    void push(Columns&& X) const {
      multiply(product().transpose(), X);
    }

   private:
    auto product() const { return chain.product(begin); }

    // X ← M X, some columns at a time.
    template <class Columns, class M>
    static void multiply(const M& m, Columns&& X) {
      constexpr Index room = 64 * columns_at_once;
      constexpr int order = std::remove_cvref_t<Columns>::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor;
      S before[room];
      const Index at_once = room / X.rows();
      for (Index j = 0; j < X.cols(); j += at_once) {
        auto columns = X.middleCols(j, std::min(at_once, X.cols() - j));
        Eigen::Map<Eigen::Matrix<S, Dynamic, Dynamic, order>> copy(before, X.rows(), columns.cols());
        copy = columns;
        detail::set_product(columns, m, copy);
      }
    }
  };

  auto product(Index begin) const { return products_.middleCols(begin / group * w_.rows(), w_.rows()); }
  bool is_whole(Index begin, Index end) const {
    return begin % group == 0 && end - begin >= group && products_.size() != 0;
  }

  template <class F>
  void forwards(Segment s, F&& f) const {
    for (Index begin = s.begin, end; begin < s.end(); begin = end) {
      if (is_whole(begin, s.end())) {
        f(Whole{*this, begin});
        end = begin + group;
      } else {
        end = std::min(next_block(begin), s.end());
        f(Part{*this, {begin, end - begin}});
      }
    }
  }
  template <class F>
  void backwards(Segment s, F&& f) const {
    for (Index end = s.end(), begin; end > s.begin; end = begin) {
      begin = end - group;
      if (begin >= s.begin && is_whole(begin, end)) {
        f(Whole{*this, begin});
      } else {
        begin = std::max((end - 1) / block * block, s.begin);
        f(Part{*this, {begin, end - begin}});
      }
    }
  }

  // The products of all groups.
  void multiply_out() {
    const Index d = w_.rows(), groups = w_.cols() / group;
    if (d == 0 || d > widest) return;
    Matrix<S> products(d, d * groups);
    for (Index g = 0; g < groups; ++g) {
      auto product = products.middleCols(g * d, d);
      product.setIdentity();
      advance<S>({g * group, group}, product);
    }
    products_ = std::move(products);
  }

  // -T of a block, by back substitution in double.
  void solve(Segment tokens) {
    const Eigen::MatrixXd W = w_.middleCols(tokens.begin, tokens.size).template cast<double>();
    const Eigen::MatrixXd U = W.transpose() * W;
    Eigen::MatrixXd T = Eigen::MatrixXd::Zero(tokens.size, tokens.size);
    for (Index t = 0; t < tokens.size; ++t) {
      T(t, t) = beta_[tokens.begin + t];
      for (Index s = t - 1; s >= 0; --s)
        T(s, t) = -beta_[tokens.begin + s] * U.col(s).segment(s + 1, t - s).dot(T.col(t).segment(s + 1, t - s));
    }
    negative_T_.block(0, tokens.begin, tokens.size, tokens.size) = -T.template cast<S>();
  }

  Matrix<S> w_, negative_T_, products_;
  Eigen::VectorXd beta_;
};

/// A Householder chain, one factor a token.
///
///     M_ij = (A_{j+1} … A_i)ᵀ = A_i … A_{j+1},   A_i = I - β_i w_i w_iᵀ
///
/// w: d × T of the scalar type of queries and keys, usually of length 1; β: T strengths in a vector or array of any real type, kept in
/// double: 0 keeps, 1 projects, 2 reflects. Values are left alone: the delta rule's β v is the caller's. Attention for every power and `Exponential`; recurrent and chunked for `Linear`, whose state is
/// multiplied by A_i. Cost: 4 d (d + e) a token of the state forms, whose states keep A_1 … A_T as well, 4 d T² in attention. Throws `ShapeMismatch`, `NotFinite`; see
/// `Householder::require_contraction` for growth. Source: On the Legacy of Linear Transformers in Positional Embeddings, §5; PaTH (2025);
/// DeltaNet (2024).
template <MatrixExpression Vectors, class Strengths>
[[nodiscard]] Householder<scalar_t<Vectors>> householder(const Vectors& w, const Eigen::DenseBase<Strengths>& beta) {
  static_assert(Strengths::IsVectorAtCompileTime, "householder takes one strength beta a token, in a vector");
  return {w, beta.derived().matrix().template cast<double>().reshaped()};
}

}  // namespace sympow
