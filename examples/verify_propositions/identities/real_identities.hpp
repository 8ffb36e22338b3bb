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

/// Σ_j w_j v_j and Σ_j w_j.
struct WeightedSums {
  Enclosure values{number(0)}, weights{number(0)};
  void add(const Enclosure& weight, const Rational& value) {
    values = values + weight * Enclosure(value), weights = weights + weight;
  }
};

/// 3.D5e: scores s_j of a row, an exponential of an exponential for one that is shifted by the first score.
inline void repeated_exponentials(Identities& all) {
  const auto row = [](bool printed) {
    return [printed](Exact& x) {
      const Index T = x.size("T", {2, 4});
      const Numbers v = x.vector("v", T);
      WeightedSums found, expected;
      Rational first(0);
      for (Index j = 0; j < T; ++j) {
        const Rational score = small_number(x, "s_" + std::to_string(j + 1));
        if (j == 0) first = score;
        const Enclosure once = exact::exponential(score);
        expected.add(once, v[j]);
        found.add(printed ? exact::exponential(once) : exact::exponential(score - first), v[j]);
      }
      x.meet(found.values * expected.weights, expected.values * found.weights, "a row times both sums:");
    };
  };
  all.erratum("3.D5e", row(true), row(false));
}

/// T7 and T9: whole turns.
inline void whole_turns(Identities& all) {
  const auto of_turns = [](Index n) { return Enclosure(number(2 * n)) * exact::pi(); };
  all.add("T7", [=](Exact& x) {  // θ_1 = 2π/N^0
    x.about("cos iθ_1 and sin iθ_1");
    const Enclosure angle = of_turns(x.integer("i", 0, 3));
    x.meet(exact::cosine(angle), number(1)), x.meet(exact::sine(angle), number(0));
  });
  all.add("T9", [=](Exact& x) {
    const Index T = x.size("T", {3, 6});
    Rational mu(0);
    Enclosure reduced(mu);
    for (Index i = 0; i < T; ++i) {
      const Rational step = small_number(x, "β_" + std::to_string(i + 1) + " θ");
      mu += step, reduced = reduced + Enclosure(step);
      const double middle = reduced.low.to_double();
      reduced = reduced - of_turns(std::lround(middle / 6.283185307179586));
    }
    x.at_most(Enclosure(number(-4)), reduced), x.at_most(reduced, Enclosure(number(4)));
    x.meet(exact::cosine(reduced), exact::cosine(mu)), x.meet(exact::sine(reduced), exact::sine(mu));
  });
}

/// AL5 and AL6: Taylor's polynomials in the place of e^x.
inline void taylor_polynomials(Identities& all) {
  // What the polynomial of this degree leaves out of e^s is at most t^{n+1}/(n+1)! e^t for |s| ≤ t, n = degree.
  const auto rest = [](const Rational& t, int degree) {
    Rational term(1);
    for (int n = 1; n <= degree + 1; ++n) term *= t / number(n);
    return term * exact::exponential(t).high;
  };
  all.add("AL5", [=](Exact& x) {  // m(q) and m(k) of all degrees, with weights W_α/n! = 1/(α_1! α_2!)
    const Rational q[] = {small_number(x, "q_1"), small_number(x, "q_2")},
                   k[] = {small_number(x, "k_1") / number(4), small_number(x, "k_2") / number(4)};
    Rational sum(0), first(1);
    for (int a = 0; a <= 24; first *= q[0] * k[0] / number(++a)) {
      Rational term = first;
      for (int b = 0; a + b <= 24; term *= q[1] * k[1] / number(++b)) sum += term;
    }
    const Rational left = rest(abs(q[0] * k[0]) + abs(q[1] * k[1]), 24);
    x.meet({sum - left, sum + left}, exact::exponential(q[0] * k[0] + q[1] * k[1]));
  });
  all.add("AL6", [=](Exact& x) {
    const Index T = x.size("T", {2, 4});
    const Rational t(36, 25), delta = rest(t, 6), gamma = Rational(x.integer("10 γ", 0, 10), 10);
    const Numbers v = x.vector("v", T);
    WeightedSums polynomial, softmax;
    for (Index j = 0; j < T; ++j) {
      const Rational s = Rational(x.integer("s_" + std::to_string(j + 1) + " · 25", -36, 36), 25);
      Rational sum(1), term(1);
      for (int n = 1; n <= 6; ++n) sum += term *= s / number(n);
      const Rational b = power(gamma, static_cast<int>(T - 1 - j));
      polynomial.add(b * sum, v[j]), softmax.add(b * exact::exponential(s), v[j]);
    }
    const Enclosure apart = polynomial.values * softmax.weights - softmax.values * polynomial.weights,
                    allowed = Enclosure(number(2) * delta / (number(1) - delta) * v.cwiseAbs().maxCoeff()) *
                              polynomial.weights * softmax.weights;
    Exact::require(square(v).sign() > 0);
    x.at_most(apart, allowed), x.at_most(Enclosure(number(0)) - apart, allowed);
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

/// A skew matrix of numbers of at most 2 in size.
[[nodiscard]] inline Square small_skew(Exact& x, const std::string& name, Index d) {
  Square S = Square::Zero(d, d);
  for (Index i = 0; i < d; ++i)
    for (Index j = 0; j < i; ++j) {
      S(i, j) = small_number(x, name + "_" + std::to_string(i + 1) + std::to_string(j + 1));
      S(j, i) = -S(i, j);
    }
  return S;
}
/// e^M, whose norm is at most the largest sum of a row of |M|.
[[nodiscard]] inline MatrixExponential exponential_of(const Square& M) {
  return {M, M.cwiseAbs().rowwise().sum().maxCoeff()};
}
/// e^{-A} e^B - e^{B-A}, entry by entry.
class SplitExponential {
 public:
  SplitExponential(const Square& A, const Square& B)
      : d_(A.rows()), left_(exponential_of(-A)), right_(exponential_of(B)), whole_(exponential_of(B - A)) {}
  [[nodiscard]] Enclosure product(Index i, Index j) const {
    Enclosure sum(number(0));
    for (Index k = 0; k < d_; ++k) sum = sum + left_(i, k) * right_(k, j);
    return sum;
  }
  [[nodiscard]] Enclosure whole(Index i, Index j) const { return whole_(i, j); }
  /// ‖(e^{-A} e^B - e^{B-A}) y‖².
  [[nodiscard]] Enclosure squared_image(const Numbers& y) const {
    Enclosure sum(number(0));
    for (Index i = 0; i < d_; ++i) {
      Enclosure entry(number(0));
      for (Index j = 0; j < d_; ++j) entry = entry + (product(i, j) - whole(i, j)) * Enclosure(y[j]);
      sum = sum + entry * entry;
    }
    return sum;
  }

 private:
  Index d_;
  MatrixExponential left_, right_, whole_;
};

/// grad.O2: along E = Σ_k r_k E_k the slope of e^A, A = Σ_k r_k L_k, stands beside e^A in exp [A, E; 0, A].
inline void slope_of_exponentials(Identities& all) {
  struct Eigenvector {  // Re w + i Im w, A w = iω w
    Numbers re, im;
    Rational omega, squared;
    /// wᴴ M v, real and imaginary.
    [[nodiscard]] std::pair<Rational, Rational> form(const Square& M, const Eigenvector& v) const {
      return {re.dot(M * v.re) + im.dot(M * v.im), re.dot(M * v.im) - im.dot(M * v.re)};
    }
  };
  const auto eigenvectors = [](const Family& f, const Rational& r, const Rational& s) {
    std::vector<Eigenvector> vectors;
    const Numbers none = Numbers::Zero(f.dimension());
    for (Index u = 0; u < f.planes; ++u)
      for (const Index sign : {1, -1})
        vectors.push_back({f.U.col(2 * u), number(-sign) * f.U.col(2 * u + 1),
                           number(sign) * (r * f.lambda(0, u) + s * f.lambda(1, u)), number(2)});
    for (Index n = 0; n < f.null; ++n) vectors.push_back({f.null_basis().col(n), none, number(0), number(1)});
    return vectors;
  };
  all.add("grad.O2", [=](Exact& x) {
    const auto tenths = [&](const std::string& name, Index rows, Index columns, Index most) -> Square {
      return x.integers(name + " · 10", rows, columns, -most, most).cast<Rational>() / number(10);
    };
    const Index m = x.size("m", {1, 2}), T = x.size("T", {2, 1}), d = m + 2;
    const Square any = tenths("S of U", d, d, 5), U = exact::cayley(Square(any - any.transpose()));
    const Family f{m, d - 2 * m, U, tenths("λ", 2, m, 10)};
    const Square first = tenths("E_1", d, d, 1), second = tenths("E_2", d, d, 1), positions = tenths("r", 2, T, 10);
    Enclosure expected(number(0)), found = expected;
    for (Index i = 0; i < T; ++i) {
      const Rational r = positions(0, i), s = positions(1, i);
      const Square dR = x.matrix("dR_" + std::to_string(i + 1), d, d), E = r * first + s * second;
      Square pair = kronecker(one(2), r * f.generator(0) + s * f.generator(1));
      pair.topRightCorner(d, d) = E;
      const MatrixExponential both = exponential_of(pair);
      for (Index a = 0; a < d; ++a)
        for (Index b = 0; b < d; ++b) expected = expected + Enclosure(dR(a, b)) * both(a, d + b);
      const auto w = eigenvectors(f, r, s);
      for (const Eigenvector& a : w)
        for (const Eigenvector& b : w) {
          const auto [p, q] = a.form(dR, b);
          const auto [u, v] = a.form(E, b);
          const Rational half = (a.omega - b.omega) / number(2), mean = (a.omega + b.omega) / number(2),
                         size = a.squared * b.squared;
          const Enclosure sinc = half.sign() == 0 ? number(1) : exact::sine(half) * Enclosure(number(1) / half);
          found = found + sinc * (exact::cosine(mean) * Enclosure((p * u + q * v) / size) +
                                  exact::sine(mean) * Enclosure((q * u - p * v) / size));
        }
    }
    x.meet(found, expected);
  });
}

/// 4.12m and 4.29: turns that do not commute.
inline void turns_that_do_not_commute(Identities& all) {
  all.add("4.12m", [](Exact& x) {
    x.about("r = e_1, s = e_2");
    const Index d = x.size("d", {3, 4}, 3);
    const Square A = small_skew(x, "L_1", d);
    const SplitExponential split(A, small_skew(x, "L_2", d));
    for (Index i = 0; i < d; ++i)
      for (Index j = 0; j < d; ++j) x.meet(split.product(i, j), split.whole(i, j), "an entry:");
  });
  all.add("4.29", [](Exact& x) {  // ‖C‖ = ‖C‖_F/√2 of the skew C = [A, B]
    x.about("d = 3");
    const Square A = small_skew(x, "A", 3), B = small_skew(x, "B", 3), C = A * B - B * A;
    const Numbers y = x.vector("x", 3);
    Exact::require(dot(C, C).sign() > 0 && square(y).sign() > 0);
    x.at_most(SplitExponential(A, B).squared_image(y), dot(C, C) / number(8) * square(y));
  });
}

/// 4.30 to 4.31a for three generators of turns of space: ‖C‖ = ‖C‖_F/√2 for skew C.
inline void sizes_of_commutators(Identities& all) {
  struct Generators {
    std::vector<Square> L;
    Numbers r{3}, s{3};
    explicit Generators(Exact& x) {
      x.about("d = 3");
      for (Index k = 0; k < 3; ++k) {
        const std::string index = std::to_string(k + 1);
        L.push_back(small_skew(x, "L_" + index, 3) / number(2));
        r[k] = small_number(x, "r_" + index) / number(2), s[k] = small_number(x, "s_" + index) / number(2);
      }
    }
    [[nodiscard]] static Square commutator(const Square& a, const Square& b) { return a * b - b * a; }
    [[nodiscard]] static Rational squared_norm(const Square& C) { return dot(C, C) / number(2); }
    [[nodiscard]] Square at(const Numbers& p) const { return p[0] * L[0] + p[1] * L[1] + p[2] * L[2]; }
    [[nodiscard]] Rational squared(Index a, Index b) const {
      return squared_norm(commutator(L[static_cast<std::size_t>(a)], L[static_cast<std::size_t>(b)]));
    }
    /// ‖[A(r), A(s)]‖.
    [[nodiscard]] Enclosure whole() const { return exact::root(squared_norm(commutator(at(r), at(s)))); }
    /// Σ_ab |r_a| |s_b| ε_ab.
    [[nodiscard]] Enclosure sum() const {
      Enclosure sum(number(0));
      for (Index a = 0; a < 3; ++a)
        for (Index b = 0; b < 3; ++b) sum = sum + Enclosure(abs(r[a] * s[b])) * exact::root(squared(a, b));
      return sum;
    }
    /// Σ_{a<b} |r_a s_b - r_b s_a| ε_ab.
    [[nodiscard]] Enclosure areas() const {
      Enclosure sum(number(0));
      for (Index a = 0; a < 3; ++a)
        for (Index b = a + 1; b < 3; ++b)
          sum = sum + Enclosure(abs(r[a] * s[b] - r[b] * s[a])) * exact::root(squared(a, b));
      return sum;
    }
  };
  all.add("4.30", [](Exact& x) {
    const Generators g(x);
    x.at_most(g.whole(), g.sum());
  });
  all.add("4.31a", [](Exact& x) {
    const Generators g(x);
    x.at_most(g.whole(), g.areas()), x.at_most(g.areas(), g.sum());
  });
  all.add("4.31", [](Exact& x) {
    const Generators g(x);
    const Rational largest = std::max({g.squared(0, 1), g.squared(0, 2), g.squared(1, 2)}),
                   lengths = g.r.cwiseAbs().sum() * g.s.cwiseAbs().sum();
    const Numbers y = x.vector("x", 3);
    x.at_most(SplitExponential(g.at(g.r), g.at(g.s)).squared_image(y),
              largest * lengths * lengths / number(4) * square(y));
  });
}

/// 4.27b: generators that leave the space of the projector.
inline void leaving_generators(Identities& all) {
  // R(s) for L_2 = -½ [0 I; -I 0] turns the planes of coordinates 0, 2 and 1, 3 by ½; Π keeps 0 and 1.
  const auto deviation = [](Exact& x) {
    Square L = Square::Zero(4, 4);
    L(0, 2) = L(1, 3) = Rational(-1, 2), L(2, 0) = L(3, 1) = Rational(1, 2);
    const MatrixExponential turn(L, Rational(1, 2));
    const Enclosure sine = exact::sine(Rational(1, 2));
    x.meet(turn(0, 0), exact::cosine(Rational(1, 2))), x.meet(turn(2, 0), sine);
    return Enclosure(number(1)) - turn(0, 0) * turn(0, 0);
  };
  all.erratum(
      "4.27b",
      [=](Exact& x) {  // a bound C τ/2 for the commutator τ/2
        const Rational tau = number(1) / number(x.integer("1/τ", 1, 99));
        x.at_most(deviation(x), number(x.integer("C", 1, 99)) * tau / number(2), "the deviation:");
      },
      [=](Exact& x) {
        const Enclosure sine = exact::sine(Rational(1, 2)), found = deviation(x);
        x.meet(found, sine * sine), x.at_most(found, Rational(1, 4));
      });
}

}  // namespace detail::identities

/// What is certified.
inline void real_identities(Identities& all) {
  detail::identities::exponents(all);
  detail::identities::repeated_exponentials(all);
  detail::identities::whole_turns(all);
  detail::identities::taylor_polynomials(all);
  detail::identities::matrix_exponentials(all);
  detail::identities::slope_of_exponentials(all);
  detail::identities::turns_that_do_not_commute(all);
  detail::identities::sizes_of_commutators(all);
  detail::identities::leaving_generators(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
