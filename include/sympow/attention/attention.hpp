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
  static constexpr double empty = -std::numeric_limits<double>::infinity();  // log2 of no weight
  static constexpr Scalar infinity = std::numeric_limits<Scalar>::infinity();
  static constexpr int degree = [] {
    if constexpr (F::score == Score::power)
      return F::degree;
    else
      return 1;
  }();

 public:
  AttentionEngine(const F& feature, const TransitionView<Scalar>& transition, Rows rows, double scale, Workspace<Scalar>& work)
      : feature_(feature), transition_(transition), rows_(rows), scale_(scale), work_(work) {}

  void run(const ConstBatch<Scalar>& Q, const ConstBatch<Scalar>& K, const ConstBatch<Scalar>& V, Batch<Scalar> Y) {
    work_.keys = K;
    value_rows_ = V.rows();
    if constexpr (F::score == Score::embedded) work_.key_features.resize(feature_.dimension(K.rows()), K.cols());
    before_power_.resize(Q.cols());
    after_power_.resize(Q.cols());
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
      split_gate(sum, before_power_[j], after_power_[j]);
      sum += transition_.log_decay(j);
    }
    work_.values.setZero(value_rows_, own.size);
    log2_scale_.setConstant(own.size, empty);
    denominator_.setZero(own.size);
    magnitude_.setZero(own.size);
  }

  // b is applied in two parts: a power of two inside the power, exact, which keeps what is raised at most 2 times its row's maximum;
  // and the rest, in [1, 2^P), after it. An exponential score takes log b into its exponent and needs no second part.
  static void split_gate(double log_b, Scalar& before, Scalar& after) {
    if constexpr (F::score == Score::exponential) {
      before = static_cast<Scalar>(log_b);
      after = Scalar(1);
    } else {
      const double log2_b = log_b * std::numbers::log2e;
      const double exponent = std::max(std::floor(log2_b / degree), -4096.0);  // 2^-4096 is 0
      before = static_cast<Scalar>(std::ldexp(1.0, static_cast<int>(exponent)));
      after = static_cast<Scalar>(log_b == empty ? 0 : std::exp2(log2_b - degree * exponent));
    }
  }

  template <class Column, class Gates>
  static void apply_gates(Column&& logits, const Gates& before) {
    if constexpr (F::score == Score::exponential)
      logits += before;
    else
      logits.array() *= before.array();
  }

  // Keys of the block itself, j ≤ i.
  void diagonal(Segment own, const ConstBatch<Scalar>& V) {
    gates_.setZero(own.size);
    block_before_.resize(own.size);
    block_after_.setOnes(own.size, own.size);
    for (Index i = 0; i < own.size; ++i) {
      gates_.head(i).array() += transition_.log_decay(own.begin + i);  // log b_ij
      for (Index j = 0; j <= i; ++j) split_gate(gates_[j], block_before_[j], block_after_(j, i));
      auto column = work_.logits.col(i);
      apply_gates(column.head(i + 1), block_before_.head(i + 1));
      column.tail(own.size - i - 1).setConstant(F::score == Score::exponential ? -infinity : Scalar(0));
    }
    accumulate(
        V.middleCols(own.begin, own.size), [](Index) { return 0.0; }, [&](Index i) { return block_after_.col(i); });
  }

  // Keys of an earlier block: b_ij is the decay from the key to its block's end, between, and from the own start.
  void across(Segment earlier, double between, const ConstBatch<Scalar>& V) {
    if constexpr (F::score == Score::embedded)
      work_.logits.noalias() = work_.key_features.middleCols(earlier.begin, earlier.size).transpose() * work_.query_features;
    else
      work_.logits.noalias() = work_.keys.middleCols(earlier.begin, earlier.size).transpose() * work_.queries;
    const auto before = before_power_.segment(earlier.begin, earlier.size);
    const auto after = after_power_.segment(earlier.begin, earlier.size);
    for (Index i = 0; i < work_.logits.cols(); ++i) apply_gates(work_.logits.col(i), before);
    accumulate(
        V.middleCols(earlier.begin, earlier.size), [&](Index i) { return between + from_start_[i]; },
        [&](Index) { return after; });
  }

  // Adds the values of a block of keys, weighted by the gated logits of every query. after(i) is the part of their gates that comes
  // after the power, log_gate(i) the decay that they still lack.
  template <class Values, class LogGate, class After>
  void accumulate(const Values& values, const LogGate& log_gate, const After& after) {
    auto& weights = work_.logits;
    old_factor_.resize(weights.cols());
    new_factor_.resize(weights.cols());
    for (Index i = 0; i < weights.cols(); ++i) {
      const double fresh = shift(weights.col(i), after(i)) + log_gate(i) * std::numbers::log2e;
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

  // Turns gated logits into weights and returns log2 of the factor that was taken out of them.
  template <class Column, class After>
  static double shift(Column&& x, [[maybe_unused]] const After& after) {
    if constexpr (F::score == Score::exponential) {
      const Scalar maximum = x.maxCoeff();
      if (maximum == -infinity) {
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
      x = (x * std::ldexp(Scalar(1), -exponent)).unaryExpr(RaiseTo{degree}).cwiseProduct(after);
      return static_cast<double>(degree) * exponent;
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

  const F& feature_;
  const TransitionView<Scalar>& transition_;
  Rows rows_;
  double scale_;
  Workspace<Scalar>& work_;
  Index value_rows_ = 0;
  Eigen::VectorXd from_start_, gates_, log2_scale_;
  Vector<Scalar> before_power_, after_power_;  // decay of every key to its block's end
  Vector<Scalar> block_before_;
  Matrix<Scalar> block_after_;
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
  if constexpr (detail::check_types<F, A, DQ, DK, DV>()) {
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
