// Over the rational numbers: derivatives of powers, of attention and of Cayley transforms, by dual numbers.
#pragma once

#include <algorithm>

#include <sympow/exact/dual.hpp>
#include "identities/attention_identities.hpp"
#include "propositions/flows_by_halves.hpp"
#include "propositions/power_derivatives.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

using Slope = exact::Dual<Rational>;

/// Dm(x) δ.
[[nodiscard]] inline Numbers slope_of_monomials(const Numbers& x, const Numbers& direction, int p) {
  const Vector<Slope> at = exact::along<Rational>(x, direction);
  return exact::slopes(exact::monomials(at, p));
}

/// Λ of Λ m(x) = Dm(x) J_u x for the plane of coordinates `up` and up + 1: L_u = W^½ Λ W^-½.
[[nodiscard]] inline Square plane_generator(Index d, int p, Index up) {
  const MultiIndices indices(d, p);
  Square L = Square::Zero(indices.size(), indices.size());
  for (const auto& alpha : indices)
    for (int l = 0; l < p; ++l)
      if (alpha[l] == up || alpha[l] == up + 1) {  // each factor is differentiated
        MultiIndex<> other = alpha;
        other[l] = alpha[l] == up ? up + 1 : up;
        L(indices.rank(alpha), indices.rank(sorted(other))) += number(alpha[l] == up ? -1 : 1);
      }
  return L;
}

/// grad.V, in monomials: φ = W^½ m.
inline void slopes_of_powers(Identities& all) {
  for (const int p : {2, 3, 4, 8})
    all.add(named("grad.V", p), [p](Exact& x) {
      x.about("squared factors");
      const Index d = x.size("d", {2, 3});
      const Numbers y = x.vector("x", d), w = exact::weights<Rational>(d, p), z = x.vector("z", w.size());
      Numbers dx = Numbers::Zero(d);
      static_cast<void>(verify::detail::PrefixWalk<Rational, Numbers>(p, y, z, dx));
      for (Index c = 0; c < d; ++c) x.equal(dx[c], slope_of_monomials(y, one(d).col(c), p).dot(w.cwiseProduct(z)));
    });
  all.add("grad.V.count", [](Exact& x) {
    const Index d = x.size("d", {6, 5, 6, 3});
    const int p = static_cast<int>(x.size("p", {2, 3, 4, 8}));
    const Numbers y = Numbers::Ones(d), z = Numbers::Ones(symmetric_dimension(d, p));
    Numbers dx = y;
    const verify::detail::PrefixWalk<Rational, Numbers> walk(p, y, z, dx);
    x.equal(number(walk.multiply_adds()), number(2 * (binomial(d + p, p) - 1)));
  });
  all.add("grad.V.euler", [](Exact& x) {  // x·Dφ(x)ᵀz = P φ(x)·z for every z
    const Index d = x.size("d", {2, 3}), p = x.size("p", {4, 3});
    const Numbers y = x.vector("x", d);
    x.equal(slope_of_monomials(y, y, static_cast<int>(p)), number(p) * exact::monomials(y, static_cast<int>(p)));
  });
  all.add("grad.V.norm", [](Exact& x) {  // DφᵀDφ = P ‖x‖^{2P-4} (‖x‖² I + (P - 1) x xᵀ), whose norm is P² ‖x‖^{2P-2}
    const Index d = x.size("d", {2, 3});
    const int p = static_cast<int>(x.size("p", {4, 3}, 2));
    const Numbers y = x.vector("x", d), w = exact::weights<Rational>(d, p);
    Square J(w.size(), d);
    for (Index i = 0; i < d; ++i) J.col(i) = slope_of_monomials(y, one(d).col(i), p);
    x.equal(J.transpose() * w.asDiagonal() * J,
            number(p) * power(square(y), p - 2) * (square(y) * one(d) + number(p - 1) * (y * y.transpose())));
  });
}

/// grad.L, likewise.
inline void turns_of_powers(Identities& all) {
  for (const int p : {2, 3, 4}) {
    all.add(named("grad.L.count", p), [p](Exact& x) {
      const Square L = plane_generator(x.size("d", {4, 6}), p, 2);
      for (Index row = 0; row < L.rows(); ++row)
        x.at_most(number(std::ranges::count_if(L.row(row), [](const Rational& entry) { return entry.sign() != 0; })),
                  number(2));
    });
    all.add(named("grad.L", p), [p](Exact& x) {
      const Index d = 2 * x.size("d/2", {1, 2}), up = 2 * x.integer("plane", 0, 1);
      Exact::require(up + 1 < d);
      const Numbers y = x.vector("x", d), w = exact::weights<Rational>(d, p);
      Numbers turned = Numbers::Zero(d);
      turned[up] = -y[up + 1], turned[up + 1] = y[up];
      const MultiIndices indices(d, p);
      const Square L = plane_generator(d, p, up);
      x.equal(L * exact::monomials(y, p), slope_of_monomials(y, turned, p));
      const Square weighed = w.asDiagonal() * L;
      x.equal(weighed, -weighed.transpose(), "skew:");
      for (const auto& alpha : indices)  // L_αβ² = W_α Λ_αβ²/W_β
        for (const auto& beta : indices) {
          const Rational entry = L(indices.rank(alpha), indices.rank(beta));
          if (entry.sign() == 0) continue;
          const auto to = counts(alpha, d), from = counts(beta, d);
          const auto u = static_cast<std::size_t>(up);
          const Index gains = to[u] > from[u] ? to[u] : to[u + 1], loses = to[u] > from[u] ? from[u + 1] : from[u];
          x.equal(w[indices.rank(alpha)] * entry * entry / w[indices.rank(beta)], number(gains * loses));
        }
    });
  }
}

/// Gated means of powers, y_i = Σ s v/Σ s, or sums of s v, and their loss Σ dY·Y along a direction.
struct GatedMeans {
  Sequence s;
  std::vector<Rational> gamma;
  Numbers dy;
  int p = 2;
  bool sums = false;

  explicit GatedMeans(Exact& x, int power = 2, bool not_divided = false) : p(power), sums(not_divided) {
    const Index d = x.size("d", {2, 3}), T = x.size("T", {2, 4});
    s = {x.matrix("Q", d, T), x.matrix("K", d, T), Square(x.vector("v", T).transpose())};
    gamma = gates(x, T);
    dy = x.vector("dY", T);
  }
  /// ∂loss of Q, K, V and the gates along δ; scores are multiplied by 1 + ε of a matrix.
  [[nodiscard]] Rational slope(const Sequence& direction, const std::vector<Rational>& of_gates,
                               const Square& of_scores) const {
    const Index T = s.size();
    const Matrix<Slope> Q = exact::along(s.Q, direction.Q), K = exact::along(s.K, direction.K),
                        V = exact::along(s.V, direction.V);
    const auto score = [&](Index i, Index j) {
      Slope b(number(1), of_scores(j, i));
      for (Index k = j + 1; k <= i; ++k)
        b *= Slope(gamma[static_cast<std::size_t>(k)], of_gates[static_cast<std::size_t>(k)]);
      return b * Power{p}.kappa(Slope(Q.col(i).dot(K.col(j))));
    };
    const Matrix<Slope> Y = exact::attend(score, V, sums);
    Rational sum(0);
    for (Index i = 0; i < T; ++i) sum += dy[i] * Y(0, i).slope;
    return sum;
  }
  [[nodiscard]] Sequence nothing() const {
    const Square zero = Square::Zero(s.Q.rows(), s.size());
    return {zero, zero, Square::Zero(1, s.size())};
  }
  [[nodiscard]] std::vector<Rational> no_gates() const { return std::vector<Rational>(gamma.size()); }
  [[nodiscard]] Square no_scores() const { return Square::Zero(s.size(), s.size()); }
  /// c_ij = ∂loss/∂log s_ij.
  [[nodiscard]] Rational coupling(Index i, Index j) const {
    Square of_one = no_scores();
    of_one(j, i) = 1;
    return slope(nothing(), no_gates(), of_one);
  }
  /// q_i·dq_i and k_j·dk_j.
  [[nodiscard]] Rational along_query(Index i) const {
    Sequence direction = nothing();
    direction.Q.col(i) = s.Q.col(i);
    return slope(direction, no_gates(), no_scores());
  }
  [[nodiscard]] Rational along_key(Index j) const {
    Sequence direction = nothing();
    direction.K.col(j) = s.K.col(j);
    return slope(direction, no_gates(), no_scores());
  }
  /// Σ_i c_ij.
  [[nodiscard]] Rational couplings_of_key(Index j) const {
    Rational sum(0);
    for (Index i = j; i < s.size(); ++i) sum += coupling(i, j);
    return sum;
  }
};

/// grad.F1 to grad.F4, grad.F9 and grad.F12: flows.
inline void flows(Identities& all) {
  all.add("grad.F1", [](Exact& x) {
    const GatedMeans m(x);
    for (Index i = 0; i < m.s.size(); ++i) {
      Rational sum(0);
      for (Index j = 0; j <= i; ++j) sum += m.coupling(i, j);
      x.equal(sum, number(0));
    }
  });
  all.add("grad.F2", [](Exact& x) {
    const GatedMeans m(x);
    for (Index i = 0; i < m.s.size(); ++i) x.equal(m.along_query(i), number(0));
  });
  all.add("grad.F3", [](Exact& x) {
    const GatedMeans m(x);
    for (Index j = 0; j < m.s.size(); ++j) x.equal(m.along_key(j), number(m.p) * m.couplings_of_key(j));
  });
  all.add("grad.F4", [](Exact& x) {
    const GatedMeans m(x);
    Rational later(0);
    for (Index t = m.s.size() - 1; t >= 0; --t) {
      later += (m.along_query(t) - m.along_key(t)) / number(m.p);
      std::vector<Rational> direction = m.no_gates();
      direction[static_cast<std::size_t>(t)] = m.gamma[static_cast<std::size_t>(t)];  // dγ = γ d log γ
      x.equal(m.slope(m.nothing(), direction, m.no_scores()), later);
    }
  });
  all.add("grad.F9", [](Exact& x) {  // what flows through a gate
    GatedMeans m(x);
    const Index T = m.s.size(), closed = x.integer("closed", 0, 3);
    Exact::require(closed < T);
    if (closed > 0) m.gamma[static_cast<std::size_t>(closed)] = 0;  // without a state γ_1 has no pairs to weigh
    Rational flow(0);
    for (Index j = 0; j < closed; ++j)
      for (Index i = closed; i < T; ++i) flow += m.coupling(i, j);
    x.equal(flow, number(0));
  });
  all.add("grad.F12", [](Exact& x) {
    const Index n = x.size("T", {5, 8, 11});
    const Square f = x.matrix("f", n, n);
    Numbers flow = Numbers::Zero(n);
    verify::detail::add_flows_by_halves(f, 0, n, flow);
    for (Index t = 0; t < n; ++t) x.equal(flow[t], f.block(0, t, t, n - t).sum());
  });
}

/// Means by any scores s(j, i) and their loss along directions: of log s, and of log of [v; 1].
struct AnyScores {
  Square scores;
  Numbers v, dy;

  explicit AnyScores(Exact& x) {
    const Index T = x.size("T", {2, 4});
    scores = x.matrix("s", T, T);
    v = x.vector("v", T), dy = x.vector("dY", T);
  }
  [[nodiscard]] Index size() const { return v.size(); }
  [[nodiscard]] Rational slope(const Square& of_scores, const Square& of_values) const {
    Square extended(2, size());
    extended << v.transpose(), Square::Ones(1, size());
    const auto score = [&](Index i, Index j) { return Slope(scores(j, i), of_scores(j, i) * scores(j, i)); };
    const Matrix<Slope> both =
        exact::attend(score, exact::along<Rational>(extended, extended.cwiseProduct(of_values)), true);
    Rational sum(0);
    for (Index i = 0; i < size(); ++i) sum += dy[i] * (both(0, i) / both(1, i)).slope;
    return sum;
  }
  /// Along logarithms of the scores of key j.
  [[nodiscard]] Rational along_key(Index j, const Numbers& of_scores) const {
    Square direction = Square::Zero(size(), size());
    direction.row(j) = of_scores.transpose();
    return slope(direction, Square::Zero(2, size()));
  }
  /// Σ_i c_ij.
  [[nodiscard]] Rational couplings(Index j) const {
    Rational sum(0);
    for (Index i = j; i < size(); ++i) sum += along_key(j, one(size()).col(i));
    return sum;
  }
};

/// grad.F5 and grad.F6: scores that are no powers.
inline void flows_of_scores(Identities& all) {
  all.add("grad.F5", [](Exact& x) {  // d log e^x = dx, which is x along k
    x.about("s in place of e^x");
    const AnyScores m(x);
    const Square logits = x.matrix("x", m.size(), m.size());
    for (Index j = 0; j < m.size(); ++j) x.equal(m.along_key(j, logits.row(j).transpose()), m.couplings(j));
  });
  all.add("grad.F6", [](Exact& x) {  // [v_j; 1] times 1 + ε
    const AnyScores m(x);
    for (Index j = 0; j < m.size(); ++j) {
      Square of_key = Square::Zero(2, m.size());
      of_key.col(j).setOnes();
      x.equal(m.slope(Square::Zero(m.size(), m.size()), of_key), m.couplings(j));
    }
  });
}

/// grad.O1: the gradient of y = P(S) x, by dual numbers through the inverse.
inline void slope_of_cayley(Identities& all) {
  all.add("grad.O1", [](Exact& x) {
    const Index d = x.size("d", {2, 3});
    const Square S = skew(x, "S", d), dS = x.matrix("direction of S", d, d);
    const Numbers y = x.vector("x", d), dx = x.vector("direction of x", d), dy = x.vector("dy", d);
    Square system = Square::Zero(2 * d, 2 * d);  // [I + S, dS; 0, I + S], the ring of dual numbers as blocks
    system << one(d) + S, dS, Square::Zero(d, d), one(d) + S;
    const Square inverse = exact::inverse(system), value = inverse.topLeftCorner(d, d),
                 slope = inverse.topRightCorner(d, d);
    const Numbers image = (one(d) - S) * (slope * y + value * dx) - dS * (value * y);
    const Numbers w = exact::inverse(Square(one(d) - S)) * dy, z = value * y;
    x.equal(dy.dot(image), (number(2) * w - dy).dot(dx) - number(2) * w.dot(dS * z));
  });
}

}  // namespace detail::identities

/// The statements on gradients that are identities of rational functions.
inline void gradient_identities(Identities& all) {
  detail::identities::slopes_of_powers(all);
  detail::identities::turns_of_powers(all);
  detail::identities::flows(all);
  detail::identities::flows_of_scores(all);
  detail::identities::slope_of_cayley(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
