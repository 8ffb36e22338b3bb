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

/// embed_vjp of every column of X against Dφᵀ by differences.
template <FeatureMapWithVjp F>
[[nodiscard]] Residual residual_of_embed_vjp(const F& feature, const Matrix<double>& X) {
  const Index d = X.rows(), n = X.cols(), D = feature.dimension(d);
  const Matrix<double> dy = Random(2).matrix(D, n);
  Matrix<double> y(D, n), dx(d, n);
  feature.embed(X, y);
  feature.embed_vjp(X, std::as_const(y), dy, dx);
  Residual found{0, 1, "embed_vjp"};
  for (Index t = 0; t < n; ++t) {
    const NumericalJacobian at = numerical_jacobian(feature, X.col(t));
    const Vector<double> expected = at.values.transpose() * dy.col(t),
                         bound = at.error.transpose() * dy.col(t).cwiseAbs();
    for (Index c = 0; c < d; ++c) found = worse(found, {ratio_of(dx(c, t), expected[c], bound[c]), 1, "embed_vjp", t});
  }
  return found;
}

/// κ' at the inner products of columns of X against differences of κ.
template <KernelWithSlope F>
[[nodiscard]] Residual residual_of_kappa_slope(const F& feature, const Matrix<double>& X) {
  Residual found{0, 1, "kappa_slope"};
  for (Index t = 0; t < X.cols(); ++t) {
    const double s = X.col(t).dot(X.col(0)), size = s == 0 ? 1 : std::abs(s), h = difference_step * size;
    const auto kappa = [&](double by) { return static_cast<double>(feature.kappa(s + by)); };
    const CentralSlope slope =
        central_slope([&](double by) -> Eigen::ArrayXd { return Eigen::ArrayXd::Constant(1, kappa(by)); }, h);
    const double rounding = 8 * unit_roundoff<double> * (std::abs(kappa(0)) + size * std::abs(slope.value[0]));
    const double bound = slope.truncation[0] + CentralSlope::noise / h * rounding;
    found = worse(found,
                  {ratio_of(static_cast<double>(feature.kappa_slope(s)), slope.value[0], bound), 1, "kappa_slope", t});
  }
  return found;
}

/// The way back of the vectors of one segment. J is linear: ⟨J δ, dy⟩ = ⟨δ, Jᵀ dy⟩ with J δ by the way there.
template <class Scalar, class A>
class SegmentAdjoints {
 public:
  SegmentAdjoints(const A& transition, Index tokens, Segment s, Index d)
      : there_(transition),
        gradient_(transition.zero_gradient(tokens)),
        back_(transition, gradient_),
        s_(s),
        n_(s.size),
        d_(d) {}

  /// apply_to_queries(δ)·dY = δ·apply_to_queries_vjp(dY).
  [[nodiscard]] Residual pulled() {
    const Matrix<Scalar> X = draw(d_, n_), delta = draw(d_, n_), dY = draw(d_, n_);
    Matrix<Scalar> moved = delta, before = X, dX = dY;
    there_.apply_to_queries(s_, moved);
    back_.apply_to_queries_vjp(s_, before, dX, 1);
    return compare("apply_to_queries_vjp", delta, moved, dY, dX);
  }
  /// q̃(δ)·dQ̃ + X(δ, K)·dX = δ·dQ, and the same of keys; without logits where scores are of features.
  [[nodiscard]] Residual transported(bool is_absolute) {
    const Matrix<Scalar> Q = draw(d_, n_), K = draw(d_, n_), delta_q = draw(d_, n_), delta_k = draw(d_, n_),
                         dQ = draw(d_, n_), dK = draw(d_, n_);
    Matrix<Scalar> dX = draw(n_, n_);
    if (is_absolute) dX.setZero();
    for (Index i = 0; i < n_; ++i) dX.col(i).tail(n_ - i - 1).setZero();
    const Moved of_q = move(delta_q, K), of_k = move(Q, delta_k);
    Moved x = move(Q, K);
    Matrix<Scalar> queries = Q, keys = K, d_queries = dQ, d_keys = dK, d_logits = dX;
    for (Index i = 0; i < n_; ++i)  // which may be anything there
      d_logits.col(i).tail(n_ - i - 1).setConstant(std::numeric_limits<Scalar>::quiet_NaN());
    Vector<double> through = Vector<double>::Zero(back_.planes().count);
    SegmentVjp<Scalar> back{.moved_queries = x.Q,
                            .moved_keys = x.K,
                            .d_queries = d_queries,
                            .d_keys = d_keys,
                            .d_logits = is_absolute ? no_logits<Scalar>() : Batch<Scalar>(d_logits),
                            .queries = queries,
                            .keys = keys,
                            .through = through.size() > 0 ? through.data() : nullptr,
                            .is_absolute = is_absolute};
    Frame frame;
    back_.to_segment_frame_vjp(frame, s_, back);
    const auto logits = [&](const Matrix<Scalar>& X) { return inner(X, dX); };
    const auto size = [&](const Matrix<Scalar>& delta, const Matrix<Scalar>& other) {
      return length(dX) * length(delta) * length(other);
    };
    return worse(
        compare("to_segment_frame_vjp of queries", delta_q, of_q.Q, dQ, d_queries, logits(of_q.X), size(delta_q, K)),
        compare("to_segment_frame_vjp of keys", delta_k, of_k.K, dK, d_keys, logits(of_k.X), size(delta_k, Q)));
  }

 private:
  struct Moved {
    Matrix<Scalar> Q, K, X;
  };
  [[nodiscard]] Moved move(Matrix<Scalar> Q, Matrix<Scalar> K) const {
    Matrix<Scalar> X = Matrix<Scalar>::Zero(n_, n_);
    Frame frame;
    there_.to_segment_frame(frame, s_, Q, K, X);
    return {std::move(Q), std::move(K), std::move(X)};
  }
  [[nodiscard]] Matrix<Scalar> draw(Index rows, Index columns) { return random_.matrix<Scalar>(rows, columns); }
  static double length(const Matrix<Scalar>& x) { return static_cast<double>(x.norm()); }
  static double inner(const Matrix<Scalar>& a, const Matrix<Scalar>& b) {
    return a.template cast<double>().cwiseProduct(b.template cast<double>()).sum();
  }

  // `more` and its size beside moved·dy. At each of n steps an entry is rounded by d products and the four of an entry
  // of A, and so on the way back.
  [[nodiscard]] Residual compare(const char* name, const Matrix<Scalar>& delta, const Matrix<Scalar>& moved,
                                 const Matrix<Scalar>& dy, const Matrix<Scalar>& dx, double more = 0,
                                 double size_of_more = 0) const {
    const double roundings = 2 * static_cast<double>((n_ + 1) * (d_ + 4)) * unit_roundoff<Scalar>;
    const double size = std::max(length(moved), length(delta)) * length(dy) + length(delta) * length(dx) + size_of_more;
    return {ratio_of(inner(delta, dx), inner(moved, dy) + more, roundings * size), 1, name, s_.begin};
  }

  sympow::detail::ViewOf<Scalar, A> there_;
  typename A::Gradient gradient_;
  sympow::detail::VjpViewOf<Scalar, A> back_;
  Segment s_;
  Index n_, d_;
  Random random_{3};
};

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
  if constexpr (F::score == Score::embedded && FeatureMapWithVjp<F>)
    found = worse(found, detail::residual_of_embed_vjp(feature, X));
  if constexpr (KernelWithSlope<F>) found = worse(found, detail::residual_of_kappa_slope(feature, X));
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
  for (const Segment s : {Segment{0, half}, Segment{half, n - half}}) {
    if (s.size == 0) continue;
    detail::SegmentAdjoints<Scalar, A> adjoints(transition, tokens, s, d);
    found = worse(worse(found, adjoints.pulled()), adjoints.transported(is_absolute));
  }
  return found;
}

}  // namespace SYMPOW_NAMESPACE::verify
