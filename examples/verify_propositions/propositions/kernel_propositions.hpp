// The kernel of the sympow papers and the tensor products behind it: propositions K1 to K5 and R1 to R5.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/random.hpp>
#include <sympow/tensor/symmetric_power.hpp>
#include <sympow/tensor/tensor_power.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// Roundings in an entry of φ^p: two in √p! x_i, and at most four in each of the p - 1 factors x_i/√r that follow.
inline double roundings_of_symmetric_power(int p) { return 4.0 * p; }

/// Roundings in an entry of φ_TP^p: p - 1 multiplications.
inline double roundings_of_tensor_power(int p) { return p - 1.0; }

/// Roundings in (q·k)^p, relative to (Σ|q_i k_i|)^p.
inline double roundings_of_kernel(Index d, int p) { return p * (static_cast<double>(d) + 1); }

/// φ(q)·φ(k) for two embeddings, entry by entry: the library's own `dot` would use the identity that is to be checked.
template <class Embedded>
double expanded_inner_product(const Embedded& q, const Embedded& k) {
  const Vector<typename Embedded::Scalar> left = q, right = k;
  return static_cast<double>(left.dot(right));
}

/// K1 to K5: φ(q)·φ(k) = (q·k)^p for both embeddings. The errors are relative to (Σ|q_i k_i|)^p = Σ|φ_α(q) φ_α(k)|.
template <class Scalar>
void kernel_identities(Ledger& ledger, Random& random) {
  constexpr double u = unit_roundoff<Scalar>;
  const auto powers = {1, 2, 3, 4, 6};
  const auto kernel = [](const Vector<Scalar>& q, const Vector<Scalar>& k, int p) {
    return std::pow(q.template cast<double>().dot(k.template cast<double>()), p);
  };
  const auto size = [](const Vector<Scalar>& q, const Vector<Scalar>& k, int p) {
    return std::pow(q.template cast<double>().cwiseProduct(k.template cast<double>()).cwiseAbs().sum(), p);
  };

  const Index d = 6;
  for (const int p : powers) {
    Largest error;
    for (int pair = 0; pair < 200; ++pair) {
      const Vector<Scalar> q = random.vector<Scalar>(d), k = random.vector<Scalar>(d);
      const double scale = size(q, k, p), expected = kernel(q, k, p);
      error.add(std::abs(expanded_inner_product(symmetric_power(q, p), symmetric_power(k, p)) - expected) / scale);
      error.add(std::abs(static_cast<double>(symmetric_power(q, p).dot(symmetric_power(k, p))) - expected) / scale);
    }
    const double additions = static_cast<double>(symmetric_dimension(d, p));
    ledger.holds("K1.p" + std::to_string(p), error.value(),
                 (2 * roundings_of_symmetric_power(p) + additions + roundings_of_kernel(d, p)) * u,
                 "φ(v)·φ(w) = (v·w)^p, relative to (Σ|v_i w_i|)^p",
                 "A §2, \"The equivalence between the attention and …\"; A §A.1.1, \"The equivalence between the "
                 "attention and …\"; C §4.2, \"The inner product of two vectors …\"");
  }

  Largest norm;
  double norm_bound = 0;
  for (const int p : powers) {
    const Vector<Scalar> v = random.vector<Scalar>(d), phi = symmetric_power(v, p);
    norm.add(std::abs(static_cast<double>(phi.norm()) / std::pow(v.template cast<double>().norm(), p) - 1));
    norm_bound = std::max(norm_bound, static_cast<double>(phi.size()) + 1 + roundings_of_symmetric_power(p));
  }
  ledger.holds("K2", norm.value(), norm_bound * u, "‖φ(v)‖ = ‖v‖^p",
               "corollary of A §2, \"The equivalence between the attention and …\"");

  Largest tensor, both;
  double tensor_bound = 0, both_bound = 0;
  for (const int p : powers) {
    const Index n = 4;
    const Vector<Scalar> q = random.vector<Scalar>(n), k = random.vector<Scalar>(n);
    const double full = expanded_inner_product(tensor_power(q, p), tensor_power(k, p));
    const double compact = expanded_inner_product(symmetric_power(q, p), symmetric_power(k, p));
    tensor.add(std::abs(full - kernel(q, k, p)) / size(q, k, p));
    both.add(std::abs(full - compact) / size(q, k, p));
    const double of_full = 2 * roundings_of_tensor_power(p) + static_cast<double>(tensor_dimension(n, p));
    const double of_compact = 2 * roundings_of_symmetric_power(p) + static_cast<double>(symmetric_dimension(n, p));
    tensor_bound = std::max(tensor_bound, of_full + roundings_of_kernel(n, p));
    both_bound = std::max(both_bound, of_full + of_compact);
  }
  ledger.holds("K3", tensor.value(), tensor_bound * u, "φ_TP(q)·φ_TP(k) = (q·k)^p, relative to (Σ|q_i k_i|)^p",
               "C §3.2, \"If this embedding is used with …\"");
  ledger.holds(
      "K4", both.value(), both_bound * u, "φ_SYM(q)·φ_SYM(k) = φ_TP(q)·φ_TP(k)",
      "C §4, \"Then two linear transformers with embeddings …\"; C §4.2, \"The inner product of two vectors …\"");

  Largest count;
  for (Index n = 1; n < 12; ++n) {
    const auto expected = static_cast<double>((n * n + n) / 2);
    const MultiIndices indices(n, 2);
    Index walked = 0;
    for (auto alpha = indices.begin(); alpha != indices.end(); ++alpha) ++walked;
    count.add(std::abs(static_cast<double>(symmetric_dimension(n, 2)) - expected));
    count.add(std::abs(static_cast<double>(walked) - expected));
    count.add(std::abs(static_cast<double>(symmetric_power<2>(Vector<Scalar>(n)).rows()) - expected));
  }
  ledger.holds("K5", count.value(), 0, "φ²_SYM has (d² + d)/2 entries, (d + 1)/2d of the d² of φ²_TP",
               "C §4, \"Noticing this symmetry in the matrix …\"");
}

/// R1 to R5: tensor products of vectors of different lengths.
template <class Scalar>
void tensor_product_identities(Ledger& ledger, Random& random) {
  constexpr double u = unit_roundoff<Scalar>;
  const auto draw = [&](Index n) { return random.vector<Scalar>(n); };
  const Vector<Scalar> a = draw(2), b = draw(3), c = draw(4), e = draw(5);
  const Vector<Scalar> f = draw(2), g = draw(3), h = draw(4), k = draw(5);
  const Vector<Scalar> left = tensor_product(a, b, c, e), right = tensor_product(f, g, h, k);
  const double entries = 2 * 3 * 4 * 5, lengths = 2 + 3 + 4 + 5, factors = 4;

  const double inner = static_cast<double>(left.dot(right));
  const double size = static_cast<double>(left.cwiseAbs().dot(right.cwiseAbs()));
  double product = 1;
  const auto multiply = [&](const Vector<Scalar>& v, const Vector<Scalar>& w) {
    product *= v.template cast<double>().dot(w.template cast<double>());
  };
  multiply(a, f), multiply(b, g), multiply(c, h), multiply(e, k);
  Largest result_1;
  result_1.add(std::abs(inner - product) / size);
  result_1.add(std::abs(static_cast<double>(tensor_product(a, b, c, e).dot(tensor_product(f, g, h, k))) - product) /
               size);
  ledger.holds("R1", result_1.value(), (2 * (factors - 1) + entries + lengths + factors) * u,
               "flat(⊗v_i)·flat(⊗w_i) = Π v_i·w_i for lengths 2, 3, 4, 5, relative to Π Σ|v_ij w_ij|",
               "C §3.1, Result 1");

  std::vector<Index> order(static_cast<std::size_t>(left.size()));
  std::iota(order.begin(), order.end(), Index(0));
  for (std::size_t n = order.size() - 1; n > 0; --n)
    std::swap(order[n], order[static_cast<std::size_t>(random.integer(0, static_cast<Index>(n)))]);
  const Vector<Scalar> shuffled_left = left(order), shuffled_right = right(order);
  ledger.holds("R2", std::abs(static_cast<double>(shuffled_left.dot(shuffled_right)) - inner) / size, 2 * entries * u,
               "the inner product does not see the order in which tensors are flattened",
               "C §3.1, \"This can be done with any …\"");

  const auto sum = [](const Vector<Scalar>& v) { return v.template cast<double>().sum(); };
  const double sums = sum(a) * sum(b) * sum(c) * sum(e);
  ledger.holds("R3", std::abs(static_cast<double>(left.sum()) - sums) / static_cast<double>(left.cwiseAbs().sum()),
               (factors - 1 + entries + lengths + factors) * u,
               "Π_i Σ_j v_ij = Σ_{j1…jp} Π_i v_{i,ji}, relative to the same of |v_ij|",
               "C §3.1, \"Where the last step used a …\"");

  Largest entry;
  Index position = 0;
  for (Index i = 0; i < a.size(); ++i)
    for (Index j = 0; j < b.size(); ++j)
      for (Index l = 0; l < c.size(); ++l)
        for (Index m = 0; m < e.size(); ++m, ++position) {
          const double expected = static_cast<double>(a[i]) * static_cast<double>(b[j]) * static_cast<double>(c[l]) *
                                  static_cast<double>(e[m]);
          entry.add(std::abs(static_cast<double>(left[position]) - expected) / std::abs(expected));
        }
  ledger.holds("R4", entry.value(), 2 * (factors - 1) * u, "[⊗v_i]_α = Π v_{i,α_i} for every α, relative to the entry",
               "C §3.1, \"Given a list of p vectors …\"");

  const Vector<Scalar> flat = tensor_product(a, b);
  const Matrix<Scalar> outer = b * a.transpose();  // column-major, so that its entries stand in the order of flat(a bᵀ)
  Largest outer_product;
  outer_product.add<Scalar>(flat, outer.reshaped());
  ledger.holds("R5", outer_product.value(), 0, "v ⊗ w = v wᵀ, row by row", "C §3.1, \"Given two vectors …\"");
}

}  // namespace detail

/// Decides K1 to K5 and R1 to R5 in the given type and adds them to the ledger.
template <class Scalar>
void kernel_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::kernel_identities<Scalar>(ledger, random);
  detail::tensor_product_identities<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
