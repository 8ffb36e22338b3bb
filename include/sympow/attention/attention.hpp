// The attention form: every query against every earlier key, O(T²).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <sympow/attention/options.hpp>
#include <sympow/attention/workspace.hpp>
#include <sympow/core/integer_power.hpp>

namespace sympow {
namespace detail {

/// Attention by blocks of queries against blocks of keys. Every row carries a scale 2^r that follows the largest weight seen,
/// r ≈ max_j log2 (b_ij |κ(s_ij)|), and sums weights that are at most 1 in size; for a power the scale of a block is a power of two and
/// costs no rounding.
template <class Scalar, FeatureMap F>
class AttentionEngine {
  static constexpr Index block = 64;
  static constexpr double empty = -std::numeric_limits<double>::infinity();

 public:
  AttentionEngine(const F& feature, const TransitionView<Scalar>& transition, Rows rows, double scale, Workspace<Scalar>& work)
      : feature_(feature), transition_(transition), rows_(rows), scale_(scale), work_(work) {}

  void run(const ConstBatch<Scalar>& Q, const ConstBatch<Scalar>& K, const ConstBatch<Scalar>& V, Batch<Scalar> Y) {
    work_.keys = K;
    value_rows_ = V.rows();
    if constexpr (F::score == Score::embedded) work_.key_features.resize(feature_.dimension(K.rows()), K.cols());
    to_end_.resize(Q.cols());
    totals_.clear();
    Frame frame;
    for (Index begin = 0; begin < Q.cols(); begin += block) {
      const Segment own{begin, std::min(block, Q.cols() - begin)};
      enter(frame, own, Q);
      diagonal(own, V);
      double between = 0;  // natural log decay of the blocks between
      for (Index j = static_cast<Index>(totals_.size()) - 2; j >= 0 && between > empty; --j) {
        const Segment earlier{j * block, block};
        across(earlier, between, V);
        between += totals_[static_cast<std::size_t>(j)];
        transition_.pull(earlier, work_.queries.leftCols(own.size));
      }
      finish(Y.middleCols(own.begin, own.size));
    }
  }

 private:
  // Queries of the block to its start, keys to its end, logits inside; decays to the ends; an empty accumulator.
  void enter(Frame& frame, Segment own, const ConstBatch<Scalar>& Q) {
    work_.queries = Q.middleCols(own.begin, own.size) * Scalar(scale_);
    work_.logits.resize(own.size, own.size);
    transition_.transport(frame, own, work_.queries, work_.keys.middleCols(own.begin, own.size), work_.logits);
    if constexpr (F::score == Score::embedded) {
      auto features = work_.key_features.middleCols(own.begin, own.size);
      feature_.embed(work_.keys.middleCols(own.begin, own.size), features);
      work_.query_features.resize(work_.key_features.rows(), own.size);
      feature_.embed(work_.queries, work_.query_features);
      work_.logits.noalias() = features.transpose() * work_.query_features;
    }
    from_start_.resize(own.size);
    double sum = 0;
    for (Index i = 0; i < own.size; ++i) from_start_[i] = sum += transition_.log_decay(own.begin + i);
    totals_.push_back(sum);
    sum = 0;
    for (Index j = own.end() - 1; j >= own.begin; --j) {
      to_end_[j] = sum;
      sum += transition_.log_decay(j);
    }
    work_.values.setZero(value_rows_, own.size);
    log2_scale_.setConstant(own.size, empty);
    denominator_.setZero(own.size);
    magnitude_.setZero(own.size);
  }

  // Keys of the block itself, j ≤ i. Gates accumulate along a row of queries: b_ij = γ_i b_{i-1,j}.
  void diagonal(Segment own, const ConstBatch<Scalar>& V) {
    gates_.resize(own.size);
    for (Index i = 0; i < own.size; ++i) {
      const double log_gate = transition_.log_decay(own.begin + i);
      auto column = work_.logits.col(i);
      column.tail(own.size - i - 1).setZero();
      if constexpr (F::score == Score::exponential) {
        gates_.head(i).array() += log_gate;
        gates_[i] = 0;
        column.head(i + 1) += gates_.head(i + 1).template cast<Scalar>();
        column.tail(own.size - i - 1).setConstant(-std::numeric_limits<Scalar>::infinity());
      } else {
        gates_.head(i) *= std::exp(log_gate / root());
        gates_[i] = 1;
        column.head(i + 1).array() *= gates_.head(i + 1).array().template cast<Scalar>();
      }
    }
    accumulate(V.middleCols(own.begin, own.size), [](Index) { return 0.0; });
  }

  // Keys of an earlier block: b_ij is the product of the decay from its key to its end, between, and from the own start.
  void across(Segment earlier, double between, const ConstBatch<Scalar>& V) {
    if constexpr (F::score == Score::embedded)
      work_.logits.noalias() = work_.key_features.middleCols(earlier.begin, earlier.size).transpose() * work_.query_features;
    else
      work_.logits.noalias() = work_.keys.middleCols(earlier.begin, earlier.size).transpose() * work_.queries;
    const auto to_end = to_end_.segment(earlier.begin, earlier.size).array();
    if constexpr (F::score == Score::exponential)
      work_.logits.colwise() += to_end.matrix().template cast<Scalar>();
    else
      work_.logits.array().colwise() *= (to_end / root()).exp().template cast<Scalar>();
    accumulate(V.middleCols(earlier.begin, earlier.size), [&](Index i) { return between + from_start_[i]; });
  }

  // Adds the values of a block of keys, weighted by the gated logits of every query; log_gate(i) is the decay that they lack.
  template <class Values, class LogGate>
  void accumulate(const Values& values, const LogGate& log_gate) {
    auto& weights = work_.logits;
    old_factor_.resize(weights.cols());
    new_factor_.resize(weights.cols());
    for (Index i = 0; i < weights.cols(); ++i) {
      const double fresh = shift(weights.col(i)) + log_gate(i) * std::numbers::log2e;
      const double scale = std::max(log2_scale_[i], fresh);
      old_factor_[i] = scale == empty ? Scalar(0) : static_cast<Scalar>(std::exp2(log2_scale_[i] - scale));
      new_factor_[i] = scale == empty ? Scalar(0) : static_cast<Scalar>(std::exp2(fresh - scale));
      log2_scale_[i] = scale;
    }
    denominator_ = denominator_.cwiseProduct(old_factor_) + weights.colwise().sum().cwiseProduct(new_factor_);
    magnitude_ = magnitude_.cwiseProduct(old_factor_) + weights.cwiseAbs().colwise().sum().cwiseProduct(new_factor_);
    weights.array().rowwise() *= new_factor_.array();
    work_.values.array().rowwise() *= old_factor_.array();
    work_.values.noalias() += values * weights;
  }

  // Turns gated logits into weights of size at most 1; returns log2 of the factor that was taken out.
  template <class Column>
  double shift(Column&& x) const {
    if constexpr (F::score == Score::exponential) {
      const Scalar maximum = x.maxCoeff();
      if (maximum == -std::numeric_limits<Scalar>::infinity()) {
        x.setZero();
        return empty;
      }
      x = (x.array() - maximum).exp();
      return static_cast<double>(maximum) * std::numbers::log2e;
    } else {
      const Scalar maximum = x.cwiseAbs().maxCoeff();
      if (maximum == Scalar(0)) return empty;
      int exponent = 0;
      std::frexp(maximum, &exponent);
      exponent = std::max(exponent, std::numeric_limits<Scalar>::min_exponent);  // 2^-exponent must not overflow
      x = (x * std::ldexp(Scalar(1), -exponent)).unaryExpr(RaiseTo{root()});
      return static_cast<double>(root()) * exponent;
    }
  }

  void finish(Batch<Scalar> Y) {
    for (Index i = 0; i < Y.cols(); ++i) {
      constexpr Scalar tolerance = 16 * std::numeric_limits<Scalar>::epsilon() / 2;
      if (rows_ == Rows::sums)
        Y.col(i) = work_.values.col(i) * static_cast<Scalar>(std::exp2(log2_scale_[i]));
      else if (std::abs(denominator_[i]) > tolerance * magnitude_[i])
        Y.col(i) = work_.values.col(i) / denominator_[i];
      else
        Y.col(i).setZero();
    }
  }

  static constexpr int root() {
    if constexpr (F::score == Score::power)
      return F::degree;
    else
      return 1;
  }

  const F& feature_;
  const TransitionView<Scalar>& transition_;
  Rows rows_;
  double scale_;
  Workspace<Scalar>& work_;
  Index value_rows_ = 0;
  Eigen::VectorXd to_end_, from_start_, gates_, log2_scale_;
  std::vector<double> totals_;  // log decay of every block so far
  Eigen::RowVectorX<Scalar> denominator_, magnitude_, old_factor_, new_factor_;
};

template <class Scalar, FeatureMap F>
void run_attention(const F& feature, const TransitionView<Scalar>& transition, Rows rows, double scale,
                   const ConstBatch<Scalar>& Q, const ConstBatch<Scalar>& K, const ConstBatch<Scalar>& V, Batch<Scalar> Y,
                   Workspace<Scalar>& workspace) {
  AttentionEngine<Scalar, F>(feature, transition, rows, scale, workspace).run(Q, K, V, Y);
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
  if constexpr (detail::check_pair<F, A>()) {
    detail::check_call(transition, Q, K, V, options);
    detail::check_output(Y, Q, V);
    detail::run_attention<Scalar, F>(feature, detail::ViewOf<Scalar, A>(transition), rows, options.scale, Q.derived(),
                                     K.derived(), V.derived(), Y, workspace);
  }
}

/// The same, returning Y.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> attention(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                                    const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                                    const Options& options = {}) {
  Matrix<typename DQ::Scalar> Y(V.rows(), Q.cols());
  Workspace<typename DQ::Scalar> workspace;
  attention<Normalization>(feature, transition, Q, K, V, Y, workspace, options);
  return Y;
}

}  // namespace sympow
