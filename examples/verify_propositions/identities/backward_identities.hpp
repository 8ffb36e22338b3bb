// Over the rational numbers: the backward pass by chunks is the gradient of the definition, and each of its parts is
// missed.
#pragma once

#include "identities/gate_identities.hpp"
#include "identities/gradient_state_identities.hpp"
#include "propositions/moved_chunk.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

/// A call with gates γ_t and steps M_t in key space, from a state; all with a direction.
///
///     loss = Σ dY·Y + ⟨dS, S_T⟩,   S_t = γ_t S_{t-1} L(M_t) + [v; 1] (W m(k))ᵀ
struct SteppedCall {
  int p;
  bool means;
  Matrix<Slope> Q, K, V, gamma, S;
  std::vector<Matrix<Slope>> M;
  Square dY, dS;

  SteppedCall(Exact& x, std::vector<Matrix<Slope>> steps, Index d, int degree, bool divided)
      : p(degree), means(divided), M(std::move(steps)) {
    const Index T = std::ssize(M);
    Q = moving(x, "Q", d, T), K = moving(x, "K", d, T), V = moving(x, "V", 1, T), S = moving(x, "S", 2, features(d));
    const Square open = ones_without(x, "γ", T).transpose();
    gamma = exact::along<Rational>(open, open.cwiseProduct(x.matrix("δ log γ", 1, T)));
    dY = x.matrix("dY", 1, T), dS = x.matrix("dS", 2, S.cols());
  }
  /// A call whose tokens turn and nothing else, in absolute coordinates, where turns stand for steps.
  explicit SteppedCall(const TurnedCall& call)
      : p(call.p),
        means(false),
        Q(call.Q),
        K(call.K),
        V(call.V),
        gamma(call.gamma),
        S(call.S),
        dY(call.dY),
        dS(call.dS) {
    const Square I = one(Q.rows());
    Square frame = exact::values(call.frame);
    for (Index t = 0; t < size(); ++t) {
      frame = (exact::values(call.turns[static_cast<std::size_t>(t)]) * frame).eval();
      Q.col(t) = still(frame * exact::values(Q).col(t)), K.col(t) = still(frame * exact::values(K).col(t));
      M.push_back(exact::along<Rational>(I, turning(call.angles.col(t))));
    }
  }
  [[nodiscard]] Index features(Index d) const { return symmetric_dimension(d, p); }
  [[nodiscard]] Index size() const { return Q.cols(); }

  /// By definition, pair by pair.
  [[nodiscard]] Rational slope() const {
    Rational sum(0);
    for (Index i = 0; i < size(); ++i) {
      Vector<Slope> q = Q.col(i), both = Vector<Slope>::Zero(2), v = Vector<Slope>::Ones(2);
      Slope b(number(1));
      for (Index j = i; j >= 0; --j) {
        v[0] = V(0, j);
        both += (b * Power{p}.kappa(Slope(K.col(j).dot(q)))) * v;
        q = (M[static_cast<std::size_t>(j)] * q).eval();
        b *= gamma(0, j);
      }
      both += b * (S * exact::monomials(q, p));
      sum += dY(0, i) * (means ? both[0] / both[1] : both[0]).slope;
    }
    Matrix<Slope> last = Matrix<Slope>::Identity(Q.rows(), Q.rows());  // M_{t+1} … M_T
    Slope b(number(1));
    for (Index t = size() - 1; t >= 0; --t) {
      const Vector<Slope> k = last.transpose() * K.col(t);
      const Vector<Slope> m = exact::monomials(k, p).cwiseProduct(exact::weights<Slope>(k.size(), p));
      for (Index a = 0; a < m.size(); ++a) sum += (b * m[a] * (V(0, t) * Slope(dS(0, a)) + Slope(dS(1, a)))).slope;
      last = (M[static_cast<std::size_t>(t)] * last).eval();
      b *= gamma(0, t);
    }
    return sum + dot(dS, exact::slopes(Matrix<Slope>(b * (S * exact::lift(last, p)))));
  }
};

/// The backward pass by chunks: an adjoint state H beside the state S.
class BackwardPass {
 public:
  BackwardPass(const SteppedCall& call, Index chunk, Broken missing = Broken::nothing)
      : call_(call),
        p_(call.p),
        missing_(missing),
        Q_(exact::values(call.Q)),
        K_(exact::values(call.K)),
        V_(2, call.size()),
        H_(call.dS) {
    V_ << exact::values(call.V), Square::Ones(1, call.size());
    for (const auto& M : call.M) M_.push_back(exact::values(M));
    const Numbers gamma = exact::values(call.gamma).transpose();
    gamma_ = {gamma.begin(), gamma.end()};
    w_ = exact::weights<Rational>(Q_.rows(), p_);
    std::vector<Square> states = {exact::values(call.S)};
    for (Index first = 0; first < size(); first += chunk) {
      Square S = states.back();
      for (Index t = first; t < std::min(first + chunk, size()); ++t)
        S = (gamma_[static_cast<std::size_t>(t)] * S * exact::lift(M_[static_cast<std::size_t>(t)], p_) +
             V_.col(t) * w_.cwiseProduct(exact::monomials(K_.col(t), p_)).transpose())
                .eval();
      states.push_back(S);
    }
    for (Index n = std::ssize(states) - 2; n >= 0; --n)
      backward(n * chunk, std::min((n + 1) * chunk, size()), states[static_cast<std::size_t>(n)]);
    slope_ += dot(H_, exact::slopes(call.S));
  }
  /// The gradients of all inputs along their directions.
  [[nodiscard]] Rational slope() const { return slope_; }

 private:
  [[nodiscard]] Index size() const { return Q_.cols(); }
  /// Dm(x)ᵀ z.
  [[nodiscard]] Numbers pulled(const Numbers& x, const Numbers& z) const {
    Numbers dx(x.size());
    for (Index c = 0; c < x.size(); ++c) dx[c] = slope_of_monomials(x, one(x.size()).col(c), p_).dot(z);
    return dx;
  }
  /// M_{j+1} … M_i.
  [[nodiscard]] Square moved(Index i, Index j) const { return product(M_, i, j, Q_.rows()); }
  /// Its slope along the direction of M_t, j < t ≤ i.
  [[nodiscard]] Square moved_along(Index i, Index j, Index t) const {
    return moved(t - 1, j) * exact::slopes(call_.M[static_cast<std::size_t>(t)]) * moved(i, t);
  }
  [[nodiscard]] Rational of(const Matrix<Slope>& X, Index t, const Numbers& gradient) const {
    return gradient.dot(exact::slopes(X).col(t));
  }

  void backward(Index first, Index end, const Square& S) {
    const Index before = first - 1, last = end - 1;
    const Rational all = product(gamma_, last, before);
    Square g = Square::Zero(2, size()), rows = Square::Zero(2, S.cols());
    for (Index i = first; i < end; ++i) {
      Numbers sums = product(gamma_, i, before) * S * exact::monomials(Numbers(moved(i, before) * Q_.col(i)), p_);
      for (Index j = first; j <= i; ++j) sums += score(i, j) * V_.col(j);
      g(0, i) = call_.dY(0, i);
      if (call_.means) g(1, i) = -g(0, i) * sums[0] / (sums[1] * sums[1]), g(0, i) /= sums[1];
      if (missing_ == Broken::delta) g(1, i) = 0;
      rows += product(gamma_, i, before) * g.col(i) *
              exact::monomials(Numbers(moved(i, before) * Q_.col(i)), p_).transpose();
    }
    if (missing_ == Broken::order) H_ += rows;
    for (Index t = first; t < end; ++t) through_token(t, first, end, S, g);
    if (missing_ == Broken::order) H_ -= rows;
    const Rational passes = missing_ == Broken::first_gate && first > 0 ? product(gamma_, last, first) : all;
    H_ = (passes * H_ * exact::lift(moved(last, before), p_).transpose() + rows).eval();
  }
  [[nodiscard]] Rational score(Index i, Index j) const {
    return product(gamma_, i, j) * power(K_.col(j).dot(moved(i, j) * Q_.col(i)), p_);
  }
  /// The gradients of token t's query, key, value, gate and step.
  void through_token(Index t, Index first, Index end, const Square& S, const Square& g) {
    const Index before = first - 1, last = end - 1;
    const auto at_start = [&](Index i) { return Numbers(moved(i, before) * Q_.col(i)); };
    const auto at_end = [&](Index j) { return Numbers(moved(last, j).transpose() * K_.col(j)); };
    const auto d_query = [&](Index i) {
      return Numbers(product(gamma_, i, before) * pulled(at_start(i), S.transpose() * g.col(i)));
    };
    const auto d_key = [&](Index j) {
      return Numbers(product(gamma_, last, j) * pulled(at_end(j), w_.cwiseProduct(H_.transpose() * V_.col(j))));
    };
    const auto d_logit = [&](Index i, Index j) {
      const Rational power_factor = number(missing_ == Broken::slope ? 1 : p_);
      return Rational(power_factor * product(gamma_, i, j) * power(K_.col(j).dot(moved(i, j) * Q_.col(i)), p_ - 1) *
                      V_.col(j).dot(g.col(i)));
    };
    const auto keys = [&](Index j) {
      return Numbers(product(gamma_, last, j) * H_ * w_.cwiseProduct(exact::monomials(at_end(j), p_)));
    };
    Numbers dq = moved(t, before).transpose() * d_query(t), dk = moved(last, t) * d_key(t), dv = keys(t);
    for (Index j = first; j <= t; ++j) dq += d_logit(t, j) * moved(t, j).transpose() * K_.col(j);
    for (Index i = t; i < end; ++i) dk += d_logit(i, t) * moved(i, t) * Q_.col(i), dv += score(i, t) * g.col(i);
    slope_ += of(call_.Q, t, dq) + of(call_.K, t, dk) + of(call_.V, t, dv.head(1));

    const Rational all = product(gamma_, last, before);
    const Matrix<Slope> step = exact::along<Rational>(moved(last, before), moved_along(last, before, t));
    const Square lifted = exact::lift(moved(last, before), p_);
    Rational flow = missing_ == Broken::through ? number(0) : Rational(all * dot(H_, S * lifted)),
             of_step = all * dot(H_, S * exact::slopes(exact::lift(step, p_)));
    for (Index i = t; i < end; ++i) {
      flow += g.col(i).dot(product(gamma_, i, before) * S * exact::monomials(at_start(i), p_));
      of_step += d_query(i).dot(moved_along(i, before, t) * Q_.col(i));
    }
    const bool own = missing_ == Broken::own_gate;
    for (Index j = first; j < t + (own ? 1 : 0); ++j) {
      flow += V_.col(j).dot(keys(j));
      for (Index i = t; i < end; ++i) flow += score(i, j) * V_.col(j).dot(g.col(i));
    }
    for (Index j = first; j < t; ++j) {
      const Rational key_sign(missing_ == Broken::sign ? -1 : 1);
      of_step += key_sign * d_key(j).dot(moved_along(last, j, t).transpose() * K_.col(j));
      for (Index i = t; i < end; ++i) of_step += d_logit(i, j) * K_.col(j).dot(moved_along(i, j, t) * Q_.col(i));
    }
    const Slope& gate = call_.gamma(0, t);
    if (gate.value.sign() != 0) slope_ += flow * gate.slope / gate.value;
    slope_ += of_step;
  }

  const SteppedCall& call_;
  int p_;
  Broken missing_;
  Square Q_, K_, V_, H_;
  std::vector<Square> M_;
  std::vector<Rational> gamma_;
  Numbers w_;
  Rational slope_{0};
};

/// M_t for T tokens of d coordinates.
using Steps = std::function<std::vector<Matrix<Slope>>(Exact& x, Index d, Index T)>;

/// grad.B.rotary, grad.X5 and grad.X6: d(β_t θ) by flows, and dμ + ⟨dS, L_u S⟩ of the final state.
[[nodiscard]] inline ExactStatement flows_of_turns(Broken missing) {
  return [missing](Exact& x) {
    const Index n = x.size("d/2", {1, 2}), T = x.size("T", {3, 2}), chunk = x.size("chunk", {2, 1});
    TurnedCall call(x, n, T, static_cast<int>(x.size("p", {3, 2})));
    call.turn_only(T);
    TurnedCall end = call;
    static_cast<void>(end.advance());
    Rational flow = BackwardPass(SteppedCall(call), chunk, missing).slope();
    for (Index u = 0; u < n && missing != Broken::gauge; ++u)
      flow += call.angles.row(u).sum() * (call.d_mu[u] + dot(call.dS, call.turned_state(exact::values(end.S), u)));
    x.equal(flow, call.slope());
  };
}
/// grad.B.householder and grad.X8: dQ of q̃_i = A_1 … A_i q_i, which are the columns of Q - W T triu(WᵀQ).
[[nodiscard]] inline ExactStatement moved_queries(bool with_moved_rows) {
  return [with_moved_rows](Exact& x) {
    const Index d = x.size("d", {2, 3}), n = x.size("n", {2, 4});
    const Square W = x.matrix("w", d, n), Q = x.matrix("δQ", d, n), dq = x.matrix("dQ̃", d, n);
    const Numbers beta = x.vector("β", n);
    Square dQ = dq, moved(d, n);
    if (with_moved_rows)
      dQ -= W * triangle(compact_chain(W, beta.asDiagonal()).transpose() * W.transpose() * dq, false);
    for (Index i = 0; i < n; ++i) moved.col(i) = product(chain(W, beta), i, -1, d) * Q.col(i);
    x.equal(dot(dQ, Q), dot(dq, moved));
  };
}

/// grad.B, grad.S5 and six of grad.X.
inline void backward_passes(Identities& all) {
  const Steps none = [](Exact&, Index d, Index T) {
    return std::vector<Matrix<Slope>>(static_cast<std::size_t>(T), Matrix<Slope>::Identity(d, d));
  };
  const Steps channels = [](Exact& x, Index d, Index T) {
    const Matrix<Slope> a = moving(x, "a", d, T);
    std::vector<Matrix<Slope>> M;
    for (Index t = 0; t < T; ++t) M.emplace_back(a.col(t).asDiagonal());
    return M;
  };
  const Steps turns_of_planes = [](Exact& x, Index d, Index T) {
    std::vector<Matrix<Slope>> M;
    const Square angles = x.matrix("δβθ", d / 2, T);
    for (const Square& R : turns(x, d / 2, T))
      M.push_back(exact::along<Rational>(R, turning(angles.col(std::ssize(M))) * R));
    return M;
  };
  const Steps reflections = [](Exact& x, Index d, Index T) {
    const Matrix<Slope> w = moving(x, "w", d, T), beta = moving(x, "β", 1, T);
    std::vector<Matrix<Slope>> M;
    for (Index t = 0; t < T; ++t)
      M.push_back(Matrix<Slope>::Identity(d, d) - beta(0, t) * (w.col(t) * w.col(t).transpose()));
    return M;
  };
  struct Shape {
    Index d = 3, p = 2, another_p = 4;
    bool means = true;
    Broken missing = Broken::nothing;
    bool some_losses = false;
  };
  const auto pass = [](const Steps& steps, Shape shape) {
    return [=](Exact& x) {
      const Index d = x.size("d", {shape.d, 2}), T = x.size("T", {3, 4}), chunk = x.size("chunk", {1, 2});
      const int p = static_cast<int>(x.size("p", {shape.p, shape.another_p}));
      SteppedCall call(x, steps(x, d, T), d, p, shape.means);
      if (shape.some_losses) {  // the last row, the first row, the final state or all rows
        const Index which = x.integer("loss", 0, 3);
        for (Index i = 0; i < T; ++i)
          if (which < 3 && i != (which == 0 ? T - 1 : which == 1 ? 0 : -1)) call.dY(0, i) = 0;
        if (which != 2) call.dS.setZero();
      }
      x.equal(BackwardPass(call, chunk, shape.missing).slope(), call.slope());
    };
  };
  all.add("grad.B.gates", pass(none, {}));
  all.add("grad.B.channels", pass(channels, {.p = 3, .another_p = 1, .means = false}));
  const auto both = [](const ExactStatement& first, const ExactStatement& second) {
    return [=](Exact& x) { first(x), second(x); };
  };
  all.add("grad.B.rotary", both(flows_of_turns(Broken::nothing), pass(turns_of_planes, {.d = 2})));
  all.add("grad.B.householder", both(moved_queries(true), pass(reflections, {.p = 1, .another_p = 1, .means = false})));
  all.add("grad.S5", pass(turns_of_planes, {.d = 2, .some_losses = true}));
  all.add("grad.X1", pass(none, {.missing = Broken::delta}));
  all.add("grad.X2", pass(none, {.p = 3, .another_p = 1, .means = false, .missing = Broken::slope}));
  all.add("grad.X3", pass(none, {.missing = Broken::through}));
  all.add("grad.X4", pass(none, {.missing = Broken::own_gate}));
  all.add("grad.X5", flows_of_turns(Broken::gauge));
  all.add("grad.X6", flows_of_turns(Broken::sign));
  all.add("grad.X8", moved_queries(false));
  all.add("grad.X9", pass(none, {.missing = Broken::first_gate}));
  all.add("grad.X10", pass(none, {.missing = Broken::order}));
}

}  // namespace detail::identities

/// The statements on the backward pass.
inline void backward_identities(Identities& all) { detail::identities::backward_passes(all); }

}  // namespace SYMPOW_NAMESPACE::verify
#endif
