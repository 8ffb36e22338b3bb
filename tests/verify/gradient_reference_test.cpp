// Gradients by their definition, against central differences of the rows by theirs.
#include <sympow/sympow.hpp>
#include "catch.hpp"

#include <functional>

#include <sympow/core/random.hpp>
#include <sympow/verify/direct.hpp>
#include "propositions/parameter_gradients.hpp"

using namespace sympow;
using namespace sympow::verify;
using Eigen::MatrixXd, Eigen::VectorXd;

namespace {

using WideMatrix = Matrix<Wide>;
using WideVector = Vector<Wide>;

WideMatrix draw(Random& random, Index rows, Index columns) { return random.matrix(rows, columns).cast<Wide>(); }

// [S_T; Z_T] token by token, which the gradients never form.
WideMatrix final_state(const GradientCall& call) {
  const Index e = call.V.rows(), d = call.Q.rows();
  WideMatrix state =
      call.initial.size() > 0 ? call.initial : WideMatrix(WideMatrix::Zero(e + 1, call.feature.dimension));
  WideMatrix turned = call.frame.size() > 0 ? call.frame : WideMatrix(WideMatrix::Identity(d, d));
  WideVector phi;
  WideMatrix jacobian;
  for (Index t = 0; t < call.tokens(); ++t) {
    const auto at = static_cast<std::size_t>(t);
    state *= std::exp(static_cast<Wide>(call.log_decay[at]));
    if (call.action == KeyAction::mix) state = (state * call.steps[at]).eval();
    if (call.action == KeyAction::turn) turned = (turned * call.steps[at]).eval();
    if (call.action == KeyAction::scale)
      for (Index n = 0; n < state.cols(); ++n)
        for (const Index c : MultiIndices(d, call.degree)[n]) state.col(n) *= call.steps[at](c, c);
    if (t >= call.K.cols()) continue;
    call.feature.evaluate(turned * call.K.col(t), phi, jacobian);
    for (Index r = 0; r <= e; ++r) state.row(r) += (r < e ? call.V(r, t) : Wide(1)) * phi.transpose();
  }
  return state;
}

Wide loss(const GradientCall& call) {
  Wide sum = call.dY.cwiseProduct(GradientPairs(call).Y).sum();
  if (call.d_final.size() > 0) sum += call.d_final.cwiseProduct(final_state(call)).sum();
  return sum;
}

// Central differences of the sixth order: off by some h⁶ and 2⁻⁶⁴/h.
Wide slope(const std::function<Wide(Wide)>& f) {
  const Wide h = 5e-4L;
  return (45 * (f(h) - f(-h)) - 9 * (f(2 * h) - f(-2 * h)) + (f(3 * h) - f(-3 * h))) / (60 * h);
}

// The largest |Δ| of gradients of a matrix of parameters, relative to the largest gradient.
double departure(const GradientCall& call, const WideMatrix& gradient,
                 const std::function<void(GradientCall&, Index, Wide)>& move) {
  Wide worst = 0;
  for (Index n = 0; n < gradient.size(); ++n) {
    const Wide found = slope([&](Wide h) {
      GradientCall moved = call;
      move(moved, n, h);
      return loss(moved);
    });
    worst = std::max(worst, std::abs(found - gradient.data()[n]));
  }
  return static_cast<double>(worst / std::max<Wide>(gradient.cwiseAbs().maxCoeff(), 1e-3L));
}

constexpr double tolerance = 1e-10;  // gates move in double, which is 2⁻⁵³/h

void require_right(const GradientCall& call) {
  const GradientReference g = gradient_reference(call);
  const auto entry = [&](WideMatrix GradientCall::* x) {
    return [x](GradientCall& moved, Index n, Wide h) { (moved.*x).data()[n] += h; };
  };
  CHECK(departure(call, g.Q, entry(&GradientCall::Q)) < tolerance);
  CHECK(departure(call, g.K, entry(&GradientCall::K)) < tolerance);
  CHECK(departure(call, g.V, entry(&GradientCall::V)) < tolerance);
  const WideMatrix scale = WideMatrix::Constant(1, 1, g.scale);
  CHECK(departure(call, scale, [](GradientCall& moved, Index, Wide h) { moved.scale += h; }) < tolerance);
  if (call.initial.size() > 0) CHECK(departure(call, g.initial, entry(&GradientCall::initial)) < tolerance);
}

void require_right_gates(const GradientCall& call) {
  CHECK(departure(call, gradient_reference(call).log_gamma, [](GradientCall& moved, Index t, Wide h) {
          moved.log_decay[static_cast<std::size_t>(t)] += static_cast<double>(h);
        }) < tolerance);
}

struct Shapes {
  Index d = 4, e = 3, T = 6;
};

template <class Normalization, class F, class A>
GradientCall drawn(Random& random, const F& feature, const A& transition, double scale, bool with_state,
                   const Options& options = {}, const Shapes& n = {}) {
  GradientCall call =
      gradient_call<Normalization>(feature, transition, .6 * random.matrix(n.d, n.T), .6 * random.matrix(n.d, n.T),
                                   random.matrix(n.e, n.T), random.matrix(n.e, n.T), options);
  call.scale = scale;
  if (call.signed_means) {  // sums far from 0, where differences see derivatives of the first order alone
    call.Q = call.Q.cwiseAbs();
    call.K = call.K.cwiseAbs();
  }
  if (with_state) {
    call.initial.setZero(n.e + 1, call.feature.dimension);  // what five tokens have left, so that means are tame
    WideVector phi;
    WideMatrix jacobian;
    for (int token = 0; token < 5; ++token) {
      call.feature.evaluate(draw(random, n.d, 1), phi, jacobian);
      if (call.signed_means) phi = phi.cwiseAbs();
      WideVector v = draw(random, n.e + 1, 1);
      v[n.e] = 1;
      call.initial += v * phi.transpose();
    }
    call.d_final = draw(random, n.e + 1, call.feature.dimension);
  }
  return call;
}

VectorXd gates(Random& random, Index T) { return -.3 * random.vector(T).cwiseAbs(); }

}  // namespace

TEST_CASE("gradients by definition are those of the rows", "[verify]") {
  Random random(1);
  const auto log_gamma = gates(random, 6);
  const auto all = [&](const GradientCall& call) {
    require_right(call);
    require_right_gates(call);
  };
  all(drawn<Unnormalized>(random, Linear{}, decay(log_gamma), .7, true));
  all(drawn<SignedNormalized>(random, Linear{}, decay(log_gamma), .7, false));
  all(drawn<Normalized>(random, SymmetricPower<2>{}, decay(log_gamma), -1.3, true));
  all(drawn<Unnormalized>(random, SymmetricPower<3>{}, decay(log_gamma), .7, true));
  all(drawn<Normalized>(random, SymmetricPower<4>{}, decay(log_gamma), .7, false));
  all(drawn<Normalized>(random, Exponential{}, decay(log_gamma), .7, false));
  all(drawn<Unnormalized>(random, Exponential{}, decay(log_gamma), .7, false));
  all(drawn<Normalized>(random, PositiveRandomFeatures(4, 5), decay(log_gamma), .7, true));
  all(drawn<Unnormalized>(random, TrigonometricRandomFeatures(4, 3), decay(log_gamma), .7, true));
  all(drawn<Normalized>(random, HyperbolicRandomFeatures(4, 3), decay(log_gamma), .7, false));
  require_right(drawn<Normalized>(random, SymmetricPower<2>{}, stationary(), .7, false, {.mask = full()}));
  require_right(drawn<Normalized>(random, SymmetricPower<2>{}, stationary(), .7, false, {.mask = full(2)}));
  require_right(drawn<Unnormalized>(random, SymmetricPower<3>{}, stationary(), .7, false, {.mask = causal(-2)}));
  for (const Index offset : {Index(2), Index(-2)})
    require_right_gates(drawn<Normalized>(random, SymmetricPower<2>{},
                                          decay(gates(random, std::max<Index>(6, 6 + offset))), .7, true,
                                          {.mask = causal(offset)}));
}

TEST_CASE("gradients of what mixes keys are those of the rows, entry by entry and by parameter", "[verify]") {
  Random random(2);
  const WideMatrix w = .3L * draw(random, 4, 6);
  const WideVector beta = draw(random, 6, 1);
  const auto transition = decay(gates(random, 6)) * householder(MatrixXd(w.cast<double>()), beta.cast<double>());
  for (const GradientCall& call : {drawn<Unnormalized>(random, Linear{}, transition, .7, true),
                                   drawn<SignedNormalized>(random, Linear{}, transition, .7, true),
                                   drawn<Normalized>(random, SymmetricPower<2>{}, transition, .7, false),
                                   drawn<Normalized>(random, Exponential{}, transition, .7, false)}) {
    require_right(call);
    require_right_gates(call);
    const GradientReference g = gradient_reference(call);
    for (std::size_t t = 0; t < g.steps.size(); ++t)
      CHECK(departure(call, g.steps[t], [t](GradientCall& moved, Index n, Wide h) { moved.steps[t].data()[n] += h; }) <
            tolerance);
    const auto of_chain = householder_gradient(g, w, beta);
    const auto set = [](GradientCall& moved, const WideMatrix& x, const WideVector& y) {
      for (Index t = 0; t < x.cols(); ++t)
        moved.steps[static_cast<std::size_t>(t)] =
            WideMatrix::Identity(x.rows(), x.rows()) - y[t] * x.col(t) * x.col(t).transpose();
    };
    CHECK(departure(call, of_chain.w, [&](GradientCall& moved, Index n, Wide h) {
            WideMatrix x = w;
            x.data()[n] += h;
            set(moved, x, beta);
          }) < tolerance);
    CHECK(departure(call, of_chain.beta, [&](GradientCall& moved, Index n, Wide h) {
            WideVector y = beta;
            y[n] += h;
            set(moved, w, y);
          }) < tolerance);
  }
}

TEST_CASE("gradients of gates by channel are those of the rows", "[verify]") {
  Random random(3);
  const WideMatrix log_a = -.3L * draw(random, 4, 6).cwiseAbs();
  const auto transition = decay(gates(random, 6)) * channel_decay(MatrixXd(log_a.cast<double>()));
  for (const GradientCall& call : {drawn<Unnormalized>(random, Linear{}, transition, .7, true),
                                   drawn<Normalized>(random, SymmetricPower<2>{}, transition, .7, true),
                                   drawn<Unnormalized>(random, SymmetricPower<3>{}, transition, .7, true),
                                   drawn<Normalized>(random, Exponential{}, transition, .7, false)}) {
    require_right(call);
    require_right_gates(call);
    CHECK(departure(call, channel_gradient(gradient_reference(call), call), [](GradientCall& moved, Index n, Wide h) {
            moved.steps[static_cast<std::size_t>(n / 4)](n % 4, n % 4) *= std::exp(h);
          }) < tolerance);
  }
}

TEST_CASE("gradients of angles, rates and frames are those of the rows", "[verify]") {
  Random random(4);
  const WideVector theta = draw(random, 2, 1), beta = draw(random, 6, 1), mu = draw(random, 2, 1),
                   d_mu = draw(random, 2, 1);
  for (const Pairing pairing : {Pairing::interleaved, Pairing::half_split}) {
    const auto transition = decay(gates(random, 6)) * rotary(theta.cast<double>(), beta.cast<double>(), pairing);
    const auto check = [&](GradientCall call) {
      const auto set = [&](GradientCall& moved, const WideVector& of_theta, const WideVector& of_beta,
                           const WideVector& of_mu) {
        moved.steps = rotary_steps(of_theta, of_beta, pairing);
        moved.frame = wide_rotation(of_mu, 4, pairing);
      };
      set(call, theta, beta, mu);
      require_right(call);
      if (!call.mask.is_full) require_right_gates(call);
      const auto g = rotary_gradient(gradient_reference(call), theta, beta, pairing, {}, mu);
      CHECK(departure(call, g.theta, [&](GradientCall& moved, Index n, Wide h) {
              WideVector x = theta;
              x[n] += h;
              set(moved, x, beta, mu);
            }) < tolerance);
      CHECK(departure(call, g.beta, [&](GradientCall& moved, Index n, Wide h) {
              WideVector x = beta;
              x[n] += h;
              set(moved, theta, x, mu);
            }) < tolerance);
      CHECK(departure(call, g.mu, [&](GradientCall& moved, Index n, Wide h) {
              WideVector x = mu;
              x[n] += h;
              set(moved, theta, beta, x);
            }) < tolerance);
      const auto with_frame = rotary_gradient(gradient_reference(call), theta, beta, pairing, d_mu, mu);
      CHECK((with_frame.mu - g.mu - d_mu).norm() < 1e-17L);  // μ_T = μ_0 + Σ β_t θ
      CHECK((with_frame.theta - g.theta - beta.sum() * d_mu).norm() < 1e-16L);
      CHECK((with_frame.beta - g.beta - WideVector::Constant(6, theta.dot(d_mu))).norm() < 1e-16L);
    };
    check(drawn<Unnormalized>(random, Linear{}, transition, .7, true));
    check(drawn<Normalized>(random, SymmetricPower<2>{}, transition, .7, true));
    check(drawn<Normalized>(random, SymmetricPower<4>{}, transition, .7, false));
    check(drawn<Unnormalized>(random, Exponential{}, transition, .7, false));
    check(drawn<Normalized>(random, PositiveRandomFeatures(4, 5), transition, .7, true));
    check(drawn<Unnormalized>(random, SymmetricPower<3>{}, rotary(theta.cast<double>(), beta.cast<double>(), pairing),
                              .7, false, {.mask = full()}));
  }
}

TEST_CASE("gradients of structured rotations are those of the rows", "[verify]") {
  Random random(5);
  constexpr Index d = 5, T = 6;
  const WideMatrix lambda = draw(random, 2, 2), r = draw(random, 2, T);
  const WideMatrix U = Eigen::HouseholderQR<WideMatrix>(draw(random, d, d)).householderQ();
  const auto family = CommutingGenerators<double>::from_frequencies(MatrixXd(lambda.cast<double>()), 1)
                          .in_basis(MatrixXd(U.cast<double>()));
  const auto transition = decay(gates(random, T)) * structured_rotary(family, MatrixXd(r.cast<double>()));
  const auto check = [&](GradientCall call) {
    const auto set = [&](GradientCall& moved, const WideMatrix& of_lambda, const WideMatrix& of_U,
                         const WideMatrix& of_r) { moved.steps = structured_steps(of_lambda, of_U, d, of_r); };
    for (Index t = 0; t < T; ++t)
      CHECK((structured_steps(lambda, U, d, r)[static_cast<std::size_t>(t)] - call.steps[static_cast<std::size_t>(t)])
                .norm() < 1e-14L);
    set(call, lambda, U, r);
    require_right(call);
    const auto g = structured_gradient(gradient_reference(call), lambda, U, r);
    CHECK(departure(call, g.positions, [&](GradientCall& moved, Index n, Wide h) {
            WideMatrix x = r;
            x.data()[n] += h;
            set(moved, lambda, U, x);
          }) < tolerance);
    CHECK(departure(call, g.frequencies, [&](GradientCall& moved, Index n, Wide h) {
            WideMatrix x = lambda;
            x.data()[n] += h;
            set(moved, x, U, r);
          }) < tolerance);
    // U exp(h E) for skew E with the entries 1 and -1 changes the loss by twice the entry of skew(UᵀdU).
    CHECK(departure(call, 2 * g.basis, [&](GradientCall& moved, Index n, Wide h) {
            const Index a = n % d, b = n / d;
            WideMatrix turn = WideMatrix::Identity(d, d);
            if (a != b) {
              turn(a, a) = turn(b, b) = std::cos(h);
              turn(a, b) = std::sin(h);
              turn(b, a) = -std::sin(h);
            }
            set(moved, lambda, U * turn, r);
          }) < tolerance);
  };
  const Shapes shapes{.d = d};
  check(drawn<Normalized>(random, SymmetricPower<2>{}, transition, .7, true, {}, shapes));
  check(drawn<Unnormalized>(random, SymmetricPower<3>{}, transition, .7, true, {}, shapes));
  check(drawn<Normalized>(random, HyperbolicRandomFeatures(d, 3), transition, .7, true, {}, shapes));
  check(drawn<Normalized>(random, Exponential{}, transition, .7, false, {}, shapes));
}

TEST_CASE("a call without tokens hands the gradient of its state on", "[verify]") {
  Random random(6);
  GradientCall call =
      gradient_call(SymmetricPower<2>{}, stationary(), MatrixXd(4, 0), MatrixXd(4, 0), MatrixXd(3, 0), MatrixXd(3, 0));
  call.initial = draw(random, 4, call.feature.dimension);
  call.d_final = draw(random, 4, call.feature.dimension);
  const GradientReference g = gradient_reference(call);
  CHECK(g.initial == call.d_final);
  CHECK(g.Q.size() + g.K.size() + g.V.size() + g.log_gamma.size() == 0);
  CHECK(g.scale == 0);
}
