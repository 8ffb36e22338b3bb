// What arithmetic explains of gradients: for every entry of each of them a bound, from absolute weights of pairs.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <sympow/verify/gradient_pairs.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// The arithmetic that a bound is for.
struct GradientArithmetic {
  double unit_roundoff = 0x1p-53;                                      ///< u
  double tokens_per_update = std::numeric_limits<double>::infinity();  ///< of a state: the chunk; 1 for chains
  double largest_angle = 0;                                            ///< max |μ|, of which double has u |μ|
};

/// Bounds of |Δ| for the gradients of a call, in entries that are laid out as in `GradientReference`.
struct GradientBounds {
  Wide unit_of_pairs = 0;                ///< without updates
  Wide unit = 0;                         ///< (6 + P) u (1 + √n), in double with max |μ| in the bracket
  Matrix<Wide> Q = {},                   ///< of dQ
      K = {},                            ///< of dK
      V = {};                            ///< of dV
  Wide scale = 0;                        ///< of d scale
  Matrix<Wide> initial = {};             ///< of [dS_0; dZ_0]
  Vector<Wide> log_gamma = {};           ///< of d log γ_t
  Vector<Wide> condition = {};           ///< K_i of rows of means; 1 of sums
  std::vector<bool> is_degenerate = {};  ///< rows that say nothing, K_i ≥ 1/16u: set their dY to 0 on both sides
  /// Of ∂loss/∂log ‖M_ij k_j‖ of pairs: (T_k + 1) × (T_q + 1), first the state, last the loss on the final one.
  Matrix<Wide> levers = {};
  std::vector<Index> row_tokens = {};  ///< the token of every column of `levers`
  Vector<Wide> step_levers = {};       ///< of what acts at a token: levers of the pairs on both sides of it
  Vector<Wide> own_levers = {};        ///< of what acts on a token's own query and key alone
  Wide frame_lever = 0;                ///< levers of the final state, to which its frame's gradient is relative
};

namespace detail {

/// `GradientBounds` while they are made.
class BoundSums {
 public:
  BoundSums(const GradientCall& call, const GradientArithmetic& arithmetic)
      : call_(call), pairs_(call), u_(arithmetic.unit_roundoff), m_(call.Q.cols()), n_(call.K.cols()) {
    set_lengths();
    for (Index i = 0; i < m_; ++i) add_row(i);
    if (call.d_final.size() > 0) add_final_state();
    const Wide most = result_.initial.size() > 0 ? result_.initial.maxCoeff() : Wide(0);
    for (Index r = 0; r < result_.initial.rows(); ++r)
      result_.initial(r, 0) += std::ldexp(most, -100);  // the rows of a state share one exponent
    add_flows();
    multiply(arithmetic);
  }
  GradientBounds take() { return std::move(result_); }

 private:
  /// What is common to the pairs of a row.
  struct Row {
    Index i;
    Wide x, dy, h, den, again;  // |scale| ‖q_i‖, max |dy_i|, h_i, |den_i| and K_i; of sums 1 and 0
  };

  [[nodiscard]] bool is_power() const { return call_.score == Score::power; }
  [[nodiscard]] Wide P() const { return is_power() ? static_cast<Wide>(call_.degree) : Wide(1); }
  /// x^{P - less}.
  [[nodiscard]] Wide power_of(Wide x, int less = 0) const { return integer_power(x, call_.degree - less); }
  static Wide length(const Vector<Wide>& x) { return std::sqrt(x.dot(x)); }
  /// e^{x - shift} by an exponential in double, whose argument is rounded.
  [[nodiscard]] Wide exponential(Wide x, Wide shift = 0) const {
    if (!(x > -std::numeric_limits<Wide>::infinity())) return 0;
    return std::exp(x - shift) * (1 + std::abs(x) * 0x1p-53L / u_);
  }
  [[nodiscard]] Wide weight(Index first, Index last, Wide shift = 0) const {
    return exponential(GradientPairs::log_weight(call_, first, last), shift);
  }
  /// What the slowest channel leaves of a length between two tokens.
  [[nodiscard]] Wide slowest(Index first, Index last) const {
    if (call_.action != KeyAction::scale) return 1;
    Wide most = 0;
    for (Index c = 0; c < call_.Q.rows(); ++c) {
      Wide sum = 0;
      for (Index t = first; t <= last; ++t) sum += std::log(call_.steps[static_cast<std::size_t>(t)](c, c));
      most = std::max(most, exponential(sum));
    }
    return most;
  }
  /// ‖Dφ(x)‖/‖φ(x)‖ of an embedded score at ‖x‖, and ‖φ(x)‖ with what a rounding of x costs it.
  [[nodiscard]] Wide steepness(const Embedded& at, Wide x) const {
    if (call_.feature.longest_projection > 0) return call_.feature.longest_projection + x;
    const Wide size = length(at.phi);
    return size > 0 ? at.jacobian.norm() / size : Wide(0);
  }
  [[nodiscard]] Wide feature_length(const Embedded& at, Wide x) const {
    return length(at.phi) * (1 + steepness(at, x) * x);
  }
  [[nodiscard]] const Embedded& of_query(Index i) const { return pairs_.query_features[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const Embedded& of_key(Index j) const { return pairs_.key_features[static_cast<std::size_t>(j)]; }

  void set_lengths() {
    const Index e = call_.V.rows();
    result_.is_degenerate = pairs_.is_degenerate;
    result_.condition.setOnes(m_);
    result_.levers.setZero(n_ + 1, m_ + 1);
    couplings_ = result_.levers;
    result_.Q.setZero(1, m_), result_.K.setZero(1, n_), result_.V.setZero(1, n_);  // entries of a token are alike
    if (call_.has_state()) result_.initial.setZero(e + 1, 1);
    for (Index i = 0; i < m_; ++i) result_.row_tokens.push_back(call_.token_of(i));
    result_.row_tokens.push_back(call_.tokens() - 1);
    k_ = call_.K.colwise().norm(), s_.setZero(e + 1), h_.setZero(e + 1);
    if (call_.initial.size() > 0) s_ = call_.initial.rowwise().norm();
    if (call_.d_final.size() > 0) h_ = call_.d_final.rowwise().norm();
    values_ = call_.V.size() > 0 ? call_.V.cwiseAbs().maxCoeff() : Wide(0);
    const Wide most = s_.head(e).maxCoeff();
    if (call_.divided && s_[e] > 0) values_ = std::max(values_, most / s_[e]);
    if (!call_.divided && most > values_ && values_ == 0) values_ = most;
    state_ = call_.divided ? s_[e] : values_ > 0 ? most / values_ : Wide(0);
  }

  void add_row(Index i) {
    if (call_.token_of(i) < 0 || result_.is_degenerate[static_cast<std::size_t>(i)]) return;
    const Vector<Wide> dy = call_.dY.col(i).cwiseAbs(), y = pairs_.Y.col(i).cwiseAbs();
    Row row{i, std::abs(call_.scale) * length(call_.Q.col(i)), dy.maxCoeff(), dy.sum() * values_, 1, 0};
    Vector<Wide> m = Vector<Wide>::Zero(n_);
    for (Index j = call_.first(i); j < call_.seen(i); ++j) m[j] = pair_weight(row, j);
    const bool reads = call_.initial.size() > 0;
    const Wide read = reads ? state_weight(row) : Wide(0);
    if (call_.divided) {
      row.h = dy.sum() * (values_ + y.maxCoeff());
      row.den = std::abs(pairs_.denominator[i]);
      row.again = result_.condition[i] = (m.sum() + read * state_) / row.den;
      result_.is_degenerate[static_cast<std::size_t>(i)] = !(row.again * 16 * u_ < 1);
    }
    for (Index j = call_.first(i); j < call_.seen(i); ++j) add_pair(row, j, m[j]);
    if (reads) add_reading(row, read);
  }

  /// m_ij den_i.
  [[nodiscard]] Wide pair_weight(const Row& row, Index j) const {
    const Wide log_b = pairs_.log_weights(j, row.i), b = exponential(log_b, pairs_.shift[row.i]),
               lengths = row.x * k_[j] * slowest(j + 1, call_.token_of(row.i));
    if (call_.score == Score::exponential) {  // whose logits are in the shift
      const Wide score = pairs_.scores(j, row.i);
      return score == 0 ? Wide(0) : Wide(score * (1 + lengths + std::abs(log_b)));
    }
    if (b == 0) return 0;
    if (is_power()) return b * power_of(lengths);
    return b * feature_length(of_query(row.i), row.x) * feature_length(of_key(j), k_[j]);
  }
  /// b_0i ‖φ(q̃_i)‖.
  [[nodiscard]] Wide state_weight(const Row& row) const {
    const Index at = call_.token_of(row.i);
    return weight(0, at, pairs_.shift[row.i]) *
           (is_power() ? power_of(row.x * slowest(0, at)) : feature_length(of_query(row.i), row.x));
  }

  void add_pair(const Row& row, Index j, Wide m) {
    if (m == 0 && !is_power()) return;
    const Wide q = length(call_.Q.col(row.i)), slow = slowest(j + 1, call_.token_of(row.i));
    Wide coupling = row.h * m * (1 + row.again) / row.den, on_query = coupling * k_[j], on_key = coupling * row.x;
    Wide on_scale = coupling * q * k_[j], lever = coupling * row.x * k_[j] * slow;
    if (is_power()) {  // what dq' and dk are divided by is left out first
      const Wide lengths = row.x * k_[j] * slow, b = exponential(pairs_.log_weights(j, row.i), pairs_.shift[row.i]);
      const Wide slope = row.h * b * slow / row.den *
                         (power_of(lengths, 1) + row.again * power_of(std::abs(pairs_.logits(j, row.i)), 1));
      coupling = slope * row.x * k_[j], lever = P() * coupling;
      on_query = P() * slope * k_[j], on_key = P() * slope * row.x, on_scale = P() * slope * q * k_[j];
    } else if (call_.score == Score::embedded) {
      const Wide of_q = steepness(of_query(row.i), row.x), of_k = steepness(of_key(j), k_[j]);
      on_query = coupling * of_q, on_key = coupling * of_k, on_scale = on_query * q;
      lever = coupling * (of_q * row.x + of_k * k_[j]);
    }
    result_.V(0, j) += row.dy * (m + row.again * std::abs(pairs_.scores(j, row.i))) / row.den;
    result_.Q(0, row.i) += std::abs(call_.scale) * on_query;
    result_.K(0, j) += on_key;
    result_.scale += on_scale;
    couplings_(j + 1, row.i) = coupling;
    result_.levers(j + 1, row.i) = lever;
  }

  void add_reading(const Row& row, Wide read) {
    const Index e = call_.V.rows(), at = call_.token_of(row.i);
    const Wide per = (1 + row.again) / row.den, coupling = couplings_(0, row.i) = row.h * per * read * state_;
    Wide slope = 0, lever = P() * coupling;
    if (is_power()) {
      const Wide slow = slowest(0, at);
      slope = P() * row.h * per * state_ * weight(0, at, pairs_.shift[row.i]) * slow * power_of(row.x * slow, 1);
    } else {
      slope = coupling * steepness(of_query(row.i), row.x), lever = slope * row.x;
    }
    result_.levers(0, row.i) = lever;
    result_.Q(0, row.i) += std::abs(call_.scale) * slope;
    result_.scale += length(call_.Q.col(row.i)) * slope;
    for (Index r = 0; r < e; ++r) result_.initial(r, 0) += per * read * row.dy;
    if (call_.divided) result_.initial(e, 0) += per * read * row.h;
  }

  void add_final_state() {
    const Index last = call_.tokens() - 1, e = call_.V.rows();
    Wide most = 0, h = h_[e];
    for (Index r = 0; r < e; ++r) most = std::max(most, h_[r]), h += values_ * h_[r];
    for (Index j = 0; j < n_; ++j) {
      const Wide slow = slowest(j + 1, last), k = k_[j] * slow;
      Wide size = weight(j + 1, last), slope = size, lever = P();
      if (is_power()) {
        size *= power_of(k), slope *= P() * slow * power_of(k, 1);
      } else {
        const Wide of_k = steepness(of_key(j), k);
        size *= feature_length(of_key(j), k), slope = size * of_k, lever = of_k * k;
      }
      result_.V(0, j) += size * most;
      result_.K(0, j) += slope * h;
      couplings_(j + 1, m_) = size * h;
      result_.levers(j + 1, m_) = size * h * lever;
    }
    const Wide size = weight(0, last) * power_of(slowest(0, last));
    couplings_(0, m_) = size * s_.dot(h_);
    result_.levers(0, m_) = P() * couplings_(0, m_);
    result_.frame_lever = result_.levers.col(m_).sum();
    for (Index r = 0; r <= e; ++r) result_.initial(r, 0) += size * h_[r];
  }

  /// Σ_{j<t≤i} of couplings and of levers; what sees absolute angles has all later tokens.
  void add_flows() {
    const Index T = call_.tokens();
    result_.log_gamma.setZero(T), result_.step_levers.setZero(T), result_.own_levers.setZero(T);
    for (Index i = 0; i <= m_; ++i)
      for (Index j = -1; j < n_; ++j) {
        const Index at = result_.row_tokens[static_cast<std::size_t>(i)];
        if (at < 0) continue;
        for (Index t = std::min(at, j) + 1; t <= std::max(at, j); ++t) {
          result_.log_gamma[t] += couplings_(j + 1, i);
          if (!call_.is_absolute()) result_.step_levers[t] += result_.levers(j + 1, i);
        }
        if (i < m_) result_.own_levers[at] += result_.levers(j + 1, i);
        if (j >= 0) result_.own_levers[j] += result_.levers(j + 1, i);
      }
    Wide later = 0;
    for (Index t = T - 1; t >= 0 && call_.is_absolute(); --t) result_.step_levers[t] = later += result_.own_levers[t];
  }

  /// By the unit, and to the shapes of the gradients.
  void multiply(const GradientArithmetic& arithmetic) {
    Matrix<Wide> b(n_, m_);
    for (Index k = 0; k < b.size(); ++k) b.data()[k] = std::exp(pairs_.log_weights.data()[k]);
    const Wide window = b.size() > 0 ? std::max(b.rowwise().sum().maxCoeff(), b.colwise().sum().maxCoeff()) : Wide(0);
    const Wide angle = u_ < 1e-10L ? arithmetic.largest_angle : 0;
    const Wide moved = call_.action == KeyAction::none ? 0 : 4 * P();  // both vectors of a logit are off by 2 u
    result_.unit_of_pairs = (6 + P() + moved) * u_ * (1 + angle);
    const Wide unit = result_.unit_of_pairs + (6 + P() + moved) * u_ * std::sqrt(window / arithmetic.tokens_per_update);
    const Index d = call_.Q.rows(), e = call_.V.rows();
    result_.unit = unit;
    result_.Q = (unit * result_.Q).replicate(d, 1).eval();
    result_.K = (unit * result_.K).replicate(d, 1).eval();
    result_.V = (unit * result_.V).replicate(e, 1).eval();
    if (call_.has_state()) result_.initial = (unit * result_.initial).replicate(1, call_.feature.dimension).eval();
    for (Wide* x : {&result_.scale, &result_.frame_lever}) *x *= unit;
    for (auto* x : {&result_.log_gamma, &result_.step_levers, &result_.own_levers}) *x *= unit;
    result_.levers *= unit;
  }

  const GradientCall& call_;
  const GradientPairs pairs_;
  Wide u_;
  Index m_, n_;
  Vector<Wide> k_, s_, h_;       // lengths of keys, of rows of the initial state and of the gradient of the final one
  Wide values_ = 0, state_ = 0;  // max |V|; ‖Z_0‖ or what stands for it in sums
  Matrix<Wide> couplings_;
  GradientBounds result_;
};

}  // namespace detail

/// The bounds of a call's gradients.
///
///     m_ij = b_ij (|scale| ‖q_i‖ ‖k_j‖)^P,   h_i = ‖dy_i‖₁ (max|V| + max|y_i|),   K_i = Σ_j m_ij / |den_i|
///     ε_ij = h_i (m_ij + K_i b_ij |x_ij|^{P-1} |scale| ‖q_i‖ ‖k_j‖) / |den_i|     sums: ε_ij = ‖dy_i‖₁ max|V| m_ij
///     |Δ| ≤ (6 + P) u (1 + √n) ·   dV_j    Σ_i max|dy_i| (m_ij + K_i |s_ij|) / |den_i|
///                                  dQ_i    P Σ_j ε_ij / ‖q_i‖        dK_j       P Σ_i ε_ij / ‖k_j‖
///                                  d scale P Σ ε_ij / |scale|        d log γ_t  Σ_{j<t≤i} ε_ij
///
/// with 4 P more in the bracket where a transition moves queries and keys, each of which it rounds by 2 u. n is the
/// number of updates of a state inside the effective window of a gate. What is divided by is left out of ε first. A
/// state is a key 0 of length ‖Z_0‖, a loss on the final one a row T + 1. With e^x, m = s (1 + |scale| ‖q‖ ‖k‖); with
/// features, ‖φ(q)‖ ‖φ(k)‖ and what roundings of their arguments cost them. Steps that lengthen keys are not covered.
/// O(T³). Throws as `gradient_reference`.
[[nodiscard]] inline GradientBounds gradient_bounds(const GradientCall& call,
                                                    const GradientArithmetic& arithmetic = {}) {
  return detail::BoundSums(call, arithmetic).take();
}

}  // namespace SYMPOW_NAMESPACE::verify
