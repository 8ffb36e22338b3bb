// Flows: the gradient of a gate or angle at token t sums the couplings of all pairs that span t.
#pragma once

#include <algorithm>
#include <complex>
#include <type_traits>

#include <sympow/core/view.hpp>
#include <sympow/simd/blocks.hpp>
#include <sympow/simd/product.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Coupling of a vector x with its gradient dx: x_c dx_c for a channel c, and ⟨dx, J x⟩ = dx₁ x₀ - dx₀ x₁ for a plane.
/// For planes, a key's coupling counts with opposite sign.
struct Coupling {
  enum Kind { channels, interleaved, half_split };
  Kind kind = channels;
  Index size = 0;  ///< channels or planes

  /// The entries of n channels or planes in a vector: `parts()` runs of n `width()` contiguous entries, `size` apart.
  [[nodiscard]] Index width() const { return kind == interleaved ? 2 : 1; }
  [[nodiscard]] Index parts() const { return kind == half_split ? 2 : 1; }
  /// Sign of a key's coupling: +1 for channels, -1 for planes.
  [[nodiscard]] double key_sign() const { return kind == channels ? 1 : -1; }

  /// sums += factor · n couplings of x and dx, whose parts have the given strides.
  template <class S>
  void add(double* sums, Index n, double factor, const S* x, Index x_stride, const S* dx, Index dx_stride) const {
    constexpr Index block = 16;  // a compile-time length, so that the loop vectorizes
    Index u = 0;
    for (; u + block <= n; u += block)
      add_run(sums + u, std::integral_constant<Index, block>(), factor, x + u * width(), x_stride, dx + u * width(),
              dx_stride);
    add_run(sums + u, n - u, factor, x + u * width(), x_stride, dx + u * width(), dx_stride);
  }

  /// sums += factor · couplings, summed over the columns of x and dx.
  template <class S>
  void add_all(double* sums, double factor, const MatrixView<const S>& x, const MatrixView<const S>& dx) const {
    for_blocks(size, [&](Index first, auto count) {
      using Block = Eigen::Array<S, block_size<decltype(count)>, 1, 0, 16, 1>;
      using Pairs = Eigen::Array<std::complex<S>, block_size<decltype(count)>, 1, 0, 16, 1>;
      const Index n = count;
      const auto rows_of = [&](const MatrixView<const S>& matrix, Index row, Index t) {
        return Eigen::Map<const Block>(matrix.col(t).data() + row, n);
      };
      const auto pairs = [&](const MatrixView<const S>& matrix, Index t) {
        return Eigen::Map<const Pairs>(reinterpret_cast<const std::complex<S>*>(matrix.col(t).data()) + first, n);
      };
      for (Index begin = 0; begin < x.cols(); begin += short_sum) {
        const Index end = std::min(begin + short_sum, x.cols());
        Block terms = Block::Zero(n);
        if (kind == channels) {
          for (Index t = begin; t < end; ++t) terms += rows_of(dx, first, t) * rows_of(x, first, t);
        } else if (kind == interleaved) {
          Pairs products = Pairs::Zero(n);
          for (Index t = begin; t < end; ++t) products += pairs(x, t).conjugate() * pairs(dx, t);
          terms = products.imag();
        } else {
          for (Index t = begin; t < end; ++t)
            terms += rows_of(dx, first + size, t) * rows_of(x, first, t) -
                     rows_of(dx, first, t) * rows_of(x, first + size, t);
        }
        for (Index u = 0; u < n; ++u) sums[first + u] += factor * static_cast<double>(terms[u]);
      }
    });
  }

 private:
  template <class S, class Size>
  [[gnu::always_inline]] void add_run(double* __restrict sums, Size n, double factor, const S* __restrict x,
                                      Index x_stride, const S* __restrict dx, Index dx_stride) const {
    const auto to_double = [](S entry) __attribute__((always_inline)) { return static_cast<double>(entry); };
    if (kind == channels)
      for (Index c = 0; c < n; ++c) sums[c] += factor * (to_double(x[c]) * to_double(dx[c]));
    else if (kind == interleaved)
      for (Index u = 0; u < n; ++u)
        sums[u] +=
            factor * (to_double(dx[2 * u + 1]) * to_double(x[2 * u]) - to_double(dx[2 * u]) * to_double(x[2 * u + 1]));
    else
      for (Index u = 0; u < n; ++u)
        sums[u] +=
            factor * (to_double(dx[u + dx_stride]) * to_double(x[u]) - to_double(dx[u]) * to_double(x[u + x_stride]));
  }
};

/// The coupling for the planes of a transition.
inline Coupling coupling_of(const Planes& planes) {
  return {planes.pairing == Pairing::interleaved ? Coupling::interleaved : Coupling::half_split, planes.count};
}

/// Adds the gradients of a segment's own pairs to dQ and dK, and reports their flows
///
///     F_t = Σ_{j<t≤i} f_ij,   f_ij the coupling of q_i and dX(j, i) k_j
///
/// in parts, as `add(t, first, n, values)`, to be added to entries first … first + n - 1 of F_t. Queries and keys share
/// coordinates, in which the logits are KᵀQ. The segment is split recursively; each pair crosses one split point, whose
/// block of dX gives its gradients. A query's sum over earlier keys flows through tokens up to the query, a key's sum
/// through later tokens. No subtractions. Cost for n tokens: the products, and log2 n additions per token and entry.
template <class S, class Add>
class PairFlows {
 public:
  PairFlows(Coupling coupling, Batch<S> Q, Batch<S> K, Batch<S> dX, Batch<S> dQ, Batch<S> dK, Add add)
      : coupling_(coupling), Q_(Q), K_(K), dX_(dX), dQ_(dQ), dK_(dK), add_(add) {}

  /// Adds flows across the segment's ends from the current dQ and dK; null: none crosses both ends.
  ///
  ///     F_t += through + Σ_{i≥t} f(q_i, dq_i) + Σ_{j<t} f(k_j, dk_j)
  void add_boundary(const double* through) {
    for_row_blocks([&](Index first, Index n) {
      double sums[row_block] = {};
      if (through != nullptr) std::copy_n(through + first, n, sums);
      add_rows(first, n, 0, Q_.cols(), all_columns(dQ_, first), sums);
      double key_sums[row_block] = {};
      add_keys(first, n, 0, K_.cols(), all_columns(dK_, first), key_sums);
    });
  }

  /// Adds flows in absolute coordinates; then through += the sum over all i.
  ///
  ///     F_t += through + Σ_{i≥t} (⟨dq_i, J q_i⟩ + ⟨dk_i, J k_i⟩)
  void add_absolute(double* through) {
    for_row_blocks([&](Index first, Index n) {
      double sums[row_block] = {};
      if (through != nullptr) std::copy_n(through + first, n, sums);
      for (Index t = Q_.cols() - 1; t >= 0; --t) {
        add_couplings(1, first, n, Q_, t, all_columns(dQ_, first), t, sums);
        add_couplings(1, first, n, K_, t, all_columns(dK_, first), t, sums);
        add_(t, first, n, sums);
      }
      if (through != nullptr) std::copy_n(sums, n, through + first);
    });
  }

  /// Adds pairs j ≤ i of tokens begin … end - 1.
  void add_pairs(Index begin, Index end) {
    if (end - begin <= small) return add_small(begin, end - begin);
    const Index split = begin + (end - begin) / 2;
    add_crossing(begin, split, end);
    add_pairs(begin, split);
    add_pairs(split, end);
  }

  /// Adds pairs with j < split ≤ i.
  void add_crossing(Index begin, Index split, Index end) {
    for_row_blocks([&](Index first, Index n) {
      S buffer[row_block * token_block];
      double sums[row_block] = {};
      for (Index stop = end, start; stop > split; stop = start) {
        start = std::max(stop - token_block, split);
        const auto block = multiply(first, n, K_.middleCols(begin, split - begin),
                                    dX_.block(begin, start, split - begin, stop - start), dQ_, start, buffer);
        add_rows(first, n, start, stop, block, sums);
      }
      std::fill_n(sums, n, 0.);
      for (Index start = begin, stop; start < split; start = stop) {
        stop = std::min(start + token_block, split);
        const auto block = multiply(first, n, Q_.middleCols(split, end - split),
                                    dX_.block(start, split, stop - start, end - split).transpose(), dK_, start, buffer);
        add_keys(first, n, start, stop, block, sums);
      }
    });
  }

 private:
  static constexpr Index row_block = 64, token_block = 32;  // rows and columns of a gradient block on the stack
  static constexpr Index small = 4;                         // tokens handled pair by pair

  // Gradients of consecutive tokens: entry `first` of the first token, column stride, distance of the parts.
  struct GradientBlock {
    const S* data;
    Index token, stride, part_stride;
  };

  template <class F>
  void for_row_blocks(F&& f) const {
    const Index rows = coupling_.kind == Coupling::channels ? row_block : row_block / 2;
    for (Index first = 0; first < coupling_.size; first += rows) f(first, std::min(rows, coupling_.size - first));
  }
  [[nodiscard]] GradientBlock all_columns(const Batch<S>& dx, Index first) const {
    return {dx.data() + first * coupling_.width(), 0, dx.outerStride(), coupling_.size};
  }

  void add_small(Index begin, Index n) {
    const auto Q = Q_.middleCols(begin, n), K = K_.middleCols(begin, n);
    auto dX = dX_.block(begin, begin, n, n);
    dX.template triangularView<Eigen::StrictlyLower>().setZero();
    add_product(dQ_.middleCols(begin, n), K, dX);
    add_product(dK_.middleCols(begin, n), Q, dX.transpose());
    for_row_blocks([&](Index first, Index count) {
      for (Index i = 1; i < n; ++i) {
        double sums[row_block] = {};
        for (Index j = 0; j < i; ++j) {
          add_couplings(static_cast<double>(dX(j, i)), first, count, Q_, begin + i, all_columns(K_, first), begin + j,
                        sums);
          add_(begin + j + 1, first, count, sums);
        }
      }
    });
  }

  // Computes the rows of A B for n entries and adds them to `sum` from a column on.
  template <class A, class B>
  GradientBlock multiply(Index first, Index n, const A& a, const B& b, Batch<S>& sum, Index column, S* buffer) const {
    const Index rows = n * coupling_.width(), parts = coupling_.parts(), cols = b.cols();
    Eigen::Map<Matrix<S>> block(buffer, rows * parts, cols);
    for (Index part = 0; part < parts; ++part) {
      const Index row = first * coupling_.width() + part * coupling_.size;
      set_product(block.middleRows(part * rows, rows), a.middleRows(row, rows), b);
      sum.block(row, column, rows, cols) += block.middleRows(part * rows, rows);
    }
    return {buffer, column, rows * parts, rows};
  }

  // sums += factor · couplings of column t of x with column s of dx.
  void add_couplings(double factor, Index first, Index n, const Batch<S>& x, Index t, GradientBlock dx, Index s,
                     double* sums) const {
    coupling_.add(sums, n, factor, &x(first * coupling_.width(), t), coupling_.size,
                  dx.data + (s - dx.token) * dx.stride, dx.part_stride);
  }
  void add_rows(Index first, Index n, Index begin, Index end, GradientBlock dx, double* sums) {
    for (Index t = end - 1; t >= begin; --t) {
      add_couplings(1, first, n, Q_, t, dx, t, sums);
      add_(t, first, n, sums);
    }
  }
  void add_keys(Index first, Index n, Index begin, Index end, GradientBlock dx, double* sums) {
    for (Index t = begin; t < end; ++t) {
      add_(t, first, n, sums);
      add_couplings(coupling_.key_sign(), first, n, K_, t, dx, t, sums);
    }
  }

  Coupling coupling_;
  Batch<S> Q_, K_, dX_, dQ_, dK_;
  Add add_;
};

}  // namespace SYMPOW_NAMESPACE::detail
