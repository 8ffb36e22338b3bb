// Lemma 1 on structured rotations: the joint planes of commuting generators, and the search for them: 4.1 to 4.9.
#pragma once

#include <complex>
#include <limits>
#include <utility>

#include "propositions/joint_plane_search.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// (1) to (9) on one family in a random basis, whose frequencies and their sum are well apart.
template <class Scalar>
struct LemmaOne {
  GivenGenerators<Scalar> given;
  CommutingGenerators<Scalar> found;
  std::vector<Dense<Scalar>> L;

  explicit LemmaOne(Random& random)
      : given({"", rows({{1, 2, 3}, {2, -1, .5}, {.3, 1, -2}}), 2}, random),
        found(given.L),
        L(given.L.begin(), given.L.end()) {}
};

template <class Scalar>
void block_structure(Ledger& ledger, const LemmaOne<Scalar>& x, Random& random) {
  using M = Dense<Scalar>;
  const double limit = x.given.limit(), u = unit_roundoff<Scalar>;
  const auto& L = x.L;
  const M U = x.found.basis();
  const Index d = U.rows();
  const auto I = M::identity(d);
  const auto N = U.part(0, x.found.active_dimension(), d, x.found.null_dimension());
  const auto blocks = x.found.in_block_basis();
  Largest skew, joint, kernel;
  for (std::size_t k = 0; k < L.size(); ++k) {
    skew.add((L[k] + L[k].transpose()).spectral_norm());
    for (const M& other : L) skew.add(commutator(L[k], other).spectral_norm() / (L[k].norm() * other.norm()));
    const double norm = L[k].spectral_norm();
    joint.add(apart<Scalar>(U.transpose() * L[k] * U, blocks.generator(static_cast<Index>(k))) / norm);
    kernel.add((L[k] * N).spectral_norm() / norm);
  }
  ledger.holds("4.1", skew.value(), limit / 8, "L_kᵀ = -L_k and [L_a, L_b] = 0, as the library is given them",
               "E §F, eq. (1); E §2.1, \"Let {L_k} …\"");
  ledger.holds("4.3", joint.value(), limit / 4, "Uᵀ L_k U = λ_k1 J ⊕ … ⊕ λ_km J ⊕ 0 for all k; 2m + d_null = d",
               "E §F.1, Lemma 1, eq. (3); E §2.1, \"Lemma 1 establishes that there exists …\"");
  ledger.holds("4.3o", orthonormality(U), limit / 4, "UᵀU = I", "E §F.1, Lemma 1");

  const Dense<double> lambda = x.given.truth.frequencies();
  const auto three = CommutingGenerators<Scalar>::from_frequencies(lambda, 2);
  const auto four = CommutingGenerators<Scalar>::from_frequencies(beside(lambda, Dense<double>::zero(3)));
  bool same = true;
  M stacked(3 * d, d);
  for (Index k = 0; k < 3; ++k) {
    same = same && apart<Scalar>(three.generator(k), four.generator(k)) == 0;
    stacked.set_part(k * d, 0, L[static_cast<std::size_t>(k)]);
  }
  const auto sizes = stacked.singular_values();
  double rank = 0;
  for (Index n = 0; n < d; ++n) rank += sizes[n] > limit * sizes[0] ? 1 : 0;
  ledger.erratum(
      "4.3m", same ? static_cast<double>(four.planes() - three.planes()) : 0, 0,
      "(3) determines m: planes of another solution, with λ_ku = 0 for every k of a plane",
      "E §F.1, Lemma 1, eq. (3), eq. (9)",
      "with max_k |λ_ku| > 0 for every plane, 2m = rank [L_1; L_2; …], and the null space is that of all L_k",
      std::abs(rank - static_cast<double>(x.found.active_dimension())) + kernel.value(), limit / 4);
  Index misread = 0, missed = 0;
  for (int draw = 0; draw < 30; ++draw) {
    const double first = random.uniform(.5, 2), second = random.uniform(.5, 2);
    const GivenGenerators<Scalar> one({"", rows({{first, second}}), 4}, random);
    const auto v = complex_eigenvectors<Scalar>(one.L[0]);
    for (Index n = 0; n < 8; ++n)
      if (std::abs(v.values[n]) < 64 * u && v.imaginary.column(n).norm() > 0) ++misread;
    missed += std::abs(CommutingGenerators<Scalar>(one.L).null_dimension() - 4);
  }
  ledger.erratum("4.8r", static_cast<double>(misread) / 120, .25,
                 "the real ones of the eigenvectors contribute to the null block; the part of null vectors that a "
                 "solver returns as complex",
                 "E §F.1, \"Purely real eigenvectors of …\"",
                 "|λ_ku| ≤ 8 d u ‖L_k‖ on the real blocks: null dimensions missed in 30 families",
                 static_cast<double>(missed), 0);

  const M act = x.found.project_active(I), null = x.found.project_null(I);
  ledger.holds(
      "4.9",
      std::max({apart(act * act, act), apart(null * null, null), (act * null).spectral_norm(), apart(act + null, I)}),
      limit / 4, "Π_act² = Π_act, Π_null² = Π_null, Π_act Π_null = 0, Π_act + Π_null = I",
      "E §F.1, eq. (9); E §2.1, \"This yields complementary projectors …\"");
  Largest choice;
  const Dense<double> truth = x.given.truth.project_active(Dense<double>::identity(d));
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const M projector = CommutingGenerators<Scalar>(x.given.L, Commutation::exact, seed).project_active(I);
    choice.add(apart(projector, truth.to<Scalar>()));
  }
  ledger.holds("4.9u", choice.value(), limit / 2, "Π_act does not depend on the choice of U",
               "extension of E §F.1, eq. (9)");
}

/// V* L V for V = X + i Y: its real and its imaginary part.
template <class Scalar>
[[nodiscard]] std::pair<Dense<Scalar>, Dense<Scalar>> in_complex_basis(const Dense<Scalar>& L, const Dense<Scalar>& X,
                                                                       const Dense<Scalar>& Y) {
  return {X.transpose() * L * X + Y.transpose() * L * Y, X.transpose() * L * Y - Y.transpose() * L * X};
}

/// (4) to (8): from complex eigenvectors to real planes.
template <class Scalar>
void complex_vectors(Ledger& ledger, const LemmaOne<Scalar>& x) {
  using M = Dense<Scalar>;
  const double limit = x.given.limit(), u = unit_roundoff<Scalar>;
  const Index d = x.found.dimension(), m = x.found.planes();
  const auto v = complex_eigenvectors(x.L[0] + .1 * (x.L[1] + x.L[2]));
  const auto Re = v.real.part(0, 0, d, m), Im = v.imaginary.part(0, 0, d, m);  // iA v = -λ v: λ > 0 come first
  const M turned = x.found.in_block_basis().generator(0), J = turned.part(0, 0, 2, 2) / x.found.frequencies()(0, 0);
  Largest diagonal, parts, real, imaginary, swapped;
  double wrong = std::numeric_limits<double>::infinity(), shorter = 1;
  for (Index j = 0; j < m; ++j)
    for (Index i = 0; i < d; ++i) {
      const std::complex<Scalar> entry(Re(i, j), Im(i, j));
      parts.add(
          std::abs(static_cast<double>(((entry + std::conj(entry)) / std::complex<Scalar>(2)).real() - Re(i, j))));
      parts.add(
          std::abs(static_cast<double>(((entry - std::conj(entry)) / std::complex<Scalar>(0, 2)).real() - Im(i, j))));
    }
  for (const M& L : x.L) {
    const auto [still, turning] = in_complex_basis(L, v.real, v.imaginary);
    DenseVector<Scalar> lambda(d);
    for (Index j = 0; j < d; ++j) lambda[j] = turning(j, j);
    diagonal.add(std::hypot(still.norm(), (turning - lambda.diagonal_matrix()).norm()));
    const auto own = lambda.diagonal_matrix().part(0, 0, m, m);
    real.add((L * Re + Im * own).spectral_norm());
    imaginary.add((L * Im - Re * own).spectral_norm());
    for (Index j = 0; j < m; ++j) {
      const auto p = Re.part(0, j, d, 1), q = Im.part(0, j, d, 1), B = beside(p, q), C = beside(q, p);
      const M action = 2 * B.transpose() * L * B / lambda[j], other = 2 * C.transpose() * L * C / lambda[j];
      wrong = std::min(wrong, apart(action, J));
      swapped.add(std::max((action + J).spectral_norm(), apart(other, J)));
    }
  }
  ledger.holds("4.4", diagonal.value(), 2 * limit, "a unitary V has V* L_k V = diag(iλ_kj) with real λ_kj",
               "E §F.1, eq. (4)");
  ledger.holds("4.5", parts.value(), 4 * u, "Re v = (v + v̄)/2, Im v = (v - v̄)/(2i)", "E §F.1, eq. (5), eq. (6)");
  ledger.holds("4.7", real.value(), 2 * limit, "L_k Re v = -λ_k Im v", "E §F.1, eq. (7)");
  ledger.holds("4.8", imaginary.value(), 2 * limit, "L_k Im v = λ_k Re v", "E §F.1, eq. (8)");
  const auto C = beside(Im, Re);
  for (Index j = 0; j < 2 * m; ++j) shorter = std::min(shorter, std::abs(1 - C.column(j).norm()));
  ledger.erratum("4.5n", shorter, .29, "the Re v and Im v are orthonormal; 1 - ‖Re v‖",
                 "E §F.1, eq. (5), eq. (6), \"Extracting the real and imaginary components …\"",
                 "the √2 Re v and √2 Im v are", apart(2 * C.transpose() * C, M::identity(2 * m)), limit);
  ledger.erratum("4.8b", wrong, 1.9, "L_k acts by λ_k J in the basis (Re v, Im v); difference / λ_k",
                 "E §F.1, \"Thus the two-dimensional plane spanned by …\"",
                 "by -λ_k J in (√2 Re v, √2 Im v), by λ_k J in (√2 Im v, √2 Re v)", swapped.value(), limit / 2);
  // L = J ⊕ J, whose eigenvectors for i and -i may be chosen apart.
  const M twice = CommutingGenerators<Scalar>::from_frequencies(rows({{1, 1}})).generator(0);
  const double root = std::sqrt(.5);
  const M X = rows({{root, 0, .5, .5}, {0, 0, 0, 0}, {0, root, .5, -.5}, {0, 0, 0, 0}}).to<Scalar>(),
          Y = rows({{0, 0, 0, 0}, {-root, 0, .5, .5}, {0, 0, 0, 0}, {0, -root, .5, -.5}}).to<Scalar>();
  const auto [still, turning] = in_complex_basis(twice, X, Y);
  const auto [unit, none] = in_complex_basis(M::identity(4), X, Y);
  const M values = rows({{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, -1, 0}, {0, 0, 0, -1}}).to<Scalar>();
  const double off =
      std::hypot(still.norm(), (turning - values).norm()) + std::hypot((unit - M::identity(4)).norm(), none.norm());
  const M paired = X.transpose() * X - Y.transpose() * Y, crossed = X.transpose() * Y + Y.transpose() * X;
  double least = 1;
  for (Index j = 0; j < 4; ++j) {
    double most = 0;  // of |⟨v̄_i, v_j⟩|
    for (Index i = 0; i < 4; ++i)
      most = std::max(most, std::hypot(static_cast<double>(paired(i, j)), static_cast<double>(crossed(i, j))));
    least = std::min(least, most);
  }
  const auto column = [](const M& A, Index j) { return A.part(0, j, 4, 1); };
  const M R = beside(beside(column(Y, 0), column(X, 0)), beside(column(Y, 1), column(X, 1))) / root;
  ledger.erratum("4.4p", off < 16 * u ? std::sqrt(2 - 2 * least) : 0, .76,
                 "the eigenvectors that are not real occur in pairs v, v̄; the distance from the nearest v̄ where a "
                 "frequency repeats",
                 "E §F.1, \"Writing the columns of …\"",
                 "v for one sign of λ, and v̄ taken as its partner: Uᵀ U = I and Uᵀ L U = J ⊕ J",
                 orthonormality(R) + apart(R.transpose() * twice * R, twice), 16 * u);
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

}  // namespace SYMPOW_NAMESPACE::verify
