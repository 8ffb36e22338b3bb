// How tokens enter a state: its parts, and what the forms do with them.
#pragma once

#include <span>

#include <sympow/attention/engine/columns.hpp>
#include <sympow/attention/engine/two_part_factor.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/attention/workspace.hpp>

namespace sympow::detail {

/// The forms' way into a state: its parts, and how tokens enter the sums.
template <class Scalar, class F>
struct StateAccess<State<Scalar, F>> {
  State<Scalar, F>& state;
  Matrix<Scalar>& S = state.S_;
  Vector<Scalar>& Z = state.Z_;
  double &A = state.A_, &L = state.L_;
  Matrix<Scalar>&tail_keys = state.tail_keys_, &tail_values = state.tail_values_;
  Eigen::VectorXd &tail_exponents = state.tail_exponents_, &tail_log_b = state.tail_log_b_;
  Index& tail_size = state.tail_size_;
  double& tail_log_decay = state.tail_log_decay_;
  Eigen::VectorXd& tail_log_channels = state.tail_log_channels_;
  Frame &start = state.start_, &frame = state.frame_;
  double& log_decay = state.log_decay_;
  Eigen::VectorXd& log_channels = state.log_channels_;
  Matrix<Scalar>& key_product = state.key_product_;
  Index& tokens = state.tokens_;

  static constexpr int degree = degree_of<F>;

  /// S, Z and the tail.
  [[nodiscard]] MatrixView<Scalar> sums() const { return S; }
  [[nodiscard]] ColumnView<Scalar> normalizer() const { return Z; }
  [[nodiscard]] MatrixView<Scalar> keys() const { return MatrixView<Scalar>(tail_keys).leftCols(tail_size); }
  [[nodiscard]] MatrixView<Scalar> values() const { return MatrixView<Scalar>(tail_values).leftCols(tail_size); }
  [[nodiscard]] ColumnView<double> exponents() const { return ColumnView<double>(tail_exponents).head(tail_size); }
  [[nodiscard]] ColumnView<double> log_b() const { return ColumnView<double>(tail_log_b).head(tail_size); }

  /// M, the exponent of S, Z and A.
  [[nodiscard]] double exponent() const { return std::ceil(L); }

  /// 2^M times S or Z.
  template <class Part>
  [[nodiscard]] auto unscaled(const Part& part) const {
    auto x = part;
    for (Scalar& entry : std::span(x.data(), static_cast<std::size_t>(x.size())))
      entry = times_power_of_two(entry, L == no_weight ? 0 : exponent());
    return x;
  }

  /// The largest log decay of a channel since the last fold, which goes into the exponents; the others are taken relative to it.
  [[nodiscard]] double slowest_channel() const { return largest_of(tail_log_channels); }
  [[nodiscard]] bool channels_agree() const { return is_constant(tail_log_channels); }

  /// Moves the whole state on by a scalar and a channel decay, in logarithms.
  void forget(double log_gamma, const Eigen::VectorXd* log_a) {
    log_decay += log_gamma;
    tail_log_decay += log_gamma;
    for (Index j = 0; j < tail_size; ++j) tail_log_b[j] += log_gamma;
    if (log_a == nullptr) return;
    log_channels += *log_a;
    tail_log_channels += *log_a;
    const double slowest = largest_of(*log_a);
    for (Index j = 0; j < tail_size; ++j) tail_log_b[j] += degree * slowest;
    if (slowest == no_weight || is_constant(*log_a)) return;
    for (Index c = 0; c < log_a->size(); ++c) {
      const auto gate = static_cast<Scalar>(std::exp((*log_a)[c] - slowest));
      for (Index j = 0; j < tail_size; ++j) tail_keys(c, j) *= gate;
    }
  }

  /// Queries at the time of the last fold, but for the decay of the slowest channel.
  void pull_to_last_fold(Workspace<Scalar>& work, MatrixView<Scalar> queries) const {
    const double slowest = slowest_channel();
    auto decays = work.channel_decays(queries.rows());
    for (Index c = 0; c < decays.size(); ++c) decays[c] = tail_log_channels[c] - slowest;
    set_exponential(decays, decays);
    for (Index i = 0; i < queries.cols(); ++i) multiply_entries(&queries(0, i), decays.data(), queries.rows());
  }

  /// Multiplies the whole state by the A_i of a segment that mix channels; its features are the keys themselves.
  void mix(const TransitionView<Scalar>& transition, Segment segment) {
    if (key_product.size() == 0) key_product.setIdentity(state.d_, state.d_);
    transition.push(segment, keys());
    transition.push(segment, Z);
    transition.advance(segment, S);
    transition.advance(segment, key_product);
  }

  /// Puts tokens that fit at the end of the tail.
  void append(MatrixView<const Scalar> new_keys, ColumnView<const double> new_exponents,
              ColumnView<const double> new_log_b, MatrixView<const Scalar> new_values) {
    const Index n = new_keys.cols();
    tail_size += n;
    keys().rightCols(n) = new_keys;
    values().rightCols(n) = new_values;
    exponents().tail(n) = new_exponents;
    log_b().tail(n) = new_log_b;
  }

  /// Folds the tail into the sums.
  void fold(Workspace<Scalar>& work) {
    fold(work, work.keys(state.d_, 0), work.key_exponents(0), work.to_end(0), work.keys(S.rows(), 0));
  }

  /// Folds the tail and further tokens, all in the coordinates of the state's frame, into the sums; empties the tail.
  ///
  ///     L ← max(L + log2 γ, log2 (b_j ‖φ(k_j)‖)),   S ← 2^{(M - M') + log2 γ} S + Σ_j 2^{log2 b_j - M'} v_j φ(k_j)ᵀ
  void fold(Workspace<Scalar>& work, MatrixView<Scalar> new_keys, ColumnView<double> new_exponents,
            ColumnView<const double> new_log_b, MatrixView<const Scalar> new_values) {
    const Index m = tail_size, n = new_keys.cols();
    auto tail_features = work.tail_features(S.cols(), m), features = work.features(S.cols(), n);
    const double forgotten = (tail_log_decay + degree * slowest_channel()) * std::numbers::log2e;
    const double folded = embed_keys(keys(), exponents(), log_b(), tail_features) + room_for(largest_entry(values()));
    const double added = embed_keys(new_keys, new_exponents, new_log_b, features) + room_for(largest_entry(new_values));
    const double next = std::max({L + forgotten, folded, added});
    const auto decay =
        forgetting(work, L + forgotten == no_weight ? 0 : std::exp2((exponent() - std::ceil(next)) + forgotten));
    forget(decay, 0, S.cols());
    A *= decay.factor;
    L = next;
    absorb(work, tail_features, exponents(), log_b(), values());
    absorb(work, features, new_exponents, new_log_b, new_values);
    clear_tail();
  }

  /// The tail is in the sums.
  void clear_tail() {
    tail_size = 0;
    tail_log_decay = 0;
    tail_log_channels.setZero();
  }

  /// An empty tail for so many tokens.
  void set_tail(Index tail) {
    clear_tail();
    tail_keys.setZero(state.d_, tail);
    tail_values.setZero(S.rows(), tail);
    tail_exponents.setZero(tail);
    tail_log_b.setZero(tail);
  }

  /// Nothing, from these coordinates on, and no tail; the memory of the sums stays.
  void clear(const Frame& from) {
    S.setZero();
    Z.setZero();
    A = 0;
    L = no_weight;
    set_tail(0);
    start = frame = from;
    log_decay = 0;
    log_channels.setZero();
    key_product.resize(0, 0);
    tokens = 0;
  }

  /// Adds the sums of the state before this one, moved on to this one's end; both tails are empty.
  ///
  ///     S ← 2^{M - M'} S + 2^{M_before - M'} S_before A,   A the whole transition of this one
  void add(const State<Scalar, F>& earlier, Workspace<Scalar>& work) {
    const StateAccess before{const_cast<State<Scalar, F>&>(earlier)};  // NOLINT: it is read only
    const double forgotten = (log_decay + degree * largest_of(log_channels)) * std::numbers::log2e;
    if (before.L + forgotten != no_weight) {
      const double next = std::max(L, before.L + forgotten);
      const double own = L == no_weight ? 0 : std::exp2(exponent() - std::ceil(next));
      const auto decay = forgetting(work, std::exp2((before.exponent() - std::ceil(next)) + forgotten), log_channels);
      bool is_mixed = false;
      if constexpr (keys_are_features<F>)
        if (is_mixed = key_product.size() != 0; is_mixed)
          add_decayed(product_of(before.S, key_product), product_of(before.Z.transpose(), key_product),
                      static_cast<Scalar>(own), decay);
      if (!is_mixed) add_decayed(before.S, before.Z, static_cast<Scalar>(own), decay);
      A = A * own + before.A * decay.factor;
      L = next;
    }
    start = before.start;
    log_decay += before.log_decay;
    log_channels += before.log_channels;
    if (key_product.size() == 0)
      key_product = before.key_product;
    else if (before.key_product.size() != 0)
      key_product = product_of(before.key_product, key_product);
    tokens += before.tokens;
  }

  /// What every entry of S, Z and A is multiplied by when the decay since the last fold goes into the sums.
  struct Forgetting {
    double factor;                         ///< of all, that of the slowest channel included
    ColumnView<const double> of_channels;  ///< of each, D; empty where the channels agree
  };
  /// S ← factor S Sym(diag(e^{channels - slowest})): a diagonal is lifted to the monomials of its entries, φ(a) / φ(1).
  Forgetting forgetting(Workspace<Scalar>& work, double factor, const Eigen::VectorXd& log_a) const {
    const double slowest = largest_of(log_a);
    if (factor == 0 || is_constant(log_a)) return {factor, {nullptr, 0}};
    auto channels = work.channel_decays(log_a.size(), 2), monomials = work.lifted_decays(S.cols(), 2);
    for (Index c = 0; c < log_a.size(); ++c) channels(c, 0) = std::exp(log_a[c] - slowest), channels(c, 1) = 1;
    state.feature_.embed(channels, monomials);
    for (Index n = 0; n < monomials.rows(); ++n) monomials(n, 0) *= factor / monomials(n, 1);
    return {factor, {monomials.data(), monomials.rows()}};
  }
  /// The same since the last fold.
  Forgetting forgetting(Workspace<Scalar>& work, double factor) const {
    return forgetting(work, factor, tail_log_channels);
  }
  /// Some columns of S and entries of Z forget.
  void forget(const Forgetting& decay, Index first, Index size) {
    if (decay.of_channels.size() == 0) {
      if (decay.factor == 1) return;
      const TwoPartFactor<Scalar> factor(decay.factor);
      factor.multiply(&S(0, first), size * S.rows());
      return factor.multiply(&Z[first], size);
    }
    for (Index i = first; i < first + size; ++i) {
      const TwoPartFactor<Scalar> factor(decay.of_channels[i]);
      factor.multiply(S.data() + i * S.rows(), S.rows());
      factor.multiply(&Z[i], 1);
    }
  }

 private:
  // S ← own S + decay X, and Z likewise.
  void add_decayed(const Matrix<Scalar>& X, const Matrix<Scalar>& z, Scalar own, const Forgetting& decay) {
    if (decay.of_channels.size() == 0) {
      const TwoPartFactor<Scalar> factor(decay.factor);
      factor.add(S.data(), own, X.data(), S.size());
      return factor.add(Z.data(), own, z.data(), Z.size());
    }
    for (Index i = 0; i < S.cols(); ++i) {
      const TwoPartFactor<Scalar> factor(decay.of_channels[i]);
      factor.add(S.data() + i * S.rows(), own, X.data() + i * S.rows(), S.rows());
      factor.add(&Z[i], own, z.data() + i, 1);
    }
  }

  static Matrix<Scalar> product_of(const Matrix<Scalar>& A, const Matrix<Scalar>& B) {
    Matrix<Scalar> AB(A.rows(), B.cols());
    set_product(AB, A, B);
    return AB;
  }

  static double largest_of(const Eigen::VectorXd& log_a) { return log_a.size() > 0 ? log_a.maxCoeff() : 0; }
  static bool is_constant(const Eigen::VectorXd& log_a) {
    return std::all_of(log_a.data(), log_a.data() + log_a.size(), [&](double x) { return x == log_a[0]; });
  }

  // φ of keys with all powers of two in the exponents; returns max_j log2 (b_j ‖φ(k_j)‖) up to 1.
  double embed_keys(MatrixView<Scalar> keys, ColumnView<double> exponents, ColumnView<const double> log_b,
                    MatrixView<Scalar> features) const {
    if constexpr (F::score == Score::embedded) {
      embed_scaled(state.feature_, keys, features, exponents);
    } else {
      for (Index j = 0; j < keys.cols(); ++j) exponents[j] += take_exponent<Scalar>(keys.col(j));
      state.feature_.embed(keys, features);
    }
    return largest_log2_weight<degree>(log_b, exponents);
  }

  void absorb(Workspace<Scalar>& work, MatrixView<const Scalar> features, ColumnView<const double> exponents,
              ColumnView<const double> log_b, MatrixView<const Scalar> values) {
    const Index n = features.cols();
    if (n == 0 || L == no_weight) return;
    auto weights = work.weights(n);
    for (Index j = 0; j < n; ++j) {
      const double log2_weight = (degree * exponents[j] - exponent()) + log_b[j] * std::numbers::log2e;
      weights[j] = power_of_two<Scalar>(log2_weight);
      A += static_cast<double>(weights[j]) * static_cast<double>(features.col(j).norm());
    }
    auto weighted = work.numerators(S.rows(), n);
    scale_columns<Scalar>(values, weights, weighted);
    add_product(sums(), weighted, features.transpose());
    add_product(normalizer(), features, weights);
  }
};

}  // namespace sympow::detail
