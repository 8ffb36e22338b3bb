// What the attention form leaves of its rows, for its gradients.
#pragma once

#include <sympow/attention/attention.hpp>
#include <sympow/attention/gradient/row_adjoints.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {
struct RowSumsAccess;
}  // namespace detail

/// The rows y_i of a call and the sums Σ_j s_ij that they were divided by, 0 for rows without weight: a value, which
/// `attention` fills and `attention_vjp` takes, which then has nothing of the forward pass to do again. Memory: e
/// numbers and two of double a row, which the next call uses again. Gradients are the same bit for bit as without, but
/// under channel decay, where both are right. What the rows are of is not kept: queries, keys, values and transition
/// must be the same.
template <class S, FeatureMap F>
class RowSums {
 public:
  [[nodiscard]] Index size() const { return std::ssize(sums_); }  ///< rows

 private:
  friend detail::RowSumsAccess;

  std::vector<detail::RowSum> sums_;
  Matrix<S> Y_;
  detail::RowKind kind_ = {};
  double scale_ = 1;
  Mask mask_ = {};
};

namespace detail {
struct RowSumsAccess {
  /// Runs a call and keeps its rows; none if it fails on its way.
  template <class S, class F>
  static void run(const F& feature, AttentionCall<S> call, RowSums<S, F>& rows) {
    std::vector<RowSum> sums;
    std::swap(sums, rows.sums_);
    sums.resize(static_cast<std::size_t>(call.Y.cols()));
    resize_anew(rows.Y_, call.Y.rows(), call.Y.cols());
    call.sums = sums.data();
    AttentionForm<S, F>::run(feature, call);
    rows.Y_ = call.Y;
    rows.kind_ = call.rows, rows.scale_ = call.options.scale, rows.mask_ = call.options.mask;
    std::swap(sums, rows.sums_);
  }
  /// Throws `InvalidArgument` or `ShapeMismatch` unless they are of such a call.
  template <class S, class F>
  static KnownRows<S> checked(const RowSums<S, F>& rows, RowKind kind, const MatrixView<const S>& dY,
                              const Options& options) {
    if (rows.size() == 0 && dY.cols() > 0)
      raise<InvalidArgument>("attention_vjp: the rows are empty, attention() fills them");
    check_size("columns of dY", dY.cols(), rows.size(), "the rows that attention() has left");
    check_size("rows of dY", dY.rows(), rows.Y_.rows(), "entries of each row that attention() has left");
    if (kind != rows.kind_) raise<InvalidArgument>("attention_vjp: the rows were normalised in another way");
    if (options.scale != rows.scale_ || options.mask != rows.mask_)
      raise<InvalidArgument>("attention_vjp: the rows were made with the scale ", rows.scale_, " and the offset ",
                             rows.mask_.offset, rows.mask_.is_full ? " of a full mask" : " of a causal mask",
                             ", the options have ", options.scale, " and ", options.mask.offset,
                             options.mask.is_full ? " of a full mask" : " of a causal mask");
    return {rows.sums_.data(), rows.Y_.data()};
  }
};
}  // namespace detail

/// `attention`, leaving its rows for its gradients. Y is that without, bit for bit. Throws as it does; memory may end
/// on the way.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
void attention(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
               const Eigen::MatrixBase<DV>& V, Batch<typename DQ::Scalar> Y, RowSums<typename DQ::Scalar, F>& rows,
               Workspace<typename DQ::Scalar>& workspace, const Options& options = {}) {
  detail::run_attention<Normalization, F>(transition, Q, K, V, Y, workspace, options,
                                          [&](const auto& call) { detail::RowSumsAccess::run(feature, call, rows); });
}

}  // namespace SYMPOW_NAMESPACE
