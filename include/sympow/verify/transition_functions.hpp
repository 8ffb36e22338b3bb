// The functions of a transition, one by one, against products of its dense A_i: what takes a form some hundred tokens
// to call, or to be seen in its rows, is called here whatever the length.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <sympow/core/random.hpp>
#include <sympow/transition/transition.hpp>
#include <sympow/verify/direct.hpp>
#include <sympow/verify/proposition.hpp>
#include <sympow/verify/residual.hpp>

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// Columns that dense matrices move, one token after the other.
class MovedColumns {
 public:
  template <class Scalar>
  explicit MovedColumns(const Matrix<Scalar>& X)
      : columns_(X.template cast<double>()), largest_length_(columns_.colwise().norm().maxCoeff()) {}

  /// X ← A X of some columns.
  void move(const Eigen::MatrixXd& A, Index first, Index count) {
    if (count == 0) return;
    for (Index n = first; n < first + count; ++n) apply(A, columns_.col(n).data());
    largest_length_ = std::max(largest_length_, columns_.middleCols(first, count).colwise().norm().maxCoeff());
    ++steps_;
  }

  /// The largest |ΔX| from `found`, in units of what rounding explains: at each step u by each of the d products and by
  /// the four roundings of an entry of A and of a sum, of the largest length that a column has had.
  template <class Derived>
  [[nodiscard]] Residual from(const char* function, const Eigen::MatrixBase<Derived>& found) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double apart = (found.template cast<double>() - columns_).template lpNorm<Eigen::Infinity>();
    const auto roundings = static_cast<double>(std::max<Index>(steps_, 1) * (columns_.rows() + 4));
    double ratio = apart == 0 ? 0 : apart / (roundings * unit_roundoff<typename Derived::Scalar> * largest_length_);
    if (!found.allFinite() || !(ratio >= 0)) ratio = infinity;
    return {ratio, 1, function};
  }

 private:
  Matrix<double> columns_;
  double largest_length_;
  Index steps_ = 0;
};

/// The functions of a transition over one segment, each from what it has to be. The first that is wrong is the one that
/// counts, for others are made of it.
template <class Scalar>
Residual residual_of_functions(const TransitionView<Scalar>& transition,
                               const std::function<Eigen::MatrixXd(Index)>& key_matrix, Segment s, Index d) {
  const bool scales = transition.key_action() == KeyAction::scale, mixes = transition.key_action() == KeyAction::mix;
  Random random(1);
  const Matrix<Scalar> queries = random.matrix<Scalar>(d, s.size), keys = random.matrix<Scalar>(d, s.size);
  MovedColumns pulled(queries), pushed(keys), at_start(queries), at_end(keys);
  if (scales || mixes)
    for (Index t = 0; t < s.size; ++t) {
      const Eigen::MatrixXd first = key_matrix(s.begin + t), last = key_matrix(s.end() - 1 - t);
      pushed.move(first.transpose(), 0, s.size);
      at_end.move(first.transpose(), 0, t);
      pulled.move(last, 0, s.size);
      at_start.move(last, s.size - 1 - t, t + 1);
    }
  Residual found{0, 1};
  const auto add = [&](const char* function, const MovedColumns& expected, const auto& columns) {
    if (found.holds()) found = worse(found, expected.from(function, columns));
  };
  Matrix<Scalar> Q = queries, K = keys;
  transition.apply_to_queries(s, Q);  // what turns or leaves keys alone has nothing to apply_to_queries
  add("apply_to_queries", pulled, Q);
  if (transition.moves_states() && mixes) {
    transition.apply_to_keys(s, K);
    add("apply_to_keys", pushed, K);
    Matrix<Scalar> X = keys.transpose();
    transition.apply_to_state(s, X);
    add("apply_to_state", pushed, X.transpose());
  }
  if (transition.moves_states() && scales) {
    Eigen::VectorXd totals;
    transition.log_channel_totals(s, totals);
    add("log_channel_totals", pushed,
        (totals.array().exp().matrix().asDiagonal() * keys.template cast<double>()).template cast<Scalar>().eval());
  }
  if (!scales && !mixes) return found;
  Frame frame;
  Q = queries, K = keys;
  transition.to_segment_frame(frame, s, Q, K, no_logits<Scalar>());
  add("to_segment_frame of queries", at_start, Q);
  add("to_segment_frame of keys", at_end, K);
  return found;
}

}  // namespace detail

/// What a transition says of a segment a … b, each function against products of `key_matrix`:
///
///     apply_to_queries                  A_a … A_b Q
///     apply_to_keys, apply_to_state         (A_a … A_b)ᵀ K and X A_a … A_b, where the transition has them
///     log_channel_totals    log of the diagonal of A_a … A_b, where it has them
///     to_segment_frame             A_a … A_i q_i and (A_{j+1} … A_b)ᵀ k_j, for what scales or mixes
///
/// `tokens` are those of a call; two segments are taken of the first 16 or fewer, one behind the other. The columns are
/// random. The residual is that of the first function that is wrong, by name: the largest |Δ| of an entry, in units of
/// u (d + 4) by token and of the largest length of a column on the way; bound 1. Cost: some n² d² operations, n ≤ 16.
template <class Scalar, Transition A>
[[nodiscard]] Residual transition_residual(const A& transition, Index tokens, Index d) {
  const sympow::detail::ViewOf<Scalar, A> view(transition);
  const auto key_matrix = [&](Index i) -> Eigen::MatrixXd { return transition.key_matrix(i, d); };
  const Index n = std::min<Index>(tokens, 16), half = n / 2;
  Residual found{0, 1};
  for (const Segment s : {Segment{0, half}, Segment{half, n - half}})
    if (found.holds() && s.size > 0)
      found = worse(found, detail::residual_of_functions<Scalar>(view, key_matrix, s, d));
  return found;
}

}  // namespace SYMPOW_NAMESPACE::verify

/// Instantiates it for one scalar type; LINKAGE is `extern` where another file does.
#define SYMPOW_TRANSITION_FUNCTIONS(LINKAGE, Scalar)                                                                \
  LINKAGE template sympow::verify::Residual sympow::verify::detail::residual_of_functions(                          \
      const sympow::TransitionView<Scalar>&, const std::function<Eigen::MatrixXd(sympow::Index)>&, sympow::Segment, \
      sympow::Index);

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_TRANSITION_FUNCTIONS(extern, float)
SYMPOW_TRANSITION_FUNCTIONS(extern, double)
#endif
