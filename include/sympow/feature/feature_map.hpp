// What a feature map is: a score for a pair (q, k), and where it is finite an embedding whose inner products are these
// scores.
#pragma once

#include <concepts>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE {

/// How the score of a pair comes from its logit s = scale · qᵀ M k.
enum class Score {
  power,        ///< s^degree; the feature map names its `degree`, and φ is homogeneous of that degree
  exponential,  ///< exp(s)
  /// φ(q)·φ(k), with a formula in s or none, see `KernelFeatureMap`; under a rotation φ(R(μ_i) q)·φ(R(μ_j) k), which
  /// sees μ_i - μ_j alone only if φ's
  embedded
  ///< inner products do not change when both sides turn
};

/// An immutable recipe for scores. It says
///
///     static constexpr Score score;
///     static constexpr bool nonnegative;       no pair has a negative score; such maps are normalised by default
///     static constexpr int degree;             for Score::power
template <class F>
concept FeatureMap = requires {
  { F::score } -> std::convertible_to<Score>;
  { F::nonnegative } -> std::convertible_to<bool>;
};

/// A feature map with a finite embedding, which the recurrent and the chunked form need:
///
///     Index dimension(Index d) const;                       D, the length of φ(x) for x in R^d
///     void embed(const X& x, Y&& y) const;                  y.col(t) = φ(x.col(t)), D × n from d × n; no overlap
///
/// It is a template on both, for tokens stand in matrices, blocks and views. docs/extending.md makes one from nothing.
template <class F>
concept FiniteFeatureMap = FeatureMap<F> && requires(const F& f, const Matrix<double>& x, Matrix<double>& y, Index d) {
  { f.dimension(d) } -> std::convertible_to<Index>;
  f.embed(x, y);
};

/// A feature map whose entries can leave the range of the type, as exponentials do. It has a second embedding, which
/// the forms use:
///
///     void embed(const X& x, Y&& y, E&& exponents) const;   φ(x.col(t)) = 2^exponents[t] y.col(t)
///
/// with whole exponents in double, and y of moderate size however long x is.
template <class F>
concept ScaledFeatureMap = FiniteFeatureMap<F> && requires(const F& f, const Matrix<double>& x, Matrix<double>& y,
                                                           Vector<double>& exponents) { f.embed(x, y, exponents); };

/// A feature map of an embedded score that has a closed form as well, φ(q)·φ(k) = κ(qᵀk):
///
///     double kappa(double s) const;                         κ(s), of float and double; κ(s) = (1 + s)², say
///
/// Where scores are direct, in the attention form, inside a chunk and in a tail, they are then κ(scale · qᵀMk), at d
/// operations a pair in the place of D and with the error of one logit; φ is made only of what is folded into a state
/// or read from it, and of nothing in the attention form. κ is not homogeneous: it is given true logits, which must be
/// numbers of the type, and its scores are brought to the scale of φ's by ‖φ(x)‖² = κ(‖x‖²). A `ScaledFeatureMap` has
/// none, for κ would leave the range of the type with its entries.
template <class F>
concept KernelFeatureMap =
    FiniteFeatureMap<F> && F::score == Score::embedded && !ScaledFeatureMap<F> && requires(const F& f, double s) {
      { f.kappa(s) } -> std::convertible_to<double>;
    };

/// A feature map with the derivative of its embedding, which gradients need wherever φ itself is made:
///
///     void embed_vjp(const X& x, const Y& y, const DY& dy, DX&& dx) const;   dx.col(t) = Dφ(x.col(t))ᵀ dy.col(t)
///
/// x, dx: d × n, y, dy: D × n; y is what `embed` has made of x. Of a `ScaledFeatureMap` y is without its exponents and
/// dy the gradient with respect to that y, whatever n is in φ(x) = 2^n y: the powers cancel.
template <class F>
concept FeatureMapWithVjp =
    FiniteFeatureMap<F> && requires(const F& f, const Matrix<double>& x, const Matrix<double>& y,
                                    const Matrix<double>& dy, Matrix<double>& dx) { f.embed_vjp(x, y, dy, dx); };

/// A `KernelFeatureMap` with the slope of its score:
///
///     double kappa_slope(double s) const;                   κ'(s), of float and double; 2 (1 + s), say
///
/// `attention_vjp` then has its gradients from the logits alone, at d operations a pair, and needs no `embed_vjp`.
template <class F>
concept KernelWithSlope = KernelFeatureMap<F> && requires(const F& f, double s) {
  { f.kappa_slope(s) } -> std::convertible_to<double>;
};

/// Whether a feature map says that no entry of φ is negative:
///
///     static constexpr bool nonnegative_entries = true;
///
/// Sums through φ then have nothing to cancel, and no row that has weight is degenerate, however small it is beside
/// ‖φ(q)‖ ‖φ(k)‖.
template <FeatureMap F>
inline constexpr bool has_nonnegative_entries = [] {
  if constexpr (requires { F::nonnegative_entries; })
    return static_cast<bool>(F::nonnegative_entries);
  else
    return false;
}();

/// A feature map with parameters says with `==` whether two of them are the same, so that a state is not resumed under
/// another one, and with `std::int64_t fingerprint() const` which one it is, so that a file is not.
template <FeatureMap F>
[[nodiscard]] bool same_feature([[maybe_unused]] const F& f, [[maybe_unused]] const F& g) {
  if constexpr (std::equality_comparable<F>)
    return f == g;
  else
    return true;
}

}  // namespace SYMPOW_NAMESPACE

namespace SYMPOW_NAMESPACE::detail {

/// The degree in which a feature map is homogeneous: P for a power; an embedded score is bilinear in φ. Exponentials
/// are not.
template <FeatureMap F>
inline constexpr int degree_of = [] {
  if constexpr (F::score == Score::power)
    return F::degree;
  else
    return 1;
}();

/// Refuses shapes that do not belong to a vjp of φ, which has D entries.
template <class X, class DY, class DX>
void check_vjp_shapes(const X& x, const DY& dy, const DX& dx, Index D) {
  check_size("rows of dy", dy.rows(), D, "D of the feature map");
  check_size("columns of dy", dy.cols(), x.cols(), "columns of x");
  check_size("rows of dx", dx.rows(), x.rows(), "rows of x");
  check_size("columns of dx", dx.cols(), x.cols(), "columns of x");
}

/// Whether φ(x) = x, so that what acts in key space acts on a state.
template <FeatureMap F>
inline constexpr bool keys_are_features = F::score == Score::power && degree_of<F> == 1;

}  // namespace SYMPOW_NAMESPACE::detail
