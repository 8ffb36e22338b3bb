// Over the rational numbers: softmax attention and its biases. Logits and biases are whole numbers and t stands in
// place of e: e is a root of no polynomial with rational coefficients, so that e^n obeys no other identities than t^n.
#pragma once

#include "identities/attention_identities.hpp"
#include "identities/gate_identities.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

/// t^n for any whole n.
[[nodiscard]] inline Rational whole_power(const Rational& t, Index n) {
  return n < 0 ? number(1) / power(t, static_cast<int>(-n)) : power(t, static_cast<int>(n));
}

/// Logits X(j, i) = q_i·k_j, any whole numbers, values, and gates a_s = t^{-D_s}.
struct Logits {
  Index T;
  Matrix<Index> X, D;  // T × T and T × 1
  Numbers v;
  Rational t;

  explicit Logits(Exact& x) : T(x.size("T", {3, 4})) {
    x.about("t in place of e, whole logits");
    X = x.integers("X", T, T, -3, 3);
    D = x.integers("D", T, 1, 0, 3);
    v = x.vector("v", T);
    t = x.number("t");
    Exact::require(t.sign() > 0);
  }
  /// t^exponent(i, j) on pairs j ≤ i, or on all; 0 on others.
  template <class Exponent>
  [[nodiscard]] Square weights(const Exponent& exponent, bool causal = true) const {
    Square W = Square::Zero(T, T);
    for (Index i = 0; i < T; ++i)
      for (Index j = 0; j < (causal ? i + 1 : T); ++j) W(j, i) = whole_power(t, exponent(i, j));
    return W;
  }
  [[nodiscard]] Square weights(bool causal = true) const {
    return weights([this](Index i, Index j) { return X(j, i); }, causal);
  }
  /// Σ_{s=j+1..i} D_s.
  [[nodiscard]] Index distance(Index i, Index j) const { return D.col(0).segment(j + 1, i - j).sum(); }
  /// a_s.
  [[nodiscard]] std::vector<Rational> gates() const {
    std::vector<Rational> a;
    for (Index s = 0; s < T; ++s) a.push_back(whole_power(t, -D(s, 0)));
    return a;
  }
  /// Softmax(…) V: means by columns.
  [[nodiscard]] Square means(const Square& W) const { return means(W, v); }
  [[nodiscard]] static Square means(const Square& W, const Numbers& values) {
    Square Y(1, W.cols());
    for (Index i = 0; i < W.cols(); ++i) Y(0, i) = W.col(i).dot(values) / W.col(i).sum();
    return Y;
  }
  /// The recurrent form: running sums of s and of s v.
  template <class Score>
  [[nodiscard]] Square loop(const Score& score) const {
    return exact::attend(score, Square(v.transpose()));
  }
};

template <class Check>
[[nodiscard]] ExactStatement on_logits(const Check& check) {
  return [check](Exact& x) { check(x, Logits(x)); };
}

/// 3.A1 to 3.A5: what softmax sees.
inline void softmax_forms(Identities& all) {
  all.add("3.A1", on_logits([](Exact& x, const Logits& l) {
            x.equal(l.loop([&](Index i, Index j) { return whole_power(l.t, l.X(j, i)); }), l.means(l.weights()));
          }));
  all.add("3.A1s", on_logits([](Exact& x, const Logits& l) {  // d = 4, even logits
            x.equal(l.means(l.weights()), l.means(l.weights([&](Index i, Index j) { return 2 * l.X(j, i); })));
          }));
  all.add("3.A2", on_logits([](Exact& x, const Logits& l) {
            x.equal(l.means(l.weights([&](Index i, Index j) { return l.X(j, i) + 1; })), l.means(l.weights()));
          }));
  all.add("3.A2m", on_logits([](Exact& x, const Logits& l) {
            const auto added = [&](Index i, Index j) { return l.X(j, i) + (j <= i ? 1 : 0); };
            x.equal(l.means(l.weights(added, false)), l.means(l.weights()));
          }));
  const auto rolled = [](bool causal) {  // token i + 1 in the place of token i
    return on_logits([causal](Exact& x, const Logits& l) {
      Logits other = l;
      const auto at = [&](Index i) { return (i + 1) % l.T; };
      for (Index i = 0; i < l.T; ++i) {
        other.v[i] = l.v[at(i)];
        for (Index j = 0; j < l.T; ++j) other.X(j, i) = l.X(at(j), at(i));
      }
      const Square Y = l.means(l.weights(causal)), moved = other.means(other.weights(causal));
      for (Index i = 0; i < l.T; ++i) x.equal(moved(0, i), Y(0, at(i)));
    });
  };
  all.erratum("3.A3", rolled(true), rolled(false));
  all.add("3.A3b.fix", on_logits([](Exact& x, const Logits& l) {  // the first two tokens change places
            Logits other = l;
            std::swap(other.v[0], other.v[1]);
            other.X.row(0).swap(other.X.row(1)), other.X.col(0).swap(other.X.col(1));
            x.equal(other.means(other.weights()).rightCols(l.T - 2), l.means(l.weights()).rightCols(l.T - 2));
          }));
  const auto sums = [](bool printed) {  // k_jᵀ D_ti q_t is any other logit; D_tt is the empty product
    return on_logits([printed](Exact& x, const Logits& l) {
      const auto multiplied = [&](Index i, Index j) { return l.X(i, j) + l.X(j, i) - (i == j ? l.X(i, i) : 0); };
      const Square W = printed ? l.weights() : l.weights(multiplied);
      for (Index i = 0; i < l.T; ++i)
        x.equal(W.col(i).sum() / l.weights(multiplied).col(i).sum(), number(1), "the sum of the weights:");
    });
  };
  all.erratum("3.A4", sums(true), sums(false));
}

/// 3.A5, 3.D1 to 3.D6t: biases are gates under exp.
inline void biases(Identities& all) {
  const auto biased = [](bool frozen) {  // by Σ_s D_s, or with i in the place of s
    return on_logits([frozen](Exact& x, const Logits& l) {
      const std::vector<Rational> a = l.gates();
      const auto D = [&](Index i, Index j) { return frozen ? l.D(i, 0) * (i - j) : l.distance(i, j); };
      const auto score = [&](Index i, Index j) { return whole_power(l.t, l.X(j, i)) * product(a, i, j); };
      x.equal(l.means(l.weights([&](Index i, Index j) { return l.X(j, i) - D(i, j); })), l.loop(score));
    });
  };
  all.add("3.A5", biased(false));
  all.add("3.D6e", biased(false));
  all.erratum("3.D6b", biased(true), biased(false));
  const auto duality = [](Index kind, Index sign) {  // 1, a constant gate t^{-λ}, any gates, and these frozen at i
    return on_logits([=](Exact& x, const Logits& l) {
      std::vector<Rational> a(static_cast<std::size_t>(l.T), number(1));
      if (kind == 1) a.assign(a.size(), whole_power(l.t, -l.D(0, 0)));
      if (kind >= 2) a = l.gates();
      const auto D = [&](Index i, Index j) {
        return sign * (kind == 0 ? 0 : kind == 2 ? l.distance(i, j) : l.D(kind == 1 ? 0 : i, 0) * (i - j));
      };
      const Sequence s{one(l.T), l.X.template cast<Rational>(), Square(l.v.transpose())};  // q_i = e_i
      Square masked = Square::Zero(l.T, l.T);
      for (Index i = 0; i < l.T; ++i)
        for (Index j = 0; j <= i; ++j) masked(j, i) = s.K(i, j) * whole_power(l.t, D(i, j));
      x.equal(recurrence(Power{1}, {a, {}}, s), l.v.transpose() * masked, "the linear system:");
      const auto dual = [&](Index i, Index j) { return whole_power(l.t, l.X(i, j)) * product(a, i, j); };
      x.equal(l.means(l.weights([&](Index i, Index j) { return l.X(i, j) + D(i, j); })), l.loop(dual), "its dual:");
    });
  };
  all.add("3.D1", duality(0, -1));
  all.add("3.D2", duality(1, -1));
  all.erratum("3.D2s", duality(1, 1), duality(1, -1));
  all.add("3.D3M", duality(2, -1));
  all.erratum("3.D3b", duality(3, -1), duality(2, -1));
  struct Listing {
    bool constant, keeps_logits, masked;
  };
  const auto listed = [](Listing kind) {  // tril(): 0 above the diagonal, of the bias or of all
    return on_logits([kind](Exact& x, const Logits& l) {
      const auto D = [&](Index i, Index j) { return kind.constant ? l.D(0, 0) * (i - j) : l.distance(i, j); };
      const auto lower = [&](Index i, Index j) { return l.X(j, i) - D(i, j); };
      const auto all_pairs = [&](Index i, Index j) {
        return j <= i ? lower(i, j) : kind.keeps_logits ? l.X(j, i) : Index(0);
      };
      x.equal(l.means(l.weights(all_pairs, kind.masked)), l.means(l.weights(lower)));
    });
  };
  all.erratum("3.D2t", listed({true, true, false}), listed({true, true, true}));
  all.erratum("3.D3t", listed({false, true, false}), listed({false, true, true}));
  all.erratum("3.D6t", listed({false, false, false}), listed({false, false, true}));
  const auto of_rope = [](bool masked) {
    return on_logits([masked](Exact& x, const Logits& l) {
      x.equal(l.means(l.weights(masked)), l.loop([&](Index i, Index j) { return whole_power(l.t, l.X(j, i)); }));
    });
  };
  all.erratum("3.D4m", of_rope(false), of_rope(true));
  all.add("3.D3v.fix", [](Exact& x) {
    x.about("the linear side and its scores");
    const Index d = x.size("d", {2, 3}), T = x.size("T", {3, 4});
    const Sequence s = tokens(x, d, T);
    const Square a = x.matrix("a", d, T);
    std::vector<Square> A;
    for (Index t = 0; t < T; ++t) A.push_back(a.col(t).asDiagonal());
    same_sums(x, {{}, A}, s,
              [&](Index t, Index j) { return Rational(s.K.col(j).dot(product(A, t, j, d) * s.Q.col(t))); });
  });
}

/// 3.D5H, 3.D5o and 3.D5l.fix: the scores of PaTH's listing beside k_jᵀ Π (I - β_s k_s k_sᵀ) q_i.
inline void listed_chains(Identities& all) {
  struct Faults {
    bool gate = false, order = false;
  };
  const auto scores = [](Faults faults) {
    return [faults](Exact& x) {
      x.about("the scores");
      const Index d = x.size("d", {2, 3}), T = x.size("T", {3, 4});
      const Square Q = x.matrix("Q", d, T), K = x.matrix("K", d, T);
      const Numbers beta = ones_without(x, "β", T);
      std::vector<Square> H = chain(K, beta), listed = H;
      for (Index t = 0; faults.gate && t < T; ++t)
        listed[static_cast<std::size_t>(t)] = beta[t] * (one(d) - K.col(t) * K.col(t).transpose());
      for (Index i = 0; i < T; ++i)
        for (Index j = 0; j <= i; ++j)
          x.equal(K.col(j).dot(product(listed, i, j, d, faults.order) * Q.col(i)),
                  K.col(j).dot(product(H, i, j, d) * Q.col(i)), "a score:");
    };
  };
  all.erratum("3.D5H", scores({.gate = true}), scores({}));
  all.erratum("3.D5o", scores({.order = true}), scores({}));
  all.add("3.D5l.fix", scores({}));
}

/// ⊕_{n ≤ degree} φ^n/√n!, whose inner products are Taylor's polynomials of exp.
struct Taylor {
  int degree = 6;

  template <class Part>
  [[nodiscard]] Numbers joined(const Part& part) const {
    Numbers all = Numbers::Ones(1);
    for (int n = 1; n <= degree; ++n) {
      const Numbers next = part(n);
      all.conservativeResize(all.size() + next.size());
      all.tail(next.size()) = next;
    }
    return all;
  }
  [[nodiscard]] Rational kappa(const Rational& s) const {
    Rational sum(1), term(1);
    for (int n = 1; n <= degree; ++n) sum += term *= s / number(n);
    return sum;
  }
  [[nodiscard]] Numbers embed(const Numbers& x) const {
    return joined([&](int n) { return exact::monomials(x, n); });
  }
  template <class Scalar>
  [[nodiscard]] Numbers metric(Index d) const {
    return joined([&](int n) { return Numbers(exact::weights<Rational>(d, n) / number(factorial(n))); });
  }
  [[nodiscard]] Square lifted(const Square& A) const {
    Square L = Square::Ones(1, 1);
    for (int n = 1; n <= degree; ++n) {
      const Square next = exact::lift(A, n);
      Square larger = Square::Zero(L.rows() + next.rows(), L.cols() + next.cols());
      larger.topLeftCorner(L.rows(), L.cols()) = L;
      larger.bottomRightCorner(next.rows(), next.cols()) = next;
      L = larger;
    }
    return L;
  }
};

/// AL4: the same gate and the same rotation for all tokens.
inline void conformal_softmax(Identities& all) {
  all.add("AL4", [](Exact& x) {
    const Index T = x.size("T", {2, 3});
    const Sequence s = tokens(x, 2, T);
    const std::vector<Square> R = turn_of_all(x, 1, T);
    const std::vector<Rational> gamma(static_cast<std::size_t>(T), x.number("γ"));
    const Taylor taylor;
    const auto score = [&](Index i, Index j) {
      return product(gamma, i, j) * taylor.kappa(s.K.col(j).dot(product(R, i, j, 2) * s.Q.col(i)));
    };
    three_forms(x, taylor, {gamma, R}, s, exact::attend(score, s.V, true));
  });
}

}  // namespace detail::identities

/// The statements on softmax attention, biases and their duals.
inline void softmax_identities(Identities& all) {
  detail::identities::softmax_forms(all);
  detail::identities::biases(all);
  detail::identities::listed_chains(all);
  detail::identities::conformal_softmax(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
