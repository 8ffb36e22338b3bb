// The backward pass by chunks, as formulas: an adjoint state beside the state, flows in the place of differences. It
// says that the formulas are right; sizes, exponents and speed are no concern of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <sympow/tensor/symmetric_power.hpp>
#include "propositions/gradient_problem.hpp"
#include "propositions/moved_chunk.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// Gradients of a problem by chunks, every number a Scalar, sums of flows in double.
///
///     den_i, δ_i from b_0i Sφ(q̃_i), b_0i (Sᵀdy_i)·φ(q̃_i) and pairs:   g_i = [dy_i; -δ_i]/den_i
///     dq̃_i = b_0i Dφᵀ Sᵀg_i,   dk̂_j = b_jn Dφᵀ Hᵀv⁺_j,   dv⁺_j = b_jn H φ(k̂_j) + pairs
///     H ← b_0n H Aᵀ + Σ_i b_0i g_i φ(q̃_i)ᵀ, after the chunk's keys have read it
///     F_t = Σ_{j<t≤i} c_ij + Σ_{i≥t} g_i·b_0i Sφ(q̃_i) + Σ_{j<t} v⁺_j·b_jn Hφ(k̂_j) + ⟨H, b_0n S A⟩
template <class Scalar>
class ChunkedGradients {
 public:
  ChunkedGradients(const GradientProblem& problem, Index chunk, Broken broken = Broken::nothing)
      : p_(problem), chunk_(chunk), broken_(broken) {
    const auto& call = problem.call;
    const Index d = call.Q.rows(), e = call.V.rows(), T = call.tokens();
    auto& g = result_.common;
    g.Q.setZero(d, T), g.K.setZero(d, T), g.V.setZero(e, T), g.log_gamma.setZero(T);
    result_.log_a.setZero(d, problem.moves == Moves::channels ? T : 0);
    planes_ = Dense<double>::zero(d / 2, problem.moves == Moves::rotary ? T : 0);
    if (problem.moves == Moves::householder) result_.householder = {Matrix<Wide>(d, T), Vector<Wide>(T)};
    forward();
    for (std::size_t n = starts_.size(); n-- > 0;) backward(starts_[n], states_[n], frames_[n]);
    finish();
  }
  ProblemGradients take() { return std::move(result_); }

 private:
  using M = Dense<Scalar>;

  [[nodiscard]] int P() const { return p_.call.degree; }
  [[nodiscard]] M part(const Matrix<Wide>& X, Index first, Index count, Wide factor = 1) const {
    M x(X.rows(), count);
    for (Index t = 0; t < count; ++t)
      for (Index c = 0; c < X.rows(); ++c) x(c, t) = static_cast<Scalar>(factor * X(c, first + t));
    return x;
  }
  [[nodiscard]] M state_or_zero(const Matrix<Wide>& S) const {
    return S.size() > 0 ? part(S, 0, S.cols()) : M::zero(p_.call.V.rows() + 1, p_.call.feature.dimension);
  }
  [[nodiscard]] M embedded(const M& x) const { return Matrix<Scalar>(symmetric_power(x.plain(), P())); }
  [[nodiscard]] M extended_values(Index first, Index count) const {  // [v; 1]
    M v = M::constant(p_.call.V.rows() + 1, count, 1);
    v.set_part(0, 0, part(p_.call.V, first, count));
    return v;
  }
  [[nodiscard]] TransportedChunk<Scalar> chunk_at(Index first, const DenseVector<double>& frame) const {
    const Index n = std::min(chunk_, p_.call.tokens() - first);
    return {p_, first, part(p_.call.Q, first, n, p_.call.scale), part(p_.call.K, first, n), frame, broken_};
  }
  // X.col(t) *= factor[t].
  [[nodiscard]] static M by_columns(M X, const DenseVector<double>& factor) {
    for (Index t = 0; t < X.cols(); ++t)
      for (Index c = 0; c < X.rows(); ++c) X(c, t) *= static_cast<Scalar>(factor[t]);
    return X;
  }
  // Σ over rows of a ∘ b, times factor.
  [[nodiscard]] static DenseVector<double> dots(const M& a, const M& b, const DenseVector<double>& factor) {
    DenseVector<double> sums = DenseVector<double>::zero(a.cols());
    for (Index t = 0; t < a.cols(); ++t) sums[t] = factor[t] * a.column(t).dot(b.column(t));
    return sums;
  }

  void forward() {
    M S = state_or_zero(p_.call.initial);
    DenseVector<double> frame = DenseVector<double>::zero(p_.mu.size());
    for (Index u = 0; u < frame.size(); ++u) frame[u] = static_cast<double>(p_.mu[u]);
    for (Index first = 0; first < p_.call.tokens(); first += chunk_) {
      starts_.push_back(first), states_.push_back(S), frames_.push_back(frame);
      const auto chunk = chunk_at(first, frame);
      S = static_cast<Scalar>(chunk.all) * chunk.lifted(S) +
          by_columns(extended_values(first, chunk.size()), chunk.to_end) * embedded(chunk.keys).transpose();
      frame = chunk.frame;
    }
    final_state_ = S;
    H_ = state_or_zero(p_.call.d_final);
  }

  // [dy; -δ]/den of the rows of a chunk; 0 where the sum is 0.
  [[nodiscard]] M adjoint_of_sums(const TransportedChunk<Scalar>& chunk, const M& S, const M& phi, const M& scores,
                                  const M& v) const {
    const Index e = p_.call.V.rows(), n = chunk.size();
    const M dy = part(p_.call.dY, chunk.first, n);
    M g = M::zero(e + 1, n);
    g.set_part(0, 0, dy);
    if (!p_.call.divided) return g;
    const M read = by_columns(S.part(0, 0, e, S.cols()).transpose() * dy, chunk.from_start);  // Sᵀdy
    const M E = v.part(0, 0, e, n).transpose() * dy;
    for (Index i = 0; i < n; ++i) {
      double den = chunk.from_start[i] * S.row_vector(e).dot(phi.column(i)), delta = read.column(i).dot(phi.column(i));
      for (Index j = 0; j <= i; ++j) {
        den += static_cast<double>(scores(j, i));
        delta += static_cast<double>(scores(j, i)) * static_cast<double>(E(j, i));
      }
      const double inverse = den == 0 ? 0 : 1 / den;
      g(e, i) = broken_ == Broken::delta ? Scalar(0) : static_cast<Scalar>(-delta * inverse);
      for (Index r = 0; r <= e; ++r) g(r, i) *= static_cast<Scalar>(inverse);
    }
    return g;
  }

  void backward(Index first, const M& S, const DenseVector<double>& frame) {
    auto chunk = chunk_at(first, frame);
    const Index n = chunk.size(), e = p_.call.V.rows();
    const M v = extended_values(first, n), phi_q = embedded(chunk.queries), phi_k = embedded(chunk.keys);
    M scores = M::zero(n, n), slopes = scores;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j <= i; ++j) {
        const Scalar x = chunk.logits(j, i),
                     slope = static_cast<Scalar>(chunk.weights(j, i)) * integer_power(x, P() - 1);
        scores(j, i) = slope * x;
        slopes(j, i) = static_cast<Scalar>(broken_ == Broken::slope ? 1 : P()) * slope;
      }
    const M g = adjoint_of_sums(chunk, S, phi_q, scores, v), D = v.transpose() * g;
    const M Sg = S.transpose() * g, gates_g = by_columns(g, chunk.from_start);
    const M H_for_keys = broken_ == Broken::order ? H_ + gates_g * phi_q.transpose() : H_;
    const M Hv = H_for_keys.transpose() * v, Hk = H_for_keys * phi_k;
    // pairs, and what goes through the states
    const M d_logits = slopes.entrywise(D), couplings = scores.entrywise(D);
    const M dv = g.part(0, 0, e, n) * scores.transpose() + by_columns(Hk, chunk.to_end).part(0, 0, e, n);
    const M dq = by_columns(power_vjp(P(), chunk.queries, Sg), chunk.from_start);
    const M dk = by_columns(power_vjp(P(), chunk.keys, Hv), chunk.to_end);
    const double through = chunk.all * H_.dot(chunk.lifted(S));
    const DenseVector<double> rows = dots(phi_q, Sg, chunk.from_start), keys = dots(v, Hk, chunk.to_end);
    const bool own = broken_ == Broken::own_gate;
    for (Index t = 0; t < n; ++t) {
      double F = broken_ == Broken::through ? 0 : through;
      for (Index i = t; i < n; ++i) {
        F += rows[i];
        for (Index j = 0; j < (own ? t + 1 : t); ++j) F += static_cast<double>(couplings(j, i));
      }
      for (Index j = 0; j < (own ? t + 1 : t); ++j) F += keys[j];
      result_.common.log_gamma[first + t] = F;
    }
    const auto [dQ, dK] = chunk.vjp(d_logits, dq, dk, S, H_, result_, planes_);
    for (Index t = 0; t < n; ++t) {
      for (Index r = 0; r < e; ++r) result_.common.V(r, first + t) = dv(r, t);
      for (Index c = 0; c < dQ.rows(); ++c) {
        result_.common.K(c, first + t) = dK(c, t);
        result_.common.Q(c, first + t) = p_.call.scale * static_cast<Wide>(dQ(c, t));
        result_.common.scale += p_.call.Q(c, first + t) * static_cast<Wide>(dQ(c, t));
      }
    }
    const double passes = broken_ == Broken::first_gate && first > 0
                              ? chunk.all / std::exp(p_.call.log_decay[static_cast<std::size_t>(first)])
                              : chunk.all;
    H_ = static_cast<Scalar>(passes) * chunk.lifted_adjoint(H_) + gates_g * phi_q.transpose();
  }

  void finish() {
    auto& g = result_.common;
    if (p_.call.has_state()) g.initial = H_.plain().template cast<Wide>();
    if (p_.moves != Moves::rotary) return;
    const DenseVector<double> of_state =
        through_planes(state_or_zero(p_.call.d_final), final_state_, p_.call.Q.rows(), P());
    const Index m = planes_.rows(), T = planes_.cols();
    auto& rotary = result_.rotary;
    rotary = {Vector<Wide>::Zero(m), Vector<Wide>::Zero(T), Vector<Wide>::Zero(m)};
    result_.gauge.setZero(m);
    for (Index u = 0; u < m; ++u) {
      const Wide gauge = result_.gauge[u] =
          broken_ == Broken::gauge ? Wide(0) : p_.d_mu[u] + static_cast<Wide>(of_state[u]);
      for (Index t = 0; t < T; ++t) {
        const Wide flow = gauge + static_cast<Wide>(planes_(u, t));
        rotary.theta[u] += p_.beta[t] * flow;
        rotary.beta[t] += p_.theta[u] * flow;
        if (t == 0) rotary.mu[u] = flow;
      }
    }
  }

  const GradientProblem& p_;
  Index chunk_;
  Broken broken_;
  std::vector<Index> starts_;
  std::vector<M> states_;
  std::vector<DenseVector<double>> frames_;
  M final_state_, H_;
  Dense<double> planes_;  // flows of angles by plane and token, without the gauge
  ProblemGradients result_;
};

/// `ChunkedGradients`, as a function.
template <class Scalar>
[[nodiscard]] ProblemGradients chunked_gradients(const GradientProblem& p, Index chunk,
                                                 Broken broken = Broken::nothing) {
  return ChunkedGradients<Scalar>(p, chunk, broken).take();
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
