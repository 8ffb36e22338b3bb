// Over the rational numbers: forget gates, the complex gate and Householder chains (paper D).
#pragma once

#include "identities/identity.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

/// Any matrices A_1 … A_T, d × d.
[[nodiscard]] inline std::vector<Square> dense_gates(Exact& x, Index d, Index T) {
  std::vector<Square> all;
  for (Index t = 0; t < T; ++t) all.push_back(x.matrix("A_" + std::to_string(t + 1), d, d));
  return all;
}
/// The sums Σ_j s(i, j) v_j of a recurrence S_t = S_{t-1} γ_t A_t + v_t k_tᵀ, o_t = S_t q_t, beside those of scores.
template <class Score>
void same_sums(Exact& x, const Gates<Rational>& A, const Sequence& s, const Score& score) {
  x.equal(recurrence(Power{1}, A, s).row(0), exact::attend(score, s.V, true).row(0));
}

/// 3.L1 to 3.G3.
inline void linear_recurrences(Identities& all) {
  all.add("3.L1", [](Exact& x) {
    const Index d = x.size("d", {2, 4}), T = x.size("T", {3, 5});
    const Sequence s = tokens(x, d, T);
    Square masked = Square::Zero(T, T);  // (Q Kᵀ ⊙ M), a token a column
    for (Index i = 0; i < T; ++i)
      for (Index j = 0; j < T; ++j) masked(j, i) = number(j <= i) * s.Q.col(i).dot(s.K.col(j));
    x.equal(recurrence(Power{1}, {}, s), s.V * masked);
  });
  const auto unrolled = [](bool descending) {
    return [descending](Exact& x) {
      const Index d = x.size("d", {2, 3}), T = x.size("T", {3, 5});
      const Sequence s = tokens(x, d, T);
      const std::vector<Square> A = dense_gates(x, d, T);
      same_sums(x, {{}, A}, s, [&](Index i, Index j) {
        return Rational(s.K.col(j).dot(product(A, i, j, d, descending) * s.Q.col(i)));
      });
    };
  };
  all.add("3.L2", unrolled(false));
  all.add("3.L2r", unrolled(true));
  all.add("3.G1", [](Exact& x) {  // B + (λ v - B v) vᵀ/(vᵀv) has the eigenvector v
    const Index d = x.size("d", {2, 4}), k = x.integer("k", 1, 7);
    const Numbers v = x.vector("v", d);
    const Rational lambda = x.number("λ"), vv = square(v);
    const Square B = x.matrix("B", d, d), A = B + (lambda * v - B * v) * v.transpose() / vv;
    x.equal(exact::power(A, k) * v, power(lambda, static_cast<int>(k)) * v);
  });
  all.erratum(
      "3.G2",
      [](Exact& x) {  // [0, a; 0, 0] and [0, 0; b, 0] have the eigenvalue 0 alone
        Square A = Square::Zero(2, 2), B = A;
        A(0, 1) = x.number("a"), B(1, 0) = x.number("b");
        const Numbers y = x.vector("x", 2);
        x.at_most(square(A * B * y), square(y), "‖A B x‖² ≤ ‖x‖²:");
      },
      [](Exact& x) {  // U diag(cos) V has a norm of at most 1
        const Index d = x.size("d", {2, 3});
        const Numbers y = x.vector("x", d);
        x.at_most(square(contraction(x, "A", d) * contraction(x, "B", d) * y), square(y));
      });
  const auto lengths = [](bool strictly) {  // of the gates 1, e^{iΩ} and I - β k kᵀ with ‖k‖² β ≤ 2
    return [strictly](Exact& x) {
      const Index n = x.size("d/2", {1, 2});
      const Numbers y = x.vector("x", 2 * n), k = x.vector("k", 2 * n);
      const Rational beta = (number(1) + exact::Turn<Rational>(x.number("t")).cosine) / square(k);
      Exact::require(square(y).sign() > 0);
      for (const Square& A : {one(2 * n), exact::rotation(x.vector("tan Ω/2", n)), exact::householder(k, beta)}) {
        if (strictly)
          x.is(square(A * y) < square(y), "‖A x‖ < ‖x‖:");
        else
          x.at_most(square(A * y), square(y));
      }
    };
  };
  all.erratum("3.G3", lengths(true), lengths(false));
}

/// 3.G4c to 3.M4, and the gates of §2 and §3: D_s stands for -log A_s, any numbers that are not negative.
inline void gates_as_distances(Identities& all) {
  all.add("3.G4d", [](Exact& x) {
    const Numbers k = x.vector("k", x.size("d", {1, 3}));
    x.is(exact::determinant(exact::householder(k, number(1) / square(k))).sign() != 0, "no eigenvalue 0:");
  });
  all.add("3.G4c", [](Exact& x) {
    const Square R = exact::rotation(x.vector("tan Ω/2", x.size("d/2", {1, 2})));
    x.equal(R, R.transpose());
  });
  const auto distances = [](Exact& x, Index smallest) {
    const Index T = x.size("T", {3, 5});
    Numbers D(T);
    for (Index s = 0; s < T; ++s) D[s] = number(x.integer("D_" + std::to_string(s + 1), smallest, 99));
    return D;
  };
  const auto between = [](const Numbers& D, Index j, Index t) { return Rational(D.segment(j + 1, t - j).sum()); };
  const auto each_pair = [=](Index smallest, auto check) {
    return [=](Exact& x) {
      x.about("any D_s, a whole number");
      const Numbers D = distances(x, smallest);
      for (Index t = 0; t < D.size(); ++t)
        for (Index j = 0; j <= t; ++j) check(x, j, t, [&](Index a, Index b) { return between(D, a, b); });
    };
  };
  all.add("3.M1", each_pair(0, [](Exact& x, Index j, Index t, auto D) { x.at_most(number(0), D(j, t)); }));
  all.add("3.M2", each_pair(0, [](Exact& x, Index, Index t, auto D) { x.equal(D(t, t), number(0)); }));
  const auto apart = [](Exact& x, Index j, Index t, auto D) { x.is(j == t || D(j, t).sign() > 0, "D(j, t) > 0:"); };
  all.erratum("3.M3", each_pair(0, apart), each_pair(1, apart));
  all.add("3.M4", each_pair(0, [](Exact& x, Index j, Index t, auto D) {
            for (Index k = j; k <= t; ++k) x.equal(D(j, t), D(j, k) + D(k, t));
          }));
  const auto products = [](bool printed) {  // Π_s a_s, printed with a_t for a_s
    return [printed](Exact& x) {
      x.about("products of gates, whatever they are");
      const Index T = x.size("T", {3, 5});
      const std::vector<Rational> a = gates(x, T);
      const Sequence weights{Square::Ones(1, T), Square::Ones(1, T), one(T)};
      const Square b = recurrence(Power{1}, {a, {}}, weights);
      for (Index t = 0; t < T; ++t)
        for (Index j = 0; j <= t; ++j)
          x.equal(printed ? power(a[static_cast<std::size_t>(t)], static_cast<int>(t - j)) : product(a, t, j), b(j, t));
    };
  };
  all.erratum("3.D3x", products(true), products(false));
  all.erratum("3.D3y", products(true), products(false));
  all.add("3.D3m", [](Exact& x) {  // exp(-log(1 + E)) and σ(-z) = e^{-z}/(1 + e^{-z})
    x.about("E = e^z in place of z");
    const Rational E = x.number("E");
    Exact::require(E.sign() > 0);
    x.equal(number(1) / (number(1) + E), number(1) / E / (number(1) + number(1) / E));
  });
  all.add("3.D3g", [](Exact& x) {
    const Index d = x.size("d", {2, 3}, 2);
    const Numbers a = x.vector("a", d);
    for (Index n = 1; n < d; ++n) x.equal(a[n], a[0], "one gate for all channels:");
  });
}

/// A point of the plane by its length and a phase.
struct Phase {
  Rational length;
  exact::Turn<Rational> at;
  [[nodiscard]] static Phase drawn(Exact& x, const std::string& name) {
    const Rational length = x.number("|" + name + "|");
    return {length, exact::Turn<Rational>(x.number("tan φ_" + name + "/2"))};
  }
  [[nodiscard]] Numbers vector() const {
    Numbers v(2);
    v << at.cosine, at.sine;
    return length * v;
  }
  /// The rotation by the phase.
  [[nodiscard]] Square turn() const {
    Square R(2, 2);
    R << at.cosine, -at.sine, at.sine, at.cosine;
    return R;
  }
};

/// 3.D4 to 3.D4z: the complex gate.
inline void complex_gates(Identities& all) {
  all.add("3.D4", [](Exact& x) {  // S is a pair of real matrices, a column of S a plane
    x.about("the linear side and its scores");
    const Index n = x.size("d/2", {1, 2}), T = x.size("T", {3, 5});
    const Sequence s = tokens(x, 2 * n, T);
    const Square R = exact::rotation(x.vector("tan Ω/2", n));
    Numbers re = Numbers::Zero(n), im = re, o = Numbers::Zero(T);
    for (Index t = 0; t < T; ++t)
      for (Index m = 0; m < n; ++m) {
        const Rational c = R(2 * m, 2 * m), d = R(2 * m + 1, 2 * m), v = s.V(0, t), a = re[m] * c - im[m] * d;
        im[m] = re[m] * d + im[m] * c - v * s.K(2 * m + 1, t);
        re[m] = a + v * s.K(2 * m, t);
        o[t] += re[m] * s.Q(2 * m, t) - im[m] * s.Q(2 * m + 1, t);
      }
    const auto score = [&](Index i, Index j) {  // Re(kᴴ e^{iΩ(t-j)} q), which is RoPE's
      return Rational((exact::power(R, i) * s.Q.col(i)).dot(exact::power(R, j) * s.K.col(j)));
    };
    x.equal(o.transpose(), exact::attend(score, s.V, true).row(0));
  });
  const auto phases = [](bool printed) {  // cos(Ω + φ_q - φ_k), printed with -φ_q
    return [printed](Exact& x) {
      const Phase q = Phase::drawn(x, "q"), k = Phase::drawn(x, "k");
      const Square R = exact::rotation(x.vector("tan Ω/2", 1)), Q = printed ? Square(q.turn().transpose()) : q.turn();
      const Rational cosine = (R * Q * k.turn().transpose())(0, 0);
      x.equal(q.length * k.length * cosine, k.vector().dot(R * q.vector()));
    };
  };
  all.erratum("3.D4p", phases(true), phases(false));
  const auto identity = [](bool printed, bool exchanged) {
    return [=](Exact& x) {
      const Square q = exact::rotation(x.vector("tan φ_q/2", 1)), k = exact::rotation(x.vector("tan φ_k/2", 1)),
                   R = exact::rotation(x.vector("tan Ω/2", 1));
      const Rational cosine = (R * (printed ? Square(q.transpose()) : q) * k.transpose())(0, 0);
      const Numbers u = q.col(0), v = k.col(0);
      x.equal(cosine, printed ? u.dot(R * v) : exchanged ? v.dot(R * u) : u.dot(R.transpose() * v));
    };
  };
  all.erratum("3.D4c", identity(true, false), identity(false, true));
  all.add("3.D4cb.fix", identity(false, false));
  all.add("3.D4r", [](Exact& x) {  // arctan a + arctan b = arctan (a + b)/(1 - ab)
    const Rational a = x.number("tan α/2"), b = x.number("tan β/2");
    const auto R = [](const Rational& t) { return exact::rotation(Numbers(Numbers::Constant(1, t))); };
    x.equal(R(a) * R(b), R((a + b) / (number(1) - a * b)));
  });
  all.add("3.D4k", [](Exact& x) {
    const Index k = x.integer("k", 0, 9), l = x.integer("l", 0, 9);
    const Square R = exact::rotation(x.vector("tan ω/2", x.size("d/2", {1, 2})));
    x.equal(exact::power(R, k) * exact::power(R, l), exact::power(R, k + l));
  });
  all.add("3.D4i", [](Exact& x) {
    const Numbers t = x.vector("tan ω/2", x.size("d/2", {1, 2}));
    x.equal(exact::inverse(exact::rotation(t)), exact::rotation(Numbers(-t)));
    x.equal(exact::inverse(exact::rotation(t)), exact::rotation(t).transpose());
  });
}

/// 3.D4x to 3.D4z: its scores in real numbers, a rotation for all tokens.
inline void real_scores(Identities& all) {
  using Score = std::function<Rational(const Square& R, const Sequence& s, Index t, Index j)>;
  const auto scores = [](bool forward, const Score& score) {  // beside the recurrence with the gate R or Rᵀ
    return [=](Exact& x) {
      const Index n = x.size("d/2", {1, 2}), T = x.size("T", {2, 4});
      const Sequence s = tokens(x, 2 * n, T);
      const Square R = exact::rotation(x.vector("tan Ω/2", n)), gate = forward ? R : Square(R.transpose());
      same_sums(x, {{}, {static_cast<std::size_t>(T), gate}}, s, [&](Index t, Index j) { return score(R, s, t, j); });
    };
  };
  const auto turned = [](Index first, bool backwards) {
    return [=](const Square& R, const Sequence& s, Index t, Index j) {
      const Square turn = backwards ? Square(R.transpose()) : R;
      return Rational((exact::power(turn, t + first) * s.Q.col(t)).dot(exact::power(turn, j + first) * s.K.col(j)));
    };
  };
  const auto chain = [](bool printed) {
    return [printed](const Square& R, const Sequence& s, Index t, Index j) {
      return Rational(s.Q.col(t).dot(exact::power(R, t - j) * s.K.col(printed ? t : j)));
    };
  };
  all.erratum("3.D4x", scores(false, chain(true)), scores(false, chain(false)));
  all.erratum("3.D4b", scores(true, turned(0, true)), scores(true, turned(0, false)));
  all.add("3.D4z", scores(true, turned(1, false)));
  all.add("3.D4y", [](Exact& x) {
    const Index n = x.size("d/2", {1, 2}), t = x.integer("t", 0, 5), j = x.integer("j", 0, 5);
    Exact::require(j <= t);
    const Numbers q = x.vector("q", 2 * n), k = x.vector("k", 2 * n);
    const Square R = exact::rotation(x.vector("tan Ω/2", n)), back = exact::inverse(R);
    const Rational whole = q.dot(exact::power(R, t - j) * k);
    x.equal(whole, (exact::power(R, t).transpose() * q).dot(exact::power(back, j) * k));
    x.equal(whole, (exact::power(back, t) * q).dot(exact::power(back, j) * k));
  });
  const auto outputs = [](bool printed) {  // values of as many coordinates as queries
    return [printed](Exact& x) {
      const Index d = 2 * x.size("d/2", {1, 2}), T = x.size("T", {1, 3});
      const Sequence s{x.matrix("Q", d, T), x.matrix("K", d, T), x.matrix("V", d, T)};
      const Square R = exact::rotation(x.vector("tan Ω/2", d / 2));
      Square S = Square::Zero(d, d), o(d, T);
      for (Index t = 0; t < T; ++t) {
        const Square at = exact::power(R, t);
        S += s.V.col(t) * ((printed ? Square(at.transpose()) : at) * s.K.col(t)).transpose();
        o.col(t) = printed ? Numbers(S.transpose() * (at * s.Q.col(t))) : Numbers(S * (at * s.Q.col(t)));
      }
      exact::State<Rational> state;
      const Gates<Rational> gate{{}, {static_cast<std::size_t>(T), R}};
      x.equal(o, exact::recurrent(Power{1}, gate, s, state, true));
    };
  };
  all.erratum("3.D4o", outputs(true), outputs(false));
}

/// I - β_t w_t w_tᵀ for every token.
[[nodiscard]] inline std::vector<Square> chain(const Square& w, const Numbers& beta) {
  std::vector<Square> A;
  for (Index t = 0; t < w.cols(); ++t) A.push_back(exact::householder(w.col(t), beta[t]));
  return A;
}

/// 3.D5h to 3.D5u: single gates.
inline void householder_matrices(Identities& all) {
  all.add("3.D5h", [](Exact& x) {
    const Numbers v = x.vector("v", x.size("d", {2, 4}));
    const Square H = exact::householder(v, number(2) / square(v));
    x.equal(H, H.transpose(), "symmetric");
    x.equal(H * H, one(v.size()), "orthogonal");
    x.equal(exact::determinant(H), number(-1), "determinant");
  });
  all.erratum(
      "3.D5a",
      [](Exact& x) {
        const Numbers v = x.vector("v", x.size("d", {2, 3}));
        const Rational alpha = x.number("α");
        Exact::require(square(v).sign() > 0);
        const Square H = exact::householder(v, alpha);
        if (H.transpose() * H == one(v.size())) x.equal(alpha * square(v), number(2), "α vᵀv of an orthogonal one:");
      },
      [](Exact& x) {  // HᵀH - I = α (α vᵀv - 2) v vᵀ, whose norm is |α vᵀv| |α vᵀv - 2|
        const Numbers v = x.vector("v", x.size("d", {2, 3}));
        const Rational alpha = x.number("α");
        const Square H = exact::householder(v, alpha);
        x.equal(H.transpose() * H - one(v.size()), alpha * (alpha * square(v) - number(2)) * (v * v.transpose()));
      });
  const auto contraction = [](bool normalized) {  // β = 2/(1 + s²)
    return [normalized](Exact& x) {
      const Index d = x.size("d", {2, 3}), T = x.size("T", {1, 4});
      const Numbers y = x.vector("x", d);
      Numbers image = y;
      for (Index t = 0; t < T; ++t) {
        const Numbers k = x.vector("k_" + std::to_string(t + 1), d);
        const Rational s = x.number("s_" + std::to_string(t + 1)), beta = number(2) / (number(1) + s * s);
        image = (exact::householder(k, normalized ? beta / square(k) : beta / number(2)) * image).eval();
      }
      x.at_most(square(image), square(y), "‖A x‖² ≤ ‖x‖²:");
    };
  };
  all.add("3.D5n", contraction(true));
  all.add("3.D5u", contraction(false));
}

/// 3.D5 to 3.D6: chains, their recurrences and the UT transform.
inline void householder_chains(Identities& all) {
  struct Kind {
    bool descending = false, own_keys = true, gated = false;
  };
  const auto unrolled = [](Kind kind) {
    return [kind](Exact& x) {
      x.about("the linear side and its scores");
      const Index d = x.size("d", {2, 3}), T = x.size("T", {3, 4});
      const Sequence s = tokens(x, d, T);
      const Square w = kind.own_keys ? s.K : x.matrix("w", d, T);
      const std::vector<Square> A = chain(w, ones_without(x, "β", T));
      const std::vector<Rational> a = kind.gated ? gates(x, T) : std::vector<Rational>(static_cast<std::size_t>(T), 1);
      same_sums(x, {a, A}, s, [&](Index t, Index j) {
        return Rational(product(a, t, j) * s.K.col(j).dot(product(A, t, j, d, kind.descending) * s.Q.col(t)));
      });
    };
  };
  all.add("3.D5", unrolled({}));
  all.add("3.D5r", unrolled({.descending = true}));
  all.add("3.D5g", unrolled({.own_keys = false}));
  all.add("3.D6", unrolled({.gated = true}));
  const auto delta_rule = [](bool weighed) {
    return [weighed](Exact& x) {
      const Index d = x.size("d", {2, 3}), T = x.size("T", {2, 4});
      Sequence s = tokens(x, d, T);
      const Numbers beta = ones_without(x, "β", T);
      Square S = Square::Zero(1, d), o(1, T);
      for (Index t = 0; t < T; ++t) {
        const Numbers k = s.K.col(t);
        S = (S - beta[t] * ((S * k)(0, 0) - s.V(0, t)) * k.transpose()).eval();
        o(0, t) = (S * s.Q.col(t))(0, 0);
      }
      if (weighed) s.V.row(0) = s.V.row(0).cwiseProduct(beta.transpose()).eval();
      x.equal(recurrence(Power{1}, {{}, chain(s.K, beta)}, s).row(0), o);
    };
  };
  all.add("3.D5w", delta_rule(false));
  all.add("3.D5v", delta_rule(true));
  const auto compact = [](bool exchanged) {  // H_1 … H_T = I - W (I + D U)⁻¹ D Wᵀ, tokens in columns
    return [exchanged](Exact& x) {
      const Index d = x.size("d", {2, 3}), T = x.size("T", {3, 5});
      const Square W = x.matrix("W", d, T), gram = W.transpose() * W;
      const Numbers beta = ones_without(x, "β", T);
      const Square D = beta.asDiagonal();
      Square U = Square::Zero(T, T);
      for (Index s = 0; s < T; ++s)
        for (Index t = s + 1; t < T; ++t) U(s, t) = gram(s, t);
      const Square upwards = product(chain(W, beta), T - 1, -1, d);
      const auto form = [&](const Square& triangle) {
        return Square(one(d) - W * exact::inverse(Square(one(T) + D * triangle)) * D * W.transpose());
      };
      x.equal(form(exchanged ? Square(U.transpose()) : U), upwards);
      if (!exchanged) x.equal(form(U.transpose()), upwards.transpose(), "H_T … H_1");
    };
  };
  all.add("3.D5t", compact(false));
  all.add("3.D5s", compact(true));
}

/// 3.D2c, 3.D3w.fix and 3.D6c.fix: what the listings return below the diagonal.
inline void lower_triangles(Identities& all) {
  const auto distance = [](const Numbers& log_gates, Index i, Index j) {
    Rational D(0);
    for (Index s = j + 1; s <= i; ++s) D -= log_gates[s];
    return D;
  };
  all.add("3.D2c", [=](Exact& x) {
    const Index T = x.size("T", {3, 6});
    const Rational lambda = x.number("λ");
    const Numbers log_gates = Numbers::Constant(T, -lambda);
    for (Index i = 0; i < T; ++i)
      for (Index j = 0; j <= i; ++j) x.equal(-(abs(number(i - j)) * lambda), -distance(log_gates, i, j));
  });
  const auto differences = [](const Numbers& log_gates) {  // of the running sums
    Numbers a = log_gates;
    for (Index t = 1; t < a.size(); ++t) a[t] += a[t - 1];
    return [a](Index i, Index j) { return Rational(a[i] - a[j]); };
  };
  all.add("3.D3w.fix", [=](Exact& x) {
    x.about("any log gates");
    const Index T = x.size("T", {3, 6});
    const Numbers log_gates = x.vector("log σ", T);
    for (Index i = 0; i < T; ++i)
      for (Index j = 0; j <= i; ++j) x.equal(differences(log_gates)(i, j), -distance(log_gates, i, j));
  });
  all.add("3.D6c.fix", [=](Exact& x) {
    x.about("any log gates");
    const Index d = x.size("d", {2, 3}), T = x.size("T", {3, 4});
    const Square Q = x.matrix("Q", d, T), K = x.matrix("K", d, T);
    const std::vector<Square> H = chain(K, ones_without(x, "β", T));
    const Numbers log_gates = x.vector("log σ", T);
    const Square logits = recurrence(Power{1}, {{}, H}, {Q, K, one(T)});
    for (Index i = 0; i < T; ++i)
      for (Index j = 0; j <= i; ++j)
        x.equal(K.col(j).dot(product(H, i, j, d) * Q.col(i)) + differences(log_gates)(i, j),
                logits(j, i) - distance(log_gates, i, j));
  });
}

/// 3.D4l: the listing of RoPE.
inline void listed_rotations(Identities& all) {
  all.add("3.D4l", [](Exact& x) {  // cos and sin of t ω by their recurrence
    x.about("the logits");
    const Index n = x.size("d/2", {1, 2}), T = x.size("T", {3, 4});
    const Sequence s = tokens(x, 2 * n, T);
    const Numbers t = x.vector("tan ω/2", n);
    const Square R = exact::rotation(t);
    Square cosine = Square::Ones(n, T), sine = Square::Zero(n, T);
    for (Index u = 0; u < n; ++u)
      for (Index i = 1; i < T; ++i) {
        const exact::Turn<Rational> turn(t[u]);
        cosine(u, i) = cosine(u, i - 1) * turn.cosine - sine(u, i - 1) * turn.sine;
        sine(u, i) = sine(u, i - 1) * turn.cosine + cosine(u, i - 1) * turn.sine;
      }
    const auto rotate = [&](const Square& X) {
      Square Y(2 * n, T);
      for (Index i = 0; i < T; ++i)
        for (Index u = 0; u < n; ++u) {
          Y(2 * u, i) = X(2 * u, i) * cosine(u, i) - X(2 * u + 1, i) * sine(u, i);
          Y(2 * u + 1, i) = X(2 * u, i) * sine(u, i) + X(2 * u + 1, i) * cosine(u, i);
        }
      return Y;
    };
    const Square logits = rotate(s.K).transpose() * rotate(s.Q);
    for (Index i = 0; i < T; ++i)
      for (Index j = 0; j < T; ++j)
        x.equal(logits(j, i), (exact::power(R, i) * s.Q.col(i)).dot(exact::power(R, j) * s.K.col(j)));
  });
}

}  // namespace detail::identities

/// The statements of D on gates and their recurrences.
inline void gate_identities(Identities& all) {
  detail::identities::linear_recurrences(all);
  detail::identities::gates_as_distances(all);
  detail::identities::complex_gates(all);
  detail::identities::real_scores(all);
  detail::identities::householder_matrices(all);
  detail::identities::householder_chains(all);
  detail::identities::lower_triangles(all);
  detail::identities::listed_rotations(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
