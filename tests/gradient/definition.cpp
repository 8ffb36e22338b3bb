#include "problem.hpp"

#include "propositions/parameter_gradients.hpp"

namespace sympow::test {
namespace {

using WideVector = Vector<Wide>;
using namespace verify;

Eigen::MatrixXd rounded(const Eigen::MatrixXd& x) { return x.cast<float>().cast<double>(); }

WideMatrix side_by_side(const WideMatrix& a, const WideMatrix& b) {
  WideMatrix both(std::max(a.rows(), b.rows()), a.cols() + b.cols());
  if (a.cols() > 0) both.leftCols(a.cols()) = a;
  if (b.cols() > 0) both.rightCols(b.cols()) = b;
  return both;
}

// The nearest orthogonal matrix to one that is so up to rounding.
WideMatrix orthogonal(const Eigen::MatrixXd& U) {
  WideMatrix X = U.cast<Wide>();
  for (int n = 0; n < 3; ++n) X = (1.5L * X - .5L * X * (X.transpose() * X).eval()).eval();
  return X;
}

std::vector<WideMatrix> reflections(const WideMatrix& w, const WideVector& beta) {
  std::vector<WideMatrix> steps;
  for (Index t = 0; t < w.cols(); ++t)
    steps.push_back(WideMatrix::Identity(w.rows(), w.rows()) - beta[t] * w.col(t) * w.col(t).transpose());
  return steps;
}
std::vector<WideMatrix> channels(const WideMatrix& log_a) {
  std::vector<WideMatrix> steps;
  for (Index t = 0; t < log_a.cols(); ++t) {
    steps.push_back(WideMatrix::Zero(log_a.rows(), log_a.rows()));
    for (Index c = 0; c < log_a.rows(); ++c) steps.back()(c, c) = std::exp(log_a(c, t));
  }
  return steps;
}
Wide largest_in(const WideMatrix& x) { return x.size() == 0 ? Wide(0) : x.cwiseAbs().maxCoeff(); }

}  // namespace

Parameters::Parameters(Random& random, Index d, Index T, double gates)
    : log_gamma(-gates * random.vector(T).cwiseAbs()),
      beta(random.vector(T).array() * .5 + 1),
      theta(rotary_frequencies<double>(d, 50)),
      log_a(-gates * random.matrix(d, T).cwiseAbs()),
      w(rounded(random.matrix(d, T).colwise().normalized())),
      strengths((random.vector(T).array().abs() * .5).min(2)),
      positions(random.matrix(2, T)),
      frequencies(random.matrix(2, d / 2)),
      basis(random.rotation(d)) {}

Parameters Parameters::part(Index first, Index count) const {
  Parameters some = *this;
  for (auto* x : {&some.log_gamma, &some.beta, &some.strengths}) *x = Eigen::VectorXd(x->segment(first, count));
  for (auto* x : {&some.log_a, &some.w, &some.positions}) *x = Eigen::MatrixXd(x->middleCols(first, count));
  return some;
}

verify::DenseFeature dense_squares(Index d) {
  return {1 + d + d * d, 0, [d](const WideVector& x, WideVector& phi, WideMatrix& jacobian) {
            const Wide root = std::sqrt(Wide(2));
            phi.setZero(1 + d + d * d), jacobian.setZero(1 + d + d * d, d);
            phi[0] = 1;
            for (Index i = 0; i < d; ++i) {
              phi[1 + i] = root * x[i], jacobian(1 + i, i) = root;
              for (Index j = 0; j < d; ++j) {
                const Index row = 1 + d + i * d + j;
                phi[row] = x[i] * x[j], jacobian(row, i) += x[j], jacobian(row, j) += x[i];
              }
            }
          }};
}

Found joined(const Found& first, const Found& second) {
  Found both = first;
  for (const auto x :
       {&Found::Q, &Found::K, &Found::V, &Found::log_a, &Found::beta, &Found::w, &Found::strengths, &Found::positions})
    both.*x = side_by_side(first.*x, second.*x);
  for (const auto x : {&Found::theta, &Found::frequencies, &Found::basis}) both.*x = first.*x + second.*x;
  for (std::size_t n = 0; n < both.log_gamma.size(); ++n) {
    const bool is_constant = first.log_gamma[n].size() == 1 && first.Q.cols() != 1;
    both.log_gamma[n] = is_constant ? WideMatrix(first.log_gamma[n] + second.log_gamma[n])
                                    : side_by_side(first.log_gamma[n], second.log_gamma[n]);
  }
  both.scale += second.scale;
  return both;
}

struct Definition::Bounds : GradientBounds {};

Definition::~Definition() = default;
Definition::Definition(Definition&&) noexcept = default;

Definition::Definition(GradientCall call, Kind kind, const Parameters& parameters, double unit_roundoff)
    : call_(std::move(call)), kind_(std::move(kind)), parameters_(parameters) {
  set_steps();
  const Parameters& p = parameters_;
  const WideVector theta = p.theta.cast<Wide>();
  const bool turns = kind_.steps == Steps::rates || kind_.steps == Steps::fixed_rates;
  const WideVector beta =
      kind_.steps == Steps::rates ? WideVector(p.beta.cast<Wide>()) : WideVector(WideVector::Ones(call_.tokens()));
  GradientArithmetic arithmetic{unit_roundoff, 1};
  Wide angle = 0, sum = 0;
  for (Index t = 0; turns && t < call_.tokens(); ++t) {
    sum += beta[t];
    angle = std::max(angle, std::abs(sum) * largest_in(theta));
  }
  if (kind_.steps == Steps::positions)
    for (Index t = 0; t < call_.tokens(); ++t)
      angle = std::max(angle, Wide((p.frequencies.transpose() * p.positions.col(t)).cwiseAbs().maxCoeff()));
  arithmetic.largest_angle = static_cast<double>(angle);
  bounds_ = std::make_unique<Bounds>(gradient_bounds(call_, arithmetic));
  bool any = false;
  for (std::size_t i = 0; i < bounds_->is_degenerate.size(); ++i)
    if (bounds_->is_degenerate[i]) any = true, call_.dY.col(static_cast<Index>(i)).setZero();
  if (any) *bounds_ = {gradient_bounds(call_, arithmetic)};
  unit_of_pairs_ = bounds_->unit_of_pairs;

  const GradientReference g = gradient_reference(call_);
  expected_ = {g.Q, g.K, g.V, g.scale, {g.log_gamma.transpose()}};
  expected_.initial = g.initial;
  switch (kind_.steps) {
    case Steps::none:
      break;
    case Steps::channels:
      expected_.log_a = channel_gradient(g, call_);
      break;
    case Steps::mixing: {
      GradientReference chain = g;
      if (kind_.is_gated) expected_.log_a.resize(p.w.rows(), call_.tokens());
      for (Index t = 0; kind_.is_gated && t < call_.tokens(); ++t) {  // A = diag(a) H, dH = diag(a) dA
        const auto n = static_cast<std::size_t>(t);
        expected_.log_a.col(t) = call_.steps[n].cwiseProduct(g.steps[n]).rowwise().sum();
        chain.steps[n] = channels(p.log_a.col(t).cast<Wide>())[0] * g.steps[n];
      }
      const auto of = householder_gradient(chain, p.w.cast<Wide>(), p.strengths.cast<Wide>());
      expected_.w = of.w, expected_.strengths = of.beta.transpose();
      break;
    }
    case Steps::positions: {
      const auto of = structured_gradient(g, p.frequencies.cast<Wide>(), orthogonal(p.basis), p.positions.cast<Wide>());
      expected_.positions = of.positions, expected_.frequencies = of.frequencies, expected_.basis = of.basis;
      break;
    }
    case Steps::rates:
    case Steps::fixed_rates: {
      const auto of =
          rotary_gradient(g, theta, beta, kind_.pairing, kind_.d_frame.cast<Wide>(), kind_.frame.cast<Wide>());
      expected_.theta = of.theta.transpose(), expected_.frame = of.mu.transpose();
      if (kind_.steps == Steps::rates) expected_.beta = of.beta.transpose();
    }
  }
}

void Definition::set_steps() {
  const Parameters& p = parameters_;
  const WideVector theta = p.theta.cast<Wide>();
  const Index d = call_.Q.rows();
  switch (kind_.steps) {
    case Steps::none:
      return;
    case Steps::channels:
      call_.steps = channels(p.log_a.cast<Wide>());
      return;
    case Steps::mixing:
      call_.steps = reflections(p.w.cast<Wide>(), p.strengths.cast<Wide>());
      for (Index t = 0; kind_.is_gated && t < call_.tokens(); ++t) {
        WideMatrix& step = call_.steps[static_cast<std::size_t>(t)];
        step = (channels(p.log_a.col(t).cast<Wide>())[0] * step).eval();
      }
      return;
    case Steps::positions:
      call_.steps = structured_steps(p.frequencies.cast<Wide>(), orthogonal(p.basis), d, p.positions.cast<Wide>());
      return;
    case Steps::rates:
      call_.steps = rotary_steps(theta, p.beta.cast<Wide>(), kind_.pairing);
      break;
    case Steps::fixed_rates:
      call_.steps = rotary_steps(theta, WideVector::Ones(call_.tokens()), kind_.pairing);
      break;
  }
  if (kind_.frame.size() > 0) call_.frame = wide_rotation(kind_.frame.cast<Wide>(), d, kind_.pairing);
}

Residual Definition::worst(const Found& found, const Found& expected, Index tokens_per_update) const {
  // Bounds are multiples of the rule's factor, in which updates are √(window/tokens an update) of one an update.
  const GradientBounds& b = *bounds_;
  const Wide of_updates = b.unit - unit_of_pairs_;
  const Wide here = tokens_per_update == 0
                        ? unit_of_pairs_
                        : unit_of_pairs_ + of_updates / std::sqrt(static_cast<Wide>(tokens_per_update));
  const Wide factor = here / b.unit;
  Residual worst{0, 1};
  const auto check = [&](const std::string& name, const WideMatrix& x, const WideMatrix& y, const WideMatrix& bound) {
    WideMatrix limit = factor * bound;
    limit.array() += least_;
    worst = worse(worst, worst_entry(name, x, y, limit));
  };
  const auto one = [](Wide x) { return WideMatrix(WideMatrix::Constant(1, 1, x)); };
  check("dQ", found.Q, expected.Q, b.Q);
  check("dK", found.K, expected.K, b.K);
  check("dV", found.V, expected.V, b.V);
  check("d scale", one(found.scale), one(expected.scale), one(b.scale));
  for (std::size_t n = 0; n < found.log_gamma.size(); ++n) {
    const WideMatrix& x = found.log_gamma[n];
    const WideMatrix& y = expected.log_gamma[expected.log_gamma.size() > 1 ? n : 0];
    if (x.size() == y.size())
      check("d log gamma", x, y, x.size() == 1 ? one(b.log_gamma.sum()) : WideMatrix(b.log_gamma.transpose()));
    else
      check("d log gamma", x, one(y.sum()), one(b.log_gamma.sum()));
  }
  if (found.initial.size() > 0) check("[dS_0; dZ_0]", found.initial, expected.initial, b.initial);
  const Parameters& p = parameters_;
  switch (kind_.steps) {
    case Steps::none:
      break;
    case Steps::channels:
      check("d log a", found.log_a, expected.log_a, channel_bounds(b, call_.Q.rows()));
      break;
    case Steps::mixing: {
      const auto of = householder_bounds(b, p.w.cast<Wide>(), p.strengths.cast<Wide>());
      check("dw", found.w, expected.w, of.w);
      check("d beta", found.strengths, expected.strengths, of.beta.transpose());
      if (kind_.is_gated) check("d log a", found.log_a, expected.log_a, channel_bounds(b, call_.Q.rows()));
      break;
    }
    case Steps::positions: {
      const auto of = structured_bounds(b, p.frequencies.cast<Wide>(), p.positions.cast<Wide>(), call_.Q.rows());
      check("d r", found.positions, expected.positions, of.positions);
      check("d Lambda", found.frequencies, expected.frequencies, of.frequencies);
      check("skew(U'dU)", found.basis, expected.basis, of.basis);
      break;
    }
    case Steps::rates:
    case Steps::fixed_rates: {
      const bool has_rates = kind_.steps == Steps::rates;
      const auto of =
          rotary_bounds(b, call_, p.theta.cast<Wide>(),
                        has_rates ? WideVector(p.beta.cast<Wide>()) : WideVector(WideVector::Ones(call_.tokens())));
      check("d theta", found.theta, expected.theta, of.theta.transpose());
      if (has_rates) check("d beta", found.beta, expected.beta, of.beta.transpose());
      if (found.frame.size() > 0) check("d mu", found.frame, expected.frame, of.mu.transpose());
    }
  }
  return worst;
}

}  // namespace sympow::test
