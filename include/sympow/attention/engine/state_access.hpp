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
  void add(const StateAccess& before, Workspace<Scalar>& work) {
    const double forgotten = (log_decay + degree * largest_of(log_channels)) * std::numbers::log2e;
    if (before.L + forgotten != no_weight) {
      const double next = std::max(L, before.L + forgotten);
      const double own = L == no_weight ? 0 : std::exp2(exponent() - std::ceil(next));
      const auto decay = forgetting(work, std::exp2((before.exponent() - std::ceil(next)) + forgotten), log_channels);
      bool is_mixed = false;
      if constexpr (keys_are_features<F>)
        if (is_mixed = key_product.size() != 0; is_mixed)
          add_decayed((before.S * key_product).eval(), (key_product.transpose() * before.Z).eval(),
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
      key_product = (before.key_product * key_product).eval();
    tokens += before.tokens;
  }

  /// What every entry of S, Z and A is multiplied by when the decay since the last fold goes into the sums.
  struct Forgetting {
    double factor;                                  ///< of all, that of the slowest channel included
    Eigen::Map<const Eigen::VectorXd> of_channels;  ///< of each, D; empty where the channels agree
  };
  /// S ← factor S Sym(diag(e^{channels - slowest})): a diagonal is lifted to the monomials of its entries, φ(a) / φ(1).
  Forgetting forgetting(Workspace<Scalar>& work, double factor, const Eigen::VectorXd& log_a) const {
    const double slowest = largest_of(log_a);
    if (factor == 0 || (log_a.array() == slowest).all()) return {factor, {nullptr, 0}};
    auto channels = work.channel_decays(log_a.size(), 2), monomials = work.lifted_decays(S.cols(), 2);
    channels.col(0) = (log_a.array() - slowest).exp();
    channels.col(1).setOnes();
    state.feature_.embed(channels, monomials);
    monomials.col(0).array() *= factor / monomials.col(1).array();
    return {factor, {monomials.data(), monomials.rows()}};
  }
  /// The same since the last fold.
  Forgetting forgetting(Workspace<Scalar>& work, double factor) const {
    return forgetting(work, factor, tail_log_channels);
  }
  /// Some columns of S and entries of Z forget.
  void forget(const Forgetting& decay, Index first, Index size) {
    auto values = S.middleCols(first, size);
    auto normalizer = Z.segment(first, size);
    if (decay.of_channels.size() == 0) {
      if (decay.factor == 1) return;
      const Halves factor(decay.factor);
      values = values * factor.high + values * factor.low;
      normalizer = normalizer * factor.high + normalizer * factor.low;
      return;
    }
    for (Index i = 0; i < size; ++i) {
      const Halves factor(decay.of_channels[first + i]);
      for_blocks(values.rows(), [&](Index row, auto count) {
        auto some = values.col(i).segment(row, count);
        some = some * factor.high + some * factor.low;
      });
      normalizer[i] = normalizer[i] * factor.high + normalizer[i] * factor.low;
    }
  }

 private:
  // A γ near 1 rounded to one scalar would drift by itself: it is taken as two.
  struct Halves {
    explicit Halves(double factor) : high(static_cast<Scalar>(factor)), low(static_cast<Scalar>(factor - high)) {}
    Scalar high, low;
  };

  // S ← own S + decay X, and Z likewise.
  void add_decayed(const Matrix<Scalar>& X, const Vector<Scalar>& z, Scalar own, const Forgetting& decay) {
    const auto add = [own](auto&& part, const auto& other, const Halves& factor) {
      part = part * own + other * factor.high + other * factor.low;
    };
    if (decay.of_channels.size() == 0) {
      add(S, X, Halves(decay.factor));
      add(Z, z, Halves(decay.factor));
      return;
    }
    for (Index i = 0; i < S.cols(); ++i) {
      add(S.col(i), X.col(i), Halves(decay.of_channels[i]));
      add(Z.segment(i, 1), z.segment(i, 1), Halves(decay.of_channels[i]));
    }
  }

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
