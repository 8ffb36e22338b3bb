// Draws docs/gradient_error.svg: how exact gradients are in float, against the bounds of the gradient row rule.
//
//     gradient_error_plot FILE.svg
//
// Left, the worst entry of every token of dQ, dK and dV of a few sequences beside its bound. Right, d log γ_t beside
// its size, by flows as the library has it and by suffix sums of q·dq - k·dk. All are float, against the definition.
#include <sympow/attention/gradients.hpp>
#include <sympow/core/random.hpp>
#include <sympow/sympow.hpp>
#include <sympow/verify/gradient_row_rule.hpp>

#include <array>
#include <cstdio>
#include <iostream>
#include <string>

#include "plot.hpp"

using namespace sympow;
using verify::Wide;

namespace {

constexpr int P = 2;
constexpr Index d = 6, e = 4, T = 48, chunk = 16;

using Feature = SymmetricPower<P>;
using WideMatrix = Matrix<Wide>;

// A sequence with gates of about this log, and the first rows' gradients beside larger ones of later rows.
struct Sequence {
  Matrix<float> Q, K, V, dY;
  Eigen::VectorXd log_gamma;
  Sequence(Random& random, double gates)
      : Q(random.matrix<float>(d, T)),
        K(random.matrix<float>(d, T)),
        V(random.matrix<float>(e, T)),
        dY(random.matrix<float>(e, T)),
        log_gamma(-gates * random.vector(T).cwiseAbs()) {}
};

struct Points {
  std::array<plot::Points, 3> vectors;  // bound and error of dQ, dK and dV, relative to the largest entry
  plot::Points flows, suffixes;         // |d log γ_t| and its error, relative to the largest
  double worst = 0;                     // error by bound
};

void add(Points& points, const Sequence& x) {
  const auto transition = decay(x.log_gamma);
  const Feature feature;
  const verify::GradientArithmetic arithmetic{0x1p-24, static_cast<double>(chunk)};
  const verify::GradientCall call =
      verify::without_degenerate_rows(verify::gradient_call(feature, transition, x.Q, x.K, x.V, x.dY), arithmetic);
  const auto exact = verify::gradient_reference(call);
  const auto bounds = verify::gradient_bounds(call, arithmetic);
  const Matrix<float> dY = call.dY.cast<float>();
  const auto found =
      chunked_vjp(feature, transition, {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .options = {.chunk = chunk}});
  const auto compare = [&](std::size_t which, const Matrix<float>& g, const WideMatrix& of, const WideMatrix& bound) {
    const WideMatrix apart = (g.cast<Wide>() - of).cwiseAbs();
    const Wide size = of.cwiseAbs().maxCoeff();
    for (Index t = 0; t < T; ++t) {
      const Wide error = apart.col(t).maxCoeff(), allowed = bound(0, t);
      if (error == 0) continue;
      points.vectors[which].emplace_back(static_cast<double>(allowed / size), static_cast<double>(error / size));
      points.worst = std::max(points.worst, static_cast<double>(error / allowed));
    }
  };
  compare(0, found.Q, exact.Q, bounds.Q);
  compare(1, found.K, exact.K, bounds.K);
  compare(2, found.V, exact.V, bounds.V);
  const Wide size = exact.log_gamma.cwiseAbs().maxCoeff();
  double suffix = 0;
  for (Index t = T - 1; t > 0; --t) {
    const auto product = [&](const Matrix<float>& a, const Matrix<float>& b) {
      return a.col(t).cast<double>().dot(b.col(t).cast<double>());
    };
    suffix += (product(x.Q, found.Q) - product(x.K, found.K)) / P;
    const Wide of = exact.log_gamma[t], at = std::abs(of) / size;
    const auto error = [&](double gradient) { return static_cast<double>(std::abs(gradient - of) / size); };
    points.flows.emplace_back(static_cast<double>(at), error(found.transition.log_gamma[t]));
    points.suffixes.emplace_back(static_cast<double>(at), error(suffix));
    points.worst =
        std::max(points.worst, static_cast<double>(std::abs(found.transition.log_gamma[t] - of) / bounds.log_gamma[t]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: gradient_error_plot FILE.svg\n";
    return 2;
  }
  Random random(1);
  Points points;
  for (const double gates : {.05, .5, 4., 12.}) add(points, Sequence(random, gates));

  constexpr double least_bound = 1e-8, least_error = 1e-12, least_size = 1e-8, unit = 0x1p-24;
  const plot::Axis bounds{least_bound, 1, 2, plot::scientific}, sizes{least_size, 1, 2, plot::scientific};
  const plot::Axis errors{least_error, 1, 2, plot::scientific}, of_gates{1e-16, 1e-4, 2, plot::scientific};
  plot::Panel vectors("dQ, dK, dV: errors of tokens", bounds, "bound, relative to the largest entry", errors,
                      "error, relative to the largest entry", 60);
  plot::Panel gates("d log γ: errors of tokens", sizes, "|d log γ|, relative to the largest", of_gates,
                    "error, relative to the largest", 450);
  const std::array<const char*, 3> colours = {plot::green, plot::blue, plot::orange}, names = {"dQ", "dK", "dV"};
  for (std::size_t n = 0; n < 3; ++n) vectors.dots(points.vectors[n], colours[n]);
  gates.crosses(points.suffixes, plot::vermillion);
  gates.dots(points.flows, plot::blue);
  vectors.curve({{least_bound, least_bound}, {1, 1}}, plot::gray);
  gates.curve({{least_size, least_size * unit}, {1, unit}}, plot::gray);

  const std::string dot = "h0", stroke = "stroke-width='6' stroke-linecap='round' stroke='";
  std::string content = vectors.svg() + gates.svg();
  for (std::size_t n = 0; n < 3; ++n)
    content += plot::legend(60 + 90 * static_cast<double>(n), 378, dot, stroke + colours[n] + "'", names[n]);
  content += plot::legend(60, 396, "h24", "stroke-width='2' stroke='#888888'",
                          "left: error = bound; right: error = u times the size");
  content += plot::legend(450, 378, dot, stroke + plot::blue + "'", "flows");
  content += plot::legend(450, 391, plot::Panel::cross,
                          std::string("fill='none' stroke-width='2' stroke='") + plot::vermillion + "'",
                          "suffix sums of q·dq - k·dk");
  if (!plot::write("gradient_error_plot", argv[1], 420,
                   "Errors of gradients in float, chunked_vjp, P = 2, d = 6, four sequences of 48 tokens", content))
    return 2;
  std::printf("the largest error is %.2f of its bound\n", points.worst);
}
