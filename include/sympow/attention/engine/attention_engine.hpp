// Queries against keys, block by block: the engine of the attention form.
#pragma once

#include <sympow/attention/engine/columns.hpp>
#include <sympow/attention/engine/ordinary_rows.hpp>
#include <sympow/attention/engine/score_sums.hpp>

namespace sympow::detail {

/// One call of the attention form, in the terms of its engine: everything is checked.
template <class Scalar>
struct AttentionCall {
  const TransitionView<Scalar>& transition;
  Rows rows;
  Options options;
  MatrixView<const Scalar> Q, K, V;
  MatrixView<Scalar> Y;
  Workspace<Scalar>& work;
};

/// Attention by blocks of queries against blocks of keys. A block of queries starts with its own keys and walks back, pulled through
/// the blocks between. Where the scores are powers and nothing is near the ends of the type, the rows of a block have one scale;
/// otherwise each has its own.
template <class Scalar, FeatureMap F>
class AttentionEngine {
  static constexpr Index block = 96;
  static constexpr bool embedded = F::score == Score::embedded;
  static constexpr int degree = degree_of<F>;

 public:
  AttentionEngine(const F& feature, AttentionCall<Scalar>& call)
      : feature_(feature),
        call_(call),
        work_(call.work),
        mask_(call.options.mask),
        d_(call.K.rows()),
        D_(embedded_dimension()),
        T_(tokens_of(call.Q, call.K, mask_)),
        room_(room_for(largest_entry(call.V))),
        sums_(work_, call.rows, call.options.diagnostics),
        rows_(work_, call.rows, call.options.diagnostics),
        is_plain_(F::score == Score::power && call.rows != Rows::signed_means && room_ == 0) {}

  void run() {
    auto keys = work_.keys(d_, T_);
    const Index present = call_.K.cols(), missing = T_ - present;
    auto exponents = work_.all_key_exponents(T_);
    auto norms = work_.all_key_norms(T_);
    keys.rightCols(missing).setZero(), norms.tail(missing).setZero();
    exponents.tail(missing).setConstant(no_weight);
    const double of_keys = present > 0 ? load_keys<F, Scalar>(call_.K, keys.leftCols(present), exponents.head(present),
                                                              norms.head(present))
                                       : 0;
    work_.blocks.resize(static_cast<std::size_t>((T_ + block - 1) / block));
    const Index most = std::min(block, T_);
    sums_.reserve(call_.V.rows(), most, most);
    rows_.reserve(call_.V.rows(), most);
    work_.logits(most, most);
    work_.own_weights(most), work_.weights(most);
    call_.Y.leftCols(std::clamp<Index>(-mask_.offset, 0, call_.Y.cols())).setZero();  // before token 0
    if (diagnose()) call_.options.diagnostics->leftCols(std::clamp<Index>(-mask_.offset, 0, call_.Y.cols())).setZero();

    Frame& frame = work_.frame;  // of an earlier call; angles of 0 are none
    const auto begin_anew = [&] { frame.angles.setZero(2 * frame.angles.size() == d_ ? frame.angles.size() : 0); };
    begin_anew();
    for (Index begin = 0; begin < T_; begin += block) {
      const Segment own = segment_at(begin);
      load(own, frame, of_keys, true);
      if (!mask_.is_full) run_rows(own);
    }
    if (!mask_.is_full) return;
    begin_anew();
    for (Index begin = 0; begin < T_; begin += block) {
      const Segment own = segment_at(begin);
      load(own, frame, of_keys, false);
      run_rows(own);
    }
  }

 private:
  [[nodiscard]] Segment segment_at(Index begin) const { return {begin, std::min(block, T_ - begin)}; }
  // The tokens of a segment that have keys, and those that have queries.
  [[nodiscard]] Segment keys_of(Segment own) const {
    return {own.begin, std::clamp<Index>(call_.K.cols() - own.begin, 0, own.size)};
  }
  [[nodiscard]] Segment queries_of(Segment own) const {
    const Index begin = std::clamp(mask_.offset, own.begin, own.end());
    return {begin, std::clamp(mask_.offset + call_.Q.cols(), begin, own.end()) - begin};
  }
  KeyBlock<Scalar>& block_at(Index begin) { return work_.blocks[static_cast<std::size_t>(begin / block)]; }

  void run_rows(Segment own) {
    if (queries_of(own).size > 0 && !run_ordinary(own)) run_general(own);
  }

  // The block's queries at its start, its keys at its end unless that is done, and the logits between.
  void load(Segment own, Frame& frame, double of_keys, bool takes_keys) {
    const Index n = own.size;
    const Segment present = queries_of(own);
    auto queries = work_.queries(d_, n), query_features = work_.features(D_, n), logits = work_.own_logits(n, n);
    queries.setZero();
    if (present.size > 0)
      queries.middleCols(present.begin - own.begin, present.size) =
          call_.Q.middleCols(present.begin - mask_.offset, present.size);
    load_queries<F, Scalar>(queries, queries, work_.query_exponents(n), work_.query_norms(n), call_.options.scale,
                            of_keys);
    auto unused = work_.own_queries(d_, n);
    unused.setZero();
    auto keys = work_.keys(d_, T_).middleCols(own.begin, n);
    call_.transition.transport(frame, own, queries, takes_keys ? Batch<Scalar>(keys) : Batch<Scalar>(unused),
                               mask_.is_full ? no_logits<Scalar>() : Batch<Scalar>(logits));
    auto exponents = work_.all_key_exponents(T_).segment(own.begin, n);
    auto norms = work_.all_key_norms(T_).segment(own.begin, n);
    if constexpr (embedded) {
      auto key_features = work_.key_features(D_, T_).middleCols(own.begin, n);
      if (takes_keys) embed_scaled(feature_, keys, key_features, exponents, norms, diagnose());
      embed_scaled(feature_, queries, query_features, work_.query_exponents(n), work_.query_norms(n), diagnose());
      if (!mask_.is_full) set_product(logits, key_features.transpose(), query_features);
    } else if (takes_keys) {
      // Of the block's keys a copy with the tokens of a channel side by side: a panel of every later product.
      auto panel = work_.tokens(d_, T_).middleCols(own.begin, n);
      set_copy(MatrixView<Scalar>(panel.data(), n, d_), keys.transpose());
    }
    work_.key_exponents(n) = exponents;
    work_.key_norms(n) = norms;
    work_.own_queries(d_, n) = queries;
    KeyBlock<Scalar>& loaded = block_at(own.begin);
    loaded.log_decay = accumulate_gates(call_.transition, own, work_.from_start(n), work_.to_end(n));
    const Index keys_present = keys_of(own).size;
    if (!takes_keys || keys_present == 0) return;
    const auto to_end = work_.to_end(n).head(keys_present), lengths = work_.key_exponents(n).head(keys_present);
    loaded.factors.template set<F>(to_end, lengths);
    auto weights = work_.all_weights(T_).segment(own.begin, keys_present);
    weigh(to_end, lengths, loaded.reference, weights);
    if (diagnose()) loaded.absolute = absolute_weight<degree, Scalar>(weights, work_.key_norms(n).head(keys_present));
  }

  // Logits of all queries of the block with some keys.
  auto logits_with(Segment keys, MatrixView<const Scalar> queries) {
    auto logits = work_.logits(keys.size, queries.cols());
    if constexpr (embedded) {
      set_product(logits, work_.key_features(D_, T_).middleCols(keys.begin, keys.size).transpose(),
                  work_.features(D_, queries.cols()));
    } else {
      const Segment whole = segment_at(keys.begin);
      const auto panel = work_.tokens(d_, T_).middleCols(whole.begin, whole.size);
      set_product(logits, MatrixView<Scalar>(panel.data(), whole.size, d_).topRows(keys.size), queries);
    }
    return logits;
  }

  // Logits with the block's own keys, as many as it has.
  auto own_logits(Segment own) {
    const Index keys = keys_of(own).size;
    auto logits = work_.logits(keys, own.size);
    logits = work_.own_logits(own.size, own.size).topRows(keys);
    return logits;
  }

  // The keys of the blocks that the queries see whole, the last one first: visit(keys, queries, log decay between them).
  template <class Visit>
  void walk_back(Segment own, const Visit& visit) {
    auto queries = work_.queries(d_, own.size);
    queries = work_.own_queries(d_, own.size);
    double between = 0;
    for (Index begin = last_seen(own); begin >= 0 && between > no_weight; begin -= block) {
      if (const Segment keys = keys_of(segment_at(begin)); keys.size > 0) visit(keys, queries, between);
      between += block_at(begin).log_decay;
      call_.transition.pull(segment_at(begin), queries);
    }
  }
  // Where the last of these blocks begins.
  [[nodiscard]] Index last_seen(Segment own) const {
    return mask_.is_full ? (T_ - 1) / block * block : own.begin - block;
  }

  void run_general(Segment own) {
    const Index n = own.size;
    sums_.reset(call_.V.rows(), n, room_);
    if (const Segment keys = keys_of(own); !mask_.is_full && keys.size > 0) {
      auto logits = own_logits(own);
      sums_.add_causal(call_.transition, own, logits, call_.V.middleCols(keys.begin, keys.size));
    }
    walk_back(own, [&](Segment keys, const auto& queries, double between) {
      auto scores = logits_with(keys, queries);
      sums_.add_earlier(block_at(keys.begin).factors, work_.all_key_norms(T_).segment(keys.begin, keys.size), scores,
                        call_.V.middleCols(keys.begin, keys.size),
                        [&](Index i) { return between + work_.from_start(n)[i]; });
    });
    const Segment present = queries_of(own);
    const Index query = present.begin - mask_.offset;
    sums_.write(present.begin - own.begin, query, call_.Y.middleCols(query, present.size));
  }

  // Weights b_j ‖k_j‖^P of keys as 2^reference times numbers of at most about 1, which later keys do not change.
  static void weigh(ColumnView<const double> log_b, ColumnView<const double> exponents, double& reference,
                    ColumnView<Scalar> weights) {
    reference = std::ceil(largest_log2_weight<degree>(log_b, exponents));
    for (Index j = 0; j < log_b.size(); ++j) {
      const double whole = degree * exponents[j] - reference;
      weights[j] = whole > no_weight ? static_cast<Scalar>(weight_of(log_b[j], whole)) : Scalar(0);
    }
  }

  bool run_ordinary(Segment own) {
    if (!is_plain_ || !(block_at(own.begin).log_decay >= least_log_decay<Scalar>)) return false;
    const Index n = own.size;
    const Segment keys = keys_of(own);
    const bool sees_own = !mask_.is_full && keys.size > 0;
    double seen = no_weight, log_between = 0;  // the largest weight of all rows, in log2
    for (Index begin = last_seen(own); begin >= 0; begin -= block) {
      if (keys_of(segment_at(begin)).size > 0)
        seen = std::max(seen, std::ceil(block_at(begin).reference + log_between * std::numbers::log2e));
      log_between += block_at(begin).log_decay;
    }
    double unit = seen, own_unit = no_weight;
    auto own_weights = work_.own_weights(keys.size);
    if (sees_own) {
      auto log_b = work_.gates(keys.size);
      log_b = -work_.from_start(n).head(keys.size);
      const auto exponents = work_.key_exponents(n).head(keys.size);
      weigh(log_b, exponents, own_unit, own_weights);
      unit = std::max(unit, own_unit);
      for (Index i = 0; i < keys.size; ++i) {
        seen = std::max(seen, degree * exponents[i] + std::numbers::log2e * log_b[i]);
        if (seen != no_weight && !(seen - unit >= least_weight)) return false;
      }
    }
    if (unit == no_weight) return false;

    rows_.reset(call_.V.rows(), n);
    if (sees_own) {
      auto logits = own_logits(own);
      own_weights *= power_of_two<Scalar>(own_unit - unit);
      rows_.add_scores(logits, own_weights, call_.V.middleCols(keys.begin, keys.size), true);
    }
    double absolute = 0;
    walk_back(own, [&](Segment earlier, const auto& queries, double between) {
      const double factor = weight_of(between, block_at(earlier.begin).reference - unit);
      if (!(factor > static_cast<double>(std::numeric_limits<Scalar>::min()))) return;  // no row sees it
      auto weights = work_.weights(earlier.size);
      weights = work_.all_weights(T_).segment(earlier.begin, earlier.size) * static_cast<Scalar>(factor);
      auto scores = logits_with(earlier, queries);
      rows_.add_scores(scores, weights, call_.V.middleCols(earlier.begin, earlier.size), false);
      rows_.settle_some(1);
      absolute += block_at(earlier.begin).absolute * factor;
    });
    rows_.finish(1);

    const Segment present = queries_of(own);
    const auto exponents = work_.query_exponents(n), from_start = work_.from_start(n);
    if (rows_.normalized())
      for (Index i = present.begin - own.begin; i < present.end() - own.begin; ++i)
        if (exponents[i] != no_weight && !(rows_.denominator(i) >= std::exp2(2 * least_weight))) return false;
    set_exponential(work_.gates(n), from_start);
    for (Index i = 0; i < present.end() - own.begin; ++i) {
      if (diagnose() && sees_own && i < keys.size)
        absolute += absolute_weight<degree, Scalar>(own_weights.segment(i, 1), work_.key_norms(n).segment(i, 1));
      if (own.begin + i < present.begin) continue;
      const Index query = own.begin + i - mask_.offset;
      const double weight =
          diagnose() ? absolute * integer_power(static_cast<double>(work_.query_norms(n)[i]), degree) : 0;
      rows_.write(query, i, 0, weight, from_start[i], work_.gates(n)[i], degree * exponents[i] + unit,
                  call_.Y.col(query));
    }
    return true;
  }

  [[nodiscard]] bool diagnose() const { return call_.options.diagnostics != nullptr; }

  [[nodiscard]] Index embedded_dimension() const {
    if constexpr (embedded)
      return feature_.dimension(call_.K.rows());
    else
      return 0;
  }

  const F& feature_;
  AttentionCall<Scalar>& call_;
  Workspace<Scalar>& work_;
  Mask mask_;
  Index d_, D_, T_;
  double room_;
  ScoreSums<Scalar, F> sums_;
  OrdinaryRows<Scalar, degree> rows_;
  bool is_plain_;
};

/// The attention form, compiled once for a scalar type and a feature map, see `SYMPOW_INSTANTIATE_FORMS`. The alignment of Eigen's memory is a
/// part of its name: files that disagree on it, as those of two -march settings do, must not exchange matrices, and do not link.
template <class Scalar, FeatureMap F, int alignment = EIGEN_MAX_ALIGN_BYTES>
struct AttentionForm {
  static void run(const F& feature, AttentionCall<Scalar> call);
};
template <class Scalar, FeatureMap F, int alignment>
void AttentionForm<Scalar, F, alignment>::run(const F& feature, AttentionCall<Scalar> call) {
  AttentionEngine<Scalar, F>(feature, call).run();
}

}  // namespace sympow::detail
