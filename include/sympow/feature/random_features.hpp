// κ(s) ≈ exp(s): random features whose inner products are exponentials in expectation (FAVOR+).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numbers>

#include <sympow/core/checks.hpp>
#include <sympow/core/exponential.hpp>
#include <sympow/core/product.hpp>
#include <sympow/core/random.hpp>
#include <sympow/core/view.hpp>
#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE {

/// Which function of the projections W x the features are.
enum class RandomFeatureKind {
  positive,       ///< exp(W x - ‖x‖²/2)
  trigonometric,  ///< exp(‖x‖²/2) [cos W x; sin W x]
  hyperbolic      ///< exp(-‖x‖²/2) [exp(W x); exp(-W x)]
};

/// How the rows of W are drawn.
struct RandomFeatureOptions {
  std::uint64_t seed = 1;  ///< the same W for the same seed, on every machine up to rounding
  bool orthogonal = true;  ///< blocks of d orthogonal rows, which lowers the variance; false: independent rows

  friend bool operator==(const RandomFeatureOptions&, const RandomFeatureOptions&) = default;
};

/// Random features for softmax attention. With m rows w_r ~ N(0, I) of W
///
///     positive        φ(x) = exp(W x - ‖x‖²/2) / √m                          D = m
///     trigonometric   φ(x) = exp(+‖x‖²/2) [cos W x; sin W x] / √m            D = 2m
///     hyperbolic      φ(x) = exp(-‖x‖²/2) [exp(W x); exp(-W x)] / √(2m)      D = 2m
///     E φ(x)·φ(y) = exp(xᵀy)
///
/// so that a call with this map is an unbiased estimate of sums, and a consistent one of means, of the same call with
/// `Exponential`, in all three forms. Rows are independent, or the rows of Haar-distributed orthogonal d × d blocks
/// with independent χ_d lengths: each row is N(0, I) still. The variance is `random_feature_variance`. Positive and
/// hyperbolic scores are never negative and such maps are normalised by default; trigonometric ones can be of either
/// sign.
///
/// W is kept in double and shared by all copies. Cost of an embedding: 2 m d operations in double and D exponentials a
/// token; no allocation. Exponents and angles are formed in double whatever the scalar: beside a few roundings of the
/// scalar an entry has a relative error of some 2^-53 (‖w_r‖ ‖x‖ + ‖x‖²). Every step of the recurrent form embeds the
/// keys of the tail again; positive features lose nothing with `State(feature, d, e, 0)`, which has none. A state
/// refuses a call, and a file a state, with other projections. Source: Rethinking Attention with Performers (2021),
/// Lemma 1, §2.4 and Appendix; Equivariant Structured Positional Rotations, §3, which prints exp(W x + ‖x‖²/2) for the
/// positive map: E would be exp(xᵀy + ‖x‖² + ‖y‖²).
template <RandomFeatureKind Kind>
class RandomFeatures {
 public:
  static constexpr RandomFeatureKind kind = Kind;  ///< which function of W x the features are
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = Kind != RandomFeatureKind::trigonometric;
  static constexpr bool nonnegative_entries = nonnegative;  ///< see `has_nonnegative_entries`

  /// m projections of x in R^d. Cost: 8 m d² operations at most, memory m d. Throws `InvalidArgument` for m < 1 or d <
  /// 1.
  RandomFeatures(Index d, Index m, RandomFeatureOptions options = {}) : options_(options) {
    if (d < 1) detail::raise<InvalidArgument>("RandomFeatures: d is ", d, ", must be 1 or more");
    if (m < 1) detail::raise<InvalidArgument>("RandomFeatures: m is ", m, ", must be 1 or more");
    Random random(options.seed);
    W_ = std::make_shared<const Matrix<double>>(options.orthogonal ? orthogonal_rows(random, m, d)
                                                                   : random.matrix(m, d));
  }

  [[nodiscard]] const Matrix<double>& projections() const { return *W_; }         ///< W, m × d
  [[nodiscard]] const RandomFeatureOptions& options() const { return options_; }  ///< how it was drawn

  /// D. Throws `ShapeMismatch` unless d is that of the projections.
  [[nodiscard]] Index dimension(Index d) const {
    detail::check_size("rows of x", d, W_->cols(), "d of the random features");
    return halves * W_->rows();
  }

  /// y.col(t) = φ(x.col(t)), D × n from d × n; 0 or infinite where the type ends. Throws `ShapeMismatch`.
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    using Scalar = typename std::remove_cvref_t<Y>::Scalar;
    embed_columns(x, y, [&](Index t, double log_size) { y.col(t) *= static_cast<Scalar>(std::exp(log_size)); });
  }

  /// φ(x.col(t)) = 2^exponents[t] y.col(t), whole exponents and entries of size at most √2, for any finite x. Throws
  /// `ShapeMismatch`.
  template <class X, class Y, class Exponents>
  void embed(const X& x, Y&& y, Exponents&& exponents) const {
    using Scalar = typename std::remove_cvref_t<Y>::Scalar;
    embed_columns(x, y, [&](Index t, double log_size) {
      const auto [whole, rest] = detail::reduced_exponent(log_size);
      exponents[t] = whole;
      y.col(t) *= static_cast<Scalar>(std::exp(rest));
    });
  }

  /// dx.col(t) = Dφ(x_t)ᵀ dy_t, d × n from x_t, y_t = φ(x_t) and dy_t: D × n. With t = y∘dy, halves apart
  ///
  ///     positive        dx = Wᵀt - x Σ t
  ///     trigonometric   dx = Wᵀ(y_cos∘dy_sin - y_sin∘dy_cos) + x Σ t
  ///     hyperbolic      dx = Wᵀ(t_+ - t_-) - x Σ t
  ///
  /// For y without its exponents and the gradient with respect to that y the same: 2^n y and 2^-n dy have these
  /// products. Cost: 2 m d operations in double a token; no allocation. Error: beside the rounding of y and of dx some
  /// (m / 64 + 70) 2^-53 of Σ |t| (max ‖w_r‖ + ‖x‖). Throws `ShapeMismatch`.
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, const Y& y, const DY& dy, DX&& dx) const {
    using Scalar = typename std::remove_cvref_t<DX>::Scalar;
    const Matrix<double>& W = *W_;
    detail::check_vjp_shapes(x, dy, dx, dimension(x.rows()));
    double weights[rows * tokens], coordinates[depth * tokens];
    for (Index t = 0; t < x.cols(); t += tokens) {
      const Index n = std::min(tokens, x.cols() - t);
      std::array<double, tokens> sums{};
      for (Index c = 0; c < W.cols(); c += depth) {
        const detail::MatrixView<double> part(coordinates, std::min(depth, W.cols() - c), n);
        for (Index r = 0; r < W.rows(); r += rows) {
          const detail::MatrixView<double> some(weights, std::min(rows, W.rows() - r), n);
          for (Index j = 0; j < n; ++j) {
            const double sum = set_weights(some.col(j), y.col(t + j), dy.col(t + j), r);
            if (c == 0) sums[static_cast<std::size_t>(j)] += sum;
          }
          detail::product<double>(r > 0, part.rows(), n, some.rows(), detail::strided(W).at(r, c).transposed(),
                                  detail::strided(some), detail::strided(part));
        }
        for (Index j = 0; j < n; ++j) {
          const double factor = (trigonometric ? 1 : -1) * sums[static_cast<std::size_t>(j)];
          for (Index i = 0; i < part.rows(); ++i)
            dx(c + i, t + j) = static_cast<Scalar>(part(i, j) + factor * static_cast<double>(x(c + i, t + j)));
        }
      }
    }
  }

  /// Whether both have the same projections: the same d, m and options.
  friend bool operator==(const RandomFeatures& f, const RandomFeatures& g) {
    return f.W_ == g.W_ || (f.W_->rows() == g.W_->rows() && f.W_->cols() == g.W_->cols() && f.options_ == g.options_);
  }

  /// A number for what `==` compares and the kind, FNV-1a.
  [[nodiscard]] std::int64_t fingerprint() const {
    std::uint64_t hash = 14695981039346656037u;
    for (std::uint64_t part : {static_cast<std::uint64_t>(Kind), static_cast<std::uint64_t>(W_->rows()),
                               static_cast<std::uint64_t>(W_->cols()), options_.seed,
                               static_cast<std::uint64_t>(options_.orthogonal ? 1 : 0)})
      for (int byte = 0; byte < 8; ++byte, part >>= 8) hash = (hash ^ (part & 255)) * 1099511628211u;
    return static_cast<std::int64_t>(hash);
  }

 private:
  static constexpr bool trigonometric = Kind == RandomFeatureKind::trigonometric;
  static constexpr bool hyperbolic = Kind == RandomFeatureKind::hyperbolic;
  static constexpr Index halves = Kind == RandomFeatureKind::positive ? 1 : 2;
  // W x is formed by blocks of so many projections, tokens and coordinates, on the stack.
  static constexpr Index rows = 64, tokens = 16, depth = 64;

  // Gauss vectors made orthonormal one after the other, which is the QR decomposition with a positive diagonal of R:
  // Haar's measure. (Reflections leave signs of their own on that diagonal, and Q without them is biased.) Then their
  // lengths.
  static Matrix<double> orthogonal_rows(Random& random, Index m, Index d) {
    Matrix<double> W(m, d);
    for (Index begin = 0; begin < m; begin += d) {
      const Index count = std::min(d, m - begin);
      Matrix<double> drawn(d, count);  // as columns
      for (Index i = 0; i < count; ++i) {
        Vector<double> w = random.vector(d).normalized();
        for (int twice = 0; twice < 2; ++twice) {
          const auto earlier = detail::MatrixView<const double>(drawn).leftCols(i);
          Vector<double> common(i);
          detail::set_product(common, earlier.transpose(), w);
          for (Index j = 0; j < i; ++j) common[j] = -common[j];
          detail::add_product(w, earlier, common);
          w.normalize();
        }
        std::copy_n(w.data(), d, &drawn(0, i));
      }
      for (Index i = 0; i < count; ++i) {
        const double length = random.vector(d).norm();
        for (Index j = 0; j < d; ++j) W(begin + i, j) = length * drawn(j, i);
      }
    }
    return W;
  }

  // y.col(t) with its largest entry near 1, and finish(t, the logarithm of what it is to be multiplied by).
  template <class X, class Y, class Finish>
  void embed_columns(const X& x, Y& y, const Finish& finish) const {
    const Matrix<double>& W = *W_;
    detail::check_size("rows of x", x.rows(), W.cols(), "d of the random features");
    detail::check_size("rows of y", y.rows(), halves * W.rows(), "D of the random features");
    detail::check_size("columns of y", y.cols(), x.cols(), "columns of x");
    double projections[rows * tokens], coordinates[depth * tokens];
    for (Index t = 0; t < x.cols(); t += tokens) {
      const Index n = std::min(tokens, x.cols() - t);
      std::array<double, tokens> peaks;
      peaks.fill(trigonometric ? 0 : -std::numeric_limits<double>::infinity());
      for (Index r = 0; r < W.rows(); r += rows) {
        const detail::MatrixView<double> projected(projections, std::min(rows, W.rows() - r), n);
        for (Index c = 0; c < W.cols(); c += depth) {
          detail::MatrixView<double> part(coordinates, std::min(depth, W.cols() - c), n);
          part = x.block(c, t, part.rows(), n).template cast<double>();
          detail::product<double>(c > 0, projected.rows(), n, part.rows(), detail::strided(W).at(r, c),
                                  detail::strided(part), detail::strided(projected));
        }
        for (Index j = 0; j < n; ++j) put(projected.col(j), y.col(t + j), r, peaks[static_cast<std::size_t>(j)]);
      }
      for (Index j = 0; j < n; ++j) {
        const double half = x.col(t + j).template cast<double>().squaredNorm() / 2;
        const double count = static_cast<double>((hyperbolic ? 2 : 1) * W.rows());
        const double log_size =
            peaks[static_cast<std::size_t>(j)] + (trigonometric ? half : -half) - std::log(count) / 2;
        constexpr double most = 1e300;  // farther away no digit of a weight is left
        finish(t + j, std::clamp(log_size, -most, most));
      }
    }
  }

  // Features r … of one column from their projections p, divided by the exponential of the peak, the largest exponent
  // so far.
  template <class Projected, class Column>
  void put(const Projected& p, Column y, Index r, double& peak) const {
    using Scalar = typename Column::Scalar;
    const Index m = W_->rows(), n = p.size();
    if constexpr (trigonometric) {
      constexpr double turn = 2 * std::numbers::pi;
      const auto reduced = (p.array() - turn * (p.array() / turn).round()).template cast<Scalar>();
      y.segment(r, n).array() = reduced.cos();
      y.segment(m + r, n).array() = reduced.sin();
    } else {
      const double top = hyperbolic ? p.cwiseAbs().maxCoeff() : p.maxCoeff();
      if (top > peak) {  // what was written is relative to a lower one
        const auto factor = static_cast<Scalar>(std::exp(peak - top));
        y.head(r) *= factor;
        if (hyperbolic) y.segment(m, r) *= factor;
        peak = top;
      }
      y.segment(r, n).array() = (p.array() - peak).template cast<Scalar>().exp();
      if constexpr (hyperbolic) y.segment(m + r, n).array() = (-p.array() - peak).template cast<Scalar>().exp();
    }
  }

  // What multiplies rows r … of W in Dφ(x)ᵀ dy; returns their part of Σ y∘dy.
  template <class Column, class Gradient>
  double set_weights(detail::ColumnView<double> weights, const Column& y, const Gradient& dy, Index r) const {
    const Index m = W_->rows(), n = weights.size();
    const auto product = [&](Index i, Index j) { return static_cast<double>(y[i]) * static_cast<double>(dy[j]); };
    double sum = 0;
    for (Index i = r; i < r + n; ++i) {
      const double first = product(i, i), second = halves == 1 ? 0 : product(m + i, m + i);
      weights[i - r] = trigonometric ? product(i, m + i) - product(m + i, i) : first - second;
      sum += first + second;
    }
    return sum;
  }

  RandomFeatureOptions options_;
  std::shared_ptr<const Matrix<double>> W_;
};

using PositiveRandomFeatures = RandomFeatures<RandomFeatureKind::positive>;            ///< scores above 0; FAVOR+
using TrigonometricRandomFeatures = RandomFeatures<RandomFeatureKind::trigonometric>;  ///< scores of either sign
using HyperbolicRandomFeatures = RandomFeatures<RandomFeatureKind::hyperbolic>;        ///< scores above 0

}  // namespace SYMPOW_NAMESPACE
