// A chunk of tokens as states see it, and the way back of its gradients: what stands between tokens, by formulas.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "propositions/dense.hpp"
#include "propositions/gradient_problem.hpp"
#include "propositions/power_derivatives.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// The term that a backward pass omits, to see that checks notice.
enum class Broken {
  nothing,
  delta,            ///< -δ/den of g
  slope,            ///< P in P x^{P-1}
  through,          ///< ⟨H, b S⟩, what flows through a whole chunk
  own_gate,         ///< d log γ_t with pairs j ≤ t in the place of j < t
  gauge,            ///< dμ + ⟨dS, L S⟩ of the final state
  sign,             ///< of the keys' angles, which is not the queries'
  strict_products,  ///< dU + dUᵀ: w inside T
  moved_rows,       ///< TᵀWᵀdQ̃ of dG
  first_gate,       ///< the first gate of a chunk, in H
  order             ///< that keys read H before the chunk's rows are in it
};

/// Queries at the chunk's start, keys at its end (a rotation has both in absolute coordinates), logits and weights.
template <class Scalar>
class TransportedChunk {
 public:
  using M = Dense<Scalar>;

  Index first;                             ///< token of the call
  M queries, keys, logits;                 ///< q̃, k̂, x_ij at (j, i)
  DenseVector<double> frame;               ///< μ at its end
  Dense<double> weights;                   ///< b_ij at (j, i), j ≤ i
  DenseVector<double> from_start, to_end;  ///< b_0i, b_jn
  double all = 1;                          ///< b_0n

  TransportedChunk(const GradientProblem& p, Index first_token, M Q, M K, DenseVector<double> mu, Broken broken)
      : first(first_token),
        queries(Q),
        keys(K),
        frame(std::move(mu)),
        p_(p),
        Q_(std::move(Q)),
        K_(std::move(K)),
        broken_(broken) {
    const Index n = size();
    weights = Dense<double>::zero(n, n);
    from_start = to_end = DenseVector<double>::zero(n);
    const auto log_decay = [&](Index t) { return p.call.log_decay[static_cast<std::size_t>(first + t)]; };
    for (Index j = 0; j < n; ++j) {
      double sum = 0;
      for (Index i = j; i < n; ++i) weights(j, i) = std::exp(sum += i == j ? 0 : log_decay(i));
      to_end[j] = std::exp(sum);
    }
    double sum = 0;
    for (Index i = 0; i < n; ++i) from_start[i] = std::exp(sum += log_decay(i));
    all = std::exp(sum);
    if (p.moves == Moves::rotary) turn();
    if (p.moves == Moves::householder) mix();
    logits = p.moves == Moves::householder
                 ? K_.transpose() * Q_ - strict(K_.transpose() * W_) * T_ * upper(W_.transpose() * Q_)
                 : keys.transpose() * queries;
    if (p.moves == Moves::channels) decay_channels();
  }

  [[nodiscard]] Index size() const { return queries.cols(); }

  /// S A_first … A_last.
  [[nodiscard]] M lifted(const M& S) const {
    if (p_.moves == Moves::householder) return S - S * W_ * T_ * W_.transpose();
    return p_.moves == Moves::channels ? scaled(S) : S;
  }
  /// H (A_first … A_last)ᵀ.
  [[nodiscard]] M lifted_adjoint(const M& H) const {
    if (p_.moves == Moves::householder) return H - H * W_ * T_.transpose() * W_.transpose();
    return p_.moves == Moves::channels ? scaled(H) : H;
  }

  /// dQ and dK from the gradients of the logits and, through the states S before and H behind the chunk, of q̃ and k̂;
  /// those of the parameters go into `result`, flows of angles by plane into `planes`.
  [[nodiscard]] std::pair<M, M> vjp(const M& dX, const M& dq, const M& dk, const M& S, const M& H,
                                    ProblemGradients& result, Dense<double>& planes) const {
    if (p_.moves == Moves::rotary) return turned_back(dX, dq, dk, S, H, planes);
    if (p_.moves == Moves::channels) return channels_back(dX, dq, dk, S, H, result.log_a);
    if (p_.moves == Moves::householder) return mixed_back(dX, dq, dk, S, H, result.householder);
    return {dq + K_ * dX, dk + Q_ * dX.transpose()};
  }

 private:
  static M upper(M X) {
    for (Index j = 0; j < X.cols(); ++j)
      for (Index i = j + 1; i < X.rows(); ++i) X(i, j) = 0;
    return X;
  }
  static M strict(M X) {
    for (Index j = 0; j < X.cols(); ++j)
      for (Index i = j; i < X.rows(); ++i) X(i, j) = 0;
    return X;
  }
  static double product(Scalar a, Scalar b) { return static_cast<double>(a) * static_cast<double>(b); }

  // ---- turns ----

  // x.col(t) by sign μ_t, μ_t being the columns of `angles_`.
  [[nodiscard]] M turned(M x, double sign) const {
    for (Index t = 0; t < x.cols(); ++t)
      for (Index u = 0; u < angles_.rows(); ++u) {
        const auto c = static_cast<Scalar>(std::cos(angles_(u, t))),
                   s = static_cast<Scalar>(sign * std::sin(angles_(u, t)));
        const Scalar a = x(2 * u, t), b = x(2 * u + 1, t);
        x(2 * u, t) = c * a - s * b;
        x(2 * u + 1, t) = s * a + c * b;
      }
    return x;
  }
  void turn() {
    angles_ = Dense<double>::zero(frame.size(), size());
    for (Index t = 0; t < size(); ++t)
      for (Index u = 0; u < frame.size(); ++u)
        angles_(u, t) = frame[u] += static_cast<double>(p_.beta[first + t] * p_.theta[u]);
    queries = turned(queries, 1), keys = turned(keys, 1);
  }
  // F_t = Σ dx ⟨k̂_j, J q̃_i⟩ + Σ_{i≥t} ⟨dq̃_i, J q̃_i⟩ - Σ_{j<t} ⟨dk̂_j, J k̂_j⟩ - ⟨H, b L_u S⟩ with
  // J(x_0, x_1) = (-x_1, x_0).
  [[nodiscard]] std::pair<M, M> turned_back(const M& dX, const M& dq, const M& dk, const M& S, const M& H,
                                            Dense<double>& planes) const {
    const DenseVector<double> through = verify::detail::through_planes(H, S, Q_.rows(), p_.call.degree);
    const auto cross = [](const M& d, Index i, const M& x, Index j, Index u) {  // ⟨d_i, J_u x_j⟩
      return product(d(2 * u + 1, i), x(2 * u, j)) - product(d(2 * u, i), x(2 * u + 1, j));
    };
    for (Index u = 0; u < angles_.rows(); ++u)
      for (Index t = 0; t < size(); ++t) {
        double F = -all * through[u];
        for (Index i = t; i < size(); ++i) {
          F += cross(dq, i, queries, i, u);
          for (Index j = 0; j < t; ++j) F += static_cast<double>(dX(j, i)) * cross(keys, j, queries, i, u);
        }
        for (Index j = 0; j < t; ++j) F += (broken_ == Broken::sign ? 1 : -1) * cross(dk, j, keys, j, u);
        planes(u, first + t) = F;
      }
    return {turned(dq + keys * dX, -1), turned(dk + queries * dX.transpose(), -1)};
  }

  // ---- gates by channel ----

  // e^{Σ log a_c} of the tokens behind j up to i.
  [[nodiscard]] double channel(Index c, Index j, Index i) const {
    double sum = 0;
    for (Index t = j + 1; t <= i; ++t) sum += static_cast<double>(p_.log_a(c, first + t));
    return std::exp(sum);
  }
  [[nodiscard]] M scaled(M S) const {
    const MultiIndices indices(Q_.rows(), p_.call.degree);
    for (Index n = 0; n < S.cols(); ++n)
      for (const Index c : indices[n])
        for (Index r = 0; r < S.rows(); ++r) S(r, n) *= static_cast<Scalar>(channel(c, -1, size() - 1));
    return S;
  }
  void decay_channels() {
    logits = M::zero(size(), size());
    for (Index c = 0; c < Q_.rows(); ++c)
      for (Index i = 0; i < size(); ++i) {
        for (Index j = 0; j <= i; ++j) logits(j, i) += K_(c, j) * Q_(c, i) * static_cast<Scalar>(channel(c, j, i));
        queries(c, i) *= static_cast<Scalar>(channel(c, -1, i));
        keys(c, i) *= static_cast<Scalar>(channel(c, i, size() - 1));
      }
  }
  // F_t = Σ dx q̃∘k̂ + Σ_{i≥t} q̃_i∘dq̃_i + Σ_{j<t} k̂_j∘dk̂_j + Σ_α n_αc H_α·(b S A)_α by channels c.
  [[nodiscard]] std::pair<M, M> channels_back(const M& dX, const M& dq, const M& dk, const M& S, const M& H,
                                              Matrix<Wide>& log_a) const {
    const Index n = size(), d = Q_.rows();
    M dQ = dq, dK = dk;
    DenseVector<double> through = DenseVector<double>::zero(d);
    const M passed = scaled(S);
    const MultiIndices indices(d, p_.call.degree);
    for (Index k = 0; k < S.cols(); ++k)
      for (const Index c : indices[k]) through[c] += all * H.column(k).dot(passed.column(k));
    for (Index c = 0; c < d; ++c)
      for (Index t = 0; t < n; ++t) {
        dQ(c, t) *= static_cast<Scalar>(channel(c, -1, t));
        dK(c, t) *= static_cast<Scalar>(channel(c, t, n - 1));
        double F = through[c];
        for (Index i = t; i < n; ++i) {
          F += product(queries(c, i), dq(c, i));
          for (Index j = 0; j < t; ++j)
            F += product(dX(j, i), K_(c, j)) * static_cast<double>(Q_(c, i)) * channel(c, j, i);
        }
        for (Index j = 0; j < t; ++j) F += product(keys(c, j), dk(c, j));
        log_a(c, first + t) = F;
      }
    for (Index c = 0; c < d; ++c)
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j <= i; ++j) {
          const auto a = static_cast<Scalar>(channel(c, j, i));
          dQ(c, i) += dX(j, i) * K_(c, j) * a;
          dK(c, j) += dX(j, i) * Q_(c, i) * a;
        }
    return {dQ, dK};
  }

  // ---- Householder chains: A_a … A_b = I - W T Wᵀ, T = (I + D U)⁻¹ D, U = striu(WᵀW), D = diag β ----

  void mix() {
    const Index n = size();
    W_ = M(Q_.rows(), n);
    M D = M::zero(n, n);
    for (Index t = 0; t < n; ++t) {
      for (Index c = 0; c < W_.rows(); ++c) W_(c, t) = static_cast<Scalar>(p_.w(c, first + t));
      D(t, t) = static_cast<Scalar>(p_.beta[first + t]);
    }
    T_ = (M::identity(n) + D * strict(W_.transpose() * W_)).solve(D);
    queries = Q_ - W_ * T_ * upper(W_.transpose() * Q_);
    keys = K_ - W_ * (strict(K_.transpose() * W_) * T_).transpose();
  }
  [[nodiscard]] std::pair<M, M> mixed_back(const M& dX, const M& dq, const M& dk, const M& S, const M& H,
                                           HouseholderGradientReference& g) const {
    const M G = upper(W_.transpose() * Q_), C = strict(K_.transpose() * W_), U = strict(W_.transpose() * W_);
    const M CT = C * T_, TG = T_ * G, Wq = W_.transpose() * dq, Wk = W_.transpose() * dk, SW = S * W_, HW = H * W_;
    const auto f = static_cast<Scalar>(all);
    M dG = CT.transpose() * dX;
    if (broken_ != Broken::moved_rows) dG += T_.transpose() * Wq;
    dG = -upper(dG);
    const M dC = -strict(dX * TG.transpose() + Wk.transpose() * T_.transpose());
    const M dT = -upper(C.transpose() * dX * G.transpose() + Wq * G.transpose() + C.transpose() * Wk.transpose() +
                        f * (SW.transpose() * HW));
    const M dU = -strict(T_.transpose() * dT * T_.transpose());
    M dW = Q_ * dG.transpose() + K_ * dC - dq * TG.transpose() - dk * CT -
           f * (S.transpose() * (HW * T_.transpose()) + H.transpose() * (SW * T_));
    if (broken_ != Broken::strict_products) dW += W_ * (dU + dU.transpose());
    const M I = M::identity(size()), dD = (I - T_ * U).transpose() * dT * (I - U * T_).transpose();
    for (Index t = 0; t < size(); ++t) {
      g.beta[first + t] = dD(t, t);
      for (Index c = 0; c < W_.rows(); ++c) g.w(c, first + t) = dW(c, t);
    }
    return {dq + W_ * dG + K_ * dX, dk + W_ * dC.transpose() + Q_ * dX.transpose()};
  }

  const GradientProblem& p_;
  M Q_, K_, W_, T_;
  Dense<double> angles_;  // μ, planes × n
  Broken broken_;
};

}  // namespace SYMPOW_NAMESPACE::verify::detail
