// Over the rational numbers: the tables' cells to their printed digits, listings and rates.
#pragma once

#include "identities/attention_identities.hpp"
#include "propositions/listings.hpp"
#include "propositions/table_propositions.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

/// A printed number: "1.3" is 13 with one decimal.
struct Digits {
  Index printed, decimals = 0;
  [[nodiscard]] Rational unit() const { return power(number(10), static_cast<int>(decimals)); }
  /// Rounding gives these digits: printed - ½ ≤ x 10^decimals < printed + ½.
  void rounded(Exact& x, const Rational& value) const {
    const Rational scaled = value * unit();
    x.is(number(printed) - Rational(1, 2) <= scaled && scaled < number(printed) + Rational(1, 2), value,
         number(printed) / unit(), "to the printed digits,");
  }
  /// Cutting digits off gives them.
  void truncated(Exact& x, const Rational& value) const {
    const Rational scaled = value * unit();
    x.is(number(printed) <= scaled && scaled < number(printed + 1), value, number(printed) / unit(),
         "to the printed digits,");
  }
};

/// Bytes of the states of 12·12 heads of 64, in two bytes an entry.
[[nodiscard]] inline Rational bytes(Index D, Index rows) { return number(12 * 12 * 2 * rows) * number(D); }
/// 10^n.
[[nodiscard]] inline Rational tens(int n) { return power(number(10), n); }

/// N.tp, N.tpf, N.sy, N.sv and N.mib.
inline void tables_of_states(Identities& all) {
  struct Row {
    int p;
    int tensor_tens, symmetric_tens;  // of the decimal units
    Digits tensor, symmetric, saving;
  };
  const auto decided = [](Digits digits, const Rational& value) { return [=](Exact& x) { digits.rounded(x, value); }; };
  for (const Row& row : {Row{2, 6, 6, {77}, {39}, {49}}, Row{4, 9, 9, {314}, {14}, {96}},
                         Row{6, 15, 12, {13, 1}, {22, 1}, {998, 1}}, Row{8, 18, 12, {53, 1}, {199}, {99996, 3}}}) {
    const std::string p = std::to_string(row.p);
    const Index full = tensor_dimension(64, row.p), compact = symmetric_dimension(64, row.p);
    const auto with_z = decided(row.tensor, bytes(full, 65) / tens(row.tensor_tens)),
               without_z = decided(row.tensor, bytes(full, 64) / tens(row.tensor_tens));
    all.add("N.tp" + p, with_z);
    if (row.p == 6)
      all.add("N.tpf6", without_z);
    else
      all.erratum("N.tpf" + p, without_z, with_z);
    all.add("N.sy" + p, decided(row.symmetric, bytes(compact, 65) / tens(row.symmetric_tens)));
    const Rational saving = number(100) * (number(1) - number(compact) / number(full));
    if (row.p == 4)
      all.erratum("N.sv4", decided(row.saving, saving), decided({954, 1}, saving));
    else
      all.add("N.sv" + p, decided(row.saving, saving));
  }
  const auto binary = [&](const char* id, Index D, int twos, Digits digits) {
    all.add(id, decided(digits, bytes(D, 65) / power(number(2), twos)));
  };
  binary("N.mib.tp2", tensor_dimension(64, 2), 20, {77});
  binary("N.mib.sy2", symmetric_dimension(64, 2), 20, {39});
  binary("N.mib.tp4", tensor_dimension(64, 4), 30, {314});
  binary("N.mib.sy4", symmetric_dimension(64, 4), 30, {14});
  binary("N.mib.sy6", symmetric_dimension(64, 6), 40, {22, 1});
  binary("N.mib.sy8", symmetric_dimension(64, 8), 40, {199});
  all.add("N.sv4.fix", decided({96}, number(100) * (number(1) - Rational(14, 314))));
  struct Model {
    const char* name;
    Index layers, heads;
    int tens;
    Digits state;
  };
  for (const Model& m : {Model{"small", 12, 12, 3, {589}}, Model{"medium", 24, 16, 6, {15, 1}},
                         Model{"large", 36, 20, 6, {29, 1}}, Model{"xl", 48, 25, 6, {49, 1}}})
    all.add(std::string("N.lt.") + m.name,
            [m](Exact& x) { m.state.truncated(x, number(m.layers * m.heads * 64 * 64) / tens(m.tens)); });
}

/// N.ltr and N.w: states over weights, and the weights of GPT-2 counted.
inline void tables_of_models(Identities& all) {
  struct Model {
    const char* name;
    Index layers, heads, width, millions;  // of weights, as printed
    Digits ratio, true_ratio, state, weights;
    int tens;
  };
  const std::vector<Model> models = {{"small", 12, 12, 768, 124, {48, 4}, {48, 4}, {589}, {124}, 3},
                                     {"medium", 24, 16, 1024, 335, {45, 4}, {47, 4}, {15, 1}, {355}, 6},
                                     {"large", 36, 20, 1280, 774, {37, 4}, {38, 4}, {29, 1}, {774}, 6},
                                     {"xl", 48, 25, 1600, 1600, {31, 4}, {31, 4}, {49, 1}, {1558}, 6}};
  const Rational million = tens(6);
  const auto counted = [million](const Model& m) {  // embeddings, 12 w² + 13 w a block, the last norm
    const Index w = m.width;
    return number((50257 + 1024) * w + m.layers * (12 * w * w + 13 * w) + 2 * w) / million;
  };
  for (const Model& m : models) {
    const auto ratio = [=](const Digits& digits) {
      return
          [=](Exact& x) { digits.rounded(x, number(m.layers * m.heads * 64 * 64) / (number(m.millions) * million)); };
    };
    if (m.ratio.printed == m.true_ratio.printed)
      all.add(std::string("N.ltr.") + m.name, ratio(m.ratio));
    else
      all.erratum(std::string("N.ltr.") + m.name, ratio(m.ratio), [=](Exact& x) {
        ratio(m.true_ratio)(x);
        const Rational cell = number(m.state.printed) / m.state.unit() * tens(m.tens);
        m.ratio.rounded(x, cell / (number(m.millions) * million));  // of the truncated state
      });
  }
  all.erratum(
      "N.w.medium", [=](Exact& x) { Digits{335}.rounded(x, counted(models[1])); },
      [=](Exact& x) {
        for (const Model& m : models) m.weights.rounded(x, counted(m));
      });
}

/// N.80 and N.ov: what fits into memory, and what gates and rates add to 124M weights.
inline void tables_of_memory(Identities& all) {
  all.add("N.80", [](Exact& x) {
    const auto fits = [&](Index D, bool printed) {
      x.is((bytes(D, 65) <= number(8) * tens(10)) == printed, "a mark:");
    };
    for (const auto& [p, full, compact] : {std::tuple{2, true, true}, {4, false, true}, {6, false, false}}) {
      fits(tensor_dimension(64, p), full);
      fits(symmetric_dimension(64, p), compact);
    }
    const State<float, SymmetricPower<2>> state(64, 64, 0);
    x.equal(number(state.bytes()), number(4 * 65 * symmetric_dimension(64, 2)));
  });
  const auto per_cent = [](Index of_layer, Digits digits) {
    return [=](Exact& x) { digits.rounded(x, number(100 * 12 * of_layer) / (number(124) * tens(6))); };
  };
  const verify::detail::AddedWeights added;
  all.add("N.ov1", per_cent(added.gates, {9, 2}));
  all.add("N.ov2", per_cent(added.both, {18, 2}));
  all.erratum("N.ov3", per_cent(768, {9, 2}), per_cent(added.gates, {9, 2}));
}

/// X4 to X6w: the listings of embeddings, their coefficients in the place of the roots of these: W m(x) for W^½ m(x).
inline void listings_of_embeddings(Identities& all) {
  const auto coefficient = [](const Rational& c) { return c; };
  const auto embedding = [](Exact& x, const Numbers& v, int p, const Numbers& listed) {
    x.about("squared coefficients");
    x.equal(listed, exact::weights<Rational>(v.size(), p).cwiseProduct(exact::monomials(v, p)));
  };
  all.add("X4", [=](Exact& x) {
    const Numbers v = x.vector("v", x.size("d", {2, 6}));
    embedding(x, v, 2, verify::detail::listed_sym_2_embedding(v, coefficient));
  });
  all.add("X5", [=](Exact& x) {
    const Numbers v = x.vector("v", x.size("d", {6, 6, 6, 3}));
    const int p = static_cast<int>(x.size("p", {1, 2, 3, 4}));
    embedding(x, v, p, verify::detail::listed_symmetric_power_embedding(v, p, coefficient));
  });
  all.add("X5m", [](Exact& x) {
    const Index d = x.size("d", {3, 3, 3, 2}), p = x.size("p", {2, 3, 5, 8});
    for (const auto& alpha : MultiIndices(d, static_cast<int>(p))) {
      const auto [listed, dropped] = verify::detail::listed_multinomial(counts(alpha, d));
      x.equal(number(listed), number(multiplicity(alpha)));
      x.equal(number(dropped), number(0), "a remainder:");
    }
  });
  all.add("X6w", [](Exact& x) {
    const Index d = x.size("d", {8, 4});
    const int p = static_cast<int>(x.size("p", {2, 4}));
    const Square v = x.integers("q, k", d, 2, 1, 9).cast<Rational>();
    const auto m = [&](Index n) { return exact::monomials(Numbers(v.col(n).cwiseAbs()), p); };
    const Rational found = m(0).dot(exact::weights<Rational>(d, p).cwiseProduct(m(1)));
    x.is(found != power(v.col(0).dot(v.col(1)), p), "the test fails for φ(|v|):");
  });
}

/// X1 and X2: the listings of even-power attention, in which exp(p log x) is x^p.
inline void listings(Identities& all) {
  struct Stabilizer {
    Rational in_logarithm, in_denominator;
  };
  const auto stable = [](const Sequence& s, int p, const Stabilizer& epsilon) {  // [Σ s v; Σ s] of weights
    Square Y(s.V.rows(), s.size());
    for (Index i = 0; i < s.size(); ++i) {
      Numbers B(i + 1);
      for (Index j = 0; j <= i; ++j) B[j] = power(abs(s.Q.col(i).dot(s.K.col(j))) + epsilon.in_logarithm, p);
      B /= *std::max_element(B.begin(), B.end());
      Y.col(i) = s.V.leftCols(i + 1) * B / (B.sum() + epsilon.in_denominator);
    }
    return Y;
  };
  const auto drawn = [](Exact& x) {
    x.about("exp(p log x) = x^p");
    const Index d = x.size("d", {2, 3}), T = x.size("T", {2, 4});
    return tokens(x, d, T);
  };
  const auto epsilon_of = [](Exact& x) {
    const Rational epsilon = x.number("ε");
    Exact::require(epsilon.sign() > 0);
    return epsilon;
  };
  const auto with = [=](bool has_epsilon) {
    return [=](Exact& x) {
      const Sequence s = drawn(x);
      const Rational epsilon = has_epsilon ? epsilon_of(x) : number(0);
      same_rows(x, stable(s, 4, {epsilon, epsilon}), recurrence(Power{4}, {}, s));
    };
  };
  all.add("X1.fix", [](Exact& x) {
    const Index d = x.size("d", {2, 3}), T = x.size("T", {2, 4});
    const Sequence s = tokens(x, d, T);
    const auto score = [&](Index i, Index j) { return power(s.Q.col(i).dot(s.K.col(j)), 4); };
    same_rows(x, exact::attend(score, s.V, true), exact::definition(Power{4}, Gates<Rational>{}, s, true));
  });
  all.add("X1z", vanishing_sum);
  all.add("X2a.fix", with(false));
  all.add("X2b.0.001", with(true));
  all.add("X2b.1e-06", with(true));
  all.add("X2c", [=](Exact& x) {
    const Sequence s = drawn(x);
    const Rational epsilon = epsilon_of(x);
    Sequence small = s;
    small.Q /= number(100);
    same_rows(x, stable(small, 2, {epsilon, epsilon}), stable(s, 2, {epsilon, epsilon}));
  });
  const auto sums = [=](bool printed) {
    return [=](Exact& x) {
      const Sequence s = drawn(x);
      const Rational epsilon = epsilon_of(x);
      x.equal(stable(s, 2, {epsilon, printed ? epsilon : number(0)}).row(1), Square(Square::Ones(1, s.size())));
    };
  };
  all.erratum("X2d", sums(true), sums(false));
  all.add("X2e", [=](Exact& x) {  // two keys, the second orthogonal to the query
    const Rational score = x.number("q·k_1"), epsilon = epsilon_of(x);
    Sequence s{Square::Zero(2, 2), one(2), Square::Zero(1, 2)};
    s.Q(0, 1) = score, s.V(0, 1) = 1;
    x.equal(stable(s, 2, {epsilon, epsilon})(0, 1), number(0), "the weight of a score 0:");
  });
  all.add("X2f", [=](Exact& x) {  // ½ but for ε/4
    const Rational epsilon = epsilon_of(x);
    const Sequence s{Square::Zero(1, 2), Square::Ones(1, 2), one(2).row(0)};
    x.at_most(abs(stable(s, 4, {epsilon, epsilon})(0, 1) - Rational(1, 2)), epsilon / number(4));
  });
}

/// T5 and T6: (θ_i/2π)^d = N^{-2(i-1)}, so that nothing but whole powers is compared.
inline void rates(Identities& all) {
  const auto rate = [](auto check) {
    return [check](Exact& x) {
      const Index d = 2 * x.size("d/2", {1, 3, 32}), i = x.integer("i", 1, d / 2);
      const Rational N = number(x.integer("N", 2, 9999));
      check(x, N, d, i, number(1) / power(N, static_cast<int>(2 * (i - 1))));
    };
  };
  all.add("T6.fix", rate([](Exact& x, const Rational& N, Index d, Index, const Rational& powered) {
            x.is(number(1) / power(N, static_cast<int>(d)) < powered && powered <= number(1), "2π/N < θ_i ≤ 2π:");
          }));
  all.erratum("T6", rate([](Exact& x, const Rational&, Index, Index, const Rational& powered) {
                x.is(number(0) < powered && powered < number(1), "0 < θ_i < 2π:");
              }),
              rate([](Exact& x, const Rational& N, Index d, Index, const Rational& powered) {
                x.is(number(1) / power(N, static_cast<int>(d)) < powered && powered <= number(1), "2π/N < θ_i ≤ 2π:");
              }));
  const auto finite = [](bool printed) {
    return [printed](Exact& x) {
      x.about("no divisor is 0, d = 64");
      const Index i = x.integer("i", 1, 32), N = x.integer("N", 2, 9999), d = 64;
      const Rational divisor =
          printed ? number(N) * Rational(2 * (i - 1), d) : power(number(N), static_cast<int>(2 * i));
      x.is(divisor.sign() != 0, "a divisor that is not 0:");
    };
  };
  all.erratum("T5", finite(true), finite(false));
  all.add("L1", [](Exact& x) {
    x.about("E = e^{2x} in place of x");
    const Rational E = x.number("E");
    Exact::require(E.sign() > 0);
    const Rational beta = number(1) + (E - number(1)) / (E + number(1));
    x.is(number(0) < beta && beta < number(2));
  });
  all.add("AL3", [](Exact& x) {  // (s + b)^p = γ s^p with one γ for two logits
    const int p = static_cast<int>(x.integer("p", 2, 4));
    const Rational s = x.number("s"), t = x.number("t"), b = x.number("b");
    x.equal(power(s + b, p) * power(t, p), power(t + b, p) * power(s, p));
  });
}

}  // namespace detail::identities

/// The cells of C's tables, its listings, and rates of rotation.
inline void table_identities(Identities& all) {
  detail::identities::tables_of_states(all);
  detail::identities::tables_of_models(all);
  detail::identities::tables_of_memory(all);
  detail::identities::listings(all);
  detail::identities::listings_of_embeddings(all);
  detail::identities::rates(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
