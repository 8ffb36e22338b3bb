// Over the rational numbers: attention is a recurrence, under rotations and gates (papers A to C).
#pragma once

#include "identities/identity.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

inline std::string named(const char* id, int p) { return id + (".p" + std::to_string(p)); }

/// Whether a score that rows are divided by is not 0 where neither the query nor the key is.
inline void vanishing_sum(Exact& x) {
  const Index d = x.size("d", {2, 3}, 2);
  const Numbers q = x.vector("q", d), k = x.vector("k", d);
  Exact::require(square(q).sign() > 0 && square(k).sign() > 0);
  x.is(power(q.dot(k), 4).sign() != 0, "a sum to divide by:");
}

/// The definition, the recurrence and the chunked form.
template <class Feature>
void three_forms(Exact& x, const Feature& feature, const Gates<Rational>& A, const Sequence& tokens, const Square& Y) {
  same_rows(x, exact::definition(feature, A, tokens, true), Y, "definition");
  same_rows(x, recurrence(feature, A, tokens), Y, "recurrence");
  same_rows(x, exact::chunked(feature, A, tokens, 2, true), Y, "chunks of 2");
}

/// F1 to F5.
inline void recurrences(Identities& all) {
  for (const int p : {2, 4})
    all.add(named("F1", p), [p](Exact& x) {
      const Index d = x.size("d", {2, 3}), T = x.size("T", {3, 5});
      const Sequence s = tokens(x, d, T);
      const auto score = [&](Index i, Index j) { return power(s.Q.col(i).dot(s.K.col(j)), p); };
      three_forms(x, Power{p}, {}, s, exact::attend(score, s.V, true));
    });
  all.add("F2", [](Exact& x) {  // Q and K hold φ of queries and keys, whatever they are
    const Index D = x.size("D", {3, 7}), T = x.size("T", {3, 5});
    const Sequence s = tokens(x, D, T);
    const auto score = [&](Index i, Index j) { return s.Q.col(i).dot(s.K.col(j)); };
    three_forms(x, Power{1}, {}, s, exact::attend(score, s.V, true));
  });
  all.add("F3", [](Exact& x) {
    const Index d = x.size("d", {2, 3}), T = x.size("T", {3, 5});
    const Sequence s = tokens(x, d, T);
    Square sum = written(2, s.V.col(0), s.K.col(0));
    for (Index j = 1; j < s.size(); ++j) sum += written(2, s.V.col(j), s.K.col(j));
    x.equal(state_after(Power{2}, {}, s), sum);
  });
  all.add("F4", [](Exact& x) {
    const Index d = x.size("d", {2, 5}), p = x.size("p", {2, 4});
    const Sequence s{x.matrix("Q", d, 1), x.matrix("K", d, 1), x.matrix("V", d, 1)};
    x.equal(number(state_after(Power{static_cast<int>(p)}, {}, s).size()),
            number(symmetric_dimension(d, static_cast<int>(p)) * (d + 1)));
  });
  all.add("F5", [](Exact& x) {
    const Index d = x.size("d", {3, 6, 64, 3, 6, 64}), p = x.size("p", {2, 2, 2, 3, 4, 4});
    Rational product(1);
    for (Index i = 0; i < p; ++i) product *= number(1) + Rational(i, d);
    x.equal(Rational(symmetric_dimension(d, static_cast<int>(p)), tensor_dimension(d, static_cast<int>(p))),
            product / number(factorial(p)));
  });
}

/// P3, P1, P1S, P1g, P1b and G1.
inline void gated_recurrences(Identities& all) {
  for (const int p : {2, 4}) {
    const auto proposition = [p](bool gated) {
      return [p, gated](Exact& x) {
        const Index n = x.size("d/2", {1, 2}), T = x.size("T", {3, 5});
        const Sequence s = tokens(x, 2 * n, T);
        const std::vector<Square> R = turn_of_all(x, n, T);
        const std::vector<Rational> gamma = gated ? gates(x, T) : std::vector<Rational>(static_cast<std::size_t>(T), 1);
        const Sequence absolute_s = turned(s, absolute(R));
        const auto score = [&](Index i, Index j) {
          return power(absolute_s.Q.col(i).dot(absolute_s.K.col(j)), p) * product(gamma, i, j);
        };
        const Square Y = exact::attend(score, s.V, true);
        same_rows(x, recurrence(Power{p}, {gamma, {}}, absolute_s), Y, "recurrence of turned keys");
        if (p == 2 || n == 1) three_forms(x, Power{p}, {gamma, R}, s, Y);
      };
    };
    all.add(named("P3", p), proposition(false));
    all.add(named("P1", p), proposition(true));
    all.add(named("P1S", p), [p](Exact& x) {
      const Index n = x.size("d/2", {1, 2}), T = x.size("T", {3, 5});
      const Sequence s = turned(tokens(x, 2 * n, T), absolute(turn_of_all(x, n, T)));
      const std::vector<Rational> gamma = gates(x, T);
      Square sum = written(p, s.V.col(T - 1), s.K.col(T - 1));
      for (Index j = 0; j + 1 < T; ++j) sum += product(gamma, T - 1, j) * written(p, s.V.col(j), s.K.col(j));
      x.equal(state_after(Power{p}, {gamma, {}}, s), sum);
    });
  }
  const auto gates_of = [](bool printed) {
    return [printed](Exact& x) {
      const Index d = x.size("d", {2, 3}), T = x.size("T", {3, 5});
      const Sequence s = tokens(x, d, T);
      const std::vector<Rational> gamma = gates(x, T);
      const auto score = [&](Index i, Index j) {
        Rational b = product(gamma, i, j);
        if (printed) b = power(gamma[static_cast<std::size_t>(i)], static_cast<int>(i - j));
        return b * power(s.Q.col(i).dot(s.K.col(j)), 2);
      };
      same_rows(x, exact::attend(score, s.V, true), recurrence(Power{2}, {gamma, {}}, s));
    };
  };
  all.erratum("G1", gates_of(true), gates_of(false));
  all.add("P1g", [](Exact& x) {
    const Index d = x.size("d", {2, 3}), T = x.size("T", {2, 4});
    const Sequence s = tokens(x, d, T);
    std::vector<Rational> gamma = gates(x, T);
    const Square Y = recurrence(Power{2}, {gamma, {}}, s);
    gamma[0] = x.number("another γ_1");
    x.equal(recurrence(Power{2}, {gamma, {}}, s), Y);
    const Sequence first{s.Q.leftCols(1), s.K.leftCols(1), s.V.leftCols(1)};
    x.equal(state_after(Power{2}, {gamma, {}}, first), written(2, s.V.col(0), s.K.col(0)), "S_1");
  });
  all.add("P1b", [](Exact& x) {  // scores 1 b_ij and values e_j
    const Index T = x.size("T", {3, 6});
    const std::vector<Rational> gamma = gates(x, T);
    const Sequence s{Square::Ones(1, T), Square::Ones(1, T), one(T)};
    Square b = Square::Zero(T, T);
    for (Index i = 0; i < T; ++i)
      for (Index j = 0; j <= i; ++j) b(j, i) = product(gamma, i, j);
    x.equal(recurrence(Power{1}, {gamma, {}}, s), b);
    x.equal(exact::chunked(Power{1}, Gates<Rational>{gamma, {}}, s, 2, true), b);
  });
}

/// T1 to T4, T8, L2 and L3.
inline void rotations(Identities& all) {
  all.add("T1", [](Exact& x) {  // cos kθ and sin kθ by their recurrence, c_k = 2 c c_{k-1} - c_{k-2}
    x.about("k = 1 … 9");
    const Index n = x.size("d/2", {1, 3}), k = x.integer("k", 1, 9);
    const Numbers t = x.vector("tan θ/2", n);
    const Square R = exact::power(exact::rotation(t), k);
    for (Index j = 0; j < n; ++j) {
      const exact::Turn<Rational> turn(t[j]);
      Rational c0(1), s0(0), c = turn.cosine, s = turn.sine;
      for (Index m = 1; m < k; ++m) {
        const Rational c2 = number(2) * turn.cosine * c - c0, s2 = number(2) * turn.cosine * s - s0;
        c0 = c, s0 = s, c = c2, s = s2;
      }
      Square expected(2, 2);
      expected << c, -s, s, c;
      x.equal(R.block(2 * j, 2 * j, 2, 2), expected);
    }
  });
  all.add("T1n", [](Exact& x) {
    const Numbers t = x.vector("tan θ/2", x.size("d/2", {1, 3}));
    const Square R = exact::rotation(t);
    x.equal(exact::power(R, 0), one(R.rows()), "k = 0");
    x.equal(exact::inverse(R), exact::rotation(Numbers(-t)), "k = -1");
    x.equal(exact::inverse(R), R.transpose(), "transpose");
  });
  all.add("T2", [](Exact& x) {
    const Index n = x.size("d/2", {1, 2}), i = x.integer("i", 0, 5), j = x.integer("j", 0, 5);
    Exact::require(j <= i);
    const Numbers q = x.vector("q", 2 * n), k = x.vector("k", 2 * n);
    const Square R = exact::rotation(x.vector("tan θ/2", n));
    x.equal((exact::power(R, i) * q).dot(exact::power(R, j) * k), q.dot(exact::power(R, i - j).transpose() * k));
  });
  all.add("T3", [](Exact& x) {
    const Index n = x.size("d/2", {1, 2}), d = 2 * n;
    const Numbers q = x.vector("q", d), k = x.vector("k", d);
    const int p = static_cast<int>(x.integer("p", 1, 8));
    for (const Square& R : {exact::rotation(x.vector("tan θ/2", n)), orthogonal(x, "S", d)})
      x.equal(power((R * q).dot(R * k), p), power(q.dot(k), p));
  });
  all.add("T4", [](Exact& x) {
    const Numbers t = x.vector("tan θ/2", x.size("d/2", {1, 3})), y = x.vector("x", 2 * t.size());
    const Numbers image = exact::rotation(t) * y;
    for (Index j = 0; j < t.size(); ++j) {
      const Rational s = number(1) + t[j] * t[j], c = number(1) - t[j] * t[j];
      x.equal(s * image[2 * j], c * y[2 * j] - number(2) * t[j] * y[2 * j + 1]);
      x.equal(s * image[2 * j + 1], number(2) * t[j] * y[2 * j] + c * y[2 * j + 1]);
    }
  });
  all.add("T8", [](Exact& x) {
    const Index n = x.size("d/2", {1, 2}), T = x.size("T", {3, 4});
    const Sequence s = tokens(x, 2 * n, T);
    std::vector<Square> R = absolute(turn_of_all(x, n, T));
    const Square Y = recurrence(Power{2}, {}, turned(s, R)), start = exact::rotation(x.vector("tan μ_0/2", n));
    for (Square& at : R) at = (at * start).eval();
    same_rows(x, recurrence(Power{2}, {}, turned(s, R)), Y);
  });
}

/// L2: R(c_ij θ) = R(μ_i) R(μ_j)ᵀ, with whole β, printed with the index i.
inline void angle_sums(Identities& all) {
  const auto sums = [](bool printed) {
    return [printed](Exact& x) {
      x.about("whole β");
      const Index n = x.size("d/2", {1, 2}), T = x.size("T", {3, 5});
      const Square R = exact::rotation(x.vector("tan θ/2", n));
      std::vector<Index> mu(1, 0), beta(1, 0);
      for (Index i = 1; i <= T; ++i) {
        beta.push_back(x.integer("β_" + std::to_string(i), 0, 3));
        mu.push_back(mu.back() + beta.back());
      }
      for (std::size_t i = 1; i < mu.size(); ++i)
        for (std::size_t j = 1; j <= i; ++j) {
          const Index c = printed ? static_cast<Index>(i - j) * beta[i] : mu[i] - mu[j];
          x.equal(exact::power(R, c), exact::power(R, mu[i]) * exact::power(R, mu[j]).transpose());
        }
    };
  };
  all.erratum("L2", sums(true), sums(false));
  all.add("L2.fix", sums(false));
  all.add("L3s", [](Exact& x) {
    const Index n = x.size("d/2", {1, 2});
    const Numbers q = x.vector("q", 2 * n), k = x.vector("k", 2 * n);
    const Square R = exact::rotation(x.vector("tan θ/2", n));
    x.equal(q.dot(R.transpose() * k), k.dot(R * q));
  });
}

/// L3, C1 and C2: scores b_ij (Q_iᵀ R(± c_ij θ) K_j)^p beside the recurrence of turned keys.
inline void scores_of_rotations(Identities& all) {
  struct Printed {
    bool wrong_sign = false, no_gates = false;
  };
  const auto scores = [](int p, bool gated, Printed printed) {
    return [=](Exact& x) {
      const Index n = x.size("d/2", {1, 2}), T = x.size("T", {2, 4});
      const Sequence s = tokens(x, 2 * n, T);
      const std::vector<Square> R = turns(x, n, T);
      const std::vector<Rational> gamma = gated ? gates(x, T) : std::vector<Rational>(static_cast<std::size_t>(T), 1);
      const auto score = [&](Index i, Index j) {
        Square M = product(R, i, j, 2 * n);  // R(c_ij θ)
        if (!printed.wrong_sign) M = M.transpose().eval();
        const Rational b = printed.no_gates ? number(1) : product(gamma, i, j);
        return b * power(s.Q.col(i).dot(M * s.K.col(j)), p);
      };
      same_rows(x, exact::attend(score, s.V, true), recurrence(Power{p}, {gamma, {}}, turned(s, absolute(R))));
    };
  };
  for (const int p : {2, 4}) {
    all.erratum(named("L3", p), scores(p, false, {.wrong_sign = true}), scores(p, false, {}));
    all.add(named("L3.fix", p), scores(p, false, {}));
    all.erratum(named("C1", p), scores(p, true, {.wrong_sign = true}), scores(p, true, {}));
    all.add(named("C1.fix", p), scores(p, true, {}));
    all.erratum(named("C2", p), scores(p, true, {.no_gates = true}), scores(p, true, {}));
  }
}

/// C3: the state turns, and is read by φ(Q_i).
inline void turning_states(Identities& all) {
  struct Fault {
    bool turned_queries = false, backwards = false, states = false, lifted = true;
  };
  const auto third = [](int p, Fault fault) {
    return [=](Exact& x) {
      const Index n = p == 2 ? x.size("d/2", {1, 2}) : x.size("d/2", {1}), T = x.size("T", {2, 4});
      const Sequence s = tokens(x, 2 * n, T);
      std::vector<Square> R = turns(x, n, T);
      const std::vector<Square> at = absolute(R);
      const std::vector<Rational> gamma = gates(x, T);
      const Sequence second = turned(s, at);
      if (fault.states) {
        Square S = state_after(Power{p}, {gamma, {}}, second);
        if (fault.lifted) S = (S * exact::lift(at.back(), p)).eval();
        return x.equal(state_after(Power{p}, {gamma, R}, s), S);
      }
      if (fault.backwards)
        for (Square& turn : R) turn = turn.transpose().eval();
      const Sequence read{fault.turned_queries ? second.Q : s.Q, s.K, s.V};
      same_rows(x, recurrence(Power{p}, {gamma, R}, read), recurrence(Power{p}, {gamma, {}}, second));
    };
  };
  for (const int p : {2, 3}) {
    all.add(named("C3", p), third(p, {}));
    all.add(named("C3s", p), third(p, {.states = true, .lifted = false}));
    all.add(named("C3s.fix", p), third(p, {.states = true}));
    all.add(named("C3r", p), third(p, {.turned_queries = true}));
    all.add(named("C3t", p), third(p, {.backwards = true}));
  }
  all.add("C4", [](Exact& x) {
    const Index n = x.size("d/2", {1, 2}), d = 2 * n;
    const Rational s = x.number("s");
    const Square R = exact::rotation(x.vector("tan θ/2", n)), lifted = exact::lift(R, 2);
    const Numbers y = x.vector("x", d), z = x.vector("y", d), w = exact::weights<Rational>(d, 2),
                  a = x.vector("a", w.size()), b = x.vector("b", w.size());
    x.equal((s * (R * y)).dot(s * (R * z)), s * s * y.dot(z));
    x.equal((s * (lifted * a)).dot(w.cwiseProduct(s * (lifted * b))), s * s * a.dot(w.cwiseProduct(b)));
  });
}

/// D1 to D7: weights of powers.
inline void distributions(Identities& all) {
  const auto scores = [](Exact& x, int p) {
    const Index d = x.size("d", {2, 3}), T = x.size("T", {2, 4});
    const Sequence s = tokens(x, d, T);
    Numbers row(T);
    for (Index j = 0; j < T; ++j) row[j] = power(s.Q.col(T - 1).dot(s.K.col(j)), p);
    return row;
  };
  all.add("D7", [](Exact& x) {
    const Index n = x.size("d/2", {1, 2}), T = x.size("T", {2, 4}), i = x.integer("i", 0, 3);
    Exact::require(i < T);
    const Sequence s = tokens(x, 2 * n, T);
    std::vector<Rational> gamma = gates(x, T);
    gamma[static_cast<std::size_t>(i)] = number(0);
    const Square Y = recurrence(Power{4}, {gamma, {}}, turned(s, absolute(turn_of_all(x, n, T))));
    same_rows(x, Y.col(i), s.V.col(i));
  });
  all.add("D1", [scores](Exact& x) {
    const Numbers row = scores(x, 4), weights = row / row.sum();
    x.equal(weights.sum(), number(1));
    for (const Rational& weight : weights) x.at_most(number(0), weight);
  });
  all.add("D2", [scores](Exact& x) {
    const Numbers row = scores(x, 4), v = x.vector("v", row.size());
    const Rational y = row.dot(v) / row.sum();
    x.at_most(*std::min_element(v.begin(), v.end()), y);
    x.at_most(y, *std::max_element(v.begin(), v.end()));
  });
  const auto positive = [](bool strictly) {
    return [strictly](Exact& x) {
      const Index d = x.size("d", {2, 3}, 2), T = x.size("T", {1, 3});
      const Numbers q = x.vector("q", d);
      const Square K = x.matrix("K", d, T);
      Exact::require(square(q).sign() > 0);
      Rational sum(0);
      for (Index j = 0; j < T; ++j) {
        Exact::require(square(K.col(j)).sign() > 0);
        sum += power(q.dot(K.col(j)), 4);
      }
      x.is(strictly ? sum.sign() > 0 : sum.sign() >= 0);
    };
  };
  all.erratum("D3", positive(true), positive(false));
  all.erratum("D4", positive(true), positive(false));
  all.add("D5", [scores](Exact& x) {
    const Numbers row = scores(x, 3), weights = row / row.sum();
    for (const Rational& weight : weights) x.at_most(number(0), weight);
  });
  all.add("D6", [scores](Exact& x) {
    const Numbers row = scores(x, 3);
    Exact::require(square(row).sign() > 0);
    x.is(row.sum().sign() != 0);
  });
}

}  // namespace detail::identities

/// The statements of A to C on attention, recurrences, rotations and gates.
inline void attention_identities(Identities& all) {
  detail::identities::recurrences(all);
  detail::identities::gated_recurrences(all);
  detail::identities::rotations(all);
  detail::identities::angle_sums(all);
  detail::identities::scores_of_rotations(all);
  detail::identities::turning_states(all);
  detail::identities::distributions(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
