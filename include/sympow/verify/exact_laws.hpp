// The laws of feature maps and transitions over the rational numbers: give them a map or a transition of your own,
// whose functions are templates on the scalar.
#pragma once

#include <sympow/exact/forms.hpp>
#include <sympow/transition/transition.hpp>
#include <sympow/verify/decide_exactly.hpp>

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// φ of one vector, by `embed(x)` or by the library's `embed(X, Y)`.
template <class F>
[[nodiscard]] Vector<Rational> embedded(const F& feature, const Vector<Rational>& x) {
  if constexpr (requires { feature.embed(x); }) {
    return feature.embed(x);
  } else {
    Matrix<Rational> y(feature.dimension(x.size()), 1);
    feature.embed(Matrix<Rational>(x), y);
    return y;
  }
}

/// The diagonal of the metric in which φ(x)·φ(y) is taken: `metric(d)`, or ones.
template <class F>
[[nodiscard]] Vector<Rational> metric_of(const F& feature, Index d, Index D) {
  if constexpr (requires { feature.template metric<Rational>(d); })
    return feature.template metric<Rational>(d);
  else
    return Vector<Rational>::Ones(D);
}

/// What the functions of a transition make of a segment a … b, beside products of `key_matrix`.
template <class A>
class SegmentCheck {
 public:
  SegmentCheck(Inputs<Rational>& x, const A& transition, Segment s, Index d)
      : x_(x), transition_(transition), s_(s), d_(d) {}

  static constexpr bool has_queries = requires(const A& a, Segment s, Batch<Rational> x) { a.apply_to_queries(s, x); },
                        has_keys = requires(const A& a, Segment s, Batch<Rational> x) { a.apply_to_keys(s, x); },
                        has_state = requires(const A& a, Segment s, Batch<Rational> x) { a.apply_to_state(s, x); },
                        has_frame = requires(const A& a, Segment s, Frame f, Batch<Rational> x) {
                          a.to_segment_frame(f, s, x, x, x);
                        };
  static_assert(has_queries || has_keys || has_state || has_frame,
                "exact_transition_law: the transition has no apply_to_queries, apply_to_keys, apply_to_state or "
                "to_segment_frame that is const and takes Batch<Rational>");
  /// The functions that are compared.
  [[nodiscard]] static std::string names() {
    std::string names;
    const auto add = [&](bool has, const char* name) {
      if (has) names += (names.empty() ? "" : ", ") + std::string(name);
    };
    add(has_queries, "apply_to_queries"), add(has_keys, "apply_to_keys"), add(has_state, "apply_to_state");
    add(has_frame, "to_segment_frame");
    return names;
  }

  /// A_a … A_b Q, (A_a … A_b)ᵀ K and X A_a … A_b, as far as the transition has them.
  void moves(const Matrix<Rational>& columns) {
    const Matrix<Rational> all = product(s_.begin, s_.end());
    Matrix<Rational> Q = columns, K = columns, X = columns.transpose();
    if constexpr (has_queries) {
      transition_.apply_to_queries(s_, Batch<Rational>(Q));
      x_.equal(Q, all * columns, "apply_to_queries:");
    }
    if constexpr (has_keys) {
      transition_.apply_to_keys(s_, Batch<Rational>(K));
      x_.equal(K, all.transpose() * columns, "apply_to_keys:");
    }
    if constexpr (has_state) {
      transition_.apply_to_state(s_, Batch<Rational>(X));
      x_.equal(X, columns.transpose() * all, "apply_to_state:");
    }
  }

  /// A_a … A_i q_i, (A_{j+1} … A_b)ᵀ k_j, and the logits q_iᵀ (A_{j+1} … A_i)ᵀ k_j for j ≤ i.
  void frames(const Matrix<Rational>& queries, const Matrix<Rational>& keys) {
    if constexpr (has_frame) {
      Matrix<Rational> Q = queries, K = keys, logits(s_.size, s_.size);
      Frame frame;
      transition_.to_segment_frame(frame, s_, Batch<Rational>(Q), Batch<Rational>(K), Batch<Rational>(logits));
      for (Index i = 0; i < s_.size; ++i) {
        const Index t = s_.begin + i + 1;
        for (Index j = 0; j <= i; ++j)
          x_.equal(logits(j, i), keys.col(j).dot(product(s_.begin + j + 1, t) * queries.col(i)), "a logit:");
        x_.equal(Q.col(i), product(s_.begin, t) * queries.col(i), "to_segment_frame of queries:");
        x_.equal(K.col(i), product(t, s_.end()).transpose() * keys.col(i), "to_segment_frame of keys:");
      }
      Matrix<Rational> alone = queries, beside = keys, none(0, 0);
      Frame again;
      transition_.to_segment_frame(again, s_, Batch<Rational>(alone), Batch<Rational>(beside), Batch<Rational>(none));
      x_.equal(alone, Q, "to_segment_frame without logits, queries:");
      x_.equal(beside, K, "to_segment_frame without logits, keys:");
    }
  }

 private:
  /// A_begin … A_{end-1}.
  [[nodiscard]] Matrix<Rational> product(Index begin, Index end) const {
    Matrix<Rational> P = Matrix<Rational>::Identity(d_, d_);
    for (Index t = begin; t < end; ++t) P = (P * transition_.key_matrix(t, d_)).eval();
    return P;
  }

  Inputs<Rational>& x_;
  const A& transition_;
  Segment s_;
  Index d_;
};

}  // namespace detail

/// φ(q)·φ(k) = κ(q·k) for a feature map with `kappa`.
///
/// φ is what `embed(x)` returns or `embed(X, Y)` writes. A map whose entries would have roots leaves them out, and
/// `metric<Scalar>(d)` has their squares: `exact::Power` is one. d = 2, 3. Finds a wrong weight, entry or score.
template <class F>
[[nodiscard]] Decision exact_kernel_law(const F& feature, std::uint64_t seed = 1) {
  return decide_exactly(
      [feature](Inputs<Rational>& x) {
        const Index d = x.size("d", {2, 3});
        const Vector<Rational> q = x.vector("q", d), k = x.vector("k", d), phi = detail::embedded(feature, q);
        x.equal(phi.dot(detail::metric_of(feature, d, phi.size()).cwiseProduct(detail::embedded(feature, k))),
                feature.kappa(Rational(q.dot(k))));
      },
      seed);
}

/// φ(A x) = L(A) φ(x) for a feature map with `lifted(A)`: Proposition 2. d = 2, 3.
template <class F>
[[nodiscard]] Decision exact_lift_law(const F& feature, std::uint64_t seed = 1) {
  return decide_exactly(
      [feature](Inputs<Rational>& x) {
        const Index d = x.size("d", {2, 3});
        const Matrix<Rational> A = x.matrix("A", d, d);
        const Vector<Rational> y = x.vector("x", d);
        x.equal(feature.lifted(A) * detail::embedded(feature, y), detail::embedded(feature, Vector<Rational>(A * y)));
      },
      seed);
}

/// Attention, recurrence and chunked form are one function of a map and a transition.
///
/// `transition_of(x, d, T)` draws its parameters from x, `Inputs<Rational>`, and returns A_1 … A_T, an object with
/// `key_matrix(t, d)` and `decay(t)`, such as `exact::Gates`. d = 2, 4 and T = 2, 4; sums, without a division.
template <class F, class TransitionOf>
[[nodiscard]] Decision exact_three_forms_law(const F& feature, const TransitionOf& transition_of,
                                             std::uint64_t seed = 1) {
  return decide_exactly(
      [=](Inputs<Rational>& x) {
        const Index d = 2 * x.size("d/2", {1, 2}), T = x.size("T", {2, 4});
        const exact::Tokens<Rational> tokens{x.matrix("Q", d, T), x.matrix("K", d, T), x.matrix("V", 1, T)};
        const auto A = transition_of(x, d, T);
        const Matrix<Rational> Y = exact::definition(feature, A, tokens, true);
        exact::State<Rational> state;
        x.equal(exact::recurrent(feature, A, tokens, state, true), Y, "recurrent:");
        x.equal(exact::chunked(feature, A, tokens, 2, true), Y, "chunked:");
      },
      seed);
}

/// The functions of a transition against products of its `key_matrix`, those that it has:
///
///     apply_to_queries     A_a … A_b Q
///     apply_to_keys, apply_to_state     (A_a … A_b)ᵀ K and X A_a … A_b
///     to_segment_frame     A_a … A_i q_i, (A_{j+1} … A_b)ᵀ k_j and the logits
///
/// `transition_of(x, d, T)` as above, of d = 2, 4 and T = 2, 4; `key_matrix(t, d)` and the functions take `Rational`.
/// All tokens are one segment, and those behind the first, before the last and between them are others. The decision
/// says which functions were compared, and a counterexample which one is wrong.
template <class TransitionOf>
[[nodiscard]] Decision exact_transition_law(const TransitionOf& transition_of, std::uint64_t seed = 1) {
  return decide_exactly(
      [transition_of](Inputs<Rational>& x) {
        const Index d = 2 * x.size("d/2", {1, 2}), T = x.size("T", {2, 4});
        const auto A = transition_of(x, d, T);
        const Matrix<Rational> Q = x.matrix("Q", d, T), K = x.matrix("K", d, T);
        using Check = detail::SegmentCheck<std::remove_cvref_t<decltype(A)>>;
        x.about(Check::names());
        for (const Segment s : {Segment{0, T}, Segment{1, T - 1}, Segment{0, T - 1}, Segment{1, T - 2}}) {
          if (s.size <= 0) continue;
          Check check(x, A, s, d);
          check.moves(Q);
          check.frames(Q.rightCols(s.size), K.rightCols(s.size));
        }
      },
      seed);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
