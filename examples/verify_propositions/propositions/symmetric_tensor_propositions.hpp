// The space of symmetric tensors: duplicates, the basis, polarisation and the proofs about them. Propositions S1 to
// S15.
#pragma once

#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/random.hpp>
#include <sympow/tensor/symmetric_basis.hpp>
#include <sympow/tensor/symmetric_power.hpp>
#include <sympow/tensor/tensor_power.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// The p! permutations of positions.
[[nodiscard]] inline std::vector<MultiIndex<>> permutations(int p) {
  MultiIndex<> positions(p);
  for (int l = 0; l < p; ++l) positions[l] = l;
  return orbit(positions);
}

/// ρ(α), the multi-index with the entries α_ρ(1), …, α_ρ(p).
[[nodiscard]] inline MultiIndex<> permuted(const MultiIndex<>& alpha, const MultiIndex<>& rho) {
  MultiIndex<> result(alpha.size());
  for (int l = 0; l < alpha.size(); ++l) result[l] = alpha[static_cast<int>(rho[l])];
  return result;
}

/// All d^p multi-indices in the order of a flat tensor.
[[nodiscard]] inline std::vector<MultiIndex<>> every_index(Index d, int p) {
  std::vector<MultiIndex<>> indices(static_cast<std::size_t>(tensor_dimension(d, p)), MultiIndex<>(p));
  for (std::size_t n = 0; n < indices.size(); ++n) {
    auto rest = static_cast<Index>(n);
    for (int level = p - 1; level >= 0; --level, rest /= d) indices[n][level] = rest % d;
  }
  return indices;
}

/// Π c_i! over the counts of α.
[[nodiscard]] inline Index product_of_count_factorials(const MultiIndex<>& alpha, Index d) {
  Index product = 1;
  for (const Index count : counts(alpha, d)) product *= factorial(count);
  return product;
}

using Shapes = std::initializer_list<std::pair<Index, int>>;  // (d, p)
inline constexpr std::pair<Index, int> basis_shapes[] = {{3, 1}, {3, 2}, {3, 3}, {2, 4}, {3, 4}, {2, 5}, {2, 6}};

/// |a - b| of two counts.
[[nodiscard]] inline double apart(Index a, Index b) { return std::abs(static_cast<double>(a - b)); }

/// S1 to S4: orbits and stabilisers by trying every permutation, against the library's counting.
inline void orbit_propositions(Ledger& ledger) {
  const MultiIndex<> pair{0, 1};  // the papers' [1, 2], in three dimensions
  const Index copies = static_cast<Index>(orbit(pair).size()),
              printed = factorial(3) / product_of_count_factorials(pair, 3);
  ledger.erratum("S1", apart(printed, copies), 0,
                 "α = [1, 2] over d = 3 occurs d!/(c_1! … c_p!) = 6 times in a symmetric tensor",
                 "C §4.1, \"Define the counts …\"", "p!/Π_{i≤d} c_i!, here 2", apart(multiplicity(pair), copies), 0);

  Largest orbits, stabilizers, products;
  for (const auto& [d, p] : Shapes{{2, 3}, {3, 2}, {3, 3}, {4, 3}, {3, 4}, {2, 5}}) {
    const auto rearrangements = permutations(p);
    for (const auto& alpha : MultiIndices(d, p)) {
      std::set<MultiIndex<>> images;
      Index fixing = 0;
      for (const auto& rho : rearrangements) {
        images.insert(permuted(alpha, rho));
        fixing += permuted(alpha, rho) == alpha;
      }
      const Index counted = std::ssize(images), order = product_of_count_factorials(alpha, d);
      orbits.add(apart(counted, factorial(p) / order));
      orbits.add(apart(counted, multiplicity(alpha)) + apart(counted, std::ssize(orbit(alpha))));
      stabilizers.add(apart(fixing, order));
      stabilizers.add(apart(fixing, stabilizer_order(alpha)) + apart(fixing, std::ssize(stabilizer(alpha))));
      products.add(apart(std::ssize(orbit(alpha)) * std::ssize(stabilizer(alpha)), factorial(p)));
    }
  }
  ledger.holds("S1.fix", orbits.value(), 0, "α occurs |orbit(α)| = p!/Π_{i≤d} c_i! times", "C §4.1, \"With this …\"");
  ledger.holds("S2", stabilizers.value(), 0, "|stab(α)| = Π c_i!", "C §4.1, \"From this …\"");
  ledger.holds("S3", products.value(), 0, "|orbit(α)| |stab(α)| = |G_p| = p!",
               "C §4.1, \"This theorem tells us that the …\"");

  const MultiIndex<> all_different{0, 3, 5}, all_equal{0, 0, 0}, two_equal{0, 0, 1};
  ledger.holds(
      "S4",
      apart(multiplicity(all_different), 6) + apart(multiplicity(all_equal), 1) + apart(stabilizer_order(two_equal), 2),
      0, "the examples: [1, 4, 6] occurs 6 times, [1, 1, 1] once, and |stab([1, 1, 2])| = 2",
      "C §4.1, \"And indeed …\", \"For the example …\"");
}

/// S5 and S15: v^{⊗p} is symmetric, so its non-decreasing entries are all there is.
template <class Scalar>
void symmetry_proposition(Ledger& ledger, Random& random, const char* id, Index d, int p, const char* statement,
                          const char* source) {
  const Vector<Scalar> v = random.vector<Scalar>(d), tensor = tensor_power(v, p);
  const auto entry = [&](const MultiIndex<>& alpha) { return static_cast<double>(tensor[flat_position(alpha, d)]); };
  Largest error;
  for (const auto& alpha : every_index(d, p)) {
    const double kept = entry(sorted(alpha));
    error.add(std::abs(entry(alpha) - kept) / std::abs(kept));
  }
  ledger.holds(id, error.value(), 2 * (p - 1) * unit_roundoff<Scalar>, statement, source);
}

/// S6 and S7: the basis by its definition, and its independence. Integers, hence no rounding.
template <class Scalar>
void basis_propositions(Ledger& ledger) {
  Largest values, ranks;
  for (const auto& [d, p] : basis_shapes) {
    const MultiIndices indices(d, p);
    const auto rearrangements = permutations(p);
    Matrix<double> elements(tensor_dimension(d, p), indices.size());
    for (Index n = 0; n < indices.size(); ++n) {
      const MultiIndex<> alpha = indices[n];
      const Vector<Scalar> element = symmetric_basis<Scalar>(alpha, d);
      Vector<Scalar> sum = Vector<Scalar>::Zero(element.size());
      for (const auto& rho : rearrangements) sum[flat_position(permuted(alpha, rho), d)] += 1;
      values.add<Scalar>(element, sum);
      for (const auto& beta : indices) {
        const Index expected = alpha == beta ? product_of_count_factorials(alpha, d) : 0;
        values.add(std::abs(static_cast<double>(element[flat_position(beta, d)]) - static_cast<double>(expected)));
      }
      elements.col(n) = element.template cast<double>();
    }
    ranks.add(apart(Eigen::FullPivLU<Matrix<double>>(elements).rank(), symmetric_dimension(d, p)));
  }
  ledger.holds("S6", values.value(), 0, "S^α = Σ_ρ E^{ρ(α)}, and S^α_β = |stab(α)| δ(α = β) for non-decreasing α and β",
               "C §4.1, \"Then we can construct a basis …\", \"First …\"");
  ledger.holds("S7", ranks.value(), 0, "the S^α are linearly independent, C(d+p-1, p) of them",
               "C §4.1, \"Let’s check linear independence first\"");
}

/// S8: every symmetric tensor from its coordinates, drawn with one normal entry on every orbit.
template <class Scalar>
void span_of_basis(Ledger& ledger, Random& random) {
  Largest error;
  for (const auto& [d, p] : basis_shapes) {
    const MultiIndices indices(d, p);
    const Vector<Scalar> entries = random.vector<Scalar>(indices.size());
    Vector<Scalar> tensor(tensor_dimension(d, p)), sum = Vector<Scalar>::Zero(tensor.size());
    for (const auto& beta : every_index(d, p)) tensor[flat_position(beta, d)] = entries[indices.rank(sorted(beta))];
    const Vector<Scalar> coordinates = symmetric_coordinates(tensor, d, p);
    for (Index n = 0; n < indices.size(); ++n) {
      const MultiIndex<> alpha = indices[n];
      sum +=
          entries[n] / static_cast<Scalar>(product_of_count_factorials(alpha, d)) * symmetric_basis<Scalar>(alpha, d);
    }
    error.add_relative<Scalar>(sum, tensor);
    error.add_relative<Scalar>(symmetric_tensor(coordinates, d, p), tensor);
  }
  ledger.holds("S8", error.value(), 2 * unit_roundoff<Scalar>,
               "T = Σ_α T_α/|stab(α)| S^α for every symmetric T, entry by entry",
               "correction of C §4.1, \"To show S^α span all symmetric …\"");
}

/// S9: stars and bars, and the library's walk, against picking the non-decreasing among all d^p multi-indices.
inline void dimension_proposition(Ledger& ledger) {
  Largest error;
  for (Index d = 1; d < 7; ++d)
    for (int p = 1; p < 6; ++p) {
      std::vector<MultiIndex<>> monotone = every_index(d, p), walked;
      std::erase_if(monotone, [](const MultiIndex<>& alpha) { return !std::ranges::is_sorted(alpha); });
      for (const auto& alpha : MultiIndices(d, p)) walked.push_back(alpha);
      error.add(apart(std::ssize(monotone), symmetric_dimension(d, p)));
      error.add(walked == monotone ? 0 : 1);
    }
  ledger.holds("S9", error.value(), 0,
               "there are C(d+p-1, p) non-decreasing multi-indices, and MultiIndices lists them in order",
               "C §4.1, \"The space of symmetric tensors has …\", \"This is a standard combinatorial problem …\"");
}

/// S10 and S11: polarisation, and the step of its proof whose sum runs too short. Integers, hence no rounding.
template <class Scalar>
void polarization_propositions(Ledger& ledger) {
  for (int p = 1; p <= 6; ++p) {
    Largest error;
    for (const auto& [d, power] : basis_shapes)
      if (power == p)
        for (const auto& alpha : MultiIndices(d, p))
          error.add<Scalar>(polarization<Scalar>(alpha, d), symmetric_basis<Scalar>(alpha, d));
    ledger.holds("S10.p" + std::to_string(p), error.value(), 0,
                 "Z^α = S^α: polarisation with the sign (-1)^{p-|b|}, right for odd and for even p",
                 "C §4.1, \"Turns out that Z^α = S^α\"");
  }

  const Index d = 2;
  const MultiIndex<> alpha{0, 1, 1};  // the papers' [1, 2, 2]
  const auto proof_step = [&](int limit) {
    double sum = 0;
    for (unsigned b = 0; b < 8; ++b) {
      double term = 1;
      for (int i = 0; i < 3; ++i) {
        double chosen = 0;
        for (int j = 0; j < limit; ++j) chosen += (b >> j & 1u) != 0 && alpha[j] == alpha[i];
        term *= (b >> i & 1u) != 0 ? chosen : -chosen;
      }
      sum += term;
    }
    return sum;
  };
  const auto truth = static_cast<double>(polarization<Scalar>(alpha, d)[flat_position(alpha, d)]);
  ledger.erratum("S11", std::abs(proof_step(d) - truth), 0,
                 "in the proof of Z^α = S^α the sums over j_1 … j_p run from 1 to d; α = β = [1, 2, 2], d = 2, p = 3 "
                 "then gives 0 for 2",
                 "C §4.1, \"During the sum over all combinations …\"", "they run from 1 to p",
                 std::abs(proof_step(3) - truth), 0);
}

/// S12: powers of vectors span the symmetric tensors.
template <class Scalar>
void span_of_powers(Ledger& ledger, Random& random) {
  Largest error;
  for (const auto& [d, p] : Shapes{{2, 3}, {3, 3}, {4, 2}, {3, 4}}) {
    const Index dimension = symmetric_dimension(d, p);
    const Matrix<Scalar> vectors = random.matrix<Scalar>(d, 2 * dimension), powers = symmetric_power(vectors, p);
    Eigen::FullPivLU<Matrix<double>> elimination(powers.template cast<double>());
    elimination.setThreshold(static_cast<double>(dimension) * unit_roundoff<Scalar>);
    error.add(apart(elimination.rank(), dimension));
  }
  ledger.holds("S12", error.value(), 0,
               "the v^{⊗p} span all C(d+p-1, p) dimensions: rank of φ of twice as many normal vectors",
               "C §4.1, \"We will prove that the answer …\"");
}

/// S13: evaluating a combination of the basis at β.
template <class Scalar>
void independence_step(Ledger& ledger, Random& random) {
  const MultiIndex<> alpha{0, 1}, beta{0, 0};  // the papers' [1, 2] and [1, 1]
  const Vector<Scalar> x = random.vector<Scalar>(3), sum = symmetric_tensor(x, 2, 2);
  const auto value = static_cast<double>(sum[flat_position(beta, 2)]), coordinate = static_cast<double>(x[0]);
  const auto off = [&](const MultiIndex<>& of) {
    return std::abs(value - coordinate * static_cast<double>(stabilizer_order(of))) / std::abs(value);
  };
  ledger.holds("S13.fix", off(beta), 2 * unit_roundoff<Scalar>,
               "[Σ_α x_α S^α]_β = x_β |stab(β)|, relative, at β = [1, 1]",
               "correction of C §4.1, \"Assume that we have some coefficients …\"");
  ledger.erratum("S13", off(alpha), 2 * unit_roundoff<Scalar>,
                 "[Σ_α x_α S^α]_β = x_β |stab(α)| with a free α, relative, here [1, 2]",
                 "C §4.1, \"Assume that we have some coefficients …\"", "x_β |stab(β)|", off(beta),
                 2 * unit_roundoff<Scalar>);
}

/// S14: the identity for general p that is printed for 2, at a vector of length 2, where ‖v‖⁶ = 64 and ‖v‖⁴ = 16.
template <class Scalar>
void superscript_erratum(Ledger& ledger, Random& random) {
  const Vector<double> direction = random.vector<double>(4).normalized();
  const Vector<Scalar> v = (2 * direction).template cast<Scalar>();
  const Vector<Scalar> tensor = tensor_power(v, 3), square = symmetric_power(v, 2), cube = symmetric_power(v, 3);
  const auto off = [&](const Vector<Scalar>& phi) {
    return std::abs(static_cast<double>(phi.squaredNorm()) / static_cast<double>(tensor.squaredNorm()) - 1);
  };
  const double bound = (2 * (4 * 3 + 2) + 64 + 20) * unit_roundoff<Scalar>;  // roundings of the entries, and additions
  ledger.erratum("S14", off(square), bound,
                 "φ_SYM²(v)·φ_SYM²(w) = φ_TP^p(v)·φ_TP^p(w) for every p; p = 3, w = v, relative",
                 "C §4.2, \"The inner product of two vectors …\"", "φ_SYM^p on the left", off(cube), bound);
}

}  // namespace detail

/// Decides S1 to S15 in the given type and adds them to the ledger.
template <class Scalar>
void symmetric_tensor_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::orbit_propositions(ledger);
  detail::symmetry_proposition<Scalar>(ledger, random, "S5", 4, 3, "v^{⊗p} is symmetric; p = 3, every entry",
                                       "C §4.1, \"Showing that a general tensor …\"");
  detail::basis_propositions<Scalar>(ledger);
  detail::span_of_basis<Scalar>(ledger, random);
  detail::dimension_proposition(ledger);
  detail::polarization_propositions<Scalar>(ledger);
  detail::span_of_powers<Scalar>(ledger, random);
  detail::independence_step<Scalar>(ledger, random);
  detail::superscript_erratum<Scalar>(ledger, random);
  detail::symmetry_proposition<Scalar>(
      ledger, random, "S15", 3, 5,
      "T_β = T_sorted(β): nothing is lost with the entries that are not non-decreasing; p = 5",
      "C §4.1, \"No data is lost if we …\"");
}

}  // namespace SYMPOW_NAMESPACE::verify
