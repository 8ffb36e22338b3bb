// The attention form: every query against every earlier key, O(T²).
#pragma once

#include <algorithm>

#include <sympow/attention/score_sums.hpp>

namespace sympow {
namespace detail {

/// Attention by blocks of queries against blocks of keys. A block of queries starts with its own keys and walks back, pulled through
/// the blocks between.
template <class Scalar, FeatureMap F>
class AttentionEngine {
  static constexpr Index block = 64;
  static constexpr bool embedded = F::score == Score::embedded;

 public:
  AttentionEngine(const F& feature, const TransitionView<Scalar>& transition, Rows rows, const Options& options,
                  Workspace<Scalar>& work, double room)
      : feature_(feature),
        transition_(transition),
        options_(options),
        work_(work),
        sums_(work, rows, options.diagnostics, room) {}

  void run(const ConstBatch<Scalar>& Q, const ConstBatch<Scalar>& K, const ConstBatch<Scalar>& V, Batch<Scalar> Y) {
    const Index T = Q.cols(), D = embedded_dimension(K.rows());
    auto keys = work_.keys(K.rows(), T), key_features = work_.key_features(D, T);
    keys = K;
    auto exponents = work_.all_key_exponents(T);
    auto norms = work_.all_key_norms(T);
    const double of_keys = T > 0 ? load_keys<F>(keys, exponents) : 0;
    norms.setZero();
    if (diagnose()) norms = keys.colwise().norm();
    auto& totals = work_.block_totals;  // log decay of every block so far
    work_.block_factors.resize(static_cast<std::size_t>((T + block - 1) / block));
    totals.clear();

    Frame& frame = work_.frame;  // of an earlier call; angles of 0 are none
    frame.angles.setZero(2 * frame.angles.size() == Q.rows() ? frame.angles.size() : 0);
    for (Index begin = 0; begin < T; begin += block) {
      const Segment own{begin, std::min(block, T - begin)};
      const Index n = own.size;
      auto queries = work_.queries(Q.rows(), n), query_features = work_.features(D, n), logits = work_.logits(n, n);
      queries = Q.middleCols(begin, n);
      load_queries<F>(queries, work_.query_exponents(n), options_.scale, of_keys);
      if (diagnose()) work_.query_norms(n) = queries.colwise().norm();
      transition_.transport(frame, own, queries, keys.middleCols(begin, n), logits);
      if constexpr (embedded) {
        embed_scaled(feature_, keys.middleCols(begin, n), key_features.middleCols(begin, n),
                     exponents.segment(begin, n), norms.segment(begin, n), diagnose());
        embed_scaled(feature_, queries, query_features, work_.query_exponents(n), work_.query_norms(n), diagnose());
        set_product(logits, key_features.middleCols(begin, n).transpose(), query_features);
      }
      work_.key_exponents(n) = exponents.segment(begin, n);
      work_.key_norms(n) = norms.segment(begin, n);
      totals.push_back(accumulate_gates(transition_, own, work_.from_start(n), work_.to_end(n)));
      work_.block_factors[totals.size() - 1].template set<F>(work_.to_end(n), work_.key_exponents(n));

      sums_.reset(V.rows(), n);
      sums_.add_causal(transition_, own, logits, V.middleCols(begin, n));
      double between = 0;  // log decay of the blocks between
      for (std::size_t j = totals.size() - 1; j-- > 0 && between > no_weight;) {
        const Segment earlier{static_cast<Index>(j) * block, block};
        auto earlier_logits = work_.logits(block, n);
        if constexpr (embedded)
          set_product(earlier_logits, key_features.middleCols(earlier.begin, block).transpose(), query_features);
        else
          set_product(earlier_logits, keys.middleCols(earlier.begin, block).transpose(), queries);
        sums_.add_earlier(work_.block_factors[j], norms.segment(earlier.begin, block), earlier_logits,
                          V.middleCols(earlier.begin, block),
                          [&](Index i) { return between + work_.from_start(n)[i]; });
        between += totals[j];
        transition_.pull(earlier, queries);
      }
      sums_.write(begin, Y.middleCols(begin, n));
    }
  }

 private:
  [[nodiscard]] bool diagnose() const { return options_.diagnostics != nullptr; }

  [[nodiscard]] Index embedded_dimension([[maybe_unused]] Index d) const {
    if constexpr (embedded)
      return feature_.dimension(d);
    else
      return 0;
  }

  const F& feature_;
  const TransitionView<Scalar>& transition_;
  const Options& options_;
  Workspace<Scalar>& work_;
  ScoreSums<Scalar, F> sums_;
};

template <class Scalar, FeatureMap F>
void run_attention(const F& feature, const TransitionView<Scalar>& transition, Rows rows, const Options& options,
                   const ConstBatch<Scalar>& Q, const ConstBatch<Scalar>& K, const ConstBatch<Scalar>& V,
                   Batch<Scalar> Y, Workspace<Scalar>& workspace) {
  AttentionEngine<Scalar, F>(feature, transition, rows, options, workspace, room_for(largest_entry(V))).run(Q, K, V, Y);
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
    detail::run_attention<Scalar, F>(feature, detail::ViewOf<Scalar, A>(transition), rows, options, Q.derived(),
                                     K.derived(), V.derived(), Y, workspace);
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
