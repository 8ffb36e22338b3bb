// What the attention form leaves of its rows, for its gradients.
#pragma once

#include <sympow/detail/forms.hpp>
#include <sympow/detail/segment_backward.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {
struct RowSumsAccess;
}  // namespace detail

/// The tape of the attention form: the rows y_i of a call and the sums Σ_j s_ij that they were divided by, 0 for rows
/// without weight. `attention` fills it and `attention_vjp` takes it, which then need not compute the forward pass
/// again. Memory: e numbers and two of double a row, which the next call uses again. Gradients are the same bit for bit
/// as without, except under channel decay, where both are right. Queries, keys, values and transition are not kept:
/// they must be the same.
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
  static void run(const F& feature, ForwardCall<S> call, RowSums<S, F>& rows) {
    std::vector<RowSum> sums;
    std::swap(sums, rows.sums_);
    sums.resize(static_cast<std::size_t>(call.Y.cols()));
    resize_safely(rows.Y_, call.Y.rows(), call.Y.cols());
    call.sums = sums.data();
    AttentionForm<S, F>::run(feature, call);
    rows.Y_ = call.Y;
    rows.kind_ = call.rows, rows.scale_ = call.options.scale, rows.mask_ = call.options.mask;
    std::swap(sums, rows.sums_);
  }

  static const auto& sums(const auto& rows) { return rows.sums_; }
  static const auto& Y(const auto& rows) { return rows.Y_; }
  static RowKind kind(const auto& rows) { return rows.kind_; }
  static double scale(const auto& rows) { return rows.scale_; }
  static const Mask& mask(const auto& rows) { return rows.mask_; }
};
}  // namespace detail

}  // namespace SYMPOW_NAMESPACE
