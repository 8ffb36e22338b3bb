// Propositions about the algorithm that finds joint planes: families of every kind, Newton's method, and ways that fail.
#pragma once

#include <Eigen/Eigenvalues>

#include <complex>
#include <string>

#include <sympow/rotation/cayley.hpp>
#include <sympow/verify/propositions/given_generators.hpp>

namespace sympow::verify::detail {

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
        "E Lemma 1, (3)");
  }
  ledger.holds("J.null", null.value(), 1, "|λ_ku| ≤ 8 d u ‖L_k‖ where nothing turns, in all these families; ratio",
               "E Lemma 1, (3)");
}

/// `polished_planes` without its guard on nearly repeated frequencies: blocks that are scaled down pass it.
[[nodiscard]] inline Eigen::MatrixXd unguarded_planes(const std::vector<Eigen::MatrixXd>& scaled, Eigen::MatrixXd U) {
  const double down = std::ldexp(1., -100);
  sympow::detail::PlaneBlocks<double> blocks(scaled, U);
  for (int step = 0; step < 25; ++step) {
    sympow::detail::PlaneBlocks<double> small = blocks;
    for (auto& rest : small.rest) rest *= down;
    const Eigen::MatrixXd K = sympow::detail::polishing_step(small, U.rows()) / down;
    Eigen::MatrixXd next = U * cayley(Eigen::MatrixXd(-K / 2));
    sympow::detail::PlaneBlocks<double> improved(scaled, next);
    if (!(improved.worst() < .9 * blocks.worst())) break;
    U = std::move(next);
    blocks = std::move(improved);
  }
  return U;
}

template <class Scalar>
void newtons_method(Ledger& ledger, const std::vector<FrequencyTable>& tables, Random& random) {
  using M = Matrix<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const auto off = [&](const auto& given) -> Eigen::MatrixXd {
    return given.planes() * cayley(Eigen::MatrixXd(1.5e-3 * random.skew(given.dimension())));
  };
  Eigen::MatrixXd whole(2, 6), halves(2, 4);
  whole << 1, 2, 3, 4, 5, 6, 2, -1, 1, 3, -2, .5;
  halves << .5, 1, 1.5, 2, 1, 1, -1, -1;
  Largest back;
  for (const auto& table : {FrequencyTable{"", whole, 1}, FrequencyTable{"", halves, 0}, tables[4], tables[6]}) {
    const GivenGenerators<Scalar> given(table, random);
    back.add(given.residual(sympow::detail::polished_planes(given.scaled, off(given), 25)) / (given.limit() / 4));
  }
  ledger.holds("J.newton", back.value(), 1, "Newton's method from a basis 1e-2 away: residual / (2 d u)",
               "(extension)");
  Largest guarded, unguarded, near;
  const FrequencyTable tiny =
      frequency_tables(random, unit_roundoff<double>)[8];  // the steps are in double for both types
  for (int draw = 0; draw < 12; ++draw) {
    const GivenGenerators<double> given(tiny, random);
    const Eigen::MatrixXd start = off(given);
    guarded.add(given.residual(sympow::detail::polished_planes(given.scaled, start, 25)));
    unguarded.add(given.residual(unguarded_planes(given.scaled, start)));
  }
  ledger.holds("J.guard", guarded.value(), 8192 * unit_roundoff<double>,
               "the same for a frequency of 8192 u beside zeros, which is left where it is: residual", "(extension)");
  ledger.control("J.guard0", unguarded.value(), 1e-3,
                 "the same without the guard on (nearly) repeated frequencies, as zeros are; the worst of 12",
                 "(extension)");
  for (const double power : {.75, .6, .5})
    for (int draw = 0; draw < 3; ++draw) {
      const GivenGenerators<Scalar> given({"", random.matrix(3, 8), 1}, random);
      std::vector<M> noisy;
      double noise = 0;
      for (const M& L : given.L) {
        const M E = static_cast<Scalar>(std::pow(u, power)) * random.skew<Scalar>(given.dimension());
        noise = std::max(noise, static_cast<double>(E.norm() / L.norm()));
        noisy.push_back(L + E);
      }
      near.add(CommutingGenerators<Scalar>(noisy, Commutation::nearest).residuals().maxCoeff() / noise);
    }
  ledger.holds("J.near", near.value(), 2, "generators that nearly commute: residual / noise, relative to ‖L_k‖",
               "E F.5 (extension)");
}

/// Ways to the planes that fail.
template <class Scalar>
void failing_ways(Ledger& ledger, const std::vector<FrequencyTable>& tables, Random& random) {
  using Complex = std::complex<Scalar>;
  using Given = GivenGenerators<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const Given repeated(tables[3], random);
  ledger.control("J.schur", repeated.residual(sympow::detail::skew_planes(repeated.scaled[0])), .1,
                 "the planes of L_1 alone, where its frequencies repeat and those of L_2 do not", "E Lemma 1");
  Eigen::MatrixXd lambda(2, 4);
  lambda << 1, 1, .5, .5, 1e-30, 2e-30, 3e-30, 4e-30;
  const Given small({"", lambda, 0}, random);
  std::vector<Eigen::MatrixXd> unscaled;
  for (const auto& L : small.L) unscaled.push_back(L.template cast<double>());
  ledger.control("J.unnorm", small.residual(sympow::detail::joint_planes(unscaled, small.dimension(), 1)), 1e-2,
                 "planes of Σ g_k L_k without 1/‖L_k‖, for L_2 scaled by 1e-30", "E Lemma 1");
  ledger.holds("J.norm", small.violation(), 1, "planes of Σ g_k L_k/‖L_k‖ for the same; in units of 4 d u",
               "E Lemma 1");

  const Given even({"", random.matrix(2, 4), 0}, random);
  const Eigen::MatrixXd sum = even.scaled[0] + .5 * even.scaled[1], Q = sympow::detail::SkewTridiagonal<double>(sum).Q;
  Eigen::VectorXd signs(even.dimension());  // of the singular vectors, if those of the superdiagonal change
  for (Index i = 0; i < signs.size(); ++i) signs[i] = i / 2 % 2 == 0 ? 1 : -1;
  ledger.control("J.sign", even.residual(Q * signs.asDiagonal() * Q.transpose() * sympow::detail::skew_planes(sum)), .1,
                 "the superdiagonal of the bidiagonal block with the other sign", "E Lemma 1");
  const Given tiny(tables[8], random);
  ledger.control("J.tol+", tiny.miscounted(std::ldexp(u, 20)), 0,
                 "a null test of 2²⁰ u ‖L_k‖ where a frequency is 8192 u: planes miscounted", "E Lemma 1");
  ledger.control("J.tol0", tiny.miscounted(0), 0, "a null test λ = 0: planes miscounted", "E Lemma 1");
  Largest split;
  for (int draw = 0; draw < 10; ++draw) {
    const Given axial(tables[6], random);
    const Matrix<Scalar> A = Scalar(.6) * axial.L[0] + Scalar(.8) * axial.L[1];
    const Eigen::SelfAdjointEigenSolver<Matrix<Complex>> solver(Complex(0, 1) * A.template cast<Complex>());
    const Index count = (solver.eigenvalues().array() > 0).count();
    const Matrix<Complex> V = solver.eigenvectors().rightCols(count);
    Matrix<Scalar> C(A.rows(), 2 * count);
    C << V.imag(), V.real();
    split.add(spectral_norm<Scalar>(2 * C.transpose() * C - Matrix<Scalar>::Identity(2 * count, 2 * count)));
  }
  ledger.control("J.eigh", split.value(), .5,
                 "√2 Re and √2 Im of the eigenvectors of iA with positive eigenvalues are orthonormal, where rounding "
                 "decides the sign of zeros; the worst of 10",
                 "E F.1");
  Given odd({"", random.matrix(2, 4), 1}, random);
  odd.L[1] += random.skew<Scalar>(odd.dimension());
  ledger.control("J.noncomm", CommutingGenerators<Scalar>(odd.L, Commutation::nearest).residuals().maxCoeff(), .1,
                 "generators that do not commute have joint planes", "E (1), (3)");
}

}  // namespace sympow::verify::detail
