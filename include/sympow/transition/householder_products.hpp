// Products of consecutive Householder factors: compact for any segment, dense for aligned blocks.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <type_traits>
#include <vector>

#include <sympow/simd/exponential.hpp>
#include <sympow/transition/running_gates.hpp>
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

/// Products of A_i = diag(a_i) (I - β_i w_i w_iᵀ), a_i = 1 without gates. A leaf is a run of tokens a … b in a block of
/// 48. With gates no channel decays below 2^-40 over its tokens after the first, whose gates may be 0. With G_i = Σ log
/// a_t over a < t ≤ i and e^{G_i} w_i, e^{-G_i} w_i as columns of U and Z, tokens s … e of a leaf give
///
///     A_s … A_e = e^{H_s} (I - U T Zᵀ) e^{G_e},   T = (I + D triu(ZᵀU, 1))⁻¹ D,   D = diag(β)
///     H_a = log a_a,   H_s = -G_{s-1}
///
/// T is upper triangular; its diagonal blocks belong to sub-segments. It is computed in double, without divisions, from
/// w_sᵀ e^{G_t - G_s} w_t, which do not depend on where a leaf begins. Without gates leaves are whole blocks, and if d²
/// is at most 4/3 of the size of W, dense products of blocks and of pairs of blocks are stored. Memory: d + 48 entries
/// per token, and for d ≤ 128 up to 2 d more; with gates 4 d + 48, and d doubles; shared by copies and parts. Cost: 2 d
/// (48 + d) per token, partly in double, and 2 d³ per pair; with gates 96 d, and d exponentials.
template <class S>
class HouseholderProducts {
  using Exact = Matrix<std::common_type_t<S, double>>;

 public:
  /// log_a: d × T, or empty without gates.
  HouseholderProducts(Matrix<S> w, const Eigen::VectorXd& beta, Matrix<double> log_a = {})
      : stored_(solve(std::move(w), beta, std::move(log_a))), range_{0, stored_->w.cols()} {}

  [[nodiscard]] bool is_gated() const { return stored_->is_gated(); }
  /// w, d × T.
  [[nodiscard]] auto vectors() const { return stored_->w.middleCols(range_.begin, range_.size); }
  /// log a, d × T, if there are gates.
  [[nodiscard]] auto log_gates() const { return stored_->log_a.middleCols(range_.begin, range_.size); }
  /// U of a leaf's tokens, w without gates.
  [[nodiscard]] auto U(Segment s) const { return columns(is_gated() ? stored_->u : stored_->w, s); }
  /// Z of a leaf's tokens, w without gates.
  [[nodiscard]] auto Z(Segment s) const { return columns(is_gated() ? stored_->z : stored_->w, s); }
  /// -T of tokens in one leaf.
  [[nodiscard]] auto negative_triangle(Segment s) const {
    const Index begin = range_.begin + s.begin;
    return stored_->negative_T.block(begin - leaf_begin(begin), begin, s.size, s.size);
  }
  /// The products of a segment.
  [[nodiscard]] HouseholderProducts part(Segment s) const {
    HouseholderProducts result = *this;
    result.range_ = to_global(s);
    return result;
  }
  /// Where to split a segment: at the leaf's begin nearest to its middle; at its begin if it lies in one leaf.
  [[nodiscard]] Index split_point(Segment part) const {
    const Segment s = to_global(part);
    const auto& leaves = stored_->leaves;
    const auto first = std::upper_bound(leaves.begin(), leaves.end(), s.begin),
               last = std::lower_bound(first, leaves.end(), s.end());
    if (first == last) return part.begin;
    const Index ends = s.begin + s.end();
    auto split = std::lower_bound(first, last, ends, [](Index leaf, Index sum) { return 2 * leaf < sum; });
    if (split == last || (split != first && ends - 2 * *std::prev(split) < 2 * *split - ends)) --split;
    return *split - range_.begin;
  }

  /// q_i ← e^{G_i} q_i and k_i ← e^{-G_i} k_i of a leaf's tokens, if there are gates.
  template <class Queries, class Keys>
  void apply_running_gates(Segment part, Queries&& queries, Keys&& keys) const {
    if (!is_gated()) return;
    const Segment s = to_global(part);
    const Index first = s.begin == leaf_begin(s.begin) ? 1 : 0, n = s.size - first;
    const auto gates = stored_->gates.middleCols(s.begin + first, n).array();
    queries.middleCols(first, n).array() *= gates;
    keys.middleCols(first, n).array() /= gates;
  }
  /// X ← e^{H_s} X of a leaf's tokens s … e, if there are gates.
  template <class Columns>
  void apply_gates_before(Segment part, Columns&& X) const {
    const Index s = range_.begin + part.begin;
    if (!is_gated()) return;
    if (const Index begin = leaf_begin(s); begin == s)
      multiply_rows(stored_->gates.col(s), X);
    else if (begin != s - 1)
      multiply_rows(stored_->gates.col(s - 1).cwiseInverse(), X);
  }
  /// X ← e^{G_e} X of a leaf's tokens s … e, if there are gates.
  template <class Columns>
  void apply_gates_through(Segment part, Columns&& X) const {
    const Index e = range_.begin + part.end() - 1;
    if (is_gated() && e != leaf_begin(e)) multiply_rows(stored_->gates.col(e), X);
  }

  /// X ← A_a … A_b X.
  template <class Columns>
  void apply_to_queries(Segment part, Columns&& X) const {
    if (X.size() == 0) return;  // empty matrices have no memory
    const Segment s = to_global(part);
    for (Index end = s.end(), begin; end > s.begin; end = begin) {
      const int level = find_level(s.begin, end, end);
      begin = level >= 0 ? end - level_tokens(level) : std::max(compact_begin(end - 1), s.begin);
      if (level >= 0) {
        multiply(stored_product(level, begin), X);
        continue;
      }
      const Segment run{begin - range_.begin, end - begin};
      apply_gates_through(run, X);
      add_low_rank(U(run), negative_triangle(run), Z(run), X);
      apply_gates_before(run, X);
    }
  }

  /// X ← (A_a … A_b)ᵀ X.
  template <class Columns>
  void apply_to_keys(Segment part, Columns&& X) const {
    if (X.size() == 0) return;
    const Segment s = to_global(part);
    for (Index begin = s.begin, end; begin < s.end(); begin = end) {
      const int level = find_level(begin, s.end(), begin);
      end = level >= 0 ? begin + level_tokens(level) : std::min(compact_end(begin), s.end());
      if (level >= 0) {
        multiply(stored_product(level, begin).transpose(), X);
        continue;
      }
      const Segment run{begin - range_.begin, end - begin};
      apply_gates_before(run, X);
      add_low_rank(Z(run), negative_triangle(run).transpose(), U(run), X);
      apply_gates_through(run, X);
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
    std::vector<Index> leaves;  // first tokens
    std::array<Matrix<S>, levels> products;
    Matrix<double> log_a;   // empty without gates, as the next two
    Matrix<S> u, z, gates;  // gates: e^{G_t}; in a leaf's first column a_a

    [[nodiscard]] bool is_gated() const { return log_a.rows() == w.rows() && log_a.cols() == w.cols(); }
  };

  [[nodiscard]] Segment to_global(Segment s) const { return {range_.begin + s.begin, s.size}; }
  [[nodiscard]] auto columns(const Matrix<S>& x, Segment s) const {
    return x.middleCols(range_.begin + s.begin, s.size);
  }
  // First token of a token's leaf.
  [[nodiscard]] Index leaf_begin(Index token) const {
    return *std::prev(std::upper_bound(stored_->leaves.begin(), stored_->leaves.end(), token));
  }
  // The run of `compact_tokens` of a token in its leaf.
  [[nodiscard]] Index compact_begin(Index token) const {
    const Index leaf = leaf_begin(token);
    return leaf + (token - leaf) / compact_tokens * compact_tokens;
  }
  [[nodiscard]] Index compact_end(Index token) const {
    const auto& leaves = stored_->leaves;
    const auto next = std::upper_bound(leaves.begin(), leaves.end(), token);
    const Index end = compact_begin(token) + compact_tokens;
    return next == leaves.end() ? end : std::min(end, *next);
  }
  static constexpr Index level_tokens(int level) { return triangle_size << level; }
  static bool stores_level(int level, Index d) { return 3 * d <= 4 * level_tokens(level); }

  // Level of the longest stored product within [begin, end) that has one end at `at`; -1 if there is none.
  [[nodiscard]] int find_level(Index begin, Index end, Index at) const {
    if (is_gated()) return -1;
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

  // X ← diag(gates) X.
  template <class Gates, class Columns>
  static void multiply_rows(const Gates& gates, Columns&& X) {
    auto columns = X.middleCols(0, X.cols());
    columns.array().colwise() *= gates.array();
  }

  // X ← X + A N Bᵀ X, a block of columns at a time.
  template <class Vectors, class Triangle, class Columns>
  static void add_low_rank(const Vectors& A, const Triangle& N, const Vectors& B, Columns&& X) {
    S first[compact_tokens * column_block], second[compact_tokens * column_block];
    for (Index j = 0; j < X.cols(); j += column_block) {
      auto columns = X.middleCols(j, std::min(column_block, X.cols() - j));
      SameOrder<Columns> G(first, B.cols(), columns.cols()), H(second, B.cols(), columns.cols());
      set_product(G, B.transpose(), columns);
      set_product(H, N, G);
      add_product(columns, A, H);
    }
  }

  // Computes -T by substitution and the dense products as I - (W T) Wᵀ.
  static std::shared_ptr<const Stored> solve(Matrix<S> vectors, const Eigen::VectorXd& beta, Matrix<double> log_a);
  // Tokens of the leaf that begins at a token, and its gates, u and z.
  static Index set_leaf(Stored& stored, Index begin, Index most, Exact& U, Exact& Z);

  std::shared_ptr<const Stored> stored_;
  Segment range_;
};

template <class S>
Index HouseholderProducts<S>::set_leaf(Stored& stored, Index begin, Index most, Exact& U, Exact& Z) {
  using Wide = typename Exact::Scalar;
  Eigen::VectorXd total = Eigen::VectorXd::Zero(stored.w.rows()), gates(stored.w.rows());
  set_exponential(gates, stored.log_a.col(begin));
  Index n = 0;
  do {
    const Index t = begin + n;
    stored.gates.col(t) = gates.cast<S>();
    if (n == 0) gates.setOnes();
    U.col(n) = stored.w.col(t).template cast<Wide>().cwiseProduct(gates.cast<Wide>());
    Z.col(n) = stored.w.col(t).template cast<Wide>().cwiseQuotient(gates.cast<Wide>());
    stored.u.col(t) = U.col(n).template cast<S>();
    stored.z.col(t) = Z.col(n).template cast<S>();
    if (++n == most) break;
    total += stored.log_a.col(t + 1);
    set_exponential(gates, total);
  } while ((total.array() >= least_divisor_log).all());
  return n;
}

template <class S>
auto HouseholderProducts<S>::solve(Matrix<S> vectors, const Eigen::VectorXd& beta, Matrix<double> log_a)
    -> std::shared_ptr<const Stored> {
  const auto result = std::make_shared<Stored>();
  Stored& stored = *result;
  stored.w = std::move(vectors);
  stored.log_a = std::move(log_a);
  const bool is_gated = stored.is_gated();
  const Index d = stored.w.rows(), tokens = stored.w.cols(), half = triangle_size / 2;
  Exact U(d, triangle_size), Z(is_gated ? d : 0, triangle_size), P(triangle_size, triangle_size),
      T = Exact::Zero(triangle_size, triangle_size), WT(d, triangle_size);
  Matrix<S> rounded(d, triangle_size);
  std::array<Matrix<S>, 2> pair;
  stored.negative_T.resize(triangle_size, tokens);
  for (Matrix<S>* x : {&stored.u, &stored.z, &stored.gates})
    if (is_gated) x->resize(d, tokens);
  for (int level = 0; level < levels && !is_gated; ++level)
    if (stores_level(level, d))
      stored.products[static_cast<std::size_t>(level)].resize(d, tokens / level_tokens(level) * d);
  for (Index begin = 0, n; begin < tokens; begin += n) {
    stored.leaves.push_back(begin);
    n = std::min((begin / triangle_size + 1) * triangle_size, tokens) - begin;
    if (is_gated)
      n = set_leaf(stored, begin, n, U, Z);
    else
      U.leftCols(n) = stored.w.middleCols(begin, n).template cast<typename Exact::Scalar>();
    set_upper_product(P.topLeftCorner(n, n), (is_gated ? Z : U).leftCols(n).transpose(), U.leftCols(n));
    for (Index t = 0; t < n; ++t) {
      T(t, t) = -beta[begin + t];
      if (t > 0) T.col(t).head(t).noalias() = (T(t, t) * T.topLeftCorner(t, t)) * P.col(t).head(t);
    }
    stored.negative_T.block(0, begin, n, n) = T.topLeftCorner(n, n).template cast<S>();
    if (is_gated || n < triangle_size || !stores_level(levels - 1, d)) continue;
    set_product(WT.leftCols(half), U.leftCols(half), T.topLeftCorner(half, half));
    set_product(WT.rightCols(half), U, T.rightCols(half));
    rounded = WT.template cast<S>();
    const bool ends_pair = begin / triangle_size % 2 == 1;
    Matrix<S>& product = pair[ends_pair];
    product.resize(d, d);
    set_product(product, rounded, stored.w.middleCols(begin, n).transpose());
    product.diagonal().array() += S(1);
    if (stores_level(0, d)) product_at(stored.products, 0, begin) = product;
    if (ends_pair) set_product(product_at(stored.products, 1, begin), pair[0], pair[1]);
  }
  return result;
}

}  // namespace SYMPOW_NAMESPACE::detail
