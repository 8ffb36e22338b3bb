// One segment through a state: what the recurrent and the chunked form are both made of.
#pragma once

#include <sympow/attention/engine/columns.hpp>
#include <sympow/attention/engine/score_sums.hpp>
#include <sympow/attention/state.hpp>

namespace sympow::detail {

/// One call of a state form, in the terms of an engine: everything is checked.
template <class Scalar, FiniteFeatureMap F>
struct StateCall {
  const TransitionView<Scalar>& transition;
  Rows rows;
  Options options;
  MatrixView<const Scalar> Q, K, V;
  StateAccess<State<Scalar, F>> state;
  MatrixView<Scalar> Y;
  Workspace<Scalar>& work;
  bool reads = true;  ///< the tokens have queries
  Frame* standing =
      nullptr;  ///< where queries turn from while the state stands still; otherwise it takes the tokens' keys

  [[nodiscard]] bool takes() const { return standing == nullptr; }
  /// Of so many tokens, as the cost model sees it.
  [[nodiscard]] HeadShape shape(Index tokens) const {
    return {.T = tokens,
            .d = Q.rows(),
            .e = V.rows(),
            .D = static_cast<double>(state.S.cols()),
            .action = transition.key_action(),
            .is_full = options.mask.is_full,
            .keeps_state = true,
            .from_nothing = state.tokens == 0};
  }
};

/// Reads the outputs of a segment from the folded sums (through φ), the tail and the segment itself (directly), and takes its tokens
/// into the state.
template <class Scalar, FiniteFeatureMap F>
class StateEngine {
  static constexpr bool embedded = F::score == Score::embedded;

 public:
  StateEngine(const F& feature, StateCall<Scalar, F>& call)
      : feature_(feature),
        call_(call),
        state_(call.state),
        work_(call.work),
        sums_(call.work, call.rows, call.options.diagnostics),
        d_(call.Q.rows()),
        D_(call.state.S.cols()) {}

  /// Memory for segments of n tokens, so that it does not depend on them who asks for it.
  void reserve(Index n) {
    const Index longest = state_.tail_keys.cols(), most = std::max(n, longest), e = call_.V.rows();
    if (constexpr Index large = Index{1} << 22;
        D_ <= large / (n + longest + 1)) {  // more than this is asked for when it is needed
      work_.features(D_, n);
      work_.tail_features(D_, longest);
    }
    work_.numerators(e, most);
    work_.weights(most);
    work_.tail_norms(longest);
    work_.query_norms(n);
    work_.key_norms(n);
    work_.row(n, 3);
    work_.channel_decays(d_, 2);
    if (call_.transition.key_action() == KeyAction::scale) work_.lifted_decays(D_, 2);
    sums_.reserve(e, n, most);
  }

  /// Tokens of a segment, together.
  void run(Segment segment) {
    load_gates(segment);
    load(segment);
    run_loaded(segment);
  }

  /// The same after `load_gates` and `load`.
  void run_loaded(Segment segment) {
    if (call_.reads) read(segment);
    if (!call_.takes()) return;
    move_on(segment);
    take(segment);
  }

  /// The papers' literal step: the token enters the sums first, and is read with all others through φ.
  void run_literally(Index token) {
    const Segment segment{token, 1};
    load_gates(segment);
    load(segment);
    if (move_on(segment)) load_queries(segment);  // read after the state has moved on to the token's end
    take(segment);
    if constexpr (embedded)  // taking the key has used the panel
      embed_scaled(feature_, work_.queries(d_, 1), work_.features(D_, 1), work_.query_exponents(1),
                   work_.query_norms(1), diagnose());
    sums_.reset(call_.V.rows(), 1, room(segment));
    add_folded(1, [](Index) { return 0.0; });
    sums_.write(0, token, call_.Y.middleCols(token, 1));
  }

  /// Log decays from the segment's start and to its end.
  void load_gates(Segment segment) {
    const Index n = segment.size;
    log_total_ = accumulate_gates(call_.transition, segment, work_.from_start(n), work_.to_end(n));
  }

  /// Queries at the segment's start, keys at its end, logits between; exponents and norms.
  void load(Segment segment) {
    const Index n = segment.size;
    auto queries = work_.queries(d_, n), keys = work_.keys(d_, n), logits = work_.logits(n, n);
    load_queries(segment);
    load_keys(segment);
    const bool meet = call_.reads && call_.takes();
    call_.transition.transport(frame(), segment, queries, keys, meet ? Batch<Scalar>(logits) : no_logits<Scalar>());
    if constexpr (embedded) {
      auto query_features = work_.features(D_, n), key_features = work_.key_features(D_, n);
      embed_scaled(feature_, queries, query_features, work_.query_exponents(n), work_.query_norms(n), diagnose());
      embed_scaled(feature_, keys, key_features, work_.key_exponents(n), work_.key_norms(n), diagnose());
      if (meet) set_product(logits, key_features.transpose(), query_features);
    }
  }

  /// Where queries and keys turn from.
  Frame& frame() { return call_.takes() ? state_.frame : *call_.standing; }

  /// Everything that the state holds undergoes what a segment does to it; true if it leaves the coordinates of its keys.
  bool move_on(Segment segment) {
    const KeyAction action = call_.transition.key_action();
    state_.forget(log_total_, action == KeyAction::scale ? &log_channels(segment) : nullptr);
    if constexpr (keys_are_features<F>)
      if (action == KeyAction::mix) state_.mix(call_.transition, segment);
    state_.tokens += segment.size;
    return action == KeyAction::scale || action == KeyAction::mix;
  }

  /// Σ log a of a segment by channel.
  const Eigen::VectorXd& log_channels(Segment segment) {
    if (segment.begin != channels_of_.begin || segment.size != channels_of_.size)
      call_.transition.log_channel_totals(segment, work_.channels);
    channels_of_ = segment;
    return work_.channels;
  }

  /// That of the values that a segment meets, see `room_for`.
  [[nodiscard]] double room(Segment segment) const {
    const Scalar own = call_.takes() ? largest_entry(call_.V.middleCols(segment.begin, segment.size)) : Scalar(0);
    return room_for(std::max(own, largest_entry(state_.values())));
  }
  /// Σ log γ of the segment whose gates are loaded.
  [[nodiscard]] double log_total() const { return log_total_; }

 private:
  void read(Segment segment) {
    const Index n = segment.size;
    sums_.reset(call_.V.rows(), n, room(segment));
    if (call_.takes()) {
      auto logits = work_.logits(n, n);
      sums_.add_causal(call_.transition, segment, logits, call_.V.middleCols(segment.begin, n));
    }
    add_tail(n);
    const double slowest = state_.slowest_channel(), forgotten = state_.tail_log_decay + degree_of<F> * slowest;
    if (slowest > no_weight && !state_.channels_agree()) state_.pull_to_last_fold(work_, work_.queries(d_, n));
    add_folded(n, [&](Index i) { return forgotten + work_.from_start(n)[i]; });
    sums_.write(0, segment.begin, call_.Y.middleCols(segment.begin, n));
  }

  void load_queries(Segment segment) {
    const Index n = segment.size;
    auto queries = work_.queries(d_, n);
    if (call_.reads)
      detail::load_queries<F, Scalar>(call_.Q.middleCols(segment.begin, n), queries, work_.query_exponents(n),
                                      work_.query_norms(n), call_.options.scale);
    else
      set_nothing(queries, work_.query_exponents(n), work_.query_norms(n));
  }

  void add_tail(Index n) {
    const Index m = state_.tail_size;
    if (m == 0) return;
    auto logits = work_.logits(m, n);
    auto norms = work_.tail_norms(m);
    if constexpr (embedded) {
      auto tail_features = work_.tail_features(D_, m);
      embed_scaled(feature_, state_.keys(), tail_features, state_.exponents(), norms, diagnose());
      set_product(logits, tail_features.transpose(), work_.features(D_, n));
    } else {
      if (diagnose()) set_norms(state_.keys(), norms);
      set_product(logits, state_.keys().transpose(), work_.queries(d_, n));
    }
    work_.factors.template set<F>(state_.log_b(), state_.exponents());
    sums_.add_earlier(work_.factors, norms, logits, state_.values(), [&](Index i) { return work_.from_start(n)[i]; });
  }

  // The sums through φ, for queries in the coordinates and at the time of the sums but for log_gate(i).
  template <class LogGate>
  void add_folded(Index n, const LogGate& log_gate) {
    if (state_.L == no_weight) return;
    auto features = work_.features(D_, n);
    if constexpr (!embedded) feature_.embed(work_.queries(d_, n), features);
    auto numerators = work_.numerators(call_.V.rows(), n), columns = work_.row(n, 3);
    auto denominators = columns.col(0), noise = columns.col(1), absolute = columns.col(2);
    const auto total = static_cast<Scalar>(state_.A);
    set_product(numerators, state_.sums(), features);
    set_product(denominators, features.transpose(), state_.normalizer());
    set_norms(features, noise);
    for (Index i = 0; i < n; ++i) {
      noise[i] *= total;
      // of the queries as they came: channels may have shortened them since
      absolute[i] = embedded || !diagnose() ? noise[i] : power<degree_of<F>>(work_.query_norms(n)[i]) * total;
      if constexpr (has_nonnegative_entries<F>) noise[i] = 0;  // nothing cancels
    }
    sums_.add_read(numerators, denominators, noise, absolute, state_.exponent(), log_gate);
  }

  void load_keys(Segment segment) {
    const Index n = segment.size;
    auto keys = work_.keys(d_, n);
    if (call_.takes())
      detail::load_keys<F, Scalar>(call_.K.middleCols(segment.begin, n), keys, work_.key_exponents(n),
                                   work_.key_norms(n));
    else
      set_nothing(keys, work_.key_exponents(n), work_.key_norms(n));
  }

  static void set_nothing(MatrixView<Scalar> x, ColumnView<double> exponents, ColumnView<Scalar> norms) {
    x.setZero();
    exponents.setConstant(no_weight);
    norms.setZero();
  }

  // The segment's tokens into the tail, or with it into the sums if it cannot hold them.
  void take(Segment segment) {
    const Index n = segment.size;
    auto keys = work_.keys(d_, n);
    const auto values = call_.V.middleCols(segment.begin, n);
    if (state_.tail_size + n <= state_.tail_keys.cols())
      state_.append(keys, work_.key_exponents(n), work_.to_end(n), values);
    else
      state_.fold(work_, keys, work_.key_exponents(n), work_.to_end(n), values);
  }

  [[nodiscard]] bool diagnose() const { return call_.options.diagnostics != nullptr; }

  const F& feature_;
  StateCall<Scalar, F>& call_;
  StateAccess<State<Scalar, F>>& state_;
  Workspace<Scalar>& work_;
  ScoreSums<Scalar, F> sums_;
  Index d_, D_;
  double log_total_ = 0;
  Segment channels_of_;  // whose totals the workspace has
};

}  // namespace sympow::detail
