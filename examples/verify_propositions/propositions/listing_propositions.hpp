// What the listings of "Symmetric Power Transformers" compute, against the library: propositions X0 to X6w.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <sympow/attention/forms.hpp>
#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/random.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/tensor/tensor_power.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/largest.hpp"
#include "propositions/listings.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A random sequence and even-power attention of it, by the library and by the listings.
template <class Scalar>
struct ListingInput {
  static constexpr Index d = 6, T = 24;
  static constexpr int p = 4;
  Dense<Scalar> Q, K, V;

  /// The queries are multiplied by `scale`, which the definition does not see.
  explicit ListingInput(std::uint64_t seed, double scale = 1) {
    Random random(seed);
    Q = (scale * Dense<double>(random.matrix<double>(d, T))).template to<Scalar>();
    K = random.matrix<Scalar>(d, T);
    V = random.matrix<Scalar>(d, T);
  }

  [[nodiscard]] Dense<Scalar> defined() const { return attention(SymmetricPower<p>{}, stationary(), Q, K, V); }
  [[nodiscard]] Dense<Scalar> first_listing() const { return listed_even_power_attention(Q, K, V, p); }
  template <class Accumulator>
  [[nodiscard]] Dense<Scalar> stable_listing(Stabilizer epsilon) const {
    return listed_even_power_attn<Accumulator>(Q, K, V, p, epsilon);
  }

  /// max |a - b| / (c_i max |V|) over the rows i; within 8 u where only rounding differs.
  ///
  /// c_i = i + Σ_j w_ij (1 + p d κ_ij + 2 p |log|s_ij||) / Σ_j w_ij + 2 p max_j |log|s_ij||, with w_ij = s_ij^p, s_ij =
  /// q_i·k_j and κ_ij = Σ|q_n k_n|/|s_ij|: the roundings of a weight by way of its logarithm, averaged, and those of
  /// the sums.
  [[nodiscard]] double distance(const Dense<Scalar>& a, const Dense<Scalar>& b) const {
    const Dense<double> q = Q.in_double(), k = K.in_double();
    Largest worst;
    for (Index i = 0; i < T; ++i) {
      double weights = 0, roundings = 0, largest = 0, exponent = 0;
      for (Index j = 0; j <= i; ++j) {
        double s = 0, absolute = 0;
        for (Index n = 0; n < d; ++n) {
          s += q(n, i) * k(n, j);
          absolute += std::abs(q(n, i) * k(n, j));
        }
        const double weight = std::pow(s, p), logarithm = std::abs(std::log(std::abs(s)));
        weights += weight;
        roundings +=
            weight * (1 + 2 * p * logarithm) + p * static_cast<double>(d) * std::pow(std::abs(s), p - 1) * absolute;
        if (weight > largest) largest = weight, exponent = 2 * p * logarithm;
      }
      const double condition = static_cast<double>(i + 1) + roundings / weights + exponent;
      worst.add((a.column(i).in_double() - b.column(i).in_double()).largest() / (condition * V.largest()));
    }
    return worst.value();
  }
};

/// X0 to X2c: even-power attention.
template <class Scalar>
void attention_listings(Ledger& ledger, std::uint64_t seed) {
  constexpr double u = unit_roundoff<Scalar>;
  const std::string units = ", in units of max|V| and a row's condition";
  const ListingInput<Scalar> input(seed);
  const Dense<Scalar> defined = input.defined();
  ledger.documents(
      "X0", "the listings are checked as they are printed",
      "C §2, listing; C §3.2, listing; C §4, listing; C §4.2, listing",
      "whether a transcription is faithful is a question about the text; here are the listings' algorithms in C++");
  ledger.documents("X1", "the first listing of even-power attention runs as printed",
                   "C §2, listing, \"Here is a simple JAX implementation …\"",
                   "it computes C and then reads D, which no line defines: a NameError in Python");
  ledger.holds("X1.fix", input.distance(input.first_listing(), defined), 8 * u,
               "with D = Q Kᵀ in place of C the first listing is even-power attention" + units,
               "correction of C §2, listing, \"Here is a simple JAX implementation …\"");

  const Dense<Scalar> q = Dense<Scalar>::identity(2).part(0, 0, 2, 1), k = Dense<Scalar>::identity(2).part(0, 1, 2, 1);
  const Dense<Scalar> nothing = listed_even_power_attention(q, k, Dense<Scalar>::constant(2, 1, 1), 4);
  ledger.control("X1z", !std::isfinite(nothing(0, 0)) + !std::isfinite(nothing(1, 0)), 0,
                 "the first listing, so corrected, is finite where every score is 0; residual: entries that are not",
                 "C §2, listing, \"Here is a simple JAX implementation …\"");

  ledger.holds("X2a", input.distance(input.template stable_listing<float>({}), defined), 8 * unit_roundoff<float>,
               "the stable listing with ε = 0 is even-power attention, to float precision" + units,
               "C §2, listing, \"This is the code used to …\"");
  const ListingInput<double> precise(seed);
  ledger.control("X2a64", precise.distance(precise.stable_listing<float>({}), precise.defined()),
                 8 * unit_roundoff<double>,
                 "and of double inputs it is so to double precision: its dtype=float32 narrows the row sums" + units,
                 "C §2, listing, \"This is the code used to …\"");
  ledger.holds(
      "X2a.fix", input.distance(input.template stable_listing<Scalar>({}), defined), 8 * u,
      "sums in the wider of float and the inputs' type, and no ε: even-power attention to their precision" + units,
      "correction of C §2, listing, \"This is the code used to …\"");

  for (const auto& [name, epsilon] : {std::pair{"X2b.0.001", 1e-3}, std::pair{"X2b.1e-06", 1e-6}}) {
    const ListingInput<Scalar> small(seed, 10 * epsilon);
    ledger.control(name, small.distance(small.template stable_listing<float>({epsilon, epsilon}), small.defined()),
                   8 * unit_roundoff<float>,
                   "the stable listing is even-power attention whatever its ε; scores of ten ε" + units,
                   "C §2, listing, \"This is the code used to …\"");
  }
  const ListingInput<Scalar> small(seed, 1e-2);
  const Stabilizer thousandth{1e-3, 1e-3};
  ledger.control("X2c",
                 input.distance(small.template stable_listing<float>(thousandth),
                                input.template stable_listing<float>(thousandth)),
                 16 * unit_roundoff<float>,
                 "the stable listing does not see the scale of Q, as the definition; ε = 1e-3, Q and Q/100" + units,
                 "C §2, listing, \"This is the code used to …\"");
}

/// X2d to X2g: what ε does to a row.
template <class Scalar>
void stabilizer_listings(Ledger& ledger, std::uint64_t seed) {
  constexpr double u = unit_roundoff<Scalar>;
  const double epsilon = 1e-3;
  ListingInput<Scalar> input(seed);
  const Dense<Scalar> ones = Dense<Scalar>::constant(1, input.T, 1);
  input.V = ones;
  const auto off_one = [&](const Dense<Scalar>& sums) { return (sums - ones).largest(); };
  const double sums_bound = 2 * static_cast<double>(input.T) * std::max(u, unit_roundoff<float>);
  ledger.erratum("X2d", off_one(input.template stable_listing<float>({epsilon, epsilon})), sums_bound,
                 "the rows of the stable listing sum to 1; ε = 1e-3", "C §2, listing, \"This is the code used to …\"",
                 "they sum to 1/(1 + ε/denominator); the denominator is at least 1 and needs no ε",
                 off_one(input.template stable_listing<float>({epsilon, 0})), sums_bound);

  Dense<Scalar> Q = Dense<Scalar>::zero(2, 2), K = Dense<Scalar>::identity(2), V = Dense<Scalar>::zero(1, 2);
  Q(0, 1) = Scalar(1e-3);
  V(0, 1) = 1;
  const Dense<Scalar> listed = listed_even_power_attn<float>(Q, K, V, 2, {epsilon, epsilon});
  const Dense<Scalar> defined = listed_even_power_attention(Q, K, V, 2);
  ledger.control("X2e", std::abs(static_cast<double>(listed(0, 1)) - static_cast<double>(defined(0, 1))), 8 * u,
                 "a key with inner product 0 gets weight 0; with scores (1e-3, 0), ε = 1e-3 and p = 2 it gets 0.2",
                 "C §2, listing, \"This is the code used to …\"");

  Q = K = Dense<Scalar>::zero(2, 2);
  Q(0, 1) = Q(1, 0) = K(1, 0) = 1;
  K(1, 1) = 2;
  const double uniform = static_cast<double>(listed_even_power_attn<float>(Q, K, V, 4, {1e-6, 1e-6})(0, 1));
  ledger.holds("X2f", std::abs(uniform - .5), 1e-6 / 4 + 8 * std::max(u, unit_roundoff<float>),
               "where every score of a row is 0 the stable listing averages the values (ε = 1e-6; nobody says so)",
               "C §2, listing, \"This is the code used to …\"");

  using Half = Eigen::half;
  const Dense<Half> no_query = Dense<Half>::zero(2, 2), any = Dense<Half>::constant(2, 2, Half(1));
  const Dense<Half> means = listed_even_power_attn<float>(no_query, any, any, 4, {1e-8, 1e-8});
  double broken = 0;
  for (Index n = 0; n < means.size(); ++n) broken += !std::isfinite(static_cast<float>(means.data()[n]));
  ledger.control("X2g", broken, 0,
                 "the same in half precision with ε = 1e-8, which rounds to 0; residual: entries that are not finite",
                 "C §2, listing, \"This is the code used to …\"");
}

/// X3 to X6w: the embeddings and their tests.
template <class Scalar>
void embedding_listings(Ledger& ledger, Random& random) {
  constexpr double u = unit_roundoff<Scalar>;
  const auto uniform = [&](Index d) {
    Vector<Scalar> v(d);
    for (Scalar& entry : v) entry = static_cast<Scalar>(random.uniform());
    return v;
  };
  // |φ(q)·φ(k) / (q·k)^p - 1| for positive vectors.
  const auto off = [](const Vector<Scalar>& phi_q, const Vector<Scalar>& phi_k, const Vector<Scalar>& q,
                      const Vector<Scalar>& k, int p) {
    return std::abs(static_cast<double>(phi_q.dot(phi_k)) /
                        std::pow(q.template cast<double>().dot(k.template cast<double>()), p) -
                    1);
  };
  ledger.documents("X3", "the test of the tensor power embedding runs as printed",
                   "C §3.2, listing, \"The implementation is straightforward\"",
                   "it calls tensor_power_embedding, which no listing defines: a NameError in Python");
  Largest tensor;
  double tensor_bound = 0;
  for (const int p : {2, 4, 6}) {
    const Vector<Scalar> q = uniform(6), k = uniform(6);
    tensor.add(off(tensor_power(q, p), tensor_power(k, p), q, k, p));
    tensor_bound = std::max(tensor_bound, 2.0 * p + static_cast<double>(tensor_dimension(6, p)) + p * 7);
  }
  ledger.holds("X3.fix", tensor.value(), tensor_bound * u,
               "with tensor_power_embedding(k, p) = flat(k ⊗ … ⊗ k) its assertions hold: d = 6, p = 2, 4, 6, relative",
               "correction of C §3.2, listing, \"The implementation is straightforward\"");

  const Vector<Scalar> v = random.vector<Scalar>(6), square = symmetric_power<2>(v);
  Largest second, general;
  second.add_relative<Scalar>(listed_sym_2_embedding(v), square);
  ledger.holds("X4", second.value(), (3 + 8) * u, "sym_2_embedding is φ², entry by entry, relative",
               "C §4, listing, \"Noticing this symmetry in the matrix …\"");
  ledger.documents("X4t", "the result of sym_2_embedding can be multiplied entry by entry, as the test of §4.2 does",
                   "C §4, listing, \"Noticing this symmetry in the matrix …\"; C §4.2, listing, \"def "
                   "symmetric_power_inner_product …\"",
                   "it returns a Python list, for which * is a TypeError");
  for (int p = 1; p <= 4; ++p)
    general.add_relative<Scalar>(listed_symmetric_power_embedding(v, p), symmetric_power(v, p));
  ledger.holds("X5", general.value(), (4 + 1 + 4 * 4) * u,
               "symmetric_power_embedding is φ^p for p = 1 to 4, entry by entry in lexicographic order, relative",
               "C §4.2, listing, \"The following is an example implementation …\"");
  Largest coefficient;
  for (const int p : {2, 3, 5})
    for (const auto& alpha : MultiIndices(3, p)) {
      const auto [listed, dropped] = listed_multinomial(counts(alpha, 3));
      coefficient.add(std::abs(static_cast<double>(listed - multinomial(counts(alpha, 3)))) +
                      static_cast<double>(dropped));
    }
  ledger.holds("X5m", coefficient.value(), 0, "multinomial is exact, and none of its divisions leaves a remainder",
               "C §4.2, listing, \"The following is an example implementation …\"");
  ledger.documents(
      "X5z", "symmetric_power_embedding works for p = 0, which the assertion of an even p lets through",
      "C §4.2, listing, \"The following is an example implementation …\"",
      "its recursion ends at 1 only and never at 0: a RecursionError in Python; this library's powers start at 1");
  Largest even;
  double even_bound = 0, survived = 0;
  for (const int p : {2, 4, 6, 8}) {
    const Vector<Scalar> q = uniform(8), k = uniform(8), absolute_q = q.cwiseAbs(), absolute_k = k.cwiseAbs();
    const double bound = 8.0 * p + static_cast<double>(symmetric_dimension(8, p)) + p * 9;
    even.add(off(symmetric_power(q, p), symmetric_power(k, p), q, k, p));
    even_bound = std::max(even_bound, bound);
    survived += off(symmetric_power(absolute_q, p), symmetric_power(absolute_k, p), q, k, p) <= bound * u;
  }
  ledger.holds("X6", even.value(), even_bound * u,
               "the printed test passes: φ(q)·φ(k) = (q·k)^p for d = 8, p = 2, 4, 6, 8, relative",
               "C §4.2, listing, \"def symmetric_power_inner_product …\"");
  ledger.control("X6w", survived, 3,
                 "the printed test tells φ(|v|) from φ(v); residual: how many of its four assertions do not, its "
                 "vectors being positive",
                 "C §4.2, listing, \"def symmetric_power_inner_product …\"");
}

}  // namespace detail

/// Decides X0 to X6w in the given type and adds them to the ledger.
template <class Scalar>
void listing_propositions(Ledger& ledger, std::uint64_t seed) {
  detail::attention_listings<Scalar>(ledger, seed);
  detail::stabilizer_listings<Scalar>(ledger, seed);
  Random random(seed);
  detail::embedding_listings<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
