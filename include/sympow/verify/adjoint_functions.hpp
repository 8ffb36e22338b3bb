// The functions of the way back, one by one: what a feature map and a transition say of gradients, beside derivatives
// that nobody has written down.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <sympow/core/random.hpp>
#include <sympow/transition/segment_vjp.hpp>
#include <sympow/verify/gradient_call.hpp>
#include <sympow/verify/proposition.hpp>

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// Steps of central differences, relative to what is moved.
inline constexpr double difference_step = 0x1p-10;

/// f'(0) of every entry of f, and how far it may be off if f has two derivatives, or one and a kink of the second.
struct CentralSlope {
  Eigen::ArrayXd value, truncation;
  /// What roundings of f by ρ make of it, in units of ρ/h.
  static constexpr double noise = 6;
};

/// From f(±h), f(±h/2), f(±h/4): two slopes whose error of h² is taken out; the finer one, and how far it is from the
/// other and from the finest difference.
template <class Function>
[[nodiscard]] CentralSlope central_slope(const Function& f, double h) {
  const auto difference = [&](double by) -> Eigen::ArrayXd { return (f(by) - f(-by)) / (2 * by); };
  const Eigen::ArrayXd middle = difference(h / 2), finest = difference(h / 4), first = (4 * middle - difference(h)) / 3,
                       second = (4 * finest - middle) / 3;
  return {second, (second - first).abs() + (second - finest).abs()};
}

/// |found - expected| / bound, 0 where nothing differs; infinite for what is no number.
[[nodiscard]] inline double ratio_of(double found, double expected, double bound) {
  const double apart = std::abs(found - expected), ratio = apart == 0 ? 0 : apart / bound;
  return ratio >= 0 ? ratio : std::numeric_limits<double>::infinity();
}

/// Dφ(x), D × d, by central differences, and how far its entries may be off.
struct NumericalJacobian {
  Vector<double> phi;
  Matrix<double> values, error;
};
template <FiniteFeatureMap F>
[[nodiscard]] NumericalJacobian numerical_jacobian(const F& feature, const Vector<double>& x) {
  const Index d = x.size(), D = feature.dimension(d);
  const double length = x.norm() > 0 ? x.norm() : 1, h = difference_step * length;
  const auto embedded = [&](const Matrix<double>& column) {
    Matrix<double> y(D, 1);
    feature.embed(column, y);
    return y;
  };
  NumericalJacobian result{embedded(x), Matrix<double>(D, d), Matrix<double>(D, d)};
  for (Index c = 0; c < d; ++c) {
    const CentralSlope slope = central_slope(
        [&](double by) -> Eigen::ArrayXd {
          Matrix<double> moved = x;
          moved(c, 0) += by;
          return embedded(moved).col(0).array();
        },
        h);
    result.values.col(c) = slope.value, result.error.col(c) = slope.truncation;
  }
  // An entry is rounded by its own size, and by what x moves it, with every term of a sum over x.
  for (Index r = 0; r < D; ++r)
    result.error.row(r).array() += CentralSlope::noise / h * static_cast<double>(8 + d) * unit_roundoff<double> *
                                   (std::abs(result.phi[r]) + length * result.values.row(r).norm());
  return result;
}

/// A map of one's own for `GradientCall`, its Jacobian by differences: good enough for bounds.
template <FiniteFeatureMap F>
[[nodiscard]] DenseFeature numerical_feature(const F& feature, Index d) {
  return {feature.dimension(d), 0, [&feature](const Vector<Wide>& x, Vector<Wide>& phi, Matrix<Wide>& jacobian) {
            const NumericalJacobian at = numerical_jacobian(feature, x.template cast<double>());
            phi = at.phi.template cast<Wide>(), jacobian = at.values.template cast<Wide>();
          }};
}

/// The way back of the vectors of one segment. J is linear: ⟨J δ, dy⟩ = ⟨δ, Jᵀ dy⟩ with J δ by the way there. At each
/// of n steps an entry is rounded by d products and the four of an entry of A, and so on the way back.
template <class Scalar, class A>
[[nodiscard]] Residual residual_of_segment_vjp(const A& transition, Index tokens, Segment s, Index d,
                                               bool is_absolute) {
  using X = Matrix<Scalar>;
  const Index n = s.size;
  const sympow::detail::ViewOf<Scalar, A> there(transition);
  auto gradient = transition.zero_gradient(tokens);
  sympow::detail::VjpViewOf<Scalar, A> back(transition, gradient);
  Random random(3);
  const auto draw = [&](Index rows) -> X { return random.matrix<Scalar>(rows, n); };
  const auto length = [](const X& x) { return static_cast<double>(x.norm()); };
  const auto inner = [](const X& a, const X& b) {
    return a.template cast<double>().cwiseProduct(b.template cast<double>()).sum();
  };
  Residual found{0, 1};
  const auto compare = [&](const char* name, const X& delta, const X& moved, const X& dy, const X& dx, double more = 0,
                           double size_of_more = 0) {  // `more` beside moved·dy
    const double roundings = 2 * static_cast<double>((n + 1) * (d + 4)) * unit_roundoff<Scalar>;
    const double size = std::max(length(moved), length(delta)) * length(dy) + length(delta) * length(dx) + size_of_more;
    found = worse(found, {ratio_of(inner(delta, dx), inner(moved, dy) + more, roundings * size), 1, name, s.begin});
  };

  // apply_to_queries(δ)·dY = δ·apply_to_queries_vjp(dY)
  X before = draw(d);
  const X delta = draw(d), dY = draw(d);
  X pulled = delta, d_pulled = dY;
  there.apply_to_queries(s, pulled);
  back.apply_to_queries_vjp(s, before, d_pulled, 1);
  compare("apply_to_queries_vjp", delta, pulled, dY, d_pulled);

  // q̃(δ)·dQ̃ + X(δ, K)·dX = δ·dQ, and the same of keys; without logits where scores are of features
  const X Q = draw(d), K = draw(d), delta_q = draw(d), delta_k = draw(d), dQ = draw(d), dK = draw(d);
  X dX = draw(n), queries = Q, keys = K, d_queries = dQ, d_keys = dK;
  if (is_absolute) dX.setZero();
  X d_logits = dX;
  for (Index i = 0; i < n; ++i) {
    dX.col(i).tail(n - i - 1).setZero();
    d_logits.col(i).tail(n - i - 1).setConstant(std::numeric_limits<Scalar>::quiet_NaN());  // whatever stands there
  }
  const auto move = [&](X& q, X& k) {
    X logits = X::Zero(n, n);
    Frame frame;
    there.to_segment_frame(frame, s, q, k, logits);
    return inner(logits, dX);
  };
  X q = Q, k = K, q_of_delta = delta_q, k_of_delta = delta_k, other_q = Q, other_k = K;
  move(q, k);
  const double of_q = move(q_of_delta, other_k), of_k = move(other_q, k_of_delta);
  Vector<double> through = Vector<double>::Zero(back.planes().count);
  SegmentVjp<Scalar> vjp{.moved_queries = q,
                         .moved_keys = k,
                         .d_queries = d_queries,
                         .d_keys = d_keys,
                         .d_logits = is_absolute ? no_logits<Scalar>() : Batch<Scalar>(d_logits),
                         .queries = queries,
                         .keys = keys,
                         .through = through.size() > 0 ? through.data() : nullptr,
                         .is_absolute = is_absolute};
  Frame frame;
  back.to_segment_frame_vjp(frame, s, vjp);
  compare("to_segment_frame_vjp of queries", delta_q, q_of_delta, dQ, d_queries, of_q,
          length(dX) * length(delta_q) * length(K));
  compare("to_segment_frame_vjp of keys", delta_k, k_of_delta, dK, d_keys, of_k,
          length(dX) * length(delta_k) * length(Q));
  return found;
}

}  // namespace detail

/// What a feature map says of gradients, at columns of X, d × n, in double:
///
///     embed_vjp      dx = Dφ(x)ᵀ dy       kappa_slope    κ'(s)
///
/// each against central differences, where it has them; φ and κ need a continuous derivative near X. In units of what
/// the differences may be off, by their roundings and by how far they are from those of half the step; bound 1.
template <FeatureMap F>
[[nodiscard]] Residual feature_vjp_residual([[maybe_unused]] const F& feature,
                                            [[maybe_unused]] const Matrix<double>& X) {
  Residual found{0, 1};
  if constexpr (F::score == Score::embedded && FeatureMapWithVjp<F>) {
    const Index D = feature.dimension(X.rows());
    const Matrix<double> dy = Random(2).matrix(D, X.cols());
    Matrix<double> y(D, X.cols()), dx(X.rows(), X.cols());
    feature.embed(X, y);
    feature.embed_vjp(X, std::as_const(y), dy, dx);
    for (Index t = 0; t < X.cols(); ++t) {
      const detail::NumericalJacobian at = detail::numerical_jacobian(feature, X.col(t));
      const Vector<double> expected = at.values.transpose() * dy.col(t),
                           bound = at.error.transpose() * dy.col(t).cwiseAbs();
      for (Index c = 0; c < X.rows(); ++c)
        found = worse(found, {detail::ratio_of(dx(c, t), expected[c], bound[c]), 1, "embed_vjp", t});
    }
  }
  if constexpr (KernelWithSlope<F>)
    for (Index t = 0; t < X.cols(); ++t) {
      const double s = X.col(t).dot(X.col(0)), size = s == 0 ? 1 : std::abs(s), h = detail::difference_step * size;
      const detail::CentralSlope slope = detail::central_slope(
          [&](double by) -> Eigen::ArrayXd {
            return Eigen::ArrayXd::Constant(1, static_cast<double>(feature.kappa(s + by)));
          },
          h);
      const double kappa = std::abs(static_cast<double>(feature.kappa(s))),
                   rounding = 8 * unit_roundoff<double> * (kappa + size * std::abs(slope.value[0])),
                   bound = slope.truncation[0] + detail::CentralSlope::noise / h * rounding;
      found = worse(found, {detail::ratio_of(static_cast<double>(feature.kappa_slope(s)), slope.value[0], bound), 1,
                            "kappa_slope", t});
    }
  return found;
}

/// What a transition says of gradients of vectors, the transposes of what it does to them:
///
///     apply_to_queries_vjp        dX = (A_a … A_b)ᵀ dY
///     to_segment_frame_vjp   dQ, dK from dQ̃, dK̂ and dX, which is what the logits are asked for, and NaN for j > i
///
/// `to_segment_frame` and `apply_to_queries` are linear in what they move, so no difference is needed. Two segments
/// are taken, of the first 16 tokens or fewer. If `is_absolute` as embedded scores have it, without logits. In units
/// of u (d + 4) a token and of the largest length on the way; bound 1.
template <class Scalar, Transition A>
[[nodiscard]] Residual transition_vjp_residual(const A& transition, Index tokens, Index d, bool is_absolute = false) {
  const Index n = std::min<Index>(tokens, 16), half = n / 2;
  Residual found{0, 1};
  for (const Segment s : {Segment{0, half}, Segment{half, n - half}})
    if (s.size > 0)
      found = worse(found, detail::residual_of_segment_vjp<Scalar>(transition, tokens, s, d, is_absolute));
  return found;
}

}  // namespace SYMPOW_NAMESPACE::verify
