// Products of consecutive Householder factors: compact for any segment, dense for aligned blocks.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Tokens per stored triangle T.
inline constexpr Index triangle_size = 48;

/// The upper triangle of C ← A B, at most `triangle_size` wide, by register-sized blocks; entries below are
/// unspecified.
template <class C, class A, class B>
void set_upper_product(C&& c, const A& a, const B& b) {
  const Index n = c.cols(), top = std::min<Index>(n, 32), left = std::min(n, triangle_size / 2);
  set_product(c.topRows(top), a.topRows(top), b);
  set_product(c.bottomRightCorner(n - top, n - left), a.bottomRows(n - top), b.rightCols(n - left));
}

/// The upper triangle of C ← A B or C += A B, for upper triangular A and B.
template <bool add, class C, class A, class B>
void multiply_upper(C&& c, const A& a, const B& b) {
  const Index n = c.cols(), top = std::min<Index>(n, 32), left = std::min(n, triangle_size / 2);
  product<add>(c.topLeftCorner(top, left), a.topLeftCorner(top, left), b.topLeftCorner(left, left));
  product<add>(c.topRightCorner(top, n - left), a.topRows(top), b.rightCols(n - left));
  product<add>(c.bottomRightCorner(n - top, n - left), a.bottomRightCorner(n - top, n - top),
               b.bottomRightCorner(n - top, n - left));
}

/// Products of A_i = I - β_i w_i w_iᵀ. With the w of consecutive tokens as columns of W,
///
///     A_a … A_b = I - W T Wᵀ,   T = (I + D triu(WᵀW, 1))⁻¹ D,   D = diag(β)
///
/// T is upper triangular; its diagonal blocks belong to sub-segments. It is computed in double for blocks of 48 tokens,
/// without divisions. If d² is at most 4/3 of the size of W, dense products of blocks and of pairs of blocks are
/// stored. Memory: d + 48 entries per token, and for d ≤ 128 up to 2 d more, shared by copies and parts. Cost: 2 d (48
/// + d) per token, partly in double, and 2 d³ per pair.
template <class S>
class HouseholderProducts {
 public:
  HouseholderProducts(Matrix<S> w, const Eigen::VectorXd& beta)
      : stored_(solve(std::move(w), beta)), range_{0, stored_->w.cols()} {}

  [[nodiscard]] auto vectors() const { return stored_->w.middleCols(range_.begin, range_.size); }
  /// -T of tokens in one block.
  [[nodiscard]] auto negative_triangle(Segment s) const { return triangle(to_global(s)); }
  /// The products of a segment.
  [[nodiscard]] HouseholderProducts part(Segment s) const {
    HouseholderProducts result = *this;
    result.range_ = to_global(s);
    return result;
  }
  /// Where to split a segment; its begin if one triangle covers it.
  [[nodiscard]] Index split_point(Segment part) const {
    const Segment s = to_global(part);
    const Index first = (s.begin / triangle_size + 1) * triangle_size;
    if (first >= s.end()) return part.begin;
    return std::clamp((s.begin + s.end() + triangle_size) / (2 * triangle_size) * triangle_size, first,
                      (s.end() - 1) / triangle_size * triangle_size) -
           range_.begin;
  }

  /// X ← A_a … A_b X.
  template <class Columns>
  void apply_to_queries(Segment part, Columns&& X) const {
    if (X.size() == 0) return;  // empty matrices have no memory
    const Segment s = to_global(part);
    for (Index end = s.end(), begin; end > s.begin; end = begin) {
      const int level = find_level(s.begin, end, end);
      begin = level >= 0 ? end - level_tokens(level) : std::max((end - 1) / compact_tokens * compact_tokens, s.begin);
      if (level >= 0)
        multiply(stored_product(level, begin), X);
      else
        add_low_rank({begin, end - begin}, triangle({begin, end - begin}), X);
    }
  }

  /// X ← (A_a … A_b)ᵀ X.
  template <class Columns>
  void apply_to_keys(Segment part, Columns&& X) const {
    if (X.size() == 0) return;
    const Segment s = to_global(part);
    for (Index begin = s.begin, end; begin < s.end(); begin = end) {
      const int level = find_level(begin, s.end(), begin);
      end = level >= 0 ? begin + level_tokens(level) : std::min((begin / compact_tokens + 1) * compact_tokens, s.end());
      if (level >= 0)
        multiply(stored_product(level, begin).transpose(), X);
      else
        add_low_rank({begin, end - begin}, triangle({begin, end - begin}).transpose(), X);
    }
  }

 private:
  static constexpr Index compact_tokens = 16;  // longer triangles would accumulate rounding errors
  static constexpr int levels = 2;             // blocks and pairs of blocks
  static constexpr Index column_block = 48;
  static constexpr Index stack_size = 64 * column_block;

  // Data of all tokens of a chain.
  struct Stored {
    Matrix<S> w, negative_T;
    std::array<Matrix<S>, levels> products;
  };

  [[nodiscard]] Segment to_global(Segment s) const { return {range_.begin + s.begin, s.size}; }
  [[nodiscard]] auto triangle(Segment s) const {
    return stored_->negative_T.block(s.begin % triangle_size, s.begin, s.size, s.size);
  }
  static constexpr Index level_tokens(int level) { return triangle_size << level; }
  static bool stores_level(int level, Index d) { return 3 * d <= 4 * level_tokens(level); }

  // Level of the longest stored product within [begin, end) that has one end at `at`; -1 if there is none.
  [[nodiscard]] int find_level(Index begin, Index end, Index at) const {
    for (int level = levels - 1; level >= 0; --level)
      if (end - begin >= level_tokens(level) && at % level_tokens(level) == 0 && stores_level(level, stored_->w.rows()))
        return level;
    return -1;
  }
  [[nodiscard]] auto stored_product(int level, Index begin) const {
    return product_at(stored_->products, level, begin);
  }
  template <class Products>
  [[nodiscard]] static auto product_at(Products& products, int level, Index begin) {
    auto& level_products = products[static_cast<std::size_t>(level)];
    return level_products.middleCols(begin / level_tokens(level) * level_products.rows(), level_products.rows());
  }

  // A matrix in the storage order of X, so that products need no packing.
  template <class X>
  using SameOrder = Eigen::Map<
      Eigen::Matrix<S, Dynamic, Dynamic, std::remove_cvref_t<X>::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor>>;

  // X ← A X, a block of columns at a time.
  template <class A, class Columns>
  static void multiply(const A& a, Columns&& X) {
    S buffer[stack_size];
    const Index width = stack_size / std::max<Index>(X.rows(), 1);
    for (Index j = 0; j < X.cols(); j += width) {
      auto columns = X.middleCols(j, std::min(width, X.cols() - j));
      SameOrder<Columns> copy(buffer, X.rows(), columns.cols());
      copy = columns;
      set_product(columns, a, copy);
    }
  }

  // X ← X - W T Wᵀ X, a block of columns at a time.
  template <class Triangle, class Columns>
  void add_low_rank(Segment s, const Triangle& negative_T, Columns&& X) const {
    const auto W = stored_->w.middleCols(s.begin, s.size);
    S first[compact_tokens * column_block], second[compact_tokens * column_block];
    for (Index j = 0; j < X.cols(); j += column_block) {
      auto columns = X.middleCols(j, std::min(column_block, X.cols() - j));
      SameOrder<Columns> G(first, s.size, columns.cols()), H(second, s.size, columns.cols());
      set_product(G, W.transpose(), columns);
      set_product(H, negative_T, G);
      add_product(columns, W, H);
    }
  }

  // Computes -T by substitution and the dense products as I - (W T) Wᵀ.
  static std::shared_ptr<const Stored> solve(Matrix<S> vectors, const Eigen::VectorXd& beta);

  std::shared_ptr<const Stored> stored_;
  Segment range_;
};

template <class S>
auto HouseholderProducts<S>::solve(Matrix<S> vectors, const Eigen::VectorXd& beta) -> std::shared_ptr<const Stored> {
  const auto result = std::make_shared<Stored>();
  Stored& stored = *result;
  stored.w = std::move(vectors);
  const Index d = stored.w.rows(), tokens = stored.w.cols(), half = triangle_size / 2;
  using Exact = Matrix<std::common_type_t<S, double>>;
  Exact W(d, triangle_size), U(triangle_size, triangle_size), T = Exact::Zero(triangle_size, triangle_size),
                                                              WT(d, triangle_size);
  Matrix<S> rounded(d, triangle_size);
  std::array<Matrix<S>, 2> pair;
  stored.negative_T.resize(triangle_size, tokens);
  for (int level = 0; level < levels; ++level)
    if (stores_level(level, d))
      stored.products[static_cast<std::size_t>(level)].resize(d, tokens / level_tokens(level) * d);
  for (Index begin = 0, n; begin < tokens; begin += n) {
    n = std::min(triangle_size, tokens - begin);
    const auto w = stored.w.middleCols(begin, n);
    W.leftCols(n) = w.template cast<typename Exact::Scalar>();
    set_upper_product(U.topLeftCorner(n, n), W.leftCols(n).transpose(), W.leftCols(n));
    for (Index t = 0; t < n; ++t) {
      T(t, t) = -beta[begin + t];
      if (t > 0) T.col(t).head(t).noalias() = (T(t, t) * T.topLeftCorner(t, t)) * U.col(t).head(t);
    }
    stored.negative_T.block(0, begin, n, n) = T.topLeftCorner(n, n).template cast<S>();
    if (n < triangle_size || !stores_level(levels - 1, d)) continue;
    set_product(WT.leftCols(half), W.leftCols(half), T.topLeftCorner(half, half));
    set_product(WT.rightCols(half), W, T.rightCols(half));
    rounded = WT.template cast<S>();
    const bool ends_pair = begin / triangle_size % 2 == 1;
    Matrix<S>& product = pair[ends_pair];
    product.resize(d, d);
    set_product(product, rounded, w.transpose());
    product.diagonal().array() += S(1);
    if (stores_level(0, d)) product_at(stored.products, 0, begin) = product;
    if (ends_pair) set_product(product_at(stored.products, 1, begin), pair[0], pair[1]);
  }
  return result;
}

}  // namespace SYMPOW_NAMESPACE::detail
