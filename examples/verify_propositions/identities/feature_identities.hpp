// Over the rational numbers: means and mean squared errors of random features, in which exponentials cancel (paper E).
#pragma once

#include <sympow/exact/enclosure.hpp>
#include "identities/identity.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

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

/// (a)_n/n!, for any a.
[[nodiscard]] inline Rational rising(const Rational& a, Index n) {
  Rational product(1);
  for (Index k = 0; k < n; ++k) product *= (a + number(k)) / number(k + 1);
  return product;
}
/// The coefficient of xⁿ in ₁F₁(d; d/2; x/2).
[[nodiscard]] inline Rational confluent_coefficient(Index d, Index n) {
  return rising(number(d), n) / rising(Rational(d, 2), n) / number(factorial(n)) /
         power(number(2), static_cast<int>(n));
}

/// 4.P5 and 4.P6: moments of orthogonal rows.
inline void moments_of_rows(Identities& all) {
  all.add("4.P5", [](Exact& x) {  // w₁ + w₂ has a length of χ_2d and a uniform direction: moments of both, over (2n)!
    x.about("the series, for ‖z‖² = x");
    const Index d = x.size("d", {2, 3, 8}, 2);
    for (Index n = 0; n < 9; ++n) {
      Rational length(1), direction(1);
      for (Index k = 0; k < n; ++k) {
        length *= number(2 * (d + k));                // E χ_2d^2n
        direction *= Rational(2 * k + 1, d + 2 * k);  // E u_1^2n
      }
      x.equal(length * direction / number(factorial(2 * n)), confluent_coefficient(d, n));
    }
  });
  struct Faults {
    bool more_blocks = false, one_block = false;
  };
  const auto errors = [](Faults kind) {  // E f_i² = s, E f_i f_j = c in a block, SM² in others
    return [kind](Exact& x) {
      x.about("any s = E f², c = E f_i f_j and SM");
      const Index d = x.size("d", {2, 4}, 2), blocks = kind.more_blocks ? x.size("m/d", {2, 3}, 2) : 1;
      const Index m = kind.more_blocks ? d * blocks : d;
      const Rational s = x.number("s"), c = x.number("c"), mean = x.number("SM"), squared = mean * mean;
      Rational second(0);
      for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < m; ++j) second += i == j ? s : i / d == j / d ? c : squared;
      const Rational share = kind.one_block ? Rational(m - 1, m) : Rational(d - 1, m);
      x.equal(second / number(m * m) - squared, (s - squared) / number(m) - share * (squared - c));
    };
  };
  all.add("4.P6", errors({}));
  all.add("4.P6n", errors({.more_blocks = true}));
  all.add("4.P6m", errors({.more_blocks = true, .one_block = true}));
}

/// 4.P7 to 4.P9: orthogonal rows take (1 - 1/m) e^{-‖x‖²-‖y‖²} [e^{ρ²} - ₁F₁(d; d/2; ρ²/2)] off the error.
inline void errors_of_rows(Identities& all) {
  const auto confluent = [](Index d, const Rational& z) {  // ₁F₁(d; d/2; z), whose terms n > 4 z fall by half
    Rational sum(0), term(1);
    for (Index n = 0; n < 60; ++n) {
      sum += term;
      term *= (number(d + n) / (Rational(d, 2) + number(n))) * z / number(n + 1);
    }
    return exact::Enclosure(sum, sum + number(2) * term);
  };
  struct Case {
    Index d;
    Rational x;
    explicit Case(Exact& drawn) : d(drawn.size("d", {2, 3, 64}, 2)), x(drawn.integer("10 ρ²", 1, 90), 10) {}
  };
  all.add("4.P7", [=](Exact& x) {
    const Case at(x);
    x.at_most(confluent(at.d, at.x / number(2)), exact::exponential(at.x));
  });
  all.add("4.P8", [=](Exact& x) {  // 2/(d + 2) (e^{ρ²/2} - 1)², times e^{-‖x‖²-‖y‖²} (1 - 1/m) as well
    const Case at(x);
    const exact::Enclosure root = exact::exponential(at.x / number(2)) - exact::Enclosure(number(1));
    x.at_most(exact::Enclosure(Rational(2, at.d + 2)) * root * root,
              exact::exponential(at.x) - confluent(at.d, at.x / number(2)));
  });
  const auto leading = [](Index d, Index m) {  // of (m - 1) (e^x - ₁F₁)/(e^{2x} - e^x), whose first terms are x² and x
    return Rational(number(m - 1) * (Rational(1, 2) - confluent_coefficient(d, 2)));
  };
  all.erratum(
      "4.P9",
      [=](Exact& x) {
        x.about("the first term");
        const Index d = x.size("d", {8, 3}, 2), m = x.integer("m", 2, 8), other = x.integer("another m", 2, 8);
        x.equal(leading(d, m), leading(d, other), "a factor of d alone:");
      },
      [=](Exact& x) {
        x.about("the first term");
        const Index d = x.size("d", {8, 3, 64}, 2), m = x.integer("m", 2, 8);
        x.equal(number(1) - confluent_coefficient(d, 1), number(0));
        x.equal(leading(d, m), Rational(m - 1, 2 * (d + 2)));
      });
}

}  // namespace detail::identities

/// The statements of E on random features.
inline void feature_identities(Identities& all) {
  detail::identities::random_features(all);
  detail::identities::moments_of_rows(all);
  detail::identities::errors_of_rows(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
