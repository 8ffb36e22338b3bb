// Propositions about the algorithm that finds joint planes: families of every kind, Newton's method, and ways that
// fail.
#pragma once

#include <cmath>
#include <complex>
#include <string>

#include <sympow/structured/cayley.hpp>
#include "propositions/given_generators.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

template <class Scalar>
void joint_plane_families(Ledger& ledger, const std::vector<FrequencyTable>& tables, Random& random) {
  Largest null;
  int n = 0;
  for (const auto& table : tables) {
    Largest worst;
    for (int draw = 0; draw < (table.lambda.cols() > 20 ? 1 : 4); ++draw) {
      const GivenGenerators<Scalar> given(table, random);
      worst.add(given.violation());
      if (table.null < 2) continue;
      const auto found = given.sizes();
      for (auto plane = static_cast<std::size_t>(table.lambda.cols()); plane < found.size(); ++plane)
        null.add(found[plane] / given.limit());
    }
    ledger.holds(
        "J." + std::to_string(++n), worst.value(), 1,
        std::string(table.name) + ": m, d_null, and U, λ, L_k = U (blocks) Uᵀ within 4 d u; the worst in those units",
        "E §F.1, Lemma 1, eq. (3)");
  }
  ledger.holds("J.null", null.value(), 1, "|λ_ku| ≤ 8 d u ‖L_k‖ where nothing turns, in all these families; ratio",
               "E §F.1, Lemma 1, eq. (3)");
}

/// `refine_planes` without its guard on nearly repeated frequencies: blocks that are scaled down pass it.
[[nodiscard]] inline Dense<double> unguarded_planes(const std::vector<Matrix<double>>& scaled, Dense<double> U) {
  const double down = std::ldexp(1., -100);
  sympow::detail::PlaneBlocks<double> blocks(scaled, U);
  for (int step = 0; step < 25; ++step) {
    sympow::detail::PlaneBlocks<double> small = blocks;
    for (auto& rest : small.rest) rest *= down;
    const Dense<double> K = sympow::detail::refinement_step(small, U.rows());
    Dense<double> next = U * dense_cayley(K / (-2 * down));
    sympow::detail::PlaneBlocks<double> improved(scaled, next);
    if (!(improved.worst() < .9 * blocks.worst())) break;
    U = std::move(next);
    blocks = std::move(improved);
  }
  return U;
}

template <class Scalar>
void newtons_method(Ledger& ledger, const std::vector<FrequencyTable>& tables, Random& random) {
  const double u = unit_roundoff<Scalar>;
  const auto off = [&](const Dense<double>& planes) {
    const Dense<double> skew = random.skew(planes.rows());
    return planes * dense_cayley(1.5e-3 * skew);
  };
  const auto whole = rows({{1, 2, 3, 4, 5, 6}, {2, -1, 1, 3, -2, .5}}),
             halves = rows({{.5, 1, 1.5, 2}, {1, 1, -1, -1}});
  Largest back;
  for (const auto& table : {FrequencyTable{"", whole, 1}, FrequencyTable{"", halves, 0}, tables[4], tables[6]}) {
    const GivenGenerators<Scalar> given(table, random);
    const Dense<double> found = sympow::detail::refine_planes<double>(given.scaled, off(given.planes()), 25);
    back.add(given.residual(found) / (given.limit() / 4));
  }
  ledger.holds("J.newton", back.value(), 1, "Newton's method from a basis 1e-2 away: residual / (2 d u)",
               "extension of E §F.1, Lemma 1");
  Largest guarded, unguarded, near;
  const FrequencyTable tiny =
      frequency_tables(random, unit_roundoff<double>)[8];  // the steps are in double for both types
  for (int draw = 0; draw < 12; ++draw) {
    const GivenGenerators<double> given(tiny, random);
    const Dense<double> start = off(given.planes());
    guarded.add(given.residual(sympow::detail::refine_planes<double>(given.scaled, start, 25)));
    unguarded.add(given.residual(unguarded_planes(given.scaled, start)));
  }
  ledger.holds("J.guard", guarded.value(), 8192 * unit_roundoff<double>,
               "the same for a frequency of 8192 u beside zeros, which is left where it is: residual",
               "extension of E §F.1, Lemma 1");
  ledger.control("J.guard0", unguarded.value(), 1e-3,
                 "the same without the guard on (nearly) repeated frequencies, as zeros are; the worst of 12",
                 "extension of E §F.1, Lemma 1");
  for (const double power : {.75, .6, .5})
    for (int draw = 0; draw < 3; ++draw) {
      const GivenGenerators<Scalar> given({"", random.matrix(3, 8), 1}, random);
      std::vector<Matrix<Scalar>> noisy;
      double noise = 0;
      for (const Dense<Scalar> L : given.L) {
        const Dense<Scalar> skew = random.skew<Scalar>(given.dimension()), E = std::pow(u, power) * skew;
        noise = std::max(noise, E.norm() / L.norm());
        noisy.push_back(L + E);
      }
      near.add(largest_residual(CommutingGenerators<Scalar>(noisy, Commutation::nearest)) / noise);
    }
  ledger.holds("J.near", near.value(), 2, "generators that nearly commute: residual / noise, relative to ‖L_k‖",
               "extension of E §F.5, \"To quantify deviations from the ideal …\"");
}

/// Eigenvectors v_n = x_n + i y_n of iA for a skew A: iA v_n = λ_n v_n, the smallest λ first.
template <class Scalar>
struct ComplexEigenvectors {
  DenseVector<double> values;
  Dense<Scalar> real, imaginary;  // x_n and y_n as columns
};

/// By Jacobi's method, in double: it turns two axes p and q at a time until the Hermitian matrix is diagonal.
template <class Scalar>
[[nodiscard]] ComplexEigenvectors<Scalar> complex_eigenvectors(const Dense<Scalar>& A) {
  using Complex = std::complex<double>;
  const Index d = A.rows();
  Matrix<Complex> H(d, d), V(d, d);
  for (Index i = 0; i < d; ++i)
    for (Index j = 0; j < d; ++j) {
      H(i, j) = Complex(0, static_cast<double>(A(i, j)));
      V(i, j) = i == j ? 1 : 0;
    }
  for (int sweep = 0; sweep < 12; ++sweep)  // five or six are enough for d = 8
    for (Index q = 0; q < d; ++q)
      for (Index p = 0; p < q; ++p) {
        const double entry = std::abs(H(p, q));
        if (entry == 0) continue;
        const double cotangent = (H(q, q).real() - H(p, p).real()) / (2 * entry);
        const double tangent = std::copysign(1 / (std::abs(cotangent) + std::hypot(1, cotangent)), cotangent);
        const double cosine = 1 / std::hypot(1, tangent);
        const Complex sine = tangent * cosine * H(p, q) / entry;
        const auto turn = [&](Complex& x, Complex& y, Complex s) {
          const Complex first = cosine * x - std::conj(s) * y;
          y = s * x + cosine * y;
          x = first;
        };
        for (Index i = 0; i < d; ++i) {
          turn(H(i, p), H(i, q), sine);
          turn(V(i, p), V(i, q), sine);
        }
        for (Index i = 0; i < d; ++i) turn(H(p, i), H(q, i), std::conj(sine));
      }
  std::vector<Index> order;
  for (Index n = 0; n < d; ++n) order.push_back(n);
  std::sort(order.begin(), order.end(), [&](Index a, Index b) { return H(a, a).real() < H(b, b).real(); });
  ComplexEigenvectors<Scalar> found{DenseVector<double>(d), Dense<Scalar>(d, d), Dense<Scalar>(d, d)};
  for (Index n = 0; n < d; ++n) {
    const Index from = order[static_cast<std::size_t>(n)];
    found.values[n] = H(from, from).real();
    for (Index i = 0; i < d; ++i) {
      found.real(i, n) = static_cast<Scalar>(V(i, from).real());
      found.imaginary(i, n) = static_cast<Scalar>(V(i, from).imag());
    }
  }
  return found;
}

/// [A B].
template <class Scalar>
[[nodiscard]] Dense<Scalar> beside(const Dense<Scalar>& A, const Dense<Scalar>& B) {
  Dense<Scalar> both(A.rows(), A.cols() + B.cols());
  both.set_part(0, 0, A);
  both.set_part(0, A.cols(), B);
  return both;
}

/// ‖CᵀC - I‖, how far the columns of C are from orthonormal.
template <class Scalar>
[[nodiscard]] double orthonormality(const Dense<Scalar>& C) {
  return apart(C.transpose() * C, Dense<Scalar>::identity(C.cols()));
}

/// Ways to the planes that fail.
template <class Scalar>
void failing_ways(Ledger& ledger, const std::vector<FrequencyTable>& tables, Random& random) {
  using Given = GivenGenerators<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const Given repeated(tables[3], random);
  ledger.control("J.schur", repeated.residual(sympow::detail::skew_planes(repeated.scaled[0])), .1,
                 "the planes of L_1 alone, where its frequencies repeat and those of L_2 do not", "E §F.1, Lemma 1");
  const Given small({"", rows({{1, 1, .5, .5}, {1e-30, 2e-30, 3e-30, 4e-30}}), 0}, random);
  std::vector<Matrix<double>> unscaled;
  for (const Dense<Scalar> L : small.L) unscaled.push_back(L.in_double());
  ledger.control("J.unnorm", small.residual(sympow::detail::joint_planes(unscaled, small.dimension(), 1)), 1e-2,
                 "planes of Σ g_k L_k without 1/‖L_k‖, for L_2 scaled by 1e-30", "extension of E §F.1, Lemma 1");
  ledger.holds("J.norm", small.violation(), 1, "planes of Σ g_k L_k/‖L_k‖ for the same; in units of 4 d u",
               "extension of E §F.1, Lemma 1");

  const Given even({"", random.matrix(2, 4), 0}, random);
  const Dense<double> first = even.scaled[0], second = even.scaled[1], sum = first + .5 * second;
  const Dense<double> Q = sympow::detail::SkewTridiagonal<double>(sum).Q,
                      planes = sympow::detail::skew_planes<double>(sum);
  auto signs =
      Dense<double>::identity(even.dimension());  // of the singular vectors, if those of the superdiagonal change
  for (Index i = 0; i < signs.rows(); ++i) signs(i, i) = i / 2 % 2 == 0 ? 1 : -1;
  ledger.control("J.sign", even.residual(Q * signs * Q.transpose() * planes), .1,
                 "the superdiagonal of the bidiagonal block with the other sign", "extension of E §F.1, Lemma 1");
  const Given tiny(tables[8], random);
  ledger.control("J.tol+", tiny.miscounted(std::ldexp(u, 20)), 0,
                 "a null test of 2²⁰ u ‖L_k‖ where a frequency is 8192 u: planes miscounted",
                 "extension of E §F.1, Lemma 1");
  ledger.control("J.tol0", tiny.miscounted(0), 0, "a null test λ = 0: planes miscounted",
                 "extension of E §F.1, Lemma 1");
  Largest split;
  for (int draw = 0; draw < 10; ++draw) {
    const Given axial(tables[6], random);
    const Dense<Scalar> first_axis = axial.L[0], second_axis = axial.L[1];
    const auto v = complex_eigenvectors(.6 * first_axis + .8 * second_axis);
    const Index d = v.values.size();
    Index from = 0;
    while (from < d && v.values[from] <= 0) ++from;
    const auto X = v.real.part(0, from, d, d - from), Y = v.imaginary.part(0, from, d, d - from);
    split.add(orthonormality(std::sqrt(2.) * beside(Y, X)));
  }
  ledger.control("J.eigh", split.value(), .5,
                 "√2 Re and √2 Im of the eigenvectors of iA with positive eigenvalues are orthonormal, where rounding "
                 "decides the sign of zeros; the worst of 10",
                 "E §F.1, eq. (4), \"Extracting the real and imaginary components …\"");
  Given odd({"", random.matrix(2, 4), 1}, random);
  odd.L[1] += random.skew<Scalar>(odd.dimension());
  ledger.control("J.noncomm", largest_residual(CommutingGenerators<Scalar>(odd.L, Commutation::nearest)), .1,
                 "generators that do not commute have joint planes", "E §F, eq. (1); E §F.1, Lemma 1, eq. (3)");
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
