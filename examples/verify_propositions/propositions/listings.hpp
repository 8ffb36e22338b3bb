// The listings of "Symmetric Power Transformers", line by line in C++, with their faults.
#pragma once

#include <cmath>
#include <limits>
#include <utility>
#include <vector>
#include "propositions/dense.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// §2, the first listing, with its inner products named as they are used. Tokens are columns here and rows there.
template <class Scalar>
[[nodiscard]] Dense<Scalar> listed_even_power_attention(const Dense<Scalar>& Q, const Dense<Scalar>& K,
                                                        const Dense<Scalar>& V, int p) {
  Dense<Scalar> Y = Dense<Scalar>::zero(V.rows(), V.cols());
  for (Index i = 0; i < Q.cols(); ++i) {
    std::vector<Scalar> B;
    Scalar sum(0);
    for (Index j = 0; j <= i; ++j) {
      Scalar D(0);
      for (Index n = 0; n < Q.rows(); ++n) D += Q(n, i) * K(n, j);
      B.push_back(std::pow(D, static_cast<Scalar>(p)));
      sum += B.back();
    }
    for (Index j = 0; j <= i; ++j)
      for (Index n = 0; n < V.rows(); ++n) Y(n, i) += B[static_cast<std::size_t>(j)] / sum * V(n, j);
  }
  return Y;
}

/// What the stable listing leaves to choose: its ε in the logarithm and in the denominator.
struct Stabilizer {
  double in_logarithm = 0, in_denominator = 0;
};

/// §2, the second listing. `Accumulator` is the type of its row sums, which the listing fixes to float32; `Scalar` may
/// be a type of half precision.
template <class Accumulator, class Scalar>
[[nodiscard]] Dense<Scalar> listed_even_power_attn(const Dense<Scalar>& Q, const Dense<Scalar>& K,
                                                   const Dense<Scalar>& V, int p, Stabilizer epsilon) {
  using std::abs, std::exp, std::log;
  Dense<Scalar> Y = Dense<Scalar>::zero(V.rows(), V.cols());
  std::vector<Scalar> B(static_cast<std::size_t>(Q.cols()));
  for (Index i = 0; i < Q.cols(); ++i) {
    const auto seen = static_cast<std::size_t>(i) + 1;
    Scalar largest = -std::numeric_limits<Scalar>::infinity();
    for (std::size_t j = 0; j < seen; ++j) {
      Scalar D(0);
      for (Index n = 0; n < Q.rows(); ++n) D += Q(n, i) * K(n, static_cast<Index>(j));
      B[j] = Scalar(static_cast<float>(p)) * log(abs(D) + static_cast<Scalar>(epsilon.in_logarithm));
      if (B[j] > largest) largest = B[j];
    }
    Accumulator sum(0);
    for (std::size_t j = 0; j < seen; ++j) {
      B[j] = exp(B[j] - largest);
      sum += static_cast<Accumulator>(B[j]);
    }
    const Scalar denominator = static_cast<Scalar>(sum) + static_cast<Scalar>(epsilon.in_denominator);
    for (std::size_t j = 0; j < seen; ++j)
      for (Index n = 0; n < V.rows(); ++n) Y(n, i) += B[j] / denominator * V(n, static_cast<Index>(j));
  }
  return Y;
}

/// The square root that the listings take. Another function in its place, such as c ↦ c, needs no root.
struct Root {
  template <class Scalar>
  [[nodiscard]] Scalar operator()(const Scalar& c) const {
    return std::sqrt(c);
  }
};

/// §4: the upper triangle of v vᵀ, row by row.
template <class Scalar, class SquareRoot = Root>
[[nodiscard]] Vector<Scalar> listed_sym_2_embedding(const Vector<Scalar>& v, const SquareRoot& root = {}) {
  std::vector<Scalar> x;
  for (Index i = 0; i < v.size(); ++i)
    for (Index j = i; j < v.size(); ++j) x.push_back(root(i == j ? Scalar(1) : Scalar(2)) * v[i] * v[j]);
  return Eigen::Map<Vector<Scalar>>(x.data(), std::ssize(x));
}

using ListedIndex = std::vector<Index>;

/// §4.2: the non-decreasing sequences of n entries below `bound`.
[[nodiscard]] inline std::vector<ListedIndex> listed_non_decreasing_multiindices(int n, Index bound,
                                                                                 Index starting_from = 0) {
  std::vector<ListedIndex> sequences;
  for (Index i = starting_from; i < bound; ++i) {
    if (n == 1) {
      sequences.push_back({i});
      continue;
    }
    for (const ListedIndex& remainder : listed_non_decreasing_multiindices(n - 1, bound, i)) {
      sequences.push_back({i});
      sequences.back().insert(sequences.back().end(), remainder.begin(), remainder.end());
    }
  }
  return sequences;
}

/// §4.2: the multinomial coefficient by multiplying and dividing in turn, and the remainders that these divisions drop.
[[nodiscard]] inline std::pair<Index, Index> listed_multinomial(const std::vector<Index>& counts) {
  Index result = 1, i = 1, dropped = 0;
  for (const Index count : counts)
    for (Index j = 1; j <= count; ++j) {
      result *= i++;
      dropped += result % j;
      result /= j;
    }
  return {result, dropped};
}

/// §4.2: how often each index appears.
[[nodiscard]] inline std::vector<Index> listed_count(const ListedIndex& alpha, Index d) {
  std::vector<Index> count(static_cast<std::size_t>(d));
  for (const Index i : alpha) ++count[static_cast<std::size_t>(i)];
  return count;
}

/// §4.2: the symmetric power embedding.
template <class Scalar, class SquareRoot = Root>
[[nodiscard]] Vector<Scalar> listed_symmetric_power_embedding(const Vector<Scalar>& k, int p,
                                                              const SquareRoot& root = {}) {
  std::vector<Scalar> x;
  for (const ListedIndex& alpha : listed_non_decreasing_multiindices(p, k.size())) {
    Scalar entry = root(static_cast<Scalar>(listed_multinomial(listed_count(alpha, k.size())).first));
    for (const Index i : alpha) entry *= k[i];
    x.push_back(entry);
  }
  return Eigen::Map<Vector<Scalar>>(x.data(), std::ssize(x));
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
