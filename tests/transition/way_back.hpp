// A segment there and back: the gradients of a random linear loss on all that `to_segment_frame` makes, against
// differences of that loss and between float and double.
#pragma once

#include "catch.hpp"
#include "random.hpp"

#include <sympow/transition/segment_vjp.hpp>

namespace sympow::test {

// What a family of transitions brings:
//
//     Eigen::VectorXd parameters;                                     of one member
//     auto build(const VectorXd& p) const;                            a member; p is near `parameters`
//     VectorXd flat(const Gradient& g) const;                         its gradient in the order of p
//     double passing(const VectorXd& p, Segment, const VectorXd& through, const MatrixXd& state,
//                    const MatrixXd& adjoint) const;                  a loss on the whole segment: of this `through` is
//                                                                     the gradient, or it is of the two states
//     VectorXd weights(const VectorXd& W, const VectorXd& E) const;   sums of |∂f/∂p|, from W_t = Σ |f| through t and
//                                                                     E_t = Σ |f| of the query and the key of t

/// What a segment is given, the gradients of what it makes, and the way back.
template <class S>
struct WayBack {
  Segment segment;
  Matrix<S> Q, K, dX, dQ, dK, state, adjoint;
  Eigen::VectorXd angles, through;

  template <class Other>
  WayBack<Other> cast() const {
    return {segment,
            Q.template cast<Other>(),
            K.template cast<Other>(),
            dX.template cast<Other>(),
            dQ.template cast<Other>(),
            dK.template cast<Other>(),
            state.template cast<Other>(),
            adjoint.template cast<Other>(),
            angles,
            through};
  }

  [[nodiscard]] Frame frame() const { return angles.size() == 0 ? Frame{} : Frame{Frame::angles, angles}; }

  /// dQ, dK, through and g are set to the gradients of the loss.
  template <class A>
  typename A::Gradient run(const A& transition, Index tokens, bool is_absolute = false, double unit = 1) {
    auto g = transition.zero_gradient(tokens);
    Frame there = frame(), back = frame();
    Matrix<S> queries = Q, keys = K, logits(segment.size, segment.size);
    transition.template to_segment_frame<S>(there, segment, queries, keys, logits);
    Matrix<S> d_logits = dX;
    for (Index i = 0; i < segment.size; ++i)
      d_logits.col(i).tail(segment.size - i - 1).setConstant(std::numeric_limits<S>::quiet_NaN());
    SegmentVjp<S> x{.moved_queries = queries,
                    .moved_keys = keys,
                    .d_queries = dQ,
                    .d_keys = dK,
                    .d_logits = is_absolute ? no_logits<S>() : Batch<S>(d_logits),
                    .queries = Q,
                    .keys = K,
                    .state = state,
                    .adjoint = adjoint,
                    .through = through.size() == 0 ? nullptr : through.data(),
                    .unit = unit,
                    .is_absolute = is_absolute};
    detail::VjpViewOf<S, A> view(transition, g);
    view.to_segment_frame_vjp(back, segment, x);
    REQUIRE(back == there);
    return g;
  }
};

inline WayBack<double> random_way(Random& random, Index d, Segment segment, Index planes, Index through, Index e) {
  const Index n = segment.size;
  WayBack<double> way{segment,
                      random.matrix(d, n),
                      random.matrix(d, n),
                      random.matrix(n, n),
                      random.matrix(d, n),
                      random.matrix(d, n),
                      random.matrix(e, e == 0 ? 0 : d),
                      random.matrix(e, e == 0 ? 0 : d),
                      random.vector(planes),
                      random.vector(through)};
  way.dX.triangularView<Eigen::StrictlyLower>().setZero();
  return way.cast<float>().cast<double>();
}

/// dL/dh at h = 0 by central differences, their error of h² taken out.
template <class L>
double slope(L&& loss, double h) {
  const auto difference = [&](double by) { return (loss(by) - loss(-by)) / (2 * by); };
  return (4 * difference(h / 2) - difference(h)) / 3;
}

/// Directions to try: every axis of a small space, else some random ones of length at most 1 in every entry.
inline std::vector<Eigen::VectorXd> directions(Random& random, Index size) {
  std::vector<Eigen::VectorXd> all;
  for (Index k = 0; k < (size <= 40 ? size : 6); ++k)
    all.push_back(size <= 40 ? Eigen::VectorXd(Eigen::VectorXd::Unit(size, k))
                             : Eigen::VectorXd(random.vector(size).array().tanh()));
  return all;
}

/// Checks dL/dx · δ = dL/dh of x + h δ. With M the sum of the absolute values of the loss's terms, which any of T
/// tokens may change by a factor 1 + h, and h = 10^-3/T: differences lose 16 T u M / h of it to rounding, and
/// 2 (T h)^4 T M to higher orders.
template <class L>
void check_slopes(const char* of, Random& random, const Eigen::VectorXd& gradient, Index T, double M, L&& loss) {
  const double tokens = static_cast<double>(std::max<Index>(T, 2)), h = 1e-3 / tokens,
               u = std::numeric_limits<double>::epsilon() / 2, bound = (16 * tokens * u / h + 2e-12 * tokens) * M;
  for (const Eigen::VectorXd& delta : directions(random, gradient.size())) {
    const double expected = slope([&](double by) { return loss(by * delta); }, h), found = gradient.dot(delta);
    CAPTURE(of, T, expected, found, bound);
    REQUIRE(std::abs(found - expected) <= bound);
  }
}

inline Eigen::VectorXd flat(const Eigen::MatrixXd& X) { return X.reshaped(); }
inline Eigen::MatrixXd moved(const Eigen::MatrixXd& X, const Eigen::VectorXd& by) {
  return X + by.reshaped(X.rows(), X.cols());
}

/// The way back through one segment, of which the family has the tokens.
template <class Family>
void check_way_back(const Family& family, WayBack<double> way, Random& random, bool is_absolute = false) {
  const Segment s = way.segment;
  const Index n = s.size, tokens = s.end() + 2;
  const Eigen::VectorXd& p = family.parameters;
  if (is_absolute) way.dX.setZero();
  const auto loss = [&](const Eigen::VectorXd& by, const Eigen::MatrixXd& Q0, const Eigen::MatrixXd& K0) {
    const auto transition = family.build(by);
    Eigen::MatrixXd Q = Q0, K = K0, X = Eigen::MatrixXd::Zero(n, n);
    Frame frame = way.frame();
    transition.template to_segment_frame<double>(frame, s, Q, K, X);
    double sum = family.passing(by, s, way.through, way.state, way.adjoint);
    for (Index i = 0; i < n; ++i) sum += X.col(i).head(i + 1).dot(way.dX.col(i).head(i + 1));
    return sum + Q.cwiseProduct(way.dQ).sum() + K.cwiseProduct(way.dK).sum();
  };
  const auto transition = family.build(p);
  auto back = way;
  const Eigen::VectorXd q = way.Q.colwise().norm(), k = way.K.colwise().norm();
  if constexpr (Family::gauged)  // keys in absolute coordinates: with what all of them turn
    if (!is_absolute) back.through += family.moment(way, transition);
  const Eigen::VectorXd through = back.through;
  const auto g = back.run(transition, tokens, is_absolute);
  // Pairs, and what passes the ends: the weights of the gradient row rule.
  Eigen::VectorXd W =
      Eigen::VectorXd::Constant(tokens, way.through.cwiseAbs().sum() + way.state.norm() * way.adjoint.norm());
  for (Index t = 0; t < n; ++t) {
    for (Index i = t; i < n; ++i) {
      W[s.begin + t] += q[i] * way.dQ.col(i).norm();
      for (Index j = 0; j < t; ++j) W[s.begin + t] += std::abs(way.dX(j, i)) * q[i] * k[j];
    }
    for (Index j = 0; j < (Family::gauged ? n : t); ++j) W[s.begin + t] += k[j] * way.dK.col(j).norm();
  }
  Eigen::VectorXd E = Eigen::VectorXd::Zero(tokens);
  for (Index t = 0; t < n; ++t)
    E[s.begin + t] = q[t] * (way.dX.col(t).cwiseAbs().dot(k) + way.dQ.col(t).norm()) +
                     k[t] * (way.dX.row(t).cwiseAbs().transpose().dot(q) + way.dK.col(t).norm());
  const double M = q.dot(way.dX.cwiseAbs().transpose() * k) + way.Q.norm() * way.dQ.norm() * 2 +
                   way.K.norm() * way.dK.norm() * 2 + W[tokens - 1];
  check_slopes("Q", random, flat(back.dQ), n, M,
               [&](const Eigen::VectorXd& by) { return loss(p, moved(way.Q, by), way.K); });
  check_slopes("K", random, flat(back.dK), n, M,
               [&](const Eigen::VectorXd& by) { return loss(p, way.Q, moved(way.K, by)); });
  const Eigen::VectorXd dp = family.flat(g), weights = family.weights(W, E);
  REQUIRE(dp.size() == p.size());
  REQUIRE(dp.allFinite());
  check_slopes("parameters", random, dp, n, family.steepness * M,
               [&](const Eigen::VectorXd& by) { return loss(p + by, way.Q, way.K); });
  // Floats by the gradient row rule.
  const double rule = 7 * (std::numeric_limits<float>::epsilon() / 2) * (1 + std::sqrt(static_cast<double>(n)));
  auto narrow = way.cast<float>();
  narrow.through = through;
  const auto narrow_member = family.template build<float>(p);
  const Eigen::VectorXd dp_narrow = family.flat(narrow.run(narrow_member, tokens, is_absolute));
  for (Index m = 0; m < p.size(); ++m) {
    CAPTURE(m, dp_narrow[m], dp[m], weights[m]);
    REQUIRE(std::abs(dp_narrow[m] - dp[m]) <= rule * weights[m]);
  }
  for (Index t = 0; t < n; ++t) {
    const double dq = way.dX.col(t).cwiseAbs().dot(k) + way.dQ.col(t).norm(),
                 dk = way.dX.row(t).cwiseAbs().transpose().dot(q) + way.dK.col(t).norm();
    CAPTURE(t);
    REQUIRE((narrow.dQ.col(t).template cast<double>() - back.dQ.col(t)).norm() <= rule * dq);
    REQUIRE((narrow.dK.col(t).template cast<double>() - back.dK.col(t)).norm() <= rule * dk);
  }
  // The unit is a factor.
  auto other = way;
  other.through = through;
  REQUIRE(family.flat(other.run(transition, tokens, is_absolute, .125)) == .125 * dp);
  REQUIRE(other.dQ == back.dQ);
}

/// The way back of queries of a later segment that were pulled through this one.
template <class Family>
void check_pull_back(const Family& family, Segment s, Index columns, Random& random) {
  const auto transition = family.build(family.parameters);
  const Index tokens = s.end() + 2, d = transition.key_dimension() == Dynamic ? 5 : transition.key_dimension();
  const Eigen::MatrixXd X = random.matrix(d, columns), dY = random.matrix(d, columns);
  const auto loss = [&](const Eigen::VectorXd& p, const Eigen::MatrixXd& X0) {
    Eigen::MatrixXd Y = X0;
    family.build(p).template apply_to_queries<double>(s, Y);
    return Y.cwiseProduct(dY).sum();
  };
  Eigen::MatrixXd before = X, dX = dY;
  auto g = transition.zero_gradient(tokens);
  using A = std::remove_const_t<decltype(transition)>;
  detail::VjpViewOf<double, A> view(transition, g);
  view.apply_to_queries_vjp(s, before, dX, .5);
  const double M = 4 * X.norm() * dY.norm();
  check_slopes("X", random, flat(dX), s.size, M,
               [&](const Eigen::VectorXd& by) { return loss(family.parameters, moved(X, by)); });
  check_slopes("parameters pulled through", random, 2 * family.flat(g), s.size, family.steepness * M,
               [&](const Eigen::VectorXd& by) { return loss(family.parameters + by, X); });
}

/// visit(whether t lies in (j, i], t, way, gradient) for every pair and token t of 12, of a loss in which the logit of
/// key j and query i is alone.
template <class Family, class Visit>
void each_pair(const Family& family, Random& random, Index d, Index planes, const Visit& visit) {
  constexpr Index n = 12;
  const auto transition = family.build(family.parameters);
  for (Index j = 0; j < n; ++j)
    for (Index i = j; i < n; ++i) {
      auto way = random_way(random, d, {0, n}, planes, Family::gauged ? planes : d, 0);
      for (auto* zero : {&way.dX, &way.dQ, &way.dK}) zero->setZero();
      way.through.setZero();
      way.dX(j, i) = 1;
      const auto g = way.run(transition, n);
      CAPTURE(j, i);
      for (Index t = 0; t < n; ++t) visit(j < t && t <= i, t, way, g);
    }
}

}  // namespace sympow::test
