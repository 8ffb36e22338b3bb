// Over the rational numbers: gradients through states, rotations, channels and Householder chains, and where something
// is 0.
#pragma once

#include "identities/gradient_identities.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

/// A number and its direction.
[[nodiscard]] inline Matrix<Slope> moving(Exact& x, const std::string& name, Index rows, Index columns) {
  const Square value = x.matrix(name, rows, columns);
  return exact::along(value, x.matrix("δ" + name, rows, columns));
}
/// Constants.
[[nodiscard]] inline Matrix<Slope> still(const Square& x) {
  return exact::along<Rational>(x, Square::Zero(x.rows(), x.cols()));
}
/// The part of the strict upper triangle, or of the upper one.
[[nodiscard]] inline Square triangle(Square x, bool strictly) {
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < (strictly ? i + 1 : i); ++j) x(i, j) = 0;
  return x;
}

/// T = (I + D U)⁻¹ D of A_1 … A_n = I - W T Wᵀ, A_t = I - β_t w_t w_tᵀ, U = striu(WᵀW).
[[nodiscard]] inline Square compact_chain(const Square& W, const Square& D) {
  const Square I = one(W.cols());
  return exact::inverse(Square(I + D * triangle(W.transpose() * W, true))) * D;
}

/// grad.O4 and grad.X7: X ← A_1 … A_n X, token by token and in compact form, with w inside T or without.
inline void slope_of_chains(Identities& all) {
  const auto compact = [](bool with_strict_products) {
    return [with_strict_products](Exact& x) {
      const Index d = x.size("d", {2, 3}), n = x.size("n", {2, 4}), columns = 2;
      const Matrix<Slope> w = moving(x, "w", d, n), X = moving(x, "X", d, columns),
                          beta = exact::along<Rational>(ones_without(x, "β", n), x.vector("δβ", n));
      const Square dY = x.matrix("dY", d, columns);
      Matrix<Slope> Y = X;
      for (Index t = n - 1; t >= 0; --t) Y -= (beta(t, 0) * (w.col(t) * (w.col(t).transpose() * Y))).eval();
      const Square W = exact::values(w), D = exact::values(beta).col(0).asDiagonal(), x0 = exact::values(X), I = one(n);
      const Square U = triangle(W.transpose() * W, true), T = compact_chain(W, D);
      const Square dT = -triangle((W.transpose() * dY) * (W.transpose() * x0).transpose(), false);
      const Square dU = -triangle(T.transpose() * dT * T.transpose(), true);
      Square dW = -dY * (T * W.transpose() * x0).transpose() - x0 * (T.transpose() * W.transpose() * dY).transpose();
      if (with_strict_products) dW += W * (dU + dU.transpose());
      const Square d_beta = (I - T * U).transpose() * dT * (I - U * T).transpose(),
                   dX = dY - W * T.transpose() * W.transpose() * dY;
      x.equal(dot(dW, exact::slopes(w)) + dot(dX, exact::slopes(X)) + d_beta.diagonal().dot(exact::slopes(beta).col(0)),
              dot(dY, exact::slopes(Y)));
    };
  };
  all.add("grad.O4", compact(true));
  all.add("grad.X7", compact(false));
}

/// grad.O5: scores (Σ_c k_c q_c Π a_c)³ Π γ.
inline void slope_of_channels(Identities& all) {
  all.add("grad.O5", [](Exact& x) {
    const Index d = x.size("d", {2, 3}), T = x.size("T", {2, 4});
    const Sequence s = tokens(x, d, T);
    const Square a = x.matrix("a", d, T), dy = x.matrix("dY", 1, T);
    const std::vector<Rational> gamma = gates(x, T);
    const auto slope = [&](const Square& of_a, const Numbers& of_gates) {  // along logarithms
      const auto score = [&](Index i, Index j) {
        Slope logit, b(number(1));
        for (Index t = j + 1; t <= i; ++t) {
          const Rational& gate = gamma[static_cast<std::size_t>(t)];
          b *= Slope(gate, gate * of_gates[t]);
        }
        for (Index c = 0; c < d; ++c) {
          Slope term(s.K(c, j) * s.Q(c, i));
          for (Index t = j + 1; t <= i; ++t) term *= Slope(a(c, t), a(c, t) * of_a(c, t));
          logit += term;
        }
        return b * Power{3}.kappa(logit);
      };
      return dot(dy, exact::slopes(exact::attend(score, still(s.V.row(0)), true)));
    };
    for (Index t = 0; t < T; ++t) {
      Rational channels(0);
      for (Index c = 0; c < d; ++c) {
        Square of_one = Square::Zero(d, T);
        of_one(c, t) = 1;
        channels += slope(of_one, Numbers::Zero(T));
      }
      x.equal(channels, number(3) * slope(Square::Zero(d, T), one(T).col(t)));
    }
  });
}

/// Σ_u θ_u J_u, what a turn by θ ε adds to a rotation; any numbers θ_u.
[[nodiscard]] inline Square turning(const Numbers& theta) {
  Square J = Square::Zero(2 * theta.size(), 2 * theta.size());
  for (Index u = 0; u < theta.size(); ++u) J(2 * u, 2 * u + 1) = -theta[u], J(2 * u + 1, 2 * u) = theta[u];
  return J;
}

/// grad.O3: rotary positions under a full mask.
inline void slope_of_full_masks(Identities& all) {
  all.add("grad.O3", [](Exact& x) {
    const Index n = x.size("d/2", {1, 2}), T = x.size("T", {2, 3});
    const Sequence s = turned(tokens(x, 2 * n, T), absolute(turns(x, n, T)));
    const Square J = turning(x.vector("θ", n));
    const Numbers dy = x.vector("dY", T);
    const auto row = [&](Index i, const auto& logit) {  // y_i
      Slope sum, weighted;
      for (Index j = 0; j < T; ++j) {
        const Slope weight = Power{2}.kappa(logit(j));
        sum += weight, weighted += weight * Slope(s.V(0, j));
      }
      return dy[i] * (weighted / sum).slope;
    };
    Numbers flow = Numbers::Zero(T);
    for (Index i = 0; i < T; ++i)
      for (Index k = 0; k < T; ++k) {  // f_ik, of one logit that turns
        const Rational f = row(i, [&](Index j) {
          const Numbers key = s.K.col(j), query = s.Q.col(i);
          return Slope(key.dot(query), j == k ? key.dot(J * query) : number(0));
        });
        for (Index t = std::min(i, k) + 1; t <= std::max(i, k); ++t) flow[t] += k < i ? f : -f;
      }
    for (Index t = 0; t < T; ++t) {  // tokens from t on turn
      Rational slope(0);
      for (Index i = 0; i < T; ++i)
        slope += row(i, [&](Index j) {
          const auto at = [&](const Square& X, Index m) {
            const Numbers along = J * X.col(m);
            return exact::along<Rational>(X.col(m), m >= t ? along : Numbers(Numbers::Zero(2 * n)));
          };
          return Slope(at(s.K, j).col(0).dot(at(s.Q, i).col(0)));
        });
      x.equal(flow[t], slope);
    }
  });
}

/// grad.G4 to grad.G9: what has a gradient where something is 0.
inline void slopes_at_zero(Identities& all) {
  all.add("grad.G4", vanishing_sum);
  struct Zeros {
    GatedMeans m;
    Index i;
    explicit Zeros(Exact& x) : m(x, 1, true), i(x.integer("i", 0, 3)) {
      Exact::require(i < m.s.size());
      m.s.Q.col(i).setZero(), m.s.K.col(i).setZero();
    }
    [[nodiscard]] Rational along(Index c, bool of_query) const {
      Sequence direction = m.nothing();
      (of_query ? direction.Q : direction.K)(c, i) = 1;
      return m.slope(direction, m.no_gates(), m.no_scores());
    }
  };
  const auto gradients = [](bool expected) {
    return [expected](Exact& x) {
      const Zeros z(x);
      const auto& [s, gamma, dy, p, sums] = z.m;
      Numbers dq = Numbers::Zero(s.Q.rows()), dk = dq;
      for (Index j = 0; expected && j < s.size(); ++j) {
        if (j <= z.i) dq += product(gamma, z.i, j) * s.V(0, j) * dy[z.i] * s.K.col(j);
        if (j >= z.i) dk += product(gamma, j, z.i) * s.V(0, z.i) * dy[j] * s.Q.col(j);
      }
      for (Index c = 0; c < dq.size(); ++c) x.equal(z.along(c, true), dq[c]), x.equal(z.along(c, false), dk[c]);
    };
  };
  all.add("grad.G5", gradients(true));
  all.add("grad.G6", gradients(false));
  all.add("grad.G7", [](Exact& x) {  // q' = scale·q
    GatedMeans m(x, 1, true);
    const Square Q = m.s.Q;
    m.s.Q.setZero();
    Sequence direction = m.nothing();
    direction.Q = Q;
    Rational sum(0);
    for (Index i = 0; i < m.s.size(); ++i)
      for (Index j = 0; j <= i; ++j) sum += Q.col(i).dot(product(m.gamma, i, j) * m.s.V(0, j) * m.dy[i] * m.s.K.col(j));
    x.equal(m.slope(direction, m.no_gates(), m.no_scores()), sum);
  });
  const auto closed = [](bool by_logarithm) {
    return [by_logarithm](Exact& x) {
      GatedMeans m(x, 2, true);
      m.gamma.assign(m.gamma.size(), number(0));
      const std::vector<Rational> direction =
          by_logarithm ? m.gamma : std::vector<Rational>(m.gamma.size(), number(1));  // dγ = γ d log γ
      x.equal(m.slope(m.nothing(), direction, m.no_scores()), number(0));
    };
  };
  all.add("grad.G8", closed(true));
  all.add("grad.G9", closed(false));
}

/// A call under rotary positions and gates, in absolute coordinates and dual numbers: sums of powers from a state and a
/// frame.
struct TurnedCall {
  int p;
  Matrix<Slope> Q, K, V, gamma, S, frame;  // S: (1 + 1) × D of [v; 1] (W m(k))ᵀ
  std::vector<Matrix<Slope>> turns;        // R(β_t θ)
  Square angles;                           // δ(β_t θ)
  Numbers d_mu, mu;                        // dμ of the frame behind the last token, and its δμ
  Square dY, dS;

  /// Of T tokens, with directions in all.
  TurnedCall(Exact& x, Index n, Index T, int power) : p(power) {
    const Index d = 2 * n, D = symmetric_dimension(d, p);
    Q = moving(x, "Q", d, T), K = moving(x, "K", d, T), V = moving(x, "V", 1, T), gamma = moving(x, "γ", 1, T);
    S = moving(x, "S", 2, D);
    const Square t = x.matrix("tan βθ/2", n, T);
    angles = x.matrix("δβθ", n, T);
    for (Index i = 0; i < T; ++i) {
      const Square R = exact::rotation(t.col(i));
      turns.push_back(exact::along<Rational>(R, turning(angles.col(i)) * R));
    }
    mu = x.vector("δμ", n);
    set_frame(exact::rotation(x.vector("tan μ/2", n)));
    dY = x.matrix("dY", 1, T), dS = x.matrix("dS", 2, D), d_mu = x.vector("dμ", n);
  }
  void set_frame(const Square& R) { frame = exact::along<Rational>(R, turning(mu) * R); }
  [[nodiscard]] Index size() const { return Q.cols(); }
  /// Over the tokens: S, the frame and δμ behind them, and Σ dY·Y.
  [[nodiscard]] Rational advance() {
    Rational rows(0);
    for (Index t = 0; t < size(); ++t) {
      frame = (turns[static_cast<std::size_t>(t)] * frame).eval();
      mu += angles.col(t);
      const Vector<Slope> k = frame * K.col(t), q = frame * Q.col(t), v = V.col(t);
      Vector<Slope> extended(2);
      extended << v[0], Slope(number(1));
      const Vector<Slope> written = exact::monomials(k, p).cwiseProduct(exact::weights<Slope>(k.size(), p));
      S = (gamma(0, t) * S + extended * written.transpose()).eval();
      rows += dY(0, t) * Slope(S.row(0).dot(exact::monomials(q, p))).slope;
    }
    return rows;
  }
  /// The slope of Σ dY·Y + ⟨dS, S_T⟩ + dμ·μ_T.
  [[nodiscard]] Rational slope() const {
    TurnedCall end = *this;
    const Rational rows = end.advance();
    return rows + dot(dS, exact::slopes(end.S)) + d_mu.dot(end.mu);
  }
  /// Some of the tokens, behind those that `S` and the frame have seen.
  [[nodiscard]] TurnedCall part(Index first, Index count) const {
    TurnedCall some = *this;
    for (auto* X : {&some.Q, &some.K, &some.V, &some.gamma}) *X = X->middleCols(first, count).eval();
    some.turns.assign(turns.begin() + first, turns.begin() + first + count);
    some.angles = angles.middleCols(first, count).eval(), some.dY = dY.middleCols(first, count).eval();
    return some;
  }
  /// The same values without directions.
  void stop() {
    for (auto* X : {&Q, &K, &V, &gamma, &S, &frame}) *X = still(exact::values(*X));
    for (auto& R : turns) R = still(exact::values(R));
    angles.setZero(), mu.setZero();
  }
  /// The same, of which the first tokens turn.
  void turn_only(Index count) {
    const Square kept = angles.leftCols(count);
    stop();
    angles.leftCols(count) = kept;
    for (Index t = 0; t < count; ++t) {
      auto& R = turns[static_cast<std::size_t>(t)];
      R = exact::along<Rational>(exact::values(R), turning(kept.col(t)) * exact::values(R));
    }
  }
  /// The gradients of S and μ.
  [[nodiscard]] std::pair<Square, Numbers> of_state() const {
    TurnedCall call = *this;
    call.stop();
    std::pair<Square, Numbers> gradient{Square(S.rows(), S.cols()), Numbers(mu.size())};
    for (Index n = 0; n < S.size(); ++n) {
      call.S.data()[n].slope = 1;
      gradient.first.data()[n] = call.slope();
      call.S.data()[n].slope = 0;
    }
    for (Index u = 0; u < mu.size(); ++u) {
      call.mu = one(mu.size()).col(u);
      call.set_frame(exact::values(frame));
      gradient.second[u] = call.slope();
    }
    return gradient;
  }
  /// L_u S, which is -S Λ in these coordinates.
  [[nodiscard]] Square turned_state(const Square& state, Index u) const {
    return -state * plane_generator(Q.rows(), p, 2 * u);
  }
};

/// grad.S1 to grad.S4: what a state hands over.
inline void slopes_through_states(Identities& all) {
  const auto drawn = [](Exact& x) {
    const Index n = x.size("d/2", {1, 2});
    return TurnedCall(x, n, x.size("T", {3, 2}, 2), static_cast<int>(x.size("p", {3, 2})));
  };
  const auto two_calls = [drawn](bool with_frame) {
    return [=](Exact& x) {
      TurnedCall whole = drawn(x);
      if (!with_frame) whole.turn_only(1), whole.d_mu.setZero();  // β and θ of the first call alone
      TurnedCall early = whole.part(0, 1), late = whole.part(1, whole.size() - 1), end = early;
      static_cast<void>(end.advance());
      late.S = still(exact::values(end.S)), late.frame = still(exact::values(end.frame)), late.mu.setZero();
      std::tie(early.dS, early.d_mu) = late.of_state();
      if (!with_frame) early.d_mu.setZero();
      x.equal(early.slope() + late.slope(), whole.slope());
    };
  };
  all.add("grad.S1", two_calls(true));
  all.add("grad.S2", two_calls(false));
  all.add("grad.S3", [drawn](Exact& x) {
    TurnedCall call = drawn(x);
    call.dS.setZero(), call.d_mu.setZero();
    const auto [dS, d_mu] = call.of_state();
    for (Index u = 0; u < d_mu.size(); ++u)
      x.equal(d_mu[u] + dot(dS, call.turned_state(exact::values(call.S), u)), number(0));
  });
  all.add("grad.S4", [drawn](Exact& x) {
    const TurnedCall call = drawn(x);
    TurnedCall end = call;
    static_cast<void>(end.advance());
    const auto [dS, d_mu] = call.of_state();
    for (Index u = 0; u < d_mu.size(); ++u)
      x.equal(d_mu[u] + dot(dS, call.turned_state(exact::values(call.S), u)),
              call.d_mu[u] + dot(call.dS, call.turned_state(exact::values(end.S), u)));
  });
}

}  // namespace detail::identities

/// The statements on gradients through states and what stands between tokens.
inline void gradient_state_identities(Identities& all) {
  detail::identities::slope_of_chains(all);
  detail::identities::slope_of_channels(all);
  detail::identities::slope_of_full_masks(all);
  detail::identities::slopes_at_zero(all);
  detail::identities::slopes_through_states(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
