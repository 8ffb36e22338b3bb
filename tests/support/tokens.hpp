// A sequence as numbers, its rows by the definition in long double, and the row rule against them.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include <sympow/attention/diagnostics.hpp>
#include <sympow/attention/options.hpp>
#include <sympow/simd/integer_power.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

namespace sympow::test {

using Real = long double;

/// Queries, keys, values and what lies between them. An empty part of the transition is not there.
struct Tokens {
  Eigen::MatrixXd Q, K, V;
  Eigen::VectorXd log_gamma = {};         ///< T
  Eigen::VectorXd theta = {}, beta = {};  ///< d/2 and T
  Eigen::MatrixXd log_a = {};             ///< d × T
  double scale = 1;
  Pairing pairing = Pairing::interleaved;  ///< of what θ turns
  Eigen::MatrixXd w = {};                  ///< d × T, a Householder chain
  Eigen::VectorXd strength = {};           ///< and its T strengths
  Mask mask = {};                          ///< which lets queries and keys differ in number

  [[nodiscard]] Index size() const { return Q.cols(); }
  /// T, those of keys and those at which queries stand.
  [[nodiscard]] Index tokens() const { return std::max(K.cols(), Q.cols() + mask.offset); }

  /// The tokens of a segment.
  [[nodiscard]] Tokens segment(Segment s) const;

  /// Rounds queries, keys and values to a scalar type, so that a reference sees what a call sees.
  template <class Scalar>
  void round_to() {
    for (Eigen::MatrixXd* x : {&Q, &K, &V, &w}) *x = x->cast<Scalar>().template cast<double>().eval();
  }

  /// Calls f with the library's transition.
  template <class F>
  decltype(auto) with_transition(F&& f) const {
    const Decay gates = decay(log_gamma.size() > 0 ? log_gamma : Eigen::VectorXd::Zero(tokens()).eval());
    if (log_a.size() > 0) return f(channel_decay(log_a) * gates);
    if (theta.size() > 0)
      return f(gates * rotary(theta, beta.size() > 0 ? beta : Eigen::VectorXd::Ones(tokens()).eval(), pairing));
    return f(gates);
  }
};

/// Rows by the definition, with what the rule needs.
struct ReferenceRows {
  Matrix<Real> Y;            ///< e × T, divided by their sums if `means`
  Vector<Real> denominator;  ///< Σ_j s_ij, for means up to a factor that `absolute` and `bound` share
  Vector<Real> absolute;     ///< A_i = Σ_j b_ij (|scale| ‖q_i‖ ‖M_ij k_j‖)^P
  Vector<Real> bound;        ///< the same with every channel as slow as the slowest, to which a state keeps it
  Vector<Real>
      /// Σ_j b_ij |scale| ‖q_i‖ ‖M_ij k_j‖ |s_ij/b_ij|^{(P-1)/P}, what the rounding of logits moves, divided likewise
      direct;
  Vector<Real>
      /// n_i = Σ_j b_ij, by the slowest channel, or the age of the mean weight where keys shrink faster than that
      window;
  Vector<Real> largest;  ///< max |v_j| over the keys that it sees
  Vector<Real>
      /// Σ_j |s_ij| |log b_ij|, channels included, divided likewise: what one rounding of every log b moves
      forgotten;
  int P = 1;
  Index d = 1;  ///< of keys
  bool means = false, turned = false;
  bool exponential = false;  ///< then `bound` is max_j |scale| ‖q_i‖ ‖k_j‖, to which the rounding of logits is relative

  /// Some of the rows, and the last n.
  [[nodiscard]] ReferenceRows part(Index begin, Index size) const;
  [[nodiscard]] ReferenceRows last(Index n) const { return part(Y.cols() - n, n); }

  [[nodiscard]] Real condition(Index i) const { return absolute[i] / std::abs(denominator[i]); }
};

/// Angles by the definition, or rounded to double and reduced mod 2π at every step as the contract has it: the latter
/// is for rows in double, which see the difference.
enum class AngleSums { exact, in_double };

/// φ of all columns, for scores φ(q)·φ(k).
using Embedding = std::function<Matrix<Real>(const Matrix<Real>&)>;

/// y_i = Σ_{j ≤ i} b_ij (scale q_iᵀ M_ij k_j)^P v_j, divided by its sum of weights if `means`; P = 0 is the exponential
/// of the logit, with b_ij behind it. An embedding is taken of what the transition has turned, with P = 1.
[[nodiscard]] ReferenceRows reference_rows(int P, const Tokens& tokens, bool means, AngleSums sums = AngleSums::exact,
                                           const Embedding& embed = {});

/// What became of the rows of a call.
struct Verdict {
  double worst =
      0;           ///< the largest |ΔY_i| in units of 4 u K_i max|V| (1 + √n_i); infinite for a row that is not finite
  Index row = -1;  ///< where
  Index compared = 0;  ///< rows
  Index flagged = 0;   ///< rows that were not compared
  Index loose = 0;     ///< rows of which only finite numbers are asked: exponentials of logits that are rounded by 1 or
                       ///< more, and means whose sum of weights rounding may halve
};

/// What the rule is asked of. The 4 u of a row hold P roundings of every logit where those fall in all directions.
/// Rotated logits, and tokens made such that all of them fall in one, are given P u a rounding of Σ_j b_ij |scale|
/// ‖q_i‖ ‖k_j‖ |s_ij/b_ij|^{(P-1)/P} where that is more, a power costs it in any arithmetic of that precision; and 2
/// n_i u K_i for their n_i updates of a sum.
enum class Inputs { ordinary, aligned };

/// Judges the rows of a call by the row rule. A flagged row is excused if its condition is at least half of 1/(16 u),
/// or if its weights are zero; else it counts as infinitely wrong. n_i is window_i / tokens_per_update.
template <class Scalar>
[[nodiscard]] Verdict judge(const ReferenceRows& rows, const Matrix<Scalar>& Y, const Diagnostics& diagnostics,
                            double tokens_per_update, Inputs inputs = Inputs::ordinary);

}  // namespace sympow::test
