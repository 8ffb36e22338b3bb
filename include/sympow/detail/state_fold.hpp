// What a state keeps of the tokens that it has seen (sums over them in units of a power of two, the last tokens as they
// are, and their coordinates), how keys come into it, and how one state comes into another.
#pragma once

#include <algorithm>

#include <sympow/core/panel.hpp>
#include <sympow/core/visitor.hpp>
#include <sympow/detail/segment.hpp>
#include <sympow/feature/phi_panels.hpp>
#include <sympow/simd/integer_power.hpp>
#include <sympow/simd/row_panels.hpp>
#include <sympow/simd/split_matrix.hpp>
#include <sympow/simd/two_part_factor.hpp>
#include <sympow/transition/frame.hpp>

namespace SYMPOW_NAMESPACE::detail {

// ---- What a state keeps of the tokens that it has seen

inline constexpr Index split_columns = 24;  // split columns that are made dense at a time, to fit the first cache

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
  /// Of one of the same sizes in the memory that is here. Unchanged after `bad_alloc`.
  RecentTokens& operator=(const RecentTokens& other) {
    if (keys.rows() != other.keys.rows() || values.rows() != other.values.rows() || capacity() != other.capacity())
      return *this = RecentTokens(other);
    keys = other.keys, values = other.values, exponents = other.exponents, fractions = other.fractions;
    size = other.size, extent = other.extent;
    return *this;
  }

  [[nodiscard]] Index capacity() const { return keys.cols(); }
  /// An empty one for so many tokens.
  void clear(Index tokens) {
    if (tokens != capacity()) *this = RecentTokens(keys.rows(), values.rows(), tokens);
    size = 0, extent = {};
  }
};

/// Whether a decay of channels is so little that sums go on without it: it takes less than a half of any of them.
[[nodiscard]] inline bool channels_wait(int P, const Eigen::VectorXd& log_channels) {
  return !log_channels.isZero(0) && P * log_channels.minCoeff() > -std::numbers::ln2;
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
struct StateSums {
  Matrix<Scalar> S;                ///< 0 × D where S is split
  SplitMatrix<Scalar> split = {};  ///< S where it is split, else empty
  Vector<Scalar> Z;
  double A = 0, L = log2_zero;
  Eigen::VectorXd channel_weights;  ///< A_c = Σ_j b_j |k̂_cj|^P by channel; or bounds; empty before channels decayed
  LogGate elapsed;
  Eigen::VectorXd log_channels;  ///< Σ log a by channel since time 0
  RecentTokens<Scalar> recent;

  StateSums(Index d, Index e, Index dimension, Index capacity) : recent(d, e, capacity) {
    S.setZero(e, dimension), Z.setZero(dimension);
    log_channels.setZero(d);
  }

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
  void change_columns(Index first, Index columns, Index at_once, Panel<Scalar>& memory, const F& f) {
    if (!is_split()) return f(first, MatrixView<Scalar>(S).middleCols(first, columns));
    for (Index begin = first, n = 0; begin < first + columns; begin += n) {
      n = std::min(at_once, first + columns - begin);
      const auto some = memory(split.rows(), n);
      split.get(begin, some);
      f(begin, some);
      split.set(begin, some);
    }
  }

  [[nodiscard]] double exponent() const { return std::ceil(L); }  ///< M
  [[nodiscard]] bool empty() const { return L == log2_zero; }     ///< nothing is folded
  [[nodiscard]] bool channels_decay() const { return !log_channels.isZero(0); }
  [[nodiscard]] bool channels_differ() const { return channels_decay() && !gates_agree(log_channels); }
  /// The decay of its slowest channel since time 0, for scores of this degree, without scalar gates.
  [[nodiscard]] double slowest_channel(int P) const { return channels_decay() ? P * largest_gate(log_channels) : 0; }
  /// Log2 of the most that the decays of channels leave of A, relative to the slowest channel, whose decay is not 0:
  /// (Σ_c A_c^{1/P} a_c)^P ≤ d^{P-1} Σ_c A_c a_c^P, the inequality of power means.
  [[nodiscard]] double log2_left(int P) const {
    if (channel_weights.size() == 0 || A == 0) return 0;
    const double slowest = largest_gate(log_channels);
    double sum = 0;
    for (Index c = 0; c < channel_weights.size(); ++c)
      sum += channel_weights[c] * std::exp(P * (log_channels[c] - slowest));
    const auto d = static_cast<double>(channel_weights.size());
    const double left = (P - 1) * std::log2(d) + std::log2(sum) - std::log2(A);
    return left < 0 ? std::max(left, -900.) : 0;  // 0 for NaN
  }
  /// Sets the weights by channel to A, an upper bound, where there are none.
  void bound_channels() {
    if (channel_weights.size() > 0) return;
    resize_safely(channel_weights, log_channels.size());
    channel_weights.setConstant(A);
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
  /// No tokens; what is in memory is overwritten, not multiplied: it may be no number.
  void clear() {
    S.setZero();
    split.set_zero();
    Z.setZero();
    A = 0, L = log2_zero;
    resize_safely(channel_weights, 0);
    recent.clear(recent.capacity());
    elapsed = {};
    log_channels.setZero();
  }
};

/// Sums that are S and Z, moderate numbers times a power of two; what else they hold is that of no tokens. `names` are
/// those of a whole, S and Z in messages. Throws `ShapeMismatch`, `NotFinite`.
template <class Scalar, class Values, class Normalizer>
void set_sums(const char* const (&names)[3], StateSums<Scalar>& sums, const Eigen::MatrixBase<Values>& S,
              const Eigen::MatrixBase<Normalizer>& Z) {
  const auto check_columns = [&](const char* what, const char* name, Index size) {
    check_size(std::string(what) + name, size, sums.Z.size(), "the dimension of the feature map");
  };
  check_columns("columns of ", names[1], S.cols()), check_columns("entries of ", names[2], Z.size());
  sums.S = S;
  sums.Z = Z.reshaped();
  const ColumnView<Scalar> parts[] = {{sums.S.data(), sums.S.size()}, {sums.Z.data(), sums.Z.size()}};
  double largest = 0;
  for (const int part : {0, 1}) {
    const ColumnView<Scalar>& x = parts[part];
    for (Index n = 0; n < x.size(); ++n) {
      if (!std::isfinite(x[n]))
        raise<NotFinite>(names[0], ": entry ", n, " of ", names[part + 1], " is ", x[n], ", must be finite");
      largest = std::max(largest, static_cast<double>(std::abs(x[n])));
    }
  }
  if (largest == 0) return;
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (const ColumnView<Scalar>& x : parts) set_times_power_of_two<Scalar>(x, ColumnView<const Scalar>(x), -exponent);
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
  void drop_product() {
    const Index d = log_channels.size();
    resize_safely(key_product, have_mixed() ? d : 0, have_mixed() ? 0 : d);
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

  [[nodiscard]] Index key_dimension() const { return sums.log_channels.size(); }
  /// Whether a copy of the other takes the memory that is here.
  [[nodiscard]] bool has_sizes_of(const StateContent& other) const {
    return key_dimension() == other.key_dimension() && sums.Z.size() == other.sums.Z.size() &&
           sums.value_rows() == other.sums.value_rows();
  }
};

// ---- Keys into the sums of a state, and the sums of one state into those of another

template <class Scalar>
struct FoldBuffers {
  PhiBuffers<Scalar> phi;
  Panel<Scalar> weights, values, packed;  ///< of keys; their values times these, and the same by `RowPanels`
  Panel<Scalar> features, recent_norms;   ///< φ of recent keys, and their lengths
  Panel<double> exponents, lengths;       ///< likewise
  Panel<double> channels, monomials;      ///< decays of channels and of entries of φ
  Panel<double> roots;                    ///< A_c^{1/P}
  Panel<double> waiting;                  ///< decays of channels that a fold leaves out
  Panel<Scalar> columns;                  ///< of S, where it is split

  /// Memory for folds of up to `keys` keys with vectors of so many rows, d channels and a tail of `recent` tokens.
  template <class F>
  void reserve(const F& feature, Index rows, Index d, const StateSums<Scalar>& state, Index keys, bool by_channel) {
    const Index recent = state.recent.capacity(), D = state.Z.size(), e = state.value_rows();
    phi.reserve(feature, rows, std::max(keys, phi_panel_tokens));
    values(e, keys), packed(e * keys), weights(keys);
    recent_norms(recent), exponents(recent), lengths(recent);
    if (F::score == Score::embedded) features(rows, recent);
    if (by_channel) channels(d, 2), monomials(D, 2), waiting(d), roots(d);
    if (state.is_split()) columns(e, std::max(split_columns, degree_in(feature) > 1 ? phi_panel_width : D));
  }
};

/// What every entry of S and Z is multiplied by when a decay goes into them.
struct DecayFactors {
  double factor;             ///< of all, that of the slowest channel included
  const double* of_entries;  ///< of each entry of φ; null where the channels agree

  /// Factor · Sym(diag(e^{log_a - slowest})): a diagonal is lifted to the monomials of its entries, φ(a) / φ(1).
  template <class Scalar, class F>
  static DecayFactors of(const F& feature, FoldBuffers<Scalar>& memory, double factor, const Eigen::VectorXd& log_a) {
    DecayFactors decay{factor, nullptr};
    if (factor == 0 || F::score != Score::power || gates_agree(log_a)) return decay;
    if constexpr (F::score == Score::power) {
      const Index D = feature.dimension(log_a.size());
      auto channels = memory.channels(log_a.size(), 2), monomials = memory.monomials(D, 2);
      set_beside_slowest(channels.col(0), log_a);
      channels.col(1).setConstant(1);
      feature.embed_decays(channels, monomials);
      constexpr double largest = std::numeric_limits<Scalar>::max() / 8;  // beyond it the entry has no digits
      for (Index n = 0; n < D; ++n) {
        monomials(n, 0) *= factor / monomials(n, 1);
        if (monomials(n, 0) > largest) monomials(n, 0) = 0;
      }
      decay.of_entries = monomials.data();
    }
    return decay;
  }
  /// decays_c ← a_c beside the slowest channel's.
  static void set_beside_slowest(ColumnView<double> decays, const Eigen::VectorXd& log_a) {
    const double slowest = largest_gate(log_a);
    for (Index c = 0; c < decays.size(); ++c) decays[c] = log_a[c] == log2_zero ? log2_zero : log_a[c] - slowest;
    set_exponential(decays, decays);
  }
  /// Some entries, of so many numbers each, from the first on.
  template <class Scalar>
  void multiply(Scalar* x, Index first, Index entries, Index numbers) const {
    if (of_entries != nullptr)
      for (Index n = 0; n < entries; ++n)
        TwoPartFactor<Scalar>(of_entries[first + n]).multiply(x + n * numbers, numbers);
    else if (factor != 1)
      TwoPartFactor<Scalar>(factor).multiply(x, entries * numbers);
  }
};

/// The recent tokens as keys that count from time 0, whose vectors are folded, or make logits where they are `direct`.
template <class Scalar, FeatureMap F>
WeightedKeys<Scalar> recent_keys(const F& feature, FoldBuffers<Scalar>& memory, StateSums<Scalar>& state, bool direct) {
  RecentTokens<Scalar>& recent = state.recent;
  const Index n = recent.size;
  MatrixView<Scalar> keys = MatrixView<Scalar>(recent.keys).leftCols(n);
  WeightedKeys<Scalar> all{.size = n,
                           .first_token = -n,
                           .vectors = {keys.data(), keys.rows(), 1},
                           .values = MatrixView<const Scalar>(recent.values).leftCols(n),
                           .exponents = recent.exponents.data(),
                           .fractions = recent.fractions.data(),
                           .extent = recent.extent};
  if constexpr (F::score == Score::embedded) {
    auto of_phi = memory.lengths(n), sums = memory.exponents(n);
    auto norms = memory.recent_norms(n);
    const bool embeds = n > 0 && (!direct || scores_need_features(feature));
    const auto phi = memory.features(embeds ? feature.dimension(keys.rows()) : 0, n);
    if (embeds)
      feature.embed(keys, phi, of_phi, norms);
    else if (n > 0)
      feature.set_lengths(keys, of_phi, norms);
    sums = ColumnView<const double>(recent.exponents).head(n) + of_phi;
    if (embeds) all.vectors = {phi.data(), phi.rows(), 1};
    all.exponents = sums.data(), all.lengths = of_phi.data(), all.norms = norms.data();
  }
  all.heaviest = heaviest_of(all.exponents, n);
  return all;
}

/// A_c ← factor a_c^P A_c + Σ_j w_j |k_cj|^P, with what channels keep beside the slowest one.
template <class Scalar, class Power>
void fold_channel_weights(const Power& power, FoldBuffers<Scalar>& memory, StateSums<Scalar>& state, double factor,
                          MatrixView<const Scalar> keys, const Scalar* weights) {
  if (state.channels_differ()) state.bound_channels();
  if (state.channel_weights.size() == 0) return;
  auto decays = memory.channels(state.channel_weights.size());
  DecayFactors::set_beside_slowest(decays, state.log_channels);
  double* __restrict const to = state.channel_weights.data();
  for (Index c = 0; c < decays.size(); ++c) to[c] *= factor * power(decays[c]);
  for (Index j = 0; j < keys.cols(); ++j) {
    const auto weight = static_cast<double>(weights[j]);
    const Scalar* __restrict const key = keys.col(j).data();
    for (Index c = 0; c < keys.rows(); ++c) to[c] += weight * power(std::abs(static_cast<double>(key[c])));
  }
}

/// x_c ← e^{sign (log_c - from)} x_c for every column x.
template <class Scalar>
void multiply_channels(FoldBuffers<Scalar>& memory, ColumnView<const double> logs, double sign, MatrixView<Scalar> x,
                       double from = 0) {
  auto factors = memory.channels(logs.size());
  for (Index c = 0; c < logs.size(); ++c) factors[c] = sign * (logs[c] - from);
  set_exponential(factors, factors);
  for (Index j = 0; j < x.cols(); ++j) multiply_entries(x.col(j).data(), factors.data(), x.rows());
}

/// A_c^{1/P} of all channels.
template <class Scalar>
ColumnView<const double> roots_of_weights(int P, FoldBuffers<Scalar>& memory, const StateSums<Scalar>& state) {
  auto roots = memory.roots(state.channel_weights.size());
  for (Index c = 0; c < roots.size(); ++c) roots[c] = std::pow(state.channel_weights[c], 1. / P);
  return roots;
}

/// x_c ← e^{log_c} x_c for every key x, whose length is taken out once more; it may leave the type.
template <class Scalar>
void decay_keys(int P, Panel<double>& memory, ColumnView<const double> logs, MatrixView<Scalar> keys, double* exponents,
                Scalar* norms) {
  const double slowest = logs.maxCoeff(), whole = slowest == log2_zero ? 0 : std::round(slowest * std::numbers::log2e);
  auto factors = memory(logs.size());
  for (Index c = 0; c < logs.size(); ++c) factors[c] = logs[c] - whole * std::numbers::ln2;
  set_exponential(factors, factors);
  for (Index j = 0; j < keys.cols(); ++j) {
    const auto key = keys.col(j);
    multiply_entries(key.data(), factors.data(), key.size());
    exponents[j] += P * (whole + normalize_column<Scalar>(key, key, Scalar(1), norms[j]));
  }
}

/// The largest part of a row's denominator that can be rounding: ‖φ(q)‖ A, or where channels have decayed by themselves
/// (Σ_c |q_c| A_c^{1/P})^P if that is less, by Minkowski's inequality. Nothing cancels among entries of one sign.
template <class Scalar, FeatureMap F>
double noise_of(const F& feature, const StateSums<Scalar>& state, ColumnView<const Scalar> q,
                ColumnView<const double> roots) {
  if (entries_are_nonnegative(feature)) return 0;
  const int P = degree_in(feature);
  const double noise = integer_power(std::sqrt(static_cast<double>(squared_norm(q.data(), q.size()))), P) * state.A;
  double sum = 0;
  for (Index c = 0; c < roots.size(); ++c) sum += std::abs(static_cast<double>(q[c])) * roots[c];
  return roots.size() > 0 ? std::min(noise, integer_power(sum, P)) : noise;
}

/// These keys go into the sums; their vectors are used up. Of the decay γ since time 0 whole powers of two go into them
/// as well; the rest stays in `elapsed`:
///
///     L ← max(L + log2 γ, log2 b_j ‖k_j‖^P),   S ← 2^{(M - M') + log2 γ} S + Σ_j 2^{log2 b_j - M'} v_j φ(k_j)ᵀ
///
/// The decay of channels goes in as well, unless it `may_wait`.
template <class Scalar, FeatureMap F>
void fold(const F& feature, FoldBuffers<Scalar>& memory, StateSums<Scalar>& state, const WeightedKeys<Scalar>& keys,
          bool may_wait = false) {
  const int P = degree_in(feature);
  const Index n = keys.size, e = state.value_rows();
  const bool waits = may_wait && F::score == Score::power && !state.empty() && channels_wait(P, state.log_channels);
  auto waiting = memory.waiting(waits ? state.log_channels.size() : 0);
  waiting = state.log_channels.head(waiting.size());
  if (waits) state.log_channels.setZero();  // no channel decays, then
  const double slowest = state.slowest_channel(P), left = slowest == log2_zero ? log2_zero : state.log2_left(P);
  LogGate rest = state.elapsed;
  const double passed = rest.take_power_of_two(),
               level = std::max(state.L + slowest * std::numbers::log2e + left, keys.level()) + passed;
  if (level == log2_zero) return state.clear();  // channels may have closed one after the other
  const double M = std::ceil(level);
  auto all_weights = memory.weights(n);
  set_weights_at(all_weights.data(), keys.exponents, keys.fractions, n, passed - M, Scalar(1),
                 keys.heaviest + negligible_weight<Scalar>(feature) + passed - M);
  Index count = n;  // of the last tokens, which still matter
  while (count > 0 && all_weights[n - count] == Scalar(0)) --count;
  const auto weights = all_weights.tail(count);
  const auto values = memory.values(e, count);
  scale_columns<Scalar>(keys.values.rightCols(count), weights, values);
  const RowPanels<Scalar> panels = row_panels<Scalar>(values, count <= few_tokens ? 0 : state.Z.size(), memory.packed);
  const MatrixView<Scalar> vectors(const_cast<Scalar*>(keys.vectors.at(n - count, 0).data), keys.vectors.down, count);
  if (waits) multiply_channels(memory, waiting, -1, vectors);
  const double factor =
      state.empty() || left == log2_zero ? 0 : Weight(LogGate{slowest}).number(state.exponent() + passed - M);
  const DecayFactors decay = DecayFactors::of(feature, memory, factor, state.log_channels);
  const auto visit = [&](Index first, Strided<const Scalar*> phi, Index width) {
    state.change_columns(first, width, split_columns, memory.columns, [&](Index begin, MatrixView<Scalar> S) {
      decay.multiply(S.data(), begin, S.cols(), e);
      if (count > 0) panels.times(true, S.cols(), count, phi.at(0, begin - first), {S.data(), 1, e});
    });
    Scalar* const Z = state.Z.data() + first;
    decay.multiply(Z, first, width, 1);
    if (count > 0) product<Scalar>(true, width, 1, count, phi.transposed(), {weights.data(), 1, count}, {Z, 1, width});
  };
  if (count == 0)
    visit(0, {nullptr, 0, 0}, state.Z.size());
  else
    for_phi_panels(feature, memory.phi, vectors, count <= few_tokens, visit);

  with_power<F>(P, [&](const auto& power) {
    fold_channel_weights<Scalar>(power, memory, state, decay.factor, vectors, weights.data());
  });
  state.A *= decay.factor == 0 ? 0 : decay.factor * std::exp2(left);
  for (Index j = 0; j < count; ++j)
    state.A += static_cast<double>(weights[j]) *
               integer_power(std::sqrt(static_cast<double>(squared_norm(vectors.col(j).data(), vectors.rows()))), P);
  state.L = level;
  state.elapsed = rest;
  state.log_channels.setZero();
  state.log_channels.head(waiting.size()) = waiting;
}
/// The same of the recent tokens, of which none are left then.
template <class Scalar, FeatureMap F>
void fold_recent(const F& feature, FoldBuffers<Scalar>& memory, StateSums<Scalar>& state, bool may_wait = false) {
  fold<Scalar>(feature, memory, state, recent_keys<Scalar>(feature, memory, state, false), may_wait);
  state.recent.clear(state.recent.capacity());
}

/// Folds of states, compiled once for a scalar type and a feature map as passes see it.
template <class Scalar, FeatureMap F>
struct StateOperations {};
template <class Scalar, FeatureMap F>
  requires has_embedding<F>
struct StateOperations<Scalar, F> {
  /// The recent tokens into the sums, and every decay that is pending.
  static void fold(const F& feature, StateSums<Scalar>& sums);
};

template <class Scalar, FeatureMap F>
  requires has_embedding<F>
void StateOperations<Scalar, F>::fold(const F& feature, StateSums<Scalar>& sums) {
  FoldBuffers<Scalar> memory;
  fold_recent<Scalar>(feature, memory, sums);
}
/// The same for the feature map of a call.
template <class Scalar, FeatureMap F>
void fold_state(const F& feature, StateSums<Scalar>& sums) {
  StateOperations<Scalar, InterfaceOf<Scalar, F>>::fold(pass_feature<Scalar>(feature), sums);
}

/// `fold_state` of sums.
template <class Scalar>
using FoldSums = Visitor<StateSums<Scalar>&>;

/// `state` ← the sums of earlier tokens as well, which decay by these logarithms on their way to here; neither has
/// recent tokens or a pending decay of channels.
template <class Scalar>
void add_sums(const FoldSums<Scalar>& fold, StateSums<Scalar> before, double log_gamma, const Eigen::VectorXd& log_a,
              StateSums<Scalar>& state) {
  Panel<Scalar> memory;
  before.elapsed.add(log_gamma);
  before.log_channels = log_a;
  fold(before);
  if (before.empty()) return;
  before.make_dense();
  const LogGate &ours = state.elapsed, &rest = before.elapsed;
  const double ahead = (ours.high - rest.high) + (ours.low - rest.low),  // its own, of time 0
      level = std::max(state.L + ahead * std::numbers::log2e, before.L), M = std::ceil(level),
               own = state.empty() ? 0 : Weight(LogGate{ahead}).number(state.exponent() - M),
               theirs = nearest_power_of_two<double>(before.exponent() - M);
  const auto x = static_cast<Scalar>(own), y = static_cast<Scalar>(theirs);
  state.change_columns(0, state.Z.size(), split_columns, memory, [&](Index first, MatrixView<Scalar> S) {
    S = x * S + y * before.S.middleCols(first, S.cols());
  });
  state.Z = x * state.Z + y * before.Z;
  if (state.channel_weights.size() > 0 || before.channel_weights.size() > 0) {
    state.bound_channels(), before.bound_channels();
    state.channel_weights = own * state.channel_weights + theirs * before.channel_weights;
  }
  state.A = own * state.A + theirs * before.A;
  state.L = level;
  state.elapsed = rest;
}

/// The sums of `left` into those of `right`, which goes on where it ends; both tails are empty.
///
///     S ← 2^{M - M'} S + 2^{M_left - M'} S_left A,   A the whole transition of the right one
template <class Scalar>
void add_state(const FoldSums<Scalar>& fold, const StateContent<Scalar>& left, StateContent<Scalar>& right) {
  if (right.sums.channels_decay()) fold(right.sums);
  const Frames<Scalar>& before = left.frames;
  Frames<Scalar>& frames = right.frames;
  const bool mixes = frames.key_product.size() != 0;
  StateSums<Scalar> moved = left.sums;
  if (mixes) {  // φ(x) = x then
    moved.make_dense();
    Matrix<Scalar> product(moved.S.rows(), moved.S.cols());
    set_product(product, moved.S, frames.key_product);
    moved.S.swap(product);
    set_product(moved.Z, frames.key_product.transpose(), left.sums.Z);
  }
  add_sums(fold, std::move(moved), frames.log_decay, frames.log_channels, right.sums);
  frames.start = before.start;
  frames.log_decay += before.log_decay;
  frames.log_channels += before.log_channels;
  if (!mixes || !before.keep_product()) {
    const bool drops = mixes && !before.have_mixed();
    frames.key_product = before.key_product;
    if (drops) frames.begin_mixing(before.key_product.cols());
  } else if (before.key_product.size() != 0) {
    Matrix<Scalar> product(frames.key_product.rows(), frames.key_product.cols());
    set_product(product, before.key_product, frames.key_product);
    frames.key_product.swap(product);
  }
  frames.tokens += before.tokens;
}

}  // namespace SYMPOW_NAMESPACE::detail
