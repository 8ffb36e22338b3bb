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
#include <sympow/core/random.hpp>
#include <sympow/core/view.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/simd/exponential.hpp>
#include <sympow/simd/product.hpp>

namespace SYMPOW_NAMESPACE {

/// Function of the projections W x.
enum class RandomFeatureKind {
  positive,       ///< exp(W x - ‖x‖²/2)
  trigonometric,  ///< exp(‖x‖²/2) [cos W x; sin W x]
  hyperbolic      ///< exp(-‖x‖²/2) [exp(W x); exp(-W x)]
};

/// Distribution of the rows of W.
struct RandomFeatureOptions {
  std::uint64_t seed = 1;  ///< equal seeds give equal W on every machine, up to rounding
  bool orthogonal = true;  ///< blocks of d orthogonal rows, for lower variance; false: independent rows

  friend bool operator==(const RandomFeatureOptions&, const RandomFeatureOptions&) = default;
};

/// Random features for softmax attention. With m rows w_r ~ N(0, I) of W
///
///     positive        φ(x) = exp(W x - ‖x‖²/2) / √m                          D = m
///     trigonometric   φ(x) = exp(+‖x‖²/2) [cos W x; sin W x] / √m            D = 2m
///     hyperbolic      φ(x) = exp(-‖x‖²/2) [exp(W x); exp(-W x)] / √(2m)      D = 2m
///     E φ(x)·φ(y) = exp(xᵀy)
///
/// A call with this map estimates the same call with `Exponential` in all three forms: sums without bias, means
/// consistently. Rows are independent, or rows of Haar-distributed orthogonal d × d blocks with independent χ_d
/// lengths, each still N(0, I). See `random_feature_variance`. Positive and hyperbolic scores are never negative and
/// normalized by default; trigonometric scores have either sign.
///
/// Copies share W, in double. Cost of an embedding: 2 m d operations in double and D exponentials per token; no
/// allocation. Error of an entry: a few roundings of the scalar, plus about 2^-53 (‖w_r‖ ‖x‖ + ‖x‖²) relative from
/// exponents and angles in double. The recurrent form embeds recent keys again at each step; `State(feature, d, e, 0)`
/// avoids that without loss for positive features. States and files reject other projections. Source: Rethinking
/// Attention with Performers (2021), Lemma 1, §2.4 and Appendix; Equivariant Structured Positional Rotations, §3, which
/// prints exp(W x + ‖x‖²/2) for the positive map: E would be exp(xᵀy + ‖x‖² + ‖y‖²).
template <RandomFeatureKind Kind>
class RandomFeatures {
 public:
  static constexpr RandomFeatureKind kind = Kind;  ///< function of W x
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = Kind != RandomFeatureKind::trigonometric;
  static constexpr bool nonnegative_entries = nonnegative;  ///< see `has_nonnegative_entries`

  /// m projections of x in R^d. Cost: at most 8 m d² operations, memory m d. Throws `InvalidArgument` unless m, d ≥ 1.
  RandomFeatures(Index d, Index m, RandomFeatureOptions options = {}) : options_(options) {
    if (d < 1) detail::raise<InvalidArgument>("RandomFeatures: d is ", d, ", must be 1 or more");
    if (m < 1) detail::raise<InvalidArgument>("RandomFeatures: m is ", m, ", must be 1 or more");
    Random random(options.seed);
    W_ = std::make_shared<const Matrix<double>>(options.orthogonal ? orthogonal_rows(random, m, d)
                                                                   : random.matrix(m, d));
  }

  [[nodiscard]] const Matrix<double>& projections() const { return *W_; }         ///< W, m × d
  [[nodiscard]] const RandomFeatureOptions& options() const { return options_; }  ///< options of the draw

  /// D. Throws `ShapeMismatch` unless d matches the projections.
  [[nodiscard]] Index dimension(Index d) const {
    detail::check_size("rows of x", d, W_->cols(), "d of the random features");
    return parts * W_->rows();
  }

  /// y.col(t) = φ(x.col(t)), D × n from d × n; 0 or infinite outside the range of the type. Throws `ShapeMismatch`.
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    using Scalar = typename std::remove_cvref_t<Y>::Scalar;
    embed_columns(x, y, [&](Index t, double log_size) { y.col(t) *= static_cast<Scalar>(std::exp(log_size)); });
  }

  /// φ(x.col(t)) = 2^exponents[t] y.col(t), with integer exponents and entries of size at most √2, for every finite x.
  /// Throws `ShapeMismatch`.
  template <class X, class Y, class Exponents>
  void embed(const X& x, Y&& y, Exponents&& exponents) const {
    using Scalar = typename std::remove_cvref_t<Y>::Scalar;
    embed_columns(x, y, [&](Index t, double log_size) {
      const auto [integer, fraction] = detail::reduced_exponent(log_size);
      exponents[t] = integer;
      y.col(t) *= static_cast<Scalar>(std::exp(fraction));
    });
  }

  /// dx.col(t) = Dφ(x_t)ᵀ dy_t, d × n, from x_t, y_t = φ(x_t) and dy_t, D × n. With t = y∘dy and its two parts,
  ///
  ///     positive        dx = Wᵀt - x Σ t
  ///     trigonometric   dx = Wᵀ(y_cos∘dy_sin - y_sin∘dy_cos) + x Σ t
  ///     hyperbolic      dx = Wᵀ(t_+ - t_-) - x Σ t
  ///
  /// The same holds for y without its exponents and the gradient with respect to it. Cost: 2 m d operations in double
  /// per token; no allocation. Error: the rounding of y and dx, plus about (m / 64 + 70) 2^-53 Σ |t| (max ‖w_r‖ + ‖x‖).
  /// Throws `ShapeMismatch`.
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
          const detail::MatrixView<double> weight_block(weights, std::min(rows, W.rows() - r), n);
          for (Index j = 0; j < n; ++j) {
            const double sum = set_weights(weight_block.col(j), y.col(t + j), dy.col(t + j), r);
            if (c == 0) sums[static_cast<std::size_t>(j)] += sum;
          }
          detail::product<double>(r > 0, part.rows(), n, weight_block.rows(), detail::strided(W).at(r, c).transposed(),
                                  detail::strided(weight_block), detail::strided(part));
        }
        for (Index j = 0; j < n; ++j) {
          const double factor = (trigonometric ? 1 : -1) * sums[static_cast<std::size_t>(j)];
          for (Index i = 0; i < part.rows(); ++i)
            dx(c + i, t + j) = static_cast<Scalar>(part(i, j) + factor * static_cast<double>(x(c + i, t + j)));
        }
      }
    }
  }

  /// Whether the projections are equal: the same d, m and options.
  friend bool operator==(const RandomFeatures& f, const RandomFeatures& g) {
    return f.W_ == g.W_ || (f.W_->rows() == g.W_->rows() && f.W_->cols() == g.W_->cols() && f.options_ == g.options_);
  }

  /// FNV-1a hash of the kind and of what `==` compares.
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
  static constexpr Index parts = Kind == RandomFeatureKind::positive ? 1 : 2;
  // Block sizes of W x on the stack: projections, tokens, coordinates.
  static constexpr Index rows = 64, tokens = 16, depth = 64;

  // Gram-Schmidt on Gaussian vectors: QR with a positive diagonal of R, so Q is Haar-distributed; then independent
  // lengths. (Householder QR has other signs on that diagonal, which would bias Q.)
  static Matrix<double> orthogonal_rows(Random& random, Index m, Index d) {
    Matrix<double> W(m, d);
    for (Index begin = 0; begin < m; begin += d) {
      const Index count = std::min(d, m - begin);
      Matrix<double> drawn(d, count);  // as columns
      for (Index i = 0; i < count; ++i) {
        Vector<double> w = random.vector(d).normalized();
        for (int pass = 0; pass < 2; ++pass) {
          const auto previous = detail::MatrixView<const double>(drawn).leftCols(i);
          Vector<double> overlaps(i);
          detail::set_product(overlaps, previous.transpose(), w);
          for (Index j = 0; j < i; ++j) overlaps[j] = -overlaps[j];
          detail::add_product(w, previous, overlaps);
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

  // Writes y.col(t) with its largest entry near 1, then calls finish(t, log of its missing factor).
  template <class X, class Y, class Finish>
  void embed_columns(const X& x, Y& y, const Finish& finish) const {
    const Matrix<double>& W = *W_;
    detail::check_size("rows of x", x.rows(), W.cols(), "d of the random features");
    detail::check_size("rows of y", y.rows(), parts * W.rows(), "D of the random features");
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
        for (Index j = 0; j < n; ++j)
          write_features(projected.col(j), y.col(t + j), r, peaks[static_cast<std::size_t>(j)]);
      }
      for (Index j = 0; j < n; ++j) {
        const double half_norm2 = x.col(t + j).template cast<double>().squaredNorm() / 2;
        const double count = static_cast<double>((hyperbolic ? 2 : 1) * W.rows());
        const double log_size =
            peaks[static_cast<std::size_t>(j)] + (trigonometric ? half_norm2 : -half_norm2) - std::log(count) / 2;
        constexpr double limit = 1e300;  // beyond, no digit of a weight remains
        finish(t + j, std::clamp(log_size, -limit, limit));
      }
    }
  }

  // Writes features r … of one column from their projections p, divided by e^peak, the largest exponent so far.
  template <class Projected, class Column>
  void write_features(const Projected& p, Column y, Index r, double& peak) const {
    using Scalar = typename Column::Scalar;
    const Index m = W_->rows(), n = p.size();
    if constexpr (trigonometric) {
      constexpr double two_pi = 2 * std::numbers::pi;
      const auto reduced = (p.array() - two_pi * (p.array() / two_pi).round()).template cast<Scalar>();
      y.segment(r, n).array() = reduced.cos();
      y.segment(m + r, n).array() = reduced.sin();
    } else {
      const double new_peak = hyperbolic ? p.cwiseAbs().maxCoeff() : p.maxCoeff();
      if (new_peak > peak) {  // rescale what was written for the previous peak
        const auto factor = static_cast<Scalar>(std::exp(peak - new_peak));
        y.head(r) *= factor;
        if (hyperbolic) y.segment(m, r) *= factor;
        peak = new_peak;
      }
      y.segment(r, n).array() = (p.array() - peak).template cast<Scalar>().exp();
      if constexpr (hyperbolic) y.segment(m + r, n).array() = (-p.array() - peak).template cast<Scalar>().exp();
    }
  }

  // Sets the factors of rows r … of W in Dφ(x)ᵀ dy; returns their part of Σ y∘dy.
  template <class Column, class Gradient>
  double set_weights(detail::ColumnView<double> weights, const Column& y, const Gradient& dy, Index r) const {
    const Index m = W_->rows(), n = weights.size();
    const auto product = [&](Index i, Index j) { return static_cast<double>(y[i]) * static_cast<double>(dy[j]); };
    double sum = 0;
    for (Index i = r; i < r + n; ++i) {
      const double first = product(i, i), second = parts == 1 ? 0 : product(m + i, m + i);
      weights[i - r] = trigonometric ? product(i, m + i) - product(m + i, i) : first - second;
      sum += first + second;
    }
    return sum;
  }

  RandomFeatureOptions options_;
  std::shared_ptr<const Matrix<double>> W_;
};

using PositiveRandomFeatures = RandomFeatures<RandomFeatureKind::positive>;            ///< positive scores; FAVOR+
using TrigonometricRandomFeatures = RandomFeatures<RandomFeatureKind::trigonometric>;  ///< scores of either sign
using HyperbolicRandomFeatures = RandomFeatures<RandomFeatureKind::hyperbolic>;        ///< positive scores

}  // namespace SYMPOW_NAMESPACE
