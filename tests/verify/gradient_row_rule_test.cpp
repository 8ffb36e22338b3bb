// The gradient row rule: it holds of roundings, fails of anything more, and says where.
#include <sympow/sympow.hpp>
#include "catch.hpp"

#include <limits>

#include <sympow/core/random.hpp>
#include "propositions/parameter_gradients.hpp"

using namespace sympow;
using namespace sympow::verify;
using Eigen::MatrixXd, Eigen::VectorXd;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Index d = 4, e = 3, T = 14;

// Every entry times 1 + δ, |δ| ≤ u.
void round_all(Random& random, Matrix<Wide>& x, double u) {
  for (Index n = 0; n < x.size(); ++n) x.data()[n] *= 1 + static_cast<Wide>(random.uniform(-u, u));
}

// Draws a call and calls f(call, the same with rounded numbers).
template <class Normalization, class F, class A, class Check>
void rounded(Random& random, const F& feature, const A& transition, double u, bool with_state, Check&& check,
             const Options& options = {}) {
  const Index n = d;
  GradientCall call =
      gradient_call<Normalization>(feature, transition, .6 * random.matrix(n, T), .6 * random.matrix(n, T),
                                   random.matrix(e, T), random.matrix(e, T), options);
  call.scale = .75L;
  if (with_state) {
    call.initial.setZero(e + 1, call.feature.dimension);
    call.d_final = random.matrix(e + 1, call.feature.dimension).cast<Wide>();
    Vector<Wide> phi;
    Matrix<Wide> jacobian;
    for (int token = 0; token < 5; ++token) {
      call.feature.evaluate(random.vector(d).cast<Wide>(), phi, jacobian);
      Vector<Wide> v = random.vector(e + 1).cast<Wide>();
      v[e] = 1;
      call.initial += v * phi.transpose();
    }
  }
  call = without_degenerate_rows(call, {.unit_roundoff = u});
  GradientCall other = call;
  for (auto* x : {&other.Q, &other.K, &other.V, &other.dY, &other.initial, &other.d_final}) round_all(random, *x, u);
  check(call, other);
}

// The worst gradient of a call with numbers that are rounded once, in units of the rule.
struct Worst {
  double u;
  double largest = 0;
  void operator()(const GradientCall& call, const GradientCall& other) {
    const Residual worst = worst_gradient(gradient_reference(other), gradient_reference(call),
                                          gradient_bounds(call, {.unit_roundoff = u}));
    CAPTURE(worst);
    CHECK(worst.holds());
    largest = std::max(largest, worst.residual);
  }
};

VectorXd gates(Random& random, Index tokens = T) { return -.3 * random.vector(tokens).cwiseAbs(); }

}  // namespace

TEST_CASE("the gradient row rule holds where all numbers are rounded once, and not by far", "[verify]") {
  Random random(1);
  const double u = GENERATE(0x1p-24, 0x1p-53);
  CAPTURE(u);
  const VectorXd theta = random.vector(d / 2), beta = random.vector(T);
  const auto family = CommutingGenerators<double>::from_frequencies(random.matrix(2, 2));
  const auto check = [&]<class Normalization>(Normalization, const auto& feature, const auto& transition,
                                              bool with_state, const Options& options = {}) {
    Worst worst{u};
    for (int draw = 0; draw < 5; ++draw)
      rounded<Normalization>(random, feature, transition, u, with_state, worst, options);
    CHECK(worst.largest > 1e-4);  // else the rule would say nothing
  };
  const auto each = [&](const auto& transition) {
    check(Unnormalized{}, Linear{}, transition, true);
    check(Normalized{}, SymmetricPower<2>{}, transition, true);
    check(Unnormalized{}, SymmetricPower<3>{}, transition, true);
    check(Normalized{}, SymmetricPower<4>{}, transition, false);
    check(Normalized{}, Exponential{}, transition, false);
    check(Unnormalized{}, Exponential{}, transition, false);
  };
  each(decay(gates(random)));
  each(decay(gates(random)) * channel_decay(-.2 * random.matrix(d, T).cwiseAbs()));
  each(decay(gates(random)) * rotary(theta, beta, Pairing::interleaved));
  each(structured_rotary(family, random.matrix(2, T)));
  const auto turning = decay(gates(random)) * rotary(theta, beta, Pairing::interleaved);
  check(Normalized{}, PositiveRandomFeatures(d, 6), turning, true);
  check(Unnormalized{}, TrigonometricRandomFeatures(d, 6), turning, true);
  check(Normalized{}, HyperbolicRandomFeatures(d, 6), turning, false);
  check(SignedNormalized{}, Linear{}, turning, false);
  check(Normalized{}, SymmetricPower<2>{}, rotary(theta, beta, Pairing::interleaved), false, {.mask = full()});
  check(Normalized{}, SymmetricPower<2>{}, decay(gates(random, T + 3)), true, {.mask = causal(3)});
  check(Normalized{}, SymmetricPower<2>{}, decay(gates(random)), true, {.mask = causal(-3)});
  const MatrixXd w = random.matrix(d, T).colwise().normalized();
  const auto chain = decay(gates(random)) * householder(w, random.vector(T).cwiseAbs().cwiseMin(2));
  check(Unnormalized{}, Linear{}, chain, true);
  check(Normalized{}, SymmetricPower<2>{}, chain, false);
}

TEST_CASE("parameters have bounds that hold where all numbers are rounded once", "[verify]") {
  Random random(2);
  constexpr double u = 0x1p-24;
  const Vector<Wide> theta = random.vector(d / 2).cast<Wide>(), beta = random.vector(T).cast<Wide>();
  const Matrix<Wide> lambda = random.matrix(2, 2).cast<Wide>(), r = random.matrix(2, T).cast<Wide>();
  const Matrix<Wide> w = random.matrix(d, T).colwise().normalized().cast<Wide>();
  bool sums = false;
  const auto require = [&](const char* name, const Matrix<Wide>& a, const Matrix<Wide>& b, const Matrix<Wide>& bound) {
    const Residual worst = worst_entry(name, a, b, bound);
    CAPTURE(worst);
    CHECK(worst.holds());
    if (sums) CHECK(worst_entry(name, 2 * a, b, bound).residual > 100);  // means of any sign may say little
  };
  for (int draw = 0; draw < 5; ++draw) {
    const auto both = [&](const auto& feature, const auto& transition, bool with_state, const auto& compare) {
      rounded<DefaultNormalization>(random, feature, transition, u, with_state,
                                    [&](const GradientCall& call, const GradientCall& other) {
                                      sums = !call.divided;
                                      compare(call, gradient_reference(call), gradient_reference(other),
                                              gradient_bounds(call, {.unit_roundoff = u}));
                                    });
    };
    const auto turns = [&](const auto& feature, bool with_state) {
      both(feature, decay(gates(random)) * rotary(theta.cast<double>(), beta.cast<double>(), Pairing::interleaved),
           with_state, [&](const auto& call, const auto& a, const auto& b, const auto& bounds) {
             const auto x = rotary_gradient(a, theta, beta), y = rotary_gradient(b, theta, beta),
                        bound = rotary_bounds(bounds, call, theta, beta);
             require("d theta", x.theta, y.theta, bound.theta);
             require("d beta", x.beta.transpose(), y.beta.transpose(), bound.beta.transpose());
             if (with_state) require("d mu", x.mu, y.mu, bound.mu);
           });
      both(feature,
           structured_rotary(CommutingGenerators<double>::from_frequencies(MatrixXd(lambda.cast<double>())),
                             MatrixXd(r.cast<double>())),
           with_state, [&](const auto&, const auto& a, const auto& b, const auto& bounds) {
             const auto x = structured_gradient(a, lambda, {}, r), y = structured_gradient(b, lambda, {}, r),
                        bound = structured_bounds(bounds, lambda, r, d);
             require("d positions", x.positions, y.positions, bound.positions);
             require("d frequencies", x.frequencies, y.frequencies, bound.frequencies);
             require("d basis", x.basis, y.basis, bound.basis);
           });
    };
    turns(SymmetricPower<2>{}, true);
    turns(SymmetricPower<3>{}, true);
    turns(Exponential{}, false);
    turns(PositiveRandomFeatures(d, 6), true);
    for (const bool with_state : {true, false})
      both(SymmetricPower<3>{}, channel_decay(-.2 * random.matrix(d, T).cwiseAbs()), with_state,
           [&](const auto& call, const auto& a, const auto& b, const auto& bounds) {
             require("d log a", channel_gradient(a, call), channel_gradient(b, call), channel_bounds(bounds, d));
           });
    const Vector<Wide> strength = random.vector(T).cwiseAbs().cwiseMin(2).cast<Wide>();
    both(Linear{}, householder(MatrixXd(w.cast<double>()), strength.cast<double>()), true,
         [&](const auto&, const auto& a, const auto& b, const auto& bounds) {
           const auto x = householder_gradient(a, w, strength), y = householder_gradient(b, w, strength),
                      bound = householder_bounds(bounds, w, strength);
           require("d w", x.w, y.w, bound.w);
           require("d beta", x.beta.transpose(), y.beta.transpose(), bound.beta.transpose());
         });
  }
}

TEST_CASE("bounds are the sums of weights that they are said to be", "[verify]") {
  Random random(6);
  constexpr double u = 0x1p-24;
  const auto check = [&](const auto& feature, int P, bool with_state) {
    rounded<SignedNormalized>(
        random, feature, decay(gates(random)), u, with_state, [&](const GradientCall& call, const GradientCall&) {
          const GradientPairs pairs(call);
          const GradientBounds bounds = gradient_bounds(call, {.unit_roundoff = u, .tokens_per_update = 2});
          const Index last = with_state ? T : T - 1, first = with_state ? 0 : 1;  // rows 0 … last, keys first … T
          Matrix<Wide> eps = Matrix<Wide>::Zero(T + 1, T + 1), dv = eps;
          Vector<Wide> state = Vector<Wide>::Zero(e + 1), window = Vector<Wide>::Zero(2 * T);
          Wide values = call.V.cwiseAbs().maxCoeff(), s_e = 0;
          if (with_state) {
            s_e = call.initial.row(e).norm();
            values = std::max(values, call.initial.topRows(e).rowwise().norm().maxCoeff() / s_e);
          }
          const auto b_of = [&](Index before, Index at) {
            Wide sum = 0;
            for (Index t = before + 1; t <= at; ++t) sum += call.log_decay[static_cast<std::size_t>(t)];
            return std::exp(sum) * (1 + std::abs(sum) * 0x1p-29L);  // an exponential in double, in units of a float's u
          };
          for (Index i = 0; i < T; ++i) {
            const Wide den = std::abs(pairs.denominator[i]) * std::exp(pairs.shift[i]);
            const Wide h = call.dY.col(i).cwiseAbs().sum() * (values + pairs.Y.col(i).cwiseAbs().maxCoeff());
            const auto length = [&](Index j) { return call.scale * call.Q.col(i).norm() * call.K.col(j).norm(); };
            const auto m = [&](Index j) {
              if (P == 0)
                return b_of(j, i) / (1 + std::abs(pairs.log_weights(j, i)) * 0x1p-29L) * std::exp(pairs.logits(j, i)) *
                       (1 + length(j) + std::abs(pairs.log_weights(j, i)));
              return b_of(j, i) * integer_power(length(j), P);
            };
            const Wide m0 =
                with_state ? b_of(-1, i) * integer_power<Wide>(call.scale * call.Q.col(i).norm(), P) : Wide(0);
            Wide K = m0 * s_e / den;
            for (Index j = 0; j <= i; ++j) K += m(j) / den;
            CHECK(std::abs(bounds.condition[i] / K - 1) < 1e-15L);
            for (Index j = 0; j <= i; ++j) {
              const Wide half =
                  P == 0 ? m(j) : b_of(j, i) * integer_power(std::abs(pairs.logits(j, i)), P - 1) * length(j);
              eps(j + 1, i) = h * (m(j) + K * half) / den;
              const Wide p = std::abs(pairs.scores(j, i)) * std::exp(pairs.shift[i]);
              dv(j + 1, i) = call.dY.col(i).cwiseAbs().maxCoeff() * (m(j) + K * p) / den;
              window[i] += std::exp(pairs.log_weights(j, i)), window[T + j] += std::exp(pairs.log_weights(j, i));
            }
            eps(0, i) = h * m0 * s_e / den * (1 + K);
            for (Index r = 0; r <= e; ++r)
              state[r] += m0 / den * (1 + K) * (r < e ? call.dY.col(i).cwiseAbs().maxCoeff() : h);
          }
          if (with_state) {
            Wide h = call.d_final.row(e).norm(), most = 0;
            for (Index r = 0; r < e; ++r) {
              h += values * call.d_final.row(r).norm();
              most = std::max(most, call.d_final.row(r).norm());
            }
            for (Index j = 0; j < T; ++j) {
              const Wide size = b_of(j, T - 1) * integer_power<Wide>(call.K.col(j).norm(), P);
              eps(j + 1, T) = size * h, dv(j + 1, T) = size * most;
            }
            for (Index r = 0; r <= e; ++r) {
              eps(0, T) += b_of(-1, T - 1) * call.initial.row(r).norm() * call.d_final.row(r).norm();
              state[r] += b_of(-1, T - 1) * call.d_final.row(r).norm();
            }
          }
          const Wide power = P == 0 ? 1 : P, unit = (6 + power) * u * (1 + std::sqrt(window.maxCoeff() / 2));
          const auto same = [&](const char* name, Wide bound, Wide expected) {
            CAPTURE(name);
            CHECK(std::abs(bound - unit * expected) <= 1e-15L * unit * std::abs(expected));
          };
          Wide scale = 0, frame = 0;
          for (Index t = 0; t < T; ++t) {
            Wide flow = 0, dq = 0, dk = 0, own = 0;
            for (Index i = 0; i <= last; ++i)
              for (Index j = first; j <= std::min(i + 1, T); ++j) {
                const Wide lever = P > 0            ? power
                                   : i < T && j > 0 ? call.scale * call.Q.col(i).norm() * call.K.col(j - 1).norm()
                                                    : Wide(0);
                if (j - 1 < t && t <= std::min(i, T - 1)) flow += eps(j, i);
                if (i == t) dq += lever * eps(j, i) / call.Q.col(t).norm(), own += lever * eps(j, i);
                if (j - 1 == t) dk += lever * eps(j, i) / call.K.col(t).norm(), own += lever * eps(j, i);
                if (t == 0 && i < T) scale += lever * eps(j, i) / call.scale;
                if (t == 0 && i == T) frame += lever * eps(j, i);
              }
            same("d log gamma", bounds.log_gamma[t], flow);
            same("dQ", bounds.Q(0, t), dq);
            same("dK", bounds.K(d - 1, t), dk);
            same("dV", bounds.V(e - 1, t), dv.row(t + 1).sum());
            same("own", bounds.own_levers[t], own);
            if (P > 0) same("step", bounds.step_levers[t], power * flow);
          }
          same("d scale", bounds.scale, scale);
          same("frame", bounds.frame_lever, frame);
          for (Index r = 0; r <= e && with_state; ++r) same("state", bounds.initial(r, 0), state[r]);
        });
  };
  check(SymmetricPower<2>{}, 2, false);
  check(SymmetricPower<2>{}, 2, true);
  check(SymmetricPower<3>{}, 3, true);
  check(Linear{}, 1, true);
  check(Exponential{}, 0, false);
}

TEST_CASE("embedded scores under a rotation see the angles of all later tokens", "[verify]") {
  Random random(7);
  const auto transition = rotary(random.vector(d / 2), random.vector(T), Pairing::interleaved);
  rounded<Normalized>(random, PositiveRandomFeatures(d, 6), transition, 0x1p-24, true,
                      [](const GradientCall& call, const GradientCall&) {
                        const GradientBounds bounds = gradient_bounds(call);
                        for (Index t = 0; t < T; ++t)
                          CHECK(std::abs(bounds.step_levers[t] / bounds.own_levers.tail(T - t).sum() - 1) < 1e-15L);
                      });
}

TEST_CASE("lengths that a gradient is not about leave its bound alone", "[verify]") {
  Random random(3);
  const MatrixXd K = random.matrix(d, T), V = random.matrix(e, T), dY = random.matrix(e, T);
  MatrixXd Q = random.matrix(d, T);
  const auto bounds = [&](double scale) {
    return gradient_bounds(gradient_call(Linear{}, stationary(), Q, K, V, dY, {.scale = scale}));
  };
  const auto usual = bounds(1);
  Q.col(5).setZero();
  CHECK(bounds(1).Q(0, 5) == usual.Q(0, 5));
  CHECK(bounds(1).scale < usual.scale);
  CHECK(bounds(0).scale == bounds(1).scale);
  CHECK(bounds(0).Q.norm() == 0);
}

TEST_CASE("rows that say nothing are flagged, and no gradient is asked of them", "[verify]") {
  Random random(4);
  MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T);
  Q.col(5).setZero();
  K.leftCols(3).bottomRows(d - 1).setZero();
  Q(0, 2) = 1e-7;  // a sum of 1e-14 ‖q‖² ‖k‖²
  const GradientCall call =
      gradient_call(SymmetricPower<2>{}, stationary(), Q, K, random.matrix(e, T), random.matrix(e, T));
  const auto flagged = [&](double u) { return gradient_bounds(call, {.unit_roundoff = u}).is_degenerate; };
  for (std::size_t i = 0; i < T; ++i) {
    CHECK(flagged(0x1p-24)[i] == (i == 2 || i == 5));
    CHECK(flagged(0x1p-53)[i] == (i == 5));
  }
  std::vector<bool> by_another(T, false);
  by_another[9] = true;
  const GradientCall kept = without_degenerate_rows(call, {.unit_roundoff = 0x1p-24}, by_another);
  for (Index i = 0; i < T; ++i) CHECK(kept.dY.col(i).isZero(0) == (i == 2 || i == 5 || i == 9));
  const GradientReference g = gradient_reference(kept);
  CHECK(g.Q.col(2).norm() + g.Q.col(5).norm() + g.Q.col(9).norm() == 0);
}

TEST_CASE("the worst entry says which gradient and where", "[verify]") {
  Matrix<Wide> a = Matrix<Wide>::Ones(2, 5), bound = Matrix<Wide>::Constant(2, 5, .5L);
  CHECK(worst_entry("dQ", a, a, 0 * bound).residual == 0);
  Matrix<Wide> b = a;
  b(1, 3) += 1;
  b(0, 2) -= .25L;
  const Residual worst = worst_entry("dQ", b, a, bound);
  CHECK(worst.residual == 2);
  CHECK(worst.row == 3);
  CHECK(worst.form == "dQ");
  CHECK(worst_entry("dQ", b, a, 0 * bound).residual == infinity);
  b(0, 1) = std::numeric_limits<Wide>::quiet_NaN();
  CHECK(worst_entry("dQ", b, a, bound).residual == infinity);
  CHECK(worst_entry("dQ", a.leftCols(4), a, bound).residual == infinity);
}

TEST_CASE("calls that have no definition, or do not fit, are refused", "[verify]") {
  Random random(5);
  const MatrixXd X = random.matrix(d, T);
  GradientCall call = gradient_call(Exponential{}, stationary(), X, X, X, X);
  call.initial = Matrix<Wide>::Ones(d + 1, 3);
  CHECK_THROWS_AS(gradient_reference(call), ShapeMismatch);
  call.feature.dimension = 3;
  CHECK_THROWS_AS(gradient_reference(call), InvalidArgument);
  CHECK_THROWS_AS(
      gradient_reference(gradient_call(PositiveRandomFeatures(d, 3), channel_decay(-X.cwiseAbs()), X, X, X, X)),
      InvalidArgument);
  CHECK_THROWS_AS(gradient_reference(gradient_call(Linear{}, stationary(), X, X, X, X.leftCols(3))), ShapeMismatch);
}

TEST_CASE("what has no finite bound, or is a NaN, is wrong", "[verify]") {
  const auto one = [](Wide x) { return Matrix<Wide>(Matrix<Wide>::Constant(1, 1, x)); };
  CHECK(worst_entry("dQ", one(2), one(1), one(1)).holds());
  CHECK(worst_entry("dQ", one(1), one(1), one(infinity)).holds());
  CHECK_FALSE(worst_entry("dQ", one(2), one(1), one(infinity)).holds());
  CHECK_FALSE(worst_entry("dQ", one(2), one(1), one(std::numeric_limits<Wide>::quiet_NaN())).holds());
  const Residual nan{std::numeric_limits<double>::quiet_NaN(), 1}, some{.5, 1};
  CHECK_FALSE(worse(nan, some).holds());
  CHECK_FALSE(worse(some, nan).holds());
}
