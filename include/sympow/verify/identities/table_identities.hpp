// Over the rational numbers: the tables' cells to their printed digits, and formulas in which exponentials cancel.
#pragma once

#include <sympow/verify/identities/attention_identities.hpp>

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
    if (!(number(printed) - Rational(1, 2) <= scaled && scaled < number(printed) + Rational(1, 2)))
      x.equal(value, number(printed) / unit(), "to the printed digits,");
  }
  /// Cutting digits off gives them.
  void truncated(Exact& x, const Rational& value) const {
    const Rational scaled = value * unit();
    if (!(number(printed) <= scaled && scaled < number(printed + 1)))
      x.equal(value, number(printed) / unit(), "to the printed digits,");
  }
};

/// N.tp, N.tpf, N.sy, N.sv and N.mib: states of 12·12 heads of 64, in two bytes an entry.
inline void tables_of_states(Identities& all) {
  struct Row {
    int p;
    int tensor_tens, symmetric_tens;  // of the decimal units
    Digits tensor, symmetric, saving;
  };
  const auto bytes = [](Index D, Index rows) { return number(12 * 12 * 2 * rows) * number(D); };
  const auto decided = [](Digits digits, const Rational& value) { return [=](Exact& x) { digits.rounded(x, value); }; };
  const auto tens = [](int n) { return power(number(10), n); };
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
            [m, tens](Exact& x) { m.state.truncated(x, number(m.layers * m.heads * 64 * 64) / tens(m.tens)); });
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

/// 4.P1 to 4.P4: means and mean squares of features by those of e^{w·z}, e^{‖z‖²/2}. a = e^{‖x‖²}, b = e^{‖y‖²} and
/// c = e^{x·y} are any numbers that go together; e^{‖x+y‖²} = a b c², e^{‖x-y‖²} = a b/c².
inline void random_features(Identities& all) {
  struct Exponentials {
    Rational a, b, c;
    explicit Exponentials(Exact& x) {
      x.about("a = e^{‖x‖²}, b = e^{‖y‖²} and c = e^{x·y} in place of x and y");
      a = x.number("a"), b = x.number("b"), c = x.number("c");
    }
  };
  const auto one_1 = number(1), two = number(2);
  const auto on = [](auto check) {
    return [check](Exact& x) {
      const Exponentials e(x);
      check(x, e.a, e.b, e.c);
    };
  };
  all.erratum(
      "4.P1",
      [](Exact& x) {  // squares of the means, at ‖x‖ = ‖y‖
        const Rational a = number(x.integer("a", 2, 99)), c = x.number("c");
        Exact::require(number(1) <= a * c && c <= a && c.sign() > 0);
        x.equal(a * a * (a * a * c * c), c * c, "the squared mean for SM²:");
      },
      on([=](Exact& x, const Rational& a, const Rational& b, const Rational& c) {
        x.equal(one_1 / (a * b) * (a * b * c * c), c * c);
      }));
  all.erratum(
      "4.P2",
      [](Exact& x) {  // of one feature, for y of the length of x: 1/a ≤ c ≤ a
        const Rational a = number(x.integer("a", 2, 99)), c = x.number("c"), other = x.number("another c");
        for (const Rational& at : {c, other}) Exact::require(number(1) <= a * at && at <= a && at.sign() > 0);
        x.equal(a * a * power(c, 3) - c, a * a * power(other, 3) - other, "MSE/SM at two SM:");
      },
      on([=](Exact& x, const Rational& a, const Rational& b, const Rational& c) {
        const Rational second = one_1 / (a * b) * power(a * b * c * c, 2);  // E of the squared product
        x.equal(second - c * c, a * b * c * c * c * c * (one_1 - one_1 / (a * b * c * c)));
        x.equal(second - c * c, a * b * power(c, 4) - c * c);
      }));
  all.add("4.P3", on([=](Exact& x, const Rational& a, const Rational& b, const Rational& c) {
            const Rational far = c * c / (a * b);  // e^{-‖x-y‖²}
            x.equal(a * b * (one_1 + far * far) / two - c * c, a * b * c * c / (c * c) * power(one_1 - far, 2) / two);
          }));
  all.add("4.P4", on([=](Exact& x, const Rational& a, const Rational& b, const Rational& c) {
            const Rational rho = a * b * c * c;
            x.equal((one_1 + rho * rho) / (two * a * b) - c * c,
                    (one_1 - one_1 / rho) * (a * b * power(c, 4) - c * c) / two);
          }));
}

}  // namespace detail::identities

/// The cells of C's tables, rates of rotation, and features of E whose exponentials cancel.
inline void table_identities(Identities& all) {
  detail::identities::tables_of_states(all);
  detail::identities::rates(all);
  detail::identities::random_features(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
