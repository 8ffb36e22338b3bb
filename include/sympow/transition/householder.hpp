// Householder chains: the keys are mixed by I - β w wᵀ at every token.
#pragma once

#include <algorithm>
#include <array>
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
    solve();
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
    if constexpr (std::is_same_v<S, Scalar>) backwards(segment, [&](const auto& part) { part.pull(queries); });
  }

  /// K ← (A_a … A_b)ᵀ K.
  template <class Scalar>
  void push(Segment segment, Batch<Scalar> keys) const {
    if constexpr (std::is_same_v<S, Scalar>) forwards(segment, [&](const auto& part) { part.push(keys); });
  }

  /// X ← X A_a … A_b, the step of a state whose features are the keys themselves.
  template <class Scalar>
  void advance(Segment segment, Batch<Scalar> X) const {
    if constexpr (std::is_same_v<S, Scalar>) forwards(segment, [&](const auto& part) { part.push(X.transpose()); });
  }

  /// Where to cut a segment in two; its begin if it has a compact form in one piece.
  [[nodiscard]] Index middle(Segment s) const {
    const Index first = next<stretch>(s.begin);
    if (first >= s.end()) return s.begin;
    return std::clamp((s.begin + s.end() + stretch) / (2 * stretch) * stretch, first,
                      (s.end() - 1) / stretch * stretch);
  }

  /// Transport of a segment in one piece: with G = triu(WᵀQ), C = triu(KᵀW, 1) and D = C T
  ///
  ///     logits = KᵀQ - D G,   Q ← Q - W T G,   K ← K - W Dᵀ
  void transport_piece(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    const Part part{*this, segment};
    const auto W = part.W();
    const Index n = segment.size, left = std::min(n, stretch / 2), right = n - left;
    S first[stretch * stretch], second[stretch * stretch], third[stretch * stretch];
    Eigen::Map<Matrix<S>> G(first, n, n), C(second, n, n), X(third, n, n);
    set_upper_product(G, W.transpose(), queries);
    G.template triangularView<Eigen::StrictlyLower>().setZero();
    set_upper_product(C, keys.transpose(), W);
    C.template triangularView<Eigen::Lower>().setZero();
    if (logits.size() != 0) set_upper_product(logits, keys.transpose(), queries);
    multiply_upper<false>(X, part.T(), G);
    detail::add_product(queries.leftCols(left), W.leftCols(left), X.topLeftCorner(left, left));
    detail::add_product(queries.rightCols(right), W, X.rightCols(right));
    multiply_upper<false>(X, C, part.T());
    if (logits.size() != 0) multiply_upper<true>(logits, X, G);
    detail::add_product(keys.leftCols(left), W, X.topRows(left).transpose());
    detail::add_product(keys.rightCols(right), W.rightCols(right), X.bottomRightCorner(right, right).transpose());
  }

 private:
  static constexpr Index block = 16;    // tokens of a step: in longer triangles the roundings of reflections add up
  static constexpr Index stretch = 48;  // tokens that are transported in one piece
  static constexpr int levels = 2;      // products are kept of stretches and of pairs of them
  static constexpr Index columns_at_once = 96;

  template <Index size>
  static constexpr Index next(Index token) {
    return (token / size + 1) * size;
  }
  static constexpr Index tokens_of(int level) { return stretch << level; }
  // Whether a product is worth its d × d entries.
  [[nodiscard]] bool keeps(int level) const { return 3 * w_.rows() <= 4 * tokens_of(level); }

  // C ← A B where it is upper triangular, by blocks that fill the registers; some of what lies below may be anything.
  template <class C, class A, class B>
  static void set_upper_product(C&& c, const A& a, const B& b) {
    const Index n = c.cols(), top = std::min(n, 2 * block), left = std::min(n, stretch / 2);
    detail::set_product(c.topRows(top), a.topRows(top), b);
    detail::set_product(c.bottomRightCorner(n - top, n - left), a.bottomRows(n - top), b.rightCols(n - left));
  }
  // The same or C += A B for upper triangular A and B.
  template <bool add, class C, class A, class B>
  static void multiply_upper(C&& c, const A& a, const B& b) {
    const Index n = c.cols(), top = std::min(n, 2 * block), left = std::min(n, stretch / 2);
    detail::product<add>(c.topLeftCorner(top, left), a.topLeftCorner(top, left), b.topLeftCorner(left, left));
    detail::product<add>(c.topRightCorner(top, n - left), a.topRows(top), b.rightCols(n - left));
    detail::product<add>(c.bottomRightCorner(n - top, n - left), a.bottomRightCorner(n - top, n - top),
                         b.bottomRightCorner(n - top, n - left));
  }

  // Consecutive tokens of one block.
  struct Part {
    const Householder& chain;
    Segment tokens;

    auto W() const { return chain.w_.middleCols(tokens.begin, tokens.size); }
    auto T() const { return chain.negative_T_.block(tokens.begin % stretch, tokens.begin, tokens.size, tokens.size); }

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

  // Tokens whose product is kept.
  struct Whole {
    const Householder& chain;
    int level;
    Index begin;

    template <class Columns>
    void pull(Columns&& X) const {
      multiply(chain.product(level, begin), X);
    }
    template <class Columns>
    void push(Columns&& X) const {
      multiply(chain.product(level, begin).transpose(), X);
    }

   private:
    // X ← A X, some columns at a time.
    template <class A, class Columns>
    static void multiply(const A& a, Columns&& X) {
      constexpr Index room = 64 * columns_at_once;
      constexpr int order = std::remove_cvref_t<Columns>::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor;
      S before[room];
      const Index at_once = room / X.rows();
      for (Index j = 0; j < X.cols(); j += at_once) {
        auto columns = X.middleCols(j, std::min(at_once, X.cols() - j));
        Eigen::Map<Eigen::Matrix<S, Dynamic, Dynamic, order>> copy(before, X.rows(), columns.cols());
        copy = columns;
        detail::set_product(columns, a, copy);
      }
    }
  };

  template <class F>
  void forwards(Segment s, F&& f) const {
    for (Index begin = s.begin, end; begin < s.end(); begin = end) {
      const int level = level_between(begin, s.end(), [&](Index tokens) { return begin % tokens == 0; });
      end = level >= 0 ? begin + tokens_of(level) : std::min(next<block>(begin), s.end());
      visit(level, begin, end, f);
    }
  }
  template <class F>
  void backwards(Segment s, F&& f) const {
    for (Index end = s.end(), begin; end > s.begin; end = begin) {
      const int level = level_between(s.begin, end, [&](Index tokens) { return end % tokens == 0; });
      begin = level >= 0 ? end - tokens_of(level) : std::max((end - 1) / block * block, s.begin);
      visit(level, begin, end, f);
    }
  }
  template <class F>
  void visit(int level, Index begin, Index end, F&& f) const {
    if (level >= 0)
      f(Whole{*this, level, begin});
    else
      f(Part{*this, {begin, end - begin}});
  }
  // The largest product that fits; -1 if none does.
  template <class Starts>
  [[nodiscard]] int level_between(Index begin, Index end, const Starts& fits) const {
    for (int level = levels - 1; level >= 0; --level)
      if (end - begin >= tokens_of(level) && fits(tokens_of(level)) && keeps(level)) return level;
    return -1;
  }

  // Where a product lies, for the last of its tokens as for the first.
  [[nodiscard]] auto product(int level, Index token) const {
    return products_[level].middleCols(token / tokens_of(level) * w_.rows(), w_.rows());
  }
  [[nodiscard]] auto product(int level, Index token) {
    return products_[level].middleCols(token / tokens_of(level) * w_.rows(), w_.rows());
  }

  // -T of every stretch by substitution in double, and the products of the whole ones from I - (W T) Wᵀ.
  void solve() {
    const Index d = w_.rows(), tokens = w_.cols(), half = stretch / 2;
    Eigen::MatrixXd W(d, stretch), U(stretch, stretch), T = Eigen::MatrixXd::Zero(stretch, stretch), WT(d, stretch);
    Matrix<S> rounded(d, stretch);
    std::array<Matrix<S>, 2> pair;
    negative_T_.resize(stretch, tokens);
    for (int level = 0; level < levels; ++level)
      if (keeps(level)) products_[level].resize(d, tokens / tokens_of(level) * d);
    for (Index begin = 0, n; begin < tokens; begin += n) {
      n = std::min(stretch, tokens - begin);
      const auto w = w_.middleCols(begin, n);
      W.leftCols(n) = w.template cast<double>();
      set_upper_product(U.topLeftCorner(n, n), W.leftCols(n).transpose(), W.leftCols(n));
      for (Index t = 0; t < n; ++t) {
        const double beta = beta_[begin + t];
        T(t, t) = -beta;
        if (t > 0) T.col(t).head(t).noalias() = (-beta * T.topLeftCorner(t, t)) * U.col(t).head(t);
      }
      negative_T_.block(0, begin, n, n) = T.topLeftCorner(n, n).template cast<S>();
      if (n < stretch || !keeps(levels - 1)) continue;
      detail::set_product(WT.leftCols(half), W.leftCols(half), T.topLeftCorner(half, half));
      detail::set_product(WT.rightCols(half), W, T.rightCols(half));
      rounded = WT.template cast<S>();
      const bool ends_pair = begin / stretch % 2 == 1;
      Matrix<S>& whole = pair[ends_pair];
      whole.resize(d, d);
      detail::set_product(whole, rounded, w.transpose());
      whole.diagonal().array() += S(1);
      if (keeps(0)) product(0, begin) = whole;
      if (ends_pair) detail::set_product(product(1, begin), pair[0], pair[1]);
    }
  }

  Matrix<S> w_, negative_T_;
  std::array<Matrix<S>, levels> products_;
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
