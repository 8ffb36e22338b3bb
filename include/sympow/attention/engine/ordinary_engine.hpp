// Segments at the speed of their products: the state forms where nothing is near the ends of the scalar type.
#pragma once

#include <sympow/attention/engine/feature_panels.hpp>
#include <sympow/attention/engine/ordinary_rows.hpp>
#include <sympow/attention/engine/state_engine.hpp>

namespace sympow::detail {

/// Takes the tokens of a segment through a state all at once. With the weights w_j = b_jn ‖k_j‖^P 2^-M of the keys at the segment's end,
/// those of the tail included, a = b_0n 2^{M_0 - M}, and queries and keys of length about 1,
///
///     rows i:   a S φ(q_i) + Σ_{j ≤ i} s_ij^P w_j v_j     (and the same with v = 1)
///     S   ←     a S + Σ_j w_j v_j φ(k_j)ᵀ                 unless the tail can hold the tokens
///
/// up to the factor b_0i / b_0n of row i, by panels of φ that never leave the cache. Ordinary is a segment with b_0n not below
/// `least_log_decay`, of which every row sees a weight of at least 2^-40; one that is not is cut in two, or left to `StateEngine`.
template <class Scalar, FiniteFeatureMap F>
class OrdinaryEngine {
  static constexpr int degree = degree_of<F>;
  static constexpr Index smallest = 16;  // tokens that are not cut any more

 public:
  OrdinaryEngine(const F& feature, StateCall<Scalar, F>& call)
      : feature_(feature),
        call_(call),
        state_(call.state),
        work_(call.work),
        engine_(feature, call),
        rows_(call.work, call.rows, call.options.diagnostics),
        d_(call.Q.rows()),
        e_(call.V.rows()),
        is_plain_(F::score == Score::power && call.rows != Rows::signed_means),
        keeps_lengths_(call.transition.key_action() == KeyAction::none ||
                       call.transition.key_action() == KeyAction::turn) {}

  void run(Segment segment) {
    reserve(segment.size);
    if (!run_whole(segment)) cut(segment);
  }

  /// Memory for n tokens and the longest tail, so that no later segment asks for more.
  void reserve(Index n) {
    engine_.reserve(std::min(n, smallest));
    const Index longest = state_.tail_keys.cols(), keys = longest + n;
    rows_.reserve(e_, n);
    work_.logits(longest, n);
    work_.gates(std::max(longest, n));
    work_.weights(n);
    work_.query_norms(n);
    work_.key_norms(n);
    work_.noise(n);
    work_.absolute_weights(n);
    work_.tail_weights(longest);
    work_.fold_weights(keys);
    work_.fold_norms(keys);
    work_.weighted(e_, keys);
    reserve_feature_panels<F>(work_, d_, n, keys);
  }

  /// Folds a tail that is ordinary beside L into the sums, under a decay that no channel has a part of.
  void fold_tail(double L) {
    L_ = L;
    a_ = state_.L == no_weight ? 0 : 1;
    fold({0, 0}, false);
  }

  /// Segments of `size` tokens, one after the other.
  void run_all(Index tokens, Index size) {
    for (Index begin = 0; begin < tokens; begin += size) run({begin, std::min(size, tokens - begin)});
  }

  /// The papers' literal step, see `StateEngine`.
  void run_literally(Index token) { engine_.run_literally(token); }

 private:
  // False, and nothing has happened, if the segment is not ordinary.
  bool run_whole(Segment segment) {
    if (!is_plain_ || engine_.room(segment) != 0) return false;
    engine_.load_gates(segment);
    if (log_decay_of(segment) < least_log_decay<Scalar>) return false;
    Frame& frame = engine_.frame();
    work_.frame.angles = frame.angles;
    engine_.load(segment);
    if (weigh(segment.size)) {
      run_loaded(segment);
      return true;
    }
    frame.angles = work_.frame.angles;
    return false;
  }

  // By halves, and in the end by rows that each have a scale of their own.
  void cut(Segment segment) {
    if (segment.size <= smallest) return engine_.run(segment);
    const Index half = segment.size / 2;
    run({segment.begin, half});
    run({segment.begin + half, segment.size - half});
  }

  // The decay of what is forgotten least.
  double log_decay_of(Segment segment) {
    slowest_ = 0;
    if (call_.transition.key_action() == KeyAction::scale) {
      const Eigen::VectorXd& log_a = engine_.log_channels(segment);
      double all = no_weight;
      for (Index c = 0; c < d_; ++c) all = std::max(all, state_.tail_log_channels[c] + log_a[c]);
      slowest_ = all > no_weight ? degree * (all - state_.slowest_channel()) : no_weight;
    }
    return engine_.log_total() + slowest_;
  }

  // The w_j of the segment's n keys, a, and the exponent of a state that holds them all; false if they are not ordinary.
  bool weigh(Index n) {
    const Index m = state_.tail_size;
    const double total = engine_.log_total();
    const bool folded = state_.L != no_weight;
    if (!call_.takes() && !folded) return false;
    const double forgotten = state_.tail_log_decay + degree * state_.slowest_channel() + total;
    const auto exponents = work_.key_exponents(n), to_end = work_.to_end(n);
    const auto tail_exponents = state_.exponents(), tail_log_b = state_.log_b();
    const double of_state = state_.L + (forgotten + slowest_) * std::numbers::log2e;
    const double of_tail = largest_log2_weight<degree>(tail_log_b, tail_exponents);
    double seen = std::max(of_state, of_tail + std::numbers::log2e * total);  // by all rows
    L_ = seen;
    if (call_.takes()) L_ = std::max(L_, largest_log2_weight<degree>(to_end, exponents));
    if (L_ == no_weight) return false;
    for (Index i = 0; i < n && call_.reads && call_.takes(); ++i) {
      seen = std::max(seen, degree * exponents[i] + std::numbers::log2e * to_end[i]);
      if (seen != no_weight && !(seen - std::ceil(L_) >= least_weight)) return false;
    }
    set_weights(work_.weights(n), to_end, 0, exponents);
    set_weights(work_.tail_weights(m), tail_log_b, total, tail_exponents);
    a_ = folded ? weight_of(forgotten, state_.exponent() - std::ceil(L_)) : 0;
    return folded || !call_.reads || scores_are_ordinary(n);
  }

  // weights_j = b_j e^since ‖k_j‖^P 2^-M up to the length of φ, from log b and the exponents of the keys.
  void set_weights(ColumnView<Scalar> weights, ColumnView<const double> log_b, double since,
                   ColumnView<const double> exponents) const {
    auto gates = work_.gates(weights.size());
    for (Index j = 0; j < weights.size(); ++j) gates[j] = log_b[j] + since;
    set_exponential(gates, gates);
    for (Index j = 0; j < weights.size(); ++j)
      weights[j] = static_cast<Scalar>(gates[j] * nearest_power_of_two<double>(degree * exponents[j] - std::ceil(L_)));
  }

  // Whether no row of an empty state is so small that its scores leave the type.
  bool scores_are_ordinary(Index n) {
    const auto logits = work_.logits(n, n);
    for (Index i = 0; i < n; ++i)
      if (!(degree * std::log2(largest_entry(logits.col(i).head(i + 1))) >= least_weight)) return false;
    return true;
  }

  void run_loaded(Segment segment) {
    const Index n = segment.size;
    if (call_.reads) add_scores(segment);
    const bool folds = call_.takes() && state_.tail_size + n > state_.tail_keys.cols();
    const bool reads_on_the_way = folds && call_.transition.key_action() != KeyAction::mix;
    if (call_.reads && !reads_on_the_way && a_ != 0)
      for_panels(n, 0, [&](Index first, const auto& features, const auto&) { read(first, features); });
    if (call_.takes()) {
      engine_.move_on(segment);
      if (folds)
        fold(segment, call_.reads && reads_on_the_way);
      else
        state_.append(work_.keys(d_, n), work_.key_exponents(n), work_.to_end(n), call_.V.middleCols(segment.begin, n));
    }
    if (!call_.reads) return;
    rows_.finish(static_cast<Scalar>(a_));
    write(segment);
  }

  // Scores of the segment's own keys and of those in the tail.
  void add_scores(Segment segment) {
    const Index n = segment.size, m = state_.tail_size;
    auto queries = work_.queries(d_, n);
    rows_.reset(e_, n);
    if (call_.takes()) {
      auto logits = work_.logits(n, n);
      rows_.add_scores(logits, work_.weights(n), call_.V.middleCols(segment.begin, n), true);
    }
    if (m > 0) {
      auto tail_logits = work_.logits(m, n);
      set_product(tail_logits, state_.keys().transpose(), queries);
      rows_.add_scores(tail_logits, work_.tail_weights(m), state_.values(), false);
    }
    rows_.settle(1);
    if (!state_.channels_agree()) state_.pull_to_last_fold(work_, queries);
    weigh_absolutely(segment);
  }

  // What the rows are compared with: ‖φ(q_i)‖ a A, the weight of what they read through φ, and for diagnostics with all other keys.
  void weigh_absolutely(Segment segment) {
    const Index n = segment.size, m = state_.tail_size;
    auto noise = work_.noise(n), absolute = work_.absolute_weights(n);
    if (rows_.normalized()) {
      set_lengths(noise, work_.queries(d_, n), work_.query_norms(n));
      for (Index i = 0; i < n; ++i) noise[i] = power<degree>(noise[i]) * (a_ * state_.A);
    }
    if (call_.options.diagnostics == nullptr) return;
    auto norms = work_.fold_norms(m);
    set_norms<Scalar>(state_.keys(), norms);
    double sum = a_ * state_.A + absolute_weight<degree, Scalar>(work_.tail_weights(m), norms);
    for (Index i = 0; i < n; ++i) {
      sum += absolute_weight<degree, Scalar>(work_.weights(n).segment(i, 1), work_.key_norms(n).segment(i, 1));
      absolute[i] = sum * power<degree>(static_cast<double>(work_.query_norms(n)[i]));
    }
  }

  // The tail and the segment's keys into the sums, which are read on the way unless that is done.
  void fold(Segment segment, bool reads) {
    const Index n = segment.size, m = state_.tail_size, queries = reads ? n : 0;
    auto weights = work_.fold_weights(m + n);
    weights.tail(n) = work_.weights(n);
    set_weights(weights.head(m), state_.log_b(), 0, state_.exponents());
    auto weighted = work_.weighted(e_, m + n);
    scale_columns<Scalar>(state_.values(), weights.head(m), weighted.leftCols(m));
    scale_columns<Scalar>(call_.V.middleCols(segment.begin, n), weights.tail(n), weighted.rightCols(n));
    const double forgotten = state_.tail_log_decay + degree * state_.slowest_channel();
    const auto decay = state_.forgetting(work_, a_ == 0 ? 0 : weight_of(forgotten, state_.exponent() - std::ceil(L_)));
    for_panels(queries, m + n, [&](Index first, const auto& features, const auto& keys) {
      if (reads) read(first, features);
      state_.forget(decay, first, keys.cols());
      add_product(state_.sums().middleCols(first, keys.cols()), weighted, keys);
      add_product(state_.normalizer().segment(first, keys.cols()), keys.transpose(), weights);
    });
    auto norms = work_.fold_norms(m + n);
    set_norms<Scalar>(state_.keys(), norms.head(m));
    set_lengths(norms.tail(n), work_.keys(d_, n), work_.key_norms(n));
    state_.A = state_.A * decay.factor + absolute_weight<degree, Scalar>(weights, norms);
    state_.L = L_;
    state_.clear_tail();
  }

  // Some entries of φ of the queries against the sums.
  template <class Queries>
  void read(Index first, const Queries& queries) {
    if (a_ == 0) return;
    const Index entries = queries.cols();
    rows_.add_read(state_.sums().middleCols(first, entries), state_.normalizer().segment(first, entries), queries);
    rows_.settle_some(static_cast<Scalar>(a_));
  }

  // Those of columns whose lengths were `loaded` before they were transported.
  template <class Real>
  void set_lengths(ColumnView<Real> lengths, MatrixView<const Scalar> columns, ColumnView<const Scalar> loaded) const {
    for (Index t = 0; t < columns.cols(); ++t)
      lengths[t] = static_cast<Real>(keeps_lengths_ ? loaded[t]
                                                    : std::sqrt(squared_norm(columns.col(t).data(), columns.rows())));
  }

  // See `for_feature_panels`, for the queries and as many keys, those of the tail first.
  template <class Visit>
  void for_panels(Index queries, Index keys, const Visit& visit) {
    const Index own = keys > 0 ? keys - state_.tail_size : 0;
    for_feature_panels(feature_, work_, work_.queries(d_, queries), state_.keys().leftCols(keys - own),
                       work_.keys(d_, own), visit);
  }

  void write(Segment segment) {
    const Index n = segment.size;
    const auto from_start = work_.from_start(n), exponents = work_.query_exponents(n), noise = work_.noise(n),
               absolute = work_.absolute_weights(n);
    auto gates = work_.gates(n);
    for (Index i = 0; i < n; ++i) gates[i] = from_start[i] - engine_.log_total();
    set_exponential(gates, gates);
    for (Index i = 0; i < n; ++i) {
      for (const auto* x : {&call_.Q, &call_.K, &call_.V}) prefetch_column(*x, segment.end() + i);
      prefetch_column<true>(call_.Y, segment.begin + i + 8);
      rows_.write(segment.begin + i, i, noise[i], absolute[i], from_start[i] - engine_.log_total(), gates[i],
                  degree * exponents[i] + std::ceil(L_), call_.Y.col(segment.begin + i));
    }
  }

  const F& feature_;
  StateCall<Scalar, F>& call_;
  StateAccess<State<Scalar, F>>& state_;
  Workspace<Scalar>& work_;
  StateEngine<Scalar, F> engine_;
  OrdinaryRows<Scalar, degree> rows_;
  Index d_, e_;
  bool is_plain_, keeps_lengths_;
  double a_ = 0, L_ = 0, slowest_ = 0;
};

}  // namespace sympow::detail
