// Non-decreasing multi-indices, the coordinates of a symmetric tensor, in lexicographic order with 0-based entries.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <iterator>
#include <utility>
#include <vector>

#include <sympow/combinatorics/binomial.hpp>

namespace SYMPOW_NAMESPACE {

/// A multi-index α = [α_1 … α_p] with 0-based entries and p ≤ 8, fixed at compile time or at run time (P = Dynamic).
/// Converts to `std::span<const Index>`, compares lexicographically and allocates nothing.
template <int P = Dynamic>
class MultiIndex {
  static_assert(P == Dynamic || (1 <= P && P <= max_power), "the power must lie in 1 … 8");

 public:
  constexpr MultiIndex() = default;

  /// The given entries: `MultiIndex({0, 0, 2})`. Throws `InvalidPower` unless there are P of them, or 1 to 8 for P =
  /// Dynamic.
  constexpr MultiIndex(std::initializer_list<Index> entries) : MultiIndex(static_cast<int>(entries.size())) {
    std::copy(entries.begin(), entries.end(), entries_.begin());
  }

  /// p zeros. Throws `InvalidPower` unless p = P, or 1 ≤ p ≤ 8 for P = Dynamic.
  constexpr explicit MultiIndex(int p) : size_(p) {
    if (P == Dynamic ? p < 1 || p > max_power : p != P)
      detail::raise<InvalidPower>("MultiIndex: ", p, " entries, must be ", P == Dynamic ? "1 to 8" : std::to_string(P));
  }

  [[nodiscard]] constexpr int size() const { return size_; }
  [[nodiscard]] constexpr Index operator[](int level) const { return entries_[static_cast<std::size_t>(level)]; }
  [[nodiscard]] constexpr Index& operator[](int level) { return entries_[static_cast<std::size_t>(level)]; }
  [[nodiscard]] constexpr auto begin() const { return entries_.begin(); }
  [[nodiscard]] constexpr auto end() const { return entries_.begin() + size_; }
  [[nodiscard]] constexpr auto begin() { return entries_.begin(); }
  [[nodiscard]] constexpr auto end() { return entries_.begin() + size_; }

  friend constexpr bool operator==(const MultiIndex& a, const MultiIndex& b) { return std::ranges::equal(a, b); }
  friend constexpr auto operator<=>(const MultiIndex& a, const MultiIndex& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<Index, static_cast<std::size_t>(P == Dynamic ? max_power : P)> entries_{};
  int size_ = P == Dynamic ? 1 : P;
};
MultiIndex(std::initializer_list<Index>) -> MultiIndex<Dynamic>;

/// Multiplicity c_i of each index 0 … d - 1 in α. Throws `InvalidMultiIndex` for an entry outside of 0 … d - 1.
[[nodiscard]] inline std::vector<Index> counts(std::span<const Index> alpha, Index d) {
  std::vector<Index> count(static_cast<std::size_t>(d));
  for (const Index i : alpha) {
    if (i < 0 || i >= d) detail::raise<InvalidMultiIndex>("counts: entry ", i, " must lie in 0 … ", d - 1);
    ++count[static_cast<std::size_t>(i)];
  }
  return count;
}

/// Order of the stabilizer, the number of permutations of positions that fix α: Π c_i!. α in any order. Cost: O(p²).
/// Source: Symmetric Power Transformers, §4.1.
[[nodiscard]] constexpr Index stabilizer_order(std::span<const Index> alpha) {
  Index order = 1;
  for (auto entry = alpha.begin(); entry != alpha.end(); ++entry) order *= std::count(alpha.begin(), entry + 1, *entry);
  return order;
}

/// Size of the orbit, the number of distinct rearrangements of α: p! / Π c_i!. Source: Symmetric Power Transformers,
/// §4.1 (which prints d! for p!; see docs/errata.md).
[[nodiscard]] constexpr Index multiplicity(std::span<const Index> alpha) {
  return factorial(static_cast<Index>(alpha.size())) / stabilizer_order(alpha);
}

/// α with sorted entries, the coordinate that stores T_α. Cost: O(p²).
template <int P>
[[nodiscard]] constexpr MultiIndex<P> sorted(MultiIndex<P> alpha) {
  for (auto entry = alpha.begin(); entry != alpha.end(); ++entry)
    std::rotate(std::upper_bound(alpha.begin(), entry, *entry), entry, entry + 1);
  return alpha;
}

/// The distinct rearrangements of α in lexicographic order, `multiplicity(α)` of them.
template <int P>
[[nodiscard]] std::vector<MultiIndex<P>> orbit(const MultiIndex<P>& alpha0) {
  MultiIndex<P> alpha = sorted(alpha0);
  std::vector<MultiIndex<P>> arrangements;
  do arrangements.push_back(alpha);
  while (std::ranges::next_permutation(alpha).found);
  return arrangements;
}

/// The permutations σ with α_σ(l) = α_l for every l, as multi-indices of positions, `stabilizer_order(α)` of them.
template <int P>
[[nodiscard]] std::vector<MultiIndex<P>> stabilizer(const MultiIndex<P>& alpha) {
  MultiIndex<P> sigma(alpha.size());
  std::iota(sigma.begin(), sigma.end(), Index(0));
  std::vector<MultiIndex<P>> permutations;
  do {
    if (std::ranges::equal(sigma, alpha, {}, [&](Index l) { return alpha[static_cast<int>(l)]; }))
      permutations.push_back(sigma);
  } while (std::ranges::next_permutation(sigma).found);
  return permutations;
}

/// The non-decreasing multi-indices of order p over 0 … d - 1 in lexicographic order, as a random-access range.
///
///     for (const auto& alpha : MultiIndices(3, 2)) …   [0 0] [0 1] [0 2] [1 1] [1 2] [2 2]
///
/// `MultiIndices<4>(d)` fixes the power at compile time. The position of α is that of the entry Π x_{α_l} in φ^p(x).
/// Cost: O(p) for an increment, O(p log d) binomials for `indices[n]` (unrank), O(p) for `rank`. Throws `InvalidPower`
/// unless 1 ≤ p ≤ 8 and `DimensionOverflow` if their number does not fit `Index`. Source: Symmetric Power Transformers,
/// §4.1.
template <int P = Dynamic>
class MultiIndices {
 public:
  class iterator;
  using value_type = MultiIndex<P>;

  /// For a run-time power.
  constexpr MultiIndices(Index d, int p) : d_(d), p_(value_type(p).size()), size_(symmetric_dimension(d, p)) {}

  /// For the compile-time power P.
  constexpr explicit MultiIndices(Index d)
    requires(P != Dynamic)
      : MultiIndices(d, P) {}

  [[nodiscard]] constexpr Index dimension() const { return d_; }
  /// p.
  [[nodiscard]] constexpr int power() const { return p_; }
  [[nodiscard]] constexpr Index size() const { return size_; }
  [[nodiscard]] constexpr iterator begin() const { return iterator(this, 0); }
  [[nodiscard]] constexpr iterator end() const { return iterator(this, size_); }

  /// The n-th multi-index. Throws `InvalidArgument` unless 0 ≤ n < size().
  [[nodiscard]] constexpr value_type operator[](Index n) const {
    if (n < 0 || n >= size_)
      detail::raise<InvalidArgument>("MultiIndices: position ", n, " must lie in 0 … ", size_ - 1);
    value_type alpha(p_);
    Index smallest = 0;
    for (int level = 0; level < p_; ++level) {
      // Bisects for the largest i with `before(level, smallest, i)` ≤ n.
      Index low = smallest, high = d_ - 1;
      while (low < high) {
        const Index mid = high - (high - low) / 2;
        if (count_before(level, smallest, mid) <= n)
          low = mid;
        else
          high = mid - 1;
      }
      n -= count_before(level, smallest, low);
      alpha[level] = smallest = low;
    }
    return alpha;
  }

  /// The position of α, the inverse of operator[]. Throws `InvalidMultiIndex` unless α is non-decreasing with p entries
  /// in 0 … d - 1.
  [[nodiscard]] constexpr Index rank(std::span<const Index> alpha) const {
    if (static_cast<int>(alpha.size()) != p_)
      detail::raise<InvalidMultiIndex>("rank: the multi-index has ", alpha.size(), " entries, must have ", p_);
    Index position = 0, smallest = 0;
    for (int level = 0; level < p_; ++level) {
      const Index i = alpha[static_cast<std::size_t>(level)];
      if (i < smallest || i >= d_)
        detail::raise<InvalidMultiIndex>("rank: entry ", level, " is ", i, ", must lie in ", smallest, " … ", d_ - 1,
                                         " (non-decreasing, 0-based)");
      position += count_before(level, smallest, i);
      smallest = i;
    }
    return position;
  }

  /// `indices.rank({0, 0, 2})`.
  [[nodiscard]] constexpr Index rank(std::initializer_list<Index> alpha) const {
    return rank(std::span<const Index>(alpha.begin(), alpha.size()));
  }

 private:
  // Number of multi-indices that agree before `level`, have entries ≥ `smallest` from there on, and an entry below i at
  // `level`.
  [[nodiscard]] constexpr Index count_before(int level, Index smallest, Index i) const {
    const int remaining = p_ - level;
    return symmetric_dimension(d_ - smallest, remaining) - symmetric_dimension(d_ - i, remaining);
  }

  Index d_;
  int p_;
  Index size_;
};
MultiIndices(Index, int) -> MultiIndices<Dynamic>;

/// Iterates in order: increments the last entry below d - 1 and repeats it to the end.
template <int P>
class MultiIndices<P>::iterator {
 public:
  using iterator_concept = std::random_access_iterator_tag;
  using iterator_category = std::input_iterator_tag;
  using value_type = MultiIndex<P>;
  using difference_type = Index;
  using reference = value_type;
  using pointer = void;

  constexpr iterator() = default;
  constexpr iterator(const MultiIndices* indices, Index position)
      : indices_(indices), position_(position), alpha_(at(position)) {}

  [[nodiscard]] constexpr value_type operator*() const { return alpha_; }
  [[nodiscard]] constexpr value_type operator[](difference_type n) const { return (*indices_)[position_ + n]; }
  constexpr iterator& operator++() {
    ++position_;
    for (int level = alpha_.size() - 1; level >= 0; --level)
      if (alpha_[level] + 1 < indices_->dimension()) {
        const Index next = alpha_[level] + 1;
        for (int l = level; l < alpha_.size(); ++l) alpha_[l] = next;
        break;
      }
    return *this;
  }
  constexpr iterator operator++(int) { return std::exchange(*this, iterator(*this) += 1); }
  constexpr iterator& operator--() { return *this += -1; }
  constexpr iterator operator--(int) { return std::exchange(*this, iterator(*this) += -1); }
  constexpr iterator& operator+=(difference_type n) { return *this = iterator(indices_, position_ + n); }
  constexpr iterator& operator-=(difference_type n) { return *this += -n; }
  friend constexpr iterator operator+(iterator it, difference_type n) { return it += n; }
  friend constexpr iterator operator+(difference_type n, iterator it) { return it += n; }
  friend constexpr iterator operator-(iterator it, difference_type n) { return it -= n; }
  friend constexpr difference_type operator-(const iterator& a, const iterator& b) { return a.position_ - b.position_; }
  friend constexpr bool operator==(const iterator& a, const iterator& b) { return a.position_ == b.position_; }
  friend constexpr auto operator<=>(const iterator& a, const iterator& b) { return a.position_ <=> b.position_; }

 private:
  [[nodiscard]] constexpr value_type at(Index position) const {
    return 0 <= position && position < indices_->size() ? (*indices_)[position] : value_type(indices_->power());
  }

  const MultiIndices* indices_ = nullptr;
  Index position_ = 0;
  value_type alpha_{};
};

}  // namespace SYMPOW_NAMESPACE
