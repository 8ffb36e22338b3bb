// Every pair of a row and a key of a call: its logit, its weight and its score, by the definition in long double.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <sympow/verify/gradient_call.hpp>

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A x, or x where A is empty.
inline Vector<Wide> image(const Matrix<Wide>& A, const Vector<Wide>& x) {
  return A.size() == 0 ? x : Vector<Wide>(A.lazyProduct(x));
}
/// Aᵀ x, or x where A is empty.
inline Vector<Wide> transposed_image(const Matrix<Wide>& A, const Vector<Wide>& x) {
  return A.size() == 0 ? x : Vector<Wide>(A.transpose().lazyProduct(x));
}
/// X += factor a bᵀ.
inline void add_outer(Matrix<Wide>& X, Wide factor, const Vector<Wide>& a, const Vector<Wide>& b) {
  for (Index j = 0; j < X.cols(); ++j)
    for (Index i = 0; i < X.rows(); ++i) X(i, j) += factor * a[i] * b[j];
}

/// A column under all products of steps that begin or end at its token.
class Path {
 public:
  /// Of a column at a token of a call; -1 is before the first.
  Path(const GradientCall& call, Vector<Wide> x, Index token) : token_(token) {
    const auto step = [&](Index t) -> const Matrix<Wide>& {
      return call.steps.empty() ? call.frame : call.steps[static_cast<std::size_t>(t)];
    };
    const bool moves = !call.steps.empty();
    pulled_.push_back(x);
    for (Index t = token; t >= 0; --t) pulled_.push_back(moves ? image(step(t), pulled_.back()) : x);
    std::reverse(pulled_.begin(), pulled_.end());
    pushed_.push_back(x);
    for (Index t = std::max<Index>(token + 1, 0); t < call.tokens(); ++t)  // a query may stand before all
      pushed_.push_back(moves ? transposed_image(step(t), pushed_.back()) : x);
    absolute_ = image(call.frame, pulled_.front());
  }
  /// A_{t+1} … A_τ x, -1 ≤ t ≤ τ.
  [[nodiscard]] const Vector<Wide>& pulled(Index t) const { return pulled_[static_cast<std::size_t>(t + 1)]; }
  /// (A_{τ+1} … A_t)ᵀ x, t ≥ τ.
  [[nodiscard]] const Vector<Wide>& pushed(Index t) const { return pushed_[static_cast<std::size_t>(t - token_)]; }
  /// A_0 A_1 … A_τ x, A_0 being the frame.
  [[nodiscard]] const Vector<Wide>& absolute() const { return absolute_; }
  [[nodiscard]] Index token() const { return token_; }

 private:
  Index token_;
  std::vector<Vector<Wide>> pulled_, pushed_;
  Vector<Wide> absolute_;
};

/// φ and Dφ of a column.
struct Embedded {
  Vector<Wide> phi = {};
  Matrix<Wide> jacobian = {};
  Embedded(const DenseFeature& feature, const Vector<Wide>& x) { feature.evaluate(x, phi, jacobian); }
};

}  // namespace detail

/// Rows and pairs of a call.
///
///     s_ij = κ(x_ij) b_ij,   n⁺_i = Σ_j s_ij [v_j; 1] + b_0i [S_0; Z_0] φ(A_0 … A_i q'_i),   q' = scale · q
///
/// Weights and sums of a mean carry a common factor e^{-shift} of their row, so that none of them leaves the type.
struct GradientPairs {
  std::vector<detail::Path> queries,             ///< q' on their ways
      keys;                                      ///< k on theirs
  std::vector<detail::Embedded> query_features,  ///< of A_0 … A_i q'_i, for embedded scores or an initial state
      key_features;                              ///< of absolute keys, for embedded scores
  Matrix<Wide> logits,                           ///< x_ij, T_k × T_q; of embedded scores φ·φ
      log_weights,                               ///< log b_ij, T_k × T_q, -∞ for a key that is not seen
      weights,                                   ///< b_ij, T_k × T_q
      scores,                                    ///< s_ij, T_k × T_q
      state_reads;                               ///< [S_0; Z_0] φ, (e + 1) × T_q
  Vector<Wide> state_weights,                    ///< b_0i
      shift,                                     ///< by row, 0 for sums
      denominator;                               ///< the last of n⁺_i
  Matrix<Wide> Y;                                ///< rows, e × T_q: the others, divided by it in means
  std::vector<bool> is_degenerate;               ///< rows of means with a sum of 0

  /// Throws as `GradientCall::check`.
  explicit GradientPairs(const GradientCall& call);

  /// Σ log γ_t of the tokens first ≤ t ≤ last, -∞ for a closed gate.
  static Wide log_weight(const GradientCall& call, Index first, Index last) {
    Wide sum = 0;
    for (Index t = first; t <= last; ++t) sum += static_cast<Wide>(call.log_decay[static_cast<std::size_t>(t)]);
    return sum;
  }

 private:
  void set_logits(const GradientCall& call);
  void set_row(const GradientCall& call, Index i);
};

// ---- how it is done ----

inline GradientPairs::GradientPairs(const GradientCall& call) {
  call.check();
  const Index m = call.Q.cols(), n = call.K.cols(), e = call.V.rows();
  for (Index i = 0; i < m; ++i) queries.emplace_back(call, call.scale * call.Q.col(i), call.token_of(i));
  for (Index j = 0; j < n; ++j) keys.emplace_back(call, call.K.col(j), j);
  const bool is_embedded = call.score == Score::embedded;
  for (std::size_t i = 0; i < queries.size() && (is_embedded || call.initial.size() > 0); ++i)
    query_features.emplace_back(call.feature, queries[i].absolute());
  for (std::size_t j = 0; j < keys.size() && is_embedded; ++j)
    key_features.emplace_back(call.feature, keys[j].absolute());
  weights.setZero(n, m);
  scores.setZero(n, m);
  state_reads.setZero(e + 1, m);
  state_weights.setZero(m);
  shift.setZero(m);
  denominator.setZero(m);
  Y.setZero(e, m);
  is_degenerate.assign(static_cast<std::size_t>(m), false);
  set_logits(call);
  for (Index i = 0; i < m; ++i)
    if (call.token_of(i) >= 0) set_row(call, i);
}

inline void GradientPairs::set_logits(const GradientCall& call) {
  const Index m = call.Q.cols(), n = call.K.cols();
  logits.setZero(n, m);
  log_weights.setConstant(n, m, -std::numeric_limits<Wide>::infinity());
  for (Index i = 0; i < m; ++i)
    for (Index j = call.first(i); j < call.seen(i); ++j) {
      const auto& query = queries[static_cast<std::size_t>(i)];
      const auto& key = keys[static_cast<std::size_t>(j)];
      const Index at = query.token();
      log_weights(j, i) = log_weight(call, j + 1, at);
      if (call.score == Score::embedded)
        logits(j, i) =
            query_features[static_cast<std::size_t>(i)].phi.dot(key_features[static_cast<std::size_t>(j)].phi);
      else
        logits(j, i) = (j <= at ? key.pushed(at) : key.pulled(at)).dot(query.pulled(at));
    }
}

inline void GradientPairs::set_row(const GradientCall& call, Index i) {
  constexpr Wide nothing = -std::numeric_limits<Wide>::infinity();
  const Index e = call.V.rows();
  const bool reads_state = call.initial.size() > 0;
  const Wide log_state = log_weight(call, 0, call.token_of(i));
  if (reads_state) state_reads.col(i) = detail::image(call.initial, query_features[static_cast<std::size_t>(i)].phi);
  const auto [common, b, s] =
      detail::row_scores<Wide>(call, logits.col(i), log_weights.col(i), call.first(i), call.seen(i),
                               reads_state && state_reads(e, i) != 0 ? log_state : nothing);
  shift[i] = common, weights.col(i) = b, scores.col(i) = s;
  Vector<Wide> sums = Vector<Wide>::Zero(e + 1);
  for (Index j = call.first(i); j < call.seen(i); ++j) {
    if (log_weights(j, i) == nothing) continue;  // behind a closed gate, whatever it is
    for (Index r = 0; r < e; ++r) sums[r] += s[j] * call.V(r, j);
    sums[e] += s[j];
  }
  if (reads_state && log_state > nothing) {
    state_weights[i] = std::exp(log_state - shift[i]);
    for (Index r = 0; r <= e; ++r) sums[r] += state_weights[i] * state_reads(r, i);
  }
  denominator[i] = sums[e];
  is_degenerate[static_cast<std::size_t>(i)] = call.divided && sums[e] == 0;
  Y.col(i) = sums.head(e) / (call.divided && sums[e] != 0 ? sums[e] : 1);
}

}  // namespace SYMPOW_NAMESPACE::verify
