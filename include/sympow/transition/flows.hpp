// Flows: what acts at a token between two others carries the coupling of these two. Of vectors, by halves.
#pragma once

#include <algorithm>
#include <complex>
#include <type_traits>

#include <sympow/core/blocks.hpp>
#include <sympow/core/product.hpp>
#include <sympow/core/view.hpp>
#include <sympow/transition/transport_vjp.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// What a query and the gradient that it gets from a key have in common, as numbers side by side: of channels x_c dx_c,
/// of planes ⟨dx, J x⟩ = dx₁ x₀ - dx₀ x₁, with the other sign for a key and the gradient that it gets from a query.
struct Coupling {
  enum Kind { channels, neighbours, halves };
  Kind kind = channels;
  Index size = 0;  ///< channels or planes

  /// A vector's entries that belong to n numbers are `parts()` times n `each()` side by side, `size` apart.
  [[nodiscard]] Index each() const { return kind == neighbours ? 2 : 1; }
  [[nodiscard]] Index parts() const { return kind == halves ? 2 : 1; }
  /// +1 or -1, by which a key's couplings are multiplied.
  [[nodiscard]] double key_sign() const { return kind == channels ? 1 : -1; }

  /// sums += factor times n couplings of x and dx, whose parts begin so far apart.
  template <class S>
  void add(double* sums, Index n, double factor, const S* x, Index x_apart, const S* dx, Index dx_apart) const {
    constexpr Index block = 16;  // loops of which are made of packets
    Index u = 0;
    for (; u + block <= n; u += block)
      add_some(sums + u, std::integral_constant<Index, block>(), factor, x + u * each(), x_apart, dx + u * each(),
               dx_apart);
    add_some(sums + u, n - u, factor, x + u * each(), x_apart, dx + u * each(), dx_apart);
  }

  /// sums += factor times all couplings of the columns of x with those of dx.
  template <class S>
  void add_all(double* sums, double factor, const MatrixView<const S>& x, const MatrixView<const S>& dx) const {
    for_blocks(size, [&](Index first, auto count) {
      using Some = Eigen::Array<S, block_size<decltype(count)>, 1, 0, 16, 1>;
      using Pairs = Eigen::Array<std::complex<S>, block_size<decltype(count)>, 1, 0, 16, 1>;
      const Index n = count;
      const auto some = [&](const MatrixView<const S>& of, Index row, Index t) {
        return Eigen::Map<const Some>(of.col(t).data() + row, n);
      };
      const auto pairs = [&](const MatrixView<const S>& of, Index t) {
        return Eigen::Map<const Pairs>(reinterpret_cast<const std::complex<S>*>(of.col(t).data()) + first, n);
      };
      for (Index begin = 0; begin < x.cols(); begin += short_sum) {
        const Index end = std::min(begin + short_sum, x.cols());
        Some terms = Some::Zero(n);
        if (kind == channels) {
          for (Index t = begin; t < end; ++t) terms += some(dx, first, t) * some(x, first, t);
        } else if (kind == neighbours) {
          Pairs products = Pairs::Zero(n);
          for (Index t = begin; t < end; ++t) products += pairs(x, t).conjugate() * pairs(dx, t);
          terms = products.imag();
        } else {
          for (Index t = begin; t < end; ++t)
            terms += some(dx, first + size, t) * some(x, first, t) - some(dx, first, t) * some(x, first + size, t);
        }
        for (Index u = 0; u < n; ++u) sums[first + u] += factor * static_cast<double>(terms[u]);
      }
    });
  }

 private:
  template <class S, class Size>
  [[gnu::always_inline]] void add_some(double* __restrict sums, Size n, double factor, const S* __restrict x,
                                       Index x_apart, const S* __restrict dx, Index dx_apart) const {
    const auto number = [](S entry) __attribute__((always_inline)) { return static_cast<double>(entry); };
    if (kind == channels)
      for (Index c = 0; c < n; ++c) sums[c] += factor * (number(x[c]) * number(dx[c]));
    else if (kind == neighbours)
      for (Index u = 0; u < n; ++u)
        sums[u] += factor * (number(dx[2 * u + 1]) * number(x[2 * u]) - number(dx[2 * u]) * number(x[2 * u + 1]));
    else
      for (Index u = 0; u < n; ++u)
        sums[u] += factor * (number(dx[u + dx_apart]) * number(x[u]) - number(dx[u]) * number(x[u + x_apart]));
  }
};

/// Of the planes that a transition turns.
inline Coupling coupling_of(const Planes& planes) {
  return {planes.pairing == Pairing::interleaved ? Coupling::neighbours : Coupling::halves, planes.count};
}

/// Adds to dQ and dK what pairs of tokens give, and shows the pairs' flows
///
///     F_t = Σ_{j<t≤i} f_ij,   f_ij the coupling of q_i and dX(j, i) k_j
///
/// in parts, as `add(t, first, n, numbers)`: so much for numbers first … first + n - 1 of F_t. Queries and keys are in
/// common coordinates, in which the logits are KᵀQ. A pair lies across one cut of a segment into halves, whose block of
/// dX gives the sums of f over its left half for every query and over its right half for every key; of the former those
/// at t and after it flow through t, of the latter those before t. No term is subtracted again. Cost of n tokens: the
/// products, and log2 n additions a token and number.
template <class S, class Add>
class PairFlows {
 public:
  PairFlows(Coupling coupling, Batch<S> Q, Batch<S> K, Batch<S> dX, Batch<S> dQ, Batch<S> dK, Add add)
      : coupling_(coupling), Q_(Q), K_(K), dX_(dX), dQ_(dQ), dK_(dK), add_(add) {}

  /// What passes the ends of the segment, by the dQ and dK of the moment; null: nothing passes both.
  ///
  ///     F_t += through + Σ_{i≥t} f(q_i, dq_i) + Σ_{j<t} f(k_j, dk_j)
  void add_passing(const double* through) {
    for_numbers([&](Index first, Index n) {
      double sums[at_once] = {};
      if (through != nullptr) std::copy_n(through + first, n, sums);
      add_rows(first, n, 0, Q_.cols(), all_of(dQ_, first), sums);
      double before[at_once] = {};
      add_keys(first, n, 0, K_.cols(), all_of(dK_, first), before);
    });
  }

  /// The same where all see absolute coordinates, and through goes on by the sum over all i.
  ///
  ///     F_t += through + Σ_{i≥t} (⟨dq_i, J q_i⟩ + ⟨dk_i, J k_i⟩)
  void add_absolute(double* through) {
    for_numbers([&](Index first, Index n) {
      double sums[at_once] = {};
      if (through != nullptr) std::copy_n(through + first, n, sums);
      for (Index t = Q_.cols() - 1; t >= 0; --t) {
        couple(1, first, n, Q_, t, all_of(dQ_, first), t, sums);
        couple(1, first, n, K_, t, all_of(dK_, first), t, sums);
        add_(t, first, n, sums);
      }
      if (through != nullptr) std::copy_n(sums, n, through + first);
    });
  }

  /// Pairs j ≤ i of tokens begin … end - 1.
  void add_pairs(Index begin, Index end) {
    if (end - begin <= few) return add_few(begin, end - begin);
    const Index middle = begin + (end - begin) / 2;
    add_across(begin, middle, end);
    add_pairs(begin, middle);
    add_pairs(middle, end);
  }

  /// Pairs of a token before the middle and one that is not.
  void add_across(Index begin, Index middle, Index end) {
    for_numbers([&](Index first, Index n) {
      S memory[at_once * tokens];
      double sums[at_once] = {};
      for (Index last = end, from; last > middle; last = from) {
        from = std::max(last - tokens, middle);
        const auto image = product(first, n, K_.middleCols(begin, middle - begin),
                                   dX_.block(begin, from, middle - begin, last - from), dQ_, from, memory);
        add_rows(first, n, from, last, image, sums);
      }
      std::fill_n(sums, n, 0.);
      for (Index from = begin, last; from < middle; from = last) {
        last = std::min(from + tokens, middle);
        const auto image = product(first, n, Q_.middleCols(middle, end - middle),
                                   dX_.block(from, middle, last - from, end - middle).transpose(), dK_, from, memory);
        add_keys(first, n, from, last, image, sums);
      }
    });
  }

 private:
  static constexpr Index at_once = 64, tokens = 32;  // rows and columns of an image on the stack
  static constexpr Index few = 4;                    // tokens, pair by pair

  // Gradients of some tokens: that of number `first` at the first of them, the columns' and the parts' distance.
  struct Image {
    const S* data;
    Index token, stride, apart;
  };

  template <class F>
  void for_numbers(F&& f) const {
    const Index numbers = coupling_.kind == Coupling::channels ? at_once : at_once / 2;
    for (Index first = 0; first < coupling_.size; first += numbers) f(first, std::min(numbers, coupling_.size - first));
  }
  [[nodiscard]] Image all_of(const Batch<S>& dx, Index first) const {
    return {dx.data() + first * coupling_.each(), 0, dx.outerStride(), coupling_.size};
  }

  void add_few(Index begin, Index n) {
    const auto Q = Q_.middleCols(begin, n), K = K_.middleCols(begin, n);
    auto dX = dX_.block(begin, begin, n, n);
    dX.template triangularView<Eigen::StrictlyLower>().setZero();
    add_product(dQ_.middleCols(begin, n), K, dX);
    add_product(dK_.middleCols(begin, n), Q, dX.transpose());
    for_numbers([&](Index first, Index count) {
      for (Index i = 1; i < n; ++i) {
        double sums[at_once] = {};
        for (Index j = 0; j < i; ++j) {
          couple(static_cast<double>(dX(j, i)), first, count, Q_, begin + i, all_of(K_, first), begin + j, sums);
          add_(begin + j + 1, first, count, sums);
        }
      }
    });
  }

  // The rows of `A B` that belong to n numbers, which are added to those of `sum` from a column on.
  template <class A, class B>
  Image product(Index first, Index n, const A& a, const B& b, Batch<S>& sum, Index column, S* memory) const {
    const Index rows = n * coupling_.each(), parts = coupling_.parts(), cols = b.cols();
    Eigen::Map<Matrix<S>> image(memory, rows * parts, cols);
    for (Index part = 0; part < parts; ++part) {
      const Index row = first * coupling_.each() + part * coupling_.size;
      set_product(image.middleRows(part * rows, rows), a.middleRows(row, rows), b);
      sum.block(row, column, rows, cols) += image.middleRows(part * rows, rows);
    }
    return {memory, column, rows * parts, rows};
  }

  // sums += factor times couplings of column t of x with column s of dx.
  void couple(double factor, Index first, Index n, const Batch<S>& x, Index t, Image dx, Index s, double* sums) const {
    coupling_.add(sums, n, factor, &x(first * coupling_.each(), t), coupling_.size,
                  dx.data + (s - dx.token) * dx.stride, dx.apart);
  }
  void add_rows(Index first, Index n, Index begin, Index end, Image dx, double* sums) {
    for (Index t = end - 1; t >= begin; --t) {
      couple(1, first, n, Q_, t, dx, t, sums);
      add_(t, first, n, sums);
    }
  }
  void add_keys(Index first, Index n, Index begin, Index end, Image dx, double* sums) {
    for (Index t = begin; t < end; ++t) {
      add_(t, first, n, sums);
      couple(coupling_.key_sign(), first, n, K_, t, dx, t, sums);
    }
  }

  Coupling coupling_;
  Batch<S> Q_, K_, dX_, dQ_, dK_;
  Add add_;
};

}  // namespace SYMPOW_NAMESPACE::detail
