// Over the rational numbers: commuting generators, structured rotations and Cayley transforms (paper E).
#pragma once

#include <complex>

#include "identities/identity.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

/// Generators L_k = U (λ_k1 J ⊕ … ⊕ λ_km J ⊕ 0) Uᵀ, U a rotation with rational entries.
struct Family {
  Index planes, null;
  Square U, lambda;

  [[nodiscard]] static Family drawn(Exact& x, Index generators = 2) {
    const Index m = x.size("m", {1, 2}), null = x.size("d - 2m", {1, 2});
    const Square U = orthogonal(x, "S of U", 2 * m + null);
    return {m, null, U, x.matrix("λ", generators, m)};
  }
  [[nodiscard]] Index dimension() const { return 2 * planes + null; }
  /// B_1 ⊕ … ⊕ B_m ⊕ 0 of 2 × 2 blocks.
  template <class Block>
  [[nodiscard]] Square blocks(const Block& block) const {
    Square all = Square::Zero(dimension(), dimension());
    for (Index u = 0; u < planes; ++u) all.block(2 * u, 2 * u, 2, 2) = block(u);
    return all;
  }
  [[nodiscard]] static Square J() {
    Square j = Square::Zero(2, 2);
    j(0, 1) = -1, j(1, 0) = 1;
    return j;
  }
  [[nodiscard]] Square generator(Index k) const {
    return U * blocks([&](Index u) { return Square(lambda(k, u) * J()); }) * U.transpose();
  }
  /// Π, the projector on the active space.
  [[nodiscard]] Square projector() const {
    return U * blocks([](Index) { return one(2); }) * U.transpose();
  }
  /// The columns of U for the null space.
  [[nodiscard]] Square null_basis() const { return U.rightCols(null); }
};

/// Positions with whole coordinates: e^{iθ_u(r)} = Π_k z_ku^{r_k} for points z_ku of the circle.
struct Positions {
  Family family;
  Square t;

  Positions(Family of, Square points) : family(std::move(of)), t(std::move(points)) {}
  explicit Positions(Exact& x) : family(Family::drawn(x)), t(x.matrix("tan λ/2", 2, family.planes)) {
    x.about("whole positions");
  }

  [[nodiscard]] static std::vector<Index> position(Exact& x, const std::string& name) {
    const Index first = x.integer(name + "_1", -2, 3);
    return {first, x.integer(name + "_2", -2, 3)};
  }
  [[nodiscard]] static std::vector<Index> sum(const std::vector<Index>& r, const std::vector<Index>& s, Index sign) {
    return {s[0] + sign * r[0], s[1] + sign * r[1]};
  }
  /// R_2(θ_u(r)).
  [[nodiscard]] Square plane(Index u, const std::vector<Index>& r) const {
    Square R = one(2);
    for (Index k = 0; k < 2; ++k) {
      const Index n = r[static_cast<std::size_t>(k)];
      const Square turn = exact::power(exact::rotation(Numbers(Numbers::Constant(1, t(k, u)))), n < 0 ? -n : n);
      R = (R * (n < 0 ? Square(turn.transpose()) : turn)).eval();
    }
    return R;
  }
  /// R_STR(r).
  [[nodiscard]] Square at(const std::vector<Index>& r) const {
    const Square& U = family.U;
    return one(family.dimension()) - family.projector() +
           U * family.blocks([&](Index u) { return plane(u, r); }) * U.transpose();
  }
  /// A member of 𝒜: it fixes every plane.
  [[nodiscard]] Square member(Exact& x) const {
    const Square N = family.null_basis();
    return family.projector() + N * orthogonal(x, "S of P", family.null) * N.transpose();
  }
};

/// 4.1 to 4.10.
inline void joint_blocks(Identities& all) {
  all.add("4.1", [](Exact& x) {
    const Family f = Family::drawn(x);
    const Square a = f.generator(0), b = f.generator(1);
    x.equal(a.transpose(), -a);
    x.equal(a * b, b * a);
  });
  all.add("4.3", [](Exact& x) {
    const Family f = Family::drawn(x);
    for (Index k = 0; k < 2; ++k)
      x.equal(f.U.transpose() * f.generator(k) * f.U,
              f.blocks([&](Index u) { return Square(f.lambda(k, u) * Family::J()); }));
  });
  all.add("4.3o", [](Exact& x) {
    const Family f = Family::drawn(x);
    x.equal(f.U.transpose() * f.U, one(f.dimension()));
  });
  const auto planes = [](bool printed) {
    return [printed](Exact& x) {
      const Family f = Family::drawn(x);
      Square stacked(2 * f.dimension(), f.dimension());
      stacked << f.generator(0), f.generator(1);
      for (Index u = 0; u < f.planes; ++u)
        Exact::require(printed || f.lambda(0, u).sign() != 0 || f.lambda(1, u).sign() != 0);
      x.equal(number(2 * f.planes), number(exact::rank(stacked)), "2m for the rank:");
    };
  };
  all.erratum("4.3m", planes(true), planes(false));
  all.add("4.9", [](Exact& x) {
    const Family f = Family::drawn(x);
    const Square act = f.projector(), null = f.null_basis() * f.null_basis().transpose();
    x.equal(act * act, act), x.equal(null * null, null), x.equal(act + null, one(f.dimension()));
    x.equal(act * null, Square::Zero(f.dimension(), f.dimension()));
  });
  all.add("4.9u", [](Exact& x) {  // another basis of each plane, and of the null space
    const Family f = Family::drawn(x);
    const Numbers t = x.vector("t", f.planes);
    Family other = f;
    Square change = f.blocks([&](Index u) { return exact::rotation(Numbers(Numbers::Constant(1, t[u]))); });
    change.bottomRightCorner(f.null, f.null) = orthogonal(x, "S of null", f.null);
    other.U = (f.U * change).eval();
    x.equal(other.generator(0), f.generator(0));
    x.equal(other.projector(), f.projector());
  });
  all.add("4.10", [](Exact& x) {
    const Family f = Family::drawn(x);
    const Numbers r = x.vector("r", 2);
    x.equal(f.U.transpose() * (r[0] * f.generator(0) + r[1] * f.generator(1)) * f.U,
            f.blocks([&](Index u) { return Square((f.lambda(0, u) * r[0] + f.lambda(1, u) * r[1]) * Family::J()); }));
  });
}

/// 4.5: the parts of a complex number.
inline void complex_parts(Identities& all) {
  all.add("4.5", [](Exact& x) {  // v = a + i b
    using Gaussian = std::complex<Rational>;
    const Rational a = x.number("Re v"), b = x.number("Im v"), half(1, 2);
    const Gaussian v(a, b), conjugate(a, -b),
        real = (v + conjugate) * Gaussian(half),
        imaginary = (v - conjugate) * Gaussian(number(0), -half);  // 1/(2 i) = -i/2
    x.equal(real.real(), a), x.equal(real.imag(), number(0));
    x.equal(imaginary.real(), b), x.equal(imaginary.imag(), number(0));
  });
}

/// The eigenvectors v = (e + f)/2 + i (e - f)/2 of planes e, f = L e/λ, times a phase.
struct Vectors {
  Family f;
  Square Re, Im;  // a plane a column
  explicit Vectors(Exact& x) : f(Family::drawn(x)), Re(f.dimension(), f.planes), Im(Re) {
    const Numbers t = x.vector("tan of half a phase", f.planes);
    for (Index u = 0; u < f.planes; ++u) {
      const exact::Turn<Rational> phase(t[u]);
      const Numbers a = (f.U.col(2 * u) + f.U.col(2 * u + 1)) / number(2),
                    b = (f.U.col(2 * u) - f.U.col(2 * u + 1)) / number(2);
      Re.col(u) = phase.cosine * a - phase.sine * b;
      Im.col(u) = phase.sine * a + phase.cosine * b;
    }
  }
  [[nodiscard]] Square frequencies(Index k) const { return Numbers(f.lambda.row(k).transpose()).asDiagonal(); }
};

/// 4.4 and 4.7 to 4.8b.
inline void complex_eigenvectors(Identities& all) {
  all.add("4.4", [](Exact& x) {  // the real and the imaginary part of V* L V, V = (v, v̄)
    const Vectors v(x);
    const Index m = v.f.planes;
    Square X(v.f.dimension(), 2 * m), Y = X, diagonal = Square::Zero(2 * m, 2 * m);
    X << v.Re, v.Re;
    Y << v.Im, -v.Im;
    diagonal.topLeftCorner(m, m) = v.frequencies(0), diagonal.bottomRightCorner(m, m) = -v.frequencies(0);
    const Square L = v.f.generator(0);
    x.equal(X.transpose() * X + Y.transpose() * Y, one(2 * m), "V* V");
    x.equal(X.transpose() * L * X + Y.transpose() * L * Y, Square::Zero(2 * m, 2 * m), "Re V* L V");
    x.equal(X.transpose() * L * Y - Y.transpose() * L * X, diagonal, "Im V* L V");
  });
  all.add("4.7", [](Exact& x) {
    const Vectors v(x);
    for (Index k = 0; k < 2; ++k) x.equal(v.f.generator(k) * v.Re, -(v.Im * v.frequencies(k)));
  });
  all.add("4.8", [](Exact& x) {
    const Vectors v(x);
    for (Index k = 0; k < 2; ++k) x.equal(v.f.generator(k) * v.Im, v.Re * v.frequencies(k));
  });
  const auto orthonormal = [](bool printed) {
    return [printed](Exact& x) {
      const Vectors v(x);
      Square C(v.f.dimension(), 2 * v.f.planes);
      C << v.Re, v.Im;
      x.equal(number(printed ? 1 : 2) * C.transpose() * C, one(C.cols()), "a squared length:");
    };
  };
  all.erratum("4.5n", orthonormal(true), orthonormal(false));
  const auto action = [](bool printed) {  // with √2 in either basis, by λ J in (Im, Re) and -λ J in (Re, Im)
    return [printed](Exact& x) {
      const Vectors v(x);
      const Square L = v.f.generator(0);
      for (Index u = 0; u < v.f.planes; ++u) {
        Square B(v.f.dimension(), 2), C = B;
        B << v.Re.col(u), v.Im.col(u);
        C << v.Im.col(u), v.Re.col(u);
        const Square expected = v.f.lambda(0, u) * Family::J();
        if (printed) {
          x.equal(L * B, B * expected);
        } else {
          x.equal(number(2) * B.transpose() * L * B, -expected);
          x.equal(number(2) * C.transpose() * L * C, expected);
        }
      }
    };
  };
  all.erratum("4.8b", action(true), action(false));
}

/// 4.4p: where a frequency repeats.
inline void repeated_frequencies(Identities& all) {
  const auto drawn = [](Exact& x) {
    Vectors v(x);
    v.f.lambda = Square::Constant(2, v.f.planes, x.number("λ"));
    return v;
  };
  all.erratum(
      "4.4p",
      [drawn](Exact& x) {  // any basis of the eigenvectors for -iλ
        const Vectors v = drawn(x);
        const Square mixed = orthogonal(x, "S of v", v.f.planes), A = v.Re * mixed, B = -v.Im * mixed;
        x.equal(v.f.generator(0) * A, B * v.frequencies(0));
        const Square real = v.Re.transpose() * A - v.Im.transpose() * B,
                     imaginary = v.Re.transpose() * B + v.Im.transpose() * A;
        for (Index j = 0; j < v.f.planes; ++j) {
          Rational most(0);
          for (Index i = 0; i < v.f.planes; ++i)
            most = std::max(most, real(i, j) * real(i, j) + imaginary(i, j) * imaginary(i, j));
          x.equal(most, number(1), "|⟨v̄, v_j⟩|² of the nearest v̄:");
        }
      },
      [drawn](Exact& x) {  // (√2 Im v, √2 Re v), any basis for iλ
        const Vectors v = drawn(x);
        const Square mixed = orthogonal(x, "S of v", v.f.planes);
        Square C(v.f.dimension(), 2 * v.f.planes), J = Square::Zero(C.cols(), C.cols());
        C << v.Im * mixed, v.Re * mixed;
        J.topRightCorner(v.f.planes, v.f.planes) = -v.frequencies(0);
        J.bottomLeftCorner(v.f.planes, v.f.planes) = v.frequencies(0);
        x.equal(number(2) * C.transpose() * C, one(C.cols()));
        x.equal(number(2) * C.transpose() * v.f.generator(0) * C, J);
      });
}

/// 4.12 and 4.12a to 4.12d: the group law.
inline void structured_rotations(Identities& all) {
  using Position = std::vector<Index>;
  const auto law = [](auto check) {
    return [check](Exact& x) {
      const Positions f(x);
      const Position r = Positions::position(x, "r"), s = Positions::position(x, "s");
      check(x, f, r, s);
    };
  };
  all.add("4.12", law([](Exact& x, const Positions& f, const Position& r, const Position& s) {
            x.equal(f.at(r).transpose() * f.at(s), f.at(Positions::sum(r, s, -1)));
          }));
  all.add("4.13", law([](Exact& x, const Positions& f, const Position& r, const Position& s) {
            const Square a = f.family.generator(0), b = f.family.generator(1);
            const Square A = number(r[0]) * a + number(r[1]) * b, B = number(s[0]) * a + number(s[1]) * b;
            x.equal(A * B, B * A, "[A(r), A(s)]");
            x.equal(exact::inverse(f.at(r)) * f.at(s), f.at(Positions::sum(r, s, -1)));
          }));
  all.add("4.12a", law([](Exact& x, const Positions& f, const Position& r, const Position& s) {
            x.equal(f.at(r) * f.at(s), f.at(Positions::sum(r, s, 1)));
            x.equal(f.at(r) * f.at(s), f.at(s) * f.at(r));
          }));
  all.add("4.12b", law([](Exact& x, const Positions& f, const Position& r, const Position&) {
            const Square R = f.at(r);
            x.equal(R.transpose() * R, one(R.rows()));
            x.equal(exact::determinant(R), number(1));
          }));
  all.add("4.12c", law([](Exact& x, const Positions& f, const Position& r, const Position&) {
            x.equal(f.at(r) * f.family.projector(), f.family.projector() * f.at(r));
          }));
  all.add("4.12e", [](Exact& x) {  // U = I and no null space
    x.about("whole positions");
    const Index m = x.size("d/2", {1, 3}), n = x.integer("r", 0, 5);
    const Numbers t = x.vector("tan ω/2", m);
    Square points = Square::Zero(2, m);
    points.row(0) = t.transpose();
    x.equal(Positions(Family{m, 0, one(2 * m), points}, points).at({n, 0}), exact::power(exact::rotation(t), n));
  });
  all.add("4.12d", law([](Exact& x, const Positions& f, const Position& r, const Position& s) {
            const Index d = f.family.dimension();
            const Numbers q = x.vector("q", d), k = x.vector("k", d);
            Positions blocks = f;  // the same angles in the coordinates Uᵀq
            blocks.family.U = one(d);
            const Square Ut = f.family.U.transpose();
            x.equal((f.at(r) * q).dot(f.at(s) * k), (blocks.at(r) * Ut * q).dot(blocks.at(s) * Ut * k));
          }));
}

/// 4.15 to 4.18i.
inline void cayley_transforms(Identities& all) {
  using Chain = std::function<Square(const Square& S, const Square& plus, const Square& minus)>;
  const auto chain = [](const Chain& left, const Chain& right) {
    return [=](Exact& x) {
      const Index d = x.size("d", {2, 4, 5});
      const Square S = skew(x, "S", d), plus = one(d) + S, minus = one(d) - S;
      x.equal(left(S, plus, minus), right(S, plus, minus));
    };
  };
  const auto inv = [](const Square& A) { return exact::inverse(A); };
  const Chain unit = [](const Square& S, const Square&, const Square&) { return one(S.rows()); };
  const Chain identity = [inv](const Square&, const Square& plus, const Square& minus) {
    return Square(inv(minus) * plus * minus * inv(plus));
  };
  const Chain gram = [inv](const Square&, const Square& plus, const Square& minus) {
    return Square(inv(plus).transpose() * minus.transpose() * minus * inv(plus));
  };
  const Chain printed_16 = [inv](const Square& S, const Square& plus, const Square& minus) {
    const Square T = S.transpose();
    return Square(inv(one(S.rows()) - T) * (one(S.rows()) + T) * minus * inv(plus));
  };
  const Chain printed_17 = [inv](const Square&, const Square& plus, const Square& minus) {
    return Square(inv(plus) * plus * minus * inv(plus));
  };
  all.add("4.15", chain(gram, unit));
  all.erratum("4.16", chain(printed_16, unit), chain(identity, gram));
  all.erratum("4.17", chain(printed_17, unit), chain(identity, unit));
  all.add("4.18", [](Exact& x) {  // of the eigenvalues: Π (1 - iμ) = Π (1 + iμ)
    x.about("the determinants");
    const Square S = skew(x, "S", x.size("d", {2, 4, 5}));
    x.equal(exact::determinant(exact::cayley(S)), number(1));
    x.equal(exact::determinant(one(S.rows()) - S), exact::determinant(one(S.rows()) + S));
  });
  all.add("4.18i", [](Exact& x) {  // ‖(I + S) x‖ ≥ ‖x‖, and an odd S has a null vector
    const Index d = x.size("d", {2, 4, 5});
    const Square S = skew(x, "S", d);
    const Numbers y = x.vector("x", d);
    x.at_most(square(y), square((one(d) + S) * y));
    if (d % 2 == 1) x.equal(exact::determinant(S), number(0));
  });
}

/// 4.14 and 4.14i: the family 𝒜.
inline void block_identities(Identities& all) {
  all.add("4.14", [](Exact& x) {
    const Positions f(x);
    const Square Pi = f.family.projector(), P = f.member(x);
    x.equal(P * Pi, Pi), x.equal(Pi * P, Pi), x.equal(Pi * P * Pi, Pi);
  });
  all.add("4.14i", [](Exact& x) {
    const Positions f(x);
    const Index d = f.family.dimension();
    const Square Pi = f.family.projector(), N = f.family.null_basis(), P = f.member(x);
    const Square S = exact::inverse(Square(one(d) + P)) * (one(d) - P);
    x.equal(S * Pi, Square::Zero(d, d), "S Π_act of a member");
    const Square null = N * skew(x, "S of null", f.family.null) * N.transpose();
    x.equal(exact::cayley(null) * Pi, Pi, "P Π_act of S Π_act = 0");
  });
  all.add("4.26", [](Exact& x) {  // det(x - B Bᵀ) = det(x - CᵀC): B and C have the same norm
    const Index n = x.size("2m", {1, 2}), null = x.size("d - 2m", {1, 2});
    const Square P = orthogonal(x, "S", n + null), A = P.topLeftCorner(n, n), B = P.topRightCorner(n, null),
                 C = P.bottomLeftCorner(null, n);
    const Square at = x.number("x") * one(n);
    x.equal(exact::determinant(Square(at - B * B.transpose())), exact::determinant(Square(at - C.transpose() * C)));
    x.equal(A.transpose() * A - one(n), -(C.transpose() * C));
  });
}

/// R_sp(r) = R_STR(r) P at two positions, and logits times (2m)^½.
struct PostRotated {
  Positions f;
  std::vector<Index> r, s;
  Square P, Pi;

  PostRotated(Exact& x, bool is_member)
      : f(x),
        r(Positions::position(x, "r")),
        s(Positions::position(x, "s")),
        P(is_member ? f.member(x) : orthogonal(x, "S of P", f.family.dimension())),
        Pi(f.family.projector()) {}
  [[nodiscard]] Square sp(const std::vector<Index>& at) const { return f.at(at) * P; }
  /// R_sp(r)ᵀ R_sp(s).
  [[nodiscard]] Square law() const { return sp(r).transpose() * sp(s); }
  [[nodiscard]] std::vector<Index> apart() const { return Positions::sum(r, s, -1); }
  /// Π R_sp(r) Π q.
  [[nodiscard]] Numbers active(const std::vector<Index>& at, const Numbers& q) const { return Pi * sp(at) * Pi * q; }
  [[nodiscard]] Rational logit(const Numbers& q, const Numbers& k) const { return active(r, q).dot(active(s, k)); }
  /// (23).
  [[nodiscard]] Rational displaced(const Numbers& q, const Numbers& k) const {
    return (Pi * q).dot(Pi * f.at(apart()) * Pi * Pi * k);
  }
};

/// 4.19 to 4.24.
inline void post_rotations(Identities& all) {
  const auto on = [](bool is_member, auto check) {
    return [=](Exact& x) {
      const PostRotated y(x, is_member);
      check(x, y);
    };
  };
  all.add("4.19", on(true, [](Exact& x, const PostRotated& y) {
            x.equal(y.Pi * y.law() * y.Pi, y.Pi * y.sp(y.apart()) * y.Pi);
          }));
  all.add("4.19s", on(false, [](Exact& x, const PostRotated& y) {
            const Square R = y.sp(y.r);
            x.equal(R.transpose() * R, one(R.rows()));
            x.equal(exact::determinant(R), number(1));
          }));
  all.add("4.19f", on(true, [](Exact& x, const PostRotated& y) { x.equal(y.law(), y.sp(y.apart())); }));
  all.add("4.19g", on(false, [](Exact& x, const PostRotated& y) {
            x.equal(y.Pi * y.law() * y.Pi, y.Pi * y.sp(y.apart()) * y.Pi);
          }));
  all.add("4.19t", on(false, [](Exact& x, const PostRotated& y) {
            x.equal(y.law(), y.P.transpose() * y.f.at(y.apart()) * y.P);
          }));
  all.add("4.24", on(true, [](Exact& x, const PostRotated& y) {
            x.equal(y.Pi * y.sp(y.r) * y.Pi, y.Pi * y.f.at(y.r) * y.Pi);
          }));
}

/// 4.23 to 4.27a: projected logits.
inline void projected_logits(Identities& all) {
  const auto logits = [](bool is_member, auto expected) {
    return [=](Exact& x) {
      const PostRotated y(x, is_member);
      const Numbers q = x.vector("q", y.P.rows()), k = x.vector("k", y.P.rows());
      x.equal(y.logit(q, k), expected(y, q, k));
    };
  };
  const auto displaced = [](const PostRotated& y, const Numbers& q, const Numbers& k) { return y.displaced(q, k); };
  all.add("4.23", logits(true, displaced));
  all.add("4.23m", logits(false, displaced));
  all.add("4.23i", logits(true, [](const PostRotated& y, const Numbers& q, const Numbers& k) {
            return Rational((y.Pi * y.f.at(y.r) * y.Pi * q).dot(y.Pi * y.f.at(y.s) * y.Pi * k));
          }));
  all.add("4.23r", logits(false, [](const PostRotated& y, const Numbers& q, const Numbers& k) {
            const Square planes = y.f.family.U.leftCols(2 * y.f.family.planes), A = planes.transpose() * y.P * planes;
            const Square R = planes.transpose() * y.f.at(y.apart()) * planes;
            return Rational((A * planes.transpose() * q).dot(R * A * planes.transpose() * k));
          }));
  all.add("4.23s", [](Exact& x) {  // every plane turned by an angle of its own, and any rotation of the null space
    PostRotated y(x, true);
    const Index d = y.P.rows();
    const Numbers q = x.vector("q", d), k = x.vector("k", d), t = x.vector("tan of P", y.f.family.planes);
    const Square& U = y.f.family.U;
    y.P = (y.P - y.Pi + U * y.f.family.blocks([&](Index u) {
            return exact::rotation(Numbers(Numbers::Constant(1, t[u])));
          }) * U.transpose())
              .eval();
    x.equal(y.logit(q, k), y.displaced(q, k));
  });
  all.add("4.P11", [](Exact& x) {  // E e^{w·z} = e^{‖z‖²/2}
    const PostRotated y(x, true);
    const Numbers q = x.vector("q", y.P.rows()), k = x.vector("k", y.P.rows()), u = y.active(y.r, q),
                  v = y.active(y.s, k);
    x.about("the exponents at whole positions");
    x.equal((square(u + v) - square(u) - square(v)) / number(2), y.displaced(q, k));
  });
  all.add("4.P11p", [](Exact& x) {
    const PostRotated y(x, true);
    const Numbers q = x.vector("q", y.P.rows());
    x.equal(square(y.active(y.r, q)), square(y.Pi * q));
  });
  const auto theorem_2 = [](bool printed) {  // its first counterexample, whose 2m is 4: positions 0 and π
    return [printed](Exact& x) {
      Square Pi = one(6), S = Square::Zero(6, 6), R = one(6);
      Pi(4, 4) = Pi(5, 5) = 0;
      S(0, 2) = S(1, 3) = 1, S(2, 0) = S(3, 1) = -1;
      R(0, 0) = R(1, 1) = -1;
      const Square P = exact::cayley(S);
      const Numbers q = one(6).col(0);
      const Rational alpha = (Pi * P * Pi * q).dot(Pi * R * P * Pi * q) / number(2),
                     target = (Pi * q).dot(Pi * R * Pi * q) / number(2);
      if (printed) return x.equal(alpha, target, "α for α₀:");
      x.about("this case");
      x.at_most(number(4) * (alpha - target) * (alpha - target), number(4) * square((P - one(6)) * Pi * q));
    };
  };
  all.erratum("4.27a", theorem_2(true), theorem_2(false));
}

}  // namespace detail::identities

/// The statements of E on generators, rotations and Cayley transforms.
inline void rotation_identities(Identities& all) {
  detail::identities::joint_blocks(all);
  detail::identities::complex_parts(all);
  detail::identities::complex_eigenvectors(all);
  detail::identities::repeated_frequencies(all);
  detail::identities::structured_rotations(all);
  detail::identities::cayley_transforms(all);
  detail::identities::block_identities(all);
  detail::identities::post_rotations(all);
  detail::identities::projected_logits(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
