// Gradients of the library against those by definition, in units of the gradient row rule.
#pragma once

#include <sympow/sympow.hpp>

#include <sympow/attention/attention_vjp.hpp>
#include <sympow/attention/chunked_vjp.hpp>
#include <sympow/core/random.hpp>
#include <sympow/verify/gradient_row_rule.hpp>

namespace sympow::verify {

inline Matrix<Wide> as_row(const Eigen::VectorXd& x) { return x.transpose().cast<Wide>(); }
inline Matrix<Wide> as_row(const Vector<Wide>& x) { return x.transpose(); }
inline Matrix<Wide> as_one(Wide x) { return Matrix<Wide>::Constant(1, 1, x); }

/// What the gradients of parameters are compared with.
struct Expected {
  GradientCall call;
  GradientReference reference;
  GradientBounds bounds;
};

/// Parameters of all transitions for T tokens and d channels, with gates of some strength.
template <class Scalar>
struct Parameters {
  Parameters(Random& random, Index d, Index T, double gates)
      : log_gamma(-gates * random.vector(T).cwiseAbs()),
        beta(random.vector(T).array() * .5 + 1),
        theta(rotary_frequencies<double>(d, 50)),
        log_a((-gates * random.matrix(d, T).cwiseAbs()).template cast<Scalar>()),
        w(random.matrix(d, T).template cast<Scalar>()),
        strengths((random.vector(T).array().abs() * .5).min(2)) {
    w.colwise().normalize();
  }

  Eigen::VectorXd log_gamma, beta, theta;
  Matrix<Scalar> log_a, w;
  Eigen::VectorXd strengths;

  Residual rotary_residual(const Rotary::Gradient& g, const Expected& to) const {
    const Vector<Wide> rates = theta.cast<Wide>(), steps = beta.cast<Wide>();
    const auto expected = rotary_gradient(to.reference, rates, steps),
               bounds = rotary_bounds(to.bounds, to.call, rates, steps);
    return worse(worst_entry("d beta", as_row(g.beta), as_row(expected.beta), as_row(bounds.beta)),
                 worst_entry("d theta", as_row(g.theta), as_row(expected.theta), as_row(bounds.theta)));
  }
  Residual channel_residual(const typename ChannelDecay<Scalar>::Gradient& g, const Expected& to) const {
    return worst_entry("d log a", g.log_a.template cast<Wide>(), channel_gradient(to.reference, to.call),
                       channel_bounds(to.bounds, to.call.Q.rows()));
  }
  Residual householder_residual(const typename Householder<Scalar>::Gradient& g, const Expected& to) const {
    const Matrix<Wide> vectors = w.template cast<Wide>();
    const Vector<Wide> sizes = strengths.cast<Wide>();
    const auto expected = householder_gradient(to.reference, vectors, sizes),
               bounds = householder_bounds(to.bounds, vectors, sizes);
    return worse(worst_entry("dw", g.w.template cast<Wide>(), expected.w, bounds.w),
                 worst_entry("d beta", as_row(g.beta), as_row(expected.beta), as_row(bounds.beta)));
  }
  static Residual decay_residual(const Decay::Gradient& g, const Expected& to) {
    return worst_entry("d log gamma", as_row(g.log_gamma), as_row(to.reference.log_gamma), as_row(to.bounds.log_gamma));
  }
  static Residual none(const Stationary::Gradient&, const Expected&) { return {0, 1}; }
};

/// The gradients that every call has.
template <class Scalar, class A>
Residual common_residual(const Gradients<Scalar, A>& g, const Expected& to) {
  GradientReference found = to.reference;
  found.Q = g.Q.template cast<Wide>();
  found.K = g.K.template cast<Wide>();
  found.V = g.V.template cast<Wide>();
  found.scale = g.scale;
  return worst_gradient(found, to.reference, to.bounds);
}

template <class Scalar>
GradientArithmetic arithmetic_of(Index tokens_per_update = 0, double largest_angle = 0) {
  GradientArithmetic result{static_cast<double>(std::numeric_limits<Scalar>::epsilon()) / 2};
  if (tokens_per_update > 0) result.tokens_per_update = static_cast<double>(tokens_per_update);
  result.largest_angle = largest_angle;
  return result;
}

}  // namespace sympow::verify
