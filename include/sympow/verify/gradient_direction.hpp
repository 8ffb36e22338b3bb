// The gradients of a call along one direction of each of its arguments, and what arithmetic explains of them.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include <sympow/attention/gradients.hpp>
#include <sympow/verify/adjoint_functions.hpp>
#include <sympow/verify/direct.hpp>
#include <sympow/verify/gradient_row_rule.hpp>
#include <sympow/verify/state_laws.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A transition whose parameters p move along a direction δ, as two functions. Gates, say:
///
///     MovingTransition moving{
///         [&](Segment s, double h) { return decay((p + h * delta).segment(s.begin, s.size)); },
///         [&](Segment s, const auto& g) { return g.log_gamma.dot(delta.segment(s.begin, s.size)); }};
///
/// p + h δ must be parameters for |h| ≤ 2⁻¹⁰. Of a transition without any: `return 0.`.
template <class At, class Along>
struct MovingTransition {
  At at;        ///< at(segment, h): the transition of some tokens at p + h δ
  Along along;  ///< along(segment, g): Σ g δ of the gradient that these tokens have
};
template <class At, class Along>
MovingTransition(At, Along) -> MovingTransition<At, Along>;

namespace detail {

/// What a call is made of: dQ, dK, dV, d scale and the gradient of the transition's parameters along its δ.
inline constexpr std::array<const char*, 5> gradient_names = {"dQ", "dK", "dV", "d scale", "the transition"};
using GradientParts = std::array<double, gradient_names.size()>;

/// Whether a state form has gradients: φ goes into a state, and has to come back.
template <class F, class A>
inline constexpr bool has_chunked_vjp = has_state_forms<F, A> && (F::score != Score::embedded || FeatureMapWithVjp<F>);

/// A call and its directions. Those of queries and keys are in units of their lengths, so that 0 stays where it is.
template <class Normalization, class Scalar, class F, class Moving>
class GradientDirection {
 public:
  using A = std::remove_cvref_t<decltype(std::declval<const Moving&>().at(Segment{}, 0.))>;
  using Gradient = Gradients<Scalar, A>;

  GradientDirection(const F& of_feature, const Moving& along_moving, Matrix<Scalar> queries, Matrix<Scalar> keys,
                    Matrix<Scalar> values, Matrix<Scalar> d_rows, const Options& given)
      : feature(of_feature),
        moving(along_moving),
        Q(std::move(queries)),
        K(std::move(keys)),
        V(std::move(values)),
        dY(std::move(d_rows)),
        options(given) {
    Random random(5);
    const auto along = [&](const Matrix<Scalar>& X) {
      Matrix<double> delta =
          random.matrix(X.rows(), X.cols()) / std::sqrt(static_cast<double>(std::max<Index>(1, X.rows())));
      for (Index t = 0; t < X.cols(); ++t) delta.col(t) *= static_cast<double>(X.col(t).norm());
      return delta;
    };
    delta_q_ = along(Q), delta_k_ = along(K), delta_v_ = random.matrix(V.rows(), V.cols());
    set_bounds();
  }

  const F& feature;
  const Moving& moving;
  Matrix<Scalar> Q, K, V, dY;  ///< dY without rows that say nothing
  const Options& options;

  [[nodiscard]] Segment all() const { return {0, call_.tokens()}; }
  [[nodiscard]] A transition(double h = 0) const { return moving.at(Segment{0, tokens()}, h); }
  [[nodiscard]] static constexpr bool has_chunks() { return has_chunked_vjp<F, A>; }

  [[nodiscard]] Gradient by_attention() const {
    return attention_vjp<Normalization>(feature, transition(), {.Q = Q, .K = K, .V = V, .dY = dY, .options = options});
  }
  [[nodiscard]] Gradient by_chunks() const
    requires(has_chunks())
  {
    return chunked_vjp<Normalization>(feature, transition(), {.Q = Q, .K = K, .V = V, .dY = dY, .options = options});
  }

  /// Gradients along the directions.
  [[nodiscard]] GradientParts parts(const Gradient& g) const {
    const auto product = [](const Matrix<double>& delta, const Matrix<Scalar>& of) {
      return delta.cwiseProduct(of.template cast<double>()).sum();
    };
    return {product(delta_q_, g.Q), product(delta_k_, g.K), product(delta_v_, g.V), scale_step() * g.scale,
            moving.along(all(), g.transition)};
  }

  /// The slopes of Σ dY∘Y by central differences of the definition, and how far these may be off.
  struct Differences {
    GradientParts slope, error;
  };
  [[nodiscard]] Differences differences() const {
    // A loss is rounded as if all that it is made of were.
    const GradientBounds exact = bounds_in(unit_roundoff<double>);
    double rounding = 0;
    for (Index i = 0; i < Q.cols(); ++i) rounding += static_cast<double>(exact.Q(0, i)) * length(Q, i);
    for (Index j = 0; j < K.cols(); ++j)
      rounding += static_cast<double>(exact.K(0, j)) * length(K, j) +
                  static_cast<double>(exact.V(0, j)) * static_cast<double>(V.col(j).template lpNorm<1>());
    Differences result;
    for (std::size_t part = 0; part < gradient_names.size(); ++part) {
      const CentralSlope slope = central_slope(
          [&](double h) -> Eigen::ArrayXd { return Eigen::ArrayXd::Constant(1, loss(part, h)); }, difference_step);
      result.slope[part] = slope.value[0];
      result.error[part] = slope.truncation[0] + CentralSlope::noise / difference_step * rounding;
    }
    return result;
  }

  /// Bounds of the gradient row rule along the directions.
  [[nodiscard]] const GradientParts& bounds() const { return of_parts_; }
  /// The worst of two calls' gradients in the arguments by the gradient row rule, and of the parameters' along δ.
  [[nodiscard]] Residual apart(const std::string& of, const Gradient& a, double along_a, const Gradient& b,
                               double along_b) const {
    const auto wide = [](const Gradient& g) {
      GradientReference x;
      x.Q = g.Q.template cast<Wide>(), x.K = g.K.template cast<Wide>(), x.V = g.V.template cast<Wide>();
      x.scale = g.scale;
      x.log_gamma = Vector<Wide>::Zero(0);
      return x;
    };
    GradientBounds bounds = bounds_;
    bounds.log_gamma.resize(0);
    Residual found = worse(worst_gradient(wide(a), wide(b), bounds),
                           {ratio_of(along_a, along_b, of_parts_.back()), 1, gradient_names.back()});
    found.form = of + (found.form.empty() ? "" : ", ") + found.form;
    return found;
  }

 private:
  [[nodiscard]] Index tokens() const { return std::max(K.cols(), Q.cols() + options.mask.offset); }
  [[nodiscard]] double scale_step() const { return options.scale == 0 ? 1 : std::abs(options.scale); }
  [[nodiscard]] static double length(const Matrix<Scalar>& X, Index t) { return static_cast<double>(X.col(t).norm()); }

  [[nodiscard]] double loss(std::size_t part, double h) const {
    const auto moved = [&](std::size_t number, const Matrix<Scalar>& X, const Matrix<double>& delta) {
      Matrix<double> x = X.template cast<double>();
      if (part == number) x += h * delta;
      return x;
    };
    Options here;
    here.mask = options.mask;
    here.scale = options.scale + (part == 3 ? h * scale_step() : 0);
    const auto rows = direct_attention<Normalization>(feature, transition(part == 4 ? h : 0), moved(0, Q, delta_q_),
                                                      moved(1, K, delta_k_), moved(2, V, delta_v_), here);
    return rows.Y.cwiseProduct(dY.template cast<double>()).sum();
  }

  [[nodiscard]] GradientBounds bounds_in(double unit) const {
    return gradient_bounds(call_, {.unit_roundoff = unit, .tokens_per_update = 1, .largest_angle = angle_});
  }
  void set_bounds() {
    const A here = transition();
    call_ = gradient_call<Normalization>(feature, here, Q, K, V, dY, options);
    if constexpr (F::score == Score::embedded)
      if (!call_.feature.evaluate) call_.feature = numerical_feature(feature, Q.rows());
    if constexpr (A::key_action == KeyAction::turn)  // a turn by x is 2 |sin x/2| from none
      for (const Matrix<Wide>& step : call_.steps)
        angle_ += 1.6 * static_cast<double>((step - Matrix<Wide>::Identity(step.rows(), step.cols())).norm());
    call_ = without_degenerate_rows(std::move(call_), {.unit_roundoff = unit_roundoff<Scalar>});
    dY = call_.dY.template cast<Scalar>();
    bounds_ = bounds_in(unit_roundoff<Scalar>);
    const auto product = [](const Matrix<double>& delta, const Matrix<Wide>& bound) {
      return delta.cwiseAbs().cwiseProduct(bound.template cast<double>()).sum();
    };
    of_parts_ = {product(delta_q_, bounds_.Q), product(delta_k_, bounds_.K), product(delta_v_, bounds_.V),
                 scale_step() * static_cast<double>(bounds_.scale), parameter_bound()};
  }
  // Σ_t of how fast A_t moves, times the levers of the pairs on both sides of it; a turn may be known by where it has
  // come to, and is bounded by the levers of all pairs of its token as well.
  [[nodiscard]] double parameter_bound() const {
    constexpr double h = difference_step;
    const A ahead = transition(h), behind = transition(-h), here = transition();
    const Index d = Q.rows();
    double sum = 0;
    Matrix<double> product_ahead = Matrix<double>::Identity(d, d), product_behind = product_ahead;
    for (Index t = 0; t < call_.tokens(); ++t) {
      if (const double rate = std::abs(ahead.log_decay(t) - behind.log_decay(t)) / (2 * h); rate > 0)
        sum += rate * static_cast<double>(bounds_.log_gamma[t]);
      if constexpr (A::key_action != KeyAction::none) {
        const Matrix<double> a = ahead.key_matrix(t, d), b = behind.key_matrix(t, d), rate = (a - b) / (2 * h);
        double fastest = rate.norm();
        if constexpr (A::key_action == KeyAction::scale) {  // beside what the slowest channel leaves
          const Vector<double> scale = here.key_matrix(t, d).diagonal();
          for (Index c = 0; c < d; ++c)
            if (scale[c] > 0) fastest = std::max(fastest, std::abs(rate(c, c)) / scale[c]);
        }
        sum += fastest * static_cast<double>(bounds_.step_levers[t]);
        if constexpr (A::key_action == KeyAction::turn) {
          product_ahead = (product_ahead * a).eval(), product_behind = (product_behind * b).eval();
          sum += (product_ahead - product_behind).norm() / (2 * h) * static_cast<double>(bounds_.own_levers[t]);
        }
      }
    }
    return sum;
  }

  GradientCall call_;
  double angle_ = 0;
  Matrix<double> delta_q_, delta_k_, delta_v_;
  GradientBounds bounds_;
  GradientParts of_parts_{};
};

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE::verify
