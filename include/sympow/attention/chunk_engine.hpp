// Chunks at the speed of their products: the chunked form where nothing is near the ends of the scalar type.
#pragma once

#include <sympow/attention/ordinary_rows.hpp>
#include <sympow/attention/state_engine.hpp>

namespace sympow::detail {

/// Takes the tokens of a chunk through a state all at once. With the weights w_j = b_jn ‖k_j‖^P 2^-M of the keys at the chunk's end,
/// a = b_0n 2^{M_0 - M} and queries and keys of length about 1,
///
///     rows i:   a S φ(q_i) + Σ_{j ≤ i} s_ij^P w_j v_j     (and the same with v = 1)
///     S   ←     a S + Σ_j w_j v_j φ(k_j)ᵀ
///
/// up to the factor b_0i / b_0n of row i, by panels of φ that never leave the cache. Ordinary is a chunk of which no w_j and no b_0i
/// is below 2^-40; what is not, is cut in two, and in the end left to `StateEngine`.
template <class Scalar, FiniteFeatureMap F>
class ChunkEngine {
  static constexpr int degree = degree_of<F>;
  static constexpr Index smallest = 16;      // tokens that are not cut any more
  static constexpr Index panel_width = 128;  // entries of φ at a time

 public:
  ChunkEngine(const F& feature, StateCall<Scalar, F>& call)
      : feature_(feature),
        call_(call),
        state_(call.state),
        work_(call.work),
        engine_(feature, call),
        rows_(call.work, call.rows),
        is_plain_(F::score == Score::power && call.options.diagnostics == nullptr && call.rows != Rows::signed_means &&
                  engine_.room() == 0) {}

  void run(Segment segment) {
    const bool no_tail = state_.tail_size == 0 && state_.tail_log_decay == 0 && state_.tail_log_channels.isZero(0);
    if (!is_plain_ || !no_tail) return engine_.run(segment);
    if (log_decay_of(segment) * std::numbers::log2e < least_weight) {
      if (segment.size <= smallest) return engine_.run(segment);
      const Index half = segment.size / 2;
      run({segment.begin, half});
      run({segment.begin + half, segment.size - half});
      return;
    }
    engine_.load(segment);
    if (!weigh(segment))
      engine_.run_loaded(segment);
    else
      run_loaded(segment);
  }

 private:
  // The largest decay of anything in the segment.
  double log_decay_of(Segment segment) {
    double sum = 0;
    for (Index i = segment.begin; i < segment.end(); ++i) sum += call_.transition.log_decay(i);
    if (call_.transition.key_action() == KeyAction::scale) {
      call_.transition.log_channel_totals(segment, work_.channels);
      sum += degree * work_.channels.maxCoeff();
    }
    return sum;
  }

  // The w_j, a and the new exponent; false if they are not ordinary.
  bool weigh(Segment segment) {
    const Index n = segment.size;
    const auto exponents = work_.key_exponents(n), to_end = work_.to_end(n);
    const double total = engine_.log_total() * std::numbers::log2e;
    const double slowest = call_.transition.key_action() == KeyAction::scale ? work_.channels.maxCoeff() : 0;
    auto logarithms = work_.shift(n);
    logarithms = degree * exponents + to_end * std::numbers::log2e;
    L_ = std::max(state_.L + total + degree * slowest * std::numbers::log2e, logarithms.maxCoeff());
    const double M = std::ceil(L_);
    for (Index j = 0; j < n; ++j)
      if (logarithms[j] != no_weight && !(logarithms[j] - M >= least_weight)) return false;
    auto weights = work_.weights(n);
    weights = ((logarithms.array() - M) * std::numbers::ln2).exp().template cast<Scalar>();
    a_ = state_.L == no_weight ? 0 : std::exp2((state_.exponent() - M) + total);
    return L_ != no_weight && (state_.L != no_weight || scores_are_ordinary(n));
  }

  // Whether no row of an empty state is so small that its scores leave the type.
  bool scores_are_ordinary(Index n) {
    const auto logits = work_.logits(n, n);
    for (Index i = 0; i < n; ++i)
      if (!(degree * std::log2(logits.col(i).head(i + 1).cwiseAbs().maxCoeff()) >= least_weight)) return false;
    return true;
  }

  void run_loaded(Segment segment) {
    const Index n = segment.size, e = call_.V.rows(), d = call_.Q.rows();
    const auto weights = work_.weights(n);
    const auto values = call_.V.middleCols(segment.begin, n);
    auto weighted = work_.weighted(e, n);
    for (Index j = 0; j < n; ++j) weighted.col(j) = values.col(j) * weights[j];
    auto logits = work_.logits(n, n);
    rows_.reset(e, n);
    rows_.add_scores(logits, weights, values, true);
    rows_.settle(1);

    const double noise = a_ * state_.A;
    const bool in_between = call_.transition.key_action() == KeyAction::mix;
    if (in_between) for_panels(n, [&](Index first, const auto& queries, const auto&) { read(first, queries); });
    if (rows_.normalized()) work_.query_norms(n) = work_.queries(d, n).colwise().norm();
    work_.key_norms(n) = work_.keys(d, n).colwise().norm();
    engine_.move_on(segment);
    const auto decay = state_.forgetting(work_, a_ * std::exp(degree * state_.slowest_channel()));
    for_panels(n, [&](Index first, const auto& queries, const auto& keys) {
      if (!in_between) read(first, queries);
      state_.forget(decay, first, keys.cols());
      add_product(state_.S.middleCols(first, keys.cols()), weighted, keys);
      add_product(state_.Z.segment(first, keys.cols()), keys.transpose(), weights);
    });
    rows_.settle(static_cast<Scalar>(a_));
    const double added = weights.dot(entries_to_the<degree>(work_.key_norms(n).array()).matrix());
    state_.A = state_.A * decay.factor + added;
    state_.L = L_;
    state_.clear_tail();
    write(segment, noise);
  }

  // Some entries of φ of the queries against the sums of earlier chunks.
  template <class Queries>
  void read(Index first, const Queries& queries) {
    if (a_ == 0) return;
    const Index entries = queries.cols();
    rows_.add_read(state_.S.middleCols(first, entries), state_.Z.segment(first, entries), queries);
    rows_.settle_some(static_cast<Scalar>(a_));
  }

  // visit(first, Φ of the queries, Φ of the keys), n × entries each.
  template <class Visit>
  void for_panels(Index n, const Visit& visit) {
    const Index d = call_.Q.rows();
    const auto queries = work_.queries(d, n), keys = work_.keys(d, n);
    if constexpr (degree == 1) {
      visit(0, queries.transpose(), keys.transpose());
    } else {
      auto tokens = work_.tokens(2 * n, d), panel = work_.panel(2 * n, panel_width),
           prefixes = work_.prefixes(2 * n, degree - 1);
      tokens.topRows(n) = queries.transpose();
      tokens.bottomRows(n) = keys.transpose();
      feature_.embed_by_panels(tokens, panel, prefixes, [&](Index first, const auto& features) {
        visit(first, features.topRows(n), features.bottomRows(n));
      });
    }
  }

  void write(Segment segment, double noise) {
    const Index n = segment.size;
    const auto from_start = work_.from_start(n), exponents = work_.query_exponents(n);
    const auto norms = work_.query_norms(n);
    const double log2_unit = std::ceil(L_) - engine_.log_total() * std::numbers::log2e;
    for (Index i = 0; i < n; ++i)
      rows_.write(i, rows_.normalized() ? noise * integer_power(static_cast<double>(norms[i]), degree) : 0,
                  degree * exponents[i] + from_start[i] * std::numbers::log2e + log2_unit,
                  call_.Y.col(segment.begin + i));
  }

  const F& feature_;
  StateCall<Scalar, F>& call_;
  StateAccess<State<Scalar, F>>& state_;
  Workspace<Scalar>& work_;
  StateEngine<Scalar, F> engine_;
  OrdinaryRows<Scalar, degree> rows_;
  bool is_plain_;
  double a_ = 0, L_ = 0;
};

}  // namespace sympow::detail
