// Feature maps: a score for a pair (q, k), and optionally a finite embedding with these scores as inner products.
#pragma once

#include <concepts>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE {

/// How the score of a pair depends on its logit s = scale · qᵀ M k.
enum class Score {
  power,        ///< s^degree; φ is homogeneous of degree `degree`
  exponential,  ///< exp(s)
  /// φ(q)·φ(k), optionally κ(s), see `KernelFeatureMap`. Under a rotation φ(R(μ_i) q)·φ(R(μ_j) k), a function of
  /// μ_i - μ_j only if φ's inner products are invariant under a common rotation.
  embedded
};

/// An immutable description of scores:
///
///     static constexpr Score score;
///     static constexpr bool nonnegative;       scores are never negative; normalized by default
///     static constexpr int degree;             for Score::power
template <class F>
concept FeatureMap = requires {
  { F::score } -> std::convertible_to<Score>;
  { F::nonnegative } -> std::convertible_to<bool>;
};

/// A feature map with a finite embedding, for the recurrent and chunked forms:
///
///     Index dimension(Index d) const;                       D, the length of φ(x) for x in R^d
///     void embed(const X& x, Y&& y) const;                  y.col(t) = φ(x.col(t)), D × n from d × n; no overlap
///
/// `embed` is a template on both, since tokens come in matrices, blocks and views. See docs/extending.md for an
/// example.
template <class F>
concept FiniteFeatureMap = FeatureMap<F> && requires(const F& f, const Matrix<double>& x, Matrix<double>& y, Index d) {
  { f.dimension(d) } -> std::convertible_to<Index>;
  f.embed(x, y);
};

/// A feature map whose entries can exceed the range of the type, such as exponentials. The forms use its second
/// embedding:
///
///     void embed(const X& x, Y&& y, E&& exponents) const;   φ(x.col(t)) = 2^exponents[t] y.col(t)
///
/// with integer exponents in double, and y of moderate size for every x.
template <class F>
concept ScaledFeatureMap = FiniteFeatureMap<F> && requires(const F& f, const Matrix<double>& x, Matrix<double>& y,
                                                           Vector<double>& exponents) { f.embed(x, y, exponents); };

/// A feature map with embedded scores that also has a closed form, φ(q)·φ(k) = κ(qᵀk):
///
///     double kappa(double s) const;                         κ(s) for float and double, e.g. (1 + s)²
///
/// Direct scores (attention form, within a chunk, recent tokens) are then κ(scale · qᵀMk), with d instead of D
/// operations per pair and the error of one logit. The forms then compute φ only for states, and never in the attention
/// form. κ need not be homogeneous: it receives true logits, which must fit the type, and ‖φ(x)‖² = κ(‖x‖²) rescales
/// its scores to those of φ. A `ScaledFeatureMap` has no κ, which would overflow with its entries.
template <class F>
concept KernelFeatureMap =
    FiniteFeatureMap<F> && F::score == Score::embedded && !ScaledFeatureMap<F> && requires(const F& f, double s) {
      { f.kappa(s) } -> std::convertible_to<double>;
    };

/// A feature map with the derivative of its embedding, for gradients wherever φ is computed:
///
///     void embed_vjp(const X& x, const Y& y, const DY& dy, DX&& dx) const;   dx.col(t) = Dφ(x.col(t))ᵀ dy.col(t)
///
/// Shapes: x, dx: d × n; y, dy: D × n. y is the result of `embed`. For a `ScaledFeatureMap`, y excludes the exponents n
/// of φ(x) = 2^n y and dy is the gradient with respect to y; the powers cancel.
template <class F>
concept FeatureMapWithVjp =
    FiniteFeatureMap<F> && requires(const F& f, const Matrix<double>& x, const Matrix<double>& y,
                                    const Matrix<double>& dy, Matrix<double>& dx) { f.embed_vjp(x, y, dy, dx); };

/// A `KernelFeatureMap` with the derivative of its score:
///
///     double kappa_slope(double s) const;                   κ'(s) for float and double, e.g. 2 (1 + s)
///
/// `attention_vjp` then uses logits alone, with d operations per pair, and needs no `embed_vjp`.
template <class F>
concept KernelWithSlope = KernelFeatureMap<F> && requires(const F& f, double s) {
  { f.kappa_slope(s) } -> std::convertible_to<double>;
};

/// Whether no entry of φ is ever negative:
///
///     static constexpr bool nonnegative_entries = true;
///
/// Sums through φ then have no cancellation, and a row with nonzero weight is never degenerate, however small relative
/// to ‖φ(q)‖ ‖φ(k)‖.
template <FeatureMap F>
inline constexpr bool has_nonnegative_entries = [] {
  if constexpr (requires { F::nonnegative_entries; })
    return static_cast<bool>(F::nonnegative_entries);
  else
    return false;
}();

/// Whether two feature maps are equal. A map with parameters provides `==`, so that a state is not resumed with another
/// map, and `std::int64_t fingerprint() const`, so that a file is not.
template <FeatureMap F>
[[nodiscard]] bool same_feature([[maybe_unused]] const F& f, [[maybe_unused]] const F& g) {
  if constexpr (std::equality_comparable<F>)
    return f == g;
  else
    return true;
}

}  // namespace SYMPOW_NAMESPACE

namespace SYMPOW_NAMESPACE::detail {

/// Degree of homogeneity: P for a power; embedded scores are bilinear in φ. Exponentials have none.
template <FeatureMap F>
inline constexpr int degree_of = [] {
  if constexpr (F::score == Score::power)
    return F::degree;
  else
    return 1;
}();

/// Checks the shapes of a vjp of φ with D entries. Throws `ShapeMismatch`.
template <class X, class DY, class DX>
void check_vjp_shapes(const X& x, const DY& dy, const DX& dx, Index D) {
  check_size("rows of dy", dy.rows(), D, "D of the feature map");
  check_size("columns of dy", dy.cols(), x.cols(), "columns of x");
  check_size("rows of dx", dx.rows(), x.rows(), "rows of x");
  check_size("columns of dx", dx.cols(), x.cols(), "columns of x");
}

/// Whether φ(x) = x, so that maps of keys also act on states.
template <FeatureMap F>
inline constexpr bool keys_are_features = F::score == Score::power && degree_of<F> == 1;

/// The feature map of a call as its pass sees it: behind the interface of all maps with such a score, see
/// `pass_feature`. Exponential scores need none.
template <class Scalar, FeatureMap F>
class PassFeatureOf {};

}  // namespace SYMPOW_NAMESPACE::detail
