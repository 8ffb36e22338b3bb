// The attention form: every query against every earlier key, O(T²).
#pragma once

#include <algorithm>

#include <sympow/attention/ordinary_rows.hpp>
#include <sympow/attention/score_sums.hpp>

namespace sympow {
namespace detail {

/// One call of the attention form, in the terms of its engine: everything is checked.
template <class Scalar>
struct AttentionCall {
  const TransitionView<Scalar>& transition;
  Rows rows;
  Options options;
  ConstBatch<Scalar> Q, K, V;
  Batch<Scalar> Y;
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
        d_(call.K.rows()),
        D_(embedded_dimension()),
        T_(call.K.cols()),
        room_(room_for(largest_entry(call.V))),
        sums_(work_, call.rows, call.options.diagnostics, room_),
        rows_(work_, call.rows, call.options.diagnostics),
        is_plain_(F::score == Score::power && call.rows != Rows::signed_means && room_ == 0) {}

  void run() {
    auto keys = work_.keys(d_, T_);
    keys = call_.K;
    auto exponents = work_.all_key_exponents(T_);
    auto norms = work_.all_key_norms(T_);
    const double of_keys = T_ > 0 ? load_keys<F>(keys, exponents) : 0;
    norms.setZero();
    if (diagnose()) norms = keys.colwise().norm();
    work_.blocks.resize(static_cast<std::size_t>((T_ + block - 1) / block));

    Frame& frame = work_.frame;  // of an earlier call; angles of 0 are none
    frame.angles.setZero(2 * frame.angles.size() == d_ ? frame.angles.size() : 0);
    for (Index begin = 0; begin < T_; begin += block) {
      const Segment own = segment_at(begin);
      load(own, frame, of_keys);
      if (!run_ordinary(own)) run_general(own);
    }
  }

 private:
  [[nodiscard]] Segment segment_at(Index begin) const { return {begin, std::min(block, T_ - begin)}; }
  KeyBlock<Scalar>& block_at(Index begin) { return work_.blocks[static_cast<std::size_t>(begin / block)]; }

  // The block's queries at its start, its keys at its end, and the logits between.
  void load(Segment own, Frame& frame, double of_keys) {
    const Index n = own.size;
    auto queries = work_.queries(d_, n), query_features = work_.features(D_, n), logits = work_.own_logits(n, n);
    auto keys = work_.keys(d_, T_).middleCols(own.begin, n);
    auto exponents = work_.all_key_exponents(T_).segment(own.begin, n);
    auto norms = work_.all_key_norms(T_).segment(own.begin, n);
    queries = call_.Q.middleCols(own.begin, n);
    load_queries<F>(queries, work_.query_exponents(n), call_.options.scale, of_keys);
    if (diagnose()) work_.query_norms(n) = queries.colwise().norm();
    call_.transition.transport(frame, own, queries, keys, logits);
    if constexpr (embedded) {
      auto key_features = work_.key_features(D_, T_).middleCols(own.begin, n);
      embed_scaled(feature_, keys, key_features, exponents, norms, diagnose());
      embed_scaled(feature_, queries, query_features, work_.query_exponents(n), work_.query_norms(n), diagnose());
      set_product(logits, key_features.transpose(), query_features);
    } else {
      // Of the block's keys a copy with the tokens of a channel side by side: a panel of every later product.
      auto panel = work_.tokens(d_, T_).middleCols(own.begin, n);
      set_copy(Eigen::Map<Matrix<Scalar>>(panel.data(), n, d_), keys.transpose());
    }
    work_.key_exponents(n) = exponents;
    work_.key_norms(n) = norms;
    KeyBlock<Scalar>& keys_of_block = block_at(own.begin);
    keys_of_block.log_decay = accumulate_gates(call_.transition, own, work_.from_start(n), work_.to_end(n));
    keys_of_block.factors.template set<F>(work_.to_end(n), work_.key_exponents(n));
    work_.own_queries(d_, n) = queries;
  }

  // Logits of all queries of the block with the keys of an earlier one.
  template <class Queries>
  auto earlier_logits(Segment earlier, const Queries& queries) {
    auto logits = work_.logits(earlier.size, queries.cols());
    if constexpr (embedded) {
      set_product(logits, work_.key_features(D_, T_).middleCols(earlier.begin, earlier.size).transpose(),
                  work_.features(D_, queries.cols()));
    } else {
      const auto panel = work_.tokens(d_, T_).middleCols(earlier.begin, earlier.size);
      set_product(logits, Eigen::Map<const Matrix<Scalar>>(panel.data(), earlier.size, d_), queries);
    }
    return logits;
  }

  // The earlier blocks, the last one first: visit(block, logits, log decay between it and the queries).
  template <class Visit>
  void walk_back(Segment own, const Visit& visit) {
    auto queries = work_.queries(d_, own.size);
    queries = work_.own_queries(d_, own.size);
    double between = 0;
    for (Index begin = own.begin - block; begin >= 0 && between > no_weight; begin -= block) {
      const Segment earlier = segment_at(begin);
      visit(earlier, queries, between);
      between += block_at(begin).log_decay;
      call_.transition.pull(earlier, queries);
    }
  }

  void run_general(Segment own) {
    const Index n = own.size;
    auto logits = work_.logits(n, n);
    logits = work_.own_logits(n, n);
    sums_.reset(call_.V.rows(), n);
    sums_.add_causal(call_.transition, own, logits, call_.V.middleCols(own.begin, n));
    walk_back(own, [&](Segment earlier, const auto& queries, double between) {
      auto earlier_scores = earlier_logits(earlier, queries);
      sums_.add_earlier(block_at(earlier.begin).factors, work_.all_key_norms(T_).segment(earlier.begin, earlier.size),
                        earlier_scores, call_.V.middleCols(earlier.begin, earlier.size),
                        [&](Index i) { return between + work_.from_start(n)[i]; });
    });
    sums_.write(own.begin, call_.Y.middleCols(own.begin, n));
  }

  // Weights b_j ‖k_j‖^P of keys as 2^reference times numbers, which later keys do not change, of at most about 1; false if there is none,
  // or one that is not ordinary.
  template <class LogGates, class Exponents, class Weights>
  static bool weigh(const LogGates& log_b, const Exponents& exponents, double& reference, Weights&& weights) {
    reference = std::ceil((degree * exponents + std::numbers::log2e * log_b).maxCoeff());
    bool ordinary = reference != no_weight;
    for (Index j = 0; j < log_b.size(); ++j) {
      const double whole = degree * exponents[j] - reference;
      weights[j] = whole > no_weight ? static_cast<Scalar>(weight_of(log_b[j], whole)) : Scalar(0);
      ordinary = ordinary && (exponents[j] == no_weight || whole >= least_weight);
    }
    return ordinary;
  }

  bool run_ordinary(Segment own) {
    if (!is_plain_) return false;
    const Index n = own.size;
    KeyBlock<Scalar>& keys = block_at(own.begin);
    const auto exponents = work_.key_exponents(n);
    weigh(work_.to_end(n), exponents, keys.reference, work_.all_weights(T_).segment(own.begin, n));
    if (diagnose()) keys.absolute = absolute_weight(work_.all_weights(T_).segment(own.begin, n), work_.key_norms(n));
    if (!(keys.log_decay >= least_log_decay<Scalar>)) return false;
    double unit = no_weight, log_between = 0;
    auto own_weights = work_.own_weights(n);
    const bool ordinary = weigh(-work_.from_start(n), exponents, unit, own_weights);
    const double own_reference = unit;
    for (Index begin = own.begin - block; begin >= 0; begin -= block) {
      unit = std::max(unit, std::ceil(block_at(begin).reference + log_between * std::numbers::log2e));
      log_between += block_at(begin).log_decay;
    }
    if (!ordinary || unit == no_weight) return false;
    own_weights *= power_of_two<Scalar>(own_reference - unit);

    auto logits = work_.logits(n, n);
    logits = work_.own_logits(n, n);
    rows_.reset(call_.V.rows(), n);
    rows_.add_scores(logits, own_weights, call_.V.middleCols(own.begin, n), true);
    double absolute = 0;
    walk_back(own, [&](Segment earlier, const auto& queries, double between) {
      const double factor = weight_of(between, block_at(earlier.begin).reference - unit);
      if (!(factor > static_cast<double>(std::numeric_limits<Scalar>::min()))) return;  // no row sees it
      auto earlier_weights = work_.weights(earlier.size);
      earlier_weights = work_.all_weights(T_).segment(earlier.begin, earlier.size) * static_cast<Scalar>(factor);
      auto scores = earlier_logits(earlier, queries);
      rows_.add_scores(scores, earlier_weights, call_.V.middleCols(earlier.begin, earlier.size), false);
      rows_.settle_some(1);
      absolute += block_at(earlier.begin).absolute * factor;
    });
    rows_.settle(1);

    const auto query_exponents = work_.query_exponents(n), from_start = work_.from_start(n);
    if (rows_.normalized())
      for (Index i = 0; i < n; ++i)
        if (query_exponents[i] != no_weight && !(rows_.denominator(i) >= std::exp2(2 * least_weight))) return false;
    for (Index i = 0; i < n; ++i) {
      double weight = 0;
      if (diagnose()) {
        absolute += absolute_weight(own_weights.segment(i, 1), work_.key_norms(n).segment(i, 1));
        weight = absolute * integer_power(static_cast<double>(work_.query_norms(n)[i]), degree);
      }
      rows_.write(own.begin + i, i, 0, weight, from_start[i], degree * query_exponents[i] + unit,
                  call_.Y.col(own.begin + i));
    }
    return true;
  }

  // Σ w_j ‖k_j‖^P.
  template <class Weights, class Norms>
  static double absolute_weight(const Weights& weights, const Norms& norms) {
    return weights.template cast<double>().dot(entries_to_the<degree>(norms.template cast<double>().array()).matrix());
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
  Index d_, D_, T_;
  double room_;
  ScoreSums<Scalar, F> sums_;
  OrdinaryRows<Scalar, degree> rows_;
  bool is_plain_;
};

template <class Scalar, FeatureMap F>
void run_attention(const F& feature, AttentionCall<Scalar> call) {
  AttentionEngine<Scalar, F>(feature, call).run();
}

}  // namespace detail

/// Causal attention, the definition.
///
///     y_i = Σ_{j ≤ i} s_ij v_j  (/ Σ_{j ≤ i} s_ij),   s_ij = κ(scale · q_iᵀ M_ij k_j) b_ij
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column. Y may not overlap the inputs. κ is the feature map's, M and b the
/// transition's. Normalised or not by the feature map; `attention<Unnormalized>(…)` says otherwise. A row without weight (q = 0, all
/// scores zero) gives 0. Cost: T² (d + e) + O(T²) operations, O(T (d + e)) memory. No product or exponential overflows on the way to a
/// normalised row. Throws `ShapeMismatch`, `InvalidArgument`. Source: Conformal Transformations, §2 (sympow) to §3.3.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
void attention(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
               const Eigen::MatrixBase<DV>& V, Batch<typename DQ::Scalar> Y, Workspace<typename DQ::Scalar>& workspace,
               const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  constexpr detail::Rows rows = detail::rows_of<Normalization, F>();
  if constexpr (detail::check_types<F, A, DQ, DK, DV>()) {
    detail::check_call(transition, Q, K, V, options);
    detail::check_output(Y, Q, V);
    if (options.diagnostics != nullptr) options.diagnostics->resize(3, Q.cols());
    const detail::ViewOf<Scalar, A> view(transition);
    detail::run_attention<Scalar, F>(feature,
                                     {view, rows, options, Q.derived(), K.derived(), V.derived(), Y, workspace});
  }
}

/// The same, returning Y.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> attention(const F& feature, const A& transition,
                                                    const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                                    const Eigen::MatrixBase<DV>& V, const Options& options = {}) {
  Matrix<typename DQ::Scalar> Y(V.rows(), Q.cols());
  Workspace<typename DQ::Scalar> workspace;
  attention<Normalization>(feature, transition, Q, K, V, Y, workspace, options);
  return Y;
}

}  // namespace sympow
