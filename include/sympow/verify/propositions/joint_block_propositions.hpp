// Lemma 1 on structured rotations: the joint planes of commuting generators, and the search for them: 4.1 to 4.9.
#pragma once

#include <Eigen/Eigenvalues>

#include <complex>
#include <limits>

#include <sympow/verify/propositions/joint_plane_search.hpp>

namespace sympow::verify {
namespace detail {

/// (1) to (9) on one family in a random basis, whose frequencies and their sum are well apart.
template <class Scalar>
struct LemmaOne {
  using M = Matrix<Scalar>;
  GivenGenerators<Scalar> given;
  CommutingGenerators<Scalar> found;

  explicit LemmaOne(Random& random) : given({"", frequencies(), 2}, random), found(given.L) {}

  static Eigen::MatrixXd frequencies() {
    Eigen::MatrixXd lambda(3, 3);
    lambda << 1, 2, 3, 2, -1, .5, .3, 1, -2;
    return lambda;
  }
};

template <class Scalar>
void block_structure(Ledger& ledger, const LemmaOne<Scalar>& x, Random& random) {
  using M = Matrix<Scalar>;
  const double limit = x.given.limit(), u = unit_roundoff<Scalar>;
  const auto& L = x.given.L;
  const M U = x.found.basis(), I = M::Identity(U.rows(), U.cols());
  const auto blocks = x.found.in_block_basis();
  Largest skew, joint, kernel;
  for (std::size_t k = 0; k < L.size(); ++k) {
    skew.add(spectral_norm<Scalar>(L[k] + L[k].transpose()));
    for (const M& other : L)
      skew.add(spectral_norm(commutator(L[k], other)) / static_cast<double>(L[k].norm() * other.norm()));
    const double norm = spectral_norm(L[k]);
    joint.add(spectral_norm<Scalar>(U.transpose() * L[k] * U - blocks.generator(static_cast<Index>(k))) / norm);
    kernel.add(spectral_norm<Scalar>(L[k] * U.rightCols(x.found.null_dimension())) / norm);
  }
  ledger.holds("4.1", skew.value(), limit / 8, "L_kᵀ = -L_k and [L_a, L_b] = 0, as the library is given them", "E (1)");
  ledger.holds("4.3", joint.value(), limit / 4, "Uᵀ L_k U = λ_k1 J ⊕ … ⊕ λ_km J ⊕ 0 for all k; 2m + d_null = d",
               "E Lemma 1, (3); §2.1");
  ledger.holds("4.3o", spectral_norm<Scalar>(U.transpose() * U - I), limit / 4, "UᵀU = I", "E Lemma 1");

  Eigen::MatrixXd more = Eigen::MatrixXd::Zero(3, 4);
  more.leftCols(3) = x.given.truth.frequencies();
  const auto three = CommutingGenerators<Scalar>::from_frequencies(more.leftCols(3), 2);
  const auto four = CommutingGenerators<Scalar>::from_frequencies(more);
  bool same = true;
  M stacked(3 * I.rows(), I.cols());
  for (Index k = 0; k < 3; ++k) {
    same = same && three.generator(k) == four.generator(k);
    stacked.middleRows(k * I.rows(), I.rows()) = L[static_cast<std::size_t>(k)];
  }
  const auto values = Eigen::JacobiSVD<M>(stacked).singularValues();
  const auto rank = static_cast<double>((values.array() > static_cast<Scalar>(limit) * values[0]).count());
  ledger.erratum(
      "4.3m", same ? static_cast<double>(four.planes() - three.planes()) : 0, 0,
      "(3) determines m: planes of another solution, with λ_ku = 0 for every k of a plane", "E Lemma 1; (9)",
      "with max_k |λ_ku| > 0 for every plane, 2m = rank [L_1; L_2; …], and the null space is that of all L_k",
      std::abs(rank - static_cast<double>(x.found.active_dimension())) + kernel.value(), limit / 4);

  Index misread = 0, missed = 0;
  for (int draw = 0; draw < 30; ++draw) {
    const Eigen::RowVector2d lambda(random.uniform(.5, 2), random.uniform(.5, 2));
    const GivenGenerators<Scalar> one({"", lambda, 4}, random);
    const Eigen::EigenSolver<M> solver(one.L[0]);
    for (Index n = 0; n < 8; ++n)
      if (std::abs(solver.eigenvalues()[n]) < Scalar(64 * u) && !solver.eigenvectors().col(n).imag().isZero(0))
        ++misread;
    missed += std::abs(CommutingGenerators<Scalar>(one.L).null_dimension() - 4);
  }
  ledger.erratum("4.8r", static_cast<double>(misread) / 120, .25,
                 "the real ones of the eigenvectors contribute to the null block; the part of null vectors that a "
                 "solver returns as complex",
                 "E F.1", "|λ_ku| ≤ 8 d u ‖L_k‖ on the real blocks: null dimensions missed in 30 families",
                 static_cast<double>(missed), 0);

  const M act = x.found.project_active(I), null = x.found.project_null(I);
  ledger.holds("4.9",
               std::max({spectral_norm<Scalar>(act * act - act), spectral_norm<Scalar>(null * null - null),
                         spectral_norm<Scalar>(act * null), spectral_norm<Scalar>(act + null - I)}),
               limit / 4, "Π_act² = Π_act, Π_null² = Π_null, Π_act Π_null = 0, Π_act + Π_null = I", "E (9); §2.1");
  Largest choice;
  const M truth = x.given.truth.project_active(Eigen::MatrixXd(I.template cast<double>())).template cast<Scalar>();
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    choice.add(
        spectral_norm<Scalar>(CommutingGenerators<Scalar>(L, Commutation::exact, seed).project_active(I) - truth));
  ledger.holds("4.9u", choice.value(), limit / 2, "Π_act does not depend on the choice of U", "(extension)");
}

/// (4) to (8): from complex eigenvectors to real planes.
template <class Scalar>
void complex_vectors(Ledger& ledger, const LemmaOne<Scalar>& x) {
  using M = Matrix<Scalar>;
  using Complex = std::complex<Scalar>;
  using MC = Matrix<Complex>;
  const double limit = x.given.limit(), u = unit_roundoff<Scalar>;
  const auto& L = x.given.L;
  const Index m = x.found.planes();
  const M A = L[0] + Scalar(.1) * (L[1] + L[2]);
  const Eigen::SelfAdjointEigenSolver<MC> solver(Complex(0, 1) * A.template cast<Complex>());
  const MC V = solver.eigenvectors(), half = V.leftCols(m);  // iA u = -λ u: those with λ > 0 come first
  const M Re = half.real(), Im = half.imag();
  Largest diagonal, parts, real, imaginary, swapped;
  double wrong = std::numeric_limits<double>::infinity();
  parts.add(static_cast<double>((((half + half.conjugate()) / Complex(2)).real() - Re).norm()));
  parts.add(static_cast<double>((((half - half.conjugate()) / Complex(0, 2)).real() - Im).norm()));
  for (const M& Lk : L) {
    const MC D = V.adjoint() * Lk.template cast<Complex>() * V;
    const Vector<Scalar> lambda = D.diagonal().imag();
    const MC expected = Complex(0, 1) * MC(lambda.template cast<Complex>().asDiagonal());
    diagonal.add(static_cast<double>((D - expected).norm()));
    const auto own = lambda.head(m).asDiagonal();
    real.add(spectral_norm<Scalar>(Lk * Re + Im * own));
    imaginary.add(spectral_norm<Scalar>(Lk * Im - Re * own));
    for (Index j = 0; j < m; ++j) {
      M B(A.rows(), 2);
      B << Re.col(j), Im.col(j);
      const M J = x.found.in_block_basis().generator(0).topLeftCorner(2, 2) /
                  static_cast<Scalar>(x.found.frequencies()(0, 0)),
              action = 2 * B.transpose() * Lk * B / lambda[j],
              other = 2 * B.rowwise().reverse().transpose() * Lk * B.rowwise().reverse() / lambda[j];
      wrong = std::min(wrong, spectral_norm<Scalar>(action - J));
      swapped.add(std::max(spectral_norm<Scalar>(action + J), spectral_norm<Scalar>(other - J)));
    }
  }
  ledger.holds("4.4", diagonal.value(), 2 * limit, "a unitary V has V* L_k V = diag(iλ_kj) with real λ_kj", "E (4)");
  ledger.holds("4.5", parts.value(), 4 * u, "Re v = (v + v̄)/2, Im v = (v - v̄)/(2i)", "E (5), (6)");
  ledger.holds("4.7", real.value(), 2 * limit, "L_k Re v = -λ_k Im v", "E (7)");
  ledger.holds("4.8", imaginary.value(), 2 * limit, "L_k Im v = λ_k Re v", "E (8)");
  M C(A.rows(), 2 * m);
  C << Im, Re;
  ledger.erratum("4.5n", static_cast<double>((Scalar(1) - C.colwise().norm().array()).abs().minCoeff()), .29,
                 "the Re v and Im v are orthonormal; 1 - ‖Re v‖", "E (5), (6)", "the √2 Re v and √2 Im v are",
                 spectral_norm<Scalar>(2 * C.transpose() * C - M::Identity(2 * m, 2 * m)), limit);
  ledger.erratum("4.8b", wrong, 1.9, "L_k acts by λ_k J in the basis (Re v, Im v); difference / λ_k",
                 "E F.1, after (8)", "by -λ_k J in (√2 Re v, √2 Im v), by λ_k J in (√2 Im v, √2 Re v)", swapped.value(),
                 limit / 2);

  // L = J ⊕ J, whose eigenvectors for i and -i may be chosen apart.
  const M twice = CommutingGenerators<Scalar>::from_frequencies(Eigen::MatrixXd::Ones(1, 2)).generator(0);
  const auto root = static_cast<Scalar>(std::sqrt(.5));
  MC W = MC::Zero(4, 4);
  W(0, 0) = W(2, 1) = root;
  W(1, 0) = W(3, 1) = Complex(0, -root);
  W.col(2) = root * (W.col(0) + W.col(1)).conjugate();
  W.col(3) = root * (W.col(0) - W.col(1)).conjugate();
  Vector<Complex> values(4);
  values << Complex(0, 1), Complex(0, 1), Complex(0, -1), Complex(0, -1);
  const MC D = W.adjoint() * twice.template cast<Complex>() * W, unit = W.adjoint() * W;
  const double off = static_cast<double>((D - MC(values.asDiagonal())).norm() + (unit - MC::Identity(4, 4)).norm());
  const M overlaps = (W.transpose() * W).cwiseAbs();  // |⟨v̄_i, v_j⟩|
  const auto least = static_cast<double>(overlaps.colwise().maxCoeff().minCoeff());
  M R(4, 4);
  for (Index j = 0; j < 2; ++j) R.middleCols(2 * j, 2) << W.col(j).imag() / root, W.col(j).real() / root;
  ledger.erratum("4.4p", off < 16 * u ? std::sqrt(2 - 2 * least) : 0, .76,
                 "the eigenvectors that are not real occur in pairs v, v̄; the distance from the nearest v̄ where a "
                 "frequency repeats",
                 "E F.1", "v for one sign of λ, and v̄ taken as its partner: Uᵀ U = I and Uᵀ L U = J ⊕ J",
                 spectral_norm<Scalar>(R.transpose() * R - M::Identity(4, 4)) +
                     spectral_norm<Scalar>(R.transpose() * twice * R - twice),
                 16 * u);
}

}  // namespace detail

/// Decides J.1 to J.noncomm and 4.1 to 4.9 on random inputs of this seed.
template <class Scalar>
void joint_block_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  const auto tables = detail::frequency_tables(random, unit_roundoff<Scalar>);
  detail::joint_plane_families<Scalar>(ledger, tables, random);
  detail::newtons_method<Scalar>(ledger, tables, random);
  detail::failing_ways<Scalar>(ledger, tables, random);
  const detail::LemmaOne<Scalar> x(random);
  detail::block_structure(ledger, x, random);
  detail::complex_vectors(ledger, x);
}

}  // namespace sympow::verify
