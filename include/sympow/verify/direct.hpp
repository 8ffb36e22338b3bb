// Attention by its definition, in double, without blocks, states or shortcuts: what every form is measured against.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <sympow/attention/engine/checks.hpp>
#include <sympow/core/integer_power.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Rows by the definition, with what the row rule needs.
struct DirectRows {
  Matrix<double> Y;             ///< e × T
  Eigen::VectorXd denominator;  ///< Σ_j s_ij
  Eigen::VectorXd condition;    ///< K_i for normalised rows, A_i for sums, K_i (1 + |Y_i| / max|V|) for signed means
  Eigen::VectorXd window;       ///< Σ_j b_ij, tokens inside the gate's effective window
  double largest_value = 0;     ///< max |V|
};

namespace detail {

/// What a definition is made of beside its tokens, whatever the feature map and the transition.
struct DirectCall {
  int degree = 1;                                        ///< scores are s^P; 0 for e^s
  bool sums = false, signed_means = false;               ///< what becomes of rows
  std::vector<double> log_decay = {};                    ///< log γ_i
  std::function<Matrix<double>(Index)> key_matrix = {};  ///< A_i in key space; none if it is the identity
};

/// x ← Aᵀ x. Every sum is added up from its first term to its last; four go side by side, for one alone waits for its own additions.
inline void multiply_by_transpose(const Matrix<double>& A, double* x) {
  const Index rows = A.rows(), cols = A.cols();
  std::vector<double> image(static_cast<std::size_t>(cols));
  for (Index j = 0; j < cols; j += 4) {
    const auto column = [&](Index n) { return A.data() + std::min(j + n, cols - 1) * rows; };
    const double *const a = column(0), *const b = column(1), *const c = column(2), *const d = column(3);
    double a_x = 0, b_x = 0, c_x = 0, d_x = 0;
    for (Index i = 0; i < rows; ++i) {
      a_x += a[i] * x[i];
      b_x += b[i] * x[i];
      c_x += c[i] * x[i];
      d_x += d[i] * x[i];
    }
    const double sums[4] = {a_x, b_x, c_x, d_x};
    std::copy_n(sums, std::min<Index>(4, cols - j), image.data() + j);
  }
  std::copy(image.begin(), image.end(), x);
}

/// Queries and keys turned by A_1 … A_i, so that embedded scores, which have no M between q and k, need none.
inline void to_absolute_coordinates(const std::function<Matrix<double>(Index)>& key_matrix, Matrix<double>& q,
                                    Matrix<double>& k) {
  Matrix<double> transposed = Matrix<double>::Identity(q.rows(), q.rows());  // of A_1 … A_i
  for (Index i = 0; i < q.cols(); ++i) {
    const Matrix<double> A = key_matrix(i);
    for (Index j = 0; j < q.rows(); ++j) multiply_by_transpose(A, &transposed(0, j));
    multiply_by_transpose(transposed, q.data() + i * q.rows());
    multiply_by_transpose(transposed, k.data() + i * q.rows());
  }
}

/// ‖x‖ of n entries of any size.
inline double length_of(const double* x, Index n) {
  double largest = 0, squares = 0;
  for (Index i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  if (largest == 0 || !std::isfinite(largest)) return largest;
  for (Index i = 0; i < n; ++i) squares += (x[i] / largest) * (x[i] / largest);
  return largest * std::sqrt(squares);
}

/// max |x|.
inline double largest_of(const Matrix<double>& x) {
  double largest = 0;
  for (Index n = 0; n < x.size(); ++n) largest = std::max(largest, std::abs(x.data()[n]));
  return largest;
}

/// e^x, exactly 0 below e^-708.
inline double exponential(double x) { return x < -708 ? 0 : std::exp(x); }

/// A sum that keeps what its roundings lose.
class CompensatedSum {
 public:
  void add(double x) {
    const double corrected = x - lost_, sum = value_ + corrected;
    lost_ = (sum - value_) - corrected;
    value_ = sum;
  }
  [[nodiscard]] double value() const { return value_; }

 private:
  double value_ = 0, lost_ = 0;
};

/// The rows of `direct_attention`. q holds the scale.
inline DirectRows direct_rows(const DirectCall& call, const Matrix<double>& q, Matrix<double> k,
                              const Matrix<double>& v) {
  const Index T = q.cols(), d = q.rows(), e = v.rows();
  DirectRows rows{Matrix<double>(e, T), Eigen::VectorXd(T), Eigen::VectorXd(T), Eigen::VectorXd(T), largest_of(v)};
  struct Key {
    double log_b = 0, length = 0, logit = 0;
  };
  std::vector<Key> keys;
  for (Index i = 0; i < T; ++i) {
    const double* const query = q.data() + i * d;
    const double log_gamma = call.log_decay[static_cast<std::size_t>(i)], query_length = length_of(query, d);
    const Matrix<double> A = call.key_matrix ? call.key_matrix(i) : Matrix<double>();
    for (Index j = 0; j < i; ++j) {
      Key& key = keys[static_cast<std::size_t>(j)];
      key.log_b += log_gamma;
      if (!call.key_matrix) continue;
      multiply_by_transpose(A, k.data() + j * d);
      key.length = length_of(k.data() + j * d, d);
    }
    keys.push_back({0, length_of(k.data() + i * d, d), 0});
    double shift = -std::numeric_limits<double>::infinity();
    for (Index j = 0; j <= i; ++j) {
      Key& key = keys[static_cast<std::size_t>(j)];
      key.logit = 0;
      for (Index c = 0; c < d; ++c) key.logit += k.data()[c + j * d] * query[c];
      shift = std::max(shift, key.logit + key.log_b);
    }
    if (call.sums) shift = 0;

    CompensatedSum denominator;
    std::vector<CompensatedSum> numerator(static_cast<std::size_t>(e));
    double absolute = 0, window = 0;
    for (Index j = 0; j <= i; ++j) {
      const auto& [log_b, length, s] = keys[static_cast<std::size_t>(j)];
      const double b = exponential(log_b), lengths = length * query_length;
      const double score = call.degree > 0 ? b * integer_power(s, call.degree) : exponential(s + log_b - shift);
      denominator.add(score);
      for (Index r = 0; r < e; ++r) numerator[static_cast<std::size_t>(r)].add(score * v.data()[r + j * e]);
      absolute += call.degree > 0 ? b * integer_power(lengths, call.degree) : score * (1 + lengths);
      window += b;
    }
    rows.denominator[i] = denominator.value();
    rows.window[i] = window;
    rows.condition[i] = call.sums ? absolute : absolute / std::abs(denominator.value());
    double largest = 0;
    for (Index r = 0; r < e; ++r) {
      const double sum = numerator[static_cast<std::size_t>(r)].value();
      rows.Y(r, i) = call.sums || denominator.value() == 0 ? sum : sum / denominator.value();
      largest = std::max(largest, std::abs(rows.Y(r, i)));
    }
    if (call.signed_means && rows.largest_value > 0)  // a signed mean can leave the range of the values
      rows.condition[i] *= 1 + largest / rows.largest_value;
  }
  return rows;
}

}  // namespace detail

/// Causal attention in double, as the formula says.
///
///     y_i = Σ_{j ≤ i} s_ij v_j  (/ Σ s_ij),   s_ij = κ(scale · q_iᵀ M_ij k_j) b_ij,   M_ij = (A_{j+1} … A_i)ᵀ in key space
///     A_i = Σ_j b_ij (|scale| ‖q_i‖ ‖M_ij k_j‖)^P,   K_i = A_i / |Σ_j s_ij|
///
/// Shapes as in `attention`, any scalar type. Every key is moved on by the dense A_i at every step: O(T² d²) operations where the
/// transition acts on keys, else O(T² d). For an exponential score the weight of a pair in A_i is e^s (1 + |scale| ‖q‖ ‖k‖).
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] DirectRows direct_attention([[maybe_unused]] const F& feature, const A& transition,
                                          const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                          const Eigen::MatrixBase<DV>& V, const Options& options = {}) {
  constexpr sympow::detail::RowKind kind = sympow::detail::row_kind<Normalization, F>();
  Matrix<double> q = Q.template cast<double>(), k = K.template cast<double>();
  const Matrix<double> v = V.template cast<double>();
  sympow::detail::check_call(transition, q, k, v, options);
  for (Index n = 0; n < q.size(); ++n) q.data()[n] *= options.scale;

  detail::DirectCall call{.sums = kind == sympow::detail::RowKind::sums,
                          .signed_means = kind == sympow::detail::RowKind::signed_means};
  for (Index i = 0; i < q.cols(); ++i) call.log_decay.push_back(transition.log_decay(i));
  if constexpr (A::key_action != KeyAction::none)
    call.key_matrix = [&, d = q.rows()](Index i) -> Matrix<double> { return transition.key_matrix(i, d); };
  if constexpr (F::score == Score::power) {
    call.degree = F::degree;
  } else if constexpr (F::score == Score::exponential) {
    call.degree = 0;
  } else {
    if (call.key_matrix) detail::to_absolute_coordinates(call.key_matrix, q, k);
    call.key_matrix = nullptr;
    for (Matrix<double>* x : {&q, &k}) {
      Matrix<double> phi(feature.dimension(x->rows()), x->cols());
      feature.embed(std::as_const(*x), phi);
      *x = std::move(phi);
    }
  }
  return detail::direct_rows(call, q, std::move(k), v);
}

/// Whether a row says nothing: its scores cancel to within what the state forms can tell from zero, 16 u A_i.
[[nodiscard]] inline bool degenerate(const DirectRows& rows, Index i, double unit) {
  return rows.denominator[i] == 0 || !(rows.condition[i] * 16 * unit < 1);
}

namespace detail {

/// `row_rule` in double. Chunks are cut into pieces of `shortest_piece` tokens or more, up to `most_pieces` to a window.
inline double row_rule(const DirectRows& rows, const Matrix<double>& a, const Matrix<double>& b, double unit,
                       double tokens_per_update, bool sums, double most_pieces) {
  constexpr double shortest_piece = 8;
  sympow::detail::check_size("columns of Y", a.cols(), rows.Y.cols(), "rows that were evaluated");
  sympow::detail::check_size("columns of the other Y", b.cols(), rows.Y.cols(), "rows that were evaluated");
  const bool has_chunks = 1 < tokens_per_update && std::isfinite(tokens_per_update);
  double worst = 0;
  for (Index i = 0; i < rows.Y.cols(); ++i) {
    if (rows.Y.rows() == 0 || (!sums && degenerate(rows, i, unit))) continue;
    double difference = 0;
    for (Index r = 0; r < a.rows(); ++r) {
      const double entry = std::abs(a(r, i) - b(r, i));
      difference = entry <= difference ? difference : entry;  // one that is not a number stays
      if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    }
    const double pieces = has_chunks ? std::min(rows.window[i] / shortest_piece, most_pieces) : 0;
    const double updates = std::max(rows.window[i] / tokens_per_update, pieces);
    const double allowed = 4 * unit * rows.condition[i] * rows.largest_value * (1 + std::sqrt(updates));
    const double ratio = difference == 0 ? 0 : difference / allowed;
    worst = ratio <= worst ? worst : std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
  }
  return worst;
}

}  // namespace detail

/// The row rule: how far two results are apart, in units of what their arithmetic excuses; at most 1 is agreement.
///
///     max_i |ΔY_i| / (4 u · K_i · max|V| · (1 + √n_i))
///
/// n_i = window_i / tokens_per_update, the updates of whichever side makes more of them: 1 for a recurrence, and for the definition
/// where it moves keys on token by token; the chunk for the chunked form; infinity (no updates) for the attention form. Chunks under gates
/// that close fast are cut into pieces, of 8 tokens or more and in double up to four to a window, which then are the updates. Degenerate rows
/// of means are not compared. A result that is not finite gives infinity.
template <class Normalization = DefaultNormalization, FeatureMap F, class DA, class DB>
[[nodiscard]] double row_rule(const DirectRows& rows, const Eigen::MatrixBase<DA>& a, const Eigen::MatrixBase<DB>& b,
                              double unit, double tokens_per_update = 1) {
  constexpr bool sums = sympow::detail::row_kind<Normalization, F>() == sympow::detail::RowKind::sums;
  constexpr double most_pieces = std::is_same_v<typename DA::Scalar, double> ? 4 : 2. / 27;
  return detail::row_rule(rows, a.template cast<double>(), b.template cast<double>(), unit, tokens_per_update, sums,
                          most_pieces);
}

}  // namespace SYMPOW_NAMESPACE::verify
