// Gradients through decays that the digits of an adjoint state cannot show.
#include <cmath>
#include <limits>

#include "catch.hpp"

using namespace sympow;

namespace {

/// The first token alone has a key, the last one alone a query and a loss, so that
///
///     y = s^P v,   s = Σ_c q_c k_c e^{(T - 1) l_c} of the last row,   and all gradients are known.
template <class Scalar, int P>
struct OneKey {
  static constexpr Index T = 1 << 16, d = 2, chunk = 32;
  Matrix<Scalar> Q = Matrix<Scalar>::Zero(d, T), K = Q, V = Matrix<Scalar>::Zero(1, T), dY = V;

  OneKey() {
    K.col(0) << Scalar(.75), Scalar(.5);
    Q.col(T - 1) << Scalar(1), Scalar(.625);
    V(0, 0) = 1, dY(0, T - 1) = 1;
  }

  /// Checks gradients by a transition under which channel c keeps e^{log_a[c]} at each token.
  template <class Gradient>
  void check(const Gradient& g, const Eigen::Vector2d& log_a) const {
    const Eigen::Array2d kept = (static_cast<double>(T - 1) * log_a.array()).exp(),
                         q = Q.col(T - 1).template cast<double>(), k = K.col(0).template cast<double>();
    const double s = (q * k * kept).sum(), slope = P * std::pow(s, P - 1);
    // Some roundings in the type, and a rounding of Σ log a for every chunk.
    const double allowed =
        64. * std::numeric_limits<Scalar>::epsilon() - T / chunk * 0x1p-53 * static_cast<double>(T) * log_a.minCoeff();
    const auto near = [allowed](double found, double expected) {
      CAPTURE(found, expected);
      CHECK(std::abs(found / expected - 1) <= allowed);
    };
    near(static_cast<double>(g.V(0, 0)), std::pow(s, P));
    for (Index c = 0; c < d; ++c) {
      near(static_cast<double>(g.K(c, 0)), slope * q[c] * kept[c]);
      near(static_cast<double>(g.Q(c, T - 1)), slope * k[c] * kept[c]);
    }
  }
};

template <class Scalar, int P>
void check_slow_decays(double log_gamma) {
  CAPTURE(P, log_gamma);
  using Call = OneKey<Scalar, P>;
  const Call x;
  const SymmetricPower<P> feature;
  const Eigen::VectorXd gates = Eigen::VectorXd::Constant(Call::T, log_gamma / P);
  const auto by_gates = decay((P * gates).eval());
  {
    INFO("gates");
    x.check(chunked_vjp<Unnormalized>(feature, by_gates,
                                      {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.chunk = Call::chunk}}),
            {log_gamma / P, log_gamma / P});
  }
  {
    INFO("gates, a call for each half");
    const Index half = Call::T / 2;
    const auto of = [&](Index first, Index n, const State<Scalar, SymmetricPower<P>>& state, auto& d_state) {
      const auto columns = [&](const Matrix<Scalar>& all) { return all.middleCols(first, n).eval(); };
      const Matrix<Scalar> Q = columns(x.Q), K = columns(x.K), V = columns(x.V), dY = columns(x.dY);
      return chunked_vjp<Unnormalized>(
          feature, decay(P * gates.head(n).eval()),
          {.Q = Q, .K = K, .V = V, .dY = dY, .state = state, .d_state = d_state, .options = {.chunk = Call::chunk}});
    };
    State<Scalar, SymmetricPower<P>> state(Call::d, 1);
    Matrix<Scalar> Y(1, half);
    const auto before = state;
    chunked<Unnormalized>(feature, decay((P * gates.head(half)).eval()), x.Q.leftCols(half), x.K.leftCols(half),
                          x.V.leftCols(half), state, Batch<Scalar>(Y));
    StateGradient<Scalar, SymmetricPower<P>> d_state(Call::d, 1);
    auto last = of(half, half, state, d_state), all = of(0, half, before, d_state);
    Matrix<Scalar> d_queries = Matrix<Scalar>::Zero(Call::d, Call::T);
    d_queries.rightCols(half) = last.Q;
    all.Q = d_queries;
    x.check(all, {log_gamma / P, log_gamma / P});
  }
  {
    INFO("channels");
    const Eigen::Vector2d log_a(log_gamma / P, 3 * log_gamma / P);
    x.check(chunked_vjp<Unnormalized>(feature, channel_decay(log_a.replicate(1, Call::T).eval()),
                                      {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.chunk = Call::chunk}}),
            log_a);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("gradients follow decays that are too slow for the digits of a state", "[gradient]", float, double) {
  for (const double log_gamma : {-3e-9, -1e-7, -1e-5}) {
    check_slow_decays<TestType, 1>(log_gamma);
    check_slow_decays<TestType, 2>(log_gamma);
  }
}
