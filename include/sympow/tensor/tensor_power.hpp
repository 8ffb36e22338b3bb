// Tensor products of vectors and the tensor power x ⊗ … ⊗ x, flattened with the last index fastest.
#pragma once

#include <tuple>

#include <sympow/tensor/power_embedding.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

struct TensorPowerEmbedding {
  static constexpr Index dimension(Index d, int p) { return tensor_dimension(d, p); }

  // Expands y in place from the back: y holds x^{⊗l} in its first d^l entries; entry n becomes entries n d … n d + d -
  // 1.
  template <int P, class Source, class Target>
  static void fill(const Source& x, Target& y) {
    for (Index t = 0; t < x.cols(); ++t) fill_column<P>(x.col(t), y.col(t));
  }
  template <int P, class Source, class Target>
  static void fill_column(const Source& x, Target y) {
    y.head(x.size()) = x;
    Index length = x.size();
    for (int level = 1; level < P; ++level, length *= x.size())
      for (Index n = length - 1; n >= 0; --n) {
        const auto prefix = y[n];
        y.segment(n * x.size(), x.size()) = prefix * x;
      }
  }
};

template <class... X>
struct TensorProduct {
  using Scalar = std::common_type_t<scalar_t<X>...>;
  using PlainObject = Vector<Scalar>;
  std::tuple<operand_t<X>...> factors;
  Index dimension;

  Index rows() const { return dimension; }
  Index cols() const { return 1; }
  template <class Destination>
  void evalTo(Destination& y) const {
    if (dimension == 0) return;
    auto column = y.col(0);
    Index length = 1;
    column[0] = Scalar(1);
    const auto append = [&](const auto& factor) {
      const auto& v = factor.eval();
      for (Index n = length - 1; n >= 0; --n) {
        const Scalar prefix = column[n];
        column.segment(n * v.size(), v.size()) = prefix * v;
      }
      length *= v.size();
    };
    std::apply([&](const auto&... v) { (append(v), ...); }, factors);
  }

  // Result 1
  template <class... Y>
    requires(sizeof...(Y) == sizeof...(X))
  Scalar dot(const LazyExpression<TensorProduct<Y...>>& other) const {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      (check_size("length of a right factor", std::get<I>(other.op().factors).size(), std::get<I>(factors).size(),
                  "length of its left partner"),
       ...);
      return (std::get<I>(factors).dot(std::get<I>(other.op().factors)) * ...);
    }(std::index_sequence_for<X...>{});
  }
};

}  // namespace detail

/// Tensor product of vectors, flattened.
///
///     [v_1 ⊗ … ⊗ v_p]_α = Π_i v_{i, α_i},   α in lexicographic order (the last index runs fastest)
///
/// Shapes: d_1, …, d_p → Π d_i, as a lazy vector. Cost: one multiplication per entry of each level. The inner product
/// of two of them is evaluated as Π v_i·w_i. Throws `DimensionOverflow`. Source: Symmetric Power Transformers, §3.1 and
/// Result 1.
template <VectorExpression... X>
  requires(sizeof...(X) >= 1)
[[nodiscard]] auto tensor_product(X&&... factors) {
  Index dimension = ((factors.size() == 0) || ...) ? 0 : 1;
  const auto multiply = [&](Index size) {
    if (__builtin_mul_overflow(dimension, size, &dimension))
      detail::raise<DimensionOverflow>("tensor_product: the product of the lengths does not fit the index type");
  };
  (multiply(factors.size()), ...);
  return LazyExpression(detail::TensorProduct<X...>{{std::forward<X>(factors)...}, dimension});
}

/// Tensor power embedding of every column.
///
///     φ_TP^P(x) = flat(x ⊗ … ⊗ x),   φ_TP(x)·φ_TP(y) = (x·y)^P
///
/// Shapes: d × n → d^P × n, lazily. Cost: one multiplication per entry of each level. `dot`, `squaredNorm`, `norm` and
/// `φ(X).transpose() * φ(Y)` use the identity. Throws `DimensionOverflow`. Source: Symmetric Power Transformers, §3.2.
template <int P, MatrixExpression X>
[[nodiscard]] auto tensor_power(X&& x) {
  return detail::make_embedding<detail::TensorPowerEmbedding, P>(std::forward<X>(x), P);
}

/// The tensor power for a run-time power. Throws `InvalidPower` unless 1 ≤ p ≤ 8.
template <MatrixExpression X>
[[nodiscard]] auto tensor_power(X&& x, int p) {
  return detail::make_embedding<detail::TensorPowerEmbedding, Dynamic>(std::forward<X>(x), p);
}

}  // namespace SYMPOW_NAMESPACE
