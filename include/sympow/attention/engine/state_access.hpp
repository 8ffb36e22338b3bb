// How tokens enter a state: its parts, and what the forms do with them.
#pragma once

#include <sympow/attention/engine/columns.hpp>
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

  /// M, the exponent of S, Z and A.
  [[nodiscard]] double exponent() const { return std::ceil(L); }

  /// 2^M times S or Z.
  template <class Part>
  [[nodiscard]] auto unscaled(const Part& part) const {
    return typename Part::PlainObject(times_power_of_two(part, L == no_weight ? 0 : exponent()));
  }

  /// The largest log decay of a channel since the last fold, which goes into the exponents; the others are taken relative to it.
  [[nodiscard]] double slowest_channel() const { return largest_of(tail_log_channels); }
  [[nodiscard]] bool channels_agree() const { return (tail_log_channels.array() == slowest_channel()).all(); }

  /// Moves the whole state on by a scalar and a channel decay, in logarithms.
  void forget(double log_gamma, const Eigen::VectorXd* log_a) {
    log_decay += log_gamma;
    tail_log_decay += log_gamma;
    tail_log_b.head(tail_size).array() += log_gamma;
    if (log_a == nullptr) return;
    log_channels += *log_a;
    tail_log_channels += *log_a;
    const double slowest = largest_of(*log_a);
    tail_log_b.head(tail_size).array() += degree * slowest;
    if (slowest == no_weight || (log_a->array() == slowest).all()) return;
    for (Index j = 0; j < tail_size; ++j)
      tail_keys.col(j).array() *= (log_a->array() - slowest).exp().template cast<Scalar>();
  }

  /// Queries at the time of the last fold, but for the decay of the slowest channel.
  template <class Queries>
  void pull_to_last_fold(Workspace<Scalar>& work, Queries&& queries) const {
    auto decays = work.channel_decays(queries.rows(), 1);
    decays.col(0) = (tail_log_channels.array() - slowest_channel()).exp();
    for (Index i = 0; i < queries.cols(); ++i) queries.col(i).array() *= decays.col(0).template cast<Scalar>().array();
  }

  /// Multiplies the whole state by the A_i of a segment that mix channels; its features are the keys themselves.
  void mix(const TransitionView<Scalar>& transition, Segment segment) {
    if (key_product.size() == 0) key_product.setIdentity(state.d_, state.d_);
    transition.push(segment, tail_keys.leftCols(tail_size));
    transition.push(segment, Z);
    transition.advance(segment, S);
    transition.advance(segment, key_product);
  }
  /// The same by the product of another state.
  void mix(const Matrix<Scalar>& product) {
    S *= product;
    Z = (product.transpose() * Z).eval();
    key_product = key_product.size() == 0 ? product : (key_product * product).eval();
  }

  /// Puts tokens that fit at the end of the tail.
  template <class Keys, class Exponents, class LogGates, class Values>
  void append(const Keys& keys, const Exponents& exponents, const LogGates& log_b, const Values& values) {
    tail_keys.middleCols(tail_size, keys.cols()) = keys;
    tail_values.middleCols(tail_size, keys.cols()) = values;
    tail_exponents.segment(tail_size, keys.cols()) = exponents;
    tail_log_b.segment(tail_size, keys.cols()) = log_b;
    tail_size += keys.cols();
  }

  /// Folds the tail into the sums.
  void fold(Workspace<Scalar>& work) {
    fold(work, work.keys(state.d_, 0), work.key_exponents(0), work.to_end(0), work.keys(S.rows(), 0));
  }

  /// Folds the tail and further tokens, all in the coordinates of the state's frame, into the sums; empties the tail.
  ///
  ///     L ← max(L + log2 γ, log2 (b_j ‖φ(k_j)‖)),   S ← 2^{(M - M') + log2 γ} S + Σ_j 2^{log2 b_j - M'} v_j φ(k_j)ᵀ
  template <class Keys, class Exponents, class LogGates, class Values>
  void fold(Workspace<Scalar>& work, Keys keys, Exponents exponents, const LogGates& log_b, const Values& values) {
    const Index m = tail_size, n = keys.cols();
    auto tail_features = work.tail_features(S.cols(), m), features = work.features(S.cols(), n);
    const double forgotten = (tail_log_decay + degree * slowest_channel()) * std::numbers::log2e;
    const double folded = embed_keys(tail_keys.leftCols(m), tail_exponents.head(m), tail_log_b.head(m), tail_features) +
                          room_for(largest_entry(tail_values.leftCols(m)));
    const double added = embed_keys(keys, exponents, log_b, features) + room_for(largest_entry(values));
    const double next = std::max({L + forgotten, folded, added});
    const auto decay =
        forgetting(work, L + forgotten == no_weight ? 0 : std::exp2((exponent() - std::ceil(next)) + forgotten));
    forget(decay, 0, S.cols());
    A *= decay.factor;
    L = next;
    absorb(work, tail_features, tail_exponents.head(m), tail_log_b.head(m), tail_values.leftCols(m));
    absorb(work, features, exponents, log_b, values);
    clear_tail();
  }

  /// The tail is in the sums.
  void clear_tail() {
    tail_size = 0;
    tail_log_decay = 0;
    tail_log_channels.setZero();
  }

  /// Adds the sums of the state before this one, which has been moved on to this one's end; both tails are empty.
  void add(const StateAccess& before) {
    const double next = std::max(L, before.L);
    if (before.L != no_weight) {
      const double own = L == no_weight ? 0 : std::exp2(exponent() - std::ceil(next));
      const double other = std::exp2(before.exponent() - std::ceil(next));
      S = (S.template cast<double>() * own + before.S.template cast<double>() * other).template cast<Scalar>();
      Z = (Z.template cast<double>() * own + before.Z.template cast<double>() * other).template cast<Scalar>();
      A = A * own + before.A * other;
      L = next;
    }
    start = before.start;
    log_decay = before.log_decay;
    log_channels = before.log_channels;
    key_product = before.key_product;
    tokens += before.tokens;
  }

  /// What every entry of S, Z and A is multiplied by when the decay since the last fold goes into the sums.
  struct Forgetting {
    double factor;                                  ///< of all, that of the slowest channel included
    Eigen::Map<const Eigen::VectorXd> of_channels;  ///< of each, D; empty where the channels agree
  };
  /// S ← factor S Sym(diag(e^{channels - slowest})): a diagonal is lifted to the monomials of its entries, φ(a) / φ(1).
  Forgetting forgetting(Workspace<Scalar>& work, double factor) const {
    if (factor == 0 || channels_agree()) return {factor, {nullptr, 0}};
    auto channels = work.channel_decays(tail_log_channels.size(), 2), monomials = work.lifted_decays(S.cols(), 2);
    channels.col(0) = (tail_log_channels.array() - slowest_channel()).exp();
    channels.col(1).setOnes();
    state.feature_.embed(channels, monomials);
    monomials.col(0).array() *= factor / monomials.col(1).array();
    return {factor, {monomials.data(), monomials.rows()}};
  }
  /// Some columns of S and entries of Z forget. A γ near 1 rounded to one scalar would drift by itself: it is taken as two.
  void forget(const Forgetting& decay, Index first, Index size) {
    auto values = S.middleCols(first, size);
    auto normalizer = Z.segment(first, size);
    if (decay.of_channels.size() == 0) {
      if (decay.factor == 1) return;
      const auto high = static_cast<Scalar>(decay.factor), low = static_cast<Scalar>(decay.factor - high);
      values = values * high + values * low;
      normalizer = normalizer * high + normalizer * low;
      return;
    }
    for (Index i = 0; i < size; ++i) {
      const double factor = decay.of_channels[first + i];
      const auto high = static_cast<Scalar>(factor), low = static_cast<Scalar>(factor - high);
      for_blocks(values.rows(), [&](Index row, auto count) {
        auto some = values.col(i).segment(row, count);
        some = some * high + some * low;
      });
      normalizer[i] = normalizer[i] * high + normalizer[i] * low;
    }
  }

 private:
  static double largest_of(const Eigen::VectorXd& log_a) { return log_a.size() > 0 ? log_a.maxCoeff() : 0; }

  // φ of keys with all powers of two in the exponents; returns max_j log2 (b_j ‖φ(k_j)‖) up to 1.
  template <class Keys, class Exponents, class LogGates, class Features>
  double embed_keys(Keys&& keys, Exponents&& exponents, const LogGates& log_b, Features& features) const {
    if constexpr (F::score == Score::embedded) {
      embed_scaled(state.feature_, keys, features, exponents);
    } else {
      for (Index j = 0; j < keys.cols(); ++j) exponents[j] += take_exponent(keys.col(j));
      state.feature_.embed(keys, features);
    }
    double largest = no_weight;
    for (Index j = 0; j < keys.cols(); ++j)
      largest = std::max(largest, degree * exponents[j] + log_b[j] * std::numbers::log2e);
    return largest;
  }

  template <class Features, class Exponents, class LogGates, class Values>
  void absorb(Workspace<Scalar>& work, const Features& features, const Exponents& exponents, const LogGates& log_b,
              const Values& values) {
    const Index n = features.cols();
    if (n == 0 || L == no_weight) return;
    auto weights = work.weights(n);
    for (Index j = 0; j < n; ++j) {
      const double log2_weight = (degree * exponents[j] - exponent()) + log_b[j] * std::numbers::log2e;
      weights[j] = power_of_two<Scalar>(log2_weight);
      A += static_cast<double>(weights[j]) * static_cast<double>(features.col(j).norm());
    }
    auto weighted = work.numerators(S.rows(), n);
    weighted = values.array().rowwise() * weights.transpose().array();
    add_product(S, weighted, features.transpose());
    add_product(Z, features, weights);
  }
};

}  // namespace sympow::detail
