// Products of consecutive Householder factors: compact for any tokens, dense for whole stretches of them.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Tokens whose triangle T is kept in one piece.
inline constexpr Index stretch = 48;

/// C ← A B where it is upper triangular, at most `stretch` wide, by blocks that fill the registers; what lies below may
/// be anything.
template <class C, class A, class B>
void set_upper_product(C&& c, const A& a, const B& b) {
  const Index n = c.cols(), top = std::min<Index>(n, 32), left = std::min(n, stretch / 2);
  set_product(c.topRows(top), a.topRows(top), b);
  set_product(c.bottomRightCorner(n - top, n - left), a.bottomRows(n - top), b.rightCols(n - left));
}

/// C ← A B or C += A B likewise, for upper triangular A and B.
template <bool add, class C, class A, class B>
void multiply_upper(C&& c, const A& a, const B& b) {
  const Index n = c.cols(), top = std::min<Index>(n, 32), left = std::min(n, stretch / 2);
  product<add>(c.topLeftCorner(top, left), a.topLeftCorner(top, left), b.topLeftCorner(left, left));
  product<add>(c.topRightCorner(top, n - left), a.topRows(top), b.rightCols(n - left));
  product<add>(c.bottomRightCorner(n - top, n - left), a.bottomRightCorner(n - top, n - top),
               b.bottomRightCorner(n - top, n - left));
}

/// Products of A_i = I - β_i w_i w_iᵀ. With the w of consecutive tokens as columns of W,
///
///     A_a … A_b = I - W T Wᵀ,   T = (I + D triu(WᵀW, 1))⁻¹ D,   D = diag(β)
///
/// T is upper triangular, and that of a part of the tokens is the block of theirs. It is worked out in double for
/// stretches of 48 tokens, and nothing is divided by. Where d × d entries are no more than 4/3 of those of W, the
/// products of stretches and of pairs of them are kept. Memory: d + 48 numbers a token, and for d ≤ 128 up to 2 d more,
/// which copies and parts share. Cost: 2 d (48 + d) a token, in part in double, and 2 d³ a pair.
template <class S>
class HouseholderProducts {
 public:
  HouseholderProducts(Matrix<S> w, const Eigen::VectorXd& beta)
      : kept_(solve(std::move(w), beta)), own_{0, kept_->w.cols()} {}

  [[nodiscard]] auto vectors() const { return kept_->w.middleCols(own_.begin, own_.size); }
  /// -T of tokens of one stretch.
  [[nodiscard]] auto negative_triangle(Segment s) const { return triangle(in_whole(s)); }
  /// Of some tokens.
  [[nodiscard]] HouseholderProducts part(Segment s) const {
    HouseholderProducts some = *this;
    some.own_ = in_whole(s);
    return some;
  }
  /// Where to cut a segment in two; its begin if it has a triangle in one piece.
  [[nodiscard]] Index middle(Segment part) const {
    const Segment s = in_whole(part);
    const Index first = (s.begin / stretch + 1) * stretch;
    if (first >= s.end()) return part.begin;
    return std::clamp((s.begin + s.end() + stretch) / (2 * stretch) * stretch, first,
                      (s.end() - 1) / stretch * stretch) -
           own_.begin;
  }

  /// X ← A_a … A_b X.
  template <class Columns>
  void pull(Segment part, Columns&& X) const {
    if (X.size() == 0) return;  // what is empty has no memory
    const Segment s = in_whole(part);
    for (Index end = s.end(), begin; end > s.begin; end = begin) {
      const int level = level_between(s.begin, end, end);
      begin = level >= 0 ? end - tokens_of(level) : std::max((end - 1) / step * step, s.begin);
      if (level >= 0)
        multiply(whole(level, begin), X);
      else
        add_low_rank({begin, end - begin}, triangle({begin, end - begin}), X);
    }
  }

  /// X ← (A_a … A_b)ᵀ X.
  template <class Columns>
  void push(Segment part, Columns&& X) const {
    if (X.size() == 0) return;
    const Segment s = in_whole(part);
    for (Index begin = s.begin, end; begin < s.end(); begin = end) {
      const int level = level_between(begin, s.end(), begin);
      end = level >= 0 ? begin + tokens_of(level) : std::min((begin / step + 1) * step, s.end());
      if (level >= 0)
        multiply(whole(level, begin).transpose(), X);
      else
        add_low_rank({begin, end - begin}, triangle({begin, end - begin}).transpose(), X);
    }
  }

 private:
  static constexpr Index step = 16;  // tokens in compact form: the roundings of longer triangles would add up
  static constexpr int levels = 2;   // stretches and pairs of them
  static constexpr Index columns_at_once = 96;
  static constexpr Index room = 64 * columns_at_once;

  // Of all tokens of a chain.
  struct Kept {
    Matrix<S> w, negative_T;
    std::array<Matrix<S>, levels> products;
  };

  [[nodiscard]] Segment in_whole(Segment s) const { return {own_.begin + s.begin, s.size}; }
  [[nodiscard]] auto triangle(Segment s) const {
    return kept_->negative_T.block(s.begin % stretch, s.begin, s.size, s.size);
  }
  static constexpr Index tokens_of(int level) { return stretch << level; }
  static bool keeps(int level, Index d) { return 3 * d <= 4 * tokens_of(level); }

  // The longest product between two tokens that has one end where it is asked for; -1 if there is none.
  [[nodiscard]] int level_between(Index begin, Index end, Index at) const {
    for (int level = levels - 1; level >= 0; --level)
      if (end - begin >= tokens_of(level) && at % tokens_of(level) == 0 && keeps(level, kept_->w.rows())) return level;
    return -1;
  }
  [[nodiscard]] auto whole(int level, Index begin) const { return at(kept_->products, level, begin); }
  template <class Products>
  [[nodiscard]] static auto at(Products& products, int level, Index begin) {
    auto& all = products[static_cast<std::size_t>(level)];
    return all.middleCols(begin / tokens_of(level) * all.rows(), all.rows());
  }

  // A matrix in the order of X, so that nothing is packed.
  template <class X>
  using Like = Eigen::Map<
      Eigen::Matrix<S, Dynamic, Dynamic, std::remove_cvref_t<X>::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor>>;

  // X ← A X, some columns at a time.
  template <class A, class Columns>
  static void multiply(const A& a, Columns&& X) {
    S before[room];
    const Index at_once = room / std::max<Index>(X.rows(), 1);
    for (Index j = 0; j < X.cols(); j += at_once) {
      auto columns = X.middleCols(j, std::min(at_once, X.cols() - j));
      Like<Columns> copy(before, X.rows(), columns.cols());
      copy = columns;
      set_product(columns, a, copy);
    }
  }

  // X ← X - W T Wᵀ X, some columns at a time.
  template <class Triangle, class Columns>
  void add_low_rank(Segment s, const Triangle& negative_T, Columns&& X) const {
    const auto W = kept_->w.middleCols(s.begin, s.size);
    S first[step * columns_at_once], second[step * columns_at_once];
    for (Index j = 0; j < X.cols(); j += columns_at_once) {
      auto columns = X.middleCols(j, std::min(columns_at_once, X.cols() - j));
      Like<Columns> G(first, s.size, columns.cols()), H(second, s.size, columns.cols());
      set_product(G, W.transpose(), columns);
      set_product(H, negative_T, G);
      add_product(columns, W, H);
    }
  }

  // -T by substitution, and the products of whole stretches by I - (W T) Wᵀ.
  static std::shared_ptr<const Kept> solve(Matrix<S> vectors, const Eigen::VectorXd& beta);

  std::shared_ptr<const Kept> kept_;
  Segment own_;
};

template <class S>
auto HouseholderProducts<S>::solve(Matrix<S> vectors, const Eigen::VectorXd& beta) -> std::shared_ptr<const Kept> {
  const auto result = std::make_shared<Kept>();
  Kept& kept = *result;
  kept.w = std::move(vectors);
  const Index d = kept.w.rows(), tokens = kept.w.cols(), half = stretch / 2;
  using Exact = Matrix<std::common_type_t<S, double>>;
  Exact W(d, stretch), U(stretch, stretch), T = Exact::Zero(stretch, stretch), WT(d, stretch);
  Matrix<S> rounded(d, stretch);
  std::array<Matrix<S>, 2> pair;
  kept.negative_T.resize(stretch, tokens);
  for (int level = 0; level < levels; ++level)
    if (keeps(level, d)) kept.products[static_cast<std::size_t>(level)].resize(d, tokens / tokens_of(level) * d);
  for (Index begin = 0, n; begin < tokens; begin += n) {
    n = std::min(stretch, tokens - begin);
    const auto w = kept.w.middleCols(begin, n);
    W.leftCols(n) = w.template cast<typename Exact::Scalar>();
    set_upper_product(U.topLeftCorner(n, n), W.leftCols(n).transpose(), W.leftCols(n));
    for (Index t = 0; t < n; ++t) {
      T(t, t) = -beta[begin + t];
      if (t > 0) T.col(t).head(t).noalias() = (T(t, t) * T.topLeftCorner(t, t)) * U.col(t).head(t);
    }
    kept.negative_T.block(0, begin, n, n) = T.topLeftCorner(n, n).template cast<S>();
    if (n < stretch || !keeps(levels - 1, d)) continue;
    set_product(WT.leftCols(half), W.leftCols(half), T.topLeftCorner(half, half));
    set_product(WT.rightCols(half), W, T.rightCols(half));
    rounded = WT.template cast<S>();
    const bool ends_pair = begin / stretch % 2 == 1;
    Matrix<S>& product = pair[ends_pair];
    product.resize(d, d);
    set_product(product, rounded, w.transpose());
    product.diagonal().array() += S(1);
    if (keeps(0, d)) at(kept.products, 0, begin) = product;
    if (ends_pair) set_product(at(kept.products, 1, begin), pair[0], pair[1]);
  }
  return result;
}

}  // namespace SYMPOW_NAMESPACE::detail
