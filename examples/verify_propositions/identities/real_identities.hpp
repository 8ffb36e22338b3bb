// Statements about exponentials of rational numbers, certified by enclosures.
#pragma once

#include <sympow/exact/enclosure.hpp>
#include "identities/rotation_identities.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

using exact::Enclosure;

/// A number of at most 2 in size.
[[nodiscard]] inline Rational small_number(Exact& x, const std::string& name) {
  return Rational(x.integer(name + " · 10", -20, 20)) / number(10);
}

/// exp of M, entry by entry, by Taylor's series: ‖M‖ ≤ norm, and what the series leaves out is at most 2 norm^60/60!.
class MatrixExponential {
 public:
  MatrixExponential(const Square& M, const Rational& norm) : sum_(one(M.rows())), rest_(2) {
    Square term = sum_;
    for (int n = 1; n <= 60; ++n) {
      rest_ *= norm / number(n);
      if (n == 60) break;
      term = (term * M / number(n)).eval();
      sum_ += term;
    }
  }
  [[nodiscard]] Enclosure operator()(Index i, Index j) const { return {sum_(i, j) - rest_, sum_(i, j) + rest_}; }

 private:
  Square sum_;
  Rational rest_;
};

/// AL1, AL2 and 3.A6: sums in an exponent are products.
inline void exponents(Identities& all) {
  all.add("AL1", [](Exact& x) {
    const Rational s = small_number(x, "q·k"), m = small_number(x, "m");
    const Index apart = x.integer("i - j", 0, 4);
    Enclosure gamma_power(number(1));
    for (Index n = 0; n < apart; ++n) gamma_power = gamma_power * exact::exponential(-m);
    x.meet(exact::exponential(s - number(apart) * m), gamma_power * exact::exponential(s));
  });
  all.add("AL2", [](Exact& x) {  // γ = .2 for a slope below 1
    const Rational m = Rational(x.integer("m · 10", 0, 9)) / number(10);
    x.meet(exact::exponential(-m), Enclosure(Rational(1, 5)), "e^{-m} for γ:");
  });
  all.add("3.A6", [](Exact& x) {
    const Index T = x.size("T", {2, 4});
    const Rational s = small_number(x, "q·k");
    Rational D(0);
    Enclosure product(number(1));
    for (Index t = 0; t < T; ++t) {
      const Rational log = small_number(x, "log A_" + std::to_string(t + 1));
      D += log;
      product = product * exact::exponential(log);
    }
    x.meet(exact::exponential(s + D), exact::exponential(s) * product);
  });
}

/// 3.G4, 4.11 and 4.11s: exponentials of matrices.
inline void matrix_exponentials(Identities& all) {
  const auto products = [](bool commute) {  // D_1 = d diag(1, 0) and D_2 = e P, P = ½ [1, 1; 1, 1]; or both diagonal
    return [commute](Exact& x) {
      const Rational d = abs(small_number(x, "d")), e = abs(small_number(x, "e")), half(1, 2);
      Square first = Square::Zero(2, 2), P = commute ? first : Square(Square::Constant(2, 2, half));
      first(0, 0) = 1;
      if (commute) P(1, 1) = 1;
      const MatrixExponential sum(-(d * first + e * P), d + e);
      const Enclosure low = exact::exponential(-d), change = exact::exponential(-e) - Enclosure(number(1));
      for (Index i = 0; i < 2; ++i)
        for (Index j = 0; j < 2; ++j) {
          const Enclosure entry = Enclosure(number(i == j)) + change * Enclosure(P(i, j));
          x.meet(i == 0 ? low * entry : entry, sum(i, j), "Π A_s for exp(-Σ D_s):");
        }
    };
  };
  all.erratum("3.G4", products(false), products(true));
  all.add("4.11", [](Exact& x) {
    Family f = Family::drawn(x);
    const Index d = f.dimension();
    const Rational r[] = {small_number(x, "r_1"), small_number(x, "r_2")};
    for (Index k = 0; k < 2; ++k)  // frequencies that a series takes
      for (Index u = 0; u < f.planes; ++u)
        f.lambda(k, u) = small_number(x, "λ_" + std::to_string(k + 1) + std::to_string(u + 1));
    Square A = Square::Zero(d, d);
    Rational norm(0);
    std::vector<Rational> theta;
    for (Index u = 0; u < f.planes; ++u) {
      theta.push_back(r[0] * f.lambda(0, u) + r[1] * f.lambda(1, u));
      norm = std::max(norm, abs(theta.back()));
    }
    A = r[0] * f.generator(0) + r[1] * f.generator(1);
    const MatrixExponential found(A, norm);
    const Square N = f.null_basis() * f.null_basis().transpose();
    for (Index i = 0; i < d; ++i)
      for (Index j = 0; j < d; ++j) {
        Enclosure entry(N(i, j));
        for (Index u = 0; u < f.planes; ++u) {
          const auto a = f.U.col(2 * u), b = f.U.col(2 * u + 1);
          const Rational angle = theta[static_cast<std::size_t>(u)];
          entry = entry + exact::cosine(angle) * Enclosure(a[i] * a[j] + b[i] * b[j]) +
                  exact::sine(angle) * Enclosure(b[i] * a[j] - a[i] * b[j]);
        }
        x.meet(found(i, j), entry);
      }
  });
  all.add("4.11s", [](Exact& x) {
    const Rational theta = small_number(x, "θ");
    const Square J = Family::J();
    x.equal(J * J, -one(2));
    const MatrixExponential turn(theta * J, abs(theta));
    x.meet(turn(0, 0), exact::cosine(theta)), x.meet(turn(1, 1), exact::cosine(theta));
    x.meet(turn(1, 0), exact::sine(theta)), x.meet(turn(0, 1), Enclosure(number(0)) - exact::sine(theta));
  });
}

}  // namespace detail::identities

/// What is certified.
inline void real_identities(Identities& all) {
  detail::identities::exponents(all);
  detail::identities::matrix_exponentials(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
