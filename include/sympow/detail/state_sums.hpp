// What a state keeps of the tokens that it has seen: sums over them in units of a power of two, the last tokens as they
// are, and their coordinates.
#pragma once

#include <algorithm>

#include <sympow/core/panel.hpp>
#include <sympow/detail/weight.hpp>
#include <sympow/simd/integer_power.hpp>
#include <sympow/simd/split_matrix.hpp>
#include <sympow/simd/two_part_factor.hpp>
#include <sympow/transition/frame.hpp>

namespace SYMPOW_NAMESPACE::detail {

inline constexpr Index split_columns = 24;  // split columns that are made dense at a time, to fit the first cache

/// S, e × D.
template <class Scalar>
struct StoredSums {
  Matrix<Scalar> S;                ///< 0 × D where S is split
  SplitMatrix<Scalar> split = {};  ///< S where it is split, else empty

  StoredSums(Index e, Index dimension) { S.setZero(e, dimension); }

  /// e.
  [[nodiscard]] Index value_rows() const { return is_split() ? split.rows() : S.rows(); }
  /// Numbers that S takes the memory of.
  [[nodiscard]] Index size() const { return is_split() ? split.size() : S.size(); }
  /// Whether queries read the high halves of S alone.
  [[nodiscard]] bool is_split() const { return !split.empty(); }
  /// Split S, or make it dense. Exact; S is unchanged after `bad_alloc`.
  void split_up() {
    if (is_split() || S.cols() == 0) return;
    SplitMatrix<Scalar> made(S.rows(), S.cols());
    made.set(0, S);
    split = std::move(made);
    S = Matrix<Scalar>(0, S.cols());
  }
  void make_dense() {
    if (!is_split()) return;
    Matrix<Scalar> made(split.rows(), split.cols());
    split.get(0, made);
    S.swap(made);
    split = {};
  }
  /// f(begin, columns) of S, which f may change: all at once, or up to `at_once` where S is split.
  template <class F>
  void change_columns(Index first, Index size, Index at_once, Panel<Scalar>& memory, const F& f) {
    if (!is_split()) return f(first, MatrixView<Scalar>(S).middleCols(first, size));
    for (Index begin = first, n = 0; begin < first + size; begin += n) {
      n = std::min(at_once, first + size - begin);
      const auto columns = memory(split.rows(), n);
      split.get(begin, columns);
      f(begin, columns);
      split.set(begin, columns);
    }
  }
  /// Columns of S, up to `split_columns` of them unless S is dense.
  [[nodiscard]] MatrixView<const Scalar> columns(Index first, Index size, Panel<Scalar>& memory) const {
    if (!is_split()) return MatrixView<const Scalar>(S).middleCols(first, size);
    const auto columns = memory(split.rows(), size);
    split.get(first, columns);
    return columns;
  }
};

/// The last tokens of a state, stored as they were weighed: key j weighs 2^{exponents_j} fractions_j e^{elapsed}
/// ‖keys_j‖^P now. (Embedded scores: without the length of φ.)
template <class Scalar>
struct RecentTokens {
  Matrix<Scalar> keys, values;  ///< d and e × capacity
  Eigen::VectorXd exponents;
  Vector<Scalar> fractions;
  Index size = 0;
  Extent<Scalar> extent;  ///< of the values

  RecentTokens(Index d, Index e, Index capacity) {
    keys.setZero(d, capacity), values.setZero(e, capacity);
    exponents.setZero(capacity), fractions.setZero(capacity);
  }
  RecentTokens(const RecentTokens&) = default;
  RecentTokens(RecentTokens&&) = default;
  RecentTokens& operator=(RecentTokens&&) = default;
  ~RecentTokens() = default;
  /// Of one of the same sizes no more than the tokens that are there.
  RecentTokens& operator=(const RecentTokens& other) {
    if (keys.rows() != other.keys.rows() || values.rows() != other.values.rows() || capacity() != other.capacity())
      return *this = RecentTokens(other);
    size = other.size, extent = other.extent;
    keys.leftCols(size) = other.keys.leftCols(size);
    values.leftCols(size) = other.values.leftCols(size);
    exponents.head(size) = other.exponents.head(size);
    fractions.head(size) = other.fractions.head(size);
    return *this;
  }

  [[nodiscard]] Index capacity() const { return keys.cols(); }
  void clear() {
    size = 0;
    extent = {};
  }
  /// An empty one for so many tokens.
  void clear(Index tokens) {
    const Index d = keys.rows(), e = values.rows();
    if (tokens != capacity()) *this = RecentTokens(d, e, tokens);
    clear();
  }
};

/// Whether a decay of channels is so little that sums go on without it: it takes less than a half of any of them.
template <int degree>
[[nodiscard]] bool channels_wait(const Eigen::VectorXd& log_channels) {
  return !log_channels.isZero(0) && degree * log_channels.minCoeff() > -std::numbers::ln2;
}

/// Over the tokens j that were folded, with keys of length at most 1 and M = ⌈L⌉,
///
///     S = Σ_j b_j v_j φ(k̂_j)ᵀ = 2^M S_  (e × D),   Z = Σ_j b_j φ(k̂_j) = 2^M Z_,   A = Σ_j b_j ‖k̂_j‖^P = 2^M A_
///
/// at time 0. Since then they have decayed by `elapsed` and `log_channels`; the recent tokens count from the same time.
/// Folds put whole powers of two of a decay into the sums, and what channels have lost when it is half or more: a decay
/// that is too slow for the digits of S waits until it can be seen. L ← max(L + log2 γ, log2 b_j ‖k_j‖^P), with
/// headroom for large values; -∞ is empty. Source: numerics of the library, the running exponent.
template <class Scalar>
struct StateSums : StoredSums<Scalar> {
  using StoredSums<Scalar>::S, StoredSums<Scalar>::split;

  Vector<Scalar> Z;
  double A = 0, L = log2_zero;
  Eigen::VectorXd channel_weights;  ///< A_c = Σ_j b_j |k̂_cj|^P by channel; empty before channels decayed by themselves
  LogGate elapsed;
  Eigen::VectorXd log_channels;  ///< Σ log a by channel since time 0
  RecentTokens<Scalar> recent;

  StateSums(Index d, Index e, Index dimension, Index capacity)
      : StoredSums<Scalar>(e, dimension), recent(d, e, capacity) {
    Z.setZero(dimension);
    log_channels.setZero(d);
  }

  [[nodiscard]] double exponent() const { return std::ceil(L); }  ///< M
  [[nodiscard]] bool empty() const { return L == log2_zero; }     ///< nothing is folded
  [[nodiscard]] bool channels_decay() const { return !log_channels.isZero(0); }
  [[nodiscard]] bool channels_differ() const { return channels_decay() && !gates_agree(log_channels); }
  /// The decay of its slowest channel since time 0, for scores of this degree, without scalar gates.
  template <int degree>
  [[nodiscard]] double slowest_channel() const {
    return channels_decay() ? degree * largest_gate(log_channels) : 0;
  }
  /// Log2 of what a decay of channels leaves of A at most, beside what the slowest one does: (Σ_c A_c^{1/P} a_c)^P by
  /// Minkowski's inequality. 0 where that is not far below, nor was left by the decays before it.
  template <int degree>
  [[nodiscard]] double log2_left(const Eigen::VectorXd& log_a) const {
    if (channel_weights.size() == 0 || A == 0 || gates_agree(log_a)) return 0;
    const double slowest = largest_gate(log_a);
    const auto d = static_cast<double>(channel_weights.size());
    if (degree * std::numbers::log2e * (log_a.minCoeff() - slowest) >= -far_above<Scalar> &&
        integer_power(d, degree - 1) * channel_weights.sum() >=
            A * std::exp2(-far_above<Scalar>))  // (Σ_c A_c^{1/P})^P ≤ that
      return 0;
    double sum = 0;
    for (Index c = 0; c < channel_weights.size(); ++c)
      sum += std::pow(channel_weights[c], 1. / degree) * std::exp(log_a[c] - slowest);
    return std::clamp(degree * std::log2(sum) - std::log2(A), -900., 0.);
  }
  /// Weights by channel are wanted from the first fold on.
  void count_channels() {
    if (empty()) channel_weights.setZero(log_channels.size());
  }
  /// The scalar decay that is pending goes into the sums, which are dense.
  void settle() {
    const Weight weight(elapsed);
    const TwoPartFactor<Scalar> factor(weight.fraction);
    factor.multiply(S.data(), S.size()), factor.multiply(Z.data(), Z.size());
    A *= weight.fraction, channel_weights *= weight.fraction;
    L += weight.exponent;
    elapsed = {};
  }
  /// No decay is pending.
  void begin_time() {
    elapsed = {};
    log_channels.setZero();
  }
  /// No tokens; what is in memory is overwritten, not multiplied: it may be no number.
  void clear() {
    S.setZero();
    split.set_zero();
    Z.setZero();
    A = 0, L = log2_zero;
    resize_safely(channel_weights, 0);
    recent.clear();
    begin_time();
  }
};

/// Sums that are S and Z, moderate numbers times a power of two; what else they hold is that of no tokens. `names` are
/// those of a whole, S and Z in messages. Throws `ShapeMismatch`, `NotFinite`.
template <class Scalar, class Values, class Normalizer>
void set_sums(const char* const (&names)[3], StateSums<Scalar>& sums, const Eigen::MatrixBase<Values>& S,
              const Eigen::MatrixBase<Normalizer>& Z) {
  const auto name_of = [&](const char* what, int n) { return std::string(what) + names[n]; };
  check_size(name_of("columns of ", 1), S.cols(), sums.Z.size(), "the dimension of the feature map");
  check_size(name_of("entries of ", 2), Z.size(), sums.Z.size(), "the dimension of the feature map");
  sums.S = S;
  sums.Z = Z.reshaped();
  double largest = 0;
  const auto measure = [&](const auto& x, const char* name) {
    const MatrixView<const Scalar> all(x.data(), x.size(), 1);
    const Extent<Scalar> extent = measure_extent<Scalar>(all);
    for (Index n = 0; n < x.size() && !extent.all_finite; ++n)
      if (!std::isfinite(x.data()[n]))
        raise<NotFinite>(names[0], ": entry ", n, " of ", name, " is ", x.data()[n], ", must be finite");
    largest = std::max(largest, static_cast<double>(extent.largest));
  };
  measure(sums.S, names[1]), measure(sums.Z, names[2]);
  if (largest == 0) return;
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (const ColumnView<Scalar>& x :
       {ColumnView<Scalar>(sums.S.data(), sums.S.size()), ColumnView<Scalar>(sums.Z.data(), sums.Z.size())})
    set_times_power_of_two<Scalar>(x, ColumnView<const Scalar>(x), -exponent);
  sums.L = exponent;
}

/// S or Z of sums without recent tokens, that all decay is in: infinite or 0 where the type cannot hold it.
template <class Scalar, class Part>
void unscale(const StateSums<Scalar>& sums, Part& x) {
  if (sums.empty()) return;
  const ColumnView<Scalar> all(x.data(), x.size());
  set_times_power_of_two<Scalar>(all, ColumnView<const Scalar>(all), sums.exponent());
}

/// The same of sums that are used up.
template <class Scalar, class Part, class Class>
Part unscaled(StateSums<Scalar> sums, Part Class::* part) {
  unscale(sums, sums.*part);
  return std::move(sums.*part);
}

/// The tokens that a state has seen: in which coordinates, and what has happened to them in all.
template <class Scalar>
struct Frames {
  Frame start, end;              ///< the coordinates at the first token, and those of the keys now
  double log_decay = 0;          ///< Σ log γ
  Eigen::VectorXd log_channels;  ///< Σ log a, d
  Index tokens = 0;              ///< T
  /// A_1 … A_T of a transition that mixes channels, d × d; 0 × 0 before the first. If it is not to be kept, 0 × d
  /// before the first, then d × 0.
  Matrix<Scalar> key_product;

  [[nodiscard]] bool have_mixed() const { return key_product.rows() != 0; }
  [[nodiscard]] bool keep_product() const {
    return key_product.size() != 0 || key_product.rows() == key_product.cols();
  }
  /// Makes room for the product before the first mixing.
  void begin_mixing(Index d) {
    if (have_mixed()) return;
    if (keep_product())
      key_product.setIdentity(d, d);
    else
      resize_safely(key_product, d, 0);
  }
};

/// What is in a state, whatever its feature map.
template <class Scalar>
struct StateContent {
  StateSums<Scalar> sums;
  Frames<Scalar> frames = {};
  bool interrupted = false;
};

}  // namespace SYMPOW_NAMESPACE::detail
