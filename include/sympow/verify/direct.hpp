// Attention by its definition, without blocks, states or shortcuts, in arithmetic of any type: what every form is
// measured against.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <sympow/simd/integer_power.hpp>
#include <sympow/transition/transition.hpp>
#include <sympow/verify/row_rule.hpp>

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// What rows are by definition, beside queries, keys and values. Tokens are 0 … T - 1; query i stands at token
/// i + mask.offset.
struct DirectCall {
  Score score = Score::power;          ///< which κ
  int degree = 1;                      ///< P of a power
  bool divided = false,                ///< rows are means: divided by the sums of their scores
      signed_means = false;            ///< whose scores may be of either sign
  Mask mask = {};                      ///< which keys a query sees
  std::vector<double> log_decay = {};  ///< log γ_t, T of them

  [[nodiscard]] Index tokens() const { return std::ssize(log_decay); }             ///< T
  [[nodiscard]] Index token_of(Index query) const { return query + mask.offset; }  ///< where query i stands
  /// The first of the keys that a query sees.
  [[nodiscard]] Index first(Index query) const { return std::max<Index>(0, token_of(query) - mask.window + 1); }
  /// The end of those of so many keys that a query sees.
  [[nodiscard]] Index end(Index query, Index keys) const {
    if (token_of(query) < 0) return 0;
    return mask.is_full ? keys : std::min(token_of(query) + 1, keys);
  }
};

/// A_tᵀ in key space, which moves keys on; none if it is the identity.
template <class Real>
using KeySteps = std::function<Matrix<Real>(Index)>;

/// x ← A x, every sum from its first term to its last.
template <class Real>
void apply(const Matrix<Real>& A, Real* x) {
  Vector<Real> image = Vector<Real>::Zero(A.rows());
  for (Index j = 0; j < A.cols(); ++j) image += A.col(j) * x[j];
  Vector<Real>::Map(x, image.size()) = image;
}

/// q_i and k_j multiplied by A_1 … A_t of their own tokens t, so that where A is orthogonal no M is left between them.
template <class Real>
void to_absolute_coordinates(const DirectCall& call, const KeySteps<Real>& key_step, Matrix<Real>& q, Matrix<Real>& k) {
  Matrix<Real> transposed = Matrix<Real>::Identity(k.rows(), k.rows());  // of A_1 … A_t
  for (Index t = 0; t < call.tokens(); ++t) {
    const Matrix<Real> step = key_step(t);
    for (Index c = 0; c < transposed.cols(); ++c) apply(step, transposed.data() + c * transposed.rows());
    const Matrix<Real> product = transposed.transpose();
    const Index i = t - call.mask.offset;
    if (0 <= i && i < q.cols()) apply(product, q.data() + i * q.rows());
    if (t < k.cols()) apply(product, k.data() + t * k.rows());
  }
}

/// ‖x‖ of n entries of any size.
template <class Real>
Real length_of(const Real* x, Index n) {
  using std::abs, std::sqrt, std::isfinite;
  Real largest(0), squares(0);
  for (Index i = 0; i < n; ++i) largest = std::max<Real>(largest, abs(x[i]));
  if (largest == Real(0) || !isfinite(largest)) return largest;
  for (Index i = 0; i < n; ++i) squares += (x[i] / largest) * (x[i] / largest);
  return largest * sqrt(squares);
}

/// max |x|.
template <class Real>
Real largest_of(const Matrix<Real>& x) {
  using std::abs;
  Real largest(0);
  for (Index n = 0; n < x.size(); ++n) largest = std::max<Real>(largest, abs(x.data()[n]));
  return largest;
}

/// e^x, exactly 0 where it has lost digits at the lower end of the type.
template <class Real>
Real exponential_or_zero(const Real& x) {
  using std::exp;
  const Real y = exp(x);
  return y < std::numeric_limits<Real>::min() ? Real(0) : y;
}

/// A sum that keeps what its roundings lose.
template <class Real>
class CompensatedSum {
 public:
  void add(const Real& x) {
    const Real corrected = x - lost_, sum = value_ + corrected;
    lost_ = (sum - value_) - corrected;
    value_ = sum;
  }
  [[nodiscard]] const Real& value() const { return value_; }

 private:
  Real value_{0}, lost_{0};
};

/// b_ij and s_ij = κ(x_ij) b_ij of the keys in a row, in units of e^shift; 0 for those that it does not see.
template <class Real>
struct RowScores {
  Real shift{0};
  Vector<Real> weights, scores;
};

/// Those of first ≤ j < end, from x_ij and log b_ij, -∞ behind a gate of 0, whatever x_ij is. Means do not see a common
/// factor: the largest weight is taken out of them, or that of the log `other` if it is larger.
template <class Real>
RowScores<Real> row_scores(const DirectCall& call, const Vector<Real>& logits, const Vector<Real>& log_weights,
                           Index first, Index end, Real other = Real(-std::numeric_limits<double>::infinity())) {
  const Real gone(-std::numeric_limits<double>::infinity());
  const bool exponential = call.score == Score::exponential;
  RowScores<Real> row{Real(0), Vector<Real>::Zero(logits.size()), Vector<Real>::Zero(logits.size())};
  for (Index j = first; j < end && call.divided; ++j)
    if (log_weights[j] > gone && (exponential || logits[j] != Real(0)))
      other = std::max<Real>(other, exponential ? logits[j] + log_weights[j] : log_weights[j]);
  if (call.divided && other > gone) row.shift = other;
  for (Index j = first; j < end; ++j) {
    if (log_weights[j] == gone) continue;
    const Real& b = row.weights[j] = exponential_or_zero<Real>(log_weights[j] - row.shift);
    if (exponential)
      row.scores[j] = exponential_or_zero<Real>(logits[j] + log_weights[j] - row.shift);
    else if (logits[j] != Real(0))  // b may be infinite
      row.scores[j] = b * integer_power(logits[j], call.degree);
  }
  return row;
}

/// What a row sees of the keys where the transition has taken them.
template <class Real>
struct DirectKeys {
  Vector<Real> log_weights, lengths, logits;
};

/// Row i, that of a query of this length.
template <class Real>
void set_row(DirectRows<Real>& rows, Index i, const DirectCall& call, const Real& query_length,
             const DirectKeys<Real>& keys, const Matrix<Real>& v) {
  using std::abs;
  const Index first = call.first(i), end = call.end(i, v.cols());
  const auto [shift, weights, scores] = row_scores(call, keys.logits, keys.log_weights, first, end);
  CompensatedSum<Real> denominator;
  std::vector<CompensatedSum<Real>> numerator(static_cast<std::size_t>(v.rows()));
  Real absolute(0);
  for (Index j = first; j < end; ++j) {
    if (keys.log_weights[j] == Real(-std::numeric_limits<double>::infinity())) continue;
    rows.window[i] += exponential_or_zero(keys.log_weights[j]);
    denominator.add(scores[j]);
    for (Index r = 0; r < v.rows(); ++r) numerator[static_cast<std::size_t>(r)].add(scores[j] * v(r, j));
    const Real lengths = keys.lengths[j] * query_length;
    if (call.score == Score::exponential)
      absolute += Real(scores[j] * (Real(1) + lengths));
    else if (lengths != Real(0))
      absolute += Real(weights[j] * integer_power(lengths, call.degree));
  }
  const Real& sum = denominator.value();
  rows.denominator[i] = sum;
  rows.condition[i] = call.divided ? Real(absolute / abs(sum)) : absolute;
  Real largest(0);
  for (Index r = 0; r < v.rows(); ++r) {
    const Real& entry = numerator[static_cast<std::size_t>(r)].value();
    rows.Y(r, i) = call.divided && sum != Real(0) ? Real(entry / sum) : entry;
    largest = std::max<Real>(largest, abs(rows.Y(r, i)));
  }
  if (call.signed_means && rows.largest_value > Real(0))  // a signed mean can leave the range of the values
    rows.condition[i] *= Real(1) + largest / rows.largest_value;
}

/// The rows of `direct_attention`. q holds the scale.
template <class Real>
DirectRows<Real> direct_rows(const DirectCall& call, const KeySteps<Real>& key_step, const Matrix<Real>& q,
                             Matrix<Real> k, const Matrix<Real>& v) {
  const Index T = q.cols(), d = q.rows(), n = k.cols();
  const Vector<Real> nothing = Vector<Real>::Zero(T), no_keys = Vector<Real>::Zero(n);
  DirectRows<Real> rows{Matrix<Real>::Zero(v.rows(), T), nothing, nothing, nothing, largest_of(v)};
  DirectKeys<Real> keys{no_keys, no_keys, no_keys};
  for (Index j = 0; j < n; ++j) keys.lengths[j] = length_of(k.data() + j * d, d);
  for (Index t = 0; t < call.tokens(); ++t) {
    const auto log_gamma = Real(call.log_decay[static_cast<std::size_t>(t)]);
    const Matrix<Real> step = key_step ? key_step(t) : Matrix<Real>();
    for (Index j = 0; j < std::min(t, n); ++j) {
      keys.log_weights[j] += log_gamma;
      if (!key_step || keys.log_weights[j] == Real(-std::numeric_limits<double>::infinity())) continue;
      apply(step, k.data() + j * d);
      keys.lengths[j] = length_of(k.data() + j * d, d);
    }
    const Index i = t - call.mask.offset;
    if (i < 0 || i >= T) continue;
    const Real* const query = q.data() + i * d;
    for (Index j = 0; j < call.end(i, n); ++j) {
      Real& logit = keys.logits[j] = Real(0);
      for (Index c = 0; c < d; ++c) logit += k.data()[c + j * d] * query[c];
    }
    set_row(rows, i, call, length_of(query, d), keys, v);
  }
  return rows;
}

/// Throws `ShapeMismatch` unless the arguments fit each other, and `InvalidArgument` for a full mask over what has a
/// direction. Tokens are those of the keys and those at which queries stand.
template <Transition A, class Real>
void check_direct_call(const A& transition, const Matrix<Real>& q, const Matrix<Real>& k, const Matrix<Real>& v,
                       const Mask& mask, Index tokens) {
  using sympow::detail::check_size;
  check_size("rows of K", k.rows(), q.rows(), "rows of Q");
  check_size("columns of V", v.cols(), k.cols(), "columns of K, one a token");
  if (mask.is_aligned()) check_size("columns of K", k.cols(), q.cols(), "columns of Q, one a token");
  if (transition.length() != Dynamic)
    check_size("length of the transition", transition.length(), tokens, "tokens of keys and queries");
  if (transition.key_dimension() != Dynamic)
    check_size("key dimension of the transition", transition.key_dimension(), q.rows(), "rows of Q");
  if (!mask.is_full) return;
  bool has_direction = A::key_action != KeyAction::none && A::key_action != KeyAction::turn;
  for (Index t = 0; t < tokens; ++t) has_direction = has_direction || transition.log_decay(t) != 0;
  if (has_direction)
    sympow::detail::raise<InvalidArgument>(
        "direct_attention: a full mask needs a transition without decay that leaves "
        "keys alone or turns them");
}

/// What arithmetic a definition is in unless the caller says otherwise: double, or the type of the queries if that is
/// larger.
template <class Real, class Scalar>
using direct_scalar_t = std::conditional_t<!std::is_void_v<Real>, Real,
                                           std::conditional_t<(sizeof(Scalar) > sizeof(double)), Scalar, double>>;

}  // namespace detail

/// Attention as the formula says, causal unless `Options::mask` says otherwise.
///
///     y_i = Σ_{j ≤ i} s_ij v_j  (/ Σ s_ij),   s_ij = κ(scale · q_iᵀ M_ij k_j) b_ij
///     M_ij = (A_{j+1} … A_i)ᵀ in key space
///     A_i = Σ_j b_ij (|scale| ‖q_i‖ ‖M_ij k_j‖)^P,   K_i = A_i / |Σ_j s_ij|
///
/// Shapes as in `attention`, any scalar type. Every number is a Real: `direct_attention<DefaultNormalization, long
/// double>(…)`; by default a double, or the type of Q if that is larger. A Real of your own is one that Eigen keeps in
/// matrices, with `abs`, `sqrt`, `exp` and `isfinite` beside it. Gates and the dense A_i are what the transition says
/// of them, in double; φ of a feature map of its own kind is taken in Real. Every key is moved on by the dense A_i at
/// every step: O(T² d²) operations where the transition acts on keys, else O(T² d). For an exponential score the weight
/// of a pair in A_i is e^s (1 + |scale| ‖q‖ ‖k‖). Options other than the scale and the mask have no meaning here.
/// Throws `ShapeMismatch`, `InvalidArgument`.
template <class Normalization = DefaultNormalization, class Real = void, FeatureMap F, Transition A, class DQ, class DK,
          class DV>
[[nodiscard]] auto direct_attention([[maybe_unused]] const F& feature, const A& transition,
                                    const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                    const Eigen::MatrixBase<DV>& V, const Options& options = {}) {
  using R = detail::direct_scalar_t<Real, typename DQ::Scalar>;
  Matrix<R> q = Q.template cast<R>(), k = K.template cast<R>();
  const Matrix<R> v = V.template cast<R>();
  const Index tokens = std::max(k.cols(), q.cols() + options.mask.offset);
  detail::check_direct_call(transition, q, k, v, options.mask, tokens);
  for (Index n = 0; n < q.size(); ++n) q.data()[n] *= R(options.scale);

  detail::DirectCall call{.score = F::score,
                          .divided = divides<Normalization, F>,
                          .signed_means = std::is_same_v<Normalization, SignedNormalized>,
                          .mask = options.mask};
  detail::KeySteps<R> key_step;
  for (Index t = 0; t < tokens; ++t) call.log_decay.push_back(transition.log_decay(t));
  if constexpr (A::key_action != KeyAction::none) {
    key_step = [&, d = q.rows()](Index t) -> Matrix<R> {
      const Eigen::MatrixXd step = transition.key_matrix(t, d);
      sympow::detail::check_size("rows of key_matrix", step.rows(), d, "d, those of K");
      sympow::detail::check_size("columns of key_matrix", step.cols(), d, "d, those of K");
      return step.transpose().template cast<R>();
    };
    if (F::score == Score::embedded || options.mask.is_full) {
      detail::to_absolute_coordinates(call, key_step, q, k);
      key_step = nullptr;
    }
  }
  if constexpr (F::score == Score::power) call.degree = F::degree;
  if constexpr (F::score == Score::embedded)
    for (Matrix<R>* x : {&q, &k}) {
      Matrix<R> phi(feature.dimension(x->rows()), x->cols());
      feature.embed(std::as_const(*x), phi);
      *x = std::move(phi);
    }
  return detail::direct_rows(call, key_step, q, std::move(k), v);
}

}  // namespace SYMPOW_NAMESPACE::verify

/// Instantiates the definition for one type; LINKAGE is `extern` where another file does.
#define SYMPOW_DIRECT(LINKAGE, Real)                                                                           \
  namespace sympow::verify::detail {                                                                           \
  LINKAGE template void apply(const Matrix<Real>&, Real*);                                                     \
  LINKAGE template void to_absolute_coordinates(const DirectCall&, const KeySteps<Real>&, Matrix<Real>&,       \
                                                Matrix<Real>&);                                                \
  LINKAGE template DirectRows<Real> direct_rows(const DirectCall&, const KeySteps<Real>&, const Matrix<Real>&, \
                                                Matrix<Real>, const Matrix<Real>&);                            \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_DIRECT(extern, double)
SYMPOW_DIRECT(extern, long double)
#endif
