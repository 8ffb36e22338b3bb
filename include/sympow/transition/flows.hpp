// Flows: what acts at a token between two others carries the coupling of these two. Of vectors, by halves.
#pragma once

#include <algorithm>

#include <sympow/transition/transition.hpp>

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

  /// sums += sign times n couplings of x and dx, whose parts begin so far apart.
  template <class S>
  void add(double* __restrict sums, Index n, double sign, const S* x, Index x_apart, const S* dx,
           Index dx_apart) const {
    if (kind == channels) {
      for (Index c = 0; c < n; ++c) sums[c] += sign * (static_cast<double>(x[c]) * static_cast<double>(dx[c]));
      return;
    }
    if (kind == neighbours) x_apart = dx_apart = 1;
    for (Index u = 0; u < n; ++u, x += each(), dx += each())
      sums[u] += sign * (static_cast<double>(dx[dx_apart]) * static_cast<double>(*x) -
                         static_cast<double>(*dx) * static_cast<double>(x[x_apart]));
  }
};

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
        couple(1, first, n, Q_, t, all_of(dQ_, first), sums);
        couple(1, first, n, K_, t, all_of(dK_, first), sums);
        add_(t, first, n, sums);
      }
      if (through != nullptr) std::copy_n(sums, n, through + first);
    });
  }

  /// Pairs j ≤ i of tokens begin … end - 1.
  void add_pairs(Index begin, Index end) {
    if (end - begin < 2) {
      for (Index t = begin; t < end; ++t) {
        dQ_.col(t) += dX_(t, t) * K_.col(t);
        dK_.col(t) += dX_(t, t) * Q_.col(t);
      }
      return;
    }
    const Index middle = begin + (end - begin) / 2;
    add_across(begin, middle, end);
    add_pairs(begin, middle);
    add_pairs(middle, end);
  }

  /// Pairs of a token before the middle and one that is not.
  void add_across(Index begin, Index middle, Index end) {
    for_numbers([&](Index first, Index n) {
      S memory[2 * at_once * tokens];
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
  static constexpr Index at_once = 32, tokens = 32;  // of an image of two parts on the stack

  // Gradients of some tokens: that of number `first` at the first of them, the columns' and the parts' distance.
  struct Image {
    const S* data;
    Index token, stride, apart;
  };

  template <class F>
  void for_numbers(F&& f) const {
    for (Index first = 0; first < coupling_.size; first += at_once) f(first, std::min(at_once, coupling_.size - first));
  }
  [[nodiscard]] Image all_of(const Batch<S>& dx, Index first) const {
    return {dx.data() + first * coupling_.each(), 0, dx.outerStride(), coupling_.size};
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

  void couple(double sign, Index first, Index n, const Batch<S>& x, Index t, Image dx, double* sums) const {
    coupling_.add(sums, n, sign, &x(first * coupling_.each(), t), coupling_.size, dx.data + (t - dx.token) * dx.stride,
                  dx.apart);
  }
  void add_rows(Index first, Index n, Index begin, Index end, Image dx, double* sums) {
    for (Index t = end - 1; t >= begin; --t) {
      couple(1, first, n, Q_, t, dx, sums);
      add_(t, first, n, sums);
    }
  }
  void add_keys(Index first, Index n, Index begin, Index end, Image dx, double* sums) {
    for (Index t = begin; t < end; ++t) {
      add_(t, first, n, sums);
      couple(coupling_.key_sign(), first, n, K_, t, dx, sums);
    }
  }

  Coupling coupling_;
  Batch<S> Q_, K_, dX_, dQ_, dK_;
  Add add_;
};

}  // namespace SYMPOW_NAMESPACE::detail
