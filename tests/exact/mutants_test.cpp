// Ten identities and ten maps and transitions that are wrong on purpose: each is refuted, by few small integers.
#include <sympow/verify/exact_laws.hpp>

#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"

using namespace sympow;
using namespace sympow::verify;

namespace {

using Exact = Inputs<Rational>;
using Square = Matrix<Rational>;
using Numbers = Vector<Rational>;

exact::Tokens<Rational> tokens(Exact& x, Index d, Index T) {
  return {x.matrix("Q", d, T), x.matrix("K", d, T), x.matrix("V", 1, T)};
}
std::vector<Rational> gates(Exact& x, Index T) {
  const Numbers gamma = x.vector("γ", T);
  return {gamma.begin(), gamma.end()};
}
Square recurrence(const exact::Gates<Rational>& A, const exact::Tokens<Rational>& s) {
  exact::State<Rational> state;
  return exact::recurrent(exact::Power{2}, A, s, state, true);
}

struct Wrong {
  std::string name;
  ExactStatement right, wrong;
};

/// A statement with a fault, and without.
template <class Statement>
Wrong wrong(std::string name, const Statement& of) {
  return {std::move(name), [of](Exact& x) { of(x, false); }, [of](Exact& x) { of(x, true); }};
}

/// Gated attention by b(γ, i, j), beside the recurrence.
template <class Weight>
auto weighted(const Weight& b) {
  return [b](Exact& x, bool fault) {
    const Index T = x.size("T", {3, 4});
    const auto s = tokens(x, 2, T);
    const std::vector<Rational> gamma = gates(x, T);
    const auto score = [&](Index i, Index j) {
      return exact::Power{2}.kappa(Rational(s.Q.col(i).dot(s.K.col(j)))) * b(gamma, i, j, fault);
    };
    x.equal(exact::attend(score, s.V, true), recurrence({gamma, {}}, s));
  };
}
Rational product(const std::vector<Rational>& gamma, Index first, Index last) {
  Rational b(1);
  for (Index k = first; k <= last; ++k) b *= gamma[static_cast<std::size_t>(k)];
  return b;
}

std::vector<Wrong> ten_identities() {
  const auto lost_first_gate = [](const std::vector<Rational>& gamma, Index i, Index j, bool fault) {
    return product(gamma, j + (fault ? 2 : 1), i);
  };
  const auto twice = [](const std::vector<Rational>& gamma, Index i, Index j, bool fault) {
    return product(gamma, j + (fault ? 0 : 1), i);
  };
  return {
      wrong("an index off by one: b_ij = Π_{k=j+2..i} γ_k", weighted(lost_first_gate)),
      wrong("a decay applied once too often: b_ij = Π_{k=j..i} γ_k", weighted(twice)),
      wrong("a sign: (q - k)·(q + k) = ‖q‖² + ‖k‖²",
            [](Exact& x, bool fault) {
              const Index d = x.size("d", {2, 3});
              const Numbers q = x.vector("q", d), k = x.vector("k", d);
              x.equal((q - k).dot(q + k), q.dot(q) + Rational(fault ? 1 : -1) * k.dot(k));
            }),
      wrong("a missing weight: m(q)·m(k) = (q·k)³",
            [](Exact& x, bool fault) {
              const Index d = x.size("d", {2, 3});
              const Numbers q = x.vector("q", d), k = x.vector("k", d), w = exact::weights<Rational>(d, 3);
              x.equal(exact::monomials(q, 3).dot(fault ? exact::monomials(k, 3)
                                                       : Numbers(w.cwiseProduct(exact::monomials(k, 3)))),
                      exact::Power{3}.kappa(Rational(q.dot(k))));
            }),
      wrong("a transposed rotation: (R q)·(R² k) = q·(Rᵀ k)",
            [](Exact& x, bool fault) {
              const Index n = x.size("d/2", {1, 2});
              const Numbers q = x.vector("q", 2 * n), k = x.vector("k", 2 * n);
              const Square R = exact::rotation(x.vector("tan θ/2", n));
              x.equal((R * q).dot(R * R * k), q.dot((fault ? Square(R.transpose()) : R) * k));
            }),
      wrong("factors in the wrong order: k·(A_2 A_1 q)",
            [](Exact& x, bool fault) {
              const Index d = x.size("d", {2, 3});
              const Square A = x.matrix("A_1", d, d), B = x.matrix("A_2", d, d);
              const Numbers q = x.vector("q", d), k = x.vector("k", d);
              x.equal((A.transpose() * k).dot(B * q), k.dot((fault ? Square(B * A) : Square(A * B)) * q));
            }),
      wrong("a power too many: L(A) of degree 2 is A_ij² alone",
            [](Exact& x, bool fault) {
              const Index d = x.size("d", {2, 3});
              const Square A = x.matrix("A", d, d);
              const Numbers y = x.vector("x", d), image = exact::lift(A, 2) * exact::monomials(y, 2);
              x.equal(fault ? Numbers(exact::monomials(Numbers(A.cwiseProduct(A) * y), 2)) : image,
                      exact::monomials(Numbers(A * y), 2));
            }),
      wrong("an exponent: det (A ⊗ A) = det(A)^d",
            [](Exact& x, bool fault) {
              const Index d = x.size("d", {2, 3}, 2);
              const Square A = x.matrix("A", d, d);
              Square both(d * d, d * d);
              for (Index i = 0; i < d; ++i)
                for (Index j = 0; j < d; ++j) both.block(i * d, j * d, d, d) = A(i, j) * A;
              Rational power(1);
              for (Index n = 0; n < (fault ? d : 2 * d); ++n) power *= exact::determinant(A);
              x.equal(exact::determinant(both), power);
            }),
      wrong("a reflection without its length: I - 2 v vᵀ is orthogonal",
            [](Exact& x, bool fault) {
              const Numbers v = x.vector("v", x.size("d", {2, 3}));
              const Square H = exact::householder(v, fault ? Rational(2) : Rational(2) / v.dot(v));
              x.equal(H.transpose() * H, Square(Square::Identity(v.size(), v.size())));
            }),
      wrong("a sign in Cayley's transform: (I + S)(I + S)⁻ᵀ is P(S)",
            [](Exact& x, bool fault) {
              const Index d = x.size("d", {2, 3}, 2);
              const Square A = x.matrix("A", d, d), S = A - A.transpose(), one = Square::Identity(d, d);
              const Square P = fault ? Square((one + S) * exact::inverse(Square(one + S.transpose())))
                                     : Square((one - S) * exact::inverse(Square(one + S)));
              x.equal(P * (one + S), one - S);
            }),
  };
}

/// φ³ in monomials, with a fault.
struct Cubes {
  enum Fault { none, weight, count, entry, sign } fault;
  template <class S>
  [[nodiscard]] S kappa(const S& s) const {
    return s * s * s;
  }
  [[nodiscard]] Index dimension(Index d) const { return symmetric_dimension(d, 3); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    for (Index t = 0; t < x.cols(); ++t) {
      y.col(t) = exact::monomials(x.col(t), 3);
      if (fault == entry && x.rows() > 1) y(1, t) = x(0, t) * x(1, t) * x(1, t);
      if (fault == sign) y(1 % y.rows(), t) *= x(0, t);
    }
  }
  template <class S>
  [[nodiscard]] Vector<S> metric(Index d) const {
    Vector<S> w = exact::weights<S>(d, 3);
    if (fault == weight) w.setOnes();
    if (fault == count)
      for (S& one : w)
        if (one == S(3)) one = S(6);
    return w;
  }
};

/// A_t = (1 + a_t) (I - β_t w_t uᵀ), u = w_t in the opposite order, token by token, with a fault.
template <class S>
struct Chain {
  enum Fault { none, twice, order, transposed, sign, next, self } fault;
  Matrix<S> w;
  Vector<S> beta, a;

  [[nodiscard]] Matrix<S> key_matrix(Index t, Index d) const {
    Matrix<S> A = Matrix<S>::Identity(d, d);
    A -= beta[t] * (w.col(t) * w.col(t).reverse().transpose());
    return (S(1) + a[t]) * A;
  }
  /// x ← A_t x.
  void apply(Index t, Batch<S> x) const {
    const Matrix<S> A = key_matrix(fault == next ? (t + 1) % w.cols() : t, w.rows());
    x = ((fault == transposed ? Matrix<S>(A.transpose()) : A) * x).eval();
  }

  void to_segment_frame(Frame&, Segment s, Batch<S> Q, Batch<S> K, Batch<S> logits) const {
    for (Index i = 0; i < s.size; ++i) {
      apply_to_keys({s.begin + i, 1}, K.leftCols(fault == self ? i + 1 : i));
      if (logits.size() > 0) logits.col(i).head(i + 1) = K.leftCols(i + 1).transpose() * Q.col(i);
      apply_to_queries({s.begin, i + 1}, Q.middleCols(i, 1));
    }
  }
  void apply_to_queries(Segment s, Batch<S> Q) const {
    for (Index n = 0; n < s.size; ++n) apply(fault == order ? s.begin + n : s.end() - 1 - n, Q);
    if (fault == twice) Q *= S(1) + a[s.begin];
  }
  void apply_to_keys(Segment s, Batch<S> K) const {
    for (Index t = s.begin; t < s.end(); ++t) K = (key_matrix(t, w.rows()).transpose() * K).eval();
    if (fault == sign) K = -K;
  }
};

auto chain(Chain<Rational>::Fault fault) {
  return [fault](Exact& x, Index d, Index T) {
    const Square w = x.matrix("w", d, T);
    const Numbers beta = x.vector("β", T);
    return Chain<Rational>{fault, w, beta, x.vector("a", T)};
  };
}

void require_small(const Decision& found) {
  CAPTURE(found.counterexample, found.residual);
  REQUIRE(found.refuted);
  REQUIRE(found.residual != "0");
  REQUIRE(found.size() > 0);
  REQUIRE(found.integers <= 6);
  REQUIRE(!found.counterexample.empty());
}

}  // namespace

TEST_CASE("ten wrong identities are refuted by at most six small integers, and the right ones hold", "[exact]") {
  const std::vector<Wrong> all = ten_identities();
  REQUIRE(all.size() == 10);
  for (const Wrong& one : all) {
    CAPTURE(one.name);
    require_small(decide_exactly(one.wrong));
    const Decision right = decide_exactly(one.right);
    CAPTURE(right.counterexample);
    REQUIRE(!right.refuted);
    REQUIRE(right.residual == "0");
    REQUIRE_THAT(right.domain, test::contains("20 seeds each"));
  }
}

TEST_CASE("laws find ten wrong maps and transitions, and pass the right ones", "[exact]") {
  using Fault = Chain<Rational>::Fault;
  REQUIRE(!exact_kernel_law(Cubes{Cubes::none}).refuted);
  REQUIRE(!exact_kernel_law(exact::Power{4}).refuted);
  for (const auto fault : {Cubes::weight, Cubes::count, Cubes::entry, Cubes::sign}) {
    CAPTURE(fault);
    require_small(exact_kernel_law(Cubes{fault}));
  }
  const Decision right = exact_transition_law(chain(Fault::none));
  CAPTURE(right.counterexample);
  REQUIRE(!right.refuted);
  REQUIRE(right.domain ==
          "apply_to_queries, apply_to_keys, to_segment_frame; (d/2, T) = (1, 2), (2, 4); 20 seeds each");
  const std::pair<Fault, const char*> faults[] = {{Fault::twice, "queries:"},      {Fault::order, "queries:"},
                                                  {Fault::next, "queries:"},       {Fault::transposed, "queries:"},
                                                  {Fault::sign, "apply_to_keys:"}, {Fault::self, "frame of keys:"}};
  for (const auto& [fault, function] : faults) {
    CAPTURE(function, static_cast<int>(fault));
    const Decision found = exact_transition_law(chain(fault));
    require_small(found);
    REQUIRE_THAT(found.counterexample, test::contains(function));
  }
}

TEST_CASE("the exact law of three forms and that of lifts", "[exact]") {
  const auto gated = [](Exact& x, Index d, Index T) {
    std::vector<Square> turning;
    for (Index t = 0; t < T; ++t)
      turning.push_back(exact::rotation(x.vector("tan of turn " + std::to_string(t), d / 2)));
    return exact::Gates<Rational>{gates(x, T), turning};
  };
  REQUIRE(!exact_three_forms_law(exact::Power{2}, gated).refuted);
  REQUIRE(!exact_lift_law(exact::Power{3}).refuted);

  struct Transposed : exact::Power {
    [[nodiscard]] Square lifted(const Square& A) const { return exact::Power::lifted(Square(A.transpose())); }
  };
  require_small(exact_lift_law(Transposed{{2}}));
  require_small(exact_three_forms_law(Transposed{{2}}, gated));
}
