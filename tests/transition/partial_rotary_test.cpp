// Rotary positions of some channels are those of all channels with rates of 0 for the others, whose pairs are others.
#include <sympow/sympow.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using namespace sympow::test;
using Eigen::MatrixXd, Eigen::VectorXd;

namespace {

constexpr Index d = 6, turning = 4, T = 50, e = 3;

/// Channels in an order in which all of them are pairs of the same pairing: by halves (0, 3), (1, 4), (2, 5) in the
/// place of (0, 2), (1, 3) and (4, 5).
MatrixXd in_pairs(Pairing pairing, const MatrixXd& x) {
  if (pairing == Pairing::interleaved) return x;
  return x({0, 1, 4, 2, 3, 5}, Eigen::all);
}

/// φ_i(x) = 1 + x_i².
struct OnePlusSquares {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true, nonnegative_entries = true;
  [[nodiscard]] Index dimension(Index of) const { return of; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = x.array().square() + 1;
  }
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, const Y&, const DY& dy, DX&& dx) const {
    dx = 2 * x.array() * dy.array();
  }
};

struct Problem {
  Random random{5};
  MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T), dY = random.matrix(e, T);
  VectorXd theta = random.vector(turning / 2), beta = random.vector(T), log_gamma = -.05 * random.vector(T).cwiseAbs();
  VectorXd all_theta = VectorXd::Zero(d / 2);

  Problem() { all_theta.head(turning / 2) = theta; }
};

template <class Found, class Expected>
void check(const char* what, const Found& found, const Expected& expected) {
  CAPTURE(what);
  REQUIRE(found.rows() == expected.rows());
  CHECK((found - expected).cwiseAbs().maxCoeff() <= 1e-12 * (1 + expected.cwiseAbs().maxCoeff()));
}

template <class F>
void check_feature(const F& feature, Pairing pairing) {
  const Problem p;
  const auto some = decay(p.log_gamma) * rotary(p.theta, p.beta, pairing, d),
             all = decay(p.log_gamma) * rotary(p.all_theta, p.beta, pairing);
  const MatrixXd Q = in_pairs(pairing, p.Q), K = in_pairs(pairing, p.K);
  const MatrixXd expected = attention(feature, all, Q, K, p.V);
  check("attention", attention(feature, some, p.Q, p.K, p.V), expected);

  const auto compare = [&](const auto& g, const auto& whole) {
    check("dQ", in_pairs(pairing, g.Q), whole.Q);
    check("dK", in_pairs(pairing, g.K), whole.K);
    check("dV", g.V, whole.V);
    check("dtheta", g.template of<Rotary>().theta, whole.template of<Rotary>().theta.head(turning / 2).eval());
    check("dbeta", g.template of<Rotary>().beta, whole.template of<Rotary>().beta);
    check("dgates", g.template of<Decay>().log_gamma, whole.template of<Decay>().log_gamma);
  };
  const auto of_attention = attention_vjp(feature, all, {.Q = Q, .K = K, .V = p.V, .dY = p.dY});
  compare(attention_vjp(feature, some, {.Q = p.Q, .K = p.K, .V = p.V, .dY = p.dY}), of_attention);
  if constexpr (FiniteFeatureMap<F>) {
    check("chunked", chunked(feature, some, p.Q, p.K, p.V, {.chunk = 16}), expected);
    State<double, F> state(feature, d, e);
    check("recurrent", recurrent(feature, some, p.Q, p.K, p.V, state), expected);
    CHECK(state.frame().size() == turning / 2);
    compare(chunked_vjp(feature, some, {.Q = p.Q, .K = p.K, .V = p.V, .dY = p.dY, .options = {.chunk = 16}}),
            of_attention);
    // In two calls: what turns the state of the first has a gradient.
    State<double, F> half(feature, d, e);
    const auto of_half = [&](Index begin, Index n) {
      return decay(p.log_gamma.segment(begin, n)) * rotary(p.theta, p.beta.segment(begin, n), pairing, d);
    };
    absorb(feature, of_half(0, 30), p.K.leftCols(30), p.V.leftCols(30), half);
    StateGradient<double, F> d_state(feature, d, e);
    const auto second = chunked_vjp(feature, of_half(30, 20),
                                    {.Q = p.Q.rightCols(20),
                                     .K = p.K.rightCols(20),
                                     .V = p.V.rightCols(20),
                                     .dY = p.dY.rightCols(20),
                                     .state = half,
                                     .d_state = d_state});
    const auto first = chunked_vjp(feature, of_half(0, 30),
                                   {.Q = p.Q.leftCols(30),
                                    .K = p.K.leftCols(30),
                                    .V = p.V.leftCols(30),
                                    .dY = p.dY.leftCols(30),
                                    .d_state = d_state});
    const VectorXd d_theta = first.template of<Rotary>().theta + second.template of<Rotary>().theta;
    check("dtheta of two calls", d_theta, of_attention.template of<Rotary>().theta.head(turning / 2).eval());
  }
}

}  // namespace

TEST_CASE("rotary positions of the first channels leave the others, in every form and its gradients", "[transition]") {
  const Pairing pairing = GENERATE(Pairing::interleaved, Pairing::half_split);
  CAPTURE(pairing == Pairing::half_split);
  check_feature(SymmetricPower<2>{}, pairing);
  check_feature(SymmetricPower<3>{}, pairing);
  check_feature(Linear{}, pairing);
  check_feature(OnePlusSquares{}, pairing);
  check_feature(Exponential{}, pairing);
}

TEST_CASE("rotary positions of more channels than there are", "[transition]") {
  REQUIRE_THROWS_WITH(rotary(VectorXd::Ones(3), Pairing::interleaved, 5), contains("d is 5, must be at least 6"));
  const MatrixXd x = MatrixXd::Ones(6, 4);
  REQUIRE_THROWS_AS(attention(Linear{}, rotary(VectorXd::Ones(2), Pairing::interleaved, 8), x, x, x), ShapeMismatch);
}

TEST_CASE("rotary positions of several axes are the structured ones whose coordinates they add up to", "[transition]") {
  const Pairing pairing = GENERATE(Pairing::interleaved, Pairing::half_split);
  CAPTURE(pairing == Pairing::half_split);
  Problem p;
  const MatrixXd theta = p.random.matrix(3, d / 2), beta = p.random.matrix(3, T);
  MatrixXd positions = beta;
  for (Index t = 1; t < T; ++t) positions.col(t) += positions.col(t - 1);
  const auto in_neighbours = [&](const MatrixXd& x) -> MatrixXd {
    return pairing == Pairing::interleaved ? x : x({0, 3, 1, 4, 2, 5}, Eigen::all);
  };
  const MatrixXd Q = in_neighbours(p.Q), K = in_neighbours(p.K);
  const auto axes = rotary(theta, beta, pairing);
  const auto structured = structured_rotary(CommutingGenerators<double>::from_frequencies(theta), positions);
  const SymmetricPower<2> feature;
  const MatrixXd expected = attention(feature, structured, Q, K, p.V);
  check("attention", attention(feature, axes, p.Q, p.K, p.V), expected);
  check("chunked", chunked(feature, axes, p.Q, p.K, p.V, {.chunk = 16}), expected);
  State<double, SymmetricPower<2>> state(feature, d, e);
  check("recurrent", recurrent(feature, axes, p.Q, p.K, p.V, state), expected);

  const auto whole = attention_vjp(feature, structured, {.Q = Q, .K = K, .V = p.V, .dY = p.dY});
  MatrixXd d_beta = whole.of<StructuredRotary<double>>().positions;
  for (Index t = T - 1; t > 0; --t) d_beta.col(t - 1) += d_beta.col(t);
  const MatrixXd d_theta = whole.of<StructuredRotary<double>>().frequencies.transpose();
  const auto compare = [&](const auto& g) {
    check("dQ", in_neighbours(g.Q), whole.Q);
    check("dtheta", g.template of<Rotary>().theta, d_theta.reshaped().eval());
    check("dbeta", g.template of<Rotary>().beta, d_beta.reshaped().eval());
  };
  compare(attention_vjp(feature, axes, {.Q = p.Q, .K = p.K, .V = p.V, .dY = p.dY}));
  compare(chunked_vjp(feature, axes, {.Q = p.Q, .K = p.K, .V = p.V, .dY = p.dY, .options = {.chunk = 16}}));
  REQUIRE_THROWS_WITH(rotary(theta, beta.topRows(2), pairing), contains("rows of beta is 2, must be 3"));
  REQUIRE_THROWS_WITH(Rotary(theta.transpose(), beta.topRows(2), pairing), contains("rows of beta is 2, must be 3"));
  REQUIRE_THROWS_WITH(rotary(MatrixXd(0, 3), MatrixXd(0, T), pairing), contains("theta has no axis"));
}
